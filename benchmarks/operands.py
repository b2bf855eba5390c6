"""Operands for the rows: random device arrays made cheaply, and the same memory as torch tensors."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import Any

import numpy as np

__all__ = ["Call", "Kit", "TorchCall", "dtype_of", "itemsize"]

Call = Callable[[], Any]


@dataclass(frozen=True)
class TorchCall:
    """A call that launches through torch, whatever its contender is called: torch captures it, on torch's stream."""

    function: Call

    def __call__(self) -> Any:
        return self.function()


_BLOCK_ELEMENTS = 1 << 23
_STEP_BYTES = 1 << 20


def dtype_of(name: str) -> np.dtype[Any]:
    """A NumPy dtype by name, those of ml_dtypes among them."""
    import ml_dtypes

    dtype: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name, name))
    return dtype


def _held(dtype: str) -> np.dtype[Any]:
    """What CuPy holds it as: fp8 is bytes."""
    return np.dtype(np.uint8) if dtype.startswith("float8") else dtype_of(dtype)


def itemsize(dtype: str) -> int:
    """Bytes an element."""
    return int(dtype_of(dtype).itemsize)


class Kit:
    """Makes the operands of a row on the current device.

    One block of normal deviates a dtype is drawn on the host; every array is tiled from it, each from another offset,
    so that making gigabytes of random data costs a few device copies.
    """

    def __init__(self, *, use_torch: bool = True, use_compile: bool = False) -> None:
        self._use_torch = use_torch
        self.use_compile = use_compile
        self._blocks: dict[tuple[str, bool], Any] = {}
        self._compiled: dict[str, Callable[..., Any]] = {}
        self._offset = 0

    @cached_property
    def torch(self) -> Any:
        """The torch module, or None where it is not installed, has no CUDA or was declined."""
        if not self._use_torch:
            return None
        try:
            torch = import_module("torch")
        except ImportError:
            return None
        return torch if torch.cuda.is_available() else None

    @property
    def xp(self) -> Any:
        """The module of the arrays, for those that are not random."""
        import cupy

        return cupy

    def empty(self, shape: tuple[int, ...], dtype: str) -> Any:
        """An uninitialised CuPy array, of bytes for fp8."""
        import cupy

        return cupy.empty(shape, _held(dtype))

    def normal(self, shape: tuple[int, ...], dtype: str, *, positive: bool = False) -> Any:
        """A CuPy array of normal deviates, or of their magnitudes."""
        out = self.empty(shape, dtype)
        source = self._block(dtype, positive)
        flat = out.reshape(-1).view(np.uint8)
        self._offset = (self._offset + _STEP_BYTES) % source.nbytes
        done, position = 0, self._offset
        while done < flat.nbytes:
            count = min(flat.nbytes - done, source.nbytes - position)
            flat[done : done + count] = source[position : position + count]
            done, position = done + count, 0
        return out

    def as_torch(self, array: Any) -> Any:
        """The same memory as a torch tensor."""
        name = array.element.dtype.name if hasattr(array, "element") else array.dtype.name  # of a GpuBuffer over bytes
        array = getattr(array, "array", array)
        bits = array.view(np.dtype(f"int{8 * array.dtype.itemsize}"))
        return self.torch.from_dlpack(bits).view(getattr(self.torch, name))

    def compiled(self, name: str, function: Callable[..., Any]) -> Callable[..., Any] | None:
        """`function` under torch.compile, one a row and name; None unless it was asked for."""
        if not self.use_compile or self.torch is None:
            return None
        if name not in self._compiled:
            self._compiled[name] = self.torch.compile(function, dynamic=False)
        return self._compiled[name]

    def synchronize(self) -> None:
        """Waits until the operands are made."""
        import cupy

        cupy.cuda.Device().synchronize()

    def release(self) -> None:
        """Gives back what the last row held; the random blocks stay."""
        import cupy

        if self._compiled:
            self._compiled.clear()
            self.torch._dynamo.reset()
        gc.collect()
        cupy.get_default_memory_pool().free_all_blocks()
        if self.torch is not None:
            self.torch.cuda.empty_cache()

    def _block(self, dtype: str, positive: bool) -> Any:
        import cupy

        if (dtype, positive) not in self._blocks:
            values = np.random.default_rng(0).standard_normal(_BLOCK_ELEMENTS, dtype=np.float32)
            values = np.abs(values) if positive else values
            self._blocks[dtype, positive] = cupy.asarray(values.astype(dtype_of(dtype)).view(np.uint8))
        return self._blocks[dtype, positive]
