"""Options of shape ops: one int or several, and numbers that become elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..plan.fields import integer, integers
from ..types import ElementKind, InvalidProblemError, OperandTypeError

__all__ = ["element_bytes", "kind_for", "number", "one_or_more", "unsigned_zero"]

AS_TEXT = ("nan", "inf", "-inf", "-0.0")


def one_or_more(value: Any, what: str) -> tuple[int, ...]:
    """A tuple of ints from one or several. A NumPy array without axes is one: it is in host memory."""
    value = value[()] if isinstance(value, np.ndarray) and not value.ndim else value
    return integers(value, what) if isinstance(value, (Sequence, np.ndarray)) else (integer(value, what),)


def number(value: Any, what: str) -> Any:
    """A real number as Python's own. NaN, infinities and -0.0 are kept as texts: each equals itself, and -0.0 no other zero."""
    if isinstance(value, (bool, np.bool_)):
        return int(value)
    if isinstance(value, (int, np.integer)):
        beyond = value == -(1 << 63) or 1 << 63 <= value < 1 << 64  # of what sizes and offsets may be
        return int(value) if beyond else integer(value, what)
    if isinstance(value, (float, np.floating)):
        return str(float(value)) if str(float(value)) in AS_TEXT else float(value)
    if isinstance(value, str) and value in AS_TEXT:
        return value
    raise OperandTypeError(f"{what} must be a real number, got {type(value).__name__}", "give an int or a float")


def unsigned_zero(value: Any, what: str) -> Any:
    """`number`, with 0.0 in place of -0.0."""
    made = number(value, what)
    return 0.0 if made == "-0.0" else made


def kind_for(numbers: tuple[Any, ...], dtype: Any) -> ElementKind:
    """The kind that was asked for; else NumPy's for these numbers: i64 for integers, f64 for others."""
    if dtype is not None:
        return ElementKind.of(dtype)
    return ElementKind.F64 if any(isinstance(one, (float, str)) for one in numbers) else ElementKind.I64


def element_bytes(op: str, name: str, value: Any, kind: ElementKind) -> bytes:
    """The bytes of a number as an element of `kind`; raises where an integer kind does not hold it."""
    value = float(value) if value in AS_TEXT else value
    if kind.is_integer:
        info = np.iinfo(kind.dtype)
        if (isinstance(value, float) and not value.is_integer()) or not info.min <= value <= info.max:
            raise InvalidProblemError(
                f"{op}: {name}={value} is no {kind}", f"give an integer from {info.min} to {info.max}"
            )
        value = int(value)
    with np.errstate(over="ignore"):
        return np.asarray(value).astype(kind.dtype).tobytes()
