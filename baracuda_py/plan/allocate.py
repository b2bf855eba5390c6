"""Fresh outputs: CuPy arrays of a layout, from CuPy's pool, in a stream's order."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from ..runtime.driver import require_gpu
from ..runtime.streams import made_current
from ..tensor import GpuBuffer
from ..tensor.axes import c_strides
from ..types import ElementKind
from .descriptor import Layout

__all__ = ["allocate", "allocator"]

_BYTES_IN_CUPY = (ElementKind.FP8_E4M3, ElementKind.FP8_E5M2)  # kinds that CuPy has no dtype for


def allocator(layout: Layout) -> Callable[[], Any]:
    """What makes fresh arrays of that layout, on the current device and in the current stream's order."""
    cupy = require_gpu("allocating an output")
    shape, element, dtype = layout.shape, layout.element, layout.element.dtype
    if element.packed or element in _BYTES_IN_CUPY:
        return partial(GpuBuffer.zeros, shape, element)
    if layout.strides == c_strides(shape):
        return partial(cupy.ndarray, shape, dtype)
    nbytes = math.prod(shape) * dtype.itemsize
    strides = tuple(s * dtype.itemsize for s in layout.strides)
    return lambda: cupy.ndarray(shape, dtype, cupy.cuda.alloc(nbytes), strides)


def allocate(layout: Layout, stream: int) -> Any:
    """A fresh array of that layout, from the pool in `stream`'s order."""
    with made_current(stream):
        return allocator(layout)()
