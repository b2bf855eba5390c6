"""An op's function as data: which parameters are arrays, numbers and other arguments, which it writes, and what it returns.

A framework's bridge makes a schema of it. `Parameter.type` is written in the language of torch's schemas.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ..plan.registry import Op

__all__ = ["HOW", "PAIRS", "Parameter", "Signature"]

HOW = ("pref", "device")  # how a call is made, which every op's schema ends with
_PLAIN = {
    "int": "SymInt", "int | None": "SymInt?", "float": "float", "float | None": "float?", "bool": "bool", "str": "str",
    "Sequence[int] | None": "SymInt[]?", "Sequence[Any]": "SymInt[]",
}  # fmt: skip
PAIRS = "Sequence[Any]"  # an axis' start and end each, or a slice


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
    """The parameters of an op's function by what they hold, and calls of the function by name."""

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
        # Each parameter's name, the operand it is, whether it is a whole number, and whether a dtype.
        self.held = tuple(
            (p.name, op.arguments.get(p.name, p.name), p.type.startswith("SymInt"), p.name.endswith("dtype"))
            for p in self.parameters
        )
        self.single = len(self.outputs) == 1 and not self.written  # whether it always returns one tensor

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

    def call(self, given: Mapping[str, Any]) -> Any:
        """Calls the function with arguments by name."""
        if not self.positional:
            return self.op.function(**given)
        rest = dict(given)
        first = [rest.pop(name) for name in self.positional if name in rest]
        return self.op.function(*first, **rest)

    @cached_property
    def positional(self) -> tuple[str, ...]:
        parameters = inspect.signature(self.op.function).parameters.values()
        return tuple(p.name for p in parameters if p.kind is p.POSITIONAL_ONLY)


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
