"""Calls while a graph is captured, on simulated devices: whose memory they take, and what they refuse."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.call.paths import resolve
from baracuda_py.runtime import launch
from baracuda_py.runtime.gpu import capture
from baracuda_py.runtime.steps import Call
from baracuda_py.types import PlanPreference
from tests.readme import ROOT, blocks

from .simulated import Gpus, simulated

F32 = np.float32
SPLIT = PlanPreference(variant="gemv")


@pytest.fixture
def rtx(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gpus]:
    """A device of sm_89, without torch."""
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    yield from simulated(monkeypatch, "sm_89")


def given_by_pool(gpus: Gpus) -> list[int]:
    """The bytes that captures took from pools of their own, in order."""
    return [int(event.split()[-1]) for event in gpus.events if event.startswith("pool gives")]


def split_operands(gpus: Gpus) -> tuple[Any, Any]:
    return gpus.array(np.ones((1, 16384), F32)), gpus.array(np.ones((16384, 64), F32))


# ---- CuPy's captures -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("warm", [True, False], ids=["called before", "first call"])
def test_function_takes_memory_of_the_capture(rtx: Gpus, warm: bool) -> None:
    a, b = split_operands(rtx)
    scratch = bp.MatmulPlan.select(bp.MatmulDescriptor.of(a, b), SPLIT, device=0).workspace_size
    for _ in range(2 * warm):
        bp.matmul(a, b, pref=SPLIT)
    assert not given_by_pool(rtx)
    rtx.capturing = {7}
    made = [bp.matmul(a, b, pref=SPLIT) for _ in range(2)]
    assert given_by_pool(rtx) == [256, scratch] * 2 and len(capture._captures) == 1
    assert rtx.graphs.mode == "global", "the thread's mode is put back"
    rtx.events.clear()
    bp.matmul(a, b, pref=SPLIT, out=made[0])
    assert given_by_pool(rtx) == [scratch]
    rtx.capturing = False
    bp.matmul(a, b, pref=SPLIT)
    assert given_by_pool(rtx) == [scratch], "an eager call takes memory of a graph"


def test_each_capture_has_a_pool_until_its_graph_is_destroyed(rtx: Gpus) -> None:
    x = rtx.array(np.ones(64, F32))
    for rtx.graphs.number in (1, 2):
        rtx.capturing = {7}
        bp.neg(x), bp.neg(x)
        rtx.capturing = False
    assert capture._captures.keys() == {1, 2} and all(len(held) == 1 for held in rtx.graphs.alive.values())
    bp.exp(x)
    assert capture._captures.keys() == {1, 2}, "graphs that live have lost their memory"
    rtx.graphs.destroy(1)
    bp.neg(x)
    assert capture._captures.keys() == {1, 2}, "the short path looks for nothing"
    bp.sqrt(x)  # a new call
    assert capture._captures.keys() == {2}
    rtx.graphs.destroy(2)
    rtx.capturing, rtx.graphs.number = {7}, 3
    bp.tanh(x)
    assert capture._captures.keys() == {2, 3}, "memory is freed during a capture"
    rtx.capturing = False
    bp.plan_cache.clear()
    assert capture._captures.keys() == {3}


def test_plan_run_allocates_nothing_in_a_capture(rtx: Gpus) -> None:
    a, b = split_operands(rtx)
    out = rtx.array(np.ones((1, 64), F32))
    plan = bp.MatmulPlan.select(bp.MatmulDescriptor.of(a, b), SPLIT, device=0)
    plan.selection.executable(0)
    space = rtx.array(np.zeros(plan.workspace_size, np.uint8))
    for _ in range(2):  # the second time on the short path
        rtx.capturing = {7}
        done = len(rtx.work)
        with pytest.raises(bp.UnsupportedError, match="allocates nothing during a capture, and out was not passed"):
            plan.run(a=a, b=b, workspace=space)
        with pytest.raises(bp.UnsupportedError, match="and out was not passed"):
            plan.run(a=a, b=b)
        with pytest.raises(bp.UnsupportedError, match="and workspace was not passed"):
            plan.run(a=a, b=b, out=out)
        assert len(rtx.work) == done and not given_by_pool(rtx)
        plan.run(a=a, b=b, out=out, workspace=space)
        rtx.capturing = False
        plan.run(a=a, b=b), plan.run(a=a, b=b, out=out)


def test_kernel_is_loaded_in_a_capture_only_by_a_thread_that_may(rtx: Gpus, monkeypatch: pytest.MonkeyPatch) -> None:
    modes: list[str] = []
    monkeypatch.setattr(launch, "load_kernel", lambda *_: modes.append(rtx.graphs.mode) or 1)
    x = rtx.array(np.ones(64, F32))
    rtx.capturing = {7}
    bp.neg(x)
    rtx.capturing = False
    bp.exp(x)
    assert modes == ["relaxed", "global"]


def test_library_is_not_initialised_in_a_capture(rtx: Gpus, monkeypatch: pytest.MonkeyPatch) -> None:
    x = rtx.array(np.ones(64, F32))
    step = Call("a library", lambda *_: None, capturable=True, load=lambda: pytest.fail("initialised in a capture"))
    real = resolve.resolve

    def with_library(selection: Any, *args: Any, **kw: Any) -> Any:
        monkeypatch.setitem(vars(selection), "steps", (step,))
        return real(selection, *args, **kw)

    monkeypatch.setattr("baracuda_py.functional.resolve", with_library)
    rtx.capturing = {7}
    with pytest.raises(bp.UnsupportedError, match=r"calls a library, .* call neg once before the capture"):
        bp.neg(x)


def test_the_legacy_stream_is_never_asked_whether_it_captures(rtx: Gpus, monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA answers with an error while any blocking stream is captured."""
    a, b = split_operands(rtx)
    for rtx.streams[0] in (0, 1):
        monkeypatch.setattr(rtx, "streamIsCapturing", lambda stream: pytest.fail(f"{stream} is asked"))
        for _ in range(2):
            bp.matmul(a, b, pref=SPLIT)


