"""Segments in pieces of a fixed number of rows, whose parts are joined in order (kernels/segment/)."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ...numerics.guarantee import product_term
from ...plan.candidate import Candidate, Cost, Feasibility
from ...runtime.steps import Arg, Fill, Kernel, Launch, Ptr, Scratch, Step
from ...types import Componentwise, DeviceSpec, ElementKind, PrecisionGuarantee, Term, Ulp
from .._rows import computed_in
from ._launches import (
    NOTHING,
    REDUCE,
    THREADS,
    Group,
    Segments,
    additions,
    grid,
    packed_rows,
    reduced,
    streamed,
    supported,
)
from ._problem import Columns, SegmentProblem

__all__ = [
    "OnSegments",
    "Pieces",
    "Spread",
    "bound",
    "checked",
    "cost",
    "gradient_bound",
    "maxima",
    "segments_of",
    "spread",
]

SPREAD = "segment/spread.cu"
EXACT_COUNTS = 1 << 24  # of ones in f32


class OnSegments(Candidate[SegmentProblem]):
    """What both candidates have in common."""

    def supports(self, desc: SegmentProblem, device: DeviceSpec) -> Feasibility:
        return supported(desc, device, desc.rows + desc.segments, "rows and segments")

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
        passes = 1 + (desc.reduction.cuda == "LogSumExp")
        return cost(
            desc, device, passes * desc.element.nbytes(desc.length * (desc.rows + desc.segments)), 1 + 2 * passes
        )

    def guarantee(self, desc: SegmentProblem, device: DeviceSpec, config: Group) -> PrecisionGuarantee:
        return bound(desc, additions(desc.rows, config))

    def columns(self, desc: SegmentProblem) -> Columns:
        return desc.columns(desc.layout("x").strides, None, ("out", "x"))

    def lower(self, desc: SegmentProblem, device: DeviceSpec, config: Group) -> tuple[Step, ...]:
        these, op = segments_of(desc, self.columns(desc)), desc.reduction.cuda
        if op != "LogSumExp":
            return (*checked(desc), *reduced(these, op, Ptr("out")))
        most = maxima(desc)
        return (*checked(desc), *reduced(these, "Max", most), *reduced(these, op, Ptr("out"), y=most, grad=most))


class Spread(OnSegments):
    """The gradient of each row's segment; that of an extremum is divided among its ties first, which `reduce_pieces` counts."""

    variant = "spread"
    launches = (*Pieces.launches, f"{SPREAD}:spread_rows")

    def cost(self, desc: SegmentProblem, device: DeviceSpec, config: Group) -> Cost:
        of = desc.reduction
        factors = of.reads and not of.remembered
        moved = desc.rows * (1 + of.reads + of.chosen + 2 * factors)
        moved += desc.segments * (1 + of.remembered + 2 * of.chosen + 4 * factors)
        return cost(desc, device, desc.element.nbytes(desc.length * moved), 4 if of.chosen else 6 if factors else 2)

    def guarantee(self, desc: SegmentProblem, device: DeviceSpec, config: Group) -> PrecisionGuarantee:
        return gradient_bound(desc, additions(desc.rows, config))

    def columns(self, desc: SegmentProblem) -> Columns:
        x, grad = desc.layout("x").strides, desc.layout("grad").strides
        if desc.reduction.reads:
            return desc.columns(x, grad, ("grad_x", "x", "grad", *(("y",) if desc.reduction.remembered else ())))
        return desc.columns(None, grad, ("grad_x", "grad"))

    def lower(self, desc: SegmentProblem, device: DeviceSpec, config: Group) -> tuple[Step, ...]:
        if not desc.rows or not desc.length:
            return ()
        columns, op = self.columns(desc), desc.reduction.gradient
        if op == "LogSumExp":
            return *checked(desc), spread(desc, op, columns, "grad_x", Ptr("grad"), Ptr("x"), Ptr("y"))
        if op == "OtherFactors":
            results = desc.length * max(desc.segments, 1)
            zeros = Scratch.named("zeros", desc.element.nbytes(results))
            factors = Scratch.named("factors", computed_in(desc.element).element.nbytes(results))
            these = segments_of(desc, columns)
            return (
                *checked(desc),
                *reduced(these, "Zeros", zeros),
                *reduced(these, op, factors, y=zeros),
                spread(desc, op, columns, "grad_x", Ptr("grad"), Ptr("x"), zeros, factors),
            )
        if not desc.reduction.chosen:
            return *checked(desc), spread(desc, op, columns, "grad_x", Ptr("grad"))
        share = Scratch.named("share", desc.element.nbytes(desc.length * max(desc.segments, 1)))
        read = desc.columns(desc.layout("x").strides, None, ("grad_x", "x", "y"))
        return (
            *checked(desc),
            *reduced(segments_of(desc, columns), "Share", share, y=Ptr("y"), grad=Ptr("grad")),
            spread(desc, op, read, "grad_x", share, Ptr("x"), Ptr("y")),
        )


