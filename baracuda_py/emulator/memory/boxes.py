"""Boxes of tensors: the addresses of a box's rows in global memory, and of their bytes in shared memory.

PTX ISA, Tensors: Tiled mode, Bounding box, Out of boundary access, Swizzling modes.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from ...runtime.steps import TensorMap
from ..threads.lanes import Array

__all__ = ["ITEMSIZE", "UNIT", "Box", "box_of", "bytes_of"]

ITEMSIZE = {"uint8": 1, "float16": 2, "bfloat16": 2, "tfloat32": 4, "float32": 4, "float64": 8}
UNIT = 16  # bytes that a swizzle moves together; the innermost axis of a box is a multiple of it
_SWIZZLED = {0: 0, 32: 1, 64: 3, 128: 7}  # the bits of an address from 7 on that are added to those from 4 on


class Box(NamedTuple):
    """A box at a point: the address of each row's first byte inside the tensor, which rows are inside, and the bytes
    [first, last) of a row that are inside; all other bytes read as zero and are not written."""

    addresses: Array
    inside: Array
    first: int
    last: int


def box_of(tensor: TensorMap, address: int, point: tuple[int, ...]) -> Box:
    size = ITEMSIZE[tensor.dtype]
    offsets, inside = np.zeros((), np.int64), np.ones((), bool)
    for axis in range(1, len(tensor.shape)):
        index = point[axis] + np.arange(tensor.box[axis]).reshape(-1, *(1,) * (axis - 1))
        offsets = offsets + index * tensor.strides[axis - 1]
        inside = inside & (index >= 0) & (index < tensor.shape[axis])
    first = min(max(0, -point[0]), tensor.box[0])
    last = max(first, min(tensor.box[0], tensor.shape[0] - point[0]))
    addresses = np.ravel(offsets) + address + (point[0] + first) * size
    inside = np.broadcast_to(inside, np.shape(offsets)).ravel() & (last > first)
    return Box(addresses, inside, first * size, last * size)


@lru_cache(maxsize=512)
def bytes_of(box: tuple[int, ...], size: int, swizzle: int, offset: int) -> tuple[Array, Array]:
    """The positions of a box's bytes at `offset` of shared memory, one array row per row of the box, and their 16-byte units."""
    width = box[0] * size
    rows = int(np.prod(box[1:], dtype=np.int64))
    at = offset + np.arange(rows)[:, None] * width + np.arange(width)
    at = at ^ ((at >> 7 & _SWIZZLED[swizzle]) << 4)
    return at, np.unique(at // UNIT)
