"""Rows of x, of the values and of the indices, as the kernels of kernels/sort walk them."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...plan.candidate import OK, Feasibility, no
from ...runtime.steps import Packed
from ...tensor.axes import merge_axes
from ...types import PrecisionGuarantee
from .._launch import index_type, pack_dims

__all__ = ["LONGEST", "MOST_ROWS", "SortedRows", "guarantee", "servable"]

LONGEST = 1 << 31  # elements of a row: places are counted in 32 bits
MOST_ROWS = (1 << 31) - 1  # CTAs of a grid
WORD = 16  # bytes of a vector


@dataclass(frozen=True)
class SortedRows:
    """`count` rows of `n` elements; `index` counts rows, `axes` of them are left."""

    count: int
    n: int
    size: int
    index: str
    axes: int
    packed: Packed
    align: (
        int  # bytes: every row of x starts at a multiple; an element's size where elements of a row are not contiguous
    )
    flip: np.generic

    @staticmethod
    def of(desc: Any) -> SortedRows:
        """On the canonical descriptor, whose `results` are the operands of the values and of the indices, and `flipped` whether
        the order of its keys is the opposite of what the kernel computes."""
        axis, size = desc.axis, desc.element.bits // 8
        layouts = [desc.layout(name) for name in ("x", *desc.results)]
        outer = (*desc.shape[:axis], *desc.shape[axis + 1 :])
        walks = [[s * lay.natural for s in _along_all(lay.strides, len(desc.shape), axis)] for lay in layouts]
        extents, strides = merge_axes(outer, [(*w[:axis], *w[axis + 1 :]) for w in walks])
        count, steps = math.prod(outer), [w[axis] for w in walks]
        index = index_type(count)
        dims = pack_dims(extents, strides, index)
        whole = steps[0] == size or desc.shape[axis] == 1
        align = math.gcd(WORD, layouts[0].align, *strides[0]) if whole else size
        every = (1 << 8 * max(size, 4)) - 1 if size >= 4 else (1 << 8 * size) - 1
        flip = (np.uint64 if size == 8 else np.uint32)(every if desc.flipped else 0)
        packed = Packed(dims.data + struct.pack("<3q", *steps), 8)
        return SortedRows(count, desc.shape[axis], size, index, len(extents), packed, align, flip)

    @property
    def vector(self) -> bool:
        """Whether rows can be read in vectors of 16 bytes."""
        return self.align == WORD

    @property
    def entry(self) -> int:
        """Bytes of a key with its place."""
        return 16 if self.size == 8 else 8


def _along_all(strides: tuple[int, ...], rank: int, axis: int) -> tuple[int, ...]:
    """The strides of an operand of so many axes, or of one that lacks `axis`."""
    return strides if len(strides) == rank else (*strides[:axis], 0, *strides[axis:])


def servable(desc: Any) -> Feasibility:
    """What every kernel asks."""
    if desc.shape[desc.axis] > LONGEST:
        return no(f"rows have {desc.shape[desc.axis]} elements, and places are counted to {LONGEST}")
    if math.prod(desc.shape) // max(desc.shape[desc.axis], 1) > MOST_ROWS:
        return no(f"there are more than {MOST_ROWS} rows")
    return OK


def guarantee(desc: Any) -> PrecisionGuarantee:
    """The very elements, in an order that leaves nothing open."""
    return PrecisionGuarantee.exact(desc.element)
