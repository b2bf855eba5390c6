"""Recorded steps: what is kept and replayed, what follows at a replay, and what is refused because it would not."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import baracuda_py as bp
from tests.readme import ROOT, blocks

from .simulated import Gpus, simulated

F32 = np.float32
RNG = np.random.default_rng(7)


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gpus]:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    yield from simulated(monkeypatch, "sm_89", "sm_89")


def values(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(F32)


def recorded_mlp(x: Any, w: Any) -> tuple[bp.Step, Any]:
    with bp.record(x=x) as step:
        y = bp.silu(bp.matmul(bp.gelu(x), w))
    return step, y


@contextlib.contextmanager
def refused(error: type[Exception], said: str, **inputs: Any) -> Iterator[bp.Step]:
    """A recording that ends with that error."""
    with pytest.raises(error, match=said), bp.record(**inputs) as step:
        yield step


# ---- replays ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", ["cpu", "ptx:sm_80"])
def test_record_replays_with_new_inputs(device: str) -> None:
    x, w = values(2, 16), values(16, 8)
    with bp.device(device):
        step, y = recorded_mlp(x, w)
        assert [plan.desc.op for plan in step.plans] == ["gelu", "matmul", "silu"] and len(step) == 3
        assert np.array_equal(y, bp.silu(bp.matmul(bp.gelu(x), w))), "a call runs as it is recorded"
        for change in (lambda new: step(x=new), lambda new: (step.inputs["x"].__setitem__(..., new), step())):
            new = values(2, 16)
            change(new)
            assert step.result is y and np.array_equal(y, bp.silu(bp.matmul(bp.gelu(new), w)))
            assert np.array_equal(x, new), "the named array is the recorded one"
        w[:] = values(16, 8)
        assert np.array_equal(step(), bp.silu(bp.matmul(bp.gelu(x), w))), "arrays without a name are read again, too"


def test_record_follows_lengths() -> None:
    """A decode step over padded caches: the token and the lengths change in place."""
    k_cache, v_cache = (np.zeros((2, 2, 16, 16), F32) for _ in range(2))
    twins = k_cache.copy(), v_cache.copy()
    lengths = np.array([0, 5], np.int32)
    q, k, v = (values(2, 2, 1, 16) for _ in range(3))

    def step_of(caches: Any, lengths: Any) -> Any:
        bp.kv_append(*caches, k, v, lengths)
        return bp.attention_decode(q, *caches, bp.add(lengths, 1))

    with bp.device("cpu"):
        with bp.record(q=q, k=k, v=v, lengths=lengths) as step:
            out = step_of((k_cache, v_cache), lengths)
        assert np.array_equal(out, step_of(twins, lengths.copy()))
        for _ in range(3):
            q[...], k[...], v[...] = (values(*q.shape) for _ in range(3))
            lengths += 1
            wanted = step_of(twins, lengths.copy())
            assert np.array_equal(step(), wanted) and np.array_equal(k_cache, twins[0])


def test_record_follows_page_tables() -> None:
    """A step over a paged cache is recorded once: later steps extend, stage, replay and advance, over new pages too."""
    spec = bp.KVCacheSpec(layers=1, kv_heads=2, head_dim=8, page_size=4, element="f32")
    k, v, q = values(2, 2, 8), values(2, 2, 8), values(2, 1, 4, 8)

    def step_of(cache: bp.PagedKVCache) -> Any:
        cache.append(0, k, v)
        pages = cache.layer(0)
        return bp.paged_attention(q, pages["k_pages"], pages["v_pages"], cache.page_table, cache.lengths_after)

    with bp.device("cpu"):
        caches = [bp.PagedKVCache(spec, pages=16, max_batch=2, device="cpu") for _ in range(2)]
        batches = [[cache.allocate(1), cache.allocate(1)] for cache in caches]
        step = None
        for token in range(10):
            k[...], v[...], q[...] = values(*k.shape), values(*v.shape), values(*q.shape)
            for cache, batch in zip(caches, batches):
                if token:
                    cache.extend(dict.fromkeys(batch, 1))
                cache.stage(batch)
            if step is None:
                with bp.record(q=q) as step:
                    out = step_of(caches[0])
            else:
                out = step()
            assert np.array_equal(out, step_of(caches[1])), token
            for cache, batch in zip(caches, batches):
                cache.advance(batch)
        assert len(batches[0][0].pages) == 3 and len(step) == 2


def test_record_keeps_plans_and_bound_plans() -> None:
    x, w = values(2, 16), values(16, 8)
    plan = bp.matmul.plan(x, w, device="cpu")
    out = np.empty((2, 8), F32)
    relu = bp.relu.bind(out, device="cpu")
    with bp.record(x=x) as step:
        plan.run(a=x, b=w, out=out)
        relu()
    assert [one.desc.op for one in step.plans] == ["matmul", "relu"] and step.bounds[1] is relu
    new = values(2, 16)
    np.testing.assert_allclose(step(x=new), np.maximum(new @ w, 0), rtol=1e-5, atol=1e-5)
    plan.run(a=x, b=w)
    assert len(step) == 2, "nothing is recorded after the block"


def test_record_takes_a_step_into_a_step() -> None:
    x, w = values(2, 16), values(16, 8)
    with bp.device("cpu"):
        inner, y = recorded_mlp(x, w)
        with bp.record(x=x) as outer:
            inner()
            z = bp.neg(y)
        assert len(outer) == 4
        new = values(2, 16)
        outer(x=new)
        assert np.array_equal(z, -bp.silu(bp.matmul(bp.gelu(new), w)))


def test_record_takes_torch_tensors() -> None:
    torch = pytest.importorskip("torch")
    x, w = torch.randn(2, 16), torch.randn(16, 8)
    with bp.device("cpu"):
        with bp.record(x=x) as step:
            y = bp.gelu(bp.matmul(x, w).view(4, 4)[:, 1:])
        assert isinstance(y, torch.Tensor)
        new = torch.randn(2, 16)
        step(x=new)
        torch.testing.assert_close(y, torch.nn.functional.gelu((new @ w).view(4, 4)[:, 1:]), rtol=1e-4, atol=1e-4)
        with (
            pytest.raises(bp.UnsupportedError, match=r"relu: x was made at .*record_test\.py:\d+ during the recording"),
            bp.record(x=x),
        ):
            bp.relu(bp.matmul(x, w) * 2)
        for change in (lambda y: y.mul_(2), lambda y: y[:, 0].zero_(), lambda y: y.__setitem__(0, 1.0)):
            with refused(bp.UnsupportedError, r"relu: x was changed in place at .*record_test\.py:\d+ during", x=x):
                change(y := bp.matmul(x, w))
                bp.relu(y)
        with bp.record(x=x) as step:
            y = bp.matmul(x, w)
            y[:1].zero_()
            bp.neg(bp.relu(y[1:]), out=y[1:])  # what is read was not changed
            y.mul_(2)  # and what is changed is not read before it is written again
            bp.matmul(x, w, out=y)
            z = bp.neg(y)
        new = torch.randn(2, 16)
        step(x=new)
        torch.testing.assert_close(z, -(new @ w), rtol=1e-4, atol=1e-4)
        weight = w.clone().requires_grad_()
        with refused(bp.OperandTypeError, r"torch\.no_grad", x=x):
            bp.matmul(x, weight)
        with torch.no_grad(), bp.record(x=x) as step:
            y = bp.matmul(x, weight)
        torch.testing.assert_close(step(), (x @ weight).detach(), rtol=1e-4, atol=1e-4)


# ---- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "between",
    [lambda y: y * 2, lambda y: y.copy(), lambda y: np.ascontiguousarray(y.T), lambda y: np.stack([y, y]),
     lambda y: y.T.reshape(-1)],
    ids=["arithmetic", "copy", "transposed", "stacked", "reshaped"],
)  # fmt: skip
def test_record_refuses_what_numpy_computed(between: Any) -> None:
    x = values(3, 8)
    said = "relu: x was made .* during the recording, and not by a recorded call"
    with refused(bp.UnsupportedError, said, x=x) as step, bp.device("cpu"):
        y = bp.gelu(x)
        z = between(y)
        bp.relu(z)
    with pytest.raises(bp.InvalidProblemError, match="ended with an error"):
        step()


def test_record_takes_views_and_own_outputs() -> None:
    x, scale = values(4, 8), np.ones(4, F32)
    with bp.device("cpu"), bp.record(x=x) as step:
        y = bp.gelu(x)
        out = np.empty((8, 4), F32)
        bp.neg(y.T, out=out)
        z = bp.multiply(out[::2], scale)
        float(z[0, 0])  # reads the value of this run; no call depends on it
    new = values(4, 8)
    step(x=new)
    assert np.array_equal(z, -bp.gelu(new, device="cpu").T[::2])


def test_record_refuses_inputs_that_no_call_reads() -> None:
    x, w = values(2, 16), values(16, 8)
    with refused(bp.InvalidProblemError, "no recorded call reads other", x=x, other=values(2, 16)):
        bp.matmul(x, w, device="cpu")
    with refused(bp.InvalidProblemError, "nothing was recorded"):
        pass
    x.flags.writeable = False
    for wrong, error, said in (
        ({"x": x}, bp.OperandTypeError, "x is a read-only numpy array"),
        ({"stream": w}, bp.InvalidProblemError, "'stream' is an argument of the step"),
        ({"x": [1.0]}, bp.OperandTypeError, "record: x"),
    ):
        with pytest.raises(error, match=said):
            bp.record(**wrong).__enter__()


def test_record_refuses_inputs_that_share_memory() -> None:
    """A replay would write one over the other."""
    x = values(1, 8)[0]
    for wrong in ({"a": x[:6], "b": x[2:]}, {"a": x, "b": x}, {"a": x[::2], "b": x[::-1]}):
        with pytest.raises(bp.InvalidProblemError, match="b and a share memory"):
            bp.record(**wrong).__enter__()
    with bp.device("cpu"), bp.record(a=x[::2], b=x[1::2]) as step:
        total = bp.add(x[::2], x[1::2])
    step(a=np.full(4, 1, F32), b=np.full(4, 2, F32))
    assert np.array_equal(total, np.full(4, 3, F32))


def test_record_refuses_wrong_replacements() -> None:
    x, w = values(2, 16), values(16, 8)
    with bp.device("cpu"):
        step, y = recorded_mlp(x, w)
    before = x.copy(), y.copy()
    for new, error, said in (
        ({"z": x}, bp.InvalidProblemError, "there is no input 'z': the inputs are: x"),
        ({"x": values(3, 16)}, bp.InvalidProblemError, r"x must have shape \(2, 16\), as recorded, got \(3, 16\)"),
        ({"x": x.astype("f8")}, bp.OperandTypeError, "x must hold f32, as recorded, got f64"),
        ({"x": 3.0}, bp.OperandTypeError, "step: x"),
    ):
        with pytest.raises(error, match=said):
            step(**new)
    x.flags.writeable = False
    with pytest.raises(bp.OperandTypeError, match="x has become a read-only array"):
        step(x=values(2, 16))
    assert np.array_equal(x, before[0]) and np.array_equal(y, before[1]), "a refused replay wrote something"


def test_record_refuses_inputs_that_change_places() -> None:
    a, b = values(3, 4), values(3, 4)
    with bp.device("cpu"), bp.record(a=a, b=b) as step:
        y = bp.subtract(a, b)
    before = a.copy(), b.copy()
    for new in ({"a": b, "b": a}, {"b": a, "a": values(3, 4)}, {"a": b[::-1], "b": values(3, 4)}):
        with pytest.raises(
            bp.OverlapError, match=r"shares memory with the input ., which is replaced as well: pass a copy"
        ):
            step(**new)
    assert np.array_equal(a, before[0]) and np.array_equal(b, before[1])
    assert np.array_equal(step(a=b, b=b), np.zeros_like(y)), "b itself stays"
    assert np.array_equal(step(a=b.copy(), b=before[0]), before[1] - before[0])


def test_record_takes_inputs_without_elements() -> None:
    x, none = values(2, 3), np.zeros((0, 3), F32)
    with bp.device("cpu"), bp.record(x=x, none=none) as step:
        bp.neg(none)
        bp.neg(x)
    assert np.array_equal(step(none=none.copy(), x=x + 1), -x)


def test_record_does_not_nest_and_ends() -> None:
    x = values(2, 16)
    with bp.device("cpu"):
        with bp.record(x=x) as step:
            with pytest.raises(bp.InvalidProblemError, match="is being recorded already"), bp.record():
                pass
            with pytest.raises(bp.InvalidProblemError, match="not finished"):
                step()
            assert type(bp.matmul.plan(x, x.T)) is bp.MatmulPlan, "asking for a plan records nothing"
            bp.gelu(x)
        assert len(step) == 1
        with refused(ZeroDivisionError, "by the caller") as failed:
            bp.gelu(x)
            raise ZeroDivisionError("by the caller")
        with pytest.raises(bp.InvalidProblemError, match="record it again"):
            failed()
        with refused(bp.UnsupportedError, "nonzero: a recording .* pass trim=False"):
            bp.nonzero(x)


def test_record_belongs_to_one_thread() -> None:
    x, found = values(2, 16), []
    bp.gelu(x, device="cpu")
    with bp.device("cpu"), bp.record(x=x) as step:
        thread = threading.Thread(target=lambda: found.append(bp.relu(x, device="cpu")))
        thread.start()
        thread.join()
        bp.gelu(x)
    assert len(found) == 1 and [plan.desc.op for plan in step.plans] == ["gelu"]


def test_record_replays_from_two_threads_one_by_one() -> None:
    x, w = values(2, 16), values(16, 8)
    with bp.device("cpu"):
        step, _y = recorded_mlp(x, w)
    wanted = step().copy()
    wrong: list[Any] = []

    def replay() -> None:
        for _ in range(50):
            if not np.array_equal(step(), wanted):
                wrong.append(1)

    threads = [threading.Thread(target=replay) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


# ---- what it says of itself -------------------------------------------------------------------------------------------


def test_record_explains_in_80_columns() -> None:
    names: dict[str, Any] = {}
    exec(blocks(ROOT / "docs/capture.md")[0], names)
    with bp.device("cpu"):
        layers = names["model"](2, batch=3, capacity=16)
        x, lengths = np.ones((3, 256), np.float16), np.array([0, 4, 7], np.int32)
        with bp.record(x=x, lengths=lengths) as step:
            names["decode"](x, lengths, layers)
    table = step.explain()
    assert max(map(len, repr(table).splitlines())) <= 80 and sum(row.count for row in table) == len(step)
    assert table.microseconds == pytest.approx(sum(plan.cost.seconds for plan in step.plans) * 1e6)
    assert table.bytes == sum(plan.cost.bytes for plan in step.plans)
    assert "attention_dec…" in repr(table) and "limited by" in repr(table)
    assert len(table) < len(step), "equal plans share a row"
    with pytest.raises(bp.UnsupportedError, match="only a GPU is timed"):
        step.profile()


def test_record_explains_shares_of_the_roof() -> None:
    x, w = np.empty((8, 8192), np.float16), np.empty((8192, 8192), np.float16)
    plan = bp.matmul.plan(x, w, device="h200")
    from baracuda_py.call.recording.summary import StepExplanation

    (row,) = StepExplanation.of([plan.selection] * 3)
    assert (row.count, row.limit, row.variant) == (3, plan.cost.limit, plan.sku.variant)
    assert (
        row.share == pytest.approx(plan.cost.bytes / plan.device.bandwidth / plan.cost.seconds)
        and 0.5 < row.share < 1.2
    )
    assert row.total_microseconds == pytest.approx(3e6 * plan.cost.seconds)


def test_record_profiles_emulated_plans() -> None:
    x = values(2, 16)
    with bp.device("ptx:sm_80"), bp.record(x=x) as step:
        y = bp.neg(bp.gelu(x))
    before = y.copy()
    x[:] = 0
    found = step.profile()
    assert len(found) == 2 and found.seconds is None and "gelu" in repr(found)
    assert np.array_equal(y, before), "a profile writes to copies"


# ---- on a device ------------------------------------------------------------------------------------------------------


def test_record_is_one_graph_on_a_gpu(gpus: Gpus) -> None:
    x, w = gpus.array(values(2, 16)), gpus.array(values(16, 8))
    with bp.record(x=x) as step:
        y = bp.silu(bp.matmul(bp.gelu(x), w))
    launches = len(gpus.work)
    assert launches >= 3 and all(event == "launch on 0:7" for event in gpus.work), (
        "the calls ran on CuPy's current stream"
    )
    gpus.events.clear()
    assert step() is y
    assert gpus.events[-1].startswith("graph on 0:") and len(gpus.work) == launches, "the first replay captures"
    gpus.events.clear()
    step()
    assert gpus.events == ["graph on 0:7"], "later replays launch the graph alone"
    assert step.graph is step.graph and step.graph.bounds == step.bounds


def test_record_keeps_to_one_device(gpus: Gpus) -> None:
    x, there, host = gpus.array(values(2, 16)), gpus.array(values(2, 16), 1), values(2, 16)
    with refused(bp.DeviceMismatchError, "gelu: the call is on CUDA device 1, and .* neg, is on CUDA device 0"):
        bp.neg(x)
        bp.gelu(there)
    with refused(bp.DeviceMismatchError, "is on the host"):
        bp.neg(x)
        bp.gelu(host, device="cpu")


def test_record_refuses_what_cupy_made(gpus: Gpus) -> None:
    x, cuda = gpus.array(values(2, 16)), gpus.real.cuda
    held = gpus.memory(128)
    with refused(bp.UnsupportedError, r"gelu: x was made at .*record_test\.py:\d+ during", x=x):
        bp.neg(x)
        bp.gelu(gpus.over(cuda.MemoryPointer(cuda.UnownedMemory(held.ptr, 128, held, 0), 0), (2, 16), F32))
