"""Segments in pieces of a fixed number of rows, whose parts are joined in order (kernels/segment/)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from ...plan.candidate import Candidate, Cost, Feasibility, no
from ...plan.grammar import Config, term
from ...runtime.steps import Arg, Fill, Kernel, Launch, Packed, Ptr, Scratch, Step
from ...types import Componentwise, DeviceSpec, ElementKind, PrecisionGuarantee, Term, Ulp
from .._launch import pack_dims
from .._reported import raises_on
from .._rows import computed_in
from ..indexing.costs import LineCosts
from ._problem import Columns, SegmentProblem

__all__ = ["Pieces", "Spread", "bound", "gradient_bound"]

REDUCE, SPREAD = "segment/reduce.cu", "segment/spread.cu"
# Of those files and of kernels/include/segment/bounds.cuh.
THREADS, JOIN_THREADS, WARP, PIECE, UNROLL = 256, 512, 32, 256, 4
MOST_LINES = 8  # rows that a group reads at a time: more of narrow rows would idle in short segments
MOST_GRID_Y = 65_535
MOST = (1 << 31) - 1 - THREADS
MOST_LENGTH = MOST - MOST_GRID_Y * WARP * 8  # the step beyond the last column fits 31 bits
EXACT_COUNTS = 1 << 24  # of ones in f32


@dataclass(frozen=True)
class Group(Config):
    """What takes a piece of a segment, or a row."""

    lanes: int = term("threads across columns")
    lines: int = term("rows at a time")

    @staticmethod
    def of(length: int, vector: int) -> Group:
        lanes = min(WARP, 1 << max(0, -(-length // vector) - 1).bit_length())
        return Group(lanes, min(MOST_LINES, WARP // lanes))


class OnSegments(Candidate[SegmentProblem]):
    """What both candidates have in common."""

    def supports(self, desc: SegmentProblem, device: DeviceSpec) -> Feasibility:
        if desc.rows + desc.segments > MOST or desc.length > MOST_LENGTH:
            return no("rows and segments, or columns, exceed 31 bits", "make several calls")
        return raises_on(desc, device)

    def configs(self, desc: SegmentProblem, device: DeviceSpec) -> Iterable[Group]:
        yield Group.of(desc.length, self.columns(desc).vector)

    def columns(self, desc: SegmentProblem) -> Columns:
        """What the group reads."""
        raise NotImplementedError


class Pieces(OnSegments):
    """A group of threads per piece of a segment, then a CTA per longer segment. The order follows from a segment's length."""

    variant = "pieces"
    launches = tuple(f"{REDUCE}:{name}" for name in ("check_offsets", "reduce_pieces", "join_pieces"))

    def cost(self, desc: SegmentProblem, device: DeviceSpec, config: Group) -> Cost:
        moved = desc.element.nbytes(desc.length * (desc.rows + desc.segments))
        return _streamed(desc, device, moved, 3)

    def guarantee(self, desc: SegmentProblem, device: DeviceSpec, config: Group) -> PrecisionGuarantee:
        return bound(desc, _additions(desc, config))

    def columns(self, desc: SegmentProblem) -> Columns:
        return desc.columns(desc.layout("x").strides, None, ("out", "x"))

    def lower(self, desc: SegmentProblem, device: DeviceSpec, config: Group) -> tuple[Step, ...]:
        return (*_checked(desc), *_reduced(desc, config, self.columns(desc), desc.reduction.cuda, Ptr("out")))


class Spread(OnSegments):
    """The gradient of each row's segment; that of an extremum is divided among its ties first, which `reduce_pieces` counts."""

    variant = "spread"
    launches = (*Pieces.launches, f"{SPREAD}:spread_rows")

    def cost(self, desc: SegmentProblem, device: DeviceSpec, config: Group) -> Cost:
        chosen = desc.reduction.chosen
        moved = desc.element.nbytes(
            desc.length * (desc.rows * (3 if chosen else 1) + desc.segments * (4 if chosen else 1))
        )
        return _streamed(desc, device, moved, 4 if chosen else 2)

    def guarantee(self, desc: SegmentProblem, device: DeviceSpec, config: Group) -> PrecisionGuarantee:
        return gradient_bound(desc, _additions(desc, config))

    def columns(self, desc: SegmentProblem) -> Columns:
        x, grad = desc.layout("x").strides, desc.layout("grad").strides
        if desc.reduction.chosen:
            return desc.columns(x, grad, ("x", "grad", "y"))
        return desc.columns(None, grad, ("grad_x", "grad"))

    def lower(self, desc: SegmentProblem, device: DeviceSpec, config: Group) -> tuple[Step, ...]:
        if not desc.rows or not desc.length:
            return ()
        columns = self.columns(desc)
        if not desc.reduction.chosen:
            return *_checked(desc), _spread(desc, columns, Ptr("grad"))
        share = Scratch.named("share", desc.element.nbytes(desc.length * max(desc.segments, 1)))
        read = desc.columns(desc.layout("x").strides, None, ("grad_x", "x", "y"))
        return (
            *_checked(desc),
            *_reduced(desc, config, columns, "Share", share, Ptr("y"), Ptr("grad")),
            _spread(desc, read, share, Ptr("x"), Ptr("y")),
        )


