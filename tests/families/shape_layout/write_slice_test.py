"""write_slice: the seeds' cases, those their list names as missing, random windows, and every refusal."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import baracuda_py as bp
from baracuda_py.call.cache import plan_cache
from baracuda_py.ops.shape_layout import _ranges
from baracuda_py.samples import Packed
from baracuda_py.types import ElementKind

from ...arena import Slot, as_bytes
from ...gauntlet import readable
from .independent import nibbles_of

COVERS = ("write_slice",)
Ranges = list[tuple[int, int]]


def device_of(backend: str) -> Any:
    return "cpu" if backend == "cpu" else None


def write(backend: str, dest: Any, source: Any, ranges: Any, **options: Any) -> tuple[Slot, Slot]:
    """Runs it on guarded memory, and checks that the source is unchanged and dest itself is returned."""
    d, s = Slot(dest, backend), Slot(source, backend)
    returned = bp.write_slice(d.operand, s.operand, ranges, device=device_of(backend), **options)
    assert returned is d.operand
    assert np.array_equal(s.image(), s.initial), "the source was changed"
    return d, s


def check(backend: str, dest: np.ndarray, source: np.ndarray, ranges: Ranges) -> None:
    """The whole memory against NumPy's own assignment, guard bytes and gaps included."""
    d, s = write(backend, dest, source, ranges)
    wanted = d.initial.copy()
    as_bytes(d.view(wanted))[tuple(slice(a, b) for a, b in ranges)] = as_bytes(s.view(s.initial))
    assert np.array_equal(d.image(), wanted)


def numbers(shape: tuple[int, ...], kind: ElementKind, first: float = 0.0, step: float = 1.0) -> np.ndarray:
    return (np.arange(int(np.prod(shape))) * step + first).reshape(shape).astype(kind.dtype)


def bits(shape: tuple[int, ...], kind: ElementKind, seed: int = 0) -> np.ndarray:
    """Raw bits: NaN payloads, subnormals, everything."""
    raw = np.random.default_rng(seed).integers(0, 256, (*shape, kind.dtype.itemsize), dtype=np.uint8)
    if kind is ElementKind.BOOL:
        return (raw[..., 0] & 1).astype(bool)
    return raw.view(kind.dtype).reshape(shape)


# ---- the seeds' nine cases -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "shape", "row"),
    [(bp.F32, (32, 4, 64), 7), (bp.F16, (16, 2, 32), 3), (bp.BF16, (12, 3, 16), 5), (bp.F64, (8, 2, 16), 2)],
    ids=["f32", "f16", "bf16", "f64"],
)
def test_kv_cache_append(backend: str, kind: ElementKind, shape: tuple[int, ...], row: int) -> None:
    ranges = [(row, row + 1), *((0, n) for n in shape[1:])]
    check(backend, numbers(shape, kind, 0, 0.001), numbers((1, *shape[1:]), kind, 1000), ranges)
    desc = bp.WriteSliceDescriptor(shape, ranges, kind)
    assert bp.WriteSlicePlan.select(desc, device="sm_90a").sku.variant == "contiguous_chunk"


def test_interior_2d_f32(backend: str) -> None:
    check(backend, numbers((16, 20), bp.F32, -5, 0.1), numbers((5, 7), bp.F32), [(4, 9), (8, 15)])


def test_1d_i32(backend: str) -> None:
    check(backend, numbers((32,), bp.I32, 0, 10), numbers((8,), bp.I32, 999, -1), [(10, 18)])


def test_nibble_s4_rank_2(backend: str) -> None:
    dest = (np.arange(16) * 17 % 256).astype(np.uint8).reshape(4, 4)
    source = (0xA0 | np.arange(4)).astype(np.uint8).reshape(2, 2)
    d, _ = write(backend, Packed(dest, bp.S4, (4, 8)), Packed(source, bp.S4, (2, 4)), [(1, 3), (2, 6)])
    wanted = dest.copy()
    wanted[1:3, 1:3] = source
    assert np.array_equal(d.image(), d.expected(wanted))


