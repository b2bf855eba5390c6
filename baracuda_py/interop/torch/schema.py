"""An op's function as the schema of a custom op: which parameters are tensors, numbers and texts, and what it returns."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import torch

from ...plan.registry import Op, all_ops
from ...types import InvalidProblemError, OperandTypeError
from .. import signature
from ..codec import decode, encode
from ..signature import HOW, PAIRS, Parameter

__all__ = ["Signature", "read_signatures", "signature_of"]

_KINDS = ("bool", "str")  # types of arguments that decide which outputs a call has
NUMBER = "_number"  # the suffix of the argument that holds a number in place of an array


class Signature(signature.Signature):
    """The schema of an op, and how the arguments of its function are passed and read."""

    def __init__(self, op: Op) -> None:
        super().__init__(op)
        self.places = tuple(part.partition("=")[0].split()[-1] for part in self._declared(twin=False))

    def text(self, *, twin: bool = False) -> str:
        """The schema, after the op's name. The `twin` of an op that writes to operands returns copies of them instead."""
        if twin:
            returns = "Tensor[]"
        else:
            returns = ("()", "Tensor")[len(self.outputs)] if len(self.outputs) < 2 else "Tensor[]"
        return f"({', '.join(self._declared(twin=twin))}) -> {returns}"

    def _declared(self, *, twin: bool) -> list[str]:
        """The arguments of the custom op, those without a default first."""
        parts = [_unwritten(p.declared) if twin else p.declared for p in self.passed]
        parts += [f"Scalar? {name}{NUMBER}=None" for name in self.numbers]
        parts += [f"str? {name}=None" for name in HOW]
        return [part for part in parts if "=" not in part] + [part for part in parts if "=" in part]

    # ---- the arguments of the function -> those of the custom op -----------------------------------------------------

    def lowered(self, given: Mapping[str, Any], encode: Callable[[Any, str], Any] = encode) -> list[Any]:
        """The arguments of the custom op. Dynamo traces this."""
        values: dict[str, Any] = {}
        for p in self.passed:
            value = given.get(p.name)
            if p.tensor:
                if value is not None and not isinstance(value, torch.Tensor):
                    if not p.number:
                        raise OperandTypeError(
                            f"{self.name}: {p.name} is no torch tensor, and torch records this call",
                            f"pass a torch tensor as {p.name}",
                        )
                    values[p.name + NUMBER] = value
                    value = None
                values[p.name] = value
            elif p.text:
                values[p.name] = encode(value, f"{self.name}: {p.name}")
            elif p.name not in given:
                values[p.name] = None if p.default is inspect.Parameter.empty else p.default
            elif p.annotation == PAIRS:
                values[p.name], indexed = _flattened(value, given["dest"])
                if indexed:
                    values["source"] = _with_axes(values["source"], indexed, len(given["dest"].shape))
            else:
                values[p.name] = value
        for name in HOW:
            values[name] = encode(given.get(name), f"{self.name}: {name}")
        return [values.get(name) for name in self.places]

    # ---- and back ----------------------------------------------------------------------------------------------------

    def raised(self, arguments: Sequence[Any]) -> dict[str, Any]:
        """The arguments of the function, of those of the custom op."""
        given: dict[str, Any] = dict.fromkeys(self._unset)
        for (name, read), value in zip(
            self._readers, arguments
        ):  # torch leaves out trailing arguments that have their default
            if value is not None:
                given[name] = value if read is None else read(value)
        return given

    def kernel(self, note: Callable[[Sequence[Any], Any], None]) -> Callable[..., Any]:
        """The function, taking the arguments of the custom op by position and returning what its schema says, for an op that
        writes to no operand. Its code is generated, as that of the function is: reading the arguments through tables takes as
        long as the call. `note` is told of the first call of each kind: its arguments and its result."""
        names = {f"_{p.name}_": p.default for p in self.passed}
        places = [
            name if "=" not in part else f"{name}=None" for name, part in zip(self.places, self._declared(twin=False))
        ]
        first = [self._read(p) for p in self.passed if p.name in self.positional]
        named = [f"{p.name}={self._read(p)}" for p in self.passed if p.name not in self.positional]
        named += [f"{name}=None if {name} is None else _decode({name})" for name in HOW]
        lines = [f"def kernel({', '.join(places)}):", f"    made = _function({', '.join((*first, *named))})"]
        if self.single:
            lines += ["    return made"]
        else:
            kind = [
                f"{p.name} is None" if p.tensor else p.name
                for p in self.passed
                if p.tensor or p.text or p.type in _KINDS
            ]
            lines += [
                f"    kind = ({', '.join(kind)},)",
                f"    if kind not in _seen: _note(({', '.join(self.places)},), made); _seen.add(kind)",
                "    return list(made) if isinstance(made, tuple) else [made]",
            ]
        known = {"_function": self.op.function, "_decode": decode, "_paired": _paired, "_note": note, "_seen": set()}
        names |= known
        exec(compile("\n".join(lines), f"<torch.ops.baracuda.{self.name}>", "exec"), names)
        return names["kernel"]  # type: ignore[no-any-return]

    @staticmethod
    def _read(p: Parameter) -> str:
        """The expression of one of the function's arguments, of those of the custom op."""
        value = p.name
        if p.number:
            value = f"({p.name}{NUMBER} if {p.name} is None else {p.name})"
        read = f"_decode({value})" if p.text else f"_paired({value})" if p.annotation == PAIRS else value
        default = "None" if p.default is inspect.Parameter.empty else f"_{p.name}_"
        return value if read == value and default == "None" else f"{default} if {value} is None else {read}"

    @cached_property
    def _unset(self) -> tuple[str, ...]:
        """The arguments without a default."""
        return tuple(p.name for p in self.passed if p.default is inspect.Parameter.empty)

    @cached_property
    def _readers(self) -> tuple[tuple[str, Callable[[Any], Any] | None], ...]:
        """For each place, the argument that it holds and how that is read."""
        own = {p.name: decode if p.text else _paired if p.annotation == PAIRS else None for p in self.passed}
        found = [(name, own.get(name, decode if name in HOW else None)) for name in self.places]
        return tuple(
            (name.removesuffix(NUMBER) if name not in own and name not in HOW else name, read) for name, read in found
        )


