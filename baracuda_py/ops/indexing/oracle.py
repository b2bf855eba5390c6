"""Elements by index, on bytes: NaN payloads come through untouched."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

__all__ = ["along_axis", "nonzero", "take_along_axis"]

Array: TypeAlias = np.ndarray[Any, Any]


def take_along_axis(desc: Any, x: Array, indices: Array) -> Any:
    """The elements taken; with mode "status" also the status, and zero bytes where an index is out of range."""
    axis, extent = desc.axis % x.ndim, x.shape[desc.axis]
    low, high = 0, max(extent - 1, 0)
    wide = indices.astype(np.int64)
    if desc.mode == "clip":
        found = np.clip(wide, low, high)
    elif desc.mode == "wrap":
        found = wide % max(extent, 1)
    else:
        found = np.where(wide < 0, wide + extent, wide)
    fits = (found >= 0) & (found < extent)
    shape = desc.out_shape
    taken = np.zeros(shape, x.dtype)
    if extent and taken.size:
        whole = np.broadcast_to(x, (*shape[:axis], extent, *shape[axis + 1 :]))
        kept = np.broadcast_to(fits, shape)
        taken[kept] = along_axis(whole, np.broadcast_to(np.where(fits, found, 0), shape), axis)[kept]
    if desc.mode != "status":
        return taken
    return taken, np.asarray(0 if np.broadcast_to(fits, shape).all() else 1, dtype=np.int32)


def along_axis(x: Array, indices: Array, axis: int) -> Array:
    """`numpy.take_along_axis` of arrays of any rank: NumPy's own takes 63 axes. The arrays agree on every other axis."""
    at = np.moveaxis(indices, axis, -1)
    rows = np.moveaxis(x, axis, -1).reshape(-1, x.shape[axis])
    found: Array = np.take_along_axis(rows, at.reshape(-1, at.shape[-1]), axis=1)
    return np.moveaxis(found.reshape(at.shape), -1, axis)


def nonzero(_desc: Any, x: Array) -> tuple[Array, Array]:
    """The indices of elements other than zero, in C order, a row each, and how many there are."""
    with np.errstate(invalid="ignore"):
        rows = np.argwhere(x != 0)
    return rows.astype(np.int64).reshape(-1, x.ndim), np.asarray([len(rows)], dtype=np.int64)
