"""Elements of rows by rank, in NumPy's stable order; and where their gradients go."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

__all__ = ["kthvalue", "kthvalue_backward", "median"]

Array: TypeAlias = np.ndarray[Any, Any]


def _taken(desc: Any, x: Array, places: Array) -> tuple[Array, Array]:
    values = np.take_along_axis(x, places, desc.axis)
    found = values, places.astype(np.int64)
    return found if desc.keepdims else tuple(np.squeeze(each, desc.axis) for each in found)  # type: ignore[return-value]


def _order(desc: Any, x: Array) -> Array:
    """The places of the elements of each row in order: NaN above all numbers, zeros alike, equal elements by index."""
    wide = x.astype(np.float64) if desc.element.is_float else x
    return np.argsort(wide, axis=desc.axis, kind="stable")


def kthvalue(desc: Any, x: Array) -> tuple[Array, Array]:
    """The k-th in that order, counted from 1."""
    return _taken(desc, x, np.take(_order(desc, x), [desc.k - 1], axis=desc.axis))


def median(desc: Any, x: Array) -> tuple[Array, Array]:
    """The lower of the two middle elements, or the first NaN of a row that has one."""
    n = x.shape[desc.axis]
    places = np.take(_order(desc, x), [(n - 1) // 2], axis=desc.axis)
    if desc.element.is_float:
        nan = np.isnan(x.astype(np.float64))
        first = np.argmax(nan, axis=desc.axis, keepdims=True)
        places = np.where(nan.any(axis=desc.axis, keepdims=True), first, places)
    return _taken(desc, x, places)


def kthvalue_backward(desc: Any, grad: Array, indices: Array, x: Array) -> Array:
    """grad at the place of each row's element, zero elsewhere and for a place that the row lacks."""
    if not desc.keepdims:
        grad, indices = (np.expand_dims(each, desc.axis) for each in (grad, indices))
    shape = [1] * x.ndim
    shape[desc.axis] = x.shape[desc.axis]
    here = np.arange(x.shape[desc.axis]).reshape(shape) == indices
    return np.where(here, grad, np.zeros((), grad.dtype))
