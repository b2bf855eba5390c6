"""A CUDA driver that only notes its calls, in the form of cuda.bindings.driver, and CuPy's module in front of the same one.

What a caller does to a GPU can then be compared, whichever way it takes. Kernels' arguments are read as the driver reads them:
through the table of addresses, at the time of the launch.
"""

from __future__ import annotations

import ctypes
import hashlib
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from baracuda_py.runtime.launch import laid_out
from baracuda_py.runtime.steps import Launch, Step

__all__ = ["Arguments", "CupyDouble", "DriverDouble"]

_u64, _u32 = ctypes.c_uint64, ctypes.c_uint32


class Arguments:
    """Reads the arguments of launches, whose sizes only the steps know: by the kernel's name."""

    def __init__(self) -> None:
        self.sizes: dict[str, tuple[int, list[int]]] = {}

    def add_steps(self, steps: tuple[Step, ...]) -> None:
        for step in steps:
            if isinstance(step, Launch):
                _, offsets, end = laid_out(step.args)
                self.sizes[step.kernel.entry] = end, offsets

    def read(self, kernel: str, table: int) -> bytes:
        end, offsets = self.sizes[kernel]
        if not offsets:
            return b""
        places = (_u64 * len(offsets)).from_address(table)
        assert [place - places[0] for place in places] == offsets
        return ctypes.string_at(places[0], end)


