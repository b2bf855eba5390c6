"""Strided copies, the engine of write_slice and contiguize: dest[i, ...] = source[i, ...] for every byte width.

A descriptor gives a CopyProblem; the axes are collapsed first, and each candidate takes the collapsed problem.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from ...plan.candidate import OK, Candidate, Change, Cost, Feasibility, exact_movement, no
from ...runtime.steps import Copy, Copy2D, Kernel, Launch, Packed, Ptr, Step
from ...tensor.axes import alignment_of, collapse
from ...types import BackendKind, DeviceSpec, ElementKind, PrecisionGuarantee
from .._launch import THREADS, divisor, grid_of, index_scalar, index_type, pack_dims

__all__ = ["BYTES_OR_NIBBLES", "COPY_CANDIDATES", "CopyProblem", "HasCopy", "WholeDest"]

BYTES_OR_NIBBLES = tuple(kind for kind in ElementKind if kind is not ElementKind.BIN)  # bits cannot be written apart
CHUNK = 16
SECTOR, LINE = 32, 128  # bytes that memory and L2 exchange, and that share a tag
SHORT_RUN = 2048  # bytes
NARROW = (4, 8)  # bytes of slots that can be worth more lanes where the grain is wider
LONGEST_SLOTTED = 1 << 16  # bytes of a run whose slots a 32-bit number counts
BEHIND = 1.03  # predicted time of a configuration that was measured to be slower
MOST_INDICES = 1 << 30  # slots of a launch, where rows can be parted so: 64-bit divisions would cost more than the copy
MOST_PARTS = 1024  # launches of a copy: what takes more is beyond any memory, and would take minutes to write down

# What costs are made of, counted in the kernels: instructions of a chunk of copy_runs; of a slot of copy_slots, more for each
# axis but one, and more where slots are by sectors.
CHUNK_INSTRUCTIONS = 36
SLOT_INSTRUCTIONS, AXIS_INSTRUCTIONS, SECTOR_INSTRUCTIONS = 11, 6, 8
LANES, WARP = 128, 32  # thread instructions a clock of an SM, threads of a warp
# Seen on an H200: clocks of an SM for each sector that a store goes to, and for a warp's load and store; bytes that memory could
# have moved while it opens a row for a run of the destination, and while it reads what a store left out of sectors beside
# whole ones.
CLOCKS_A_STORE, CLOCKS_AN_ACCESS = 2, 9.5
SCATTERED, MIXED = 60, 160
LATENCY = 0.7e-6  # seconds of a load while memory is busy
SHOWS = 0.1  # the share that shows of what other work hides


@dataclass(frozen=True)
class CopyProblem:
    """A copy between the operands `dest` and `source`; strides in elements, alignments in bytes of what is touched.

    Phases are the nibbles by which packed views start inside their first byte.
    """

    dest: str
    source: str
    shape: tuple[int, ...]
    dest_strides: tuple[int, ...]
    source_strides: tuple[int, ...]
    element: ElementKind
    dest_align: int
    source_align: int
    dest_phase: int = 0
    source_phase: int = 0

    @cached_property
    def bytewise(self) -> bool:
        """Whether whole bytes move: always, but for packed kinds whose window cuts a byte."""
        if not self.element.packed:
            return True
        per = self.element.per_byte
        steps = (*self.dest_strides[:-1], *self.source_strides[:-1])
        unit = not self.shape or (self.dest_strides[-1] == 1 and self.source_strides[-1] == 1) or self.shape[-1] <= 1
        even = not self.shape or self.shape[-1] % per == 0
        return unit and even and not (self.dest_phase or self.source_phase) and all(s % per == 0 for s in steps)

    @cached_property
    def width(self) -> int:
        """Bytes of the unit that moves."""
        return max(self.element.bits // 8, 1)

    @cached_property
    def collapsed(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """Extents and strides, in units of `width` bytes, widest destination stride first."""
        shape, dest, source = self.shape, self.dest_strides, self.source_strides
        if self.element.packed and shape:
            per = self.element.per_byte
            shape = (*shape[:-1], shape[-1] // per)
            dest = (*(s // per for s in dest[:-1]), 1)
            source = (*(s // per for s in source[:-1]), 1)
        merged, (d, s) = collapse(shape, [dest, source])
        return merged, d, s

    @cached_property
    def run(self) -> int:
        """Bytes that are contiguous on both sides: the innermost axis, or one unit."""
        shape, dest, source = self.collapsed
        if shape and dest[-1] == 1 and source[-1] == 1:
            return shape[-1] * self.width
        return self.width if not shape else 0

    @cached_property
    def outer(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """The axes around the run, strides in bytes: all of them, where no two units are contiguous on both sides."""
        shape, dest, source = self.collapsed
        w, end = self.width, -1 if self.run and shape else None
        return shape[:end], tuple(s * w for s in dest[:end]), tuple(s * w for s in source[:end])

    @cached_property
    def nbytes(self) -> int:
        return self.element.nbytes(math.prod(self.shape))

    @cached_property
    def length(self) -> int:
        """Bytes of a run, or of a unit where there are no runs."""
        return self.run or self.width

    @cached_property
    def grains(self) -> tuple[int, int]:
        """The powers of two, at most 16, that divide the address of every run in the destination and in the source."""
        _, dest, source = self.outer
        return (
            min(self.dest_align, *map(alignment_of, dest), CHUNK),
            min(self.source_align, *map(alignment_of, source), CHUNK),
        )

    @cached_property
    def grain(self) -> int:
        """The power of two, at most 16, that divides a run (or a unit) and every address on both sides."""
        return min(*self.grains, alignment_of(self.length))

    @cached_property
    def dense(self) -> bool:
        """Whether the runs of the destination lie one behind the other."""
        extents, dest, _ = self.outer
        return not any(_gaps(extents, dest, self.length))

    def traffic(self, *, fetched: str = "") -> float:
        """Bytes that memory moves, or could move in the time it takes. A sector that is written in part is read as well;
        `fetched` says which are read ahead: none, those written in part (``"parts"``), or every one (``"all"``)."""
        extents, _, source = self.outer
        runs, (dest_grain, source_grain) = math.prod(extents), self.grains
        read = written = float(runs * self.length)
        if any(_gaps(extents, source, self.length)):
            read = runs * touched(self.length, source_grain) * SECTOR
        if not self.dense:
            whole = max(self.length - SECTOR + dest_grain, 0) / SECTOR
            part = touched(self.length, dest_grain) - whole
            late = SCATTERED if fetched else SCATTERED + MIXED * min(1.0, whole)
            written = runs * ((2 if fetched == "all" else 1) * whole * SECTOR + 2 * part * SECTOR + late)
        return read + written


def touched(length: int, grain: int) -> float:
    """Sectors that a run touches, on average over the phases it may have."""
    return (length + SECTOR - grain) / SECTOR


def _gaps(extents: tuple[int, ...], strides: tuple[int, ...], run: int) -> tuple[int, ...]:
    """What each axis steps beyond runs of `run` bytes that lie one behind the other."""
    gaps, dense = [], run
    for extent, stride in zip(reversed(extents), reversed(strides)):
        gaps.append(stride - dense)
        dense *= extent
    return tuple(reversed(gaps))


class HasCopy(Protocol):
    """A descriptor that is a strided copy."""

    def copy(self) -> CopyProblem: ...


class _CopyCandidate(Candidate[Any]):
    def guarantee(self, desc: HasCopy, device: DeviceSpec, config: Any) -> PrecisionGuarantee:
        return exact_movement(desc.copy().element)

    def supports(self, desc: HasCopy, device: DeviceSpec) -> Feasibility:
        copy = desc.copy()
        if getattr(desc, "dynamic_axis", None) is not None:
            return no("takes its start from the host", change=Change({"dynamic_axis": None}))
        if not copy.bytewise:
            return no("the window cuts through bytes")
        return self.fits(copy, desc)

    def fits(self, copy: CopyProblem, desc: Any) -> Feasibility:
        raise NotImplementedError

    def cost(self, desc: HasCopy, device: DeviceSpec, config: Any) -> Cost:
        copy = desc.copy()
        return Cost.streaming(device, 2 * copy.nbytes, efficiency=self.efficiency(copy, config))

    def efficiency(self, copy: CopyProblem, config: Any) -> float:
        raise NotImplementedError


@dataclass(frozen=True)
class _Work:
    """What a kernel asks of the SMs: thread instructions, sectors stored to (a sector counts for each store that it takes), and
    the bytes that a resident thread has under way."""

    instructions: float
    stores: float
    in_flight: int
    residents: int = 2048
    accesses: float = 0.0  # a thread's loads, each with its store
    fetched: str = ""

    def cost(self, copy: CopyProblem, device: DeviceSpec) -> Cost:
        """The time of what takes longest; of the rest, which it mostly hides, a share shows."""
        issue = device.rate("issue")
        times = {
            "bandwidth": copy.traffic(fetched=self.fetched) / device.bandwidth,
            "instruction issue": self.instructions / issue,
            "sectors stored": self.stores * CLOCKS_A_STORE * LANES / issue,
            "loads and stores": self.accesses / WARP * CLOCKS_AN_ACCESS * LANES / issue,
            "memory latency": copy.nbytes * LATENCY / (device.sms * self.in_flight * self.residents),
        }
        limit = max(times, key=lambda name: times[name])
        seconds = times[limit] + SHOWS * (sum(times.values()) - times[limit])
        if seconds < device.overhead:
            limit = "launch latency"
        return Cost(2 * copy.nbytes, 0, device.overhead + seconds, limit)


def _in_order(copy: CopyProblem) -> tuple[str, Change]:
    """What makes both sides of a copy lie in C order; a fresh `out` does."""
    names = [name for name in (copy.dest, copy.source) if name != "out"]
    return f"contiguous {' and '.join(names)}", Change({f"{name}_strides": None for name in names})


class ContiguousChunk(_CopyCandidate):
    """One run on both sides: one device memcpy."""

    variant = "contiguous_chunk"
    unaligned = True
    backend = BackendKind.MEMCPY

    def fits(self, copy: CopyProblem, desc: Any) -> Feasibility:
        if copy.run != copy.nbytes:
            return no(f"contiguous runs are {copy.run or copy.width} of {copy.nbytes} bytes", *_in_order(copy))
        return OK

    def efficiency(self, copy: CopyProblem, config: Any) -> float:
        return 1.0

    def lower(self, desc: HasCopy, device: DeviceSpec, config: Any) -> tuple[Step, ...]:
        copy = desc.copy()
        return (Copy(Ptr(copy.dest), Ptr(copy.source), copy.nbytes),)


class WholeDest(ContiguousChunk):
    """The whole destination from one run: one device memcpy."""

    variant = "whole_dest"

    def fits(self, copy: CopyProblem, desc: Any) -> Feasibility:
        if not desc.covers_dest:
            return no("the window is not the whole destination")
        return super().fits(copy, desc)


class Pitched(_CopyCandidate):
    """Runs at one pitch on each side: a 2-D device memcpy."""

    variant = "pitched"
    unaligned = True
    backend = BackendKind.MEMCPY

    def fits(self, copy: CopyProblem, desc: Any) -> Feasibility:
        extents, dest, source = copy.outer
        if not copy.run or len(extents) != 1:
            return no(f"the window collapses to {len(copy.collapsed[0])} axes, not to rows of contiguous bytes")
        if dest[0] < copy.run or source[0] < copy.run:
            return no("rows overlap, repeat or run backwards")
        return OK

    def efficiency(self, copy: CopyProblem, config: Any) -> float:
        return 0.4 * min(1.0, copy.run / 512)

    def lower(self, desc: HasCopy, device: DeviceSpec, config: Any) -> tuple[Step, ...]:
        copy = desc.copy()
        (rows,), (dest,), (source,) = copy.outer
        return (Copy2D(Ptr(copy.dest), dest, Ptr(copy.source), source, copy.run, rows),)


@dataclass(frozen=True)
class RunConfig:
    """The bytes that divide everything, those taken at once at a run's end (in grains), and chunks a thread."""

    grain: int
    ends: int
    unroll: int

    def __str__(self) -> str:
        return f"g{self.grain}e{self.ends}u{self.unroll}"


