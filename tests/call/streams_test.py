"""Streams on the device: delayed producers, fences, captures, and what a capture refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.plan import get_op
from baracuda_py.runtime.gpu.streams import made_current

pytestmark = pytest.mark.gpu
COVERS = ("add", "square", "write_slice", "contiguize")

SPIN = r"""
extern "C" __global__ void spin(long long cycles) {
  long long began = clock64();
  while (clock64() - began < cycles) {}
}
"""
CYCLES = 200_000_000  # about 0.1 s, far longer than the host takes to queue what follows


@pytest.fixture(scope="module")
def spin() -> Callable[[], None]:
    """Keeps CuPy's current stream busy for a tenth of a second."""
    import cupy

    kernel = cupy.RawKernel(SPIN, "spin")
    kernel((1,), (1,), (np.int64(1),))
    cupy.cuda.runtime.deviceSynchronize()
    return lambda: kernel((1,), (1,), (np.int64(CYCLES),))


def stream() -> Any:
    import cupy

    return cupy.cuda.Stream(non_blocking=True)


def warm() -> None:
    """Loads the kernels, so that nothing but the order of streams is at stake."""
    import cupy

    x = cupy.ones(1024, np.float32)
    bp.square(x)
    bp.add(x, x)
    cupy.cuda.runtime.deviceSynchronize()


def torch_cuda() -> Any:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("this PyTorch has no CUDA")
    return torch


# ---- producers that are late -----------------------------------------------------------------------------------------


class Late(NamedTuple):
    """An array to which a producer's stream writes `value` after a tenth of a second, an output, and another stream."""

    x: Any
    out: Any
    producer: Any
    consumer: Any


def late(spin: Callable[[], None], value: float, size: int = 1024) -> Late:
    import cupy

    warm()
    made = Late(cupy.zeros(size, np.float32), cupy.ones(size, np.float32), stream(), stream())
    cupy.cuda.runtime.deviceSynchronize()
    with made.producer:
        spin()
        made.x.fill(value)
    return made


def test_the_current_cupy_stream_is_used(spin: Callable[[], None]) -> None:
    one = late(spin, 3)
    with one.producer:
        assert (bp.square(one.x).get() == 9).all()


@pytest.mark.parametrize("given", ["stream", "handle"])
def test_a_stream_given_by_name_is_used(spin: Callable[[], None], given: str) -> None:
    one = late(spin, 3)
    bp.square(one.x, out=one.out, stream=one.producer if given == "stream" else one.producer.ptr)
    assert not one.producer.done, "the call waited for the producer"
    one.producer.synchronize()
    assert (one.out.get() == 9).all()


def test_a_fresh_output_on_another_stream(spin: Callable[[], None]) -> None:
    one = late(spin, 2, 1 << 20)
    y = bp.square(one.x, stream=one.producer)
    one.producer.synchronize()
    assert (y.get() == 4).all()


def test_a_fence_orders_two_streams_without_the_host(spin: Callable[[], None]) -> None:
    one = late(spin, 5)
    bp.fence(one.producer, one.consumer)
    assert not one.producer.done, "fence waited on the host"
    bp.square(one.x, out=one.out, stream=one.consumer)
    one.consumer.synchronize()
    assert (one.out.get() == 25).all()
    bp.fence(one.consumer, one.consumer)
    bp.fence(one.producer.ptr, one.consumer)


def test_without_a_fence_the_delay_is_long_enough_to_be_seen(spin: Callable[[], None]) -> None:
    """Were this to fail, the tests above could not fail."""
    one = late(spin, 5)
    bp.square(one.x, out=one.out, stream=one.consumer)
    one.consumer.synchronize()
    stale = one.out.get()
    one.producer.synchronize()
    assert (stale == 0).all()


def test_an_interface_with_a_stream_is_waited_for(spin: Callable[[], None]) -> None:
    one = late(spin, 5)

    class Foreign:
        __cuda_array_interface__ = {**one.x.__cuda_array_interface__, "stream": one.producer.ptr}

    with one.consumer:
        y = bp.square(Foreign())
        one.consumer.synchronize()
        assert (y.get() == 25).all()


