"""Vectors divided by their lengths, in float64 (long double for f64), and the measures that the bounds name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ....numerics.rounding import wide
from ....types import ElementKind

__all__ = ["MEASURES", "backward", "forward"]

Array = np.ndarray[Any, Any]
NEAR = 1e-3  # of eps, relatively: within, rounding may decide which of the two is larger


def _length(desc: Any, x: Array) -> Array:
    return np.asarray(np.sqrt((x * x).sum(axis=desc.along, keepdims=True)))


def _factor(desc: Any, length: Array, g: Any) -> Array:
    scale = 1 if g is None else wide(g, desc.element)
    with np.errstate(all="ignore"):
        return np.asarray(scale / np.where(length < desc.eps, desc.eps, length))


def forward(desc: Any, x: Any, g: Any = None) -> Any:
    """x g / max(length, eps), wide."""
    wide_x = wide(x, desc.element)
    with np.errstate(all="ignore"):
        return wide_x * _factor(desc, _length(desc, wide_x), g)


def _parts(desc: Any, grad: Any, x: Any, g: Any) -> tuple[Array, Array, Array, Array]:
    """grad and x, wide; the lengths and the factors of rows."""
    d, a = wide(grad, desc.element), wide(x, desc.element)
    length = _length(desc, a)
    return d, a, length, _factor(desc, length, g)


def backward(desc: Any, grad: Any, x: Any, g: Any = None) -> Any:
    """The gradients of x and, of weight_norm, of g, wide."""
    with np.errstate(all="ignore"):
        d, a, length, factor = _parts(desc, grad, x, g)
        dot = np.asarray((d * a).sum(axis=desc.along, keepdims=True))
        along = np.where(length < desc.eps, 0, dot / (length * length))
        grad_x = factor * (d - a * along)
        return (grad_x, dot / np.where(length < desc.eps, desc.eps, length)) if desc.scaled else grad_x


def _least(desc: Any) -> Any:
    """The smallest normal number of what is computed in."""
    return np.longdouble(2) ** (-1022 if desc.element is ElementKind.F64 else -126)


def _scaled(desc: Any, *, x: Any, g: Any = None, **_: Any) -> Any:
    return np.abs(forward(desc, x, g))


def _g_scaled(desc: Any, *, grad: Any, x: Any, g: Any = None, **_: Any) -> Any:
    d, *_parts_of_x, factor = _parts(desc, grad, x, g)
    return np.abs(factor * d)


def _dots(desc: Any, d: Array, a: Array) -> Array:
    return np.asarray(np.abs(d * a).sum(axis=desc.along, keepdims=True))


def _along_scaled(desc: Any, *, grad: Any, x: Any, g: Any = None, **_: Any) -> Any:
    d, a, length, factor = _parts(desc, grad, x, g)
    with np.errstate(all="ignore"):
        return np.where(length < desc.eps, 0, np.abs(factor * a) * _dots(desc, d, a) / (length * length))


def _dot_scaled(desc: Any, *, grad: Any, x: Any, g: Any = None, **_: Any) -> Any:
    d, a, length, *_factor_of_row = _parts(desc, grad, x, g)
    with np.errstate(all="ignore"):
        return _dots(desc, d, a) / np.where(length < desc.eps, desc.eps, length)


def _lost(desc: Any, *, x: Any, g: Any = None, grad: Any = None, **_: Any) -> Any:
    """What steps lose whose results are less than the smallest normal number, which is the unit: by what follows them."""
    a = wide(x, desc.element)
    length = _length(desc, a)
    factor = np.abs(_factor(desc, length, g))
    with np.errstate(all="ignore"):
        if grad is None:
            return (1 + np.abs(a)) * _least(desc)
        d = np.abs(wide(grad, desc.element))
        inverse = np.where(length < desc.eps, 0, 1 / (length * length))
        along = np.where(length < desc.eps, 0, _dots(desc, d, a) * inverse)
        each = 1 + d + np.abs(a) * along + factor * (1 + np.abs(a) * (1 + desc.length * inverse))
        return each * _least(desc)


def _row_lost(desc: Any, *, x: Any, **_: Any) -> Any:
    length = _length(desc, wide(x, desc.element))
    with np.errstate(all="ignore"):
        return (1 + desc.length / np.where(length < desc.eps, desc.eps, length)) * _least(desc) + 0 * length


def _row_out_of_range(desc: Any, *, x: Any, g: Any = None, grad: Any = None, **_: Any) -> Any:
    """Whether on the way to a row something is beyond what is computed in, or is where rounding decides."""
    a = wide(x, desc.element)
    length, most, least = _length(desc, a), 1 / _least(desc), _least(desc)
    factor = _factor(desc, length, g)
    with np.errstate(all="ignore"):
        squares = length * length
        finite = np.isfinite(squares)
        found = finite & ((squares > most) | (np.abs(factor) > most))
        found |= (
            finite
            & (squares > 0)
            & (length > desc.eps * (1 - NEAR))
            & (squares < least * 2.0**24 * max(desc.length, 1))
        )
        if grad is not None:
            d, a = (np.where(np.isfinite(y), y, 0) for y in (wide(grad, desc.element), a))
            dots = _dots(desc, d, a)
            peak = np.asarray(np.abs(a).max(axis=desc.along, keepdims=True, initial=0))
            above = np.asarray(np.abs(d).max(axis=desc.along, keepdims=True, initial=0))
            ratio = np.where(length < desc.eps, 0, dots / squares)
            difference = above + ratio * peak
            for size in (dots, ratio, difference, np.abs(factor) * difference):
                found |= np.isfinite(size) & (size > most)
            found |= (desc.eps > 0) & (np.abs(length - desc.eps) <= NEAR * desc.eps)
        return np.asarray(found)


def _out_of_range(desc: Any, *, x: Any, **given: Any) -> Any:
    return np.broadcast_to(_row_out_of_range(desc, x=x, **given), desc.shape)


MEASURES: dict[str, Callable[..., Any]] = {
    "scaled": _scaled,
    "g_scaled": _g_scaled,
    "along_scaled": _along_scaled,
    "dot_scaled": _dot_scaled,
    "lost": _lost,
    "row_lost": _row_lost,
    "out_of_range": _out_of_range,
    "row_out_of_range": _row_out_of_range,
}