class DriverDouble:
    """cuda.bindings.driver: its enumerations and structures are the module's own, its functions note their calls and answer with
    success, or with the code that `answers` has for the function's next call."""

    def __init__(self, arguments: Arguments | None = None) -> None:
        self.real = pytest.importorskip("cuda.bindings.driver")
        self.arguments = arguments or Arguments()
        self.calls: list[tuple[Any, ...]] = []
        self.answers: dict[str, list[int]] = {}
        self.context = 0  # of the only thread
        self.captured: set[int] = set()  # streams that another library captures
        self.functions: dict[int, str] = {}  # by handle
        self._modules: list[str] = []
        self._entries: list[Any] = []
        self._made = Counter[str]()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.real, name)
        if not name.startswith("cu") or isinstance(found, type):
            return found
        raise AssertionError(f"the double has no {name}")

    def note(self, name: str, *given: Any) -> Any:
        """Notes a call; the code that it is answered with."""
        self.calls.append((name, *given))
        planned = self.answers.get(name)
        return self.real.CUresult(planned.pop(0) if planned else 0)

    def handle(self, kind: str) -> int:
        self._made[kind] += 1
        return {"function": 1000, "event": 2000, "stream": 3000, "graph": 4000, "executable": 5000}[kind] + self._made[
            kind
        ]

    @property
    def work(self) -> list[tuple[Any, ...]]:
        """The calls, without those that only ask, and those that make a context current."""
        asking = (
            "cuInit",
            "cuDeviceGet",
            "cuCtxGetDevice",
            "cuCtxSetCurrent",
            "cuDevicePrimaryCtxRetain",
            "cuGetProcAddress",
        )
        return [call for call in self.calls if call[0] not in asking]

    # ---- devices --------------------------------------------------------------------------------------------------

    def cuInit(self, flags: int) -> Any:
        return (self.note("cuInit", flags),)

    def cuDeviceGetCount(self) -> Any:
        return self.note("cuDeviceGetCount"), 2

    def cuDeviceGet(self, ordinal: int) -> Any:
        return self.note("cuDeviceGet", ordinal), self.real.CUdevice(ordinal)

    def cuDeviceGetName(self, _length: int, device: Any) -> Any:
        return self.note("cuDeviceGetName", int(device)), b"NVIDIA H200\0\0\0"

    def cuDeviceGetAttribute(self, attribute: Any, device: Any) -> Any:
        known = {75: 9, 76: 0, 16: 132, 97: 232448, 38: 50 << 20}
        return self.note("cuDeviceGetAttribute", int(attribute), int(device)), known[int(attribute)]

    def cuDriverGetVersion(self) -> Any:
        return self.note("cuDriverGetVersion"), 12090

    def cuCtxGetDevice(self) -> Any:
        code = self.real.CUresult(0 if self.context else 201)
        return code, self.real.CUdevice(max(self.context - 700, 0))

    def cuCtxSetCurrent(self, context: int) -> Any:
        self.context = context
        return (self.note("cuCtxSetCurrent", context),)

    def cuDevicePrimaryCtxRetain(self, device: Any) -> Any:
        return self.note("cuDevicePrimaryCtxRetain", int(device)), 700 + int(device)

    def cuCtxSynchronize(self) -> Any:
        return (self.note("cuCtxSynchronize", self.context),)

    def cuPointerGetAttribute(self, attribute: Any, pointer: Any) -> Any:
        return self.note("cuPointerGetAttribute", attribute.name, int(pointer)), 1

    # ---- modules and launches -------------------------------------------------------------------------------------

    def cuModuleLoadData(self, cubin: bytes) -> Any:
        assert self.context, "a module is loaded into the current context"
        self._modules.append(cubin.decode())
        return self.note("cuModuleLoadData", cubin), len(self._modules)

    def cuModuleGetFunction(self, module: int, name: bytes) -> Any:
        handle = self.handle("function")
        self.functions[handle] = name.decode()
        return self.note("cuModuleGetFunction", module, name), self.real.CUfunction(handle)

    def cuFuncSetAttribute(self, function: Any, attribute: Any, value: int) -> Any:
        return (self.note("cuFuncSetAttribute", int(function), int(attribute), value),)

    def cuTensorMapEncodeTiled(self, *given: Any) -> Any:
        plain = tuple([int(x) for x in one] if isinstance(one, list) else int(one) for one in given)
        words = [int.from_bytes(hashlib.sha256(f"{plain}{i}".encode()).digest()[:8]) for i in range(16)]
        return self.note("cuTensorMapEncodeTiled", *plain), SimpleNamespace(opaque=words)

    def cuGetProcAddress(self, name: bytes, version: int, flags: int) -> Any:
        takes = {
            "cuLaunchKernel": (self.launch, _u64, *(_u32,) * 7, _u64, _u64, _u64),
            "cuLaunchKernelEx": (self.launch_ex, *(_u64,) * 4),
            "cuMemcpyDtoDAsync": (self.copy, *(_u64,) * 4),
            "cuMemsetD8Async": (self.fill, _u64, ctypes.c_uint8, _u64, _u64),
        }
        function, *types = takes[name.decode()]
        assert flags == int(self.real.CUdriverProcAddress_flags.CU_GET_PROC_ADDRESS_LEGACY_STREAM)
        entry = ctypes.CFUNCTYPE(ctypes.c_int, *types)(function)
        self._entries.append(entry)  # it is called as long as the double lives
        return self.note("cuGetProcAddress", name, version), ctypes.cast(entry, ctypes.c_void_p).value, 0

    def launch(self, function: int, *rest: int) -> int:
        *shape, stream, table, extra = rest
        packed = self.arguments.read(self.functions[function], table)
        return int(self.note("launch", function, tuple(shape), stream, packed, extra))

    def launch_ex(self, place: int, function: int, table: int, extra: int) -> int:
        config = self.real.CUlaunchConfig(_ptr=place)
        shape = (
            config.gridDimX, config.gridDimY, config.gridDimZ, config.blockDimX, config.blockDimY, config.blockDimZ,
            config.sharedMemBytes,
        )  # fmt: skip
        attribute = self.real.CUlaunchAttribute(_ptr=_u64.from_address(place + 40).value)
        said = config.numAttrs, int(attribute.id), attribute.value.programmaticStreamSerializationAllowed
        packed = self.arguments.read(self.functions[function], table)
        return int(self.note("launch_ex", function, shape, int(config.hStream), packed, extra, said))

    def copy(self, dest: int, source: int, nbytes: int, stream: int) -> int:
        return int(self.note("copy", dest, source, nbytes, stream))

    def fill(self, dest: int, value: int, nbytes: int, stream: int) -> int:
        return int(self.note("fill", dest, value, nbytes, stream))

    def cuMemcpy2DAsync(self, copy: Any, stream: Any) -> Any:
        assert copy.srcMemoryType == copy.dstMemoryType == self.real.CUmemorytype.CU_MEMORYTYPE_DEVICE
        assert self.context, "a copy belongs to the current context"
        places = int(copy.dstDevice), copy.dstPitch, int(copy.srcDevice), copy.srcPitch, copy.WidthInBytes, copy.Height
        return (self.note("copy 2d", *places, int(stream)),)

    # ---- streams, events and graphs -------------------------------------------------------------------------------

    def cuStreamIsCapturing(self, stream: Any) -> Any:
        status = self.real.CUstreamCaptureStatus
        active = int(stream) in self.capturing | self.captured
        said = status.CU_STREAM_CAPTURE_STATUS_ACTIVE if active else status.CU_STREAM_CAPTURE_STATUS_NONE
        return self.real.CUresult(0), said

    @property
    def capturing(self) -> set[int]:
        begun = [call[1] for call in self.calls if call[0] == "cuStreamBeginCapture"]
        ended = [call[1] for call in self.calls if call[0] == "cuStreamEndCapture"]
        return {stream for stream in begun if begun.count(stream) > ended.count(stream)}

    def cuThreadExchangeStreamCaptureMode(self, mode: Any) -> Any:
        return self.note("cuThreadExchangeStreamCaptureMode", int(mode)), self.real.CUstreamCaptureMode(0)

    def cuStreamCreate(self, flags: int) -> Any:
        return self.note("cuStreamCreate", flags), self.real.CUstream(self.handle("stream"))

    def cuStreamDestroy(self, stream: Any) -> Any:
        return (self.note("cuStreamDestroy", int(stream)),)

    def cuStreamSynchronize(self, stream: Any) -> Any:
        return (self.note("cuStreamSynchronize", int(stream)),)

    def cuStreamWaitEvent(self, stream: Any, event: Any, flags: int) -> Any:
        return (self.note("wait", int(stream), int(event), flags),)

    def cuEventCreate(self, flags: int) -> Any:
        assert self.context, "an event belongs to the current context"
        return self.note("event", flags), self.real.CUevent(self.handle("event"))

    def cuEventRecord(self, event: Any, stream: Any) -> Any:
        return (self.note("record", int(event), int(stream)),)

    def cuEventDestroy(self, event: Any) -> Any:
        return (self.note("destroy event", int(event)),)

    def cuStreamBeginCapture(self, stream: Any, mode: Any) -> Any:
        return (self.note("cuStreamBeginCapture", int(stream), int(mode)),)

    def cuStreamEndCapture(self, stream: Any) -> Any:
        return self.note("cuStreamEndCapture", int(stream)), self.real.CUgraph(self.handle("graph"))

    def cuGraphInstantiate(self, graph: Any, flags: int) -> Any:
        return self.note("cuGraphInstantiate", int(graph), flags), self.real.CUgraphExec(self.handle("executable"))

    def cuGraphLaunch(self, executable: Any, stream: Any) -> Any:
        return (self.note("cuGraphLaunch", int(executable), int(stream)),)

    def cuGraphExecUpdate(self, executable: Any, graph: Any) -> Any:
        return self.note("cuGraphExecUpdate", int(executable), int(graph)), None

    def cuGraphDestroy(self, graph: Any) -> Any:
        return (self.note("cuGraphDestroy", int(graph)),)

    def cuGraphExecDestroy(self, executable: Any) -> Any:
        return (self.note("cuGraphExecDestroy", int(executable)),)