# ---- this library's graphs -------------------------------------------------------------------------------------------


def test_graph_of_functions_and_bound_plans(rtx: Gpus) -> None:
    x, out = rtx.array(np.ones(64, F32)), rtx.array(np.ones(64, F32))
    bound = bp.ContiguizePlan.select(bp.ContiguizeDescriptor.of(x), device=0).bind(x=x, out=out)
    rtx.events.clear()

    def twice() -> Any:
        return bp.neg(bp.neg(x))

    graph = bp.Graph(bound, twice)
    assert rtx.work == ["copy on 0:50", "launch on 0:50", "launch on 0:50"]
    assert given_by_pool(rtx) == [256, 256]
    assert graph.results[0] is out and graph.results[1].shape == (64,)
    assert "contiguize" in repr(graph) and "twice" in repr(graph)
    with pytest.raises(bp.InvalidProblemError, match="holds functions"):
        graph.update(bound, x=x)
    with pytest.raises(bp.InvalidProblemError, match="expected bound plans or functions, got int"):
        bp.Graph(5)  # type: ignore[arg-type]
    with pytest.raises(ZeroDivisionError):
        bp.Graph(lambda: 1 / 0)
    assert rtx.capturing is False, "the capture goes on"


def test_page_is_captured_as_it_runs(rtx: Gpus, monkeypatch: pytest.MonkeyPatch) -> None:
    """The decode step of docs/capture.md: a capture launches what an eager step launches, and its memory is the graph's."""
    names: dict[str, Any] = {}
    for block in blocks(ROOT / "docs/capture.md"):
        exec(block, names)
    monkeypatch.setattr(rtx, "asarray", rtx.array, raising=False)
    x, lengths = rtx.array(np.zeros((3, 256), np.float16)), rtx.array(np.zeros((3,), np.int32))
    layers = [{n: rtx.array(w) for n, w in layer.items()} for layer in names["model"](3, 3, 4096)]
    frequencies = rtx.array(bp.RopeScaling.plain(64).inv_freq)
    monkeypatch.setattr(bp.RopeScaling, "on", lambda _self, _x: frequencies)
    names["decode"](x, lengths, layers)
    rtx.events.clear()
    names["decode"](x, lengths, layers)
    eager = [event.replace(":7", ":50") for event in rtx.work]
    rtx.events.clear()
    _replay, result = names["captured_here"](lambda: names["decode"](x, lengths, layers))
    assert result.shape == (3, 256)
    assert rtx.work[-len(eager) :] == eager and len(given_by_pool(rtx)) > 3 * 8
