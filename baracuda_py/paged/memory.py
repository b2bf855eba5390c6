"""The memory of pages and tables: NumPy, CuPy or PyTorch arrays, allocated once, at fixed addresses."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from ..runtime.gpu.device import spec_of
from ..runtime.gpu.driver import require_cupy
from ..runtime.gpu.streams import made_current, stream_pointer
from ..tensor import GpuBuffer
from ..tensor.pytorch import dtype_of
from ..types import ElementKind, InvalidProblemError

__all__ = ["Memory", "memory_of"]

BYTE_STORED_KINDS = (ElementKind.FP8_E4M3, ElementKind.FP8_E5M2)  # kinds that CuPy has no dtype for


class Memory:
    """NumPy arrays, for the reference back end and the emulator."""

    def __init__(self, device: Any) -> None:
        self.device = device

    def zeros(self, shape: tuple[int, ...], element: ElementKind) -> Any:
        return np.zeros(shape, element.dtype)

    def typed(self, array: Any, element: ElementKind) -> Any:
        """A part of an array of `zeros`, with its element kind for kernels."""
        return array

    def fresh(self, host: np.ndarray[Any, Any], stream: Any) -> Any:
        """A copy of a host array, for work on the stream."""
        return host

    def settle(self) -> None:
        """Synchronises, so that arrays of `zeros` can be used on any stream."""

    def write(self, array: Any, host: np.ndarray[Any, Any], stream: Any) -> None:
        """Queues the copy of a host array into an array, or part of one, of the same shape. `host` may change immediately."""
        array[...] = host


class _CupyMemory(Memory):
    def _on(self, stream: Any) -> AbstractContextManager[Any]:
        return nullcontext() if stream is None else made_current(stream_pointer(stream))

    def zeros(self, shape: tuple[int, ...], element: ElementKind) -> Any:
        cupy = require_cupy("PagedKVCache")
        return cupy.zeros(shape, np.uint8 if element in BYTE_STORED_KINDS else element.dtype)

    def typed(self, array: Any, element: ElementKind) -> Any:
        return GpuBuffer.view(array, element) if element in BYTE_STORED_KINDS else array

    def fresh(self, host: np.ndarray[Any, Any], stream: Any) -> Any:
        with self._on(stream):
            return require_cupy("PagedKVCache").asarray(host)

    def settle(self) -> None:
        require_cupy("PagedKVCache").cuda.get_current_stream().synchronize()

    def write(self, array: Any, host: np.ndarray[Any, Any], stream: Any) -> None:
        with self._on(stream):
            array.set(host)  # the host memory is not pinned, so it has been read when this returns


class _TorchMemory(Memory):
    def __init__(self, device: Any, torch: Any) -> None:
        super().__init__(device)
        self.torch = torch
        self.place = torch.device("cpu" if spec_of(device).host_memory else "cuda")

    def _on(self, stream: Any) -> AbstractContextManager[Any]:
        cuda = self.torch.cuda
        return nullcontext() if stream is None else cuda.stream(cuda.ExternalStream(stream_pointer(stream)))

    def zeros(self, shape: tuple[int, ...], element: ElementKind) -> Any:
        return self.torch.zeros(shape, dtype=dtype_of(element), device=self.place)

    def fresh(self, host: np.ndarray[Any, Any], stream: Any) -> Any:
        with self._on(stream):
            return self.torch.from_numpy(host).to(self.place)

    def settle(self) -> None:
        if self.place.type == "cuda":
            self.torch.cuda.current_stream().synchronize()

    def write(self, array: Any, host: np.ndarray[Any, Any], stream: Any) -> None:
        with self._on(stream):
            array.copy_(self.torch.from_numpy(host))


def memory_of(device: Any, framework: str | None) -> Memory:
    """The memory of a device: torch's, CuPy's or NumPy's; by default CuPy's for a GPU and NumPy's for the host."""
    own = "numpy" if spec_of(device).host_memory else "cupy"
    if framework in (None, own):
        made: Callable[[Any], Memory] = Memory if own == "numpy" else _CupyMemory
        return made(device)
    if framework != "torch":
        raise InvalidProblemError(f"PagedKVCache: framework={framework!r} on this device", f'give "{own}" or "torch"')
    if "torch" not in sys.modules:
        raise InvalidProblemError('PagedKVCache: framework="torch", and torch is not imported', "import it first")
    return _TorchMemory(device, sys.modules["torch"])