def spread(
    desc: SegmentProblem, op: str, columns: Columns, out: str, grad: Arg = NOTHING, x: Arg = NOTHING, y: Arg = NOTHING,
    stats: Arg = NOTHING,
) -> Launch:  # fmt: skip
    """The launch that writes to each row what it has of its segment."""
    element, lanes = desc.element, Group.of(desc.length, columns.vector).lanes
    types = f"segment::{op}, {element.number}, {computed_in(element).cuda}"
    options = f"{desc.offsets_element.number}, {columns.vector}, {lanes}, {len(columns.shape)}"
    args = Ptr(out), x, grad, y, stats, Ptr("offsets"), _refused(desc)
    numbers = np.uint32(desc.segments), np.uint32(desc.rows), np.uint32(desc.length), packed_rows(columns)
    ctas = grid(desc.length, desc.rows, THREADS // lanes, lanes * columns.vector)
    return Launch(Kernel(SPREAD, f"spread_rows<{types}, {options}>"), ctas, (THREADS, 1, 1), (*args, *numbers))


def bound(desc: SegmentProblem, added: float) -> PrecisionGuarantee:
    """The bound of sums and means of so many terms, and of products of all rows; an extremum is one of them, a NaN with bits of
    its own. For logsumexp see ops/softmax/_guarantee.py."""
    computed = computed_in(desc.element)
    if desc.reduction.chosen:
        made = PrecisionGuarantee.fixed_order(computed.math, computed.element, Ulp(0.5))
    elif desc.reduction.cuda == "LogSumExp":
        u = computed.element
        terms = [Term(added + 6.0, u, "one"), Term(3.0, u, "expected_shift"), Term(4.0, u, "log_sum")]
        sums = Componentwise.rounded((*terms, Term(2.0, u, "abs_result")), desc.element, "Higham, section 4.2")
        made = PrecisionGuarantee.fixed_order(computed.math, u, sums)
    elif desc.reduction.cuda == "Product":
        factors = product_term(max(desc.rows, added), computed.element, "product")
        product = Componentwise.rounded((factors,), desc.element, "Higham, section 3.1")
        made = PrecisionGuarantee.fixed_order(computed.math, computed.element, product)
    else:
        mean = desc.reduction.cuda == "Mean"
        terms = [Term(added + mean, computed.element, "abs_terms")]
        terms += [Term(1.0, computed.element, "computed_smallest_normal")] if mean else []
        sums = Componentwise.rounded(tuple(terms), desc.element, "Higham, section 4.2")
        made = PrecisionGuarantee.fixed_order(computed.math, computed.element, sums)
    if not desc.has_status:
        return made
    return PrecisionGuarantee.by_output(out=made, status=PrecisionGuarantee.exact(ElementKind.I32))


def gradient_bound(desc: SegmentProblem, added: float) -> PrecisionGuarantee:
    """A quotient is rounded as it is computed and to its type; more ties than f32 counts exactly err as a sum does."""
    computed = computed_in(desc.element)
    if desc.reduction.gradient == "LogSumExp":
        terms = Term(3.0, computed.element, "shifted_grad"), Term(8.0, computed.element, "abs_result")
        lost = Term(4.0, computed.element, "grad_smallest")
        made = Componentwise.rounded((*terms, lost), desc.element, "Higham, section 4.2")
        return PrecisionGuarantee.fixed_order(computed.math, computed.element, made)
    if desc.reduction.gradient == "OtherFactors":
        factors = product_term(max(desc.rows, added) + 4.0, computed.element, "product_grad")
        product = Componentwise.rounded((factors,), desc.element, "Higham, section 3.1")
        return PrecisionGuarantee.fixed_order(computed.math, computed.element, product)
    counted = added if desc.reduction.chosen and desc.rows > EXACT_COUNTS else 0.0
    ulps = Ulp(1.0 + counted) if desc.reduction.gradient != "Sum" else Ulp(0.5)
    return PrecisionGuarantee.fixed_order(computed.math, computed.element, ulps)


def cost(desc: SegmentProblem, device: DeviceSpec, moved: int, launches: int) -> Cost:
    moved += 2 * desc.offsets_element.nbytes(desc.segments)
    return streamed(device, moved, desc.rows * desc.length, launches)


def _refused(desc: SegmentProblem) -> Ptr | Scratch:
    """Where it is noted that offsets are refused."""
    return Ptr("status") if desc.has_status else Scratch.named("refused", 4)


def maxima(desc: SegmentProblem) -> Scratch:
    """Where the maxima of segments are."""
    return Scratch.named("maxima", desc.element.nbytes(desc.length * max(desc.segments, 1)))


def checked(desc: SegmentProblem) -> tuple[Step, ...]:
    """The steps that check the offsets; none where nothing depends on it."""
    if not desc.has_status and 0 in desc.layout(desc.result).shape:
        return ()
    args = _refused(desc), Ptr("offsets"), np.int64(desc.rows), np.uint32(desc.segments)
    kernel = Kernel(REDUCE, f"check_offsets<{desc.offsets_element.number}>")
    ctas = -(-(desc.segments + 1) // THREADS), 1, 1
    return Fill(_refused(desc), 0, 4), Launch(kernel, ctas, (THREADS, 1, 1), args)


def segments_of(desc: SegmentProblem, columns: Columns) -> Segments:
    """Each row of x once."""
    counts = desc.length, desc.rows, desc.segments
    bounds = Ptr("offsets"), desc.offsets_element.number, _refused(desc)
    return Segments(Ptr("x"), columns, desc.element, *counts, *bounds)