def test_dlpack_producers_are_waited_for(spin: Callable[[], None]) -> None:
    """The handshake: the consumer's stream is passed to the producer, which orders its work before it."""
    one = late(spin, 5)
    seen: list[Any] = []

    class Foreign:
        def __dlpack_device__(self) -> Any:
            return one.x.__dlpack_device__()

        def __dlpack__(self, *, stream: Any = None, **options: Any) -> Any:
            seen.append(stream)
            if stream != -1:  # -1: only the layout is wanted
                bp.fence(one.producer, int(stream))
            return one.x.__dlpack__(stream=-1, **options)

    y = bp.square(Foreign(), stream=one.consumer)
    one.consumer.synchronize()
    assert (y.get() == 25).all()
    handle = one.consumer.ptr
    assert handle in seen and set(seen) <= {-1, handle}  # a first call asks for the layout as well


def test_torch_inputs_written_late(spin: Callable[[], None]) -> None:
    import cupy

    torch = torch_cuda()

    warm()
    x, y = torch.zeros(1024, device="cuda"), cupy.zeros(1024, np.float32)
    side = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        with made_current(side.cuda_stream):
            spin()
        x.fill_(3)
        bp.square(x, out=y)  # on CuPy's stream, fenced by the handshake
    assert (y.get() == 9).all()


def test_torch_outputs_are_written_on_the_torch_stream(spin: Callable[[], None]) -> None:
    torch = torch_cuda()

    warm()
    x, out = torch.zeros(1024, device="cuda"), torch.zeros(1024, device="cuda")
    x.fill_(1), out + 1, bp.square(x, out=out)  # whatever loads lazily would wait for the device
    side = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        with made_current(side.cuda_stream):
            spin()
        x.fill_(3)
        assert bp.square(x, out=out) is out
        after = out + 1
        assert not side.query(), "the call waited for the producer"
    side.synchronize()
    assert bool((out == 9).all())
    assert bool((after == 10).all())


def test_torch_tensors_that_need_gradients_are_refused() -> None:
    torch = torch_cuda()
    with pytest.raises(bp.OperandTypeError, match=r"x\.detach\(\)"):
        bp.quantize_int8(torch.ones(4, 4, device="cuda", requires_grad=True))  # which has no gradient


# ---- captures --------------------------------------------------------------------------------------------------------


def test_a_graph_replays_and_updates() -> None:
    import cupy

    pytest.importorskip("cuda.bindings")
    cache, token = cupy.zeros((8, 4), np.float32), cupy.ones((1, 4), np.float32)
    desc = bp.WriteSliceDescriptor.of(cache, token, [(0, 1), (0, 4)])
    bound = bp.WriteSlicePlan.select(desc).bind(dest=cache, source=token)
    graph = bp.Graph(bound)
    cupy.cuda.runtime.deviceSynchronize()
    assert not cache.get().any(), "capturing launched it"
    for position in (0, 3, 7):
        graph.update(bound, start=(position, 0))
        graph.launch()
    cupy.cuda.runtime.deviceSynchronize()
    assert np.flatnonzero(cache.get().any(axis=1)).tolist() == [0, 3, 7]
    with pytest.raises(bp.InvalidProblemError):
        graph.update(bound, start=(8, 0))
    assert "write_slice" in repr(graph)


def test_a_graph_that_fails_to_update_keeps_working() -> None:
    import cupy

    x, out = cupy.ones(64, np.float32), cupy.zeros(64, np.float32)
    bound = get_op("square").plan.select(get_op("square").of(x=x, out=out)).bind(x=x, out=out)
    graph = bp.Graph(bound)
    with pytest.raises(bp.InvalidProblemError):
        graph.update(bound, x=cupy.ones(65, np.float32))
    graph.launch()
    cupy.cuda.runtime.deviceSynchronize()
    assert (out.get() == 1).all()


def _capturing(action: Callable[[Any], Any]) -> Any:
    """What `action` raises while a stream is being captured; the capture itself survives."""
    side = stream()
    with side:
        side.begin_capture()
        try:
            with pytest.raises(bp.BaracudaError) as caught:
                action(side)
        finally:
            side.end_capture()
    return caught.value


def test_a_plan_allocates_nothing_in_a_capture() -> None:
    import cupy

    x = cupy.ones(64, np.float32)
    plan = get_op("square").plan.select(get_op("square").of(x=x))
    plan.load()
    for _ in range(2):  # the second time on the short path
        error = _capturing(lambda _: plan.run(x=x))
        assert isinstance(error, bp.UnsupportedError)
        assert "plan.run allocates nothing during a capture, and out was not passed: pass out=" in str(error)
        plan.run(x=x)


