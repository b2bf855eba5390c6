"""Bags whose rows are gathered in the reduction itself; a gradient is the same reduction, of the bags that name a row."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from ....plan.candidate import Candidate, Cost, Feasibility, no
from ....runtime.steps import Arg, Fill, Kernel, Launch, Ptr, Scratch, Step
from ....tensor.axes import c_strides
from ....types import Componentwise, DeviceSpec, ElementKind, PrecisionGuarantee, Term, Ulp
from ..._rows import computed_in
from ...indexing.keys import KERNELS, KeyedIndices
from .._launches import (
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
from .._problem import Columns, columns_of
from ..offsets import first_rows
from ._problem import BagProblem

__all__ = ["BySortedRows", "Gathered", "bound", "gradient_bound"]

BAGS = "segment/bags.cu"
STRICT = 3  # of kernels/include/indexing/within.cuh
REFUSED = Scratch.named("refused", 4)


class OnBags(Candidate[BagProblem]):
    """What both candidates have in common."""

    def supports(self, desc: BagProblem, device: DeviceSpec) -> Feasibility:
        return supported(desc, device, desc.count + max(desc.bags, desc.rows), "entries and bags or rows")


class Gathered(OnBags):
    """A group of threads per piece of a bag, then a CTA per longer bag. The order follows from a bag's length."""

    variant = "gathered"
    launches = (
        *(f"{BAGS}:{name}" for name in ("list_entries", "count_entries")),
        *(f"{REDUCE}:{name}" for name in ("reduce_pieces", "join_pieces")),
    )

    def configs(self, desc: BagProblem, device: DeviceSpec) -> Iterable[Group]:
        yield Group.of(desc.length, _of_table(desc, "out").vector)

    def cost(self, desc: BagProblem, device: DeviceSpec, config: Group) -> Cost:
        moved = desc.element.nbytes(desc.length * (desc.count + desc.bags)) + 16 * desc.count
        return streamed(device, moved, desc.count * desc.length, 3 + desc.reduction.counted)

    def guarantee(self, desc: BagProblem, device: DeviceSpec, config: Group) -> PrecisionGuarantee:
        return bound(desc, additions(desc.count, config))

    def lower(self, desc: BagProblem, device: DeviceSpec, config: Group) -> tuple[Step, ...]:
        if 0 in desc.out_shape and not desc.has_status:
            return ()
        return (*_listed(desc, desc.has_status), *reduced(_bags(desc, "out"), desc.reduction.cuda, Ptr("out")))