class Vectorised(_CopyCandidate):
    """Runs of any length, pitch and phase: 16-byte stores aligned to the destination, ends peeled."""

    variant = "vectorised"
    launches = ("shape_layout/copy.cu:copy_runs",)
    unaligned = True

    def fits(self, copy: CopyProblem, desc: Any) -> Feasibility:
        if copy.run < min(CHUNK, copy.width * 2):
            return no(f"contiguous runs are only {copy.run or copy.width} bytes", *_in_order(copy))
        return OK

    def configs(self, desc: HasCopy, device: DeviceSpec) -> Iterable[RunConfig]:
        copy = desc.copy()
        # Where runs are short their ends are much of the work: there a thread overlaps its loads. In long runs the
        # registers that takes cost more than it gains.
        ends = CHUNK // copy.grain if copy.run < SHORT_RUN else 1
        return [RunConfig(copy.grain, ends, unroll) for unroll in (1, 2, 4)]

    def cost(self, desc: HasCopy, device: DeviceSpec, config: RunConfig) -> Cost:
        copy = desc.copy()
        runs, per_run = math.prod(copy.outer[0]), _chunks_per_run(copy)
        grains = CHUNK // config.grain
        # Each end that a warp has keeps all of it, grain by grain; of many ends most go together.
        ends = min(WARP * 2 / per_run, 4.0) * grains / 2 if grains > 1 else 0.0
        stores = runs * (touched(copy.run, copy.grains[0]) + (grains if grains > 1 else 0))
        order = {1: 1.0, 2: 1.02, 4: 1.04}[config.unroll]  # registers cost more than overlapping loads gains
        chunks = runs * per_run
        work = _Work(chunks * CHUNK_INSTRUCTIONS * order, stores, CHUNK, accesses=chunks * (2 + ends) * order)
        cost = work.cost(copy, device)
        if not _narrow(copy):
            return cost
        return replace(cost, seconds=max(cost.seconds, _slots_cost(copy, device).seconds * BEHIND))

    def lower(self, desc: HasCopy, device: DeviceSpec, config: RunConfig) -> tuple[Step, ...]:
        copy = desc.copy()
        extents, dest, source = copy.outer
        per_run = _chunks_per_run(copy)
        chunks = math.prod(extents) * per_run
        index = index_type(chunks)
        entry = f"copy_runs<{index}, {len(extents)}, {config.grain}, {config.ends}, {config.unroll}>"
        args = (
            Ptr(copy.dest), Ptr(copy.source), np.int64(copy.run), index_scalar(chunks, index), divisor(per_run, index),
            pack_dims(extents, [dest, source], index),
        )  # fmt: skip
        return (
            Launch(
                Kernel("shape_layout/copy.cu", entry), grid_of(chunks, THREADS * config.unroll), (THREADS, 1, 1), args
            ),
        )


