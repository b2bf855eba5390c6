"""contiguize: the seeds' nine cases, those their list names as missing, and random views against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.lib.stride_tricks import as_strided

import baracuda_py as bp
from baracuda_py.samples import Packed
from baracuda_py.types import ElementKind

from ...arena import Slot, host
from ...gauntlet import readable
from .independent import nibbles_of

COVERS = ("contiguize",)


def device_of(backend: str) -> Any:
    return "cpu" if backend == "cpu" else None


def check(backend: str, view: np.ndarray) -> None:
    """A fresh result, and one into a guarded output, against NumPy's copy of the view."""
    x = Slot(view, backend)
    got = bp.contiguize(x.operand, device=device_of(backend))
    assert getattr(got, "flags", np.empty(0).flags).c_contiguous
    assert host(got).dtype == view.dtype
    assert got.shape == view.shape
    assert host(got).tobytes() == view.tobytes(order="C")
    out = Slot(np.empty(view.shape, view.dtype), backend, poison=True)
    assert bp.contiguize(x.operand, out=out.operand, device=device_of(backend)) is out.operand
    assert np.array_equal(out.image(), out.expected(np.array(view, order="C")))
    assert np.array_equal(x.image(), x.initial)


def ramp(shape: tuple[int, ...], dtype: Any = np.float32, scale: float = 1.0, first: float = 0.0) -> np.ndarray:
    return (np.arange(int(np.prod(shape))) * scale + first).reshape(shape).astype(dtype)


# ---- the seeds' cases ------------------------------------------------------------------------------------------------

SEEDS = {
    "already_contiguous_rank3_f32": ramp((2, 3, 4), scale=0.125),
    "inner_stride1_fastpath_f32": as_strided(ramp((2, 3, 4), first=100), (3, 2, 4), (16, 48, 4)),
    "transposed_rank2_f32": ramp((3, 4), first=-5.5).T,
    "negative_stride_rank2_f32": ramp((4, 3), scale=0.5)[::-1],
    "zero_stride_rank3_f32": np.broadcast_to(ramp((2, 4), first=10)[:, None], (2, 3, 4)),
    "transposed_f16": ramp((3, 4), np.float16, first=-5.5).T,
    "transposed_bf16": ramp((3, 4), bp.BF16.dtype, first=-5).T,
    "transposed_f64": ramp((3, 4), np.float64, scale=0.25, first=-1.5).T,
}


@pytest.mark.parametrize("name", SEEDS)
def test_the_seeds_cases(backend: str, name: str) -> None:
    check(backend, SEEDS[name])


def nibbles(values: list[int]) -> np.ndarray:
    low, high = np.array(values[::2]) & 15, np.array(values[1::2]) & 15
    return (low | high << 4).astype(np.uint8)


