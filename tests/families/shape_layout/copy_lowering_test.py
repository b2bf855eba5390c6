"""What copies tell their kernels: each launch is walked in NumPy as the kernel walks it, every access checked.

An access must be aligned to its size and be in elements of the operand, no byte is written twice, and the window is the
source's in the end. Addresses are aligned to what the descriptor promises and to no more.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.ops.shape_layout._candidates import COPY_CANDIDATES
from baracuda_py.ops.shape_layout._walks import CopyProblem
from baracuda_py.plan.about.tune import admissible
from baracuda_py.runtime.steps import Copy, Copy2D, Launch, Ptr
from baracuda_py.types import DeviceSpec, PlanPreference

from .walk import divide, locate, template

Array = np.ndarray[Any, Any]
H200 = DeviceSpec.named("h200")
CHUNK, SECTOR = 16, 32


# ---- memory ----------------------------------------------------------------------------------------------------------


class Side:
    """An operand's bytes between two addresses; `belongs` marks those of its elements."""

    def __init__(self, strides: tuple[int, ...], shape: tuple[int, ...], width: int, align: int, seed: int) -> None:
        steps = [(s * width * (n - 1)) for s, n in zip(strides, shape)]
        low, high = sum(min(0, s) for s in steps), sum(max(0, s) for s in steps) + width
        self.pointer = 4096 + align  # a multiple of `align`, and of nothing larger up to 32
        self.low = self.pointer + low - CHUNK * 4
        self.bytes = np.random.default_rng(seed).integers(0, 256, high - low + CHUNK * 8, dtype=np.uint8)
        places = [np.arange(n) * s * width for n, s in zip(shape, strides)]
        index = sum(np.ix_(*places), np.zeros((1,) * len(shape), np.int64)) if shape else np.zeros((), np.int64)
        self.places = (np.asarray(index)[..., None] + np.arange(width)) + (self.pointer - self.low)
        self.belongs = np.zeros(len(self.bytes), bool)
        self.belongs[self.places] = True
        self.written = np.zeros(len(self.bytes), np.int64)

    def _at(self, addresses: Array, size: int) -> Array:
        assert not (addresses % size).any(), f"an access of {size} bytes is misaligned"
        at = (addresses - self.low)[:, None] + np.arange(size)
        assert not len(at) or (at.min() >= 0 and at.max() < len(self.bytes)), "an access is far outside"
        assert self.belongs[at].all(), f"an access of {size} bytes lies outside the elements"
        return at

    def load(self, addresses: Array, size: int) -> Array:
        return self.bytes[self._at(addresses, size)]

    def store(self, addresses: Array, values: Array) -> None:
        at = self._at(addresses, values.shape[1])
        np.add.at(self.written, at.ravel(), 1)
        self.bytes[at] = values


# ---- kernels/include/core/index.cuh and kernels/shape_layout ----------------------------------------------------------------


def divisor_of(packed: bytes, index: str) -> int:
    return int(struct.unpack("<I" if index == "u32" else "<Q", packed[: 4 if index == "u32" else 8])[0])


def in_run(i: Array, packed: bytes, index: str) -> tuple[Array, Array]:
    """Which run an index is of, and which of the run's it is."""
    run = divide(i, packed, index).astype(np.int64)
    return run, i - run * divisor_of(packed, index)


def gaps_of(packed: bytes, axes: int, index: str) -> bytes:
    """Gaps of kernels/shape_layout/copy.cu as Dims: 64-bit steps."""
    head, step = 16 * max(axes, 1), "i" if index == "u32" else "q"
    gaps = struct.unpack(f"<{2 * max(axes, 1)}{step}", packed[head:])
    return packed[:head] + struct.pack(f"<{len(gaps)}q", *gaps)


def every(step: Launch, count: int, unroll: int) -> Array:
    """The indices of all threads that have work."""
    threads = math.prod(step.grid) * math.prod(step.block) * unroll
    assert count <= threads < count + math.prod(step.block) * unroll or step.grid[0] == 1
    return np.arange(min(threads, count), dtype=np.int64)


