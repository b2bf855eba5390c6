"""Rows in order, by NumPy's stable sort."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

__all__ = ["argsort", "sort"]

Array: TypeAlias = np.ndarray[Any, Any]


def argsort(desc: Any, x: Array) -> Array:
    """The places of elements in order: NaN above all numbers, zeros alike, equal elements by index."""
    wide = x.astype(np.float64) if desc.element.is_float else x
    if desc.descending:  # the stable order of the reversed row, read backwards: equal elements are in their order again
        backwards = np.argsort(np.flip(wide, desc.axis), axis=desc.axis, kind="stable")
        places = np.flip(x.shape[desc.axis] - 1 - backwards, desc.axis)
    else:
        places = np.argsort(wide, axis=desc.axis, kind="stable")
    return np.ascontiguousarray(places).astype(desc.index_dtype.dtype)


def sort(desc: Any, x: Array) -> tuple[Array, Array]:
    """Elements in that order, and their places."""
    places = argsort(desc, x)
    return np.take_along_axis(x, places.astype(np.int64), desc.axis), places