def packed(
    backend: str, data: np.ndarray, kind: ElementKind, shape: tuple[int, ...], strides: Any = None, offset: int = 0
) -> np.ndarray:
    """The elements of the packed copy, one a byte; guard bytes and spare nibbles checked."""
    x = Slot(Packed(data, kind, shape, strides, offset), backend)
    rows = np.zeros((*shape[:-1], (shape[-1] + 1) // 2), np.uint8)
    out = Slot(Packed(rows, kind, shape), backend, poison=True)
    bp.contiguize(x.operand, out=out.operand, device=device_of(backend))
    image = out.image()
    got = out.view(image).copy()
    assert np.array_equal(image, out.expected(got)), "a byte outside, or a spare nibble, was changed"
    assert np.array_equal(x.image(), x.initial)
    return nibbles_of(got, shape)


def test_s4_contiguous_rank_1(backend: str) -> None:
    values = [1, -2, 3, -4, 5, -6, 7, -8]
    assert np.array_equal(packed(backend, nibbles(values), bp.S4, (8,)), np.array(values) & 15)


# ---- what their list names as missing --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [bp.S4, bp.U4], ids=str)
@pytest.mark.parametrize(
    ("shape", "strides", "offset"),
    [
        ((8,), (-1,), 7), ((4,), (2,), 0), ((4,), (2,), 1), ((4,), (-2,), 7), ((5,), (3,), 2), ((3, 5), (0, 1), 1),
        ((3, 4), (1, 7), 0), ((7,), (0,), 3), ((2, 3, 4), (12, -4, 1), 8), ((1,), (5,), 9), ((0, 4), (4, 1), 0),
    ],
)  # fmt: skip
def test_nibbles_at_any_stride(
    backend: str, kind: ElementKind, shape: tuple[int, ...], strides: tuple[int, ...], offset: int
) -> None:
    data = np.random.default_rng(0).integers(0, 256, 24, dtype=np.uint8)
    flat = nibbles_of(data.reshape(1, -1), (1, 48))[0]
    wanted = np.zeros(shape, np.uint8)
    for index in np.ndindex(*shape):
        wanted[index] = flat[offset + sum(i * s for i, s in zip(index, strides))]
    assert np.array_equal(packed(backend, data, kind, shape, strides, offset), wanted)


@pytest.mark.parametrize("kind", [k for k in ElementKind if not k.packed], ids=str)
def test_every_kind(backend: str, kind: ElementKind) -> None:
    raw = np.random.default_rng(0).integers(0, 256, (6, 35, kind.dtype.itemsize), dtype=np.uint8)
    data = raw[..., 0] > 127 if kind is bp.BOOL else raw.view(kind.dtype).reshape(6, 35)
    for view in (data.T, data[:, ::2], data[::-1, ::-1], data[2:5, 3:20], np.broadcast_to(data[:, None], (6, 2, 35))):
        check(backend, view)


@pytest.mark.parametrize("rank", [0, 4, 5, 6, 7, 8, 9, 12, 16])
def test_every_rank(backend: str, rank: int) -> None:
    data = ramp((2,) * rank, np.int16)
    check(backend, data.transpose(np.roll(np.arange(rank), 1)) if rank else data)


def test_offsets_empty_dimensions_and_strides_of_unit_axes(backend: str) -> None:
    x = ramp((6, 8))
    odd = as_strided(x, (1, 6, 1, 8), (12344, 32, -8, 4))
    for view in (x[2:, 3:], x[1:1], x[:, 4:4], x[None, :, None], odd, x[:, 5:6], x[5:6]):
        check(backend, view)


def test_overlapping_negative_and_broadcast_strides(backend: str) -> None:
    x = ramp((64,), np.float32)
    for shape, strides, offset in (
        ((5, 8), (4, 4), 0),
        ((5, 8), (-4, 4), 20),
        ((3, 4, 5), (0, -8, 4), 30),
        ((6, 6), (8, -4), 20),
    ):
        check(backend, as_strided(x[offset:], shape, strides))


@pytest.mark.parametrize("kind", [bp.U8, bp.BF16, bp.F32, bp.F64, bp.COMPLEX128], ids=str)
def test_large_transposes_of_odd_size(backend: str, kind: ElementKind) -> None:
    data = (
        np.random.default_rng(0)
        .integers(0, 256, (131, 257, kind.dtype.itemsize), dtype=np.uint8)
        .view(kind.dtype)[..., 0]
    )
    check(backend, data.T)
    check(backend, data[1:, 1:].T)
    check(backend, np.ascontiguousarray(data[:128, :256]).T)


@st.composite
def views(draw: st.DrawFn) -> np.ndarray:
    """as_strided at random inside one allocation: any sign, zero, overlapping."""
    kind = draw(st.sampled_from([bp.U8, bp.BF16, bp.F32, bp.F64, bp.COMPLEX128, bp.FP8_E4M3]))
    shape = tuple(draw(st.lists(st.integers(0, 7), max_size=5)))
    strides = tuple(draw(st.integers(-9, 9)) for _ in shape)
    low = sum(min(0, s * (n - 1)) for n, s in zip(shape, strides) if n)
    high = sum(max(0, s * (n - 1)) for n, s in zip(shape, strides) if n)
    size, itemsize = high - low + 1 + draw(st.integers(0, 3)), kind.dtype.itemsize
    raw = np.random.default_rng(1).integers(0, 256, size * itemsize, dtype=np.uint8)
    return np.ndarray(shape, kind.dtype, raw.data, -low * itemsize, tuple(s * itemsize for s in strides))


@given(views())
@settings(max_examples=150, deadline=None)
def test_random_views_match_numpy(view: np.ndarray) -> None:
    check("cpu", view)


@pytest.mark.gpu
@given(views())
@settings(max_examples=60, deadline=None)
def test_random_views_match_numpy_on_the_device(view: np.ndarray) -> None:
    check("cuda", view)


# ---- refusals --------------------------------------------------------------------------------------------------------


def test_outputs_that_do_not_fit_are_refused(backend: str) -> None:
    x = Slot(ramp((4, 6)).T, backend)
    cases: list[tuple[Any, type[bp.BaracudaError], str]] = [
        (np.zeros((4, 6), np.float32), bp.InvalidProblemError, "shape"),
        (np.zeros((6, 4), np.float64), bp.OperandTypeError, "must hold f32"),
        (np.zeros((4, 6), np.float32).T, bp.InvalidProblemError, "strides"),
        (np.zeros((6, 8), np.float32)[:, ::2], bp.InvalidProblemError, "strides"),
    ]
    for data, error, says in cases:
        out = Slot(data, backend)
        with pytest.raises(error) as caught:
            bp.contiguize(x.operand, out=out.operand, device=device_of(backend))
        readable(caught.value, "contiguize", "out", says)
        assert np.array_equal(out.image(), out.initial)


def test_an_output_over_its_input_is_refused(backend: str) -> None:
    x = Slot(ramp((4, 4)), backend)
    for view in (x.operand.T, x.operand, x.operand[::-1]):
        with pytest.raises(bp.OverlapError, match="out is written and shares memory with x"):
            bp.contiguize(view, out=x.operand, device=device_of(backend))
    assert np.array_equal(x.image(), x.initial)


def test_bin_is_refused_and_a_fresh_packed_output_is_a_buffer(backend: str) -> None:
    data = np.arange(8, dtype=np.uint8)
    with pytest.raises(bp.OperandTypeError, match="bin is not supported"):
        bp.contiguize(Slot(Packed(data, bp.BIN, (64,)), backend).operand, device=device_of(backend))
    copied = bp.contiguize(Slot(Packed(data, bp.S4, (16,)), backend).operand, device=device_of(backend))
    assert copied.element is bp.S4
    assert np.array_equal(copied.to_host(), data)


def test_a_descriptor_that_makes_no_sense_is_refused() -> None:
    for fields, says in (({"shape": (2, -1)}, "negative extent"), ({"shape": (2, 3), "x_strides": (1,)}, "x has 2")):
        with pytest.raises(bp.InvalidProblemError, match=says):
            bp.ContiguizePlan.select(bp.ContiguizeDescriptor(element="f32", **fields), device="sm_90a")
    with pytest.raises(bp.InvalidProblemError, match="not a sequence of integers"):
        bp.ContiguizeDescriptor(shape=(2.5,), element="f32")  # type: ignore[arg-type]


def test_a_view_beyond_32_bits_is_selected() -> None:
    desc = bp.ContiguizeDescriptor((2**17, 2**17), "u8", x_strides=(1, 2**17))
    for variant in ("transpose", "transpose_tile", "elements"):
        plan = bp.ContiguizePlan.select(desc, bp.PlanPreference(variant=variant), device="h200").compile()
        assert all(0 < n < 2**31 for config in plan.launch_config for n in config.grid)