def copy_runs(step: Launch, of: list[str], dest: Side, source: Side) -> None:
    index, (axes, grain, _ends, unroll) = of[0], map(int, of[1:])
    length, chunks = int(step.args[2]), int(step.args[3])
    run, of_run = in_run(every(step, chunks, unroll), step.args[4].data, index)
    offsets = locate(run, step.args[5].data, axes, 2, index)
    run_dest, run_source = dest.pointer + offsets[0], source.pointer + offsets[1]
    lag = run_dest - run_source
    to = run_dest // CHUNK * CHUNK + of_run * CHUNK
    origin = (to - lag) // CHUNK * CHUNK
    whole = (to >= run_dest) & (to + CHUNK <= run_dest + length)
    whole &= (origin >= run_source) & (origin + 2 * CHUNK <= run_source + length)
    if grain == CHUNK:
        dest.store(to, source.load(to - lag, CHUNK))
        return
    shift = (to - lag - origin)[whole]
    words = np.concatenate([source.load(origin[whole], CHUNK), np.zeros((len(shift), CHUNK), np.uint8)], axis=1)
    words[shift > 0, CHUNK:] = source.load(origin[whole][shift > 0] + CHUNK, CHUNK)
    dest.store(to[whole], np.take_along_axis(words, shift[:, None] + np.arange(CHUNK), 1))
    at = np.maximum(to, run_dest)[~whole]
    last, behind = np.minimum(to + CHUNK, run_dest + length)[~whole], lag[~whole]
    while (at < last).any():
        at, last, behind = at[at < last], last[at < last], behind[at < last]
        dest.store(at, source.load(at - behind, grain))
        at = at + grain


def copy_slots(step: Launch, of: list[str], dest: Side, source: Side) -> None:
    index, (axes, width, unroll), sectors = of[0], map(int, of[1:4]), of[4] == "true"
    length, slots = int(step.args[2]), int(step.args[3])
    slot = every(step, slots, unroll)
    run, of_run = in_run(slot, step.args[4].data, index)
    gaps = locate(run, gaps_of(step.args[5].data, axes, index), axes, 2, index)
    starts = [side.pointer + arg.offset for side, arg in zip((dest, source), step.args[:2])]
    to, of_source = (start + slot * width + gap for start, gap in zip(starts, gaps))
    if sectors:
        within = of_run * width
        phase = (to - within) % SECTOR
        yes = (within >= phase) & (within - phase < length)
        to, of_source = (to - phase)[yes], (of_source - phase)[yes]
    dest.store(to, source.load(of_source, width))


def copy_elements(step: Launch, of: list[str], dest: Side, source: Side) -> None:
    index, (axes, width, unroll) = of[0], map(int, of[1:])
    offsets = locate(every(step, int(step.args[2]), unroll), step.args[3].data, axes, 2, index)
    dest.store(dest.pointer + offsets[0], source.load(source.pointer + offsets[1], width))


