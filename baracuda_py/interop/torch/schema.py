"""An op's function as the schema of a custom op: which parameters are tensors, numbers and texts, and what it returns."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from ...plan.registry import Op, all_ops
from ...types import InvalidProblemError, OperandTypeError
from .codec import decode, encode

__all__ = ["HOW", "Parameter", "Signature", "read_signatures", "signature_of"]

HOW = ("pref", "device")  # how a call is made, which every op's schema ends with
NUMBER = "_number"  # the suffix of the argument that holds a number in place of an array
_PLAIN = {
    "int": "SymInt", "int | None": "SymInt?", "float": "float", "float | None": "float?", "bool": "bool", "str": "str",
    "Sequence[int] | None": "SymInt[]?", "Sequence[Any]": "SymInt[]",
}  # fmt: skip
_PAIRS = "Sequence[Any]"  # an axis' start and end each, or a slice


@dataclass(frozen=True)
class Parameter:
    """One parameter of an op's function. `type` is its type in the schema; "" if it is an output that a call may pass."""

    name: str
    type: str
    annotation: str
    default: Any
    number: bool = False  # whether it may be a number instead of an array

    @property
    def tensor(self) -> bool:
        return self.type.startswith("Tensor")

    @property
    def text(self) -> bool:
        return self.type == "str?" and self.annotation != "str | None"

    @property
    def declared(self) -> str:
        """Its part of the schema."""
        if self.default is inspect.Parameter.empty or self.number:
            return f"{self.type} {self.name}"
        default = None if self.text else self.default
        return f"{self.type} {self.name}={json.dumps(default) if isinstance(default, str) else default}"


class Signature:
    """The schema of an op, and how the arguments of its function are passed and read."""

    def __init__(self, op: Op) -> None:
        self.op, self.name = op, op.name
        operands = {o.name: o for o in op.plan.descriptor.signature_operands}
        own = inspect.signature(op.function).parameters.values()
        self.parameters = tuple(
            _parameter(p, op, operands.get(op.arguments.get(p.name, p.name)))
            for p in own
            if p.name not in ("stream", *HOW)
        )
        self.passed = tuple(p for p in self.parameters if p.type)
        self.outputs = tuple(o.name for o in operands.values() if o.role == "out")
        self.given_outputs = tuple(p.name for p in self.parameters if not p.type)
        self.written = tuple(p.name for p in self.passed if "!" in p.type)
        self.tensors = tuple(p.name for p in self.passed if p.tensor)
        self.numbers = tuple(p.name for p in self.passed if p.number)
        self.required = tuple(p.name for p in self.passed if p.type == "Tensor")
        self.names = (*(p.name for p in self.parameters), "stream", *HOW)
        self.by_position = tuple(p.name for p in own if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD))
        self.flags: Mapping[str, str] = getattr(op.function, "flags", {})
        self.single = len(self.outputs) == 1 and not self.written  # whether it always returns one tensor
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

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of a call of the function, by name. Dynamo traces this."""
        if len(args) > len(self.by_position):
            raise TypeError(f"{self.name}() takes {len(self.by_position)} positional arguments, got {len(args)}")
        given = dict(zip(self.by_position, args))
        for name, value in kwargs.items():
            if name not in self.names or name in given:
                raise TypeError(f"{self.name}() takes {', '.join(self.names)}, each once, got {name}")
            given[name] = value
        return given

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
            elif p.annotation == _PAIRS:
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
            elif p.annotation == _PAIRS:
                given[p.name] = tuple(zip(value[::2], value[1::2]))
            else:
                given[p.name] = value
        for name in HOW:
            if values.get(name) is not None:
                given[name] = decode(values[name])
        return given

    def call(self, given: Mapping[str, Any]) -> Any:
        """Calls the function with arguments by name."""
        first = [given[name] for name in self._positional if name in given]
        return self.op.function(*first, **{n: x for n, x in given.items() if n not in self._positional})

    @cached_property
    def _positional(self) -> tuple[str, ...]:
        parameters = inspect.signature(self.op.function).parameters.values()
        return tuple(p.name for p in parameters if p.kind is p.POSITIONAL_ONLY)


_signatures: dict[str, Signature] = {}


def read_signatures() -> Mapping[str, Signature]:
    """The schemas of all ops by name."""
    if not _signatures:
        _signatures.update((name, Signature(op)) for name, op in all_ops().items())
    return _signatures


def signature_of(name: str) -> Signature:
    """The schema of the op with that name, once they were read. Dynamo traces this."""
    return _signatures[name]


def _parameter(p: inspect.Parameter, op: Op, operand: Any) -> Parameter:
    annotation = p.annotation if isinstance(p.annotation, str) else getattr(p.annotation, "__name__", "Any")
    number = operand is not None and operand.name in op.plan.descriptor.values
    if operand is not None and operand.role == "out":
        return Parameter(p.name, "", annotation, None)
    if operand is not None or p.name in _TENSORS.get(op.name, ()):
        optional = p.default is not inspect.Parameter.empty or operand is None or operand.optional or number
        alias = ""
        if operand is not None and operand.role == "inout":
            written = [o.name for o in op.plan.descriptor.signature_operands if o.role == "inout"]
            alias = f"({chr(ord('a') + written.index(operand.name))}!)"
        elif p.name == "status":
            alias = "(z!)"
        return Parameter(p.name, f"Tensor{alias}{'?' if optional else ''}", annotation, p.default, number)
    return Parameter(p.name, _PLAIN.get(annotation, "str?"), annotation, p.default)


# Operands that a family's table does not name, because another descriptor of it has them.
_TENSORS = {"write_slice": ("start", "status")}


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
