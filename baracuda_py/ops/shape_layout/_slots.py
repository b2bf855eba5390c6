"""short_runs: runs of any length cut into slots, one per lane (kernels/shape_layout/copy.cu)."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...plan.candidate import OK, Cost, Feasibility, no
from ...plan.grammar import Config, term
from ...runtime.steps import Kernel, Launch, Packed, Ptr, Step
from ...types import DeviceSpec
from .._launch import THREADS, divisor, grid_of, index_scalar, index_type
from ._copy import CopyCandidate, HasCopy, in_order
from ._copy_cost import WARP, CopyCosts, Work
from ._walks import CHUNK, LINE, SECTOR, CopyProblem, gaps_of, touched

__all__ = ["SHORT_RUN", "ShortRuns", "narrow", "slots_cost"]

SHORT_RUN = 2048  # bytes
NARROW = (4, 8)  # bytes of slots narrower than the alignment allows, which can pay although they take more lanes
LONGEST_SLOTTED = 1 << 16  # bytes of a run whose slots 32-bit indices can count
MOST_INDICES = 1 << 30  # slots of a launch, where rows can be divided so: 64-bit divisions cost more than the copy
MOST_PARTS = 1024  # most launches of a copy: more would need more memory than exists, and minutes to lower
# Counted in the kernel: instructions of a slot of copy_slots, more for each axis but one, and more where slots are by sectors.
SLOT_INSTRUCTIONS, AXIS_INSTRUCTIONS, SECTOR_INSTRUCTIONS = 11, 6, 8


@dataclass(frozen=True)
class SlotConfig(Config):
    """How runs are cut into slots."""

    width: int = term("bytes a slot")
    unroll: int = term("slots a thread")
    sectors: bool = term("a run's slots begin with its first sector of the destination", default=False)
    fetch: bool = term("sectors that are written in part are fetched ahead", default=False)


def _slots_of(copy: CopyProblem) -> SlotConfig:
    """The configuration that was (nearly) the fastest for runs of this length and alignment (benchmarks.copies, H200).

    Runs of one or two sectors are bound by sectors that several warps store to, longer ones by the bytes in flight. Runs of a
    whole line fall on warps evenly, so few sectors are shared. Where only one sector of each line is written, narrow slots
    pay, because a warp then writes to fewer lines at once.
    """
    width, length = copy.grain, copy.length
    if copy.dense:
        return SlotConfig(width, 4 if width < 4 else 2, sectors=width == 8)
    if length == LINE:
        return SlotConfig(width, 1 if width >= 8 else 2)
    if narrow(copy):
        return SlotConfig(4, 1)
    if width >= 8:
        return SlotConfig(width, 1, sectors=True, fetch=length > SECTOR)
    if width == 4:
        return SlotConfig(4, 2, sectors=length <= 48, fetch=length > SECTOR)
    if width == 2:
        return SlotConfig(2, 1 if length < SECTOR else 2 if length < 44 else 4, fetch=length > SECTOR)
    return SlotConfig(1, 1 if length < 8 else 2 if length < CHUNK else 4, fetch=length > CHUNK)


def narrow(copy: CopyProblem) -> bool:
    """Whether aligned runs are short and distant: there narrow slots were measured to be 6 % faster than wide ones."""
    return not copy.dense and copy.grain == CHUNK and copy.length <= SECTOR and copy.outer[1][-1] >= LINE


class ShortRuns(CopyCandidate):
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
            return no(f"contiguous runs are only {copy.width} bytes", *in_order(copy))
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
        """The cost of the fastest configuration; the others get a little more, so that they rank behind it."""
        copy = desc.copy()
        cost = slots_cost(copy, device)
        return (
            cost
            if config == _slots_of(copy)
            else replace(cost, seconds=cost.seconds * CopyCosts.of(device).slower_time_ratio)
        )

    def lower(self, desc: HasCopy, device: DeviceSpec, config: SlotConfig) -> tuple[Step, ...]:
        copy = desc.copy()
        extents, dest, source = copy.outer
        per_run = _slots_per_run(copy, config)
        if not extents:
            return (_slots_launch(copy, config, per_run, (), ((), ()), (0, 0)),)
        parts = _parts(copy, config)
        gaps = tuple(gaps_of(extents, strides, per_run * config.width) for strides in (dest, source))
        return tuple(
            _slots_launch(
                copy, config, per_run, (min(parts.step, extents[0] - first), *extents[1:]), gaps,
                (first * dest[0], first * source[0]),
            )
            for first in parts
        )  # fmt: skip


def _parts(copy: CopyProblem, config: SlotConfig) -> range:
    """Where each launch starts along the outermost axis."""
    extents, _, _ = copy.outer
    inner = math.prod(extents[1:]) * _slots_per_run(copy, config)
    return range(0, extents[0], max(1, MOST_INDICES // inner))


def slots_cost(copy: CopyProblem, device: DeviceSpec) -> Cost:
    """The cost of the configuration that `_slots_of` chooses."""
    config, axes, runs = _slots_of(copy), len(copy.outer[0]), math.prod(copy.outer[0])
    slots = runs * _slots_per_run(copy, config)
    instructions = SLOT_INSTRUCTIONS + AXIS_INSTRUCTIONS * max(axes - 1, 0) + SECTOR_INSTRUCTIONS * config.sectors
    stores = runs * touched(copy.length, copy.grains[0])
    if not config.sectors:  # where a warp's slots end within a sector, the next warp stores to it too
        stores += slots / WARP * (1 - copy.grains[0] / SECTOR)
    work = Work(
        slots * instructions, stores, CHUNK, _residents(config.unroll), runs * copy.length / config.width,
        "" if not config.fetch else "parts" if config.sectors else "all",
    )  # fmt: skip
    return work.cost(copy, device)


def _slots_launch(
    copy: CopyProblem, config: SlotConfig, per_run: int, extents: tuple[int, ...], gaps: tuple[tuple[int, ...], ...],
    at: tuple[int, int],
) -> Launch:  # fmt: skip
    """A launch over runs of these extents, the first of which is at byte offsets `at` in both operands."""
    slots = math.prod(extents) * per_run
    index = index_type(max([slots, *(abs(g) for each in gaps for g in each)]))
    flags = ", ".join(str(flag).lower() for flag in (config.sectors, config.fetch))
    entry = f"copy_slots<{index}, {len(extents)}, {config.width}, {config.unroll}, {flags}>"
    args = (
        Ptr(copy.dest, at[0]), Ptr(copy.source, at[1]), np.uint32(copy.length), index_scalar(slots, index),
        divisor(per_run, index), _packgaps_of(extents, gaps, index),
    )  # fmt: skip
    grid = grid_of(slots, THREADS * config.unroll)
    return Launch(Kernel("shape_layout/copy.cu", entry), grid, (THREADS, 1, 1), args)


def _residents(unroll: int) -> int:
    """Threads per SM, limited by registers: two addresses and a value for each of `unroll` accesses."""
    return min(2048, 65536 // (14 + 4 * unroll) // THREADS * THREADS)


def _slots_per_run(copy: CopyProblem, config: SlotConfig) -> int:
    """Slots of a run, or of the sectors that it can touch."""
    if not config.sectors:
        return copy.length // config.width
    return -(-(copy.length + SECTOR - copy.grains[0]) // SECTOR) * (SECTOR // config.width)


def _packgaps_of(extents: tuple[int, ...], gaps: tuple[tuple[int, ...], ...], index: str) -> Packed:
    """Gaps<index, len(extents)> of kernels/shape_layout/copy.cu."""
    kind, align = ("i", 4) if index == "u32" else ("q", 8)
    parts = [divisor(e, index).data for e in extents or (1,)]
    parts += [struct.pack(f"<{max(len(g), 1)}{kind}", *(g or (0,))) for g in gaps]
    return Packed(b"".join(parts), align)
