"""Running sums in float64 (long double for f64), exactly in integers, and the measures that their bounds name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from ...numerics.rounding import wide
from ...types import ElementKind

__all__ = [
    "BACKWARD_MEASURES",
    "GRADIENT_MEASURES",
    "MEASURES",
    "RUNNING_MEASURES",
    "backward",
    "cumsum",
    "gradient",
    "running",
]

Array: TypeAlias = np.ndarray[Any, Any]


def _without_own(desc: Any, made: Array, edge: float) -> Array:
    """Where the scan is exclusive, each result moved to the next place, after `edge`; the direction is that of `made`."""
    if not desc.exclusive:
        return made
    if not made.ndim:
        return np.full_like(made, edge)
    first = np.full_like(np.take(made, [0], desc.axis), edge) if made.shape[desc.axis] else made
    kept = np.take(made, range(max(made.shape[desc.axis] - 1, 0)), desc.axis)
    return np.concatenate([first, kept], axis=desc.axis)


def _summed(desc: Any, terms: Array) -> Array:
    """The sums up to each term, or from each one on; an array without axes is its own sum."""
    return _accumulated(desc, np.add, terms)


def cumsum(desc: Any, x: Array) -> Array:
    """The sums of x up to each element along `desc.axis`, wide."""
    with np.errstate(all="ignore"):
        return _summed(desc, wide(x, desc.element))


def backward(desc: Any, grad: Array) -> Array:
    """The sums of grad in the direction that is not the call's, wide."""
    return cumsum(desc.scan(), grad)


_OPERATIONS: dict[str, np.ufunc] = {
    "cumprod": np.multiply,
    "cummax": np.maximum,
    "cummin": np.minimum,
    "logcumsumexp": np.logaddexp,
}


def _accumulated(desc: Any, operation: np.ufunc, terms: Array) -> Array:
    """The terms up to each one, or from each one on, put together."""
    edge = 0.0 if operation is np.add else 1.0 if operation is np.multiply else -np.inf
    if not terms.ndim:
        return _without_own(desc, terms, edge)
    ahead = np.flip(terms, desc.axis) if desc.reverse else terms
    made = _without_own(desc, operation.accumulate(ahead, axis=desc.axis), edge)
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


