"""Operands: intake, GpuBuffer, spans and collapsing."""

from __future__ import annotations

import warnings
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import baracuda_py as bp
from baracuda_py.tensor import HOST_ORDINAL, arrays, dlpack, intake
from baracuda_py.tensor.axes import (
    alignment_of,
    broadcast_strides,
    c_strides,
    collapse,
    merge_axes,
    self_overlapping,
    span,
)
from baracuda_py.types import ElementKind

from .producers import Exporter, Interface

Layout = tuple[tuple[int, ...], tuple[int, ...]]


@st.composite
def layouts(draw: st.DrawFn, *, reach: int = 9, most: int = 5) -> Layout:
    """A shape and strides of any sign, zero included."""
    shape = tuple(draw(st.lists(st.integers(0, most), max_size=4)))
    return shape, tuple(draw(st.integers(-reach, reach)) for _ in shape)


def places(shape: tuple[int, ...], strides: tuple[int, ...]) -> list[int]:
    """Where each element is stored, by enumeration."""
    return [sum(i * s for i, s in zip(index, strides)) for index in np.ndindex(*shape)]


# ---- arithmetic on axes ----------------------------------------------------------------------------------------------


@given(layouts(), st.sampled_from([bp.U8, bp.BF16, bp.F64, bp.S4]), st.integers(0, 1))
def test_a_span_holds_every_byte_and_no_more(layout: Layout, kind: ElementKind, phase: int) -> None:
    shape, strides = layout
    phase = phase if kind.packed else 0
    touched = [byte for p in places(shape, strides) for byte in _bytes(p + phase, kind)]
    assert span(shape, strides, kind, phase) == ((min(touched), max(touched) + 1) if touched else (0, 0))