# ---- what the seeds' list names as missing ---------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [k for k in ElementKind if not k.packed], ids=str)
def test_every_kind_by_its_bits(backend: str, kind: ElementKind) -> None:
    """1- to 16-byte elements, bool, fp8 and complex, NaN payloads kept."""
    for shape, ranges in (((9, 11), [(2, 7), (3, 10)]), ((6, 8), [(0, 6), (0, 8)]), ((40,), [(1, 40)])):
        extents = tuple(b - a for a, b in ranges)
        check(backend, bits(shape, kind, 1), bits(extents, kind, 2), ranges)


def test_the_whole_destination(backend: str) -> None:
    check(backend, numbers((6, 10), bp.F32), numbers((6, 10), bp.F32, 100), [(0, 6), (0, 10)])
    whole = bp.WriteSliceDescriptor((6, 10), [(0, 6), (0, 10)], "f32")
    assert bp.WriteSlicePlan.select(whole, device="sm_90a").sku.variant == "whole_dest"


@pytest.mark.parametrize(
    ("shape", "ranges"), [((5, 7), [(2, 2), (0, 7)]), ((5, 7), [(5, 5), (0, 7)]), ((0, 4), [(0, 0), (1, 3)])]
)
def test_an_empty_window_launches_nothing(backend: str, shape: tuple[int, ...], ranges: Ranges) -> None:
    extents = tuple(b - a for a, b in ranges)
    check(backend, numbers(shape, bp.F32), numbers(extents, bp.F32), ranges)
    plan = bp.WriteSlicePlan.select(bp.WriteSliceDescriptor(shape, ranges, "f32"), device="sm_90a")
    assert plan.kernels == () and plan.workspace_size == 0 and plan.launch_config == ()


@pytest.mark.parametrize("rank", range(1, 13))
def test_ranks_up_to_twelve(backend: str, rank: int) -> None:
    shape = tuple(3 if axis % 2 else 2 for axis in range(rank))
    ranges = [(1, n) if axis in (1, rank - 1) else (0, n) for axis, n in enumerate(shape)]
    check(backend, bits(shape, bp.BF16), bits(tuple(b - a for a, b in ranges), bp.BF16), ranges)