class CupyDouble:
    """CuPy's module, as far as it launches: with CuPy's own constants and errors, in front of a `DriverDouble`."""

    def __init__(self, driver: DriverDouble) -> None:
        real = pytest.importorskip("cupy").cuda
        self._driver = driver
        driver.context = 700
        launched = SimpleNamespace(
            CUDADriverError=real.driver.CUDADriverError,
            CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES=real.driver.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
            launchKernel=driver.launch,
            funcSetAttribute=driver.cuFuncSetAttribute,
        )
        runtime = SimpleNamespace(
            CUDARuntimeError=real.runtime.CUDARuntimeError,
            memcpyDeviceToDevice=real.runtime.memcpyDeviceToDevice,
            eventDisableTiming=real.runtime.eventDisableTiming,
            memcpyAsync=lambda dest, source, nbytes, _kind, stream: driver.copy(dest, source, nbytes, stream),
            memcpy2DAsync=lambda *given: driver.note("copy 2d", *given[:6], given[-1]),
            memsetAsync=driver.fill,
            eventCreateWithFlags=lambda flags: int(driver.cuEventCreate(flags)[1]),
            eventRecord=driver.cuEventRecord,
            streamWaitEvent=lambda stream, event: driver.cuStreamWaitEvent(stream, event, 0),
            eventDestroy=driver.cuEventDestroy,
        )
        functions = SimpleNamespace(Module=self._module)
        self.cuda = SimpleNamespace(driver=launched, runtime=runtime, function=functions)

    def _module(self) -> Any:
        loaded: list[int] = []

        def load(cubin: bytes) -> None:
            loaded.append(self._driver.cuModuleLoadData(cubin)[1])

        def get_function(name: str) -> Any:
            return SimpleNamespace(ptr=int(self._driver.cuModuleGetFunction(loaded[0], name.encode())[1]))

        return SimpleNamespace(load=load, get_function=get_function)
