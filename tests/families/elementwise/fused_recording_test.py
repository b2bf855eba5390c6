"""Elementwise calls of a recording that are fused: which, what is still written, and what a replay gives."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import baracuda_py as bp

from ...call.simulated import Gpus, simulated

COVERS = ("add",)
F32 = np.float32
RNG = np.random.default_rng(11)


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gpus]:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    yield from simulated(monkeypatch, "sm_89")


def values(*shape: int, dtype: Any = F32) -> Any:
    return RNG.standard_normal(shape).astype(dtype)


def ops(step: bp.Step) -> list[str]:
    return [line.partition(":")[0] for line in step.fused]


def outputs(step: bp.Step) -> list[str]:
    """The results that each fused kernel writes."""
    return [plan.desc.graph.rpartition("return ")[2] for plan in step.plans if plan.desc.op == "fuse"]


def recorded(function: Callable[..., Any], *args: Any, device: str = "ptx", fuse: bool = True) -> tuple[bp.Step, Any]:
    with bp.device(device), bp.record(x=args[0], fuse=fuse) as step:
        result = function(*args)
    return step, result


def gate(x: Any, y: Any) -> Any:
    return bp.multiply(bp.silu(bp.add(x, y)), 2.0)


# ---- what is fused -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", ["cpu", "ptx"])
def test_fused_recording_is_one_launch(device: str) -> None:
    x, y = values(5, 33), values(5, 33)
    step, z = recorded(gate, x, y, device=device)
    assert len(step) == 1 and ops(step) == ["add + silu + multiply"] and outputs(step) == ["t3"]
    assert "fused: add + silu + multiply" in repr(step)
    assert step.fused == ("add + silu + multiply: t1 = add(x1, x2); t2 = silu(t1); t3 = multiply(t2, 2.0); return t3",)
    for _ in range(2):
        new = values(5, 33)
        assert step(x=new) is z is step.result
        assert np.allclose(z, gate_of(new, y), atol=1e-6)


def gate_of(x: Any, y: Any) -> Any:
    total = x.astype(np.float64) + y
    return 2 * total / (1 + np.exp(-total))


def test_recording_fuses_on_request_only() -> None:
    step, _ = recorded(gate, values(4), values(4), fuse=False)
    assert len(step) == 3 and step.fused == ()
    with pytest.raises(bp.BaracudaError, match="record: fuse"), bp.record(fuse=1):  # type: ignore[arg-type]
        pass


def test_fused_recording_stops_at_other_ops() -> None:
    x, w = values(5, 32), values(32, 16)
    step, y = recorded(lambda x: bp.relu(bp.add(bp.matmul(bp.gelu(bp.neg(x)), w), 1.0)), x)
    assert ops(step) == ["neg + gelu", "add + relu"] and [p.desc.op for p in step.plans] == ["fuse", "matmul", "fuse"]
    assert outputs(step) == ["t2", "t2"], "the product reads gelu's result alone"
    assert {"fuse", "matmul"} == {row.op for row in step.explain()}
    new = values(5, 32)
    step(x=new)
    assert np.allclose(y, np.maximum(bp.gelu(-new, device="cpu") @ w + 1, 0), atol=1e-4)


@pytest.mark.parametrize(
    ("function", "fused"),
    [
        (lambda x: bp.where(bp.less(x, 0.5), bp.clamp(x, max=0.25), x), "less + clamp + where"),
        (lambda x: bp.cast(bp.leaky_relu(x, 0.3), "f16"), "leaky_relu + cast"),
        (lambda x: bp.addcmul(x, bp.exp(x), x, 0.5), "exp + addcmul"),
        (lambda x: bp.logical_not(bp.isclose(bp.round(x), x, 0.0, 0.125)), "round + isclose + logical_not"),
        (lambda x: bp.multiply(x, bp.exp(bp.neg(x[:, :1]))), "neg + exp + multiply"),
        (lambda x: bp.bitwise_and(bp.cast(x, "i32"), 3), "cast + bitwise_and"),
    ],
)
def test_fused_recording_gives_what_separate_calls_give(function: Callable[..., Any], fused: str) -> None:
    """Every kind of argument: masks, numbers, params, one that is left out, broadcasts, and kinds between."""
    x, new = values(6, 10), values(6, 10)
    step, y = recorded(function, x)
    assert ops(step) == [fused] and len(step) == 1
    step(x=new)
    with bp.device("ptx"):
        wanted = function(new)
    assert y.dtype == wanted.dtype and np.allclose(y, wanted, rtol=1e-6, atol=1e-6)


# ---- what is still written -------------------------------------------------------------------------------------------


def test_fused_recording_writes_what_a_variable_holds() -> None:
    x, y = values(5, 33), values(5, 33)
    with bp.device("ptx"), bp.record(x=x, fuse=True) as step:
        total = bp.add(x, y)
        z = bp.silu(total)
    assert outputs(step) == ["t1, t2"] and "the result of add may still be read" in step.fused[0]
    new = values(5, 33)
    step(x=new)
    assert np.array_equal(total, new + y) and np.allclose(z, gate_of(new, y) / 2, atol=1e-6)


@pytest.mark.parametrize("hold", [lambda t: t[1:], lambda t: [t], memoryview, lambda t: t.reshape(-1)[::2]])
def test_fused_recording_writes_what_a_view_reads(hold: Callable[..., Any]) -> None:
    x, held = values(6, 4), []

    def function(x: Any) -> Any:
        t = bp.neg(x)
        held.append(hold(t))
        return bp.exp(t)

    step, y = recorded(function, x)
    assert outputs(step) == ["t1, t2"]
    new = values(6, 4)
    step(x=new)
    seen = held[0][0] if isinstance(held[0], list) else np.asarray(held[0])
    assert np.array_equal(seen, np.asarray(hold(-new)) if not isinstance(held[0], list) else -new)
    assert np.allclose(y, np.exp(-new))


def test_fused_recording_writes_what_later_calls_read() -> None:
    x, w = values(5, 32), values(32, 8)

    def function(x: Any) -> Any:
        t = bp.neg(x)
        u = bp.exp(t)
        return bp.add(bp.matmul(t, w), bp.matmul(u, w))

    step, y = recorded(function, x)
    assert outputs(step) == ["t1, t2"] and [p.desc.op for p in step.plans] == ["fuse", "matmul", "matmul", "add"]
    new = values(5, 32)
    step(x=new)
    assert np.allclose(y, -new @ w + np.exp(-new) @ w, atol=1e-4)


def test_fused_recording_keeps_state_between_replays() -> None:
    """An array that is read and written counts up, as by separate calls."""
    x, state, twin = values(3, 7), np.zeros((3, 7), F32), np.zeros((3, 7), F32)

    def function(x: Any, state: Any) -> Any:
        bp.add(state, x, out=state)
        bp.multiply(state, 0.5, out=state)
        return bp.tanh(state)

    step, y = recorded(function, x, state)
    plain, z = recorded(function, x.copy(), twin, fuse=False)
    assert len(step) == 1 and outputs(step) == ["t2, t3"], "what is overwritten is not written"
    for _ in range(3):
        step()
        plain()
    assert np.allclose(state, twin, rtol=1e-6) and np.allclose(y, z, rtol=1e-6)


def test_fused_recording_leaves_partial_reads() -> None:
    """A view of a result with another shape is no whole element of it: it is read from memory."""
    x = values(6, 4)
    step, y = recorded(lambda x: bp.add(bp.exp(x)[::-1], x), x)
    assert step.fused == () and len(step) == 2
    new = values(6, 4)
    step(x=new)
    assert np.allclose(y, np.exp(new)[::-1] + new, atol=1e-6)


def test_fused_recording_leaves_other_views_of_one_row() -> None:
    """A view that is reversed along an axis of one element has a result's elements, and is not taken for an input."""
    x = values(1, 4)
    step, y = recorded(lambda x: bp.add(bp.exp(x)[::-1], x), x)
    for _ in range(2):
        step(x=(new := values(1, 4)))
        assert np.allclose(y, np.exp(new) + new, atol=1e-6)


