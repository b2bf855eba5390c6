"""Orders of rows that leave nothing open: by value, NaN above all, zeros alike, ties by index."""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np

__all__ = ["searchsorted", "topk"]

Array: TypeAlias = np.ndarray[Any, Any]


def topk(desc: Any, x: Array) -> tuple[Array, Array]:
    """The k first of each row in that order, and their indices. Rows are made of the array first: NumPy sorts 32 axes at most."""
    lines = np.moveaxis(x, desc.axis, -1)
    rows = lines.reshape(math.prod(lines.shape[:-1]), lines.shape[-1])
    wide = rows.astype(np.float64) if desc.element.is_float else rows
    _, ranks = np.unique(wide, return_inverse=True)  # NaNs are one value, the last; so are both zeros
    ranks = ranks.reshape(rows.shape).astype(np.int64)
    order = np.argsort(-ranks if desc.largest else ranks, axis=1, kind="stable")
    first = order[:, : desc.k] if desc.sorted else np.sort(order[:, : desc.k], axis=1)
    found = np.take_along_axis(rows, first, axis=1), first.astype(np.int64)
    values, indices = (np.moveaxis(y.reshape(*lines.shape[:-1], desc.k), -1, desc.axis) for y in found)
    return values, indices


def searchsorted(desc: Any, sorted_sequence: Array, values: Array) -> Array:
    """How many elements of its row come before each value, or equal it too where the problem goes to the right."""
    wide = [x.astype(np.float64) if desc.element.is_float else x for x in (sorted_sequence, values)]
    rows = wide[0].reshape(-1, wide[0].shape[-1]) if wide[0].size else np.zeros((1, 0))
    many = sorted_sequence.ndim > 1 and wide[0].size > 0
    lines = wide[1].reshape(len(rows) if many else 1, -1)
    found = [np.searchsorted(row, line, side="right" if desc.right else "left") for row, line in zip(rows, lines)]
    places = np.asarray(found, desc.index_element.dtype)
    return places.reshape(values.shape)
