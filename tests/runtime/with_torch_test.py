"""A GPU without CuPy: what reaches the driver is what CuPy brings there, for plans of every op; torch gives memory, streams."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.plan import all_ops, get_op
from baracuda_py.runtime import launch, overlap, tensormap
from baracuda_py.runtime.compile.compiler import Compiled, Resources
from baracuda_py.runtime.gpu import bindings as bindings_module
from baracuda_py.runtime.gpu import context, driver, protocol, streams, torch_streams, with_torch
from baracuda_py.runtime.gpu.context import CudaError
from baracuda_py.runtime.gpu.with_torch import TorchGpu
from baracuda_py.runtime.steps import Call, Copy, Copy2D, Fill, Launch, Ptr, Run, Scratch, Step, Struct

from ..gauntlet import Problem, samples_of
from .driver_double import Arguments, CupyDouble, DriverDouble

STREAM, SCRATCH = 1 << 47 | 64, 1 << 44


@pytest.fixture
def double(monkeypatch: pytest.MonkeyPatch) -> DriverDouble:
    """The driver double in place of cuda.bindings, with no torch in the program."""
    made = DriverDouble()
    put(monkeypatch, made)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    return made


def put(monkeypatch: pytest.MonkeyPatch, made: DriverDouble) -> None:
    for module in (bindings_module, context, overlap, tensormap, torch_streams, with_torch):
        monkeypatch.setattr(module, "bindings", lambda: made)
    for cached in (context._primary, overlap._driver_launch):
        monkeypatch.setattr(cached.__module__ + "." + cached.__name__, cached.__wrapped__)


# ---- launches of every op ----------------------------------------------------------------------------------------------


def compiled(kernels: Any, _arch: str) -> dict[Any, Compiled]:
    return {kernel: Compiled(kernel.entry, kernel.entry.encode(), Resources(8, 0, 0, 256), 0.0) for kernel in kernels}


def run_values(steps: tuple[Step, ...]) -> Iterator[str]:
    for step in steps:
        for arg in step.args if isinstance(step, Launch) else ():
            for field in arg.fields if isinstance(arg, Struct) else (arg,):
                if isinstance(field, Run):
                    yield field.name


def driven(monkeypatch: pytest.MonkeyPatch, steps: tuple[Step, ...], names: tuple[str, ...], through: str) -> list[Any]:
    """The driver's calls when these steps are loaded, run twice and prepared, with operands at other addresses each time."""
    arguments = Arguments()
    arguments.add_steps(steps)
    made = DriverDouble(arguments)
    with monkeypatch.context() as patched:
        put(patched, made)
        patched.delitem(sys.modules, "torch", raising=False)
        gpu: Any = CupyDouble(made) if through == "cupy" else TorchGpu()
        patched.setattr(launch, "require_gpu", lambda _what: gpu)
        patched.setattr(launch, "compile_kernels", compiled)
        patched.setattr(launch, "_loaded", {})
        executable = launch.Executable(steps, names, "sm_90a", 0)
        values = dict.fromkeys(run_values(steps), 3)
        for turn in range(2):
            pointers = [(1 << 40) + (turn << 36) + (i << 32) for i in range(len(names))]
            executable.run(pointers, values, SCRATCH + (turn << 20), STREAM + turn)
        for call in executable.prepare(pointers, values, SCRATCH):
            call(0)
    return made.work