def _bytes(place: int, kind: ElementKind) -> range:
    if kind.packed:
        return range(place * kind.bits // 8, place * kind.bits // 8 + 1)
    size = kind.bits // 8
    return range(place * size, place * size + size)


@given(layouts(), st.data())
@settings(max_examples=200)
def test_collapsing_keeps_every_pair_of_places(layout: Layout, data: st.DataObject) -> None:
    shape, strides = layout
    other = tuple(data.draw(st.integers(-9, 9)) for _ in shape)
    pairs = sorted(zip(places(shape, strides), places(shape, other)))
    for helper in (collapse, merge_axes):
        merged, (a, b) = helper(shape, [strides, other])
        assert sorted(zip(places(merged, a), places(merged, b))) == pairs
        assert 1 not in merged
        assert len(merged) <= len(shape)


def test_a_dense_array_collapses_to_one_axis_in_any_axis_order() -> None:
    x = np.zeros((2, 3, 4, 5))
    for order in ((0, 1, 2, 3), (3, 2, 1, 0), (1, 3, 0, 2)):
        view = x.transpose(order)
        strides = tuple(s // 8 for s in view.strides)
        assert collapse(view.shape, [strides, strides]) == ((120,), ((1,), (1,)))


@given(layouts())
def test_no_self_overlap_is_certain(layout: Layout) -> None:
    shape, strides = layout
    where = places(shape, strides)
    if not self_overlapping(shape, strides):
        assert len(set(where)) == len(where)
    if any(s == 0 and n > 1 for n, s in zip(shape, strides)) and 0 not in shape:
        assert self_overlapping(shape, strides)


@given(st.lists(st.integers(0, 5), max_size=5))
def test_c_strides_match_numpy(shape: list[int]) -> None:
    if 0 not in shape:
        assert c_strides(shape) == tuple(s // 2 for s in np.zeros(shape, np.int16).strides)


def test_c_order_of_nothing_steps_as_if_an_empty_axis_held_one() -> None:
    assert c_strides((2, 0, 3)) == (3, 3, 1)
    assert c_strides((4, 0)) == (1, 1)
    assert c_strides((2, 0), bp.S4) == (1, 1)


def test_c_order_of_packed_rows_starts_each_on_a_byte() -> None:
    assert c_strides((3, 5), bp.S4) == (6, 1)
    assert c_strides((2, 3, 9), bp.BIN) == (48, 16, 1)


@given(st.integers(0, 10**6))
def test_alignment(address: int) -> None:
    wanted = next(a for a in (16, 8, 4, 2, 1) if address % a == 0)
    assert alignment_of(address) == wanted


def test_broadcast_strides_match_numpy() -> None:
    for shape, onto in (((3, 1), (2, 3, 4)), ((), (2,)), ((1, 1), (5, 1)), ((4,), (3, 4))):
        x = np.zeros(shape, np.float32)
        view = np.broadcast_to(x, onto)
        got = broadcast_strides(shape, tuple(s // 4 for s in x.strides), onto)
        assert [s for s, n in zip(got, onto) if n > 1] == [s // 4 for s, n in zip(view.strides, onto) if n > 1]
    assert broadcast_strides((1, 3), (7, 2), (4, 1, 3)) == (0, 7, 2), "an axis that is not repeated keeps its stride"
    assert broadcast_strides((1, 3), (7, 2), (5, 3)) == (0, 2)


# ---- intake ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [k for k in ElementKind if not k.packed], ids=str)
def test_numpy_arrays_of_every_kind(kind: ElementKind) -> None:
    x = np.zeros((4, 6), kind.dtype)[::2, ::-1]
    t = intake(x, what="test")
    assert (t.element, t.shape, t.strides) == (kind, (2, 6), (12, -1))
    assert t.pointer == (x.__array_interface__["data"][0] if x.dtype.kind != "V" else x.ctypes.data)
    assert t.ordinal == HOST_ORDINAL
    assert t.on_host
    assert not t.readonly
    assert np.array_equal(t.array(), x)
    assert np.shares_memory(t.array(), x)


class OldExporter(Exporter):
    """One from before DLPack 1.0, which knows no max_version."""

    def __dlpack__(self, stream: Any = None) -> Any:  # type: ignore[override]
        return self.x.__dlpack__() if stream is None else self.x.__dlpack__(stream=stream)


@pytest.mark.parametrize("wrap", [Exporter, OldExporter])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int64, np.uint8, np.bool_, np.complex64])
def test_dlpack_on_the_host(wrap: Any, dtype: Any) -> None:
    x = np.zeros((3, 8), dtype)[:, ::2]
    t = intake(wrap(x), what="test", host=True)
    assert (t.element, t.shape, t.strides, t.ordinal) == (ElementKind.of(dtype), (3, 4), (8, 2), HOST_ORDINAL)
    assert t.pointer == x.ctypes.data


def test_dlpack_read_only_is_kept() -> None:
    x = np.zeros(3, np.float32)
    x.flags.writeable = False
    assert intake(Exporter(x), what="test", host=True).readonly


def test_dlpack_arrays_run_on_the_host() -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert np.array_equal(bp.square(Exporter(x), device="cpu"), x * x)
    out = np.zeros((2, 3), np.float32)
    bp.square(x, out=Exporter(out), device="cpu")
    assert np.array_equal(out, x * x)


class Unreadable(Exporter):
    def __dlpack__(self, **_: Any) -> Any:
        raise AssertionError("must not be asked")


def test_host_plan_refuses_a_device_array_before_reading_it() -> None:
    plan = bp.UnaryPlan.select(bp.UnaryDescriptor("exp", (4,), "f32"), device="cpu")  # type: ignore[arg-type]
    with pytest.raises(bp.OperandTypeError, match="on CUDA device 0 and the plan is for the host"):
        plan.run(x=Unreadable(np.zeros(4, np.float32), device=(2, 0)))


def test_a_read_only_interface(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "_ordinal_at", lambda _pointer, _what: 0)
    t = intake(Interface(data=(4096, True), shape=(2, 3), strides=(16, 4)), what="op: x")
    assert t.readonly
    assert (t.shape, t.strides, t.element) == ((2, 3), (4, 1), bp.F32)
    assert intake(Interface(shape=(2, 3)), what="op: x").strides == (3, 1)


def wrapped(x: Any, *, size: int | None = None) -> Any:
    """Host memory dressed up as a CuPy array: exchanged over DLPack, or of `size` bytes that a caller vouches for."""
    cupy = pytest.importorskip("cupy")
    if size is not None:
        memory = cupy.cuda.UnownedMemory(x.ctypes.data, size, x, 0)
        return cupy.ndarray(x.shape, x.dtype, cupy.cuda.MemoryPointer(memory, 0), x.strides)
    capsule = x.__dlpack__()
    dlpack._fields(capsule, "x")[0].device.type = 2  # kDLCUDA
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return cupy.fromDlpack(capsule)  # from_dlpack would ask the driver for a stream


@pytest.mark.parametrize("view", [np.zeros((4, 6), np.float32), np.zeros((6, 9), np.float32)[1::2, ::-2]])
def test_a_size_that_cupy_guessed_is_not_believed(view: Any) -> None:
    """`mem.size` is the sum of the extents for an array that came over DLPack."""
    x = wrapped(view)
    assert x.data.mem.size < x.nbytes
    t = intake(x, what="x")
    assert (t.pointer, t.shape, t.strides, t.bounds) == (
        x.data.ptr,
        view.shape,
        tuple(s // 4 for s in view.strides),
        None,
    )


def test_a_size_guessed_from_an_interface_is_not_believed() -> None:
    """CuPy's asarray takes the largest |extent * stride| of an interface's view for the size."""
    overlapping = np.lib.stride_tricks.sliding_window_view(np.zeros(7, np.float32), 5)
    assert intake(wrapped(overlapping, size=20), what="x").bounds is None


class Pooled:
    """An allocation of CuPy's own, as a MemoryPointer shows it."""

    size, ptr = 96, 4096


def test_a_size_that_cupy_allocated_is_kept() -> None:
    assert arrays.allocation_bounds(SimpleNamespace(mem=Pooled(), ptr=4096 + 16)) == (16, 80)


@pytest.mark.gpu
def test_cupy_arrays_that_came_over_dlpack() -> None:
    import cupy

    x = cupy.arange(24, dtype=np.float32).reshape(4, 6)
    for view in (x, x.T, x[::2, 1:5], x[:, ::-1]):
        taken = cupy.from_dlpack(view)
        assert bool((bp.exp(taken) == bp.exp(view)).all())
        assert bool((bp.matmul(taken, taken.T) == bp.matmul(view, view.T)).all())
    torch = pytest.importorskip("torch")
    foreign = torch.arange(24, dtype=torch.float32, device="cuda").reshape(4, 6)
    assert np.array_equal(bp.square(cupy.from_dlpack(foreign)).get(), foreign.cpu().numpy() ** 2)


@pytest.mark.gpu
def test_views_of_a_foreign_interface() -> None:
    import cupy

    memory = cupy.arange(7, dtype=np.float32)
    window = cupy.asarray(_Window(memory))
    assert np.array_equal(bp.square(window).get(), np.lib.stride_tricks.sliding_window_view(memory.get(), 5) ** 2)


class _Window:
    """Five neighbours from each place on, as an interface of overlapping rows."""

    def __init__(self, x: Any) -> None:
        self.__cuda_array_interface__ = {**x.__cuda_array_interface__, "shape": (3, 5), "strides": (4, 4)}


@pytest.mark.gpu
def test_an_array_longer_than_its_allocation_is_refused() -> None:
    import cupy

    memory = cupy.cuda.alloc(1024)
    beyond = cupy.ndarray((memory.mem.size // 4 + 1,), np.float32, memory)
    with pytest.raises(bp.BufferTooSmallError, match="allocate a larger one"):
        bp.exp(beyond)


# ---- GpuBuffer -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [bp.S4, bp.U4, bp.BIN], ids=str)
def test_packed_views(kind: ElementKind) -> None:
    data = np.arange(12, dtype=np.uint8).reshape(3, 4)
    per = kind.per_byte
    buffer = bp.GpuBuffer.view(data, kind)
    assert buffer.shape == (3, 4 * per)
    assert buffer.strides == (4 * per, 1)
    assert buffer.size == 12 * per
    assert buffer.nbytes == 12
    assert buffer.device == "cpu"
    assert len(buffer) == 3
    assert np.array_equal(buffer.to_host(), data)
    odd = bp.GpuBuffer.view(data, kind, (3, 4 * per - 1))
    assert odd.shape == (3, 4 * per - 1)
    assert intake(odd, what="x").element is kind
    assert str(kind) in repr(odd)
    with pytest.raises(bp.BufferTooSmallError) as caught:
        bp.GpuBuffer.view(data, kind, (3, 4 * per + 1))
    assert (caught.value.needed, caught.value.got) == (5, 4)
    with pytest.raises(bp.InvalidProblemError, match="rows"):
        bp.GpuBuffer.view(data, kind, (4, 4))
    with pytest.raises(bp.InvalidProblemError, match="packed rows must be contiguous"):
        bp.GpuBuffer.view(data.T, kind)
    with pytest.raises(bp.OperandTypeError, match="packed in bytes"):
        bp.GpuBuffer.view(np.zeros(4, np.float32), kind)
    with pytest.raises(bp.OperandTypeError, match="rank"):
        bp.GpuBuffer.view(np.zeros((), np.uint8), kind)


@pytest.mark.parametrize("kind", [bp.FP8_E4M3, bp.FP8_E5M2, bp.I8, bp.BOOL], ids=str)
def test_bytes_read_as_another_kind(kind: ElementKind) -> None:
    data = np.zeros((3, 8), np.uint8)[:, ::2]
    buffer = bp.GpuBuffer.view(data, kind)
    assert (buffer.shape, buffer.strides, buffer.element) == ((3, 4), (8, 2), kind)
    assert np.shares_memory(buffer.array, data)
    with pytest.raises(bp.OperandTypeError, match="bf16 has 16: view the array as a dtype of that width"):
        bp.GpuBuffer.view(data, bp.BF16)
    with pytest.raises(bp.InvalidProblemError, match="reshape"):
        bp.GpuBuffer.view(data, kind, (4, 3))


def test_strided_views_stay_inside() -> None:
    data = np.arange(10, dtype=np.float32)
    buffer = bp.GpuBuffer.view(data, bp.F32)
    assert np.array_equal(bp.contiguize(buffer.strided((3, 2), (2, -1), 3), device="cpu"), [[3, 2], [5, 4], [7, 6]])
    out = np.zeros(12, np.float32)
    bp.write_slice(
        bp.GpuBuffer.view(out, bp.F32).strided((3, 2), (4, 1), 1),
        np.ones((1, 2), np.float32),
        [(1, 2), (0, 2)],
        device="cpu",
    )
    assert np.flatnonzero(out).tolist() == [5, 6]
    for shape, strides, offset in (((11,), (1,), 0), ((3,), (-1,), 1), ((2,), (9,), 1)):
        with pytest.raises(bp.BufferTooSmallError, match="stay inside"):
            buffer.strided(shape, strides, offset)
    with pytest.raises(bp.InvalidProblemError, match="not C-contiguous"):
        bp.GpuBuffer.view(data[::2], bp.F32).strided((2,), (1,))


@given(layouts(), st.sampled_from([bp.S4, bp.U4]), st.integers(0, 3))
def test_rows_of_any_packed_view_and_back(layout: Layout, kind: ElementKind, slack: int) -> None:
    shape, strides = layout
    if not shape:
        return
    where = places(shape, strides)
    low = min(where, default=0)
    size = (max(where, default=0) - low + slack) // 2 + 2
    data = np.random.default_rng(0).integers(0, 256, size, dtype=np.uint8)
    buffer = bp.GpuBuffer.view(data, kind).strided(shape, strides, slack - low)
    flat = np.stack([data & 15, data >> 4], -1).reshape(-1)
    rows = buffer.to_host()
    nibbles = np.stack([rows & 15, rows >> 4], -1).reshape(*rows.shape[:-1], rows.shape[-1] * 2)[..., : shape[-1]]
    assert nibbles.reshape(-1).tolist() == [int(flat[slack - low + p]) for p in where]
    if len(set(where)) == len(where) and not buffer.plain:
        buffer.put_rows(~rows)
        flat[slack - low + np.array(where, np.int64)] ^= 15
        assert np.stack([data & 15, data >> 4], -1).reshape(-1).tolist() == flat.tolist(), "those and no others"


@pytest.mark.gpu
def test_buffers_on_the_device() -> None:
    import cupy

    zeros = bp.GpuBuffer.zeros((3, 5), bp.S4)
    assert zeros.shape == (3, 5)
    assert zeros.nbytes == 9
    assert not zeros.to_host().any()
    host = np.arange(12, dtype=np.float32).reshape(3, 4)
    buffer = bp.GpuBuffer.alloc_from(host)
    assert np.array_equal(buffer.to_host(), host)
    assert np.array_equal(cupy.from_dlpack(buffer).get(), host)
    assert np.array_equal(cupy.asarray(buffer).get(), host)
    assert intake(buffer, what="x").ordinal == buffer.device.ordinal
    eight = bp.GpuBuffer.alloc_from(np.ones(16, bp.FP8_E4M3.dtype))
    assert eight.element is bp.FP8_E4M3
    assert eight.to_host().dtype == bp.FP8_E4M3.dtype


@pytest.mark.gpu
def test_an_array_on_another_device_is_refused() -> None:
    import cupy

    if cupy.cuda.runtime.getDeviceCount() < 2:
        pytest.skip("needs two devices")
    x = cupy.ones(4, np.float32)
    with cupy.cuda.Device(1):
        y = cupy.ones(4, np.float32)
    with pytest.raises(bp.DeviceMismatchError, match="copy x2 to device 0"):
        bp.add(x, y)
    assert float(bp.exp(y).get()[0]) == pytest.approx(np.e)
    assert cupy.cuda.runtime.getDevice() == 0