@pytest.mark.parametrize("kind", [bp.S4, bp.U4], ids=str)
@pytest.mark.parametrize(
    ("columns", "a", "b"), [(8, 1, 5), (8, 1, 6), (7, 0, 7), (7, 3, 7), (9, 8, 9), (2, 1, 2), (33, 1, 32)]
)
def test_nibbles_at_odd_bounds(backend: str, kind: ElementKind, columns: int, a: int, b: int) -> None:
    """An odd start or end cuts a byte: its other nibble, and the spare one of an odd row, stay."""
    rng = np.random.default_rng(0)
    dest = rng.integers(0, 256, (3, (columns + 1) // 2), dtype=np.uint8)
    source = rng.integers(0, 256, (2, (b - a + 1) // 2), dtype=np.uint8)
    for _ in range(2):  # the second time from the plan cache
        d, _s = write(backend, Packed(dest, kind, (3, columns)), Packed(source, kind, (2, b - a)), [(1, 3), (a, b)])
        got = d.view(d.image())
        wanted = nibbles_of(dest, (3, columns))
        wanted[1:3, a:b] = nibbles_of(source, (2, b - a))
        assert np.array_equal(nibbles_of(got, (3, columns)), wanted)
        if columns % 2:
            assert np.array_equal(got[:, -1] >> 4, dest[:, -1] >> 4)
        assert np.array_equal(d.image()[: d.offset], d.initial[: d.offset])
        assert np.array_equal(d.image()[d.offset + dest.size :], d.initial[d.offset + dest.size :])


def test_nibbles_of_another_parity_do_not_share_a_plan(backend: str) -> None:
    rng = np.random.default_rng(0)
    for a in (0, 1, 2, 3):
        dest, source = rng.integers(0, 256, (2, 4), dtype=np.uint8), rng.integers(0, 256, (2, 2), dtype=np.uint8)
        d, _ = write(backend, Packed(dest, bp.U4, (2, 8)), Packed(source, bp.U4, (2, 4)), [(0, 2), (a, a + 4)])
        wanted = nibbles_of(dest, (2, 8))
        wanted[:, a : a + 4] = nibbles_of(source, (2, 4))
        assert np.array_equal(nibbles_of(d.view(d.image()), (2, 8)), wanted)


SIDES: list[Callable[[np.ndarray], np.ndarray]] = [
    lambda x: x,
    np.asfortranarray,
    lambda x: np.repeat(x, 2, axis=-1)[..., ::2],
    lambda x: x[::-1].copy()[::-1],
    lambda x: np.concatenate([x, x], axis=-1)[..., : x.shape[-1]],
    lambda x: np.ascontiguousarray(x[..., ::-1])[..., ::-1],
]


@pytest.mark.parametrize("kind", [bp.BF16, bp.F32, bp.COMPLEX128], ids=str)
def test_strided_sides(backend: str, kind: ElementKind) -> None:
    for d in SIDES:
        for s in SIDES:
            check(backend, d(bits((12, 20), kind, 1)), s(bits((7, 9), kind, 2)), [(3, 10), (8, 17)])


def test_a_broadcast_source(backend: str) -> None:
    row = np.broadcast_to(numbers((1, 9), bp.F32, 50), (7, 9))
    check(backend, numbers((12, 20), bp.F32), row, [(3, 10), (8, 17)])


def test_slices_negative_ends_and_numpy_ints(backend: str) -> None:
    dest, source = numbers((6, 8), bp.F32), numbers((2, 8), bp.F32, 100)
    for ranges in ([slice(2, 4), slice(None)], [(np.int64(2), np.int32(4)), (0, 8)], [[2, 4], slice(0, 8, 1)]):
        d, s = write(backend, dest, source, ranges)
        wanted = dest.copy()
        wanted[2:4] = source
        assert np.array_equal(d.image(), d.expected(wanted))
        del s


@st.composite
def windows(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, Ranges]:
    """Any kind, rank, window, and any strides on both sides (steps, gaps, reversals, permutations)."""
    kind = draw(st.sampled_from([k for k in ElementKind if not k.packed]))
    shape = tuple(draw(st.lists(st.integers(0, 6), min_size=1, max_size=5)))
    ranges = []
    for n in shape:
        a = draw(st.integers(0, n))
        ranges.append((a, draw(st.integers(a, n))))

    def laid(extents: tuple[int, ...], seed: int) -> np.ndarray:
        steps = [draw(st.sampled_from([1, 1, 2, -1, -3])) for _ in extents]
        order = draw(st.permutations(range(len(extents))))
        whole = bits(tuple(extents[a] * abs(steps[a]) + draw(st.integers(0, 2)) for a in order), kind, seed)
        back = whole.transpose(np.argsort(order))
        cut = tuple(slice(0, n * abs(t)) for n, t in zip(extents, steps))
        return back[cut][tuple(slice(None, None, t) for t in steps)]

    return laid(shape, 1), laid(tuple(b - a for a, b in ranges), 2), ranges


@given(windows())
@settings(max_examples=150, deadline=None)
def test_random_windows_match_numpy(case: tuple[np.ndarray, np.ndarray, Ranges]) -> None:
    check("cpu", *case)


@pytest.mark.gpu
@given(windows())
@settings(max_examples=60, deadline=None)
def test_random_windows_match_numpy_on_the_device(case: tuple[np.ndarray, np.ndarray, Ranges]) -> None:
    check("cuda", *case)


@given(windows())
@example((bits((2, 2), bp.F16, 1)[::2, :1][:1], np.empty((0, 0), np.float16), [(1, 1), (0, 0)]))
@example((bits((4, 3), bp.F16, 1)[::4], np.empty((0, 3), np.float16), [(1, 1), (0, 3)]))
@settings(max_examples=100, deadline=None)
def test_functions_and_descriptors_begin_alike(case: tuple[np.ndarray, np.ndarray, Ranges]) -> None:
    """Strides of axes of one element mean nothing, so that the two may read different ones."""
    dest, source, ranges = case
    desc = bp.WriteSliceDescriptor.of(dest, source, ranges)
    with mock.patch.object(_ranges, "byte_strides", lambda x: x.strides):  # which it reads of arrays on a GPU only
        read = [_ranges.window_of(dest, given)[0] for given in (ranges, np.array(ranges))]
    assert read == [desc.displacement()] * 2


# ---- a start read at launch ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("shape", "axis"), [((1, 8, 64, 16), 2), ((64, 8, 16), 0)])
@pytest.mark.parametrize("kind", [bp.U8, bp.BF16, bp.F32, bp.F64, bp.COMPLEX128], ids=str)
def test_a_start_on_the_device_sweeps_the_cache(
    backend: str, shape: tuple[int, ...], axis: int, kind: ElementKind
) -> None:
    """The seeds' harness: every position's rows correct, and every earlier row preserved, in one accumulated cache."""
    extent = shape[axis]
    d = Slot(bits(shape, kind), backend)
    mirror = d.view(d.initial.copy())
    ranges = [(0, 1) if a == axis else (0, n) for a, n in enumerate(shape)]
    k_block = tuple(1 if a == axis else n for a, n in enumerate(shape))
    for seed, start in enumerate((0, 1, 7, extent // 2, extent - 1)):
        source = Slot(bits(k_block, kind, seed + 10), backend)
        where, status = Slot(np.array(start, np.int64), backend), Slot(np.array(9, np.int32), backend)
        bp.write_slice(
            d.operand,
            source.operand,
            ranges,
            dynamic_axis=axis,
            start=where.operand,
            status=status.operand,
            device=device_of(backend),
        )
        as_bytes(mirror)[tuple(slice(start, start + 1) if a == axis else slice(None) for a in range(len(shape)))] = (
            as_bytes(source.view(source.initial))
        )
        assert np.array_equal(d.image(), d.expected(mirror))
        assert int(status.view(status.image())) == 0


@pytest.mark.parametrize("start", [-1, 6, 2**40, -(2**62)])
def test_a_start_out_of_range_writes_nothing_and_says_so(backend: str, start: int) -> None:
    d, s = Slot(numbers((8, 4), bp.F32), backend), Slot(numbers((3, 4), bp.F32, 100), backend)
    where, status = Slot(np.array(start, np.int64), backend), Slot(np.array(0, np.int32), backend)
    given = {"dynamic_axis": 0, "start": where.operand, "device": device_of(backend)}
    bp.write_slice(d.operand, s.operand, [(0, 3), (0, 4)], status=status.operand, **given)
    assert np.array_equal(d.image(), d.initial)
    assert int(status.view(status.image())) == 1
    raises = pytest.raises(
        bp.InvalidProblemError, match=rf"write_slice: start={start} is out of range: .*: give 0 to 5"
    )
    with raises if backend == "cpu" else contextlib.nullcontext():
        bp.write_slice(d.operand, s.operand, [(0, 3), (0, 4)], **given)
    assert np.array_equal(d.image(), d.initial)


# ---- NumPy's indices and sources -------------------------------------------------------------------------------------

INDICES = [
    (np.s_[1:], (2, 4, 5)), (np.s_[1:, ..., -1], (2, 4)), (np.s_[2], (4, 5)), (np.s_[-1, :, 1:3], (4, 2)),
    (np.s_[...], (3, 4, 5)),
    (np.s_[..., 0], (3, 4)), (np.s_[:, 1], (3, 5)), (np.s_[:, 1], (5,)), (np.s_[1:], ()), (np.s_[0, 1], (1, 1, 5)),
    (np.s_[:, 1], (1, 3, 5)), (np.s_[:-1, -2:], (2, 1, 5)), (np.s_[:, 1], (3, 1)), (np.s_[0, 0, 0], ()), (np.s_[1:1], (5,)),
    (np.s_[np.int64(2), np.int8(-1)], (5,)),
]  # fmt: skip


@pytest.mark.parametrize(("ranges", "shape"), INDICES, ids=str)
def test_write_slice_indices_and_sources_of_numpy(backend: str, ranges: Any, shape: tuple[int, ...]) -> None:
    d, s = write(backend, numbers((3, 4, 5), bp.F32), numbers(shape, bp.F32, 100), ranges)
    wanted = d.initial.copy()
    d.view(wanted)[ranges] = s.view(s.initial)
    assert np.array_equal(d.image(), wanted)


def test_write_slice_mixes_pairs_and_indices(backend: str) -> None:
    d, s = write(backend, numbers((3, 4, 5), bp.F32), numbers((2, 4), bp.F32, 100), [(0, 2), 1, slice(1, None)])
    wanted = d.initial.copy()
    d.view(wanted)[0:2, 1, 1:] = s.view(s.initial)
    assert np.array_equal(d.image(), wanted)


@pytest.mark.parametrize("number", [2.5, 3, True, np.float32(1.5), np.int64(4), np.float64(0.1)])
@pytest.mark.parametrize("kind", [bp.F32, bp.BF16, bp.FP8_E4M3, bp.COMPLEX64])
@pytest.mark.parametrize("device", ["cpu", "ptx"])
def test_write_slice_fills_a_window(device: str, kind: ElementKind, number: Any) -> None:
    dest = np.zeros((3, 8), kind.dtype)
    wanted = dest.copy()
    wanted[1:, -3:] = number
    bp.write_slice(dest, number, np.s_[1:, -3:], device=device)
    assert as_bytes(dest).tobytes() == as_bytes(wanted).tobytes()


@pytest.mark.parametrize("device", ["cpu", "ptx"])
def test_write_slice_fills_from_a_device_start(device: str) -> None:
    dest, row = np.zeros((3, 4), np.float32), np.arange(1, 5, dtype=np.float32)
    bp.write_slice(dest, 7, np.s_[0:1], dynamic_axis=0, start=np.array(2), device=device)
    bp.write_slice(dest, row, np.s_[0], dynamic_axis=0, start=np.array(1), device=device)
    assert np.array_equal(dest, [[0] * 4, row, [7] * 4])


@pytest.mark.parametrize(
    ("kind", "number", "says"),
    [("u1", 300, "out of range for u8"), ("i4", 1.5, "dest holds i32"), ("f2", 1e6, "out of range for f16"),
     ("?", 2, "dest holds bool"), ("f4", 1j, "dest holds f32"), ("i4", np.nan, "dest holds i32"),
     ("i4", -(2**40), "out of range"),
     ("f4", 10**400, "out of range")],
)  # fmt: skip
def test_write_slice_refuses_numbers_that_do_not_fit(kind: str, number: Any, says: str) -> None:
    dest = np.zeros(4, kind)
    with pytest.raises(bp.BaracudaError, match=says) as caught:
        bp.write_slice(dest, number, np.s_[1:], device="cpu")
    readable(caught.value, "write_slice", "source is the number")
    assert not dest.any()


def test_write_slice_broadcasts_in_place_of_torch() -> None:
    torch = pytest.importorskip("torch")
    dest = torch.zeros(3, 4)
    bp.write_slice(dest, torch.arange(4.0), np.s_[1:], device="ptx")
    bp.write_slice(dest, 5, np.s_[0, -1], device="ptx")
    assert dest.tolist() == [[0, 0, 0, 5], [0, 1, 2, 3], [0, 1, 2, 3]]


@pytest.mark.timeout(300)
def test_write_slice_indices_of_numpy_are_compiled_by_torch() -> None:
    torch = pytest.importorskip("torch")
    for ranges, shape in (
        (np.s_[1:, -1], (2,)),
        (np.s_[0], (4,)),
        (np.s_[..., 1:], (3, 3)),
        ([(0, 1), slice(-2, None)], (1, 2)),
    ):
        dest, source = torch.zeros(3, 4), torch.arange(1.0, 1 + np.prod(shape)).reshape(shape)
        wanted = bp.write_slice(dest.clone(), source, ranges, device="cpu")
        compiled = torch.compile(
            lambda d, s, at=ranges: bp.write_slice(d, s, at, device="cpu"), backend="eager", fullgraph=True
        )
        assert torch.equal(compiled(dest, source), wanted) and wanted.any()


# ---- refusals --------------------------------------------------------------------------------------------------------

BAD_RANGES = [
    ([(14, 18), (0, 4)], "reaches beyond dest's extent 16"),
    ([(5, 3), (0, 4)], "reversed"),
    ([(-2, 2), (0, 4)], "negative starts do not wrap"),
    ([(0, 4)], "1 ranges for a dest of rank 2"),
    ([(0, 4), (0, 4), (0, 1)], "3 ranges"),
    ([(0, 4), "ab"], "not pairs of integers"),
    ([(0, 4), (0.0, 4.0)], "not pairs of integers"),
    ([(0, 4), (0, 4, 1)], "not pairs of integers"),
    ([slice(0, 8, 2), (0, 4)], "step of 1"),
    (7.0, "not pairs of integers"),
    ([0, 1], "not pairs of integers"),
    ((0, None), "not pairs of integers"),
    ((..., ...), "not pairs of integers"),
    (16, "ranges[0] is 16, and dest has 16 there: give -16 to 15"),
    ((0, -9), "ranges[1] is -9"),
    (np.s_[0:4, -9:], "ranges[1] = slice(-9, None, None) reaches beyond dest's extent 8"),
    (np.s_[17:], "reaches beyond dest's extent 16"),
    (np.s_[14:18], "reaches beyond dest's extent 16"),
    (np.s_[:, :, 0], "3 ranges for a dest of rank 2"),
    ([(0, 2**70), (0, 4)], "reaches beyond"),
]


@pytest.mark.parametrize(("ranges", "says"), BAD_RANGES)
def test_a_bad_window_is_refused(backend: str, ranges: Any, says: str) -> None:
    d, s = Slot(numbers((16, 8), bp.F32), backend), Slot(numbers((4, 4), bp.F32), backend)
    with pytest.raises(bp.InvalidProblemError) as caught:
        bp.write_slice(d.operand, s.operand, ranges, device=device_of(backend))
    readable(caught.value, "write_slice", says)
    assert np.array_equal(d.image(), d.initial)


def _refused(backend: str, error: type[Exception], says: str, dest: Any, source: Any, ranges: Any) -> None:
    with pytest.raises(error) as caught:
        bp.write_slice(dest, source, ranges, device=device_of(backend))
    readable(caught.value, "write_slice", says)


def test_operands_that_do_not_fit_are_refused(backend: str) -> None:
    d, s = Slot(numbers((16, 8), bp.F32), backend), Slot(numbers((4, 4), bp.F32), backend)
    window = [(0, 4), (0, 4)]
    wrong = Slot(numbers((4, 4), bp.F64), backend)
    flat = Slot(numbers((16,), bp.F32), backend)
    _refused(backend, bp.OperandTypeError, "source must hold f32", d.operand, wrong.operand, window)
    _refused(backend, bp.InvalidProblemError, "window's shape (4, 4)", d.operand, flat.operand, window)
    _refused(backend, bp.InvalidProblemError, "window's shape (4, 5)", d.operand, s.operand, [(0, 4), (0, 5)])
    _refused(backend, bp.InvalidProblemError, "window's shape (1, 8)", d.operand, s.operand, np.s_[0])
    scalar = Slot(np.array(1, np.float32), backend).operand
    _refused(backend, bp.InvalidProblemError, "rank 0", scalar, Slot(np.array(1, np.float32), backend).operand, [])
    assert np.array_equal(d.image(), d.initial)


def test_bin_is_refused(backend: str) -> None:
    data = np.arange(16, dtype=np.uint8).reshape(4, 4)
    d, s = Slot(Packed(data, bp.BIN, (4, 32)), backend), Slot(Packed(data, bp.BIN, (4, 32)), backend)
    with pytest.raises(bp.OperandTypeError, match=r"bin is not supported.*view the bytes as u8"):
        bp.write_slice(d.operand, s.operand, [(0, 4), (0, 32)], device=device_of(backend))
    assert np.array_equal(d.image(), d.initial)
    with pytest.raises(bp.OperandTypeError, match="bin"):
        bp.WriteSlicePlan.select(bp.WriteSliceDescriptor((4, 32), [(0, 4), (0, 32)], "bin"), device="sm_90a")


def test_a_read_only_destination_is_refused() -> None:
    dest = numbers((4, 4), bp.F32)
    dest.flags.writeable = False
    _refused("cpu", bp.OperandTypeError, "read-only", dest, numbers((1, 4), bp.F32), [(0, 1), (0, 4)])


def test_a_destination_that_repeats_elements_is_refused(backend: str) -> None:
    base = Slot(np.broadcast_to(np.float32([1]), (4, 4)), backend)
    s = Slot(numbers((2, 4), bp.F32), backend)
    _refused(
        backend, bp.OverlapError, "reach one element by several indices", base.operand, s.operand, [(0, 2), (0, 4)]
    )
    assert np.array_equal(base.image(), base.initial)


def test_overlap_is_decided_on_the_bytes_of_the_window(backend: str) -> None:
    d = Slot(numbers((8, 4), bp.F32), backend)
    x = d.operand
    _refused(backend, bp.OverlapError, "shares memory with source", x, x[1:3], [(2, 4), (0, 4)])
    _refused(backend, bp.OverlapError, "shares memory with source", x, x[2:4], [(2, 4), (0, 4)])
    assert np.array_equal(d.image(), d.initial)
    bp.write_slice(x, x[4:6], [(2, 4), (0, 4)], device=device_of(backend))  # beside the window: fine
    wanted = numbers((8, 4), bp.F32)
    wanted[2:4] = wanted[4:6]
    assert np.array_equal(d.image(), d.expected(wanted))
    d.reset()
    bp.write_slice(x[:, ::2], x[:, 1::2], [(0, 8), (0, 2)], device=device_of(backend))  # interleaved, sharing no byte
    wanted = numbers((8, 4), bp.F32)
    wanted[:, ::2] = wanted[:, 1::2]
    assert np.array_equal(d.image(), d.expected(wanted))


def test_what_is_no_array_is_refused(backend: str) -> None:
    d = Slot(numbers((4, 4), bp.F32), backend)
    for x in (None, "text", [[1.0, 2.0]]):
        with pytest.raises(bp.BaracudaError):
            bp.write_slice(d.operand, x, [(0, 1), (0, 4)], device=device_of(backend))
        with pytest.raises(bp.BaracudaError):
            bp.write_slice(x, d.operand, [(0, 4), (0, 4)], device=device_of(backend))
    assert np.array_equal(d.image(), d.initial)


@pytest.mark.gpu
def test_host_arrays_and_short_buffers_are_refused_on_the_device() -> None:
    import cupy

    d = Slot(numbers((16, 8), bp.F32), "cuda")
    _refused("cuda", bp.OperandTypeError, "cupy.asarray", d.operand, numbers((4, 8), bp.F32), [(0, 4), (0, 8)])
    # Memory that CuPy allocated itself: a size that it only guesses, or that a user states, is not believed.
    short = cupy.ndarray((32, 8), np.float32, cupy.cuda.MemoryPointer(cupy.cuda.Memory(512), 0))
    with pytest.raises(bp.BufferTooSmallError) as caught:
        bp.write_slice(short, Slot(numbers((4, 8), bp.F32), "cuda").operand, [(0, 4), (0, 8)])
    assert (caught.value.needed, caught.value.got) == (1024, 512)
    assert np.array_equal(d.image(), d.initial)


# ---- plans -----------------------------------------------------------------------------------------------------------


def test_a_decode_loop_of_8192_appends_makes_one_plan() -> None:
    cache = np.zeros((8192, 2, 8), np.float32)
    token = np.ones((1, 2, 8), np.float32)
    plan_cache.clear()
    with bp.device("cpu"):
        for position in range(8192):
            bp.write_slice(cache, token, [(position, position + 1), (0, 2), (0, 8)])
    assert plan_cache.info().plans == 1
    assert plan_cache.info().misses == 1
    assert cache.all()


def test_a_plan_moves_its_window_with_start(backend: str) -> None:
    d, s = Slot(numbers((8, 4), bp.F32), backend), Slot(numbers((2, 4), bp.F32, 100), backend)
    desc = bp.WriteSliceDescriptor.of(d.operand, s.operand, [(0, 2), (0, 4)])
    plan = bp.WriteSlicePlan.select(desc, device=device_of(backend))
    bound = plan.bind(dest=d.operand, source=s.operand)
    for start in (0, 3, 6):
        wanted = numbers((8, 4), bp.F32)
        wanted[start : start + 2] = numbers((2, 4), bp.F32, 100)
        d.reset()
        plan.run(dest=d.operand, source=s.operand, start=(start, 0))
        assert np.array_equal(d.image(), d.expected(wanted))
        d.reset()
        bound.update(start=(np.int64(start), 0))()
        assert np.array_equal(d.image(), d.expected(wanted))
    d.reset()
    for start in ((7, 0), (-1, 0), (0,), (0, 0, 0), (0, 1), "ab"):
        with pytest.raises(bp.InvalidProblemError, match="write_slice"):
            plan.run(dest=d.operand, source=s.operand, start=start)
    assert np.array_equal(d.image(), d.initial)


def test_the_copy_of_a_whole_destination_equals_a_plain_copy(backend: str) -> None:
    x = bits((64, 33), bp.BF16)
    d, _ = write(backend, np.zeros_like(x), x, [(0, 64), (0, 33)])
    assert np.array_equal(as_bytes(d.view(d.image())), as_bytes(x))


def test_extents_beyond_32_bits_select_64_bit_indices() -> None:
    plan = bp.WriteSlicePlan.select(bp.WriteSliceDescriptor((2**33, 2), [(5, 2**33), (0, 1)], "u8"), device="sm_90a")
    assert plan.cost.bytes == 2 * (2**33 - 5)
    pref = bp.PlanPreference(variant="elements")
    plan = bp.WriteSlicePlan.select(plan.desc, pref, device="sm_90a").compile()
    assert all("u64" in kernel.name for kernel in plan.kernels)
    assert plan.launch_config[0].grid[0] < 2**31


@pytest.mark.parametrize("row", range(7))
def test_a_moving_window_may_meet_its_source_wherever_it_starts(row: int) -> None:
    """The host does not know the start, so every row that it may be counts as written."""
    dest = np.zeros((8, 4), np.float32)
    start = np.zeros((), np.int64)
    with pytest.raises(bp.OverlapError):
        bp.write_slice(dest, dest[row : row + 2], [(0, 2), (0, 4)], dynamic_axis=0, start=start, device="cpu")


def test_rows_that_share_bytes_are_written_separately() -> None:
    """Rows of three nibbles, end to end: a window leaves the nibbles beside it as they were, also in its own bytes."""
    rng = np.random.default_rng(3)
    flat = rng.integers(0, 256, 8, np.uint8)
    before = np.stack([flat & 15, flat >> 4], 1).reshape(-1)
    dest = bp.GpuBuffer.view(flat, "u4").strided((4, 3), (3, 1))
    source = bp.GpuBuffer.view(rng.integers(0, 256, (2, 1), np.uint8), "u4")
    bp.write_slice(dest, source, [(1, 3), (1, 3)], device="cpu")
    wanted = before.copy()
    wanted[[4, 5, 7, 8]] = np.stack([source.array & 15, source.array >> 4], -1).reshape(-1)
    assert (np.stack([flat & 15, flat >> 4], 1).reshape(-1) == wanted).all()


@pytest.mark.parametrize("kind", [bp.F32, bp.U4], ids=str)
def test_write_slice_refuses_overlapping_rows_on_the_host(kind: ElementKind) -> None:
    """The window itself does not: but on the host the whole destination is written, the rest of it as it was."""
    if kind is bp.F32:
        held = np.zeros(17, np.float32)
        dest, source = np.lib.stride_tricks.as_strided(held, (8, 3), (8, 4)), np.ones((8, 2), np.float32)
    else:
        held = np.zeros(9, np.uint8)
        dest = bp.GpuBuffer.view(held, "u4").strided((8, 3), (2, 1))
        source = bp.GpuBuffer.view(np.full((8, 1), 0x11, np.uint8), "u4")
    with pytest.raises(bp.OverlapError, match=r"dest is written, and .* interleave"):
        bp.write_slice(dest, source, [(0, 8), (1, 3)], device="cpu")
    assert not held.any()
