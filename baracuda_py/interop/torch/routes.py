"""The routes of traced calls: how TorchDynamo passes the arguments of an op's function to the custom op, and which of its results
the function returns.

`tensor.dispatch.trace_as_op` follows them. Dynamo carries these functions out while it traces and takes what they return as
constants, which need no guards: they are given types and constants, and what they return is of tuples, texts and numbers.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from ..codec import decode
from ..gradient import recorded_arguments
from ..signature import PAIRS, Parameter
from .autocast import may_cast
from .results import written_by
from .schema import Signature, signature_of

__all__ = ["outputs", "route"]

_NUMBERS = (bool, int, float, torch.SymInt, torch.SymFloat)
_KINDS = ("bool", "str")  # types of arguments that decide which outputs a call has
GIVEN = -1  # in place of an argument's place, for `outputs`: a tensor is given

Step = tuple[str, Any, str]  # "argument" or "text" and the place of a value, or "constant" and the value; what it is


class _Place(NamedTuple):
    """A value that is known by its place among the arguments alone."""

    place: int
    what: str = ""  # for a text: the argument, for errors


def route(name: str, types: Sequence[type], names: Sequence[str], recorded: bool) -> tuple[Any, ...] | None:
    """The route of a call with arguments of these types, of which the last ones have names: the places of the tensors; the steps
    to the custom op's arguments; the places among these of what `outputs` is given, None if the op always returns one tensor;
    and the results that only the recording of a gradient asks for. `recorded`: a tensor requires a gradient.

    None for a call that `answers.call_op` must see: one with packed weights or outputs, of an op that writes to operands, under
    autocast, or one that is to be refused."""
    signature = signature_of(name)
    count = len(types) - len(names)
    try:
        places = signature.bind(range(count), dict(zip(names, range(count, len(types)))))
    except TypeError:
        return None
    passed = {p.name: p for p in signature.passed}
    stand_ins: dict[str, Any] = {}  # arguments by name: None, a tensor that stands for one, or a place
    for argument, place in places.items():
        kind = types[place]
        if kind is type(None):
            continue
        if argument not in passed and argument not in ("pref", "device"):
            return None  # an output, or a stream
        is_tensor = issubclass(kind, torch.Tensor)
        if argument in signature.tensors:
            if not is_tensor and not (passed[argument].number and kind in _NUMBERS):
                return None
        elif is_tensor or (argument in passed and passed[argument].annotation == PAIRS):
            return None
        stand_ins[argument] = torch.empty(0, device="meta") if is_tensor else _Place(place)
    if signature.written or may_cast(signature) or any(n not in stand_ins for n in signature.required):
        return None
    tensors = {id(x): places[n] for n, x in stand_ins.items() if isinstance(x, torch.Tensor)}
    recorded = recorded and torch.is_grad_enabled()
    given = recorded_arguments(signature, stand_ins) if recorded else stand_ins
    added = [name for name in signature.flags.values() if given.get(name) is True]  # what only the recording asks for
    if recorded and any(name in stand_ins for name in added):
        return None
    steps = tuple(_step(x, tensors) for x in signature.lowered(given, _text))
    deciding = tuple(
        GIVEN if p.tensor and p.name in stand_ins else signature.places.index(p.name) for p in _deciding(signature)
    )
    dropped = tuple(output for output, flag in signature.flags.items() if flag in added)
    return tuple(tensors.values()), steps, None if signature.single else deciding, dropped


def _text(value: Any, what: str) -> _Place | None:
    return None if value is None else _Place(value.place, what)


def _step(value: Any, tensors: Mapping[int, int]) -> Step:
    if isinstance(value, torch.Tensor):
        return "argument", tensors[id(value)], ""
    if isinstance(value, _Place):
        return "text" if value.what else "argument", value.place, value.what
    return "constant", value, ""


def _deciding(signature: Signature) -> list[Parameter]:
    """The arguments that decide which outputs a call has."""
    return [p for p in signature.passed if p.tensor or p.text or p.type in _KINDS]


def outputs(
    name: str, deciding: Sequence[Any], dropped: Collection[str]
) -> tuple[tuple[str, ...] | None, tuple[int, ...]]:
    """The names of the results that the function returns (None of a tensor alone), and their places among the custom
    op's. `deciding`
    are the arguments of the custom op that decide this, True in place of a tensor."""
    signature = signature_of(name)
    given = {p.name: decode(x) if p.text else x for p, x in zip(_deciding(signature), deciding) if x is not None}
    names = written_by(signature, given)
    returned = tuple(name for name in names if name not in dropped)
    return (returned if len(returned) > 1 else None), tuple(map(names.index, returned))
