"""wgmma_padded: wgmma over copies of the operands that TMA cannot take as they lie (kernels/gemm/pad.cu).

One launch copies a or b, or both, into the plan's scratch, line for line, each line on a multiple of 16 bytes; wgmma's own
lowering serves the problem so described. A broadcast batch axis is copied once. The sums are wgmma's.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from ...plan.candidate import Candidate, Cost, Feasibility, no
from ...plan.descriptor import Layout
from ...runtime.steps import Arg, Kernel, Launch, Ptr, Scratch, Step, Struct, TensorMap
from ...tensor.axes import merge_axes, span
from ...types import DeviceSpec, PrecisionGuarantee
from .._launch import THREADS, divisor, index_scalar, index_type, pack_dims
from ._checks import fixed
from ._wgmma import Tile, Wgmma, launch, view_of

__all__ = ["WgmmaPadded"]

WORD = 16  # bytes that TMA wants lines on multiples of
LINE = 128  # bytes of a cache line, on which long lines lie
UNROLL = 4  # words a thread
WARP_BITS = 5
LATENCY = 1.0e-6  # seconds from the first load to the last store


@dataclass(frozen=True)
class Padding:
    """The product's tile, and the operands that are copied for it."""

    tile: Tile
    copied: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.tile} copies {'+'.join(self.copied)}"


@dataclass(frozen=True)
class Duplicate:
    """A copy of one operand: `lines` of `length` elements, a pitch apart, in C order of the axes that are not broadcast."""

    operand: str
    source: Layout
    inner: int  # the axis along which a line runs
    outer: tuple[int, ...]  # the axes that lines are counted along

    @staticmethod
    def of(operand: str, source: Layout) -> Duplicate:
        rank = len(source.shape)
        walked = [axis for axis in range(rank) if source.shape[axis] > 1]
        matrix = [axis for axis in walked if axis >= rank - 2] or [rank - 1]
        inner = min(matrix, key=lambda axis: abs(source.strides[axis]) or math.inf)
        lead = (axis for axis in walked if axis < rank - 2 and source.strides[axis])
        return Duplicate(operand, source, inner, (*lead, *(axis for axis in matrix if axis != inner)))

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
        """Bytes. Lines of several cache lines start on one, short ones lie closer."""
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
    def words(self) -> int:
        """Of a line."""
        return -(-self.length * self.itemsize // WORD)

    @property
    def lane_bits(self) -> int:
        """log2 of the threads side by side on a line."""
        return min(WARP_BITS, (-(-self.words // UNROLL) - 1).bit_length())

    @property
    def parts(self) -> int:
        """Of a line: what such threads copy."""
        return -(-self.words // (UNROLL << self.lane_bits))

    @property
    def ctas(self) -> int:
        return -(-(self.lines * self.parts << self.lane_bits) // THREADS)

    def walked(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Extents and source strides in bytes of the axes that lines are counted along, as few as will do."""
        extents, (steps,) = merge_axes(
            self.extents, [[self.source.strides[axis] * self.itemsize for axis in self.outer]]
        )
        return (extents, steps) if extents else ((1,), (0,))

    def struct(self, to: Scratch, index: str, rank: int) -> Struct:
        """Matrix<index, rank> of kernels/gemm/pad.cu."""
        extents, steps = self.walked()
        fill = rank - len(extents)
        numbers = (*span(self.source.shape, self.source.strides, self.source.element), self.pitch,
                   self.source.strides[self.inner] * self.itemsize if self.length > 1 else self.itemsize)  # fmt: skip
        return Struct((
            to, Ptr(self.operand), *map(np.int64, numbers),
            *map(np.uint32, (self.length, self.words, self.lane_bits, 0)), divisor(self.parts, index),
            pack_dims((1,) * fill + extents, [(0,) * fill + steps], index), index_scalar(self.lines * self.parts, index),
        ))  # fmt: skip


@lru_cache(maxsize=256)
def duplicates(desc: Any) -> tuple[Duplicate, ...]:
    """The operands that TMA cannot take as they lie."""
    gemm = desc.gemm
    lines = ((gemm.a, gemm.m), (gemm.b.mT, gemm.n))
    ragged = sorted(x.operand for x, mn in lines if view_of(x, mn, gemm.k) is None)
    return tuple(Duplicate.of(name, desc.layout(name)) for name in ragged)


@lru_cache(maxsize=256)
def padded(desc: Any) -> Any:
    """The problem of the copies."""
    changed: dict[str, Any] = {}
    for x in duplicates(desc):
        changed |= {f"{x.operand}_strides": x.strides, f"{x.operand}_align": WORD}
    return replace(desc, **changed)


def places(copies: tuple[Duplicate, ...]) -> dict[str, Scratch]:
    """Where each copy lies in the scratch, one after the other."""
    found, offset = {}, 0
    for x in copies:
        found[x.operand] = Scratch(offset, x.nbytes)
        offset += -(-x.nbytes // LINE) * LINE
    return found


def copy_step(copies: tuple[Duplicate, ...]) -> Launch:
    """One launch for all of them."""
    to = places(copies)
    index = index_type(max(x.lines * x.parts for x in copies))
    rank = max(len(x.walked()[0]) for x in copies)
    structs = [x.struct(to[x.operand], index, rank) for x in copies]
    return Launch(
        Kernel("gemm/pad.cu", f"pad<{copies[0].itemsize}, {index}, {rank}>"),
        (sum(x.ctas for x in copies), 1, 1),
        (THREADS, 1, 1),
        (structs[0], structs[-1], np.uint32(copies[0].ctas)),
        overlapped=True,
    )


class WgmmaPadded(Candidate[Any]):
    variant = "wgmma_padded"
    _product = Wgmma()

    def supports(self, desc: Any, device: DeviceSpec) -> Feasibility:
        if not (named := fixed(desc, self.variant)):
            return named
        if not (admissible := self._product.supports(padded(desc), device)):
            return admissible
        if not duplicates(desc):
            return no("no operand needs a copy: TMA takes both as they lie", f'variant="{self._product.variant}"')
        return admissible

    def configs(self, desc: Any, device: DeviceSpec) -> Iterator[Padding]:
        copied = tuple(x.operand for x in duplicates(desc))
        return (Padding(tile, copied) for tile in self._product.configs(padded(desc), device))

    def cost(self, desc: Any, device: DeviceSpec, config: Padding) -> Cost:
        product = self._product.cost(padded(desc), device, config.tile)
        read, written = (sum(getattr(x, what) for x in duplicates(desc)) for what in ("useful", "nbytes"))
        # What L2 keeps of the copies is on its way to memory while the product begins, and is not read from there.
        kept = min(written, device.l2_bytes // 2)
        seconds = device.overhead / 2 + LATENCY + (read + written - kept / 2) / device.bandwidth
        limit = product.limit if product.seconds > seconds else "bandwidth"
        return Cost(product.bytes + read + written, product.flops, product.seconds + seconds, limit)

    def guarantee(self, desc: Any, device: DeviceSpec, config: Padding) -> PrecisionGuarantee:
        return self._product.guarantee(padded(desc), device, config.tile)

    def lower(self, desc: Any, device: DeviceSpec, config: Padding) -> tuple[Step, ...]:
        copies = duplicates(desc)
        to = places(copies)

        def moved(arg: Arg) -> Arg:
            if isinstance(arg, TensorMap) and isinstance(arg.of, Ptr):
                return replace(arg, of=to.get(arg.of.operand, arg.of))
            return arg

        product = launch(padded(desc), device, config.tile)
        return copy_step(copies), replace(product, args=tuple(map(moved, product.args)))
