"""A strided copy between two operands: dest[i, ...] = source[i, ...] for every byte width, its axes collapsed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from ...tensor.axes import alignment_of, collapse
from ...types import ElementKind

__all__ = ["BYTES_OR_NIBBLES", "CHUNK", "LINE", "SECTOR", "CopyProblem", "gaps_of", "touched"]

BYTES_OR_NIBBLES = tuple(kind for kind in ElementKind if kind is not ElementKind.BIN)  # single bits cannot be written
CHUNK = 16
SECTOR, LINE = 32, 128  # bytes: the unit between memory and L2, and a cache line
# Measured on an H200, as bytes that memory could have moved meanwhile: opening a DRAM row for a run, and reading
# the rest of partly written sectors beside whole ones.
SCATTERED, MIXED = 60, 160


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
        """Bytes of a run; of a unit where nothing is contiguous."""
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
        """Whether the destination's runs follow one another without gaps."""
        extents, dest, _ = self.outer
        return not any(gaps_of(extents, dest, self.length))

    def traffic(self, *, fetched: str = "") -> float:
        """Bytes that memory moves, or could move in the same time. A partly written sector is read as well. `fetched` says which
        sectors the kernel reads ahead: none, partly written ones (``"parts"``), or all (``"all"``)."""
        extents, _, source = self.outer
        runs, (dest_grain, source_grain) = math.prod(extents), self.grains
        read = written = float(runs * self.length)
        if any(gaps_of(extents, source, self.length)):
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


def gaps_of(extents: tuple[int, ...], strides: tuple[int, ...], run: int) -> tuple[int, ...]:
    """How far each axis steps beyond runs of `run` bytes packed without gaps."""
    gaps, dense = [], run
    for extent, stride in zip(reversed(extents), reversed(strides)):
        gaps.append(stride - dense)
        dense *= extent
    return tuple(reversed(gaps))
