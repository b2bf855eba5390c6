"""A call on its way to a kernel, on simulated devices: which device, stream and memory, and what the short path still asks."""

from __future__ import annotations

import contextlib
import ctypes
import math
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.call.cache import PlanCache, plan_cache
from baracuda_py.call.paths.recipe import Recipe
from baracuda_py.plan.registry import get_op
from baracuda_py.runtime import launch, tensormap
from baracuda_py.runtime.compile.compiler import Compiled, Resources
from baracuda_py.runtime.launch import Arguments
from baracuda_py.runtime.steps import Packed, Ptr, Run, Struct, TensorMap
from baracuda_py.runtime.tensormap import MapEncoder
from baracuda_py.tensor import dlpack, intake, pytorch
from baracuda_py.types import PlanPreference

from .remembered import Refused, refused_after_a_call
from .simulated import Gpus, simulated

F32 = np.float32


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gpus]:
    """An RTX of sm_89, which is current, and two H200."""
    yield from simulated(monkeypatch, "sm_89", "h200", "h200")


def test_arrays_that_lie_alike_but_for_axes_of_one_share_a_call(gpus: Gpus, long_way: list[Any]) -> None:
    """CuPy's own Python reads whether an array is in C order from the same attribute."""
    out, memory = gpus.array(np.ones((4, 1, 8), F32)), gpus.memory(4096)
    for strides, alike in (
        ((32, 32, 4), True),
        ((32, 400, 4), True),
        ((32, -8, 4), True),
        ((64, 32, 4), False),
        ((96, 32, 4), False),
    ):
        x = gpus.over(memory, (4, 1, 8), F32, strides)
        assert x._c_contiguous is alike
        bp.neg(x, out=out)
    assert [taken[2]["x"].strides for taken in long_way] == [(32, 32, 4), (64, 32, 4), (96, 32, 4)]
    assert len(gpus.work) == 5


