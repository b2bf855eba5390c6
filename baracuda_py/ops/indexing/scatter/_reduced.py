"""The gradients of means, extrema and products by index: a statistic of each place, reduced as its elements were, and each
element's part by it (kernels/indexing/reduced_gradient.cu)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ....numerics.guarantee import product_term
from ....plan.candidate import Candidate, Cost, Feasibility, no
from ....runtime.steps import Arg, Fill, Kernel, Launch, Packed, Ptr, Scratch, Step
from ....tensor.axes import c_strides, merge_axes
from ....types import Componentwise, DeviceSpec, PrecisionGuarantee, Ulp
from ..._launch import THREADS, grid_of, pack_dims
from ..._reported import raises_on
from ..._rows import computed_in
from ..costs import LineCosts
from ..keys import MOST
from ._runs import Runs, Share, Sorted, Strided, additions
from ._sent import SentElements

__all__ = ["STATISTICS", "FromStatistics", "Statistic", "bound"]

FILE = "indexing/reduced_gradient.cu"
EVERY = -1  # of that file
EXACT_COUNTS = 1 << 24  # of ones in f32
NOTHING = np.uint64(0)  # a null pointer


class Statistic(NamedTuple):
    """What the gradient of a reduction is made of: its struct in the kernel, how terms are reduced, how many each element has,
    and the operands that are read."""

    cuda: str
    op: str
    terms: int
    read: tuple[str, ...] = ("x", "src", "y")


STATISTICS = {
    "mean": Statistic("Mean", "Add", 1, ()),
    "max": Statistic("Extremum", "Add", 1),
    "min": Statistic("Extremum", "Add", 1),
    "prod": Statistic("Factors", "Product", 2),
}


class Items(NamedTuple):
    """Elements of one operand: the name of their gradient, the mode of the kernel, and their axes with strides of indices in
    bytes, of keys, and of elements in bytes."""

    gradient: str
    elements: Arg
    mode: int
    shape: Sequence[int]
    strides: Sequence[Sequence[int]]

    @property
    def size(self) -> int:
        return math.prod(self.shape)


class FromStatistics(Candidate[SentElements]):
    """The terms of a statistic of each place, reduced by index in a fixed order, then the part of each element."""

    variant = "statistics"
    launches = (*(f"{FILE}:{name}" for name in ("write_terms", "write_gradient")), *Sorted.launches)

    def supports(self, desc: SentElements, device: DeviceSpec) -> Feasibility:
        keyed = desc.keyed()
        if desc.reduce not in STATISTICS:
            return no("places are set or summed", "variant 'last' or 'gather'")
        if max(keyed.keys, keyed.count) > MOST:
            return no("places or indices exceed 31 bits", "make several calls")
        return raises_on(desc, device)

    def cost(self, desc: SentElements, device: DeviceSpec, config: Any) -> Cost:
        keyed, own, width = desc.keyed(), STATISTICS[desc.reduce], computed_in(desc.element).element.bits // 8
        values = desc.element.nbytes(keyed.keys + keyed.count)
        moved = values * (2 + 2 * len(own.read)) + 4 * own.terms * width * (keyed.keys + keyed.count) + keyed.moved
        one = Cost.streaming(device, moved, efficiency=LineCosts.of(device).bandwidth_efficiency)
        return Cost(one.bytes, keyed.count, one.seconds + (5 + 3 * keyed.passes) * device.overhead, one.limit)

    def guarantee(self, desc: SentElements, device: DeviceSpec, config: Any) -> PrecisionGuarantee:
        return bound(desc, float(desc.count) if desc.reduce == "prod" else additions(desc.count))

    def lower(self, desc: SentElements, device: DeviceSpec, config: Any) -> tuple[Step, ...]:
        keyed, own = desc.keyed(), STATISTICS[desc.reduce]
        base, sent = _items(desc)
        if not keyed.keys:
            return (Fill(Ptr(sent.gradient), 0, desc.element.nbytes(sent.size)),) if sent.size else ()
        computed, n = computed_in(desc.element), own.terms
        width = computed.element.bits // 8
        statistics = Scratch.named("statistics", width * n * base.size)
        if not sent.size:
            return _write(desc, "terms", base, statistics), _write(desc, "gradient", base, statistics)
        terms = Scratch.named("terms", width * n * sent.size)
        strided = (Strided((base.size,), ((n,),)), Strided((sent.size,), ((n,),)), Strided((n,), ((1,), (1,))))
        runs = Runs((computed.cuda, computed.cuda), (width, width), own.op, True, keyed, strided)
        return (
            _write(desc, "terms", base, statistics),
            _write(desc, "terms", sent, terms),
            *keyed.steps(),
            *runs.launches(Share(n, 1), statistics, terms),
            _write(desc, "gradient", base, statistics),
            _write(desc, "gradient", sent, statistics),
        )


def _items(desc: SentElements) -> tuple[Items, Items]:
    """The elements of x, and those of src."""
    keyed, own = desc.keyed(), c_strides(desc.lines_shape)
    index = [s * desc.layout(desc.index).natural for s in desc.places_strides()]
    to = [0 if a == desc.along or n == 1 else s for a, (n, s) in enumerate(zip(desc.lines_shape, own))]
    none = (0,) * len(own)

    def items(gradient: str, name: str, mode: int, shape: Sequence[int], *strides: Sequence[int]) -> Items:
        read = name in STATISTICS[desc.reduce].read
        step = [s * desc.element.bits // 8 for s in desc.layout(name).strides] if read else none
        return Items(gradient, Ptr(name) if read else NOTHING, mode, *merge_axes(shape, (*strides, step)))

    return (
        items(desc.result, "x", EVERY, desc.lines_shape, none, own),
        items(desc.source, "src", keyed.mode, desc.picked_shape, index, to),
    )


def _write(desc: SentElements, what: str, items: Items, statistics: Scratch) -> Launch:
    """The launch that writes terms of the items, or their gradient."""
    keyed, own, grad = desc.keyed(), STATISTICS[desc.reduce], desc.layout(desc.lines)
    types = f"{own.cuda}, {desc.element.number}, {computed_in(desc.element).cuda}, {keyed.number}, {len(items.shape)}"
    result = Ptr("y") if "y" in own.read else NOTHING
    index = NOTHING if items.mode == EVERY else Ptr(desc.index)
    numbers = np.int64(keyed.extent), np.uint32(keyed.key_step), np.uint32(items.size)
    args: tuple[Arg, ...] = (statistics, items.elements)
    dims: tuple[Packed, ...] = (pack_dims(items.shape, items.strides, "u32"),)
    if what == "gradient":
        shape, strides = merge_axes(grad.shape, ([s * grad.natural for s in grad.strides],))
        types, dims = f"{types}, {len(shape)}", (*dims, pack_dims(shape, strides, "u32"))
        args = (Ptr(items.gradient), statistics, Ptr(desc.lines), items.elements)
    kernel = Kernel(FILE, f"write_{what}<{types}, {items.mode}>")
    return Launch(kernel, grid_of(items.size, THREADS), (THREADS, 1, 1), (*args, result, index, *numbers, *dims))


def bound(desc: SentElements, added: float) -> PrecisionGuarantee:
    """A quotient is rounded as it is computed and to its type; more terms than f32 counts exactly err as a sum does. A product
    of n factors errs by (1 + u)**n - 1 of itself (Higham, section 3.1)."""
    computed, outputs = computed_in(desc.element), (desc.result, desc.source)
    if desc.reduce != "prod":
        ulps = Ulp(1.0 + (added if desc.count > EXACT_COUNTS else 0.0))
        made = PrecisionGuarantee.fixed_order(computed.math, computed.element, ulps)
        return PrecisionGuarantee.by_output(**dict.fromkeys(outputs, made))
    terms = {name: product_term(added + 6.0, computed.element, f"product_{name}") for name in outputs}
    return PrecisionGuarantee.by_output(
        **{
            name: PrecisionGuarantee.fixed_order(
                computed.math, computed.element, Componentwise.rounded((term,), desc.element, "Higham, section 3.1"),
                batch_invariant=False,
            )
            for name, term in terms.items()
        }
    )  # fmt: skip
