"""GpuBuffer: views of any kind, what they export, and the layouts that are refused."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import baracuda_py as bp
from baracuda_py.tensor import arrays, dlpack, intake
from baracuda_py.types import ElementKind

from .tensor_test import Layout, layouts, places

MEMORY = np.arange(1, 65, dtype=np.uint8)
PLAIN = [k for k in ElementKind if not k.packed]


def buffer(kind: ElementKind) -> bp.GpuBuffer:
    """64 bytes that count from 1, as elements of a kind."""
    flat = MEMORY.copy() if kind.packed or kind is not bp.BOOL else (MEMORY % 2).astype(np.uint8)
    return bp.GpuBuffer.view(flat if kind.packed else flat.view(kind.dtype), kind)


def device_buffer(kind: ElementKind) -> bp.GpuBuffer:
    """The same, as an array of CuPy's over host memory: for what asks no driver."""
    cupy = pytest.importorskip("cupy")
    memory = cupy.cuda.UnownedMemory(MEMORY.ctypes.data, MEMORY.nbytes, MEMORY, 0)
    array = cupy.ndarray((64,), np.uint8, cupy.cuda.MemoryPointer(memory, 0))
    return bp.GpuBuffer.view(array if kind.packed or kind.bits == 8 else array.view(kind.dtype), kind)


def raw(x: Any) -> bytes:
    return np.ascontiguousarray(x).tobytes()


# ---- views and what they export --------------------------------------------------------------------------------------