class BySortedRows(OnBags):
    """Entries sorted by the row that they name; of each row, the gradients of its entries' bags are summed in pieces. That of a
    maximum is divided among its ties first."""

    variant = "sorted"
    launches = (
        *Gathered.launches, *KERNELS, "segment/offsets.cu:first_rows", f"{BAGS}:place_bags", f"{BAGS}:weigh_entries",
    )  # fmt: skip

    def supports(self, desc: BagProblem, device: DeviceSpec) -> Feasibility:
        if desc.reduce == "max" and desc.layout("weight").strides != c_strides(desc.weight_shape):
            return no("weight, which is compared with the maxima, is not in C order", "pass a contiguous copy")
        return super().supports(desc, device)

    def configs(self, desc: BagProblem, device: DeviceSpec) -> Iterable[Group]:
        yield Group.of(desc.length, _of_gradient(desc).vector)

    def cost(self, desc: BagProblem, device: DeviceSpec, config: Group) -> Cost:
        keyed, passes = _keyed(desc), 3 if desc.reduce == "max" else 1 + desc.weighted
        moved = desc.element.nbytes(desc.length * (desc.count * passes + desc.rows)) + keyed.moved + 32 * desc.count
        return streamed(device, moved, passes * desc.count * desc.length, 6 + 3 * keyed.passes)

    def guarantee(self, desc: BagProblem, device: DeviceSpec, config: Group) -> PrecisionGuarantee:
        return gradient_bound(desc, additions(desc.count, config))

    def lower(self, desc: BagProblem, device: DeviceSpec, config: Group) -> tuple[Step, ...]:
        of_weights = desc.element.nbytes(desc.count)
        clear = (Fill(Ptr("grad_per_sample_weights"), 0, of_weights),) if desc.weighted and desc.count else ()
        if 0 in desc.out_shape or not desc.count:
            size = desc.element.nbytes(math.prod(desc.weight_shape))
            return *((Fill(Ptr("grad_weight"), 0, size),) if size else ()), *clear
        computed = computed_in(desc.element).element
        keyed, scale = _keyed(desc), "WEIGHT" if desc.weighted else "MEAN" if desc.reduce == "mean" else "ONE"
        entries, offsets = Scratch.named("entries", 4 * desc.count), Scratch.named("starts", 4 * (desc.rows + 1))
        scales = Scratch.named("scales", computed.nbytes(desc.count))
        keys, positions = keyed.pairs()
        weights = Ptr("per_sample_weights") if desc.weighted else NOTHING
        placed = Launch(
            Kernel(BAGS, f"place_bags<{desc.element.number}, {computed_in(desc.element).cuda}, {scale}>"),
            grid(1, desc.count, THREADS, 1), (THREADS, 1, 1),
            (entries, scales, positions, *_bounds(desc), weights, _sizes(desc), np.uint32(desc.bags), np.uint32(desc.count)),
        )  # fmt: skip
        summed = Segments(
            Ptr("grad"), _of_gradient(desc), desc.element, desc.length, desc.count, desc.rows, offsets, "i32", REFUSED, entries,
            None if scale == "ONE" else scales, computed_in(desc.element).cuda,
        )  # fmt: skip
        ahead = _listed(desc, False), keyed.steps(), (first_rows(offsets, "i32", keys, "u32", desc.count, desc.rows),)
        return (
            *(step for steps in ahead for step in steps),
            placed,
            *(self._of_maxima(desc, summed) if desc.reduce == "max" else reduced(summed, "Sum", Ptr("grad_weight"))),
            *((_weighed(desc),) if desc.weighted else ()),
        )

    @staticmethod
    def _of_maxima(desc: BagProblem, summed: Segments) -> tuple[Step, ...]:
        """The maxima, the share of each of their ties, and the sums of the shares."""
        size = desc.element.nbytes(math.prod(desc.out_shape))
        maxima, share = Scratch.named("maxima", size), Scratch.named("share", size)
        bags, dense = _bags(desc, "grad"), c_strides(desc.out_shape)
        shares = summed._replace(
            x=share,
            columns=columns_of(
                desc.element, desc.weight_shape[1:], (dense, dense), _aligned(desc, "grad_weight", "weight")
            ),
        )
        return (
            *reduced(bags, desc.reduction.cuda, maxima),
            *reduced(bags, "Share", share, y=maxima, grad=Ptr("grad")),
            *reduced(shares, "Shares", Ptr("grad_weight"), y=Ptr("weight"), second=maxima),
        )


def bound(desc: BagProblem, added: float) -> PrecisionGuarantee:
    """The bound of sums and means of so many terms, each a product where there are weights; a maximum is one of the elements."""
    computed = computed_in(desc.element)
    if desc.reduce == "max":
        made = PrecisionGuarantee.fixed_order(computed.math, computed.element, Ulp(0.5))
    else:
        rounded = desc.weighted or desc.reduce == "mean"
        made = PrecisionGuarantee.fixed_order(
            computed.math, computed.element, _summed(desc, added, rounded, "abs_terms")
        )
    if not desc.has_status:
        return made
    return PrecisionGuarantee.by_output(out=made, status=PrecisionGuarantee.exact(ElementKind.I32))


def gradient_bound(desc: BagProblem, added: float) -> PrecisionGuarantee:
    """Terms are products with a scale that is rounded before, or quotients that are rounded to their type."""
    computed = computed_in(desc.element)
    sums = _summed(desc, added + 2.0, desc.reduce != "sum" or desc.weighted, "abs_terms", desc.reduce == "max")
    made = PrecisionGuarantee.fixed_order(computed.math, computed.element, sums)
    if not desc.weighted:
        return made
    products = _summed(desc, desc.length + 2.0, True, "abs_products")
    weighed = PrecisionGuarantee.fixed_order(computed.math, computed.element, products)
    return PrecisionGuarantee.by_output(grad_weight=made, grad_per_sample_weights=weighed)


def _summed(desc: BagProblem, added: float, rounded: bool, measure: str, stored: bool = False) -> Componentwise:
    """`rounded`: a product or a quotient comes before or behind; `stored`: terms are rounded to their type."""
    computed = computed_in(desc.element).element
    terms = [Term(added + rounded, computed, measure)]
    terms += [Term(added, computed, "computed_smallest_normal")] if rounded else []
    terms += [Term(1.0, desc.element, measure), Term(added, desc.element, "smallest_normal")] if stored else []
    return Componentwise.rounded(tuple(terms), desc.element, "Higham, section 4.2")


