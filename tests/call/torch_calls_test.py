"""Calls on torch tensors, on simulated devices: keys, outputs, what is refused after a call. By kind of array: kinds_test.py."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.call import caller
from baracuda_py.call.cache import plan_cache
from baracuda_py.tensor import pytorch

from .remembered import Refused, refused_after_a_call
from .simulated import Gpus
from .torch_on_gpu import OnGpu, gpus, on, torch

__all__ = ["gpus"]  # two H200, with a torch that has its tensors on them

F32 = torch.float32


def test_the_first_array_decides_what_comes_out(gpus: Gpus) -> None:
    x, y = on(torch.ones(64)), gpus.array(np.ones(64, np.float32))
    for _ in range(2):
        assert type(bp.add(x, y)) is OnGpu
        assert type(bp.add(y, x)) is gpus.real.ndarray


def test_cupy_work_is_waited_for_on_the_torch_stream(gpus: Gpus) -> None:
    x, y = on(torch.ones(64)), gpus.array(np.ones(64, np.float32))
    for out in (None, on(torch.zeros(64))):
        for _ in range(2):
            gpus.events.clear()
            assert type(bp.add(x, y, out=out)) is OnGpu
            assert gpus.events == ["record on 7", "57 waits", "launch on 0:57"]


@pytest.mark.usefixtures("gpus")
def test_torch_counts_every_write_in_place() -> None:
    """On the long path and on the short ones: torch refuses gradients whose saved tensors have a later count."""
    x, out = on(torch.ones(64)), on(torch.zeros(64))
    plan, bound = bp.neg.plan(x), bp.neg.bind(x, out=out)
    for call in (lambda: bp.neg(x, out=out), lambda: plan.run(x=x, out=out), bound):
        for _ in range(3):
            before = out._version
            assert call() is out and out._version > before and not x._version


@pytest.mark.parametrize("seen", [0, 1])
def test_torch_output_is_on_the_device_of_the_operands(gpus: Gpus, monkeypatch: pytest.MonkeyPatch, seen: int) -> None:
    """Its quick way allocates on torch's current device, which another library's calls may leave where it was."""
    quick: list[Any] = []

    def empty(shape: Any, strides: Any, dtype: Any) -> Any:
        quick.append(on(torch.empty_strided(shape, strides, dtype=dtype), f"cuda:{seen}"))
        return quick[-1]

    raw = SimpleNamespace(_dynamo=SimpleNamespace(guards=SimpleNamespace(_empty_strided_cuda=empty)))
    monkeypatch.setattr(sys.modules["torch"], "_C", raw, raising=False)
    x = on(torch.ones(6, 4).t())
    for _ in range(2):
        y = bp.neg(x)
        assert (y.shape, y.stride(), y.dtype, y.get_device()) == ((4, 6), (1, 4), F32, 0)
        assert (y is quick[-1]) is (seen == 0)
    assert gpus.work == ["launch on 0:57"] * 2


def test_torch_raw_allocation_has_shape_and_strides() -> None:
    """Where this version of torch has it; that of the host, which takes the same arguments, answers for that of a GPU."""
    guards = torch._C._dynamo.guards
    assert hasattr(guards, pytorch.RAW_EMPTY)
    made = guards._empty_strided_cpu((4, 6), (1, 4), torch.bfloat16)
    assert (made.shape, made.stride(), made.dtype) == ((4, 6), (1, 4), torch.bfloat16)
    assert type(made) is torch.Tensor and not made.requires_grad


REFUSED = {
    "requires a gradient": ({"x": lambda: torch.ones(64).requires_grad_()}, bp.OperandTypeError, r"detach\(\)"),
    "a lazy negative": (
        {"x": lambda: torch.ones(64, dtype=torch.complex64).conj().imag.contiguous()._neg_view()}, bp.OperandTypeError,
        "resolve_neg"),
    "another type": ({"x": lambda: torch.ones(64, dtype=torch.int32)}, bp.BaracudaError, ""),
    "every other element": ({"x": lambda: torch.ones(128)[::2], "out": lambda: torch.ones(32)}, bp.BaracudaError, ""),
}  # fmt: skip


@pytest.mark.parametrize("way", ["function", "run"])
@pytest.mark.parametrize("name", REFUSED)
def test_refused_after_a_call_on_tensors_alike(gpus: Gpus, name: str, way: str) -> None:
    """What a tensor says of itself is part of the key."""
    instead, error, says = REFUSED[name]
    served = {"x": on(torch.ones(64)), "out": on(torch.zeros(64))}
    refused_after_a_call(gpus, Refused(served, [{n: on(make()) for n, make in instead.items()}], error, says), way)


@pytest.mark.parametrize("way", ["function", "run"])
def test_a_lazy_conjugate_is_refused_after_a_call(gpus: Gpus, way: str) -> None:
    x, out = (on(torch.ones(64, dtype=torch.complex64)) for _ in range(2))
    row = Refused({"x": x, "out": out}, [{"x": on(x.conj())}], bp.OperandTypeError, "resolve_conj", "contiguize")
    refused_after_a_call(gpus, row, way)


def test_tensors_on_two_devices_share_no_call(gpus: Gpus) -> None:
    here, there = on(torch.ones(64)), on(torch.ones(64), "cuda:1")
    for x, ordinal in ((here, 0), (there, 1), (here, 0), (there, 1)):
        gpus.events.clear()
        assert bp.neg(x).ordinal == ordinal
        assert gpus.events == [f"launch on {ordinal}:{57 + 100 * ordinal}"]
    with pytest.raises(bp.DeviceMismatchError):
        bp.add(here, there)


@pytest.mark.usefixtures("gpus")
def test_a_window_of_a_tensor_begins_where_it_begins() -> None:
    """Its first element is found by the tensor's own strides."""
    dest, source = on(torch.zeros(4, 8)), on(torch.ones(2, 8))
    for _ in range(3):
        dest.zero_()
        bp.write_slice(dest, source, [(1, 3), (0, 8)])
        assert dest.sum(1).tolist() == [0, 8, 8, 0]
    for first in (0, 2, 1):
        dest.zero_()
        bp.write_slice(dest, source, [(first, first + 2), (0, 8)])
        assert dest.sum(1).tolist() == [8.0 * (first <= row < first + 2) for row in range(4)]