BACKWARD_MEASURES: dict[str, Callable[..., Array]] = {
    "abs_sum": lambda desc, grad: _abs_sum(desc.scan(), grad),
    "overflowing": lambda desc, grad: _overflowing(desc.scan(), grad),
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


# ---- gradients of running products, extrema and logarithms -----------------------------------------------------------


def _lines(desc: Any, *arrays: Array) -> list[Array]:
    """The arrays, wide, with the axis last and in the direction of the scan."""
    if not desc.shape:
        return [wide(x, desc.element).reshape(1) for x in arrays]
    moved = [np.moveaxis(wide(x, desc.element), desc.axis, -1) for x in arrays]
    return [np.flip(x, -1) for x in moved] if desc.reverse else moved


def _of_inclusive(desc: Any, grad: Array, x: Array, y: Array) -> list[Array]:
    """The lines of the inclusive scan whose results are those of an exclusive one at the next place."""
    grad, x, y = _lines(desc, grad, x, y)
    return [grad[..., 1:], x[..., :-1], y[..., 1:]] if desc.exclusive else [grad, x, y]


def _as_given(desc: Any, made: Array) -> Array:
    """The inverse of that; the last element has no part in an exclusive scan's results."""
    if desc.exclusive and desc.extent:
        made = np.concatenate([made, np.zeros_like(made, shape=(*made.shape[:-1], 1))], axis=-1)
    if not desc.shape:
        return np.asarray(made.reshape(()))
    return np.asarray(np.moveaxis(np.flip(made, -1) if desc.reverse else made, -1, desc.axis))


def _from_the_end(grad: Array, passed: Callable[[int, Array], Array]) -> Array:
    """At each place i, grad[i] plus what `passed` makes of the total at i + 1."""
    made = np.empty(grad.shape, grad.dtype)
    total = np.zeros(grad.shape[:-1], grad.dtype)
    for i in reversed(range(grad.shape[-1])):
        total = made[..., i] = grad[..., i] + (passed(i, total) if i + 1 < grad.shape[-1] else 0)
    return made


def _product_gradient(grad: Array, x: Array, y: Array) -> Array:
    later = _from_the_end(grad, lambda i, total: x[..., i + 1] * total)
    before = np.concatenate([np.ones_like(y[..., :1]), y[..., :-1]], axis=-1)
    return np.asarray(before * later)


def _extremum_gradient(grad: Array, x: Array, y: Array) -> Array:
    wins = (x == y) | np.isnan(x)
    later = _from_the_end(grad, lambda i, total: np.where(wins[..., i + 1], 0, total))
    return np.asarray(np.where(wins, later, 0))


def _weight(y: Array, i: int) -> Array:
    return np.where(y[..., i] == y[..., i + 1], 1, np.exp(y[..., i] - y[..., i + 1]))


def _log_gradient(grad: Array, x: Array, y: Array) -> Array:
    later = _from_the_end(grad, lambda i, total: _weight(y, i) * total)
    return np.asarray(np.exp(x - y) * later)


_GRADIENTS: dict[str, Callable[[Array, Array, Array], Array]] = {
    "cumprod": _product_gradient,
    "cummax": _extremum_gradient,
    "cummin": _extremum_gradient,
    "logcumsumexp": _log_gradient,
}


def gradient(desc: Any, grad: Array, x: Array, y: Array) -> Array:
    """The gradient of x of the scan `desc.forward`, wide."""
    with np.errstate(all="ignore"):
        return _as_given(desc, _GRADIENTS[desc.forward](*_of_inclusive(desc, grad, x, y)))


def _gradient_measure(of: Callable[[Any, Array, Array, Array], Array]) -> Callable[..., Array]:
    def measured(desc: Any, grad: Array, x: Array, y: Array) -> Array:
        with np.errstate(all="ignore"):
            lines = _of_inclusive(desc, grad, x, y)
            made = np.broadcast_to(of(desc, *lines), lines[0].shape)
            return np.asarray(np.nan_to_num(_as_given(desc, made), nan=0, posinf=0, neginf=0), np.float64)

    return measured


def _terms(desc: Any, grad: Array, x: Array, y: Array) -> Array:
    """The magnitudes of a result's terms, added up."""
    if desc.forward == "cumprod":
        x, y = np.abs(x), np.abs(y)
    return _GRADIENTS[desc.forward](np.abs(grad), x, y)


def _shifted(desc: Any, grad: Array, x: Array, y: Array) -> Array:  # noqa: ARG001
    """The magnitudes of the terms grad[j] exp(x[i] - y[j]), each times y[j] - x[i]."""
    sizes, distances = np.abs(grad), np.zeros(grad.shape, grad.dtype)
    later, far = np.zeros(grad.shape[:-1], grad.dtype), np.zeros(grad.shape[:-1], grad.dtype)
    for i in reversed(range(grad.shape[-1])):
        if i + 1 < grad.shape[-1]:
            step = np.where(y[..., i] == y[..., i + 1], 0, y[..., i + 1] - y[..., i])
            weight = np.exp(-step)
            far = np.where(weight == 0, 0, weight * (far + step * later))
            later = weight * later
        later = later + sizes[..., i]
        distances[..., i] = np.exp(x[..., i] - y[..., i]) * (far + (y[..., i] - x[..., i]) * later)
    return distances


def _vanishing(desc: Any, grad: Array, x: Array, y: Array) -> Array:  # noqa: ARG001
    """The magnitudes of later gradients, times the smallest normal number: what exponentials lose that are none."""
    computed = ElementKind.F64 if desc.element is ElementKind.F64 else ElementKind.F32
    sizes = np.abs(np.where(np.isfinite(grad), grad, 0))
    return np.flip(np.cumsum(np.flip(sizes, -1), axis=-1), -1) * computed.smallest_normal


def _outside(desc: Any, grad: Array, x: Array, y: Array) -> Array:
    """The lines in which an intermediate result may leave the range of what is computed in; for logarithms, also those whose y
    decreases or is below x, which no forward call returns."""
    exponent = 120 if desc.element is not ElementKind.F64 else 1016
    sizes = np.abs(np.where(np.isfinite(grad), grad, 0))
    if desc.forward in ("cummax", "cummin"):
        return np.asarray(sizes.sum(axis=-1, keepdims=True) > np.longdouble(2) ** exponent)
    beyond = ~np.isfinite(grad).all(axis=-1, keepdims=True)
    if desc.forward == "logcumsumexp":
        wrong = (y[..., 1:] < y[..., :-1]).any(axis=-1, keepdims=True) | (x > y).any(axis=-1, keepdims=True)
        return np.asarray(beyond | wrong | (sizes.sum(axis=-1, keepdims=True) > np.longdouble(2) ** exponent))
    finite = np.isfinite(x).all(axis=-1, keepdims=True) & np.isfinite(y).all(axis=-1, keepdims=True)

    def logs(values: Array) -> Array:
        return np.asarray(np.where(np.isfinite(values) & (values != 0), np.log2(np.abs(values)), 0))

    own = np.abs(logs(grad)).max(axis=-1, keepdims=True, initial=0) + np.abs(logs(y)).max(
        axis=-1, keepdims=True, initial=0
    )
    up, down = (np.maximum(part, 0).sum(axis=-1, keepdims=True) for part in (logs(x), -logs(x)))
    return np.asarray(beyond | ~finite | (np.maximum(up, down) + own + np.log2(max(desc.extent, 1)) > exponent))


GRADIENT_MEASURES: dict[str, Callable[..., Array]] = {
    "terms": _gradient_measure(_terms),
    "shifted": _gradient_measure(_shifted),
    "vanishing": _gradient_measure(_vanishing),
    "outside": _gradient_measure(_outside),
}
