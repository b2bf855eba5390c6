"""Staged copies: operands that TMA cannot read, copied to scratch with lines on multiples of 16 bytes (kernels/gemm/pad.cu).

Says which operands are copied, the copies' layouts, and which launches make them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from ....plan.descriptor import Layout
from ....runtime.steps import Kernel, Launch, Ptr, Scratch, Struct
from ....tensor.axes import merge_axes, span
from ..._launch import THREADS, WORD, divisor, index_scalar, index_type, pack_dims
from .tma import either_major, scales_map, taken

__all__ = ["WORD", "StagedCopy", "copy_steps", "over_copies", "places", "relaid", "staged_copies"]

LINE = 128  # bytes of a cache line, on which long lines begin
UNROLL = 4  # 16-byte words per thread
WARP_BITS = 5
TILE = 16384  # bytes that are transposed at once


@dataclass(frozen=True)
class StagedCopy:
    """A copy of one operand: `lines` of `length` elements, at a pitch, in C order of the axes that are not broadcast."""

    operand: str
    source: Layout
    inner: int  # the axis along which a line runs
    outer: tuple[int, ...]  # the axes that lines are counted along
    transposed: bool  # whether the source is contiguous across lines

    @staticmethod
    def of(operand: str, source: Layout, along: int | None = None) -> StagedCopy:
        """A copy whose lines run along axis `along`, by default the source's contiguous axis."""
        rank = len(source.shape)
        walked = [axis for axis in range(rank) if source.shape[axis] > 1]
        matrix = [axis for axis in walked if axis >= rank - 2] or [rank - 1]
        nearest = min(matrix, key=lambda axis: abs(source.strides[axis]) or math.inf)
        inner = nearest if along is None else along
        lead = (axis for axis in walked if axis < rank - 2 and source.strides[axis])
        outer = (*lead, *(axis for axis in matrix if axis != inner))
        return StagedCopy(operand, source, inner, outer, inner in matrix and inner != nearest)

    def __str__(self) -> str:
        return f"{self.operand}.T" if self.transposed else self.operand

    @property
    def itemsize(self) -> int:
        return self.source.element.bits // 8

    @property
    def length(self) -> int:
        return self.source.shape[self.inner]

    @property
    def extents(self) -> tuple[int, ...]:
        return tuple(self.source.shape[axis] for axis in self.outer)

    @property
    def lines(self) -> int:
        return math.prod(self.extents)

    @property
    def pitch(self) -> int:
        """Bytes from line to line. Long lines begin on cache lines, short ones are packed closer."""
        nbytes = self.length * self.itemsize
        unit = LINE if nbytes >= 4 * LINE else WORD
        return -(-nbytes // unit) * unit

    @property
    def nbytes(self) -> int:
        return self.lines * self.pitch

    @property
    def strides(self) -> tuple[int, ...]:
        """In elements, of the operand's axes: 0 where it is broadcast."""
        steps = {self.inner: 1}
        step = self.pitch // self.itemsize
        for axis in reversed(self.outer):
            steps[axis] = step
            step *= self.source.shape[axis]
        return tuple(steps.get(axis, 0) for axis in range(len(self.source.shape)))

    @property
    def useful(self) -> int:
        """Bytes that are read."""
        return self.lines * self.length * self.itemsize

    # -- the kernel's view ------------------------------------------------------------------------------------------------

    @property
    def ctas(self) -> int:
        if self.transposed:
            lines, length = self._tile
            return -(-self.extents[-1] // lines) * -(-self.length // length) * math.prod(self.extents[:-1])
        return -(-(self.lines * self._parts << self._lane_bits) // THREADS)

    @property
    def entry(self) -> str:
        """The C++ type of the struct."""
        if self.transposed:
            return f"Transposed<{self.itemsize}, {len(self._walked(self.outer[:-1])[0])}>"
        return f"Lines<{self.itemsize}, {self._index}, {len(self._walked(self.outer)[0])}>"

    def struct(self, to: Scratch) -> Struct:
        low, high = span(self.source.shape, self.source.strides, self.source.element)
        source = (Ptr(self.operand), np.int64(low), np.int64(high), to, np.int64(self.pitch), self._step(self.inner))
        if self.transposed:
            lines, length = self._tile
            above, beside = -(-self.extents[-1] // lines), -(-self.length // length)
            extents, steps = self._walked(self.outer[:-1])
            return Struct((
                *source, self._step(self.outer[-1]), np.uint32(self.length), np.uint32(self.extents[-1]),
                divisor(above * beside, "u32"), divisor(beside, "u32"), pack_dims(extents, [steps], "u32"),
            ))  # fmt: skip
        extents, steps = self._walked(self.outer)
        return Struct((
            *source, *map(np.uint32, (self.length, self._words, self._lane_bits, 0)), divisor(self._parts, self._index),
            pack_dims(extents, [steps], self._index), index_scalar(self.lines * self._parts, self._index),
        ))  # fmt: skip

    def _step(self, axis: int) -> np.int64:
        """Bytes between neighbours along an axis; an element's where the extent is 1."""
        return np.int64((self.source.strides[axis] if self.source.shape[axis] > 1 else 1) * self.itemsize)

    def _walked(self, axes: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Extents and source strides in bytes, with axes merged."""
        shape, strides = self.source.shape, self.source.strides
        extents, (steps,) = merge_axes(
            [shape[axis] for axis in axes], [[strides[axis] * self.itemsize for axis in axes]]
        )
        return (extents, steps) if extents else ((1,), (0,))

    @property
    def _tile(self) -> tuple[int, int]:
        """Lines, and elements of each, that a CTA transposes."""
        lines = 64 if self.itemsize == 4 else 128
        return lines, TILE // lines // self.itemsize

    @property
    def _words(self) -> int:
        """16-byte words of a line."""
        return -(-self.length * self.itemsize // WORD)

    @property
    def _lane_bits(self) -> int:
        """log2 of the adjacent threads on a line."""
        return min(WARP_BITS, (-(-self._words // UNROLL) - 1).bit_length())

    @property
    def _parts(self) -> int:
        """Parts of a line, each copied by one such group of threads."""
        return -(-self._words // (UNROLL << self._lane_bits))

    @property
    def _index(self) -> str:
        return index_type(self.lines * self._parts)


@lru_cache(maxsize=256)
def staged_copies(desc: Any) -> tuple[StagedCopy, ...]:
    """The operands that wgmma cannot take without a copy."""
    gemm = desc.gemm
    lines = ((gemm.a, gemm.m), (gemm.b.mT, gemm.n))
    names = sorted([x.operand for x, mn in lines if taken(x, mn, gemm.k) is None])
    if gemm.blocked and scales_map(gemm, 1) is None:
        names.append("scale_a")
    return tuple(_staged_copy(name, desc.layout(name)) for name in names)


def _staged_copy(name: str, source: Layout) -> StagedCopy:
    if not source.shape:  # one scale
        source = source._replace(shape=(1,), strides=(1,))
    rank = len(source.shape)
    along = rank - 1 if name == "a" or rank == 1 else rank - 2  # K; for scales M
    return StagedCopy.of(name, source, None if either_major(source.element) else along)


@lru_cache(maxsize=256)
def over_copies(desc: Any) -> Any:
    """The problem whose operands are the copies."""
    return replace(desc, **relaid(desc, staged_copies(desc)))


def relaid(desc: Any, copies: tuple[StagedCopy, ...]) -> dict[str, Any]:
    """The fields of a problem whose operands have their copies' layouts."""
    changed: dict[str, Any] = {}
    for x in copies:
        rank = len(desc.layout(x.operand).shape)
        changed |= {f"{x.operand}_strides": x.strides[:rank], f"{x.operand}_align": WORD}
    return changed


def places(copies: tuple[StagedCopy, ...]) -> dict[str, Scratch]:
    """Where each copy is in the scratch, one after the other."""
    found, offset = {}, 0
    for x in copies:
        found[x.operand] = Scratch(offset, x.nbytes)
        offset += -(-x.nbytes // LINE) * LINE
    return found


def copy_steps(copies: tuple[StagedCopy, ...]) -> tuple[Launch, ...]:
    """A launch for every two of them."""
    to = places(copies)
    pairs = (copies[i : i + 2] for i in range(0, len(copies), 2))
    return tuple(_copy_step(pair[0], pair[-1], to) for pair in pairs)


def _copy_step(first: StagedCopy, last: StagedCopy, to: dict[str, Scratch]) -> Launch:
    """One launch that makes both copies, or one where `first` is `last`."""
    return Launch(
        Kernel("gemm/pad.cu", f"pad<{first.entry}, {last.entry}>"),
        (first.ctas + (last.ctas if last is not first else 0), 1, 1),
        (THREADS, 1, 1),
        (first.struct(to[first.operand]), last.struct(to[last.operand]), np.uint32(first.ctas)),
        pdl=True,
    )
