"""Captures on the device: functions in torch's, CuPy's and this library's graphs, replayed beside eager calls."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.call.cache import plan_cache
from baracuda_py.runtime.gpu import capture
from tests.readme import ROOT, blocks

pytestmark = pytest.mark.gpu
COVERS = (
    "add", "attention_decode", "kv_append", "matmul", "matmul_int4", "matmul_int8", "rms_norm", "rope", "silu_mul",
)  # fmt: skip

F16 = np.float16
LAYERS, CAPACITY = 32, 4096


@pytest.fixture(scope="module")
def page() -> dict[str, Any]:
    """The names that docs/capture.md defines."""
    names: dict[str, Any] = {}
    for block in blocks(ROOT / "docs/capture.md"):
        exec(block, names)
    return names


class Cupy:
    """How a test makes arrays and captures with CuPy."""

    captured = "captured_by_cupy"

    @staticmethod
    def array(x: Any) -> Any:
        import cupy

        return cupy.asarray(x)

    @staticmethod
    def host(x: Any) -> Any:
        return x.get()


class Here(Cupy):
    captured = "captured_here"


class Torch:
    captured = "captured_by_torch"

    @staticmethod
    def array(x: Any) -> Any:
        return torch_cuda().as_tensor(x, device="cuda")

    @staticmethod
    def host(x: Any) -> Any:
        return x.cpu().numpy()


def torch_cuda() -> Any:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("this PyTorch has no CUDA")
    return torch


@pytest.fixture(params=[Cupy, Here, Torch], ids=lambda kind: kind.captured)
def where(request: pytest.FixtureRequest) -> Any:
    if request.param is Torch:
        torch_cuda()
    return request.param


def test_captured_decode_step_equals_eager_step(where: Any, page: dict[str, Any]) -> None:
    """Bit by bit, at every replay; the eager steps between them allocate and free as the captured one did."""
    x, lengths = where.array(np.zeros((3, 256), F16)), where.array(np.array([5, 900, 3000], np.int32))
    captured, eager = ([{n: where.array(w) for n, w in layer.items()} for layer in page["model"](LAYERS, 3, CAPACITY)]
                       for _ in range(2))  # fmt: skip
    replay, result = page[where.captured](lambda: page["decode"](x, lengths, captured))
    rng = np.random.default_rng(1)
    seen = []
    for _ in range(6):
        x[...] = where.array(rng.standard_normal(x.shape).astype(F16))
        replay()
        got, wanted = where.host(result), where.host(page["decode"](x, lengths, eager))
        assert np.isfinite(wanted).all() and wanted.any()
        np.testing.assert_array_equal(got, wanted)
        seen.append(got)
        lengths += where.array(np.array([1, 17, 150], np.int32))
    assert all((a != b).any() for a, b in itertools.pairwise(seen))
    for one, other in zip(captured, eager):
        np.testing.assert_array_equal(where.host(one["k_cache"]), where.host(other["k_cache"]))


def int4(where: Any) -> Callable[[], Any]:
    rng = np.random.default_rng(2)
    weight = bp.pack_int4(where.array(rng.standard_normal((4096, 4096)).astype(F16)))
    x = where.array(rng.standard_normal((20, 4096)).astype(F16))
    return lambda: bp.matmul_int4(x, weight)


def w8a16(where: Any) -> Callable[[], Any]:
    rng = np.random.default_rng(3)
    codes = where.array(rng.integers(-127, 128, (4096, 4096), np.int8))
    scales = where.array(rng.uniform(0.01, 0.02, 4096).astype(np.float32))
    x = where.array(rng.standard_normal((80, 4096)).astype(F16))
    return lambda: bp.matmul_int8(x, codes, scale_b=scales)


def long_context(where: Any) -> Callable[[], Any]:
    rng = np.random.default_rng(4)
    q, k, v = (where.array(rng.standard_normal(s).astype(F16)) for s in ((1, 8, 1, 128), *[(1, 2, 32768, 128)] * 2))
    return lambda: bp.attention_decode(q, k, v)


def split_product(where: Any) -> Callable[[], Any]:
    a, b = (where.array(np.ones(s, np.float32)) for s in ((1, 16384), (16384, 64)))
    return lambda: bp.matmul(a, b, pref=bp.PlanPreference(variant="gemv"))


@pytest.mark.parametrize("made", [int4, w8a16, long_context, split_product])
def test_call_that_needs_scratch_is_captured(where: Any, made: Any, page: dict[str, Any]) -> None:
    call = made(where)
    plan_cache.clear()
    wanted = where.host(call())
    assert any(ready.selection.workspace_size for ready in plan_cache.calls.values()), "what the test is about"
    replay, result = page[where.captured](call)
    for _ in range(3):
        result.fill_(0) if where is Torch else result.fill(0)
        others = [call() for _ in range(3)]
        replay()
        np.testing.assert_array_equal(where.host(result), wanted)
        assert all((where.host(other) == wanted).all() for other in others)


def test_given_output_needs_only_scratch(page: dict[str, Any]) -> None:
    """`out=` is passed, so that scratch is all that the capture allocates."""
    import cupy

    a, b, out = cupy.ones((1, 16384), np.float32), cupy.ones((16384, 64), np.float32), cupy.zeros((1, 64), np.float32)
    pref = bp.PlanPreference(variant="gemv")
    replay, result = page["captured_by_cupy"](lambda: bp.matmul(a, b, out=out, pref=pref))
    assert result is out
    out.fill(0)
    replay()
    assert (out.get() == 16384).all()


# ---- first calls inside a capture ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("mode", "op"), [("Relaxed", "exp"), ("ThreadLocal", "log"), ("Global", "rsqrt")])
def test_kernel_is_loaded_during_a_cupy_capture(mode: str, op: str) -> None:
    import cupy

    x = cupy.full((33, 7), 3, np.float64)[:, ::2]  # a layout of which nothing is loaded
    with cupy.cuda.Stream(non_blocking=True) as stream:
        stream.begin_capture(getattr(cupy.cuda.runtime, f"streamCaptureMode{mode}"))
        y = getattr(bp, op)(x)
        graph = stream.end_capture()
        graph.launch()
        stream.synchronize()
    wanted = {"exp": np.exp(3), "log": np.log(3), "rsqrt": 3**-0.5}[op]
    np.testing.assert_allclose(y.get(), wanted, rtol=1e-14)


def test_kernel_is_loaded_during_a_torch_capture() -> None:
    torch = torch_cuda()
    x, graph = torch.full((33, 7), 3.0, dtype=torch.float64, device="cuda")[:, ::2], torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = bp.tanh(x)
    graph.replay()
    torch.testing.assert_close(y, torch.tanh(x))


def test_frequencies_are_copied_beside_a_capture(where: Any, page: dict[str, Any]) -> None:
    x = where.array(np.ones((1, 2, 5, 64), F16))
    wanted = where.host(bp.rope(x, scaling=bp.RopeScaling.plain(64, 777.0)))
    calls = iter([bp.RopeScaling.plain(64, 10.0), fresh := bp.RopeScaling.plain(64, 777.0)])
    replay, result = page[where.captured](lambda: bp.rope(x, scaling=next(calls)))
    replay()
    np.testing.assert_array_equal(where.host(result), wanted)
    assert len(fresh._copies) == 1


# ---- memory ----------------------------------------------------------------------------------------------------------


def wait_for_release() -> int:
    """How many captures still have memory, once CUDA has had time to say which graphs are destroyed."""
    for _ in range(100):
        bp.plan_cache.clear()
        if not capture._captures:
            break
        time.sleep(0.02)
    return len(capture._captures)


def test_memory_of_a_capture_lives_as_long_as_its_graph() -> None:
    import cupy

    x = cupy.ones(1 << 20, np.float32)
    before = wait_for_release()  # graphs of other tests
    with cupy.cuda.Stream(non_blocking=True) as stream:
        bp.add(bp.add(x, x), x)
        stream.begin_capture()
        y = bp.add(bp.add(x, x), x)  # the inner result is dropped at once
        graph = stream.end_capture()
        assert len(capture._captures) == before + 1
        bp.plan_cache.clear()
        assert len(capture._captures) == before + 1, "memory of a graph that lives was freed"
        for _ in range(3):
            churn = [cupy.full(1 << 20, 7, np.float32) for _ in range(8)]
            graph.launch(stream)
            stream.synchronize()
            assert (y.get() == 3).all() and all((c.get() == 7).all() for c in churn)
        del graph
    assert wait_for_release() == before, "CUDA never said that the graph is gone"
    assert (y.get() == 3).all(), "the result holds its own memory"


# ---- what is refused -------------------------------------------------------------------------------------------------


def test_call_beside_a_capture_of_the_other_framework_is_refused() -> None:
    import cupy

    torch = torch_cuda()
    x, t = cupy.ones(64, np.float32), torch.ones(64, device="cuda")
    for _ in range(2):  # the second time on the short path
        bp.square(x), bp.square(t)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = bp.square(t)
            with pytest.raises(bp.UnsupportedError, match="torch's current stream is being captured"):
                bp.square(x)
            ours = bp.square(x, stream=torch.cuda.current_stream())
        graph.replay()
        torch.cuda.synchronize()
        assert bool((captured == 1).all()) and (ours.get() == 1).all()
        with cupy.cuda.Stream(non_blocking=True) as stream:
            stream.begin_capture()
            with pytest.raises(bp.UnsupportedError, match="CuPy's current stream is being captured"):
                bp.square(t)
            stream.end_capture()
