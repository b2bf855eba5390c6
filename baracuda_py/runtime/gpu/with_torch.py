"""A GPU without CuPy: functions of the driver through cuda.bindings, memory and current streams from PyTorch.

It has CuPy's names (`protocol`). torch is looked up among the loaded modules and never imported. Without it kernels load
and launch (for JAX), and nothing can be allocated.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from types import SimpleNamespace
from typing import Any

from ...types import UnsupportedError
from ..system.toolchain import install_hint
from .bindings import bindings, entry_point
from .context import CudaError, checked, current_ordinal, make_current
from .handles import foreign_stream, torch_with_streams
from .protocol import Allocator, Cuda, HasPtr
from .torch_streams import TorchStream

__all__ = ["TorchGpu", "torch_memory"]

_INVALID_CONTEXT = 201
_ENTRY_VERSION = 12000  # CUDA 12.0
_u32, _ptr, _size = ctypes.c_uint32, ctypes.c_void_p, ctypes.c_size_t
_PROPERTIES = {
    "major": "COMPUTE_CAPABILITY_MAJOR",
    "minor": "COMPUTE_CAPABILITY_MINOR",
    "multiProcessorCount": "MULTIPROCESSOR_COUNT",
    "sharedMemPerBlockOptin": "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN",
    "l2CacheSize": "L2_CACHE_SIZE",
}


def torch_memory(cuda: Cuda, nbytes: int, ordinal: int) -> HasPtr:
    """Memory of torch's caching allocator for work on torch's current stream, as a MemoryPointer of `cuda`."""
    torch = sys.modules["torch"]
    held = torch.empty(nbytes, dtype=torch.uint8, device=torch.device(f"cuda:{ordinal}"))
    return cuda.MemoryPointer(cuda.UnownedMemory(held.data_ptr(), nbytes, held, ordinal), 0)


def _called(name: str, *types: Any) -> Callable[..., None]:
    """A function of the driver that raises CudaError. A thread that has used no CUDA context yet gets that of its device."""
    function = entry_point(name, _ENTRY_VERSION)
    function.argtypes = types

    def call(*arguments: int) -> None:
        if code := function(*arguments):
            if code == _INVALID_CONTEXT:
                make_current(current_ordinal())
                code = function(*arguments)
            if code:
                raise CudaError(code)

    return call


class _Driver:
    CUDADriverError: type[Exception] = CudaError
    CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8

    @cached_property
    def launchKernel(self) -> Callable[..., None]:
        return _called("cuLaunchKernel", _ptr, *(_u32,) * 7, _ptr, _ptr, _ptr)

    def funcSetAttribute(self, function: int, attribute: int, value: int) -> None:
        d = bindings()
        checked(d.cuFuncSetAttribute(d.CUfunction(function), d.CUfunction_attribute(attribute), value))


class _Runtime:
    CUDARuntimeError: type[Exception] = CudaError
    memcpyDeviceToDevice = 3
    eventDisableTiming = 2

    def getDevice(self) -> int:
        return current_ordinal()

    def setDevice(self, ordinal: int) -> None:
        torch = torch_with_streams()
        if torch is not None:
            torch.cuda.set_device(ordinal)
        make_current(ordinal)

    def getDeviceCount(self) -> int:
        d = bindings()
        checked(d.cuInit(0))
        return int(checked(d.cuDeviceGetCount()))

    def getDeviceProperties(self, ordinal: int) -> dict[str, Any]:
        d = bindings()
        name: bytes = checked(d.cuDeviceGetName(256, checked(d.cuDeviceGet(ordinal))))
        numbers = {
            key: self.deviceGetAttribute(
                int(getattr(d.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{attribute}")), ordinal
            )
            for key, attribute in _PROPERTIES.items()
        }
        return {"name": name.partition(b"\0")[0], **numbers}

    def deviceGetAttribute(self, attribute: int, ordinal: int) -> int:
        d = bindings()
        device = checked(d.cuDeviceGet(ordinal))
        return int(checked(d.cuDeviceGetAttribute(d.CUdevice_attribute(attribute), device)))

    def deviceSynchronize(self) -> None:
        make_current(current_ordinal())
        checked(bindings().cuCtxSynchronize())

    def driverGetVersion(self) -> int:
        return int(checked(bindings().cuDriverGetVersion()))

    def pointerGetAttributes(self, pointer: int) -> Any:
        d = bindings()
        attribute = d.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
        return SimpleNamespace(device=int(checked(d.cuPointerGetAttribute(attribute, d.CUdeviceptr(pointer)))))

    # ---- streams and events ---------------------------------------------------------------------------------------

    def streamIsCapturing(self, stream: int) -> bool:
        d = bindings()
        status = checked(d.cuStreamIsCapturing(d.CUstream(stream)))
        return bool(status == d.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_ACTIVE)

    def streamSynchronize(self, stream: int) -> None:
        d = bindings()
        checked(d.cuStreamSynchronize(d.CUstream(stream)))

    def eventCreateWithFlags(self, flags: int) -> int:
        make_current(current_ordinal())
        return int(checked(bindings().cuEventCreate(flags)))

    def eventRecord(self, event: int, stream: int) -> None:
        d = bindings()
        checked(d.cuEventRecord(d.CUevent(event), d.CUstream(stream)))

    def streamWaitEvent(self, stream: int, event: int) -> None:
        d = bindings()
        checked(d.cuStreamWaitEvent(d.CUstream(stream), d.CUevent(event), 0))

    def eventDestroy(self, event: int) -> None:
        d = bindings()
        checked(d.cuEventDestroy(d.CUevent(event)))

    # ---- copies ---------------------------------------------------------------------------------------------------

    @cached_property
    def memcpyAsync(self) -> Callable[[int, int, int, int, int], None]:
        copy = _called("cuMemcpyDtoDAsync", _ptr, _ptr, _size, _ptr)

        def memcpyAsync(dest: int, source: int, nbytes: int, _kind: int, stream: int) -> None:
            copy(dest, source, nbytes, stream)

        return memcpyAsync

    @cached_property
    def memsetAsync(self) -> Callable[[int, int, int, int], None]:
        fill = _called("cuMemsetD8Async", _ptr, ctypes.c_uint8, _size, _ptr)

        def memsetAsync(dest: int, value: int, nbytes: int, stream: int) -> None:
            fill(dest, value, nbytes, stream)

        return memsetAsync

    def memcpy2DAsync(
        self, dest: int, dest_pitch: int, source: int, source_pitch: int, width: int, height: int, _kind: int, stream: int
    ) -> None:  # fmt: skip
        d = bindings()
        make_current(current_ordinal())
        copy = d.CUDA_MEMCPY2D()
        copy.srcMemoryType = copy.dstMemoryType = d.CUmemorytype.CU_MEMORYTYPE_DEVICE
        copy.dstDevice, copy.dstPitch = d.CUdeviceptr(dest), dest_pitch
        copy.srcDevice, copy.srcPitch = d.CUdeviceptr(source), source_pitch
        copy.WidthInBytes, copy.Height = width, height
        checked(d.cuMemcpy2DAsync(copy, d.CUstream(stream)))


class _Module:
    """Kernels of one cubin, loaded in the current context; never unloaded, as its functions stay in use."""

    def __init__(self) -> None:
        self._module: Any = None

    def load(self, cubin: bytes) -> None:
        make_current(current_ordinal())
        self._module = checked(bindings().cuModuleLoadData(cubin))

    def get_function(self, name: str) -> HasPtr:
        return _Pointer(int(checked(bindings().cuModuleGetFunction(self._module, name.encode()))))


class _Functions:
    Module = _Module


class _Pointer:
    """A handle, or an address in memory that it keeps alive."""

    __slots__ = ("mem", "ptr")

    def __init__(self, ptr: int, mem: Any = None) -> None:
        self.ptr, self.mem = ptr, mem


class _Memory:
    """Memory of another owner, which it keeps alive."""

    __slots__ = ("device_id", "owner", "ptr", "size")

    def __init__(self, pointer: int, nbytes: int, owner: Any, ordinal: int) -> None:
        self.ptr, self.size, self.owner, self.device_id = pointer, nbytes, owner, ordinal


class _Pool:
    """The memory of one capture. All of it is held as long as the pool, since torch does not know the graph that uses it."""

    def __init__(self, allocate: Callable[[int], HasPtr]) -> None:
        self._allocate = allocate
        self._held: list[HasPtr] = []

    def malloc(self, nbytes: int) -> HasPtr:
        made = self._allocate(nbytes)
        self._held.append(made)
        return made


class _Allocators(threading.local):
    """The current allocator of this thread; None for torch's."""

    current: Allocator | None = None


