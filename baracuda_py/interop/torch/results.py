"""The result of a custom op, a list of tensors, as what the op's function returns: a tensor or a named tuple."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from ...plan.selection import result_type
from ...tensor.dispatch import result_types
from ..codec import encode
from .schema import Signature

__all__ = ["as_list", "learn", "named", "read_types", "result_of", "written_by"]

_written: dict[tuple[str, str], tuple[str, ...]] = {}


def _kind(signature: Signature, given: Mapping[str, Any]) -> str:
    """A text of what decides which outputs a call has: the operands and flags that are given, and the texts."""
    parts = []
    for p in signature.passed:
        value = given.get(p.name, p.default)
        if p.tensor:
            parts.append("-" if value is None else "x")
        elif p.type == "bool":
            parts.append("1" if value else "0")
        elif p.type == "str":
            parts.append(value)
        elif p.text:
            parts.append(encode(given.get(p.name), p.name) or "-")
    return ",".join(parts)


def learn(signature: Signature, given: Mapping[str, Any], written: tuple[str, ...]) -> None:
    """Notes the names of what such a call writes."""
    _written[signature.name, _kind(signature, given)] = written


def read_types(signature: Signature) -> None:
    """Makes the named tuples of all results that an op may have, ahead of traces, which may not see a table change."""
    slots = [slot.name for slot in signature.op.plan.descriptor.slots if slot.role != "in"]
    names = list(dict.fromkeys((*slots, *signature.outputs, *signature.written)))
    for count in range(2, len(names) + 1):
        for some in itertools.combinations(names, count):
            if some[0] == names[0]:
                result_types[signature.name, some] = result_type(signature.op.plan, some)


def written_by(signature: Signature, given: Mapping[str, Any]) -> tuple[str, ...]:
    """The names of what a call writes, once one of its kind was made or traced."""
    return _written[signature.name, _kind(signature, given)]


def _names(name: str, kind: str) -> str:
    return ",".join(_written[name, kind])


_names._dynamo_marked_constant = True  # type: ignore[attr-defined]  # Dynamo carries it out while it traces


def result_of(signature: Signature, given: Mapping[str, Any], made: Any) -> Any:
    """The function's result, of what the custom op returned. Dynamo traces this."""
    if signature.single:
        return made
    names = _names(signature.name, _kind(signature, given)).split(",")
    fresh = list(made) if isinstance(made, (list, tuple)) else [made]
    values = [given[name] if name in signature.written else fresh.pop(0) for name in names]
    if len(values) == 1:
        return values[0]
    return named(signature, names, values)


def named(signature: Signature, names: Sequence[str], values: Sequence[Any]) -> Any:
    """A named tuple of results. Dynamo traces this."""
    return result_types[signature.name, tuple(names)](*values)


def as_list(result: Any) -> list[Any]:
    """The tensors of a function's result."""
    return list(result) if isinstance(result, Sequence) else [result]