def test_fused_recording_writes_what_a_call_was_given() -> None:
    """Into an array of the program, to which nothing else refers: the owner of its memory may read it."""
    x = values(6, 4)
    step, y = recorded(lambda x: bp.exp(bp.neg(x, out=np.empty_like(x))), x)
    assert outputs(step) == ["t1, t2"] and "the result of neg may still be read" in step.fused[0]
    step(x=(new := values(6, 4)))
    assert np.allclose(y, np.exp(-new))


def test_fused_recording_keeps_kinds_of_casts() -> None:
    """Integers that a cast makes go on as such, and each result has the kind that its call gave it."""
    x = values(6, 4) * 10
    step, y = recorded(lambda x: bp.neg(bp.cast(bp.abs(x), "i32")), x)
    assert ops(step) == ["abs + cast + neg"] and y.dtype == np.int32
    step(x=(new := values(6, 4) * 10))
    assert np.array_equal(y, -np.abs(new).astype(np.int32))


def test_fused_recording_leaves_results_of_two_kinds() -> None:
    x = values(6, 4)
    with bp.device("ptx"), bp.record(x=x, fuse=True) as step:
        mask = bp.less(x, 0.0)
        y = bp.where(mask, bp.neg(x), 0.0)
    assert ops(step) == [] or "less" not in ops(step)[0], "one kernel writes one kind"
    new = values(6, 4)
    step(x=new)
    assert np.array_equal(mask, new < 0) and np.array_equal(y, np.where(new < 0, -new, 0))