def _spread(desc: SegmentProblem, columns: Columns, grad: Arg, x: Arg | None = None, y: Arg | None = None) -> Launch:
    """The launch that writes grad_x."""
    element, lanes = desc.element, Group.of(desc.length, columns.vector).lanes
    types = f"segment::{desc.reduction.gradient}, {element.number}, {computed_in(element).cuda}"
    options = f"{desc.offsets_element.number}, {columns.vector}, {lanes}, {len(columns.shape)}"
    args = Ptr("grad_x"), x or grad, grad, y or grad, Ptr("offsets"), _refused(desc)
    numbers = np.uint32(desc.segments), np.uint32(desc.rows), np.uint32(desc.length), _rows(columns)
    grid = _grid(desc, desc.rows, THREADS // lanes, lanes * columns.vector)
    return Launch(Kernel(SPREAD, f"spread_rows<{types}, {options}>"), grid, (THREADS, 1, 1), (*args, *numbers))


def _additions(desc: SegmentProblem, config: Group) -> float:
    """Those that a term goes through at most, of a segment of all rows."""
    pieces, shares = -(-desc.rows // PIECE), JOIN_THREADS // config.lanes
    joined = 0 if pieces < 2 else -(-pieces // shares) + math.log2(shares)
    return PIECE // config.lines + math.log2(config.lines) + joined + 2.0


def bound(desc: SegmentProblem, additions: float) -> PrecisionGuarantee:
    """The bound of sums and means of so many terms; an extremum is one of them, a NaN with bits of its own."""
    computed = computed_in(desc.element)
    if desc.reduction.chosen:
        made = PrecisionGuarantee.fixed_order(computed.math, computed.element, Ulp(0.5))
    else:
        mean = desc.reduction.cuda == "Mean"
        terms = [Term(additions + mean, computed.element, "abs_terms")]
        terms += [Term(1.0, computed.element, "computed_smallest_normal")] if mean else []
        sums = Componentwise.rounded(tuple(terms), desc.element, "Higham, section 4.2")
        made = PrecisionGuarantee.fixed_order(computed.math, computed.element, sums)
    if not desc.has_status:
        return made
    return PrecisionGuarantee.by_output(out=made, status=PrecisionGuarantee.exact(ElementKind.I32))


def gradient_bound(desc: SegmentProblem, additions: float) -> PrecisionGuarantee:
    """A quotient is rounded as it is computed and to its type; more ties than f32 counts exactly err as a sum does."""
    computed = computed_in(desc.element)
    counted = additions if desc.reduction.chosen and desc.rows > EXACT_COUNTS else 0.0
    ulps = Ulp(1.0 + counted) if desc.reduction.gradient != "Sum" else Ulp(0.5)
    return PrecisionGuarantee.fixed_order(computed.math, computed.element, ulps)


def _streamed(desc: SegmentProblem, device: DeviceSpec, moved: int, launches: int) -> Cost:
    moved += 2 * desc.offsets_element.nbytes(desc.segments)
    one = Cost.streaming(device, moved, efficiency=LineCosts.of(device).bandwidth_efficiency)
    return Cost(one.bytes, desc.rows * desc.length, one.seconds + (launches - 1) * device.overhead, one.limit)


def _refused(desc: SegmentProblem) -> Ptr | Scratch:
    """Where it is noted that offsets are refused."""
    return Ptr("status") if desc.has_status else Scratch.named("refused", 4)


def _checked(desc: SegmentProblem) -> tuple[Step, ...]:
    """The steps that check the offsets; none where nothing depends on it."""
    if not desc.has_status and 0 in desc.layout(desc.result).shape:
        return ()
    args = _refused(desc), Ptr("offsets"), np.int64(desc.rows), np.uint32(desc.segments)
    kernel = Kernel(REDUCE, f"check_offsets<{desc.offsets_element.number}>")
    grid = -(-(desc.segments + 1) // THREADS), 1, 1
    return Fill(_refused(desc), 0, 4), Launch(kernel, grid, (THREADS, 1, 1), args)


def _reduced(
    desc: SegmentProblem, config: Group, columns: Columns, op: str, out: Ptr | Scratch, y: Arg | None = None,
    grad: Arg | None = None,
) -> tuple[Step, ...]:  # fmt: skip
    """The launches that reduce segments of x into `out`."""
    if not desc.segments or not desc.length:
        return ()
    element, computed, vector = desc.element.number, computed_in(desc.element), columns.vector
    axes, multiples = len(columns.shape), desc.rows // PIECE + 1
    types = f"segment::{op}, {element}, {computed.cuda}, {desc.offsets_element.number}, {vector}"
    units = desc.segments + desc.rows // PIECE
    parts = Scratch.named("parts", 2 * multiples * desc.length * computed.element.bits // 8)
    bounds, none = (Ptr("offsets"), _refused(desc)), Ptr("offsets")
    segments, length = np.uint32(desc.segments), np.uint32(desc.length)
    pieces = Launch(
        Kernel(REDUCE, f"reduce_pieces<{types}, {config.lanes}, {config.lines}, {axes}, {UNROLL}>"),
        _grid(desc, units, THREADS // (config.lanes * config.lines), config.lanes * vector), (THREADS, 1, 1),
        (out, parts, Ptr("x"), *bounds, y or none, grad or none, segments, np.uint32(units), length, _rows(columns)),
    )  # fmt: skip
    if desc.rows <= PIECE:
        return (pieces,)
    grid = _grid(desc, -(-desc.rows // PIECE), 1, config.lanes * vector)
    joined = Launch(
        Kernel(REDUCE, f"join_pieces<{types}, {config.lanes}, {axes}>"), grid,
        (JOIN_THREADS, 1, 1), (out, parts, *bounds, grad or none, segments, np.uint32(desc.rows), length, _rows(columns)),
    )  # fmt: skip
    return pieces, joined


def _rows(columns: Columns) -> Packed:
    """segment::Rows."""
    return Packed(
        pack_dims(columns.shape, columns.strides, "u32").data + np.array(columns.steps, np.int64).tobytes(), 8
    )


def _grid(desc: SegmentProblem, items: int, per_cta: int, columns: int) -> tuple[int, int, int]:
    return max(1, -(-items // per_cta)), min(MOST_GRID_Y, -(-desc.length // columns)), 1
