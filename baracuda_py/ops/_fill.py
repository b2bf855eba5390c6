"""A launch that sets the elements of a strided view to one value."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..runtime.steps import Kernel, Launch, Packed, Ptr, Scratch
from ..tensor.axes import collapse
from ..types import ElementKind
from ._launch import THREADS, grid_of, index_scalar, index_type, pack_dims

__all__ = ["FILL", "filled"]

FILL = "reduce/fill.cu:fill_strided"


def filled(
    dest: Ptr | Scratch, shape: Sequence[int], strides: Sequence[int], element: ElementKind, value: Any
) -> Launch:
    """Elements of `shape` from `dest` on, with strides in elements."""
    size, (file, _, name) = element.bits // 8, FILL.partition(":")
    extents, steps = collapse(shape, [[s * size for s in strides]])
    count = math.prod(extents)
    index = index_type(count)
    entry = f"{name}<{element.number}, {THREADS}, {len(extents)}, {index}>"
    one = Packed(np.array(value, element.dtype).tobytes(), size)
    args = (index_scalar(count, index), pack_dims(extents, steps, index), dest, one)
    return Launch(Kernel(file, entry), grid_of(count, THREADS), (THREADS, 1, 1), args)
