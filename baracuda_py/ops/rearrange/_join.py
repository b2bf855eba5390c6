"""join: rows of several arrays one after another, in one launch (kernels/rearrange/join.cu); other layouts by copies."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...plan.candidate import OK, Candidate, Cost, Feasibility, no
from ...plan.lowering import Sub
from ...plan.selection import Selection, selected
from ...runtime.steps import Arg, Kernel, Launch, Packed, Ptr, Step
from ...tensor.axes import alignment_of, merge_axes
from ...types import DeviceSpec
from .._launch import THREADS, divisor, grid_of, index_scalar, index_type
from ..shape_layout.write_slice import WriteSliceDescriptor, WriteSlicePlan

__all__ = ["MOST", "JoinCopies", "JoinRows", "Piece"]

MOST = 16  # pieces of a launch, as in the kernel
CHUNK = 16
UNROLL = 2
CHUNK_INSTRUCTIONS, PIECE_INSTRUCTIONS = (
    45,
    9,
)  # of a chunk, and for each piece that it may be of; estimated from the source, not counted


@dataclass(frozen=True)
class Piece:
    """An operand as rows of `length` bytes, from row to row `pitch` bytes; `dense` are the bytes of all rows, 0 where there are
    gaps between them."""

    name: str
    length: int
    pitch: int
    dense: int
    align: int


def pieces_of(desc: Any) -> tuple[Piece, ...] | None:
    """The operands with elements; None where one's rows are not contiguous or not evenly spaced."""
    found = []
    for name, shape, strides in desc.pieces():
        width, x = desc.element.bits // 8, desc.layout(name)
        if not math.prod(shape):
            continue
        outer, (pitch,) = merge_axes(shape[: desc.along], [strides[: desc.along]])
        inner, (step,) = merge_axes(shape[desc.along :], [strides[desc.along :]])
        if len(outer) > 1 or len(inner) > 1 or step not in ((), (1,)):
            return None
        length, rows = math.prod(inner) * width, math.prod(outer)
        by = pitch[0] * width if pitch else length
        found.append(Piece(name, length, by, length * rows if by == length else 0, x.align))
    return tuple(found)


class JoinRows(Candidate[Any]):
    """One launch: a thread has chunks of 16 bytes of the result, or grains where the result is not aligned to that."""

    variant = "rows"
    launches = ("rearrange/join.cu:join_rows",)

    def supports(self, desc: Any, device: DeviceSpec) -> Feasibility:
        if pieces_of(desc) is None:
            reason = "an operand's elements from the axis on are not contiguous, or its rows not evenly spaced"
            return no(reason, "contiguize(x) in its place")
        return OK

    def configs(self, desc: Any, device: DeviceSpec) -> Iterable[int]:
        grain = _grain(desc)
        return (CHUNK, grain) if desc.layout("out").align >= CHUNK and grain < CHUNK else (grain,)

    def cost(self, desc: Any, device: DeviceSpec, config: int) -> Cost:
        pieces = pieces_of(desc) or ()
        moved, grain = desc.element.nbytes(math.prod(desc.out_shape)), _grain(desc)
        row = max(sum(piece.length for piece in pieces), 1)
        each = CHUNK_INSTRUCTIONS + PIECE_INSTRUCTIONS * _menu(len(pieces))
        ends = min(1.0, 2.0 * len(pieces) * config / row) if config > grain else 0.0
        return Cost.streaming(device, 2 * moved, instructions=moved / config * each * (1 + ends * config / grain))

    def lower(self, desc: Any, device: DeviceSpec, config: int) -> tuple[Step, ...]:
        pieces, grain = pieces_of(desc) or (), _grain(desc)
        most, row = _menu(len(pieces)), sum(piece.length for piece in pieces)
        count = desc.element.nbytes(math.prod(desc.out_shape)) // grain
        index = index_type(count)
        ends = np.cumsum([piece.length // grain for piece in pieces]).tolist()
        table = list(zip([0, *ends], ends, (p.pitch for p in pieces), (p.dense for p in pieces)))
        table += [(row // grain + 1, row // grain + 1, 0, 0)] * (most - len(pieces))
        words = "I" if index == "u32" else "Q"
        data = b"".join(
            struct.pack(f"<{most}{kind}", *column) for kind, column in zip((words, words, "q", "q"), zip(*table))
        )
        null = np.uint64(0)
        args: tuple[Arg, ...] = (
            Ptr("out"), index_scalar(count, index), divisor(row // grain, index), Packed(data, 8),
            *(Ptr(piece.name) for piece in pieces), *[null] * (MOST - len(pieces)),
        )  # fmt: skip
        entry = f"join_rows<{index}, {most}, {grain}, {config}, {UNROLL}>"
        grid = grid_of(count, THREADS * UNROLL * (config // grain))
        return (Launch(Kernel("rearrange/join.cu", entry), grid, (THREADS, 1, 1), args),)


@dataclass(frozen=True)
class Copied:
    """The configuration: the copy of each operand with elements."""

    copies: tuple[tuple[str, Selection], ...]

    def __str__(self) -> str:
        return "+".join(dict.fromkeys(copy.candidate.variant for _, copy in self.copies))


class JoinCopies(Candidate[Any]):
    """One strided copy per operand, where elements are of any layout."""

    variant = "copies"
    launches = tuple(dict.fromkeys(launch for candidate in WriteSlicePlan.candidates for launch in candidate.launches))

    def supports(self, desc: Any, device: DeviceSpec) -> Feasibility:
        return OK if pieces_of(desc) is None else no("variant 'rows' joins these operands in one launch")

    def configs(self, desc: Any, device: DeviceSpec) -> Iterable[Copied]:
        shape, at, out = desc.out_shape, desc.along, desc.layout("out")
        first, copies = 0, []
        for name, extents, strides in desc.pieces():
            ranges = tuple((first, first + n) if axis == at else (0, n) for axis, n in enumerate(extents))
            offset = first * out.strides[at] * desc.element.bits // 8
            first += extents[at]
            if math.prod(extents):
                layouts: dict[str, Any] = {
                    "dest_align": min(out.align, alignment_of(offset)), "source_align": desc.layout(name).align,
                    "source_strides": strides,
                }  # fmt: skip
                copy = WriteSliceDescriptor(shape, ranges, desc.element, **layouts)
                copies.append((name, selected(WriteSlicePlan, copy, None, device)))
        yield Copied(tuple(copies))

    def cost(self, desc: Any, device: DeviceSpec, config: Copied) -> Cost:
        costs = [copy.cost for _, copy in config.copies]
        return Cost(
            sum(c.bytes for c in costs), 0, sum(c.seconds for c in costs), max(costs, key=lambda c: c.seconds).limit
        )

    def lower(self, desc: Any, device: DeviceSpec, config: Copied) -> tuple[Sub, ...]:
        return tuple(Sub(copy, {"dest": Ptr("out"), "source": Ptr(name)}) for name, copy in config.copies)


def _menu(count: int) -> int:
    """The kernel's number of pieces, for so many."""
    return next(most for most in (2, 4, 8, MOST) if count <= most)


def _grain(desc: Any) -> int:
    """The power of two, at most 16, that divides every address, row and pitch."""
    pieces = pieces_of(desc) or ()
    parts = [n for piece in pieces for n in (piece.align, piece.length, piece.pitch)]
    return min(int(desc.layout("out").align), CHUNK, *(alignment_of(n) for n in parts))
