"""sparsemax, entmax15 and their gradients in float64 (long double for f64), and the measures that their bounds name.

The threshold is found by sorting, and not by Newton's steps, of which kernels make use.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from ....numerics.rounding import wide
from ....types import ElementKind

__all__ = ["BACKWARD_MEASURES", "MEASURES", "backward", "sparse"]

Array: TypeAlias = np.ndarray[Any, Any]


def _rows(desc: Any, x: Array) -> Array:
    """With `axis` last, wide."""
    return np.moveaxis(wide(x, desc.element), desc.axis, -1) if desc.shape else wide(x, desc.element)[None]


def _as_given(desc: Any, made: Array) -> Array:
    return np.asarray(np.moveaxis(made, -1, desc.axis) if desc.shape else made[0])


def sparse(desc: Any, x: Array) -> Array:
    """`desc.name` of x, wide."""
    with np.errstate(all="ignore"):
        rows = _rows(desc, x)
        if not rows.size:
            return _as_given(desc, rows)
        z = rows - rows.max(axis=-1, keepdims=True)
        z = np.maximum(z / 2 if desc.squared else z, -1)  # what is further below is not of the support
        ordered = -np.sort(-z, axis=-1)
        k = np.arange(1, z.shape[-1] + 1, dtype=z.dtype)
        mean = ordered.cumsum(axis=-1) / k
        spread = np.maximum((ordered * ordered).cumsum(axis=-1) - k * mean * mean, 0)
        found = mean - (np.sqrt(np.maximum((1 - spread) / k, 0)) if desc.squared else 1 / k)
        size = np.maximum((found <= ordered).sum(axis=-1, keepdims=True), 1)
        t = np.take_along_axis(found, size - 1, -1)
        if desc.squared:  # of the support that is known now, without differences of squares
            for _ in range(2):
                s = np.maximum(z - t, 0)
                t = t + ((s * s).sum(axis=-1, keepdims=True) - 1) / (2 * s.sum(axis=-1, keepdims=True))
        s = np.maximum(z - t, 0)
        whole = np.isfinite(t) & ~np.isnan(z).any(axis=-1, keepdims=True)  # NaN and +inf make their whole row NaN
        return _as_given(desc, np.where(whole, s * s if desc.squared else s, np.nan))


def _weights(desc: Any, y: Array) -> Array:
    return np.sqrt(y) if desc.squared else np.where(y > 0, 1, y)


def _weighted(desc: Any, grad: Array, y: Array) -> tuple[Array, Array, Array]:
    """grad, the weights, and what their sums are divided by; along rows."""
    g, w = _rows(desc, grad), _weights(desc, _rows(desc, y))
    total = w.sum(axis=-1, keepdims=True)
    return g, w, np.where(total == 0, 1, total)


def backward(desc: Any, grad: Array, y: Array) -> Array:
    """The gradient of x, wide."""
    with np.errstate(all="ignore"):
        g, w, total = _weighted(desc, grad, y)
        return _as_given(desc, w * (g - (w * g).sum(axis=-1, keepdims=True) / total))


# ---- measures ----------------------------------------------------------------------------------------------------------

MEASURES: dict[str, Callable[..., Array]] = {"one": lambda desc, x: np.ones(())}


def _measure(of: Callable[[Any, Array, Array, Array], Array]) -> Callable[..., Array]:
    """A measure of |grad|, the weights and the mean of |grad| by them."""

    def measured(desc: Any, grad: Array, y: Array) -> Array:
        with np.errstate(all="ignore"):
            g, w, total = _weighted(desc, grad, y)
            size = np.abs(g)
            return _as_given(desc, np.asarray(of(desc, size, w, (w * size).sum(axis=-1, keepdims=True) / total)))

    return measured


def _overflowing(desc: Any, size: Array, w: Array, mean: Array) -> Array:
    """Whether the sum of a row's terms, or a difference, is beyond what is computed in."""
    most = (w * size).sum(axis=-1, keepdims=True) + mean + size
    largest = np.longdouble(2) ** 1020 if desc.element is ElementKind.F64 else 2.0**124
    return np.asarray(np.isfinite(most) & (most > largest))


BACKWARD_MEASURES: dict[str, Callable[..., Array]] = {
    "w_mean": _measure(lambda desc, size, w, mean: np.asarray(w * mean, np.float64)),
    "w_grad": _measure(lambda desc, size, w, mean: np.asarray(w * size, np.float64)),
    "overflowing": _measure(_overflowing),
}
