"""CUDA devices that are host memory: what the library asks of CuPy is answered here, copies happen at once, launches are noted.

For tests of what a call does on its way to a kernel: which device and stream, in which order, on which bytes. Arrays are real
CuPy arrays over NumPy memory; no value is ever computed.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from baracuda_py import functional
from baracuda_py.call import bound, foreign, graph
from baracuda_py.call.cache import plan_cache
from baracuda_py.call.paths import recipe, resolve
from baracuda_py.call.recording import step
from baracuda_py.call.results import allocate
from baracuda_py.runtime import launch
from baracuda_py.runtime.gpu import capture, device, driver, streams
from baracuda_py.tensor import arrays, buffer
from baracuda_py.types import DeviceSpec

__all__ = ["Gpus", "simulated"]


class _Stream:
    """A stream of the device that was current when it was made; what it captures can be launched."""

    gpus: Gpus

    def __init__(self, non_blocking: bool = False) -> None:
        self.ordinal = self.gpus.current
        self.ptr = 50 + 100 * self.ordinal

    @staticmethod
    def from_external(_handle: Any) -> Any:
        return contextlib.nullcontext()

    def __enter__(self) -> Any:
        assert self.ordinal == self.gpus.current, "a stream of another device is made current"
        self.before, self.gpus.streams[self.ordinal] = self.gpus.streams[self.ordinal], self.ptr
        return self

    def __exit__(self, *_error: object) -> None:
        self.gpus.streams[self.ordinal] = self.before

    def begin_capture(self) -> None:
        self.gpus.capturing = {self.ptr}

    def end_capture(self) -> Any:
        self.gpus.capturing = False
        return SimpleNamespace(
            launch=lambda stream: self.gpus.events.append(f"graph on {self.gpus.current}:{stream.ptr}")
        )


class _Pinned(bytearray):
    """Pinned host memory, as a buffer with an address."""

    @property
    def ptr(self) -> int:
        return ctypes.addressof(ctypes.c_char.from_buffer(self))


class Gpus:
    """What stands for the cupy module, its `cuda`, its `cuda.runtime` and its `cuda.driver`."""

    memcpyHostToDevice, memcpyDeviceToDevice, eventDisableTiming = 1, 3, 2

    class CUDARuntimeError(Exception):
        status = 1

    CUDADriverError = CUDARuntimeError

    def __init__(self, specs: Sequence[DeviceSpec]) -> None:
        cupy = pytest.importorskip("cupy")
        self.real = cupy
        self.cuda = self.runtime = self.driver = self
        self.specs = specs
        self.current = 0
        self.streams = [7 + 100 * ordinal for ordinal in range(len(specs))]
        self.capturing: bool | set[int] = False  # whether every stream is being captured, or which are
        self.graphs = CaptureCalls()
        self.allocator: Any = self.memory
        self.events: list[str] = []  # what happened, in order
        self.transfers: list[tuple[int, ...]] = []  # addresses and extents of copies and fills
        self.ndarray = self._fresh
        self.Stream = type("Stream", (_Stream,), {"gpus": self})

        class Owned(cupy.cuda.UnownedMemory):  # type: ignore[misc]
            """An allocation whose size CuPy knows, since it made it."""

        self._owned = Owned

    # ---- arrays ---------------------------------------------------------------------------------------------------

    def memory(self, nbytes: int, ordinal: int | None = None) -> Any:
        """An allocation, as a MemoryPointer."""
        held = np.zeros(max(nbytes, 1) + 512, np.uint8)
        address = held.ctypes.data + -held.ctypes.data % 512
        ordinal = self.current if ordinal is None else ordinal
        return self.real.cuda.MemoryPointer(self._owned(address, nbytes, held, ordinal), 0)

    def array(self, x: Any, ordinal: int = 0) -> Any:
        """A CuPy array with an allocation of its own that holds `x`, C-ordered."""
        x = np.ascontiguousarray(x)
        memory = self.memory(x.nbytes, ordinal)
        ctypes.memmove(memory.ptr, x.ctypes.data, x.nbytes)
        return self.real.ndarray(x.shape, x.dtype, memory)

    def over(self, memory: Any, shape: tuple[int, ...], dtype: Any, strides: tuple[int, ...] | None = None) -> Any:
        """A CuPy array at a MemoryPointer, of the bytes that are there."""
        return self.real.ndarray(shape, dtype, memory, strides)

    @staticmethod
    def read(x: Any) -> np.ndarray[Any, Any]:
        """The elements of such an array."""
        interface = SimpleNamespace(
            __array_interface__={
                "version": 3,
                "shape": x.shape,
                "strides": x.strides,
                "typestr": f"|V{x.itemsize}",
                "data": (x.data.ptr, True),
            }
        )
        return np.array(np.asarray(interface).view(x.dtype))

    def _fresh(self, shape: Any, dtype: Any, memory: Any = None, strides: Any = None) -> Any:
        nbytes = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        return self.real.ndarray(shape, dtype, memory or self.alloc(nbytes), strides)

    def zeros(self, shape: Any, dtype: Any) -> Any:
        return self._fresh(shape, dtype)

    def alloc(self, nbytes: int) -> Any:
        return self.allocator(nbytes)

    @contextlib.contextmanager
    def using_allocator(self, allocator: Any) -> Iterator[None]:
        before, self.allocator = self.allocator, allocator
        try:
            yield
        finally:
            self.allocator = before

    def MemoryPool(self) -> Any:
        """A pool that notes what is taken from it, and whether the thread was allowed to allocate."""

        def malloc(nbytes: int) -> Any:
            assert self.graphs.mode == "relaxed", "an allocation that a capture forbids"
            self.events.append(f"pool gives {nbytes}")
            return self.memory(nbytes)

        return SimpleNamespace(malloc=malloc)

    def alloc_pinned_memory(self, nbytes: int) -> Any:
        """Host memory, which a capture forbids to allocate."""
        assert not self.capturing or self.graphs.mode == "relaxed", "an allocation that a capture forbids"
        return _Pinned(nbytes)

    # ---- devices and streams --------------------------------------------------------------------------------------

    def getDevice(self) -> int:
        return self.current

    def deviceGetAttribute(self, attribute: int, ordinal: int) -> int:
        """The compute capability's parts, which are all that is asked for."""
        capability = int("".join(filter(str.isdigit, self.specs[ordinal].arch)))
        return {75: capability // 10, 76: capability % 10}[attribute]

    def setDevice(self, ordinal: int) -> None:
        self.current = ordinal

    @contextlib.contextmanager
    def Device(self, ordinal: int) -> Iterator[None]:
        before, self.current = self.current, ordinal
        try:
            yield
        finally:
            self.current = before

    def get_current_stream(self) -> Any:
        return SimpleNamespace(ptr=self.streams[self.current])

    def streamIsCapturing(self, stream: int) -> bool:
        return stream in self.capturing if isinstance(self.capturing, set) else self.capturing

    def eventCreateWithFlags(self, _flags: int) -> int:
        return 1

    def eventRecord(self, _event: int, stream: int) -> None:
        self.events.append(f"record on {stream}")

    def streamWaitEvent(self, stream: int, _event: int) -> None:
        self.events.append(f"{stream} waits")

    def eventDestroy(self, _event: int) -> None: ...

    def Event(self, **_options: Any) -> Any:
        """An event that is over once the host has waited for it."""
        event = SimpleNamespace(ptr=1, done=False)
        event.synchronize = lambda: vars(event).update(done=True)
        return event

    def pointerGetAttributes(self, _pointer: int) -> Any:
        raise self.CUDARuntimeError("cudaErrorInvalidValue: invalid argument")

    # ---- work -----------------------------------------------------------------------------------------------------

    def memcpyAsync(self, dest: int, source: int, nbytes: int, _kind: int, stream: int) -> None:
        self.events.append(f"copy on {self.current}:{stream}")
        self.transfers.append((dest, source, nbytes))
        ctypes.memmove(dest, source, nbytes)

    def memcpy2DAsync(self, *pitched: int) -> None:
        """Destination, pitch, source, pitch, width, height; copies nothing."""
        self.events.append(f"copy on {self.current}:{pitched[-1]}")
        self.transfers.append(pitched[:6])

    def memsetAsync(self, dest: int, value: int, nbytes: int, stream: int) -> None:
        self.events.append(f"fill on {self.current}:{stream}")
        self.transfers.append((dest, value, nbytes))
        ctypes.memset(dest, value, nbytes)

    def launchKernel(self, _function: int, *rest: Any) -> None:
        self.events.append(f"launch on {self.current}:{rest[-3]}")

    @property
    def work(self) -> list[str]:
        """The copies, fills and launches among the events."""
        return [event for event in self.events if event.split()[0] in ("copy", "fill", "launch")]


class CaptureCalls:
    """What stands for cuda.bindings.driver where a graph is captured: captures by number, user objects, the thread's mode."""

    CUstreamCaptureMode = SimpleNamespace(CU_STREAM_CAPTURE_MODE_RELAXED="relaxed")
    CUuserObject_flags = SimpleNamespace(CU_USER_OBJECT_NO_DESTRUCTOR_SYNC=1)
    CUuserObjectRetain_flags = SimpleNamespace(CU_GRAPH_USER_OBJECT_MOVE=1)

    def __init__(self) -> None:
        self.number, self.mode = 1, "global"
        self.alive: dict[int, list[tuple[int, int]]] = {}  # (destructor, its argument) of a graph's user objects

    CUstream = CUhostFn = staticmethod(int)

    def cuStreamGetCaptureInfo(self, _stream: int) -> tuple[Any, ...]:
        return 0, "active", self.number, self.number, [], 0

    def cuThreadExchangeStreamCaptureMode(self, mode: str) -> tuple[int, str]:
        before, self.mode = self.mode, mode
        return 0, before

    def cuUserObjectCreate(self, argument: int, destroy: int, _count: int, _flags: int) -> tuple[Any, ...]:
        return 0, (destroy, argument)

    def cuGraphRetainUserObject(self, graph: int, held: tuple[int, int], _count: int, _flags: int) -> tuple[int]:
        self.alive.setdefault(graph, []).append(held)
        return (0,)

    def destroy(self, graph: int) -> None:
        """Destroys a graph: its user objects' destructors run, as CUDA runs them."""
        for destructor, argument in self.alive.pop(graph):
            ctypes.CFUNCTYPE(None, ctypes.c_void_p)(destructor)(argument)


def simulated(monkeypatch: pytest.MonkeyPatch, *names: str) -> Iterator[Gpus]:
    """Devices of these names (``"h200"``, ``"sm_89"``), the first one current, for the life of a fixture."""
    gpus = Gpus([DeviceSpec.named(name) for name in names])
    monkeypatch.setattr(capture, "bindings", lambda: gpus.graphs)
    monkeypatch.setattr(capture, "_captures", {})
    for module in (allocate, bound, capture, device, foreign, graph, launch, recipe, resolve, step, streams):
        monkeypatch.setattr(module, "require_gpu", lambda _what, **_: gpus)
    for module in (allocate, buffer):
        monkeypatch.setattr(module, "require_cupy", lambda _what: gpus)
    for module in (arrays, device, driver, foreign, functional, resolve):
        monkeypatch.setattr(module, "device_count", lambda: len(names))
    monkeypatch.setattr(arrays, "gpu", lambda: gpus)
    monkeypatch.setattr(device, "_present", lambda ordinal: gpus.specs[ordinal])
    monkeypatch.setattr(launch, "compile_kernels", lambda kernels, _arch: dict.fromkeys(kernels))
    monkeypatch.setattr(launch, "load_kernel", lambda *_: 1)
    for forget in (streams._query.cache_clear, device._arch_of.cache_clear, plan_cache.clear):
        forget()
    yield gpus
    for forget in (streams._query.cache_clear, device._arch_of.cache_clear, plan_cache.clear):
        forget()
