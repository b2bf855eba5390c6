"""full, eye, arange, linspace: the arrays that the ops of this family fill, allocated by NumPy's rules."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...plan.fields import integer
from ...plan.registry import composed
from ...types import ElementKind, InvalidProblemError, PlanPreference
from ...types.elements import ElementLike
from .._empty import empty_array
from .._numbers import kind_for, number, one_or_more, unsigned_zero
from .constants import fill, fill_eye
from .sequences import fill_arange, fill_linspace

__all__ = ["arange", "eye", "full", "linspace"]


@composed("fulllike")
def full(
    shape: int | Sequence[int], fill_value: int | float, dtype: ElementLike | None = None, *, stream: Any = None,
    pref: PlanPreference | None = None, device: Any = None,
) -> Any:  # fmt: skip
    """An array of `shape` whose elements are all `fill_value`, as numpy.full: allocated, then `fill`.

    dtype: any byte-wide kind; by default bool for a bool, i64 for an integer, f64 for a float. The array is CuPy's (NumPy's for
    ``device="cpu"`` and ``"ptx"``); for another framework's pass its own array to `fill`.
    """
    kind = ElementKind.BOOL if dtype is None and isinstance(fill_value, (bool, np.bool_)) else dtype
    made = empty_array("full", one_or_more(shape, "full: shape"), _kind("full", (fill_value,), kind), device)
    return fill(made, fill_value, stream=stream, pref=pref, device=device)


@composed("identity")
def eye(
    n: int, m: int | None = None, k: int = 0, dtype: ElementLike = ElementKind.F64, *, stream: Any = None,
    pref: PlanPreference | None = None, device: Any = None,
) -> Any:  # fmt: skip
    """A matrix of n rows and m columns (n by default) with ones on diagonal `k`, as numpy.eye: allocated, then `fill_eye`."""
    shape = integer(n, "eye: n"), integer(n if m is None else m, "eye: m")
    return fill_eye(
        empty_array("eye", shape, ElementKind.of(dtype), device), k, stream=stream, pref=pref, device=device
    )


@composed()
def arange(
    start: int | float, stop: int | float | None = None, step: int | float = 1, dtype: ElementLike | None = None, *,
    stream: Any = None, pref: PlanPreference | None = None, device: Any = None,
) -> Any:  # fmt: skip
    """Numbers from `start` up to `stop`, without it, `step` from one to the next, as numpy.arange: allocated, then `fill_arange`.

    Of one number it is the end, and the start is 0. dtype: by default i64 where all three are integers, else f64. Raises
    InvalidProblemError for a step of 0, and where the count is not finite.
    """
    first, last = (0, start) if stop is None else (start, stop)
    given = tuple(unsigned_zero(x, f"arange: {name}") for name, x in (("start", first), ("stop", last), ("step", step)))
    made = empty_array("arange", (_count(*given),), _kind("arange", given, dtype), device)
    return fill_arange(made, given[0], given[2], stream=stream, pref=pref, device=device)


@composed()
def linspace(
    start: float, stop: float, num: int = 50, *, endpoint: bool = True, dtype: ElementLike = ElementKind.F64,
    stream: Any = None, pref: PlanPreference | None = None, device: Any = None,
) -> Any:  # fmt: skip
    """`num` numbers from `start` to `stop` at equal distances, as numpy.linspace: allocated, then `fill_linspace`."""
    made = empty_array("linspace", (integer(num, "linspace: num"),), ElementKind.of(dtype), device)
    return fill_linspace(made, start, stop, endpoint=endpoint, stream=stream, pref=pref, device=device)


def _kind(op: str, numbers: tuple[Any, ...], dtype: Any) -> ElementKind:
    return kind_for(tuple(number(one, f"{op}: a number") for one in numbers), dtype)


def _count(start: Any, stop: Any, step: Any) -> int:
    """How many numbers there are before `stop`."""
    if not step:
        raise InvalidProblemError("arange: step=0 never reaches stop", "give another step")
    if all(isinstance(x, int) for x in (start, stop, step)):
        return max(-int((start - stop) // step), 0)
    if any(isinstance(x, str) for x in (start, stop, step)) or not math.isfinite((stop - start) / step):
        raise InvalidProblemError(f"arange: {start}, {stop} and {step} give no finite count", "give other numbers")
    count: int = math.ceil((stop - start) / step)
    return max(count, 0)
