"""Arguments that a traced call cannot hold as they are, as text: dtypes, enumerations, windows, shapes, preferences."""

from __future__ import annotations

import json
from collections.abc import Sequence
from enum import Enum
from functools import lru_cache
from typing import Any

import numpy as np

from ..ops.position.scaling import RopeScaling
from ..types import BaracudaError, ElementKind, InvalidProblemError, PlanPreference

__all__ = ["decode", "encode"]

ELEMENT, PREFERENCE, ROPE, SLICE, ELLIPSIS = "element", "preference", "rope_scaling", "slice", "ellipsis"


def encode(value: Any, what: str) -> str | None:
    """The text of an argument; None stands for an argument that was not given. Raises InvalidProblemError for an object that has
    no text."""
    return None if value is None else json.dumps(_plain(value, what))


encode._dynamo_marked_constant = True  # type: ignore[attr-defined]  # Dynamo carries it out while it traces


@lru_cache(maxsize=1024)
def decode(text: str) -> Any:
    """The argument of a text. The same text gives the same object, so that an object's copies on a device are made once."""
    return _made(json.loads(text))


def _plain(value: Any, what: str) -> Any:
    if isinstance(value, ElementKind):
        return {ELEMENT: value.value}
    if isinstance(value, Enum):
        return value.value
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, slice):
        return {SLICE: [_plain(x, what) for x in (value.start, value.stop, value.step)]}
    if value is ...:
        return {ELLIPSIS: None}
    if isinstance(value, PlanPreference):
        return {PREFERENCE: {name: _plain(getattr(value, name), what) for name in sorted(value.given)}}
    if isinstance(value, RopeScaling):
        return {ROPE: [value.inv_freq.tolist(), value.attention_factor]}
    if isinstance(value, (np.dtype, type)):
        return {ELEMENT: ElementKind.of(value).value}
    if isinstance(value, Sequence):
        return [_plain(x, what) for x in value]
    try:
        return {ELEMENT: ElementKind.of(value).value}
    except BaracudaError:
        raise InvalidProblemError(
            f"{what}: a {type(value).__name__} cannot be an argument of a traced call",
            "pass plain numbers, strings, dtypes, slices, sequences of them, or a PlanPreference",
        ) from None


def _made(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(map(_made, value))
    if not isinstance(value, dict):
        return value
    ((kind, held),) = value.items()
    if kind == ELEMENT:
        return ElementKind(held)
    if kind == PREFERENCE:
        return PlanPreference(**held)
    if kind == SLICE:
        return slice(*held)
    if kind == ELLIPSIS:
        return ...
    return RopeScaling(np.asarray(held[0], np.float32), held[1])
