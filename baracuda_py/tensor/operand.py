"""A :class:`Tensor`: an address with a shape, strides in elements, a kind and a device."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..runtime.gpu.driver import cupy
from ..types import ElementKind
from .axes import alignment_of, span

__all__ = ["HOST_ORDINAL", "NO_MEMORY", "Tensor", "how_to_copy"]

HOST_ORDINAL = -1
NO_MEMORY = -2  # only a layout: a meta tensor, a jax.ShapeDtypeStruct

_COPIES = {
    "GpuBuffer": "bp.GpuBuffer.view({0}.to_host(), {0}.element, {0}.shape)",
    "cupy": "cupy.asnumpy({0})",
    "jax": "jax.device_get({0})",
    "torch": "{0}.cpu()",
}


def how_to_copy(x: Any, framework: str, name: str) -> str:
    """The expression that copies a device's array `x`, called `name`, to the host."""
    kind = type(x).__name__
    return _COPIES.get(kind if kind in _COPIES else framework, "cupy.asnumpy(cupy.asarray({0}))").format(name)


@dataclass(frozen=True, slots=True)
class Tensor:
    """An operand. `pointer` is the first element's address; `ordinal` is -1 on the host, and -2 for a shape without memory."""

    pointer: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    element: ElementKind
    ordinal: int
    framework: str
    readonly: bool = False
    phase: int = 0  # elements by which a packed view starts inside its first byte
    bounds: tuple[int, int] | None = None  # bytes before and after `pointer` inside the allocation, where known
    source: Any = field(default=None, compare=False)  # the object passed in
    keep: Any = field(default=None, compare=False)  # keeps the memory alive

    @property
    def align(self) -> int:
        return alignment_of(self.pointer)

    @property
    def on_host(self) -> bool:
        return self.ordinal == HOST_ORDINAL

    def interval(self) -> tuple[int, int]:
        """The addresses [low, high) that the view touches."""
        low, high = span(self.shape, self.strides, self.element, self.phase)
        return self.pointer + low, self.pointer + high

    def array(self, dtype: np.dtype[Any] | None = None) -> Any:
        """A NumPy array (host) or CuPy array over this memory, which it keeps alive; `dtype` is the kind's own if None.

        Not for packed kinds, whose elements are smaller than bytes. CuPy has no dtype for fp8: pass ``uint8``.
        """
        dtype = self.element.dtype if dtype is None else dtype
        if self.on_host:
            return np.asarray(_Memory(self, dtype.itemsize)).view(dtype)
        module = cupy()
        if isinstance(self.keep, module.ndarray):
            memory = self.keep.data + (self.pointer - self.keep.data.ptr)
        else:
            low, high = self.interval()
            whole = module.cuda.UnownedMemory(low, high - low, self.keep, self.ordinal)
            memory = module.cuda.MemoryPointer(whole, self.pointer - low)
        return module.ndarray(self.shape, dtype, memory, tuple(s * dtype.itemsize for s in self.strides))


class _Memory:
    """Exposes a host tensor's memory to NumPy as opaque items, and keeps it alive for arrays over it."""

    def __init__(self, tensor: Tensor, itemsize: int) -> None:
        self.keep = tensor.keep
        self.__array_interface__ = {
            "version": 3,
            "shape": tensor.shape,
            "strides": tuple(s * itemsize for s in tensor.strides),
            "typestr": f"|V{itemsize}",
            "data": (tensor.pointer, tensor.readonly),
        }
