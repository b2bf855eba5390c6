"""Options of shape ops: one int or several, and numbers that become elements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..plan.fields import integer, integers
from ..types import ElementKind, InvalidProblemError, OperandTypeError

__all__ = ["element_bytes", "kind_for", "number", "one_or_more"]

NOT_FINITE = ("nan", "inf", "-inf")


def one_or_more(value: Any, what: str) -> tuple[int, ...]:
    """A tuple of ints from one or several."""
    return integers(value, what) if isinstance(value, (Sequence, np.ndarray)) else (integer(value, what),)


def number(value: Any, what: str) -> Any:
    """A real number as Python's own. NaN and infinities are kept as texts, as JSON has them: these equal themselves."""
    if isinstance(value, (bool, np.bool_)):
        return int(value)
    if isinstance(value, (int, np.integer)):
        return integer(value, what)
    if isinstance(value, (float, np.floating)):
        return float(value) if math.isfinite(value) else str(float(value))
    if isinstance(value, str) and value in NOT_FINITE:
        return value
    raise OperandTypeError(f"{what} must be a real number, got {type(value).__name__}", "give an int or a float")


def kind_for(numbers: tuple[Any, ...], dtype: Any) -> ElementKind:
    """The kind that was asked for; else NumPy's for these numbers: i64 for integers, f64 for others."""
    if dtype is not None:
        return ElementKind.of(dtype)
    return ElementKind.F64 if any(isinstance(one, (float, str)) for one in numbers) else ElementKind.I64


def element_bytes(op: str, name: str, value: Any, kind: ElementKind) -> bytes:
    """The bytes of a number as an element of `kind`; raises where an integer kind does not hold it."""
    value = float(value) if value in NOT_FINITE else value
    if kind.is_integer:
        info = np.iinfo(kind.dtype)
        if (isinstance(value, float) and not value.is_integer()) or not info.min <= value <= info.max:
            raise InvalidProblemError(
                f"{op}: {name}={value} is no {kind}", f"give an integer from {info.min} to {info.max}"
            )
        value = int(value)
    with np.errstate(over="ignore"):
        return np.asarray(value).astype(kind.dtype).tobytes()