def _chunks_per_run(copy: CopyProblem) -> int:
    """Aligned 16-byte destination chunks that a run can touch: one more where its start may lie anywhere."""
    return -(-(copy.run + CHUNK - copy.grains[0]) // CHUNK)


@dataclass(frozen=True)
class SlotConfig:
    """Bytes a slot, slots a thread, whether a run's slots begin with its first sector of the destination, and whether sectors
    that are written in part are fetched ahead."""

    width: int
    unroll: int
    sectors: bool = False
    fetch: bool = False

    def __str__(self) -> str:
        return f"w{self.width}u{self.unroll}{'s' if self.sectors else ''}{'f' if self.fetch else ''}"


def _slots_of(copy: CopyProblem) -> SlotConfig:
    """The configuration that was fastest of all, or nearly, for runs of such a length and grain (benchmarks.copies, H200).

    Runs within a sector or two are bound by the sectors that warps share, longer ones by the bytes under way. Runs of a
    line lie alike under the warps, so that few sectors are shared. Where a sector of a line is all that is written of it,
    narrow slots pay: a warp then has fewer lines open.
    """
    width, length = copy.grain, copy.length
    if copy.dense:
        return SlotConfig(width, 4 if width < 4 else 2, sectors=width == 8)
    if length == LINE:
        return SlotConfig(width, 1 if width >= 8 else 2)
    if _narrow(copy):
        return SlotConfig(4, 1)
    if width >= 8:
        return SlotConfig(width, 1, sectors=True, fetch=length > SECTOR)
    if width == 4:
        return SlotConfig(4, 2, sectors=length <= 48, fetch=length > SECTOR)
    if width == 2:
        return SlotConfig(2, 1 if length < SECTOR else 2 if length < 44 else 4, fetch=length > SECTOR)
    return SlotConfig(1, 1 if length < 8 else 2 if length < CHUNK else 4, fetch=length > CHUNK)


def _narrow(copy: CopyProblem) -> bool:
    """Whether aligned runs are short and far apart: slots narrower than they could be were fastest, wide accesses 6 % behind."""
    return not copy.dense and copy.grain == CHUNK and copy.length <= SECTOR and copy.outer[1][-1] >= LINE


class ShortRuns(_CopyCandidate):
    """Runs of any length, pitch and phase, slot by slot: the widest slots that divide everything, one a lane."""

    variant = "short_runs"
    launches = ("shape_layout/copy.cu:copy_slots",)
    unaligned = True

    def fits(self, copy: CopyProblem, desc: Any) -> Feasibility:
        if copy.run > LONGEST_SLOTTED:
            return no(f"runs are {copy.run} bytes, and slots are for {LONGEST_SLOTTED} at most")
        if copy.grain == CHUNK and copy.run >= SHORT_RUN:
            return no(f"runs are {copy.run} bytes, all of them whole aligned chunks")
        if not copy.run and copy.grain >= min(copy.width, CHUNK):
            return no(f"contiguous runs are only {copy.width} bytes", *_in_order(copy))
        if copy.nbytes and copy.outer[0] and (parts := len(_parts(copy, _slots_of(copy)))) > MOST_PARTS:
            return no(f"it takes {parts} launches, and it makes {MOST_PARTS} at most")
        return OK

    def configs(self, desc: HasCopy, device: DeviceSpec) -> Iterable[SlotConfig]:
        copy = desc.copy()
        best = _slots_of(copy)
        others = [SlotConfig(copy.grain, u, s, f) for s in (False, True) for f in (False, True) for u in (1, 2, 4, 8)]
        others += [SlotConfig(width, u) for width in NARROW if width < copy.grain for u in (1, 2)]
        return [best, *(c for c in others if c != best)]

    def cost(self, desc: HasCopy, device: DeviceSpec, config: SlotConfig) -> Cost:
        """Of the fastest configuration; the others are a little more, so that they come behind it."""
        copy = desc.copy()
        cost = _slots_cost(copy, device)
        return cost if config == _slots_of(copy) else replace(cost, seconds=cost.seconds * BEHIND)

    def lower(self, desc: HasCopy, device: DeviceSpec, config: SlotConfig) -> tuple[Step, ...]:
        copy = desc.copy()
        extents, dest, source = copy.outer
        per_run = _slots_per_run(copy, config)
        if not extents:
            return (_slots_launch(copy, config, per_run, (), ((), ()), (0, 0)),)
        parts = _parts(copy, config)
        gaps = tuple(_gaps(extents, strides, per_run * config.width) for strides in (dest, source))
        return tuple(
            _slots_launch(
                copy, config, per_run, (min(parts.step, extents[0] - first), *extents[1:]), gaps,
                (first * dest[0], first * source[0]),
            )
            for first in parts
        )  # fmt: skip


def _parts(copy: CopyProblem, config: SlotConfig) -> range:
    """Where each launch begins on the outermost axis."""
    extents, _, _ = copy.outer
    inner = math.prod(extents[1:]) * _slots_per_run(copy, config)
    return range(0, extents[0], max(1, MOST_INDICES // inner))


def _slots_cost(copy: CopyProblem, device: DeviceSpec) -> Cost:
    """Of the configuration that `_slots_of` names."""
    config, axes, runs = _slots_of(copy), len(copy.outer[0]), math.prod(copy.outer[0])
    slots = runs * _slots_per_run(copy, config)
    instructions = SLOT_INSTRUCTIONS + AXIS_INSTRUCTIONS * max(axes - 1, 0) + SECTOR_INSTRUCTIONS * config.sectors
    stores = runs * touched(copy.length, copy.grains[0])
    if not config.sectors:  # where a warp's slots end within a sector, the next warp stores to it too
        stores += slots / WARP * (1 - copy.grains[0] / SECTOR)
    work = _Work(
        slots * instructions, stores, CHUNK, _residents(config.unroll), runs * copy.length / config.width,
        "" if not config.fetch else "parts" if config.sectors else "all",
    )  # fmt: skip
    return work.cost(copy, device)


def _slots_launch(
    copy: CopyProblem, config: SlotConfig, per_run: int, extents: tuple[int, ...], gaps: tuple[tuple[int, ...], ...],
    at: tuple[int, int],
) -> Launch:  # fmt: skip
    """The runs of these extents, the first of which lies `at` those bytes of both operands."""
    slots = math.prod(extents) * per_run
    index = index_type(max([slots, *(abs(g) for each in gaps for g in each)]))
    flags = ", ".join(str(flag).lower() for flag in (config.sectors, config.fetch))
    entry = f"copy_slots<{index}, {len(extents)}, {config.width}, {config.unroll}, {flags}>"
    args = (
        Ptr(copy.dest, at[0]), Ptr(copy.source, at[1]), np.uint32(copy.length), index_scalar(slots, index),
        divisor(per_run, index), _pack_gaps(extents, gaps, index),
    )  # fmt: skip
    grid = grid_of(slots, THREADS * config.unroll)
    return Launch(Kernel("shape_layout/copy.cu", entry), grid, (THREADS, 1, 1), args)


def _residents(unroll: int) -> int:
    """Threads on an SM, as registers allow that hold an address on both sides and a value for each of so many accesses."""
    return min(2048, 65536 // (14 + 4 * unroll) // THREADS * THREADS)


def _slots_per_run(copy: CopyProblem, config: SlotConfig) -> int:
    """Slots of a run, or of the sectors that it can touch."""
    if not config.sectors:
        return copy.length // config.width
    return -(-(copy.length + SECTOR - copy.grains[0]) // SECTOR) * (SECTOR // config.width)


def _pack_gaps(extents: tuple[int, ...], gaps: tuple[tuple[int, ...], ...], index: str) -> Packed:
    """Gaps<index, len(extents)> of kernels/shape_layout/copy.cu."""
    kind, align = ("i", 4) if index == "u32" else ("q", 8)
    parts = [divisor(e, index).data for e in extents or (1,)]
    parts += [struct.pack(f"<{max(len(g), 1)}{kind}", *(g or (0,))) for g in gaps]
    return Packed(b"".join(parts), align)


class Elements(_CopyCandidate):
    """No contiguous run: an element at a time, any stride."""

    variant = "elements"
    launches = ("shape_layout/copy.cu:copy_elements",)

    def fits(self, copy: CopyProblem, desc: Any) -> Feasibility:
        return OK

    def configs(self, desc: HasCopy, device: DeviceSpec) -> Iterable[int]:
        return (4, 1)

    def cost(self, desc: HasCopy, device: DeviceSpec, config: int) -> Cost:
        copy = desc.copy()
        if not copy.run:
            return super().cost(desc, device, config)
        # Element by element: the same accesses as by slots or more, with an axis more to divide by.
        cost = _slots_cost(copy, device)
        return replace(cost, seconds=cost.seconds * BEHIND * max(1, copy.grain // copy.width))

    def efficiency(self, copy: CopyProblem, config: Any) -> float:
        _, dest, source = copy.collapsed
        steps = [abs(s[-1]) * copy.width if s else copy.width for s in (dest, source)]
        # Where each element has a sector of its own to be written to, stores are many and loads few.
        first = 1 if steps[0] >= SECTOR else 4
        scattered = 0.3 if max(steps) >= SECTOR else 1.0
        return min(0.6, 0.08 * copy.width) * scattered * (1.0 if config == first else 0.95)

    def lower(self, desc: HasCopy, device: DeviceSpec, config: int) -> tuple[Step, ...]:
        copy = desc.copy()
        shape, dest, source = copy.collapsed
        w = copy.width
        count = math.prod(shape)
        index = index_type(count)
        entry = f"copy_elements<{index}, {len(shape)}, {w}, {config}>"
        strides = [tuple(s * w for s in dest), tuple(s * w for s in source)]
        args = (Ptr(copy.dest), Ptr(copy.source), index_scalar(count, index), pack_dims(shape, strides, index))
        return (Launch(Kernel("shape_layout/copy.cu", entry), grid_of(count, THREADS * config), (THREADS, 1, 1), args),)


@dataclass(frozen=True)
class _Planes:
    """A copy whose fastest axis is `b` on the destination side and `a` on the source side, around it the other axes."""

    a: int
    b: int
    dest_a: int
    source_b: int
    outer: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]

    def filled(self, tile_a: int, tile_b: int) -> float:
        """The share of the tiles that is not beyond an edge."""
        covered = -(-self.a // tile_a) * tile_a * -(-self.b // tile_b) * tile_b
        return self.a * self.b / covered if covered else 1.0


def _planes(copy: CopyProblem) -> _Planes | None:
    shape, dest, source = copy.collapsed
    if len(shape) < 2 or dest[-1] != 1 or source[-1] == 1:
        return None
    axes = [i for i in range(len(shape) - 1) if source[i] == 1]
    if not axes:
        return None
    a, w = axes[0], copy.width
    rest = [i for i in range(len(shape) - 1) if i != a]
    outer = (tuple(shape[i] for i in rest), tuple(dest[i] * w for i in rest), tuple(source[i] * w for i in rest))
    return _Planes(shape[a], shape[-1], dest[a] * w, source[-1] * w, outer)


@dataclass(frozen=True)
class BlockConfig:
    """Bytes an access, and the blocks that a CTA's tile has along the source's and the destination's fast axis."""

    vector: int
    blocks_a: int
    blocks_b: int

    def tile(self, width: int) -> tuple[int, int]:
        """Elements a CTA covers along both axes."""
        n = self.vector // width
        return self.blocks_a * n, self.blocks_b * n

    def __str__(self) -> str:
        return f"w{self.vector}b{self.blocks_a}x{self.blocks_b}"


class Transpose(_CopyCandidate):
    """The fastest axis differs: blocks transposed in registers, staged in shared memory, 16-byte accesses on both sides."""

    variant = "transpose"
    launches = ("shape_layout/transpose.cu:transpose_blocks",)

    def vector(self, copy: CopyProblem, planes: _Planes) -> int:
        widest = 8 if copy.width == 1 else CHUNK
        steps = (planes.dest_a, planes.source_b, *planes.outer[1], *planes.outer[2])
        return min(widest, copy.dest_align, copy.source_align, *(alignment_of(abs(s)) for s in steps))

    def fits(self, copy: CopyProblem, desc: Any) -> Feasibility:
        planes = _planes(copy)
        if planes is None:
            return no("the fastest axis is the same on both sides, or none has unit stride")
        if self.vector(copy, planes) < min(2 * copy.width, CHUNK):
            return no("rows are not aligned to two elements")
        return OK

    def configs(self, desc: HasCopy, device: DeviceSpec) -> Iterable[BlockConfig]:
        copy = desc.copy()
        planes = _planes(copy)
        assert planes is not None
        widths = [v for v in (16, 8, 4, 2) if copy.width <= v <= self.vector(copy, planes)]
        return [BlockConfig(v, a, b) for v in widths[:2] for a, b in ((16, 16), (8, 8))]

    def efficiency(self, copy: CopyProblem, config: BlockConfig) -> float:
        planes = _planes(copy)
        assert planes is not None
        filled = planes.filled(*config.tile(copy.width))
        # Large tiles store longer rows, small ones leave no SM idle (measured on an H200, 4 MiB being small).
        order = 1.0 if (config.blocks_b == 16) == (copy.nbytes >= 16 << 20) else 0.98
        return order * {16: 0.95, 8: 0.75, 4: 0.5, 2: 0.3}.get(config.vector, 0.3) * max(filled, 0.05)

    def lower(self, desc: HasCopy, device: DeviceSpec, config: BlockConfig) -> tuple[Step, ...]:
        copy = desc.copy()
        entry = f"transpose_blocks<{copy.width}, {config.vector}, {config.blocks_a}, {config.blocks_b}, "
        return _transpose_launch(copy, entry, config.tile(copy.width), config.blocks_a * config.blocks_b)


class TransposeTile(_CopyCandidate):
    """The fastest axis differs, at any alignment: 64 x 64 tiles through shared memory."""

    variant = "transpose_tile"
    launches = ("shape_layout/transpose.cu:transpose_tile",)

    def fits(self, copy: CopyProblem, desc: Any) -> Feasibility:
        if _planes(copy) is None:
            return no("the fastest axis is the same on both sides, or none has unit stride")
        if copy.width > 8:
            return no("a tile of 16-byte elements exceeds static shared memory")
        return OK

    def efficiency(self, copy: CopyProblem, config: Any) -> float:
        planes = _planes(copy)
        assert planes is not None
        filled = planes.filled(64, 64)
        return min(0.8, 0.2 * copy.width) * max(filled, 0.05)

    def lower(self, desc: HasCopy, device: DeviceSpec, config: Any) -> tuple[Step, ...]:
        copy = desc.copy()
        return _transpose_launch(copy, f"transpose_tile<{copy.width}, ", (64, 64), 256)


def _transpose_launch(copy: CopyProblem, entry: str, tile: tuple[int, int], threads: int) -> tuple[Step, ...]:
    planes = _planes(copy)
    assert planes is not None
    extents, dest, source = planes.outer
    tiles_a, tiles_b = -(-planes.a // tile[0]), -(-planes.b // tile[1])
    args = (
        Ptr(copy.dest), Ptr(copy.source), np.int64(planes.a), np.int64(planes.b),
        np.int64(planes.dest_a), np.int64(planes.source_b),
        np.uint32(tiles_a), np.uint32(tiles_b), pack_dims(extents, [dest, source], "u64"),
    )  # fmt: skip
    grid = (tiles_a * tiles_b * math.prod(extents), 1, 1)
    return (Launch(Kernel("shape_layout/transpose.cu", f"{entry}{len(extents)}>"), grid, (threads, 1, 1), args),)


class Nibble(_CopyCandidate):
    """4-bit elements at odd bounds or strides: a destination byte a thread, read-modify-write at the ends."""

    variant = "nibble"
    launches = ("shape_layout/nibble.cu:copy_nibbles",)

    def supports(self, desc: HasCopy, device: DeviceSpec) -> Feasibility:
        copy = desc.copy()
        if copy.element not in (ElementKind.S4, ElementKind.U4):
            return no(f"{copy.element} is not a 4-bit kind")
        if copy.shape and copy.shape[-1] > 1 and copy.dest_strides[-1] != 1:
            return no("the destination's rows are not contiguous")
        if any(s % 2 for s in copy.dest_strides[:-1]):
            return no("destination rows do not start on bytes")
        return OK

    def efficiency(self, copy: CopyProblem, config: Any) -> float:
        return 0.05

    def lower(self, desc: HasCopy, device: DeviceSpec, config: Any) -> tuple[Step, ...]:
        copy = desc.copy()
        shape = copy.shape or (1,)
        dest, source = copy.dest_strides or (1,), copy.source_strides or (1,)
        per_row = (shape[-1] + copy.dest_phase + 1) // 2
        count = math.prod(shape[:-1]) * per_row
        index = index_type(count)
        args = (
            Ptr(copy.dest), Ptr(copy.source), np.int64(shape[-1]), np.int64(source[-1]), np.int64(copy.dest_phase),
            np.int64(copy.source_phase), index_scalar(count, index), divisor(per_row, index),
            pack_dims(shape[:-1], [dest[:-1], source[:-1]], index),
        )  # fmt: skip
        entry = f"copy_nibbles<{index}, {len(shape) - 1}>"
        return (Launch(Kernel("shape_layout/nibble.cu", entry), grid_of(count, THREADS), (THREADS, 1, 1), args),)


COPY_CANDIDATES: tuple[Candidate[Any], ...] = (
    ContiguousChunk(), Pitched(), Vectorised(), ShortRuns(), Transpose(), TransposeTile(), Elements(), Nibble(),
)  # fmt: skip