def _listed(desc: BagProblem, status: bool) -> tuple[Step, ...]:
    """The steps that list entries and the bounds of their bags, and count them where a reduction depends on it."""
    given = desc.has("offsets")
    form = "WIDTH" if not given else "OFFSETS" if desc.include_last_offset else "OPEN"
    number = desc.layout("offsets").element.number if given else desc.input_element.number
    bounds, refused = _bounds(desc)
    count, bags = np.uint32(desc.count), np.uint32(desc.bags)
    reported: Arg = Ptr("status") if status else NOTHING
    listed = Launch(
        Kernel(BAGS, f"list_entries<{desc.input_element.number}, {number}, {form}>"),
        grid(1, max(desc.count, desc.bags + 1), THREADS, 1), (THREADS, 1, 1),
        (_rows(desc), bounds, refused, reported, Ptr("input"), Ptr("offsets") if given else NOTHING, np.int64(desc.rows),
         np.int64(desc.ignored), count, bags, np.uint32(0 if given else desc.input_shape[1])),
    )  # fmt: skip
    steps: list[Step] = [*((Fill(Ptr("status"), 0, 4),) if status else ()), Fill(REFUSED, 0, 4), listed]
    if desc.reduction.counted and desc.bags:
        ctas = grid(1, desc.count, THREADS, 1)
        args = _sizes(desc), _rows(desc), bounds, refused, bags, count
        steps.append(Fill(_sizes(desc), 0, 4 * desc.bags))
        steps.append(Launch(Kernel(BAGS, f"count_entries<{THREADS}>"), ctas, (THREADS, 1, 1), args))
    return tuple(steps)


def _weighed(desc: BagProblem) -> Launch:
    """The gradient of the weights of entries."""
    strides = desc.layout("weight").strides, desc.layout("grad").strides
    columns = columns_of(desc.element, desc.weight_shape[1:], strides, _aligned(desc, "weight", "grad"))
    lanes = Group.of(desc.length, columns.vector).lanes
    types = f"{desc.element.number}, {computed_in(desc.element).cuda}, {columns.vector}, {lanes}, {len(columns.shape)}"
    numbers = np.uint32(desc.bags), np.uint32(desc.count), np.uint32(desc.length), packed_rows(columns)
    args = Ptr("grad_per_sample_weights"), Ptr("weight"), Ptr("grad"), _rows(desc), *_bounds(desc), *numbers
    return Launch(
        Kernel(BAGS, f"weigh_entries<{types}>"), grid(1, desc.count, THREADS // lanes, 1), (THREADS, 1, 1), args
    )


def _bags(desc: BagProblem, other: str) -> Segments:
    """Rows of weight, in bags."""
    bounds, refused = _bounds(desc)
    weights = Ptr("per_sample_weights") if desc.weighted else None
    sizes = _sizes(desc) if desc.reduction.counted else NOTHING
    return Segments(
        Ptr("weight"), _of_table(desc, other), desc.element, desc.length, desc.count, desc.bags, bounds, "i32", refused,
        _rows(desc), weights, desc.element.number, sizes,
    )  # fmt: skip


def _of_table(desc: BagProblem, other: str) -> Columns:
    """The columns of weight, and of `other`."""
    strides = desc.layout("weight").strides, desc.layout(other).strides
    return columns_of(desc.element, desc.weight_shape[1:], strides, _aligned(desc, "weight", other))


def _of_gradient(desc: BagProblem) -> Columns:
    """The columns of grad, and of grad_weight."""
    strides = desc.layout("grad").strides, c_strides(desc.weight_shape)
    return columns_of(desc.element, desc.weight_shape[1:], strides, _aligned(desc, "grad", "grad_weight"))


def _aligned(desc: BagProblem, *names: str) -> list[int]:
    return [desc.layout(name).align for name in names]


def _rows(desc: BagProblem) -> Scratch:
    return Scratch.named("rows", 4 * desc.count)


def _sizes(desc: BagProblem) -> Scratch:
    return Scratch.named("sizes", 4 * desc.bags)


def _bounds(desc: BagProblem) -> tuple[Scratch, Scratch]:
    """Where the bounds of bags are, and whether offsets are refused."""
    return Scratch.named("bounds", 4 * (desc.bags + 1)), REFUSED


def _keyed(desc: BagProblem) -> KeyedIndices:
    """The ids, by row."""
    number, step = desc.input_element.number, desc.input_element.nbytes(1)
    return KeyedIndices(
        "input", number, STRICT, desc.rows, desc.ignored, desc.rows, 1, desc.count, (desc.count,), ((step,), (0,))
    )