def _paired(flat: Sequence[int]) -> tuple[tuple[int, int], ...]:
    return tuple(zip(flat[::2], flat[1::2]))


_signatures: dict[str, Signature] = {}


def read_signatures() -> Mapping[str, Signature]:
    """The schemas of all ops by name."""
    if not _signatures:
        _signatures.update((name, Signature(op)) for name, op in all_ops().items())
    return _signatures


def signature_of(name: str) -> Signature:
    """The schema of the op with that name, once they were read. Dynamo traces this."""
    return _signatures[name]


def _unwritten(declared: str) -> str:
    head, bracket, tail = declared.partition("(")
    return head + tail.partition(")")[2] if bracket and head == "Tensor" else declared


def _flattened(ranges: Any, dest: Any) -> tuple[list[Any], list[int]]:
    """Starts and ends, one after the other, and the axes that an integer indexes. Dynamo traces this."""
    rank = len(dest.shape)
    items: list[Any] = [ranges] if ranges is Ellipsis or isinstance(ranges, (slice, int)) else list(ranges)
    if any(not isinstance(item, (tuple, list)) for item in items):  # as NumPy's: axes that are not named are whole
        gaps = [i for i, item in enumerate(items) if item is Ellipsis]
        at = gaps[0] if gaps else len(items)
        items = items[:at] + [slice(None)] * (rank - len(items) + len(gaps)) + items[at + len(gaps) :]
    flat: list[Any] = []
    indexed = []
    for axis, part in enumerate(items):
        extent = dest.shape[axis] if axis < rank else 0
        if isinstance(part, slice):
            if part.step not in (None, 1):
                raise InvalidProblemError("write_slice: a window has no steps", "give slices without a step")
            first, end = 0 if part.start is None else part.start, extent if part.stop is None else part.stop
            flat += [first + extent if first < 0 else first, end + extent if end < 0 else end]
        elif isinstance(part, int):
            first = part + extent if part < 0 else part
            flat += [first, first + 1]
            indexed.append(axis)
        else:
            first, end = part
            flat += [first, end]
    return flat, indexed


def _with_axes(source: Any, indexed: list[int], rank: int) -> Any:
    """A source with axes of extent 1 in the place of those that integers index. Dynamo traces this."""
    kept = [axis for axis in range(rank) if axis not in indexed]
    own = len(source.shape)
    if own > len(kept):
        return source
    places = kept[len(kept) - own :]
    return source[tuple(slice(None) if axis in places else None for axis in range(rank))]