def test_several_outputs_are_kept_as_well(gpus: Gpus, long_way: list[Any]) -> None:
    caches = [on(torch.zeros(2, 3, 9, 8)) for _ in range(2)]
    new = [on(torch.ones(2, 3, 1, 8)) for _ in range(2)]
    positions = on(torch.zeros(2, dtype=torch.int64))
    results = [bp.kv_append(*caches, *new, positions) for _ in range(3)]
    assert len(long_way) == 1
    for k_cache, v_cache, status in results:
        assert k_cache is caches[0] and v_cache is caches[1] and type(status) is OnGpu
    assert len({type(r) for r in results}) == 1 and results[0]._fields == ("k_cache", "v_cache", "status")
    assert len({r.status.data_ptr() for r in results}) == 3
    assert gpus.events == ["launch on 0:57"] * 3


def test_an_address_is_part_of_the_key(gpus: Gpus, long_way: list[Any]) -> None:
    whole, out = on(torch.ones(68)), on(torch.zeros(64))
    for first in (0, 1, 0, 1):
        bp.neg(on(whole[first : first + 64]), out=out)
    assert len(long_way) == 2
    assert sorted(ready.selection.desc.x_align for ready in plan_cache.calls.values()) == [4, 16]
    assert len(gpus.work) == 4


def test_run_refuses_an_unknown_operand_after_a_call(gpus: Gpus) -> None:
    x, out = on(torch.ones(64)), on(torch.zeros(64))
    plan = bp.UnaryPlan.select(bp.UnaryDescriptor.of("neg", x, out), device=0)
    plan.run(x=x, out=out)
    for given in ({"x": x, "out": out, "y": x}, {"x": x, "outt": out}):
        with pytest.raises(bp.InvalidProblemError, match="there is no operand"):
            plan.run(**given)
    assert len(gpus.work) == 1


def test_buffers_over_cupy_memory_take_the_short_path(gpus: Gpus, long_way: list[Any]) -> None:
    """fp8 has no dtype in CuPy."""
    dest, source = (gpus.array(np.ones((rows, 16), np.uint8)) for rows in (4, 2))
    for kind, ways in ((bp.FP8_E4M3, 1), (bp.FP8_E5M2, 2)):
        whole, part = bp.GpuBuffer.view(dest, kind), bp.GpuBuffer.view(source, kind)
        for first in (1, 2, 0):
            bp.write_slice(whole, part, [(first, first + 2), (0, 16)])
        assert len(long_way) == ways
    assert len(gpus.work) == 6


def test_a_plan_remembers_so_many_layouts_of_operands(gpus: Gpus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caller, "MAX_READY_LAYOUTS", 3)
    memory = on(torch.ones(80))
    plan = bp.UnaryPlan.select(bp.UnaryDescriptor("neg", (8,), "f32", x_align=4, out_align=4), device=0)  # type: ignore[arg-type]
    runs = caller.Caller(plan.selection)
    places = [(x, out) for x in (0, 1, 2, 3) for out in (16, 17, 18, 19)]
    for x, out in places:
        runs({"x": on(memory[x : x + 8]), "out": on(memory[out : out + 8])}, None, None)
        assert len(runs._ready) <= 3
    assert len(gpus.work) == len(places)


def test_strides_are_part_of_the_key(gpus: Gpus, long_way: list[Any]) -> None:
    x, out = on(torch.ones(8, 8)), on(torch.zeros(8, 8))
    for _ in range(2):
        bp.neg(x, out=out)
        bp.neg(on(x.t()), out=out)
    assert len(long_way) == 2
    assert sorted(ready.selection.desc.x_strides for ready in plan_cache.calls.values()) == [(1, 8), (8, 1)]
    assert len(gpus.work) == 4


def test_short_path_refuses_a_tensor_with_freed_storage(gpus: Gpus) -> None:
    x, out = on(torch.ones(64)), on(torch.zeros(64))
    plan = bp.UnaryPlan.select(bp.UnaryDescriptor.of("neg", x, out), device=0)
    bp.neg(x, out=out), plan.run(x=x, out=out)
    for given in (x, out):
        given.untyped_storage().resize_(0)
        assert not given.data_ptr(), "what the test is about"
        with pytest.raises(bp.OperandTypeError, match="has no memory"):
            bp.neg(x, out=out)
        with pytest.raises(bp.OperandTypeError, match="has no memory"):
            plan.run(x=x, out=out)
        given.untyped_storage().resize_(256)
    assert len(gpus.work) == 2
    empty = on(torch.ones(0, 4))
    assert bp.neg(empty).shape == (0, 4)