@given(layouts(reach=3, most=3), st.sampled_from(PLAIN), st.integers(0, 3))
def test_a_strided_view_is_its_array(layout: Layout, kind: ElementKind, slack: int) -> None:
    """Shape, strides and first element; to NumPy, and over DLPack."""
    shape, strides = layout
    where = places(shape, strides)
    first = slack - min(where, default=0)
    size = max(where, default=0) + first + 1
    flat = (np.arange(size * kind.bits // 8) % (2 if kind is bp.BOOL else 251)).astype(np.uint8).view(kind.dtype)
    view = bp.GpuBuffer.view(flat, kind).strided(shape, strides, first)
    wanted = raw(np.array([flat[first + p] for p in where], kind.dtype).reshape(shape))
    assert raw(view.to_host()) == wanted
    assert (view.array.shape, view.offset, view.plain) == (shape, 0, True)
    assert np.shares_memory(view.array, flat) or not where
    got = dlpack.read(view.__dlpack__(max_version=(1, 1)), "x")
    assert (got.shape, got.element) == (shape, kind)
    assert not where or got.pointer == view.array.ctypes.data == flat.ctypes.data + first * kind.bits // 8
    stepped = [(n, s) for n, s in zip(shape, got.strides) if n > 1]
    assert 0 in shape or stepped == [(n, s) for n, s in zip(shape, strides) if n > 1]
    if kind.dtype.isbuiltin == 1:
        assert raw(np.from_dlpack(view)) == wanted


def test_torch_takes_a_strided_view() -> None:
    torch = pytest.importorskip("torch")
    view = bp.GpuBuffer.view(np.arange(16, dtype="f4"), "f32").strided((2, 3), (5, 1), 1)
    assert torch.from_dlpack(view).tolist() == [[1, 2, 3], [6, 7, 8]]
    wide = bp.GpuBuffer.view(np.arange(16, dtype="f4").astype(bp.BF16.dtype), "bf16").strided((2, 3), (5, 1), 1)
    assert torch.from_dlpack(wide).float().tolist() == [[1, 2, 3], [6, 7, 8]]
    eight = bp.GpuBuffer.view(np.arange(16, dtype="f4").astype(bp.FP8_E4M3.dtype), "fp8_e4m3").strided((2, 2), (5, 1))
    assert torch.from_dlpack(eight).float().tolist() == [[0, 1], [5, 6]]


@pytest.mark.parametrize("kind", [bp.S4, bp.U4, bp.BIN], ids=str)
def test_rows_of_packed_views_are_exported(kind: ElementKind) -> None:
    """Whole rows of bytes, of an odd last extent and a pitch, with another rank than the memory has."""
    per = kind.per_byte
    view = buffer(kind).strided((2, 3, 4 * per - 1), (20 * per, 5 * per, 1), per)
    assert view.plain
    got = dlpack.read(view.__dlpack__(), "x")
    assert (got.shape, got.strides) == ((2, 3, 4 * per - 1), (20 * per, 5 * per, 1))
    assert got.pointer == view.array.ctypes.data
    assert view.to_host()[1, 2].tolist() == [32, 33, 34, 35]
    capsule = view.__dlpack__(max_version=(1, 1))
    assert dlpack._fields(capsule, "x")[0].dtype.bits == kind.bits


@pytest.mark.parametrize(
    ("shape", "strides", "first"), [((4,), (1,), 1), ((4,), (2,), 0), ((4,), (-1,), 9), ((2, 4), (3, 1), 0)]
)
def test_packed_views_inside_bytes_are_not_exported(
    shape: tuple[int, ...], strides: tuple[int, ...], first: int
) -> None:
    view = buffer(bp.S4).strided(shape, strides, first)
    assert not view.plain
    for export in (view.__dlpack__, lambda: np.from_dlpack(view)):
        with pytest.raises(bp.UnsupportedError, match="inside bytes: contiguize it first"):
            export()
    with pytest.raises(bp.UnsupportedError, match="__cuda_array_interface__ cannot say"):
        _ = device_buffer(bp.S4).strided(shape, strides, first).__cuda_array_interface__
    with pytest.raises(bp.InvalidProblemError, match="start from the whole allocation"):
        view.strided((1,), (1,))


@pytest.mark.parametrize("kind", PLAIN, ids=str)
def test_what_lies_on_a_device_is_exported_as_the_view(kind: ElementKind) -> None:
    """The CuPy array that is exported; a driver is asked for nothing but the current stream."""
    size = kind.bits // 8
    view = device_buffer(kind).strided((1, 2), (3, -1), 3)
    bare = view._exported("__cuda_array_interface__")
    assert (bare.data.ptr, bare.shape, bare.strides) == (MEMORY.ctypes.data + 3 * size, (1, 2), (3 * size, -size))
    assert bare.dtype == (kind.dtype if kind.dtype.isbuiltin == 1 else f"u{size}")
    taken = intake(view, what="x")
    assert (taken.pointer, taken.shape, taken.strides, taken.element, taken.ordinal) == (
        MEMORY.ctypes.data + 3 * size, (1, 2), (3, -1), kind, 0,
    )  # fmt: skip


def test_packed_rows_on_a_device_are_exported_as_bytes() -> None:
    bare = device_buffer(bp.S4).strided((3, 5), (8, 1), 2)._exported("__cuda_array_interface__")
    assert (bare.data.ptr, bare.shape, bare.strides, bare.dtype) == (MEMORY.ctypes.data + 1, (3, 3), (4, 1), np.uint8)


@pytest.mark.gpu
@pytest.mark.parametrize("kind", [bp.F32, bp.BF16, bp.FP8_E5M2, bp.S4], ids=str)
def test_views_go_to_cupy_and_torch(kind: ElementKind) -> None:
    import cupy

    bytes_ = cupy.asarray(MEMORY)
    whole = bp.GpuBuffer.view(bytes_ if kind.packed or kind.bits == 8 else bytes_.view(kind.dtype), kind)
    view = whole.strided((2, 2), (4, 1), 2)
    interface = view.__cuda_array_interface__
    assert interface["data"][0] == bytes_.data.ptr + 2 * kind.bits // 8
    assert cupy.asarray(view).get().tobytes() == np.ascontiguousarray(view.to_host()).tobytes()
    if kind in (bp.F32, bp.BF16):
        assert cupy.from_dlpack(view).get().tobytes() == np.ascontiguousarray(view.to_host()).tobytes()
    if kind is bp.F32:
        torch = pytest.importorskip("torch")
        assert torch.from_dlpack(view).cpu().numpy().tobytes() == np.ascontiguousarray(view.to_host()).tobytes()


def test_capsules_without_strides() -> None:
    """Some exporters leave the strides out where an array is dense; odd packed rows cannot do without."""
    for shape, last, fits in (((2, 4), 8, True), ((2, 4), 7, False), ((4,), 7, True)):
        capsule = np.zeros(shape, np.uint8).__dlpack__()
        tensor, _ = dlpack._fields(capsule, "x")
        tensor.strides = type(tensor.strides)()
        if fits:
            got = dlpack.read(dlpack.relabel(capsule, bp.S4, last), "x")
            assert (got.shape, got.strides[-1]) == ((*shape[:-1], last), 1)
        else:
            with pytest.raises(bp.UnsupportedError, match="rows of 7 end inside a byte"):
                dlpack.relabel(capsule, bp.S4, last)


def test_read_only_memory_stays_so() -> None:
    flat = np.zeros(8, np.float32)
    flat.flags.writeable = False
    view = bp.GpuBuffer.view(flat, bp.F32).strided((2, 2), (4, 1))
    assert intake(view, what="x").readonly
    assert not view.array.flags.writeable
    with pytest.raises(bp.OperandTypeError, match="read-only"):
        bp.square(np.ones((2, 2), np.float32), out=view, device="cpu")


def test_read_only_memory_of_a_device_is_not_exported(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("cupy")
    monkeypatch.setattr(arrays, "_ordinal_at", lambda _pointer, _what: 0)

    class Immutable:
        __cuda_array_interface__ = {
            "version": 3, "shape": (16,), "typestr": "<f4", "data": (MEMORY.ctypes.data, True)
        }  # fmt: skip

    view = bp.GpuBuffer.view(Immutable(), bp.F32)
    assert intake(view, what="x").readonly
    with pytest.raises(bp.UnsupportedError, match="is read-only"):
        view.__dlpack__()


def test_buffer_over_a_torch_tensor() -> None:
    torch = pytest.importorskip("torch")
    t = torch.arange(12, dtype=torch.bfloat16).reshape(3, 4)
    view = bp.GpuBuffer.view(t, bp.BF16)
    assert view.array.dtype == bp.BF16.dtype
    view.array[1, 1] = 99
    assert t[1, 1] == 99
    assert view.strided((2,), (5,), 1).to_host().astype(float).tolist() == [1, 6]
    nibbles = bp.GpuBuffer.view(torch.arange(8, dtype=torch.uint8), bp.U4)
    assert bp.contiguize(nibbles.strided((2,), (4,), 2), device="cpu").to_host().tolist() == [0x31]


def test_a_buffer_keeps_its_memory() -> None:
    x = np.arange(4, dtype=np.float32)
    before = sys.getrefcount(x)
    view = bp.GpuBuffer.view(x, bp.I32).strided((2,), (2,))
    assert sys.getrefcount(x) > before
    del x
    assert view.to_host().view(np.float32).tolist() == [0, 2]


def test_a_buffer_of_a_buffer() -> None:
    nibbles = buffer(bp.S4).strided((3,), (2,), 3)
    other = bp.GpuBuffer.view(nibbles, bp.U4)
    assert (other.element, other.shape, other.strides) == (bp.U4, (3,), (2,))
    assert np.array_equal(other.to_host(), nibbles.to_host())
    with pytest.raises(bp.OperandTypeError, match="4 bits an element and u8 has 8"):
        bp.GpuBuffer.view(nibbles, bp.U8)


# ---- what is refused -------------------------------------------------------------------------------------------------

FLAT = np.zeros(16, np.uint8)


@pytest.mark.parametrize(
    ("make", "error", "says"),
    [
        (lambda: bp.GpuBuffer.view(FLAT, "s4", (-1,)), bp.InvalidProblemError, "does not have the rows"),
        (lambda: bp.GpuBuffer.view(FLAT, "s4", (31.0,)), bp.InvalidProblemError, "not a sequence of integers"),
        (lambda: bp.GpuBuffer.view(FLAT, "s4", ()), bp.InvalidProblemError, "does not have the rows"),
        (lambda: bp.GpuBuffer.view(FLAT, "s4", 31), bp.InvalidProblemError, "not a sequence of integers"),
        (lambda: bp.GpuBuffer.view(FLAT, "u8", (16.0,)), bp.InvalidProblemError, "not a sequence of integers"),
        (lambda: bp.GpuBuffer.view(FLAT, "u8", (4, 4)), bp.InvalidProblemError, "reshape"),
        (lambda: bp.GpuBuffer.view(FLAT, "u8").strided((4, 4), (1,)), bp.InvalidProblemError, "a stride for each"),
        (lambda: bp.GpuBuffer.view(FLAT, "u8").strided((-1,), (1,)), bp.InvalidProblemError, "of 0 or more"),
        (lambda: bp.GpuBuffer.view(FLAT, "u8").strided((2,), (1.5,)), bp.InvalidProblemError, "strides=(1.5,)"),
        (lambda: bp.GpuBuffer.view(FLAT, "u8").strided((2,), (1,), 0.5), bp.InvalidProblemError, "offset"),
        (lambda: bp.GpuBuffer.view(FLAT, "s4").strided((), ()), bp.InvalidProblemError, "one axis or more"),
        (lambda: bp.GpuBuffer.view(FLAT, "u8").strided((17,), (1,)), bp.BufferTooSmallError, "strided: the view reaches"),
        (lambda: bp.GpuBuffer.view(FLAT, "u8").strided((1,), (1,), -1), bp.BufferTooSmallError, "strided: the view reaches"),
        (lambda: bp.GpuBuffer(FLAT, bp.U8, (17,), (1,)), bp.BufferTooSmallError, "stay inside the array"),
        (lambda: bp.GpuBuffer(FLAT, bp.U8, (2,), (1,), 15), bp.BufferTooSmallError, "stay inside the array"),
        (lambda: bp.GpuBuffer(FLAT, bp.U8, (2,), (-1,)), bp.BufferTooSmallError, "stay inside the array"),
        (lambda: bp.GpuBuffer(FLAT, bp.S4, (33,), (1,)), bp.BufferTooSmallError, "stay inside the array"),
        (lambda: bp.GpuBuffer(FLAT, bp.F32, (5,), (1,)), bp.BufferTooSmallError, "stay inside the array"),
        (lambda: bp.GpuBuffer(FLAT[4:8], bp.U8, (5,), (1,)), bp.BufferTooSmallError, "stay inside the array"),
        (lambda: bp.GpuBuffer(FLAT, bp.U8, (2, 2), (1,)), bp.InvalidProblemError, "a stride for each"),
    ],
)  # fmt: skip
def test_what_is_no_layout_is_refused(make: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error) as caught:
        make()
    assert type(caught.value) is error
    assert says in str(caught.value)


def test_the_whole_array_and_nothing_more_is_taken() -> None:
    assert bp.GpuBuffer(FLAT[::-1], bp.U8, (16,), (-1,)).to_host().shape == (16,)
    assert bp.GpuBuffer(FLAT, bp.S4, (32,), (1,)).to_host().shape == (16,)
    assert bp.GpuBuffer(FLAT, bp.F32, (4,), (1,)).to_host().dtype == np.float32
    assert bp.GpuBuffer(FLAT, bp.U8, (0, 3), (7, 7)).to_host().shape == (0, 3)
