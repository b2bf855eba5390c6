"""Running sums in float64 (long double for f64), exactly in integers, and the measures that their bounds name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from ...numerics.rounding import wide
from ...types import ElementKind

__all__ = ["BACKWARD_MEASURES", "MEASURES", "RUNNING_MEASURES", "backward", "cumsum", "running"]

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


_OPERATIONS: dict[str, np.ufunc] = {
    "cumprod": np.multiply,
    "cummax": np.maximum,
    "cummin": np.minimum,
    "logcumsumexp": np.logaddexp,
}


def _accumulated(desc: Any, operation: np.ufunc, terms: Array) -> Array:
    """The terms up to each one, or from each one on, put together."""
    if not terms.ndim:
        return terms
    ahead = np.flip(terms, desc.axis) if desc.reverse else terms
    made = operation.accumulate(ahead, axis=desc.axis)
    return np.asarray(np.flip(made, desc.axis) if desc.reverse else made)


def running(desc: Any, x: Array) -> Array:
    """`desc.name` of x along `desc.axis`, wide."""
    with np.errstate(all="ignore"):
        return _accumulated(desc, _OPERATIONS[desc.name], wide(x, desc.element))


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


def _overflowing_product(desc: Any, x: Array) -> Array:
    """Whether a part of the product may be beyond what is computed in, or below what is normal."""
    terms = wide(x, desc.element)
    with np.errstate(all="ignore"):
        logs = np.where(np.isfinite(terms) & (terms != 0), np.log2(np.abs(terms)), 0)
    up, down = (_accumulated(desc, np.add, np.maximum(part, 0)) for part in (logs, -logs))
    return np.asarray(np.maximum(up, down) > (124 if desc.element is not ElementKind.F64 else 1020))


def _log_sum(desc: Any, x: Array) -> Array:
    """The logarithm of the sum of exponentials, less the largest term."""
    terms = wide(x, desc.element)
    with np.errstate(all="ignore"):
        made = _accumulated(desc, np.logaddexp, terms) - _accumulated(desc, np.maximum, terms)
    return np.asarray(np.where(np.isfinite(made), made, 0), np.float64)


def _running_shift(desc: Any, x: Array) -> Array:
    """No less than the expected distance from the largest term, by the weights exp(x): their entropy is that distance and the
    logarithm of the sum, and at most log(n)."""
    counts = _accumulated(desc, np.add, np.ones(x.shape))
    return np.asarray(np.maximum(np.log(counts) - _log_sum(desc, x), 0))


RUNNING_MEASURES: dict[str, Callable[..., Array]] = {
    "magnitude": lambda desc, x: np.abs(running(desc, x)).astype(np.float64),
    "overflowing_product": _overflowing_product,
    "running_shift": _running_shift,
    "log_sum": _log_sum,
    "one": lambda desc, x: np.ones(()),
}
