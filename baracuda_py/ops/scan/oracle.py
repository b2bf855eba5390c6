"""Running sums in float64 (long double for f64), exactly in integers, and the measures that their bounds name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from ...numerics.rounding import wide
from ...types import ElementKind

__all__ = ["BACKWARD_MEASURES", "MEASURES", "backward", "cumsum"]

Array: TypeAlias = np.ndarray[Any, Any]


def _summed(desc: Any, terms: Array) -> Array:
    """The sums up to each term; an array without axes is its own sum."""
    return np.asarray(np.cumsum(terms, axis=desc.axis)) if terms.ndim else terms


def cumsum(desc: Any, x: Array) -> Array:
    """The sums of x up to each element along `desc.axis`, wide."""
    with np.errstate(all="ignore"):
        return _summed(desc, wide(x, desc.element))


def _reversed(desc: Any, x: Array) -> Array:
    return np.flip(x, desc.axis) if x.ndim else x


def backward(desc: Any, grad: Array) -> Array:
    """The sums of grad from each element on, wide."""
    return _reversed(desc, cumsum(desc, _reversed(desc, grad)))


# ---- measures ------------------------------------------------------------------------------------------------------


def _abs_sum(desc: Any, x: Array) -> Array:
    with np.errstate(all="ignore"):
        return np.asarray(_summed(desc, np.abs(wide(x, desc.element))), np.float64)


def _overflowing(desc: Any, x: Array) -> Array:
    """Whether the magnitudes of finite terms add up beyond what is computed in."""
    most = 2.0**124 if desc.element is not ElementKind.F64 else np.longdouble(2) ** 1020
    terms = np.abs(wide(x, desc.element))
    return np.asarray(_summed(desc, np.where(np.isfinite(terms), terms, 0)) > most)


MEASURES: dict[str, Callable[..., Array]] = {
    "abs_sum": _abs_sum,
    "overflowing": _overflowing,
}


def _of_reversed(measure: Callable[..., Array]) -> Callable[..., Array]:
    def measured(desc: Any, grad: Array) -> Array:
        return _reversed(desc, measure(desc, x=_reversed(desc, grad)))

    return measured


BACKWARD_MEASURES: dict[str, Callable[..., Array]] = {
    "abs_sum": _of_reversed(_abs_sum),
    "overflowing": _of_reversed(_overflowing),
}
