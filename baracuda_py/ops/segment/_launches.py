"""The launches that reduce segments of rows, in pieces of a fixed number of rows whose parts are joined in order."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ...plan.candidate import Cost, Feasibility, no
from ...plan.grammar import Config, term
from ...runtime.steps import Arg, Kernel, Launch, Packed, Ptr, Scratch, Step
from ...types import DeviceSpec, ElementKind
from .._launch import pack_dims
from .._reported import raises_on
from .._rows import computed_in
from ..indexing.costs import LineCosts
from ._problem import Columns

__all__ = [
    "MOST", "MOST_LENGTH", "NOTHING", "REDUCE", "THREADS", "Group", "Segments", "additions", "grid", "packed_rows", "reduced",
    "streamed", "supported",
]  # fmt: skip

REDUCE = "segment/reduce.cu"
# Of that file and of kernels/include/segment/bounds.cuh.
THREADS, JOIN_THREADS, SCANNED, WARP, PIECE, UNROLL = 256, 512, 16, 32, 256, 4
MOST_LINES = 8  # rows that a group reads at a time: more of narrow rows would idle in short segments
MOST_GRID_Y = 65_535
MOST = (1 << 31) - 1 - THREADS
MOST_LENGTH = MOST - MOST_GRID_Y * WARP * 8  # the step beyond the last column fits 31 bits
NOTHING = np.uint64(0)  # a null pointer
NARROW = 64  # bits of an access, of which twice as many are in flight


def supported(desc: Any, device: DeviceSpec, counted: int, what: str) -> Feasibility:
    """Whether the launches can do a problem with `counted` of `what`, and the device what its mode says."""
    if counted > MOST or desc.length > MOST_LENGTH:
        return no(f"{what}, or columns, exceed 31 bits", "make several calls")
    return raises_on(desc, device)


@dataclass(frozen=True)
class Group(Config):
    """What takes a piece of a segment, or a row."""

    lanes: int = term("threads across columns")
    lines: int = term("rows at a time")

    @staticmethod
    def of(length: int, vector: int) -> Group:
        lanes = min(WARP, 1 << max(0, -(-length // vector) - 1).bit_length())
        return Group(lanes, min(MOST_LINES, WARP // lanes))


class Segments(NamedTuple):
    """Segments of `rows` entries of x: the offsets and their C++ type, and the flag that refuses them. Entry i is row i, or the
    row that `listed` names, times its weight, of the C++ type `weighted`; `sizes` counts the entries of each segment that name
    a row."""

    x: Arg
    columns: Columns
    element: ElementKind
    length: int
    rows: int
    segments: int
    offsets: Arg
    number: str
    refused: Arg
    listed: Arg | None = None
    weights: Arg | None = None
    weighted: str = ""
    sizes: Arg = NOTHING

    @property
    def entries(self) -> str:
        """Their C++ type."""
        if self.listed is None:
            return "segment::Every"
        weighted = str(self.weights is not None).lower()
        return f"segment::Listed<{self.weighted or self.element.number}, {weighted}>"


def reduced(
    these: Segments, op: str, out: Ptr | Scratch, *, y: Arg = NOTHING, grad: Arg = NOTHING, second: Arg = NOTHING
) -> tuple[Step, ...]:
    """The launches that reduce segments into `out`."""
    x, columns, element, length, rows, segments, offsets, number, refused, listed, weights, _, sizes = these
    if not segments or not length:
        return ()
    computed, vector, axes = computed_in(element), columns.vector, len(columns.shape)
    config = Group.of(length, vector)
    types = f"segment::{op}, {element.number}, {computed.cuda}, {number}, {vector}"
    unroll = UNROLL if second is NOTHING else UNROLL // 2  # as many loads of two arrays
    unroll *= 2 if vector * element.bits <= NARROW else 1
    units = segments + rows // PIECE
    parts = Scratch.named("parts", 2 * (rows // PIECE + 1) * length * computed.element.bits // 8)
    count, across = np.uint32(length), packed_rows(columns)
    pieces = Launch(
        Kernel(REDUCE, f"reduce_pieces<{types}, {config.lanes}, {config.lines}, {axes}, {unroll}, {these.entries}>"),
        grid(length, units, THREADS // (config.lanes * config.lines), config.lanes * vector), (THREADS, 1, 1),
        (out, parts, x, offsets, refused, y, grad, listed or NOTHING, weights or NOTHING, sizes, second, np.uint32(segments),
         np.uint32(units), count, across),
    )  # fmt: skip
    if rows <= PIECE:
        return (pieces,)
    scans = -(-segments // (JOIN_THREADS // WARP * SCANNED))
    joined = Launch(
        Kernel(REDUCE, f"join_pieces<{types}, {config.lanes}, {axes}>"),
        grid(length, scans + -(-rows // (_in_a_warp(config) * PIECE)), 1, config.lanes * vector), (JOIN_THREADS, 1, 1),
        (out, parts, offsets, refused, grad, sizes, np.uint32(segments), np.uint32(rows), count, across, np.uint32(scans)),
    )  # fmt: skip
    return pieces, joined


def additions(rows: int, config: Group) -> float:
    """Those that a term goes through at most, of a segment of so many rows."""
    pieces, few = -(-rows // PIECE), _in_a_warp(config)
    shares = [(min(pieces, few), WARP // config.lanes), (pieces if pieces > few else 0, JOIN_THREADS // config.lanes)]
    joined = max((-(-parts // each) + math.log2(each) for parts, each in shares if parts > 1), default=0.0)
    return PIECE // config.lines + math.log2(config.lines) + joined + 2.0


def _in_a_warp(config: Group) -> int:
    """Parts of a segment that a warp joins; more take a CTA."""
    return 128 // config.lanes


def streamed(device: DeviceSpec, moved: int, flops: int, launches: int) -> Cost:
    one = Cost.streaming(device, moved, efficiency=LineCosts.of(device).bandwidth_efficiency)
    return Cost(one.bytes, flops, one.seconds + (launches - 1) * device.overhead, one.limit)


def packed_rows(columns: Columns) -> Packed:
    """segment::Rows."""
    return Packed(
        pack_dims(columns.shape, columns.strides, "u32").data + np.array(columns.steps, np.int64).tobytes(), 8
    )


def grid(length: int, items: int, per_cta: int, columns: int) -> tuple[int, int, int]:
    return max(1, -(-items // per_cta)), min(MOST_GRID_Y, -(-length // columns)), 1
