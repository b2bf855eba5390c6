"""Orders of rows that leave nothing open: by value, NaN above all, zeros alike, ties by index."""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np

__all__ = ["topk"]

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