def test_short_path_gives_absent_values_their_defaults(
    gpus: Gpus, long_way: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever was given before: the kernel's arguments are those of the long path."""
    q, k, v, out = (gpus.array(np.ones((1, 2, 16, 32), np.float16)) for _ in range(4))
    fired: list[Any] = []
    monkeypatch.setattr(
        Recipe, "launch", lambda _self, _pointers, values, _scratch, _stream: fired.append(dict(values))
    )
    for _ in range(3):
        bp.attention(q, k, v, out=out, scale=0.5)
        bp.attention(q, k, v, out=out)
    assert len(long_way) == 2, "each of them is remembered"
    assert [values["scale"] for values in fired] == [0.5, 1 / math.sqrt(32)] * 3
    assert all(values.keys() == {"scale", "softcap", "offset"} for values in fired)


def test_8_bit_floats_lie_in_the_order_of_the_array_that_is_cast(gpus: Gpus) -> None:
    """CuPy has no dtype for them: their bytes are allocated instead."""
    x = gpus.array(np.zeros((8, 4), np.float32)).T
    for _ in range(2):
        made = bp.cast(x, "fp8_e4m3")
        assert isinstance(made, bp.GpuBuffer) and (made.shape, made.strides) == ((4, 8), (1, 4))


def test_a_step_of_decoding_selects_nothing(gpus: Gpus, long_way: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Lengths, positions, pages and scales are what a launch reads, and no part of a plan or a key."""
    f16, i32 = np.float16, np.int32
    q, cache, tokens = (gpus.array(np.zeros(shape, f16)) for shape in ((2, 4, 1, 32), (2, 2, 40, 32), (2, 2, 1, 32)))
    pages, made = gpus.array(np.zeros((9, 8, 2, 32), f16)), gpus.array(np.zeros((2, 1, 2, 32), f16))
    rows = gpus.array(np.zeros((2, 1, 4, 32), f16))
    for step in range(4):
        if step == 1:
            taken = len(long_way)
            monkeypatch.setattr(PlanCache, "selection", None)  # what would be asked for a plan
        lengths, table = gpus.array(np.full(2, 7 + step, i32)), gpus.array(np.full((2, 5), step, i32))
        bp.kv_append(cache, cache2 := gpus.array(np.zeros((2, 2, 40, 32), f16)), tokens, tokens, lengths)
        bp.attention_decode(q, cache, cache2, lengths, scale=0.1 * (step + 1))
        more = gpus.array(np.zeros((9, 8, 2, 32), f16))
        bp.paged_kv_append(pages, more, made, made, table, lengths)
        bp.paged_attention(rows, pages, more, table, lengths, k_scale=1.0 + step)
        bp.rope(q, lengths[:1], inv_freq=gpus.array(np.ones(16, F32)), offset=step)
    assert len(long_way) == taken == 5 and len(gpus.work) == 4 * 5


# ---- memory that only an export owns ---------------------------------------------------------------------------------


class Lazy:
    """A producer that makes its memory when asked: every capsule owns its own, and says when that is freed."""

    def __init__(self, gpus: Gpus, values: np.ndarray[Any, Any], device_type: int = 2) -> None:
        self.gpus, self.values, self.device_type = gpus, values, device_type
        self.streams: list[Any] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device_type, 0

    def __dlpack__(self, *, stream: Any = None, max_version: Any = None) -> Any:
        self.streams.append(stream)
        events = self.gpus.events
        memory = self.values.copy()

        class Owner(np.ndarray):  # type: ignore[type-arg]
            def __del__(self) -> None:
                if self.base is None or self.base.nbytes:  # the view that the capsule holds
                    self[...] = 99
                    events.append("freed")

        capsule = memory.view(Owner).__dlpack__(max_version=max_version)
        dlpack._fields(capsule, "x")[0].device.type = self.device_type
        return capsule


def test_an_export_lives_until_the_work_is_queued(gpus: Gpus) -> None:
    dest = gpus.array(np.zeros((4, 8), F32))
    source = Lazy(gpus, np.ones((2, 8), F32))
    bp.write_slice(dest, source, [(1, 3), (0, 8)], device=0)
    at = gpus.events.index(f"copy on 0:{gpus.streams[0]}")
    assert "freed" in gpus.events[at:], "the memory is let go at the end"
    assert (gpus.read(dest).sum(1) == [0, 8, 8, 0]).all(), "what was copied had been freed"


def test_dlpack_producer_takes_the_long_path_once(gpus: Gpus, long_way: list[Any]) -> None:
    """Each call has a handshake of its own, in the order of the call's stream, and its memory lives until the work is queued."""
    dest = gpus.array(np.zeros((4, 8), F32))
    for value in (1, 2, 3):
        source = Lazy(gpus, np.full((2, 8), value, F32))
        gpus.events.clear()
        bp.write_slice(dest, source, [(1, 3), (0, 8)])
        assert source.streams[-1] == gpus.streams[0]
        assert "freed" in gpus.events[gpus.events.index(f"copy on 0:{gpus.streams[0]}") :], (
            "the memory is let go at the end"
        )
        assert (gpus.read(dest).sum(1) == [0, 8 * value, 8 * value, 0]).all()
    assert len(long_way) == 1
    assert len(source.streams) == 1, "one handshake is enough"
    other = Lazy(gpus, np.ones((2, 8), np.int32))
    with pytest.raises(bp.OperandTypeError):
        bp.write_slice(dest, other, [(1, 3), (0, 8)])
    assert len(long_way) == 2


class Frozen(Lazy):
    """One whose memory may only be read, and says so."""

    def __dlpack__(self, *, stream: Any = None, max_version: Any = None) -> Any:
        self.values.flags.writeable = False
        capsule = self.values.__dlpack__(max_version=max_version)
        dlpack._fields(capsule, "x")[0].device.type = self.device_type
        return capsule


def test_an_export_lives_as_long_as_the_bound_plan(gpus: Gpus) -> None:
    dest = gpus.array(np.zeros((4, 8), F32))
    source = Lazy(gpus, np.ones((2, 8), F32))
    desc = bp.WriteSliceDescriptor.of(dest, source, [(1, 3), (0, 8)])
    bound = bp.WriteSlicePlan.select(desc, device=0).bind(dest=dest, source=source)
    gpus.events.clear()
    bound(gpus.streams[0])
    assert gpus.events == [f"copy on 0:{gpus.streams[0]}"]
    assert (gpus.read(dest).sum(1) == [0, 8, 8, 0]).all()
    del bound
    assert "freed" in gpus.events


@pytest.mark.parametrize("way", ["function", "run", "bind"])
def test_an_export_lives_through_a_call_on_the_host(gpus: Gpus, way: str) -> None:
    x = Lazy(gpus, np.full(64, 3, F32), device_type=1)
    if way == "function":
        got = bp.square(x, device="cpu")
    else:
        plan = bp.UnaryPlan.select(bp.UnaryDescriptor.of("square", x), device="cpu")
        bound = plan.bind(x=x) if way == "bind" else None
        gpus.events.clear()
        got = plan.run(x=x) if bound is None else bound()
        assert bound is None or not gpus.events
    assert (got == 9).all()


def test_an_array_made_of_an_export_keeps_it(gpus: Gpus) -> None:
    """NumPy's or CuPy's own view of the memory."""
    for device_type in (1, 2):
        gpus.events.clear()
        array = intake(Lazy(gpus, np.full(4, 3, F32), device_type), what="x").array()
        assert not gpus.events
        assert (array if device_type == 1 else gpus.read(array)).tolist() == [3] * 4
        del array
        assert gpus.events == ["freed"]


# ---- what is refused after a call on arrays of the same layout -------------------------------------------------------------


def in_the_other_order(gpus: Gpus) -> Refused:
    x, out = (gpus.array(np.ones(64, F32)) for _ in range(2))
    swapped = gpus.over(x.data, (64,), np.dtype(">f4"))
    assert swapped.dtype.num == x.dtype.num, "what the test is about"
    return Refused({"x": x, "out": out}, [{"x": swapped}, {"out": swapped}], bp.OperandTypeError, "not an element kind")


def read_only(gpus: Gpus) -> Refused:
    out, frozen = (kind(gpus, np.zeros((4, 8), F32)) for kind in (Lazy, Frozen))
    x = gpus.array(np.ones((4, 8), F32))
    return Refused({"x": x, "out": out}, [{"out": frozen}], bp.OperandTypeError, "read-only")


def transposed_in_place(gpus: Gpus) -> Refused:
    """In place is an operand itself, not its transpose."""
    memory, shape = gpus.memory(4096), (8, 8)
    x, out = gpus.over(memory, shape, F32, (4, 32)), gpus.over(memory + 1024, shape, F32)
    return Refused({"x": x, "out": out}, [{"out": gpus.over(memory, shape, F32)}], bp.OverlapError)


def shifted_in_place(gpus: Gpus) -> Refused:
    memory = gpus.memory(4096)
    x, shifted = (gpus.over(memory + first, (64,), F32) for first in (0, 16))
    return Refused({"x": x, "out": x}, [{"out": shifted}], bp.OverlapError)


def short_allocation(gpus: Gpus) -> Refused:
    x, out = (gpus.array(np.ones(1024, F32)) for _ in range(2))
    small = gpus.over(gpus.memory(64), (1024,), F32)
    return Refused(
        {"x": x, "out": out}, [{"x": small}, {"out": small}], bp.BufferTooSmallError, "allocate a larger one"
    )


def short_allocation_past_an_offset(gpus: Gpus) -> Refused:
    x, out = (gpus.array(np.ones(1024, F32)) for _ in range(2))
    late = gpus.over(gpus.memory(4096) + 16, (1024,), F32)
    return Refused({"x": x, "out": out}, [{"x": late}, {"out": late}], bp.BufferTooSmallError)


def short_allocation_before_the_pointer(gpus: Gpus) -> Refused:
    """A reversed array reaches down from its first element; the second is of the first's alignment."""
    memory, out = gpus.memory(64), gpus.array(np.zeros(8, F32))
    held, beyond = (gpus.over(memory + 4 * first, (8,), F32, (-4,)) for first in (7, 6))
    short = gpus.over(gpus.memory(64) + 4 * 3, (8,), F32, (-4,))
    return Refused({"x": held, "out": out}, [{"x": beyond}, {"x": short}], bp.BufferTooSmallError, "neg: x")


REFUSED = (
    in_the_other_order, read_only, transposed_in_place, shifted_in_place, short_allocation, short_allocation_past_an_offset,
    short_allocation_before_the_pointer,
)  # fmt: skip


@pytest.mark.parametrize("way", ["function", "run"])
@pytest.mark.parametrize("row", REFUSED)
def test_refused_after_a_call_on_arrays_alike(gpus: Gpus, row: Any, way: str) -> None:
    refused_after_a_call(gpus, row(gpus), way)


def test_short_path_checks_bounds_for_each_sign_of_stride(gpus: Gpus) -> None:
    out = gpus.array(np.zeros(8, F32))
    for memory, at, stride in ((gpus.memory(64), 28, -4), (gpus.memory(256), 24, 4)):
        bp.neg(gpus.over(memory + at, (8,), F32, (stride,)), out=out)
    assert len(gpus.work) == 2


def test_a_size_that_cupy_guessed_keeps_to_the_short_path(gpus: Gpus, long_way: list[Any]) -> None:
    """Arrays that came over DLPack report too few bytes; no recipe is lost for that."""
    held = np.ones(1024, F32)
    memory = gpus.real.cuda.UnownedMemory(held.ctypes.data // 16 * 16, 32, held, 0)
    x = gpus.over(gpus.real.cuda.MemoryPointer(memory, 0), (64,), F32)
    for _ in range(3):
        bp.neg(x)
    assert len(long_way) == 1
    assert len(gpus.work) == 3


# ---- an output that is there -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("null", [True, False])
def test_an_empty_output_is_the_one_passed(gpus: Gpus, long_way: list[Any], null: bool) -> None:
    memory = gpus.real.cuda.MemoryPointer(gpus.real.cuda.UnownedMemory(0, 0, None, 0), 0) if null else gpus.memory(8)
    x, out = (gpus.over(memory, (0, 3), F32) for _ in range(2))
    for _ in range(3):
        assert bp.neg(x, out=out) is out
    gpus.capturing = True
    assert bp.neg(x, out=out) is out
    gpus.capturing = False
    assert len(long_way) == 1
    fresh = bp.neg(x)
    assert fresh is not out and fresh.shape == (0, 3)
    assert not gpus.work


@pytest.mark.parametrize("kind", [bp.FP8_E4M3, bp.FP8_E5M2, bp.S4], ids=str)
def test_a_fresh_output_of_a_kind_that_cupy_has_not_is_a_buffer(gpus: Gpus, kind: Any) -> None:
    view = bp.GpuBuffer.view(gpus.array(np.zeros(96, np.uint8)), kind)
    out = bp.contiguize(view.strided((2, 5), (4 * kind.per_byte, 1)))
    assert isinstance(out, bp.GpuBuffer) and (out.element, out.shape) == (kind, (2, 5))
    assert out.array.dtype == np.uint8 and len(gpus.work) == 1


# ---- devices ---------------------------------------------------------------------------------------------------------


def test_the_operands_decide_the_device(gpus: Gpus) -> None:
    here, there = (gpus.array(np.ones(64, F32), ordinal) for ordinal in (0, 1))
    for x, ordinal in ((there, 1), (here, 0), (there, 1), (here, 0)):
        gpus.events.clear()
        out = bp.neg(x)
        assert out.data.device_id == ordinal
        assert gpus.events == [f"launch on {ordinal}:{gpus.streams[ordinal]}"]
        assert gpus.current == 0
    arches = {entry.recipe.ordinal: entry.selection.device.arch for entry in plan_cache.calls.values()}
    assert arches == {0: "sm_89", 1: "sm_90a"}


def test_a_device_that_is_named_is_not_the_operands_to_choose(gpus: Gpus) -> None:
    x = gpus.array(np.ones(64, F32), 1)
    with bp.device("cpu"), pytest.raises(bp.OperandTypeError, match="on CUDA device 1 and the plan is for the host"):
        bp.neg(x)
    with pytest.raises(bp.OperandTypeError, match="on the host and the plan is for"):
        bp.neg(np.ones(64, F32))


def test_calls_on_two_devices_share_no_recipe(gpus: Gpus) -> None:
    """The very same layout and plan, in turn on either of two devices alike."""
    operands = {i: [gpus.array(np.ones(64, F32), i) for _ in range(2)] for i in (1, 2)}
    for device in (None, gpus.specs[1], "h200"):
        gpus.events.clear()
        for ordinal in (1, 2, 1, 2):
            x, out = operands[ordinal]
            bp.neg(x, out=out, device=device)
        assert [event.split()[2].partition(":")[0] for event in gpus.work] == ["1", "2", "1", "2"]
    assert len({entry.selection for entry in plan_cache.calls.values()}) == 1


def test_operands_on_two_devices_are_refused(gpus: Gpus) -> None:
    x, y = (gpus.array(np.ones(64, F32), ordinal) for ordinal in (0, 1))
    for operands, named in (((x, y), "copy x2 to device 0"), ((y, x), "copy x2 to device 1")):
        for _ in range(2):
            with pytest.raises(bp.DeviceMismatchError, match=named):
                bp.add(*operands)
    with pytest.raises(bp.DeviceMismatchError, match="x1 on device 0: copy x1 to device 1"):
        bp.add(x, x, out=y)
    assert not gpus.work


def test_call_key_holds_options(gpus: Gpus) -> None:
    """Functions of one family differ in nothing else."""
    x, out = gpus.array(np.ones(64, F32)), gpus.array(np.ones(64, F32))
    for name in ("neg", "square", "neg", "square"):
        getattr(bp, name)(x, out=out)
    ops = sorted(entry.selection.desc.op for entry in plan_cache.calls.values())
    assert ops == ["neg", "square"]


def test_call_key_holds_the_preference(gpus: Gpus) -> None:
    x, out = gpus.array(np.ones((4, 64), F32)), gpus.array(np.ones((4, 64), F32))
    for pref in (None, PlanPreference(deterministic=True), None):
        bp.neg(x, out=out, pref=pref)
    assert len(plan_cache.calls) == 2


@pytest.mark.parametrize("door", ["function", "plan"])
def test_call_key_holds_kind_and_alignment(gpus: Gpus, door: str) -> None:
    """Of one shape, one stride and one width: another kind, or another alignment, takes the long path."""
    memory = gpus.memory(4096)
    out = gpus.array(np.ones(64, F32))
    whole, *lower = (gpus.over(memory + first, (64,), F32) for first in (1024, 4, 8))
    plan = bp.UnaryPlan.select(bp.UnaryDescriptor.of("neg", whole, out), device=0)
    run = (lambda x: bp.neg(x, out=out)) if door == "function" else (lambda x: plan.run(x=x, out=out))
    run(whole)
    with pytest.raises(bp.OperandTypeError):
        run(gpus.array(np.ones(64, np.int32)))
    for x in lower:
        if door == "function":
            run(x)
        else:
            with pytest.raises(bp.MisalignedOperandError):
                run(x)
    if door == "function":
        assert sorted(e.selection.desc.x_align for e in plan_cache.calls.values()) == [4, 8, 16]


@pytest.mark.parametrize("name", ["alpha", "beta"])
def test_a_number_beyond_f32_is_refused_on_the_short_path_too(gpus: Gpus, name: str) -> None:
    def call(kind: Any, value: float) -> None:
        a, c, out = (gpus.array(np.ones((8, 8), kind), 1) for _ in range(3))
        bp.matmul(a, a, c=c, out=out, pref=PlanPreference(variant="simt"), **{name: value})

    for fine in (2.0, 2.0**100, float("inf")):
        call(F32, fine)
        with pytest.raises(bp.InvalidProblemError, match=f"{name}=.*beyond f32"):
            call(F32, 1e39)
    for _ in range(2):
        call(np.float64, 1e39)


@pytest.mark.parametrize("start", [(-1, 0), (3, 0), (0, 5), (0, -1), (2**63, 0), (True, 0), (1.0, 0)])
def test_a_start_out_of_range_is_refused_on_the_short_path_too(gpus: Gpus, start: Any) -> None:
    dest, source = gpus.array(np.zeros((4, 8), F32)), gpus.array(np.ones((2, 4), F32))
    plan = bp.WriteSlicePlan.select(bp.WriteSliceDescriptor((4, 8), ((0, 2), (0, 4)), "f32"), device=0)
    for good in ((0, 0), (2, 4)):
        plan.run(dest=dest, source=source, start=good)
    done = len(gpus.work)
    with pytest.raises(bp.InvalidProblemError):
        plan.run(dest=dest, source=source, start=start)
    assert len(gpus.work) == done


def test_short_path_refuses_a_window_beyond_its_destination(gpus: Gpus) -> None:
    dest, source = gpus.array(np.zeros((4, 8), F32)), gpus.array(np.ones((2, 4), F32))
    bp.write_slice(dest, source, [(2, 4), (4, 8)])
    for ranges in ([(3, 5), (0, 4)], [(0, 2), (5, 9)]):
        with pytest.raises(bp.InvalidProblemError, match="reaches beyond dest's extent"):
            bp.write_slice(dest, source, ranges)
    assert len(gpus.work) == 1


def test_call_key_holds_static_ranges_of_a_dynamic_window(gpus: Gpus) -> None:
    dest, source, start = (
        gpus.array(np.zeros((9, 2, 8), F32)),
        gpus.array(np.ones((1, 1, 8), F32)),
        gpus.over(gpus.memory(8), (), np.int64),
    )
    for row in (0, 1, 0):
        bp.write_slice(dest, source, [(0, 1), (row, row + 1), (0, 8)], dynamic_axis=0, start=start)
    assert sorted(e.selection.desc.ranges[1] for e in plan_cache.calls.values()) == [(0, 1), (1, 2)]


def test_call_key_holds_the_addend_and_the_math(gpus: Gpus) -> None:
    a, b, x, out = (gpus.array(np.ones((64, 64), F32)) for _ in range(4))
    for given in ({"c": x}, {"bias": x}, {"residual": x}, {"math": "tf32"}, {}):
        for _ in range(2):
            bp.matmul(a, b, out=out, **given)
    described = {
        (tuple(o.name for o in e.selection.operands)[3:], e.selection.desc.precision) for e in plan_cache.calls.values()
    }
    f32, tf32 = bp.MathPrecision.F32, bp.MathPrecision.TF32
    assert described == {(("c",), f32), (("bias",), f32), (("residual",), f32), ((), tf32), ((), f32)}


# ---- streams ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("stream", "said"), [(0, 1), (1, 1), (2, 2), (4711, 4711)])
def test_dlpack_stream_numbers(gpus: Gpus, stream: int, said: int) -> None:
    """Handle 0, the legacy default stream, is called 1 there: 0 is not allowed, since its meaning differs by platform."""
    dest, source = gpus.array(np.zeros((4, 8), F32)), Lazy(gpus, np.ones((2, 8), F32))
    bp.write_slice(dest, source, [(1, 3), (0, 8)], device=0, stream=stream)
    assert source.streams[-1] == said
    assert set(source.streams) == {-1, said}


@pytest.mark.parametrize("queued", [0, 4711, None])
def test_what_torch_has_queued_comes_first(gpus: Gpus, monkeypatch: pytest.MonkeyPatch, queued: int | None) -> None:
    """On its own current stream, the default one too, where it has one."""
    x, out = pytest.importorskip("torch").ones(64), gpus.array(np.zeros(64, F32))
    monkeypatch.setattr(pytorch, "_place", lambda x, _what: (x.data_ptr(), 0))
    monkeypatch.setattr(pytorch, "foreign_stream", lambda *_: queued)
    bp.neg(x, out=out, device=0)
    mine = gpus.streams[0]
    awaited = [] if queued is None else [f"record on {queued}", f"{mine} waits"]
    assert gpus.events == [*awaited, f"launch on 0:{mine}"]


def test_a_bound_plan_launches_on_the_operands_device(gpus: Gpus) -> None:
    x = gpus.array(np.ones(64, F32), 1)
    plan = bp.ContiguizePlan.select(bp.ContiguizeDescriptor.of(x), device=1)
    bound = plan.bind(x=x, out=gpus.array(np.zeros(64, F32), 1))
    for current in (0, 1):
        with gpus.Device(current):
            gpus.events.clear()
            bound()
            assert gpus.work == [f"copy on 1:{gpus.streams[1]}"]
            assert gpus.current == current


def test_a_bound_plan_launches_every_step(gpus: Gpus) -> None:
    """A product in parts of K, and the sum of the parts."""
    a, b, out = (gpus.array(np.zeros(shape, F32)) for shape in ((16, 1 << 16), (1 << 16, 16), (16, 16)))
    plan = bp.MatmulPlan.select(bp.MatmulDescriptor.of(a, b, out=out), device=0)
    bound = plan.bind(a=a, b=b, out=out)
    gpus.events.clear()
    assert bound() is out
    assert gpus.work == [f"launch on 0:{gpus.streams[0]}"] * 2 and len(plan.kernels) == 2


@pytest.mark.parametrize("door", ["function", "run", "bound"])
@pytest.mark.parametrize("bad", [-1, 2**63, 2**70, True, SimpleNamespace(ptr=-1), SimpleNamespace(ptr=True)])
def test_what_is_no_handle_is_no_stream(gpus: Gpus, door: str, bad: Any) -> None:
    x, out = gpus.array(np.ones(64, F32)), gpus.array(np.zeros(64, F32))
    plan = bp.ContiguizePlan.select(bp.ContiguizeDescriptor.of(x), device=0)
    calls = {
        "function": lambda stream: bp.contiguize(x, out=out, stream=stream),
        "run": lambda stream: plan.run(x=x, out=out, stream=stream),
        "bound": plan.bind(x=x, out=out),
    }
    for _ in range(2):  # the second time on the short path
        calls[door](2**63 - 1)
        with pytest.raises(bp.OperandTypeError, match=r"stream=.* is not a stream: give an int handle"):
            calls[door](bad)
    assert gpus.work == [f"copy on 0:{2**63 - 1}"] * 2


@pytest.mark.parametrize("kind", ["copy", "launch"])
@pytest.mark.parametrize("current", [0, 1])
def test_bound_call_raises_driver_errors(gpus: Gpus, kind: str, current: int) -> None:
    def refuse(*_args: Any) -> None:
        raise gpus.CUDARuntimeError("cudaErrorInvalidResourceHandle: invalid resource handle")

    x, out = gpus.array(np.ones(64, F32), 1), gpus.array(np.zeros(64, F32), 1)
    gpus.memcpyAsync = gpus.launchKernel = refuse  # type: ignore[method-assign]
    op = get_op("contiguize" if kind == "copy" else "neg")
    bound = op.plan.select(op.of(x=x, out=out), device=1).bind(x=x, out=out)
    with gpus.Device(current), pytest.raises(bp.DriverError, match="invalid resource handle") as caught:
        bound()
    assert (caught.value.name, caught.value.code) == ("cudaErrorInvalidResourceHandle", 1)


def test_a_graph_is_captured_and_replayed_on_the_operands_device(gpus: Gpus) -> None:
    here, there = (bound_copy(gpus, ordinal) for ordinal in (1, 2))
    graph = bp.Graph(there, there)
    assert gpus.work == ["copy on 2:250"] * 2
    gpus.events.clear()
    graph.launch()
    assert gpus.events == [f"graph on 2:{gpus.streams[2]}"]
    assert gpus.current == 0
    with pytest.raises(bp.DeviceMismatchError, match="on CUDA device 1 and the graph on device 2"):
        bp.Graph(there, here)
    elsewhere = {name: gpus.array(np.ones(64, F32), 1) for name in ("x", "out")}
    gpus.events.clear()
    with pytest.raises(bp.DeviceMismatchError, match="on CUDA device 1 and the graph on device 2"):
        graph.update(there, **elsewhere)
    there()
    assert gpus.work == [f"copy on 2:{gpus.streams[2]}"], "it is still bound to what the graph holds"


def bound_copy(gpus: Gpus, ordinal: int) -> Any:
    x = gpus.array(np.ones(64, F32), ordinal)
    plan = bp.ContiguizePlan.select(bp.ContiguizeDescriptor.of(x), device=ordinal)
    return plan.bind(x=x, out=gpus.array(np.zeros(64, F32), ordinal))


# ---- scratch ---------------------------------------------------------------------------------------------------------

WORKSPACES = [
    (lambda _gpus, _a: 5, "tensor of a CUDA device, got int"),
    (lambda _gpus, _a: np.zeros(1 << 20, np.uint8), "tensor of a CUDA device, got ndarray"),
    (lambda gpus, _a: gpus.array(np.zeros(1 << 20, np.uint8))[::-1], "C-contiguous"),
    (lambda gpus, _a: gpus.over(gpus.memory(1), (1 << 20,), np.uint8, (0,)), "C-contiguous"),
    (lambda gpus, _a: gpus.array(np.zeros(1 << 20, np.uint8), 1), "on CUDA device 1"),
    (lambda _gpus, a: a, "shares memory with a"),
]


@pytest.mark.parametrize(("make", "says"), WORKSPACES, ids=[says for _, says in WORKSPACES])
def test_a_workspace_is_memory_of_its_own_on_the_device(gpus: Gpus, make: Any, says: str) -> None:
    a, b = gpus.array(np.zeros((16, 1 << 16), F32)), gpus.array(np.zeros((1 << 16, 16), F32))
    out = gpus.array(np.zeros((16, 16), F32))
    plan = bp.MatmulPlan.select(bp.MatmulDescriptor.of(a, b, out=out), device=0)
    assert plan.workspace_size
    with pytest.raises(bp.BaracudaError, match=says):
        plan.run(a=a, b=b, out=out, workspace=make(gpus, a))
    with pytest.raises(bp.WorkspaceTooSmallError):
        plan.run(a=a, b=b, out=out, workspace=gpus.array(np.zeros(plan.workspace_size - 1, np.uint8)))
    assert not gpus.work
    plan.run(a=a, b=b, out=out, workspace=gpus.array(np.zeros(plan.workspace_size, np.uint8)))


@pytest.mark.parametrize("n", [1, 16])
def test_scratch_is_taken_at_every_call_without_one(gpus: Gpus, monkeypatch: pytest.MonkeyPatch, n: int) -> None:
    """However little it is: of a single sum, some hundred bytes."""
    a, b = gpus.array(np.zeros((n, 1 << 16), F32)), gpus.array(np.zeros((1 << 16, n), F32))
    out = gpus.array(np.zeros((n, n), F32))
    plan = bp.MatmulPlan.select(bp.MatmulDescriptor.of(a, b, out=out), device=0)
    sizes: list[int] = []
    monkeypatch.setattr(gpus, "alloc", lambda nbytes: sizes.append(nbytes) or gpus.memory(nbytes))
    for _ in range(3):
        plan.run(a=a, b=b, out=out)
    assert sizes == [plan.workspace_size] * 3 and (sizes[0] < 512) is (n == 1)
    plan.run(a=a, b=b, out=out, workspace=gpus.array(np.zeros(plan.workspace_size, np.uint8)))
    assert len(sizes) == 3, "memory that was passed is not what was used"


def test_scratch_is_allocated_on_the_stream_of_the_call(gpus: Gpus, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = gpus.array(np.zeros((16, 1 << 16), F32)), gpus.array(np.zeros((1 << 16, 16), F32))
    out = gpus.array(np.zeros((16, 16), F32))
    own = gpus.streams[0]
    current, taken = [own], []

    @contextlib.contextmanager
    def from_external(handle: Any) -> Iterator[None]:
        current.append(handle.__cuda_stream__()[1])
        yield
        current.pop()

    monkeypatch.setattr(gpus.Stream, "from_external", staticmethod(from_external))
    monkeypatch.setattr(gpus, "alloc", lambda nbytes: taken.append(current[-1]) or gpus.memory(nbytes))
    for stream in (None, 99, None, own, 99):
        bp.matmul(a, b, out=out, stream=stream)
    assert taken == [own, 99, own, own, 99]


# ---- what is kept ----------------------------------------------------------------------------------------------------


def test_the_calls_used_longest_ago_are_forgotten() -> None:
    cache = PlanCache(limit=16)
    kept: Any = [SimpleNamespace(used=0) for _ in range(100)]
    for key, ready in enumerate(kept):
        cache.keep(key, ready, prefix=key)
        kept[3].used = next(cache.clock)  # as at every hit
        assert len(cache.calls) <= 16 and len(cache.foreign_prefixes) <= 16
    assert 3 in cache.calls and 99 in cache.calls and 50 not in cache.calls
    assert set(range(90, 100)) <= cache.calls.keys()


def test_a_capture_asks_whether_the_plan_is_loaded_on_its_device(gpus: Gpus) -> None:
    plan = bp.UnaryPlan.select(bp.UnaryDescriptor("neg", (64,), "f32"), device=1)
    first, second = ([gpus.array(np.ones(64, F32), ordinal) for _ in range(2)] for ordinal in (1, 2))
    plan.run(x=first[0], out=first[1])
    gpus.capturing = True
    with pytest.raises(bp.UnsupportedError, match="loads nothing during a capture"):
        plan.run(x=second[0], out=second[1])
    plan.run(x=first[0], out=first[1])


# ---- arguments in memory ---------------------------------------------------------------------------------------------


def test_structs_are_padded_as_c_pads_them() -> None:
    """{u32, u64, u8} begins on 8 bytes and is 24 long; what follows begins behind its padding."""
    fields = (np.uint32(1), np.uint64(2), np.uint8(3))
    args = (np.uint8(9), Struct((*fields, Packed(b"\x04", 1))), Struct((Ptr("x"), np.uint16(5))), np.uint8(6))
    packed = Arguments(args, {"x": 0})
    packed.patch([0x1000], {}, 0)
    table = packed.table.tolist()

    class First(ctypes.Structure):
        _fields_ = [("a", ctypes.c_uint32), ("b", ctypes.c_uint64), ("c", ctypes.c_uint8), ("d", ctypes.c_uint8)]

    class Second(ctypes.Structure):
        _fields_ = [("p", ctypes.c_uint64), ("e", ctypes.c_uint16)]

    first, second = First.from_address(table[1]), Second.from_address(table[2])
    assert (first.a, first.b, first.c, first.d) == (1, 2, 3, 4)
    assert (second.p, second.e) == (0x1000, 5)
    assert [at - table[0] for at in table] == [0, 8, 8 + ctypes.sizeof(First), 8 + ctypes.sizeof(First) + 16]
    assert ctypes.c_uint8.from_address(table[3]).value == 6


def test_arguments_are_patched_again_after_a_refused_value() -> None:
    packed = Arguments((Run("n", "int32"), Run("m", "int32")), {})

    def held() -> list[int]:
        return [ctypes.c_int32.from_address(at).value for at in packed.table.tolist()]

    usual = {"n": 1, "m": 2}
    packed.patch([], usual, 0)
    assert held() == [1, 2]
    with pytest.raises((TypeError, ValueError)):
        packed.patch([], {"n": 7, "m": "many"}, 0)
    packed.patch([], usual, 0)
    assert held() == [1, 2]


def test_a_tensor_map_is_of_the_address_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    encoded: list[int] = []
    monkeypatch.setattr(
        MapEncoder, "_encode", lambda _self, address: (encoded.append(address), address.to_bytes(128, "little"))[1]
    )
    maps = MapEncoder(TensorMap(Ptr("a"), "float32", (8, 8), (32,), (8, 8), 0))
    for _ in range(2):
        for address in (0x1000, 0x2000):
            assert int.from_bytes(maps.at(address), "little") == address
    assert encoded == [0x1000, 0x2000], "an address that is known is not encoded again"


def test_concurrent_launches_have_separate_arguments(gpus: Gpus) -> None:
    """A launch lets other threads go on before the driver has read its arguments."""
    pairs = [[gpus.array(np.ones(64, F32)) for _ in range(2)] for _ in range(2)]
    addresses = [{x.data.ptr for x in pair} for pair in pairs]
    together, read = threading.Barrier(2), []

    def launching(_function: int, *rest: Any) -> None:
        together.wait(10)
        table = rest[-2]
        words = (ctypes.c_uint64 * 4).from_address(ctypes.c_uint64.from_address(table).value)
        read.extend(pair for pair in addresses if pair <= set(words))
        together.wait(10)

    gpus.launchKernel = launching  # type: ignore[method-assign]
    plan = bp.UnaryPlan.select(bp.UnaryDescriptor("neg", (64,), "f32"), device=0)
    threads = [threading.Thread(target=plan.run, kwargs={"x": x, "out": out}) for x, out in pairs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert sorted(map(sorted, read)) == sorted(map(sorted, addresses))


@pytest.mark.parametrize("code", [0, 1, 201])
def test_a_map_that_the_driver_refuses_is_a_driver_error(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    class Error(int):
        name = "CUDA_ERROR"

    class Driver:
        """Any enumeration and integer type, and a driver that answers with `code`."""

        cuuint32_t = cuuint64_t = int
        cuTensorMapEncodeTiled = staticmethod(lambda *_: (Error(code), SimpleNamespace(opaque=range(16))))

        def __getattr__(self, _name: str) -> Any:
            return self

    monkeypatch.setattr(tensormap, "bindings", Driver)
    monkeypatch.setattr(tensormap, "current_ordinal", lambda: 1)
    entered: list[int] = []
    monkeypatch.setattr(tensormap, "make_current", entered.append)
    maps = MapEncoder(TensorMap(Ptr("a"), "float32", (8, 8), (32,), (8, 8), 0))
    if code:
        with pytest.raises(bp.DriverError, match=r"encoding .* at 0x1000: CUDA_ERROR") as caught:
            maps.at(0x1000)
        assert caught.value.code == code
        assert entered == ([1] if code == 201 else []), "a thread without a context is given one, and no other is"
    else:
        assert maps.at(0x1000) == np.arange(16, dtype=np.uint64).tobytes()


# ---- what is loaded --------------------------------------------------------------------------------------------------


def test_a_kernel_is_loaded_once_on_each_device(monkeypatch: pytest.MonkeyPatch) -> None:
    loads: list[bytes] = []

    class Module:
        def load(self, cubin: bytes) -> None:
            loads.append(cubin)

        def get_function(self, _name: str) -> Any:
            return SimpleNamespace(ptr=len(loads))

    refused = SimpleNamespace(CUDADriverError=RuntimeError, CUDARuntimeError=RuntimeError)
    cuda = SimpleNamespace(function=SimpleNamespace(Module=Module), driver=refused, runtime=refused)
    monkeypatch.setattr(launch, "require_gpu", lambda _what: SimpleNamespace(cuda=cuda))
    monkeypatch.setattr(launch, "_loaded", {})
    first, second = (Compiled("k", cubin, Resources(8, 0, 0, 0), 0.0) for cubin in (b"first", b"second"))
    for _ in range(2):
        assert [launch.load_kernel(first, 0, ordinal) for ordinal in (0, 1)] == [1, 2]
    assert launch.load_kernel(second, 0, 0) == 3, "of the same name, and other code"
    assert loads == [b"first", b"first", b"second"]


def test_load_kernel_asks_for_large_dynamic_shared_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """48 KiB, what it declares itself included; and again where a later launch needs more."""
    asked: list[int] = []

    class Module:
        def load(self, _cubin: bytes) -> None: ...

        def get_function(self, _name: str) -> Any:
            return SimpleNamespace(ptr=1)

    driver = SimpleNamespace(
        CUDADriverError=RuntimeError,
        CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES=8,
        funcSetAttribute=lambda _function, _attribute, nbytes: asked.append(nbytes),
    )
    runtime = SimpleNamespace(CUDARuntimeError=RuntimeError)
    cuda = SimpleNamespace(function=SimpleNamespace(Module=Module), driver=driver, runtime=runtime)
    monkeypatch.setattr(launch, "require_gpu", lambda _what: SimpleNamespace(cuda=cuda))
    monkeypatch.setattr(launch, "_loaded", {})
    own = Compiled("k", b"own", Resources(8, 0, 0, 256), 0.0)
    for nbytes in (0, 48 << 10, 49000, 64 << 10, 50 << 10):
        launch.load_kernel(own, nbytes, 0)
    assert asked == [48 << 10, 64 << 10]
