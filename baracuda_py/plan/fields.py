"""Converts the fields that users pass: lists and NumPy ints to tuples of ints, names to members, numbers to floats; and fields
to JSON."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, TypeVar

import numpy as np

from ..tensor.axes import as_ints, index_of
from ..types import ElementKind, InvalidProblemError, OperandTypeError
from ..types.errors import shown
from ..types.vocabulary import unknown

__all__ = ["Conversion", "choice", "conversion", "flag", "integer", "integers", "kind", "plain", "scalar", "whole"]

T = TypeVar("T")
Conversion: TypeAlias = Callable[[Any, str], Any]  # (value, its description for errors)


def conversion(annotation: str, known: Mapping[str, Any], *, value: bool = False) -> Conversion | None:
    """The conversion for a field with that annotation (its names are looked up in `known`); None if the descriptor converts the
    field itself. `value` marks run-time values, which are ints if annotated so, else floats."""
    stored = annotation.removesuffix(" | None")
    if value:
        return whole if stored == "int" else scalar
    by_name: dict[str, Conversion] = {"tuple[int, ...]": integers, "int": integer, "ElementKind": kind}
    if stored in by_name:
        return by_name[stored]
    member = known.get(stored)
    return choice(member) if isinstance(member, enum.EnumMeta) else None


def integer(value: Any, what: str) -> int:
    """`index_of`, with errors that name the value."""
    return _converted(index_of, value, what, "an integer", "an int")


def integers(values: Any, what: str) -> tuple[int, ...]:
    """A tuple of Python ints from a tuple, a list or a NumPy array; sets and iterators are refused."""
    return _converted(as_ints, values, what, "a sequence of integers", "a tuple of ints")


def _converted(made: Callable[[Any], T], value: Any, what: str, wanted: str, hint: str) -> T:
    try:
        return made(value)
    except OverflowError:
        raise InvalidProblemError(
            f"{what}={shown(value)} reaches beyond 64 bits", f"give {hint} of memory's size"
        ) from None
    except Exception:  # a foreign object's __index__ or __len__ may raise anything
        raise InvalidProblemError(f"{what}={shown(value)} is not {wanted}", f"give {hint}") from None


def flag(value: Any, what: str) -> bool:
    """A bool, of Python or NumPy."""
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    raise InvalidProblemError(f"{what} must be True or False, got {shown(value)}", "give a bool")


def kind(value: Any, _what: str) -> ElementKind:
    """An element kind from its name, or from a dtype or its name."""
    return ElementKind.of(value)


def scalar(value: Any, what: str) -> float:
    """Converts to a float. Every NaN becomes the same object, so that a descriptor equals itself. Arrays are refused, because
    reading one in device memory would synchronise."""
    if type(value) is float:
        return math.nan if value != value else value
    name = what.split()[-1]
    if not isinstance(value, (float, int, np.floating, np.integer)):
        raise OperandTypeError(f"{what} must be a number, got {type(value).__name__}", f"{name}=float(...)")
    try:
        return scalar(float(value), what)
    except OverflowError:
        bits = int(value).bit_length()
        raise InvalidProblemError(
            f"{what} is an integer of {bits} bits, beyond any float", f"{name}=math.inf"
        ) from None
    except Exception as error:  # a subclass's own __float__
        raise OperandTypeError(
            f"{what}: __float__ of {type(value).__name__} failed ({type(error).__name__}: {error})", "pass a float"
        ) from None


def whole(value: Any, what: str) -> int:
    """Converts a run-time value that is declared as an int. Arrays are refused, as by `scalar`."""
    if not isinstance(value, (int, np.integer)):
        raise OperandTypeError(f"{what} must be an integer, got {type(value).__name__}", f"{what.split()[-1]}=int(...)")
    if not -(1 << 63) <= value < 1 << 63:
        raise InvalidProblemError(
            f"{what}={shown(value)} reaches beyond 64 bits, one of which is the sign",
            "give an integer that int64 holds",
        )
    return int(value)


def choice(known: Any) -> Conversion:
    """The conversion to a member of an enumeration (a class with `of`), or to one of several names."""

    def one_of(value: Any, what: str) -> str:
        if not isinstance(value, str) or value not in known:
            raise unknown(value, known, what)
        return str(value)

    return one_of if isinstance(known, tuple) else known.of


def plain(value: Any) -> Any:
    """A field as JSON types; numbers that JSON lacks as ``"nan"``, ``"inf"`` and ``"-inf"``."""
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, (tuple, list)):
        return [plain(v) for v in value]
    if isinstance(value, np.integer):
        return int(value)
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