@pytest.mark.parametrize("op", list(all_ops()))
def test_torch_gpu_drives_the_driver_as_cupy_does(op: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = 0
    for sample in samples_of(get_op(op), count=6):
        selection = get_op(op).plan.select(Problem(get_op(op), sample, "cpu").desc, device="h200").selection
        if any(isinstance(step, Call) for step in selection.steps):
            continue
        mine, theirs = (driven(monkeypatch, selection.steps, selection.names, way) for way in ("torch", "cupy"))
        assert mine == theirs
        seen += len(mine)
    assert seen


def test_every_kind_of_step_reaches_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan of the gauntlet may lack some; and a kernel of a large cluster and much shared memory."""
    kernel = bp.UnaryPlan.select(bp.UnaryDescriptor("neg", (64,), "f32"), device="h200").selection.launches[0].kernel  # type: ignore[arg-type]
    x, y = Ptr("x", 8), Ptr("y")
    steps = (
        Copy(x, y, 48),
        Copy(Scratch(64, 32), x, 32),
        Copy2D(x, 256, y, 512, 40, 3),
        Fill(Scratch(0, 64), 0xAB, 64),
        Launch(kernel, (7, 2, 3), (128, 2, 1), (np.int32(-5), x, Run("n"), Scratch(32, 8)), 100 << 10, cluster=16),
        Launch(kernel, (1, 1, 1), (32, 1, 1), (y, np.float64(0.5)), 4096, pdl=True),
    )
    sizes = Arguments()
    sizes.add_steps(steps[:5])
    first = sizes.sizes[kernel.entry]
    # One kernel with two lists of arguments: the double knows the longer one, so the shorter one goes alone.
    mine, theirs = (driven(monkeypatch, steps[:5], ("x", "y"), way) for way in ("torch", "cupy"))
    assert mine == theirs
    noted = [call[0] for call in mine]
    assert noted[:4] == ["cuModuleLoadData", "cuModuleGetFunction", "cuFuncSetAttribute", "cuFuncSetAttribute"]
    assert mine[2][2:] == (14, 1) and mine[3][2:] == (8, 100 << 10)
    assert noted[4:9] == ["copy", "copy", "copy 2d", "fill", "launch"]
    packed = mine[8][4]
    assert mine[8][2:4] == ((7, 2, 3, 128, 2, 1, 100 << 10), STREAM) and len(packed) == first[0]
    assert np.frombuffer(packed[:4], "i4")[0] == -5 and np.frombuffer(packed[8:], "u8").tolist() == [
        (1 << 40) + 8, 3, SCRATCH + 32,
    ]  # fmt: skip
    assert mine[4] == ("copy", (1 << 40) + 8, (1 << 40) + (1 << 32), 48, STREAM)
    assert mine[7] == ("fill", SCRATCH, 0xAB, 64, STREAM)
    mine, theirs = (driven(monkeypatch, steps[5:], ("x", "y"), way) for way in ("torch", "cupy"))
    assert mine == theirs
    assert [call[0] for call in mine[2:]] == ["launch_ex"] * 3 and mine[2][-1] == (1, 6, 1)


def test_tensor_maps_are_encoded_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    desc: Any = bp.MatmulDescriptor((512, 512), (512, 512), "bf16", "bf16")
    selection = bp.MatmulPlan.select(desc, device="h200").selection
    assert selection.sku.variant.startswith("wgmma")
    mine, theirs = (driven(monkeypatch, selection.steps, selection.names, way) for way in ("torch", "cupy"))
    assert mine == theirs
    assert [call[0] for call in mine].count("cuTensorMapEncodeTiled") >= 4


# ---- errors, threads, streams, events -----------------------------------------------------------------------------------


def test_errors_of_the_driver_are_named(double: DriverDouble) -> None:
    gpu = TorchGpu().cuda
    double.answers["copy"] = [1]
    with pytest.raises(CudaError, match=r"^CUDA_ERROR_(1|INVALID_VALUE)") as caught:
        gpu.runtime.memcpyAsync(1, 2, 3, 3, 4)
    assert caught.value.status == 1 and isinstance(caught.value, gpu.runtime.CUDARuntimeError)
    assert isinstance(driver.driver_error(caught.value, "copying"), bp.DriverError)


def test_a_thread_without_a_context_gets_its_device(double: DriverDouble) -> None:
    """The first launch of a thread that has used no CUDA: the driver refuses it, and is asked again."""
    gpu = TorchGpu().cuda
    double.answers["fill"] = [201]
    gpu.runtime.memsetAsync(64, 1, 2, 5)
    assert [call[0] for call in double.calls if call[0] != "cuGetProcAddress"] == [
        "fill", "cuInit", "cuDeviceGet", "cuDevicePrimaryCtxRetain", "cuCtxSetCurrent", "fill",
    ]  # fmt: skip
    double.answers["fill"] = [201, 201]
    with pytest.raises(CudaError) as caught:
        gpu.runtime.memsetAsync(64, 1, 2, 5)
    assert caught.value.status == 201


def test_an_overlapping_launch_without_a_context_too(double: DriverDouble, monkeypatch: pytest.MonkeyPatch) -> None:
    step = Launch(SimpleNamespace(entry="k", __str__=str), (3, 4, 5), (128, 2, 1), (), 4096, pdl=True)  # type: ignore[arg-type]
    double.arguments.sizes["k"], double.functions[17] = (0, []), "k"
    monkeypatch.setattr(overlap, "require_gpu", lambda _what: TorchGpu())
    double.answers["launch_ex"] = [201]
    overlap.pdl_launch(17, step, 0)(5)
    assert [call[0] for call in double.work] == ["launch_ex", "launch_ex"] and double.context == 700


def test_devices_are_described_as_cupy_describes_them(double: DriverDouble) -> None:
    runtime = TorchGpu().cuda.runtime
    assert runtime.getDeviceCount() == 2 and runtime.getDevice() == 0
    assert runtime.getDeviceProperties(1) == {
        "name": b"NVIDIA H200", "major": 9, "minor": 0, "multiProcessorCount": 132, "sharedMemPerBlockOptin": 232448,
        "l2CacheSize": 50 << 20,
    }  # fmt: skip
    assert runtime.deviceGetAttribute(75, 0) == 9 and runtime.driverGetVersion() == 12090
    assert runtime.pointerGetAttributes(4096).device == 1
    with TorchGpu().cuda.Device(1):
        assert runtime.getDevice() == 1 and double.context == 701
        runtime.deviceSynchronize()
    assert runtime.getDevice() == 0 and double.calls[-1] == ("cuCtxSetCurrent", 700)


def test_fence_is_an_event_between_two_streams(double: DriverDouble, monkeypatch: pytest.MonkeyPatch) -> None:
    both = []
    for gpu in (TorchGpu(), CupyDouble(double)):
        double.calls.clear()
        double._made.clear()
        monkeypatch.setattr(streams, "require_gpu", lambda _what, gpu=gpu: gpu)
        streams.fence(5, 7)
        both.append(double.work)
    assert both[0] == both[1] == [("event", 2), ("record", 2001, 5), ("wait", 7, 2001, 0), ("destroy event", 2001)]


@pytest.mark.usefixtures("double")
def test_without_torch_there_is_no_memory() -> None:
    cuda = TorchGpu().cuda
    assert cuda.get_current_stream().ptr == 0
    with pytest.raises(bp.UnsupportedError, match=r"no torch for CUDA is imported: import torch.*pip install"):
        cuda.alloc(64)


# ---- torch --------------------------------------------------------------------------------------------------------------


class FakeTorch(ModuleType):
    """torch with two devices, as far as it is asked: tensors of the host stand for memory of a device."""

    def __init__(self) -> None:
        super().__init__("torch")
        self.ordinal, self.streams, self.allocated = 0, [57, 157], []  # type: ignore[var-annotated]
        self.version = SimpleNamespace(cuda="12.9")
        self.uint8, self.device = "uint8", str
        self._C = SimpleNamespace(_cuda_getCurrentRawStream=lambda ordinal: self.streams[ordinal])
        self.cuda = SimpleNamespace(
            current_device=lambda: self.ordinal,
            set_device=lambda ordinal: setattr(self, "ordinal", ordinal),
            ExternalStream=lambda handle, device: (handle, device),
            stream=self._stream,
        )

    def _stream(self, stream: tuple[int, int]) -> Any:
        @contextmanager
        def made_current() -> Iterator[None]:
            handle, ordinal = stream
            before, self.streams[ordinal] = self.streams[ordinal], handle
            yield
            self.streams[ordinal] = before

        return made_current()

    def empty(self, nbytes: int, dtype: str, device: str) -> Any:
        held = np.zeros(nbytes, dtype)
        self.allocated.append((nbytes, device, self.streams[int(device[-1])]))
        return SimpleNamespace(data_ptr=lambda: held.ctypes.data, held=held)


@pytest.fixture
def torch(double: DriverDouble, monkeypatch: pytest.MonkeyPatch) -> FakeTorch:
    assert not double.calls
    fake = FakeTorch()
    monkeypatch.setitem(sys.modules, "torch", fake)
    return fake


def test_memory_and_streams_are_those_of_torch(torch: FakeTorch, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = TorchGpu()
    cuda = gpu.cuda
    assert cuda.get_current_stream().ptr == 57
    memory = cuda.alloc(640)
    assert memory.ptr and torch.allocated == [(640, "cuda:0", 57)]
    with cuda.Device(1):
        assert torch.ordinal == 1 and cuda.get_current_stream().ptr == 157
        monkeypatch.setattr(streams, "require_gpu", lambda _what: gpu)
        with streams.made_current(900):
            cuda.alloc(8)
    assert torch.ordinal == 0 and torch.allocated[1:] == [(8, "cuda:1", 900)]
    with cuda.using_allocator(lambda nbytes: SimpleNamespace(ptr=-nbytes)):
        assert cuda.alloc(5).ptr == -5
    assert cuda.alloc(5).ptr > 0


@pytest.mark.usefixtures("torch")
def test_an_allocator_is_that_of_one_thread() -> None:
    cuda = TorchGpu().cuda
    with cuda.using_allocator(lambda nbytes: SimpleNamespace(ptr=-nbytes)), ThreadPoolExecutor(1) as other:
        assert other.submit(lambda: cuda.alloc(5).ptr).result() > 0
        assert cuda.alloc(5).ptr == -5


@pytest.mark.usefixtures("torch")
def test_a_pool_keeps_the_memory_of_its_capture() -> None:
    pool = TorchGpu().cuda.MemoryPool()
    given: Any = pool.malloc(32)
    held = weakref.ref(given.mem.owner.held)
    del given
    gc.collect()
    assert held() is not None
    del pool
    gc.collect()
    assert held() is None


@pytest.mark.usefixtures("torch")
def test_a_stream_captures_and_replays(double: DriverDouble) -> None:
    cuda = TorchGpu().cuda
    with cuda.Device(1):
        stream = cuda.Stream(non_blocking=True)
        with stream:
            assert cuda.get_current_stream().ptr == stream.ptr == 3001
            stream.begin_capture()
            assert cuda.runtime.streamIsCapturing(3001) and not cuda.runtime.streamIsCapturing(57)
            graph = stream.end_capture()
        assert cuda.get_current_stream().ptr == 157
    graph.launch(stream)
    graph.launch(SimpleNamespace(cuda_stream=12))
    assert double.work == [
        ("cuStreamCreate", 1), ("cuStreamBeginCapture", 3001, 2), ("cuStreamEndCapture", 3001),
        ("cuGraphInstantiate", 4001, 0), ("cuGraphLaunch", 5001, 3001), ("cuGraphLaunch", 5001, 12),
    ]  # fmt: skip
    assert (graph.graph, graph.graphExec) == (4001, 5001)
    double.calls.clear()
    del graph, stream
    gc.collect()
    assert sorted(double.work) == [("cuGraphDestroy", 4001), ("cuGraphExecDestroy", 5001), ("cuStreamDestroy", 3001)]


# ---- the protocol -------------------------------------------------------------------------------------------------------


def members(kind: Any) -> set[str]:
    spoken = ("__call__", "__enter__", "__exit__")
    return {n for n in vars(kind) if n in spoken or not n.startswith("_")} - {"ptr"}


@pytest.mark.parametrize("through", ["cupy", "torch"])
@pytest.mark.parametrize("name", ["Driver", "Runtime", "Cuda", "Streams", "Stream", "Modules", "Module", "Pool"])
def test_both_have_what_the_protocol_names(through: str, name: str) -> None:
    find: Callable[[Any], Any] = {
        "Cuda": lambda cuda: cuda,
        "Driver": lambda cuda: cuda.driver,
        "Runtime": lambda cuda: cuda.runtime,
        "Streams": lambda cuda: cuda.Stream,
        "Stream": lambda cuda: cuda.Stream,
        "Modules": lambda cuda: cuda.function,
        "Module": lambda cuda: cuda.function.Module,
        "Pool": lambda cuda: type(cuda.MemoryPool()) if through == "torch" else cuda.MemoryPool,
    }[name]
    cuda = TorchGpu().cuda if through == "torch" else pytest.importorskip("cupy").cuda
    found = find(cuda)
    wanted = members(getattr(protocol, name))
    assert wanted and wanted - set(dir(found)) - set(dir(type(found))) == set()
