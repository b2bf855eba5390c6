"""An op's function as the schema of a custom op: which parameters are tensors, numbers and texts, and what it returns."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ...plan.registry import Op, all_ops
from ...types import InvalidProblemError, OperandTypeError
from .. import signature
from ..codec import decode, encode
from ..signature import HOW, PAIRS

__all__ = ["Signature", "read_signatures", "signature_of"]

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

    def lowered(self, given: Mapping[str, Any]) -> list[Any]:
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
                values[p.name] = _flattened(value, given)
            else:
                values[p.name] = value
        for name in HOW:
            values[name] = encode(given.get(name), f"{self.name}: {name}")
        return [values.get(name) for name in self.places]

    # ---- and back ----------------------------------------------------------------------------------------------------

    def raised(self, arguments: Sequence[Any]) -> dict[str, Any]:
        """The arguments of the function, of those of the custom op."""
        values = dict(zip(self.places, arguments))
        given: dict[str, Any] = {}
        for p in self.passed:
            value = values.get(p.name)
            if value is None and p.number:
                value = values.get(p.name + NUMBER)
            if value is None:
                if p.default is inspect.Parameter.empty:
                    given[p.name] = None
            elif p.text:
                given[p.name] = decode(value)
            elif p.annotation == PAIRS:
                given[p.name] = tuple(zip(value[::2], value[1::2]))
            else:
                given[p.name] = value
        for name in HOW:
            if values.get(name) is not None:
                given[name] = decode(values[name])
        return given


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


def _flattened(ranges: Any, given: Mapping[str, Any]) -> list[Any]:
    """Starts and ends, one after the other. Dynamo traces this."""
    flat = []
    for axis, part in enumerate(ranges):
        if isinstance(part, slice):
            if part.step not in (None, 1):
                raise InvalidProblemError("write_slice: a window has no steps", "give slices without a step")
            first, end = part.start, part.stop
            flat += [0 if first is None else first, given["dest"].shape[axis] if end is None else end]
        else:
            first, end = part
            flat += [first, end]
    return flat
