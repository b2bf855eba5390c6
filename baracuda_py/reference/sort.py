"""Orders of rows that leave nothing open: by value, NaN above all, zeros alike, ties by index."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

__all__ = ["topk"]

Array: TypeAlias = np.ndarray[Any, Any]


def topk(desc: Any, x: Array) -> tuple[Array, Array]:
    """The k first of each row in that order, and their indices."""
    wide = x.astype(np.float64) if desc.element.is_float else x
    _, ranks = np.unique(wide, return_inverse=True)  # NaNs are one value, the last; so are both zeros
    ranks = ranks.reshape(x.shape).astype(np.int64)
    order = np.argsort(-ranks if desc.largest else ranks, axis=desc.axis, kind="stable")
    first = np.take(order, np.arange(desc.k), axis=desc.axis)
    if not desc.sorted:
        first = np.sort(first, axis=desc.axis)
    return np.take_along_axis(x, first, axis=desc.axis), first.astype(np.int64)