def test_fused_recording_leaves_bound_plans() -> None:
    """A program may bind other operands to them."""
    x = values(6, 4)
    with bp.device("ptx"):
        bound = bp.neg.bind(x)
        with bp.record(x=x, fuse=True) as step:
            y = bp.exp(bp.abs(bound()))
    assert ops(step) == ["abs + exp"] and step.bounds[0] is bound
    step(x=(new := values(6, 4)))
    assert np.allclose(y, np.exp(np.abs(new)))


def test_fused_recording_leaves_other_devices() -> None:
    x = values(6, 4)
    with bp.record(x=x, fuse=True) as step:
        y = bp.exp(bp.neg(x, device="cpu"), device="ptx")
    assert step.fused == () and [plan.device.emulated for plan in step.plans] == [False, True]
    assert np.allclose(y, np.exp(-x))
    with bp.record(x=x, fuse=True) as step:
        z = bp.exp(bp.neg(x, device="ptx:sm_80"), device="ptx:sm_90a")
    assert step.fused == () and [plan.device.arch for plan in step.plans] == ["sm_80", "sm_90a"]
    assert np.allclose(z, np.exp(-x))
    fixed = bp.PlanPreference(batch_invariant=True)
    with bp.device("ptx"), bp.record(x=x, fuse=True) as step:
        bp.exp(bp.neg(x), pref=fixed)
    assert step.fused == () and [plan.pref == fixed for plan in step.plans] == [False, True]


def test_fused_recording_splits_what_is_too_large() -> None:
    x, held = values(8), []

    def function(x: Any) -> Any:
        for _ in range(11):
            x = bp.add(x, 1.0)
            held.append(x)
        return x

    step, y = recorded(function, x)
    assert [line.count("add +") for line in ops(step)] == [7, 2], "a kernel has 8 results at most"
    step(x=(new := values(8)))
    assert all(np.allclose(one, new + place + 1) for place, one in enumerate(held)) and y is held[-1]


def test_fused_recording_of_torch_tensors() -> None:
    torch = pytest.importorskip("torch")
    x, y = torch.randn(5, 33), torch.randn(5, 33)
    with torch.no_grad():
        step, z = recorded(gate, x, y)
        assert outputs(step) == ["t3"]
        with bp.device("ptx"), bp.record(x=x, fuse=True) as second:
            part = bp.add(x, y)[1:]
            u = bp.neg(bp.exp(bp.multiply(x, 2.0)))
        assert outputs(second) == ["t1, t4"], "a view shares the memory of the sum"
        new = torch.randn(5, 33)
        step(x=new)
        second(x=new)
    assert torch.allclose(z, 2 * torch.nn.functional.silu(new + y), atol=1e-6)
    assert torch.equal(part, (new + y)[1:]) and torch.allclose(u, -torch.exp(2 * new))


# ---- roundings -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float16, bp.BF16.dtype])
def test_fused_recording_rounds_once(dtype: Any) -> None:
    """Each replayed result is within the fused plan's bound; separate calls round thrice."""
    x, y = values(64, 65, dtype=dtype), values(64, 65, dtype=dtype)
    step, z = recorded(gate, x, y)
    separate = z.astype(np.float64)
    step.plans[0].verify(x1=x, x2=y)
    step()
    exact = gate_of(x, y.astype(np.float64))
    fused_error, error = (np.abs(got.astype(np.float64) - exact).mean() for got in (z, separate))
    assert fused_error < 0.7 * error


# ---- replays ---------------------------------------------------------------------------------------------------------


def test_fused_recording_replays_in_threads() -> None:
    x, y = values(5, 33), values(5, 33)
    step, z = recorded(gate, x, y)
    threads = [threading.Thread(target=step) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert np.allclose(z, gate_of(x, y), atol=1e-6)


def test_fused_recording_is_one_graph_on_a_gpu(gpus: Gpus) -> None:
    x, y = gpus.array(values(2, 16)), gpus.array(values(2, 16))
    with bp.record(x=x, fuse=True) as step:
        z = bp.neg(bp.multiply(bp.add(x, y), 2.0))
    assert ops(step) == ["add + multiply + neg"] and len(step) == 1
    assert step() is z and step.graph is not None and step.graph.bounds == step.bounds


def test_fused_recording_replays_inside_another() -> None:
    x, y = values(5, 33), values(5, 33)
    step, z = recorded(gate, x, y)
    with bp.device("ptx"), bp.record(fuse=True) as outer:
        step()
        u = bp.neg(z)
    assert [plan.desc.op for plan in outer.plans] == ["fuse", "neg"]
    x[...] = values(5, 33)
    outer()
    assert np.allclose(u, -gate_of(x, y), atol=1e-6)
