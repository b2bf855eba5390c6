"""Calls of torch tensors where CuPy is missing, on a driver that only notes what it gets: memory and streams are torch's."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

import baracuda_py as bp
from baracuda_py import functional
from baracuda_py.call import foreign, graph
from baracuda_py.call.cache import plan_cache
from baracuda_py.call.paths import resolve
from baracuda_py.runtime import launch
from baracuda_py.runtime.gpu import capture, device, driver, streams
from baracuda_py.runtime.gpu.with_torch import TorchGpu
from baracuda_py.runtime.steps import Launch
from baracuda_py.tensor import arrays
from baracuda_py.types import DeviceSpec

from ..runtime.driver_double import DriverDouble
from ..runtime.with_torch_test import compiled, put
from .torch_on_gpu import on, simulated_torch, torch


@pytest.fixture
def noted(monkeypatch: pytest.MonkeyPatch) -> Iterator[DriverDouble]:
    """Two H200 without CuPy: the driver notes what a call does."""
    made = DriverDouble()
    put(monkeypatch, made)
    monkeypatch.setattr(capture, "bindings", lambda: made)
    monkeypatch.setattr(graph, "bindings", lambda: made)
    monkeypatch.delitem(sys.modules, "cupy", raising=False)
    gpu = TorchGpu()
    for module in (driver, graph):
        monkeypatch.setattr(module, "cupy_or_none", lambda: None)
    monkeypatch.setattr(driver, "gpu_or_none", lambda: gpu)
    for module in (arrays, device, driver, foreign, functional, resolve):
        monkeypatch.setattr(module, "device_count", lambda: 2)
    monkeypatch.setattr(device, "_present", lambda _ordinal: DeviceSpec.named("h200"))
    monkeypatch.setattr(launch, "compile_kernels", compiled)
    monkeypatch.setattr(launch, "_loaded", {})
    caches = streams._query.cache_clear, device._arch_of.cache_clear, plan_cache.clear
    with simulated_torch(monkeypatch, SimpleNamespace(current=0, events=[])):  # type: ignore[arg-type]
        for forget in caches:
            forget()
        yield made
        for forget in caches:
            forget()


def add_steps(noted: DriverDouble, plan: Any) -> Any:
    """Has the double know the arguments of a plan's kernels."""
    noted.arguments.add_steps(plan.selection.steps)
    return plan


def square(noted: DriverDouble, n: int = 64) -> Any:
    return add_steps(noted, bp.UnaryPlan.select(bp.UnaryDescriptor("square", (n,), "f32"), device=0))  # type: ignore[arg-type]


def launches(noted: DriverDouble) -> list[tuple[Any, ...]]:
    return [call for call in noted.calls if call[0].startswith("launch")]


def addresses(packed: bytes) -> set[int]:
    return {int.from_bytes(packed[i : i + 8], "little") for i in range(0, len(packed) - 7, 8)}


def test_a_call_runs_on_the_stream_of_torch(noted: DriverDouble, long_way: list[Any]) -> None:
    square(noted)
    x = on(torch.ones(64))
    for turn in range(3):
        y = bp.square(x)
        assert type(y) is type(x) and y.device == torch.device("cuda:0")
        (*_, one) = launches(noted)
        assert len(launches(noted)) == turn + 1 and one[3] == 57
        assert {x.data_ptr(), y.data_ptr()} <= addresses(one[4])
    assert len(long_way) == 1, "the second and third took the short path"
    assert "cupy" not in sys.modules


def test_it_follows_the_current_stream_and_stream(noted: DriverDouble) -> None:
    square(noted)
    x, y = on(torch.ones(64)), on(torch.empty(64))
    cuda = sys.modules["torch"].cuda
    bp.square(x, out=y)
    with cuda.stream(cuda.ExternalStream(900, 0)):
        bp.square(x, out=y)
    bp.square(x, out=y, stream=SimpleNamespace(cuda_stream=901))
    assert [call[3] for call in launches(noted)] == [57, 900, 901]


def test_operands_on_another_device_make_it_current(noted: DriverDouble) -> None:
    square(noted)
    x = on(torch.ones(64), "cuda:1")
    y = bp.square(x)
    assert y.device == torch.device("cuda:1") and launches(noted)[0][3] == 157
    assert [call[1] for call in noted.calls if call[0] == "cuCtxSetCurrent"][:1] == [701]
    assert sys.modules["torch"].cuda.current_device() == 0


def products(noted: DriverDouble) -> Any:
    """A product whose plan needs a workspace."""
    desc: Any = bp.MatmulDescriptor((64, 16384), (16384, 64), "f32", "f32")
    plan = add_steps(noted, bp.MatmulPlan.select(desc, device=0))
    assert plan.workspace_size and all(isinstance(step, Launch) for step in plan.selection.steps)
    return plan, on(torch.ones(64, 16384)), on(torch.ones(16384, 64)), on(torch.empty(64, 64))


