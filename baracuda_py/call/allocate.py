"""Fresh outputs (CuPy arrays of a layout) and scratch, allocated from CuPy's pool in a stream's order."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from ..plan.descriptor import Layout
from ..runtime.driver import require_gpu
from ..runtime.streams import is_capturing, made_current
from ..tensor import GpuBuffer
from ..tensor.axes import c_strides
from ..types import ElementKind, UnsupportedError

__all__ = ["BYTES_IN_CUPY", "allocate", "allocator", "take_workspace"]

BYTES_IN_CUPY = (ElementKind.FP8_E4M3, ElementKind.FP8_E5M2)  # kinds that CuPy has no dtype for


def allocator(layout: Layout) -> Callable[[], Any]:
    """A function that makes fresh arrays of that layout, on the current device and in the current stream's order."""
    cupy = require_gpu("allocating an output")
    shape, element, dtype = layout.shape, layout.element, layout.element.dtype
    if element.packed or element in BYTES_IN_CUPY:
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


def take_workspace(op: str, nbytes: int, stream: int) -> Any:
    """Scratch for work on `stream`. The pool reuses it only for later work on that stream, so it may be released as soon as its
    use is queued. UnsupportedError during a capture, in which nothing can be allocated."""
    if is_capturing(stream):
        raise UnsupportedError(
            f"{op}: a capture allocates nothing, and workspace was not passed", "run a plan with workspace=..."
        )
    with made_current(stream):
        return require_gpu("allocating scratch").cuda.alloc(nbytes)