class _Cuda:
    function = _Functions()
    Stream = TorchStream
    UnownedMemory = _Memory

    def __init__(self) -> None:
        self.runtime, self.driver = _Runtime(), _Driver()
        self._allocators = _Allocators()

    def MemoryPointer(self, memory: Any, offset: int) -> HasPtr:
        return _Pointer(memory.ptr + offset, memory)

    def MemoryPool(self) -> _Pool:
        return _Pool(self._from_torch)

    def get_current_stream(self) -> HasPtr:
        return _Pointer(foreign_stream("torch", current_ordinal()) or 0)

    def alloc(self, nbytes: int) -> HasPtr:
        return (self._allocators.current or self._from_torch)(nbytes)

    def _from_torch(self, nbytes: int) -> HasPtr:
        if torch_with_streams() is None:
            raise UnsupportedError(
                "memory on a GPU comes from PyTorch where CuPy is missing, and no torch for CUDA is imported",
                f"import torch before the call, or {install_hint()}",
            )
        return torch_memory(self, nbytes, current_ordinal())

    @contextmanager
    def using_allocator(self, allocator: Allocator) -> Iterator[None]:
        before, self._allocators.current = self._allocators.current, allocator
        try:
            yield
        finally:
            self._allocators.current = before

    @contextmanager
    def Device(self, ordinal: int) -> Iterator[None]:
        before = self.runtime.getDevice()
        self.runtime.setDevice(ordinal)
        try:
            yield
        finally:
            if before != ordinal:
                self.runtime.setDevice(before)


class TorchGpu:
    """`protocol.Gpu` over cuda.bindings and torch."""

    def __init__(self) -> None:
        self.cuda: Cuda = _Cuda()
