"""An array's values in another layout: offset, padded, stepped, permuted, reversed."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..gauntlet.fresh import ALIGN

__all__ = ["LAYOUTS", "relaid"]

Array = np.ndarray[Any, Any]
LAYOUTS = ("C", "offset", "padded", "stepped", "permuted", "swapped", "reversed")
PAD = 3


def relaid(data: Array, how: str) -> Array:
    """A copy of `data` laid out as `how` says, in memory that begins on a multiple of 16 bytes."""
    if not data.ndim or not data.size:
        return data
    shape, axes = data.shape, list(range(data.ndim))
    if how == "padded":
        view = _memory((*shape[:-1], shape[-1] + PAD), data.dtype)[..., : shape[-1]]
    elif how == "stepped":
        view = _memory((*shape[:-1], 2 * shape[-1]), data.dtype)[..., ::2]
    elif how == "offset":
        view = _memory((data.size + 1,), data.dtype)[1:].reshape(shape)
    elif how in ("permuted", "swapped"):
        order = axes[::-1] if how == "permuted" else [*axes[:-2], *axes[:-3:-1]]
        view = _memory(tuple(shape[a] for a in order), data.dtype).transpose(np.argsort(order))
    elif how == "reversed":
        view = _memory(shape, data.dtype)[tuple(slice(None, None, -1) for _ in axes)]
    else:
        view = _memory(shape, data.dtype)
    view[...] = data
    return view


def _memory(shape: tuple[int, ...], dtype: Any) -> Array:
    dtype = np.dtype(dtype)
    nbytes = int(np.prod(shape)) * dtype.itemsize
    memory = np.zeros(nbytes + ALIGN, np.uint8)
    start = -memory.ctypes.data % ALIGN
    return memory[start : start + nbytes].view(dtype).reshape(shape)