def transposed(
    step: Launch, axes: int, width: int, vector: int, tile: tuple[int, int], dest: Side, source: Side
) -> None:
    """Blocks of vectors where they are whole on the side that is accessed, elements at the edges."""
    extent_a, extent_b, dest_a, source_b, tiles_a, tiles_b = map(int, step.args[2:8])
    n, batches = vector // width, step.grid[0] // (tiles_a * tiles_b)
    assert batches * tiles_a * tiles_b == step.grid[0]
    assert (
        tiles_a * tile[0] >= extent_a > (tiles_a - 1) * tile[0]
        and tiles_b * tile[1] >= extent_b > (tiles_b - 1) * tile[1]
    )
    outer = locate(np.arange(batches), step.args[8].data, axes, 2, "u64")
    held = np.zeros((batches, extent_a, extent_b, width), np.uint8)
    z, a, b = (x.ravel() for x in np.indices((batches, extent_a, extent_b)))
    wide_a, wide_b = a // n * n + n <= extent_a, b // n * n + n <= extent_b
    source_at = source.pointer + outer[1][z] + b * source_b + a * width
    for many, these in ((n, wide_a & wide_b & (a % n == 0)), (1, ~(wide_a & wide_b))):
        vectors = source.load(source_at[these], many * width).reshape(-1, many, width)
        for k in range(many):
            held[z[these], a[these] + k, b[these]] = vectors[:, k]
    dest_at = dest.pointer + outer[0][z] + a * dest_a + b * width
    for many, these in ((n, wide_b & (b % n == 0)), (1, ~wide_b)):
        values = [held[z[these], a[these], b[these] + k] for k in range(many)]
        dest.store(dest_at[these], np.concatenate(values, axis=1))


def transpose_blocks(step: Launch, of: list[str], dest: Side, source: Side) -> None:
    width, vector, blocks_a, blocks_b, axes = map(int, of)
    n = vector // width
    transposed(step, axes, width, vector, (blocks_a * n, blocks_b * n), dest, source)


def transpose_tile(step: Launch, of: list[str], dest: Side, source: Side) -> None:
    transposed(step, int(of[1]), int(of[0]), int(of[0]), (64, 64), dest, source)


KERNELS: dict[str, Callable[[Launch, list[str], Side, Side], None]] = {
    f.__name__: f for f in (copy_runs, copy_slots, copy_elements, transpose_blocks, transpose_tile)
}


def walked(step: Any, dest: Side, source: Side) -> None:
    """Does what a step does."""
    if isinstance(step, Launch):
        assert all(0 < n < 2**31 for n in step.grid)
        assert [a.operand for a in step.args[:2] if isinstance(a, Ptr)] in (["dest", "source"], ["out", "x"])
        KERNELS[step.kernel.entry.partition("<")[0]](step, template(step.kernel.entry), dest, source)
    elif isinstance(step, Copy):
        at = np.arange(step.nbytes)
        dest.store(dest.pointer + at, source.load(source.pointer + at, 1))
    else:
        assert isinstance(step, Copy2D)
        assert min(step.dest_pitch, step.source_pitch) >= step.width > 0, "the driver refuses such pitches"
        row, byte = (x.ravel() for x in np.indices((step.height, step.width)))
        moved = source.load(source.pointer + row * step.source_pitch + byte, 1)
        dest.store(dest.pointer + row * step.dest_pitch + byte, moved)


# ---- what is copied ----------------------------------------------------------------------------------------------------


def check(desc: Any, variants: set[str]) -> None:
    """Every candidate and configuration that is admitted for a canonical descriptor does the copy."""
    desc = desc.canonical()
    copy, kind = desc.copy(), bp.WriteSlicePlan if desc.op == "write_slice" else bp.ContiguizePlan
    for plan in admissible(kind, desc, PlanPreference(), H200):  # type: ignore[type-abstract]
        dest = Side(copy.dest_strides, copy.shape, copy.width, copy.dest_align, 1)
        source = Side(copy.source_strides, copy.shape, copy.width, copy.source_align, 2)
        wanted = dest.bytes.copy()
        wanted[dest.places] = source.bytes[source.places]
        try:
            for step in plan.selection.steps:
                walked(step, dest, source)
            assert (dest.written <= 1).all(), "a byte is written twice"
            assert np.array_equal(dest.bytes, wanted), "the window is not the source"
        except AssertionError as error:
            raise AssertionError(f"{plan.sku} of {desc}: {error}") from None
        variants.add(plan.sku.variant)