def test_a_capture_refuses_to_load() -> None:
    import cupy

    x, out = cupy.ones(67, np.float32), cupy.zeros(67, np.float32)
    plan = get_op("neg").plan.select(get_op("neg").of(x=x, out=out))
    error = _capturing(lambda _: plan.run(x=x, out=out))
    assert isinstance(error, bp.UnsupportedError)
    assert "plan.load()" in str(error)
    plan.load()
    side = stream()
    with side:
        side.begin_capture()
        plan.run(x=x, out=out)
        graph = side.end_capture()
        graph.launch(side)
        side.synchronize()
    assert (out.get() == -1).all()


def test_a_capture_refuses_a_foreign_operand_from_another_stream() -> None:
    torch = torch_cuda()
    import cupy

    x, out = torch.ones(64, device="cuda"), cupy.zeros(64, np.float32)
    plan = get_op("square").plan.select(get_op("square").of(x=x, out=out)).load()
    torch.cuda.synchronize()
    error = _capturing(lambda _: plan.run(x=x, out=out))
    assert isinstance(error, bp.UnsupportedError)
    assert "another stream" in str(error)
    assert not out.get().any()


def test_a_bound_call_runs_on_the_stream_it_is_given(spin: Callable[[], None]) -> None:
    import cupy

    x, out = cupy.zeros(64, np.float32), cupy.zeros(64, np.float32)
    bound = get_op("square").plan.select(get_op("square").of(x=x, out=out)).bind(x=x, out=out)
    side = stream()
    cupy.cuda.runtime.deviceSynchronize()
    with side:
        spin()
        x.fill(6)
    assert bound(side) is out
    assert not side.done
    side.synchronize()
    assert (out.get() == 36).all()


def test_threads_run_one_plan_on_streams_of_their_own() -> None:
    from concurrent.futures import ThreadPoolExecutor

    import cupy

    x = cupy.ones(1 << 16, np.float32)
    plan = get_op("square").plan.select(get_op("square").of(x=x)).load()

    def work(value: int) -> bool:
        with stream() as side:
            mine = cupy.full(1 << 16, value, np.float32)
            got = plan.run(x=mine)
            side.synchronize()
            return bool((got.get() == value * value).all())

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(100)))


@pytest.mark.parametrize("bad", ["text", 1.5, object()])
def test_what_is_no_stream_is_refused(bad: Any) -> None:
    import cupy

    x = cupy.ones(4, np.float32)
    with pytest.raises(bp.OperandTypeError, match="is not a stream"):
        bp.square(x, stream=bad)


def test_decode_loop_on_the_device_makes_one_plan() -> None:
    import cupy

    from baracuda_py.call.cache import plan_cache

    cache, token = cupy.zeros((8192, 2, 8), np.float32), cupy.ones((1, 2, 8), np.float32)
    plan_cache.clear()
    for position in range(8192):
        bp.write_slice(cache, token, [(position, position + 1), (0, 2), (0, 8)])
    info = plan_cache.info()
    assert (info.plans, info.misses) == (1, 1)
    assert info.hits >= 8190
    assert cache.get().all()


@pytest.mark.heavy
def test_more_than_two_to_the_31_elements() -> None:
    import cupy

    free, _ = cupy.cuda.runtime.memGetInfo()
    count = (1 << 31) + 4097
    if free < 6 * count:
        pytest.skip(f"needs {6 * count >> 30} GiB of device memory")
    x = cupy.zeros(count, np.int8)
    x[-4097:] = 3
    x[:5] = 2
    out = bp.square(x)
    assert int(out[-4097:].sum()) == 9 * 4097
    assert int(out[:5].sum()) == 20
    assert not bool(out[5:-4097].any())
    bp.write_slice(out, x[:4097], [(count - 4097, count)])
    assert int(out[-4097:].sum()) == 10
    transposed = bp.contiguize(x[: 1 << 31].reshape(2, -1).T)
    assert transposed.shape == (1 << 30, 2)
    assert transposed[:5].sum() == 10
    del x, out, transposed
    cupy.get_default_memory_pool().free_all_blocks()
