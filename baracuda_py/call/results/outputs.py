"""Allocates outputs of the caller's framework: torch tensors from torch's allocator, JAX arrays, else CuPy or NumPy arrays.

A bound plan writes to the same outputs at each launch. JAX arrays are immutable, so a bound plan returns CuPy arrays to JAX
callers.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ...plan.descriptor import Layout
from ...runtime.gpu.streams import foreign_stream, made_current
from ...tensor import GpuBuffer
from ...tensor.pytorch import dtype_of, empty_tensors, is_tensor, on_stream
from .allocate import allocate, allocator

__all__ = ["Output", "kind_of", "output"]

ALIGNED = 512  # bytes: the alignment of CuPy's allocations
POISON = 0x7F


def kind_of(given: Iterable[Any]) -> str:
    """The framework of a call's first array, which its outputs belong to: "torch", "jax", or "" for CuPy and NumPy."""
    first = next((x for x in given if x is not None), None)
    if is_tensor(first):
        return "torch"
    name = type(first).__module__.partition(".")[0]
    return "jax" if name in ("jax", "jaxlib") else ""


class Output:
    """Makes one output of a layout on one device, call by call."""

    uses_torch = False
    converts = False  # whether `finished` returns another array than `make`

    def __init__(self, layout: Layout, ordinal: int) -> None:
        self.layout, self.ordinal = layout, ordinal
        self._make: Callable[[], Any] = allocator(layout)

    def make(self, stream: int, current: int | None = None) -> Any:
        """Allocates the output for work on `stream`. `current` is the framework's current stream, if it is known. The device
        must be current."""
        return self._make() if stream == current else allocate(self.layout, stream)

    def address(self, x: Any) -> int:
        return x.__baracuda_tensor__().pointer if type(x) is GpuBuffer else x.data.ptr

    def finished(self, x: Any, stream: int) -> Any:
        """The array that the caller receives, once the work is queued on `stream`."""
        return x


class _TorchOutput(Output):
    uses_torch = True

    def __init__(self, layout: Layout, ordinal: int, dtype: Any) -> None:
        self.layout, self.ordinal = layout, ordinal
        self._make = empty_tensors(layout.shape, layout.strides, dtype, ordinal)

    def make(self, stream: int, current: int | None = None) -> Any:
        if self.ordinal < 0 or stream == (foreign_stream("torch", self.ordinal) if current is None else current):
            return self._make()
        with on_stream(stream, self.ordinal):  # torch's allocator may reuse the memory on that stream
            return self._make()

    def address(self, x: Any) -> int:
        return x.data_ptr()  # type: ignore[no-any-return]


class _JaxOutput(Output):
    """A CuPy array that becomes a JAX array after the launch, since JAX allocates no memory that others may write."""

    converts = True

    def finished(self, x: Any, stream: int) -> Any:
        with made_current(stream):  # JAX's stream waits for this one
            return sys.modules["jax"].dlpack.from_dlpack(x)


class _HostOutput(Output):
    def __init__(self, layout: Layout) -> None:
        self.layout, self.ordinal = layout, -1

    def make(self, stream: int, current: int | None = None) -> Any:
        shape, element = self.layout.shape, self.layout.element
        if element.packed:
            rows = _aligned((*shape[:-1], element.nbytes(shape[-1])) if shape else (1,), np.dtype(np.uint8))
            rows[...] = 0
            return GpuBuffer.view(rows, element, shape)
        order = sorted(range(len(shape)), key=lambda a: -self.layout.strides[a])
        plain = _aligned(tuple(shape[a] for a in order), element.dtype)
        return plain.transpose(np.argsort(order)) if order else plain


def _aligned(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """An array with the alignment of a GPU allocation, so that the emulator counts the sectors that a GPU would move. It is
    filled with large numbers or NaN, so that reading it or not writing it shows in the result."""
    nbytes = math.prod(shape) * dtype.itemsize
    memory = np.full(nbytes + ALIGNED, POISON, np.uint8)
    start = -memory.ctypes.data % ALIGNED
    return memory[start : start + nbytes].view(dtype).reshape(shape)


def output(kind: str, layout: Layout, ordinal: int) -> Output:
    """The allocator of outputs of that layout on a CUDA device, or on the host (-1)."""
    if kind == "torch" and (dtype := dtype_of(layout.element)) is not None:
        return _TorchOutput(layout, ordinal, dtype)
    if ordinal < 0:
        return _HostOutput(layout)
    return _JaxOutput(layout, ordinal) if kind == "jax" and not layout.element.packed else Output(layout, ordinal)