def descriptors(seed: int, count: int) -> Iterator[Any]:
    """Windows and views of any pitch, phase and order, on addresses of any alignment."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        kind = bp.ElementKind(str(rng.choice(["u8", "f16", "f32", "f64", "complex128"])))
        rank = int(rng.integers(1, 4))
        shape = tuple(int(n) for n in rng.integers(1, (6, 7, 9)[:rank])) if rank > 1 else ()
        shape = (*shape[: rank - 1], int(rng.choice([1, 2, 3, 7, 16, 31, 40, 67])))
        window = tuple(int(rng.integers(1, n + 1)) for n in shape)
        aligns = [
            int(rng.choice([a for a in (1, 2, 4, 8, 16) if a >= kind.bits // 8 or a == 16 or rng.random() < 0.2]))
            for _ in range(2)
        ]
        order = rng.permutation(rank) if rng.random() < 0.4 else np.arange(rank)
        steps = [int(rng.choice([1, 1, 1, 2, -1])) for _ in window]
        extent, strides = 1, [0] * rank
        for axis in reversed(order):
            strides[axis] = extent * steps[axis]
            extent *= window[axis] * abs(steps[axis]) + int(rng.integers(0, 3)) * (16 if rng.random() < 0.5 else 1)
        ranges = tuple((0, n) for n in window)
        yield bp.WriteSliceDescriptor(
            shape, ranges, kind, source_strides=tuple(strides), dest_align=aligns[0], source_align=aligns[1]
        )


CASES: list[Any] = [
    *(
        bp.WriteSliceDescriptor((5, pitch), ((0, 5), (0, width)), kind, dest_align=align)
        for kind, align in (("u8", 1), ("u8", 16), ("f16", 2), ("f16", 4), ("f32", 4), ("f64", 8), ("complex128", 16))
        for pitch, width in ((64, 2), (64, 31), (64, 33), (65, 63), (34, 17), (1200, 1100))
    ),
    # Sources of rows that overlap, repeat or run backwards.
    bp.ContiguizeDescriptor((9, 24), "f16", x_strides=(8, 1)),
    bp.ContiguizeDescriptor((9, 24), "f16", x_strides=(0, 1)),
    bp.ContiguizeDescriptor((9, 24), "f16", x_strides=(-40, 1)),
    bp.ContiguizeDescriptor((9, 24), "f16", x_strides=(25, 1)),  # rows of the source on odd multiples of 2
    # The fastest axis differs, within batches that are less aligned than the rows.
    bp.ContiguizeDescriptor((3, 20, 24), "f16", x_strides=(600, 1, 24)),
    bp.ContiguizeDescriptor((3, 20, 24), "f16", x_strides=(601, 1, 24)),
    bp.ContiguizeDescriptor((3, 20, 24), "u8", x_strides=(602, 1, 24)),
    bp.ContiguizeDescriptor((70, 130), "u8", x_strides=(1, 72)),
    bp.ContiguizeDescriptor((70, 130), "f32", x_strides=(1, 71)),
    bp.ContiguizeDescriptor((7, 9), "complex128", x_strides=(1, 8)),
]  # fmt: skip


def test_every_kernel_of_a_copy_gets_what_it_needs() -> None:
    variants: set[str] = set()
    for desc in [*CASES, *descriptors(seed=0, count=60)]:
        check(desc, variants)
    assert variants == {
        "whole_dest", "contiguous_chunk", "pitched", "vectorised", "short_runs", "transpose", "transpose_tile", "elements",
    }  # fmt: skip


def test_rows_that_overlap_or_run_backwards_are_no_pitched_copy() -> None:
    for desc in CASES[-10:-7]:
        plans = admissible(bp.ContiguizePlan, desc, PlanPreference(), H200)  # type: ignore[type-abstract]
        assert plans
        assert "pitched" not in {p.sku.variant for p in plans}


@pytest.mark.parametrize(("shape", "ranges"), [((4, 7), ((0, 2), (0, 7))), ((4, 16), ((0, 2), (1, 5)))])
def test_copy_moves_rows_inside_bytes_by_nibbles(shape: Any, ranges: Any) -> None:
    desc = bp.WriteSliceDescriptor(shape, ranges, "u4")
    plans = admissible(bp.WriteSlicePlan, desc, PlanPreference(), H200)
    assert {plan.sku.variant for plan in plans} == {"nibble"}


def test_no_kernel_writes_rows_that_start_inside_a_byte() -> None:
    desc = bp.WriteSliceDescriptor((3, 7), ((0, 3), (0, 7)), "u4", dest_strides=(7, 1))
    with pytest.raises(bp.UnsupportedError, match="destination rows do not start on bytes"):
        bp.WriteSlicePlan.select(desc, device="h200")


# ---- nibbles -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "source_strides", "dest_phase", "source_phase"),
    [
        ((3, 7), (8, 1), 1, 0),
        ((3, 8), (9, 1), 1, 1),
        ((2, 5), (1, 2), 0, 1),
        ((4, 6), (-8, 1), 0, 0),
        ((1,), (1,), 1, 1),
    ],
)
def test_nibbles_are_written_to_the_last(
    shape: tuple[int, ...], source_strides: tuple[int, ...], dest_phase: int, source_phase: int
) -> None:
    """A thread has one byte of the destination; the threads of a launch have every byte of the window, and no other."""
    strides = tuple(16 * s for s in (2, 1)[2 - len(shape) + 1 :]) + (1,)
    problem = CopyProblem("dest", "source", shape, strides, source_strides, bp.U4, 16, 16, dest_phase, source_phase)

    class Desc:
        op, empty = "write_slice", False

        def copy(self) -> CopyProblem:
            return problem

    (step,) = next(c for c in COPY_CANDIDATES if c.variant == "nibble").lower(Desc(), H200, "")  # type: ignore[arg-type]
    assert isinstance(step, Launch)
    extent, source_step, to_phase, of_phase, count = map(int, step.args[2:7])
    index, axes = template(step.kernel.entry)
    row, byte = in_run(every(step, count, 1), step.args[7].data, index)
    to_row, of_row = locate(row, step.args[8].data, int(axes), 2, index)
    first = byte * 2 - to_phase
    moved = {}
    for t, (f, d, s) in enumerate(zip(first, to_row, of_row)):
        assert (d + to_phase + f) % 2 == 0
        for nibble in (f, f + 1):
            if 0 <= nibble < extent:
                key = int(d + to_phase + nibble)
                assert key not in moved, f"thread {t} repeats a nibble"
                moved[key] = int(s + of_phase + nibble * source_step)
    wanted = {
        dest_phase + sum(a * b for a, b in zip(at, strides)): source_phase
        + sum(a * b for a, b in zip(at, source_strides))
        for at in np.ndindex(*shape)
    }
    assert moved == wanted


# ---- what is chosen ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "offset", "width"),
    [("f16", 1, 2), ("f16", 1, 31), ("f16", 1, 63), ("u8", 3, 40), ("f32", 1, 63), ("f64", 5, 9)],
)
def test_short_rows_are_copied_slot_by_slot(kind: str, offset: int, width: int) -> None:
    desc = bp.WriteSliceDescriptor((1 << 22, 64), ((0, 1 << 22), (offset, offset + width)), kind)
    plan = bp.WriteSlicePlan.select(desc, device="h200")
    assert plan.sku.variant == "short_runs"
    grain = bp.ElementKind(kind).bits // 8
    assert plan.sku.config.startswith(f"width={grain} ")


def test_long_rows_are_copied_in_chunks_and_transposes_in_blocks() -> None:
    long = bp.WriteSliceDescriptor((16384, 8192), ((0, 16384), (1001, 7145)), "bf16")
    inner = bp.WriteSliceDescriptor((16384, 8192), ((0, 16384), (1024, 7168)), "bf16")
    for desc in (long, inner):
        assert bp.WriteSlicePlan.select(desc, device="h200").sku.variant == "vectorised"
    column_major = bp.ContiguizeDescriptor((4096, 4096), "bf16", x_strides=(1, 4096))
    assert bp.ContiguizePlan.select(column_major, device="h200").sku.variant == "transpose"


def test_a_pitch_beyond_32_bits_takes_wide_gaps() -> None:
    desc = bp.WriteSliceDescriptor((2, 2**31 + 64), ((0, 2), (1, 9)), "u8")
    plan = bp.WriteSlicePlan.select(desc, bp.PlanPreference(variant="short_runs"), device="h200")
    assert plan.selection.steps[0].kernel.entry.startswith("copy_slots<u64")
    near = bp.WriteSliceDescriptor((2, 2**31 - 2**16), ((0, 2), (1, 9)), "u8")
    plan = bp.WriteSlicePlan.select(near, bp.PlanPreference(variant="short_runs"), device="h200")
    assert plan.selection.steps[0].kernel.entry.startswith("copy_slots<u32")


def test_slots_beyond_a_launch_are_parted(monkeypatch: pytest.MonkeyPatch) -> None:
    """By rows, so that 32 bits number them."""
    variants: set[str] = set()
    monkeypatch.setattr("baracuda_py.ops.shape_layout._slots.MOST_INDICES", 150)
    for desc in (CASES[1], bp.ContiguizeDescriptor((5, 4, 9), "f16", x_strides=(-90, 20, 1))):
        check(desc, variants)
        kind = bp.WriteSlicePlan if desc.op == "write_slice" else bp.ContiguizePlan
        plan = kind.select(desc, bp.PlanPreference(variant="short_runs"), device="h200")  # type: ignore[attr-defined]
        assert len(plan.selection.steps) == 2
    monkeypatch.undo()
    huge = bp.WriteSliceDescriptor((2**26, 64), ((0, 2**26), (1, 64)), "u8")
    plan = bp.WriteSlicePlan.select(huge, bp.PlanPreference(variant="short_runs"), device="h200")
    assert len(plan.selection.steps) == 4
    assert all("copy_slots<u32" in step.kernel.entry for step in plan.selection.steps)
    beyond = bp.WriteSliceDescriptor((2**44, 8), ((0, 2**44), (0, 5)), "u8")  # steps by the ten thousand, for no memory
    with pytest.raises(bp.UnsupportedError, match=r"short_runs: it takes \d{5} launches, and it makes 1024 at most"):
        bp.WriteSlicePlan.select(beyond, bp.PlanPreference(variant="short_runs"), device="h200")


@pytest.mark.parametrize("variant", [c.variant for c in COPY_CANDIDATES])
def test_an_empty_window_launches_nothing_whoever_is_preferred(variant: str) -> None:
    for desc in (
        bp.WriteSliceDescriptor((8, 64), ((3, 3), (0, 64)), "f32"),
        bp.WriteSliceDescriptor((8, 64), ((0, 8), (5, 5)), "f32", source_strides=(1, 8)),
        bp.WriteSliceDescriptor((8, 64), ((0, 8), (5, 5)), "s4"),
    ):
        for plan in admissible(bp.WriteSlicePlan, desc, bp.PlanPreference(variant=variant), H200):  # type: ignore[type-abstract]
            assert plan.selection.steps == ()


@pytest.mark.parametrize("align", [1, 2])
def test_addresses_between_two_elements_are_served(align: int) -> None:
    """By kernels whose slots or grains are no wider than the address allows; those that access elements refuse."""
    cases = [
        bp.WriteSliceDescriptor((8, 64), ((0, 8), (0, 7)), "f32", dest_align=align),
        bp.WriteSliceDescriptor((8, 64), ((0, 8), (0, 1)), "f32", source_align=align),
        bp.ContiguizeDescriptor((64, 48), "f32", x_strides=(1, 64), x_align=align),
    ]
    for desc in cases:
        variants: set[str] = set()
        check(desc, variants)
        assert "short_runs" in variants
        assert not variants & {"elements", "transpose", "transpose_tile"}