def test_scratch_comes_from_torch(noted: DriverDouble, monkeypatch: pytest.MonkeyPatch) -> None:
    plan, a, b, out = products(noted)
    stand_in, asked = sys.modules["torch"], []  # type: ignore[var-annotated]
    empty = stand_in.empty
    monkeypatch.setattr(
        stand_in, "empty", lambda n, **more: (asked.append((n, str(more["device"]))), empty(n, **more))[1]
    )
    for _ in range(2):
        plan.run(a=a, b=b, out=out)
    assert asked == [(plan.workspace_size, "cuda:0")] * 2
    own = on(torch.empty(plan.workspace_size + 64, dtype=torch.uint8))
    start = -own.data_ptr() % 16
    plan.run(a=a, b=b, out=out, workspace=on(own[start:]))
    assert len(asked) == 2
    assert own.data_ptr() + start in addresses(launches(noted)[-1][4]) | addresses(launches(noted)[-2][4])
    with pytest.raises(bp.MisalignedOperandError):
        plan.run(a=a, b=b, out=out, workspace=on(own[start + 1 :]))
    with pytest.raises(bp.WorkspaceTooSmallError):
        plan.run(a=a, b=b, out=out, workspace=on(own[start : start + 32]))
    for other in (torch.empty(plan.workspace_size, dtype=torch.uint8), on(own[::2])):
        with pytest.raises(bp.OperandTypeError, match="C-contiguous CuPy array or torch tensor of a CUDA device"):
            plan.run(a=a, b=b, out=out, workspace=other)


def test_a_graph_of_bound_plans_replays(noted: DriverDouble) -> None:
    plan = square(noted)
    x, y, z = on(torch.ones(64)), on(torch.empty(64)), on(torch.empty(64))
    bound = plan.bind(x=x, out=y)
    one = bp.Graph(bound)
    stream = next(call[1] for call in noted.calls if call[0] == "cuStreamBeginCapture")
    assert launches(noted)[-1][3] == stream
    one.launch()
    one.launch(SimpleNamespace(cuda_stream=12))
    assert noted.work[-2:] == [("cuGraphLaunch", 5001, 57), ("cuGraphLaunch", 5001, 12)]
    one.update(bound, out=z)
    assert z.data_ptr() in addresses(launches(noted)[-1][4])
    assert ("cuGraphExecUpdate", 5001, 4002) in noted.calls
    one.launch()
    assert noted.work[-1] == ("cuGraphLaunch", 5001, 57)


def test_a_capture_takes_scratch_from_torch_too(noted: DriverDouble, monkeypatch: pytest.MonkeyPatch) -> None:
    """From torch's allocator on the stream that torch captures, which gives memory of the graph's own pool there."""
    plan, a, b, _ = products(noted)
    stand_in, asked = sys.modules["torch"], []  # type: ignore[var-annotated]
    empty, cuda = stand_in.empty, stand_in.cuda
    current = cuda.current_stream
    monkeypatch.setattr(
        stand_in, "empty", lambda n, **more: (asked.append((n, current(0).cuda_stream)), empty(n, **more))[1]
    )
    for _ in range(2):  # loads during a capture, then the short path
        with cuda.stream(cuda.ExternalStream(900, 0)):
            noted.captured.add(900)
            made = bp.matmul(a, b)
            noted.captured.clear()
        assert made.shape == (64, 64)
    assert asked == [(plan.workspace_size, 900)] * 2
    assert {call[3] for call in launches(noted)} == {900}
    modes = [call[1] for call in noted.calls if call[0] == "cuThreadExchangeStreamCaptureMode"]
    assert modes[:2] == [2, 0], "kernels are loaded in the relaxed mode"


@pytest.mark.usefixtures("noted")
def test_what_needs_cupy_says_so() -> None:
    x = on(torch.ones(64))
    for what in (
        lambda: bp.GpuBuffer.zeros(4, "f32"),
        lambda: bp.Graph(lambda: bp.square(x)),
        lambda: bp.UnaryPlan.select(bp.UnaryDescriptor("square", (64,), "f32"), device=0).profile(x=x),  # type: ignore[arg-type]
    ):
        with pytest.raises(bp.UnsupportedError, match="CuPy cannot be imported here"):
            what()


def test_refused_operands_launch_nothing(noted: DriverDouble) -> None:
    square(noted)
    x = on(torch.ones(64))
    for bad, error in (
        ({"out": on(torch.ones(63))}, bp.InvalidProblemError),
        ({"out": on(torch.ones(64), "cuda:1")}, bp.DeviceMismatchError),
        ({"out": torch.ones(64)}, bp.OperandTypeError),
        ({"stream": "x"}, bp.OperandTypeError),
    ):
        with pytest.raises(error):
            bp.square(x, **bad)
    assert not launches(noted)
