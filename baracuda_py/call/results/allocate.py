"""Allocates outputs (CuPy arrays of a layout) and scratch in a stream's order. Memory comes from CuPy's current allocator;
during a capture it comes from a pool that lives as long as the graph, which is torch's pool in torch's captures."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from ...plan.descriptor import Layout
from ...runtime.gpu.capture import pool_allocator
from ...runtime.gpu.driver import require_cupy, require_gpu
from ...runtime.gpu.streams import foreign_stream, is_capturing, made_current
from ...tensor import GpuBuffer
from ...tensor.axes import c_strides
from ...tensor.pytorch import torch_allocator
from ...types import ElementKind

__all__ = ["BYTE_STORED_KINDS", "allocate", "allocator", "take_workspace"]

BYTE_STORED_KINDS = (ElementKind.FP8_E4M3, ElementKind.FP8_E5M2)  # kinds that CuPy has no dtype for


def allocator(layout: Layout) -> Callable[[], Any]:
    """A function that allocates arrays of that layout, on the current device and in the current stream's order."""
    cupy = require_cupy("allocating an output")
    shape, element, dtype = layout.shape, layout.element, layout.element.dtype
    in_rows, in_bytes = layout.strides == c_strides(shape), element in BYTE_STORED_KINDS
    if element.packed or (in_bytes and in_rows):
        return partial(GpuBuffer.zeros, shape, element)
    if in_rows:
        return partial(cupy.ndarray, shape, dtype)
    nbytes = math.prod(shape) * dtype.itemsize
    strides = tuple(s * dtype.itemsize for s in layout.strides)
    if in_bytes:
        return lambda: GpuBuffer.view(cupy.ndarray(shape, "u1", cupy.cuda.alloc(nbytes), strides), element)
    return lambda: cupy.ndarray(shape, dtype, cupy.cuda.alloc(nbytes), strides)


def allocate(layout: Layout, stream: int) -> Any:
    """Allocates an array of that layout in `stream`'s order. The device must be current."""
    with _in_order_of(stream):
        return allocator(layout)()


def take_workspace(nbytes: int, stream: int) -> Any:
    """Scratch for work on `stream`, as a CuPy pointer. It is reused only for later work on that stream (of the same capture),
    so it may be released as soon as its use is queued. The device must be current."""
    with _in_order_of(stream):
        return require_gpu("allocating scratch").cuda.alloc(nbytes)


@contextmanager
def _in_order_of(stream: int) -> Iterator[None]:
    """A context in which CuPy allocates for work on `stream`."""
    with made_current(stream):
        if not is_capturing(stream):
            yield
            return
        cuda = require_gpu("a capture").cuda
        ordinal = int(cuda.runtime.getDevice())
        torch_stream = foreign_stream("torch", ordinal)
        torch_captures = torch_stream is not None and is_capturing(torch_stream)
        with cuda.using_allocator(torch_allocator(stream, ordinal) if torch_captures else pool_allocator(stream)):
            yield
