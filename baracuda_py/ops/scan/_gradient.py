"""The gradients of running products, extrema and logarithms of sums: their descriptor, kernel and error bounds.

u is the unit roundoff of what is computed in. A term of a result goes through at most d joins, each a multiplication
and an addition. Of products, it has at most n + 2 factors besides, and errs by (1 + u)**(n + d + 2) - 1 of itself (Higham,
section 3.1). Of extrema, it is only added. Of logarithms of sums, each join multiplies it by an exponential that errs by 4 u, and
the errors of the exponents add up to u (y[j] - x[i]), because the exponents of a term's joins do.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ...plan.candidate import Candidate, Cost, Feasibility
from ...plan.descriptor import Slot, described
from ...plan.fields import flag
from ...plan.grammar import Config, term
from ...runtime.steps import Arg, Kernel, Launch, Packed, Ptr, Scratch, Step
from ...tensor.axes import collapse
from ...types import Componentwise, DeviceSpec, ElementKind, InvalidProblemError, PrecisionGuarantee, Term
from .._axis import AlongAxis
from .._launch import index_scalar, index_type, pack_dims
from .._rows import FLOATS, WARP, computed_in, share
from ._exclusive import EXCLUSIVE, shifted_fields
from ._problem import check_flags
from ._reversed import last
from ._running import SCANS

__all__ = ["GRADIENTS", "LATER", "ScanBackwardDescriptor", "ScanGradient"]

FILE = "scan/gradient.cu"
LATER = ("grad", "y")  # operands of an exclusive scan's gradient that leave out the first element
SOURCE = "Higham, Accuracy and Stability of Numerical Algorithms, sections 3.1 and 4.2"
LONGEST, CHUNK = 1 << 13, 1 << 12  # elements: of a line that one CTA goes along, and of a longer line's chunks
ITEMS, THREADS, ALONG_COLUMNS = 4, 256, 8

# The states of kernels/include/scan/gradients.cuh, by the name of the scan.
GRADIENTS = {
    "cumprod": "ProductGradient",
    "cummax": "ExtremumGradient",
    "cummin": "ExtremumGradient",
    "logcumsumexp": "LogSumExpGradient",
}


@described(
    Slot("grad_x", "out", takes=FLOATS),
    Slot("grad", takes=FLOATS, element="element"),
    Slot("x", takes=FLOATS),
    Slot("y", takes=FLOATS, element="element"),
)
class ScanBackwardDescriptor(AlongAxis):
    """The gradient of a scan (`name` is ``<scan>_backward``) with respect to an x of `shape`, for the axis, the direction and
    the `exclusive` of its call. `y` is its result."""

    shape: tuple[int, ...]
    element: ElementKind
    axis: int = -1
    reverse: bool = False
    exclusive: bool = False
    name: str = "cumprod_backward"

    edge: ClassVar[float] = 0

    def __post_init__(self) -> None:
        self._names_op(tuple(f"{name}_backward" for name in GRADIENTS), "name")
        super().__post_init__()
        self._each(("reverse", "exclusive"), flag)

    @property
    def forward(self) -> str:
        return self.name.removesuffix("_backward")

    def check(self) -> None:
        check_flags(self)
        super().check()
        if self.exclusive and SCANS[self.forward].edge is None:
            raise InvalidProblemError(f"{self.op}: {self.forward} has no exclusive form", "leave exclusive out")

    def in_place(self, written: str, read: str) -> bool:
        """A product's gradient reads the y of the element before its own, an exclusive scan's those of the next one."""
        return not self.exclusive and (read != "y" or self.forward != "cumprod")

    def inclusive(self) -> ScanBackwardDescriptor:
        """The gradient of the scan of all elements but one, each counted itself."""
        return ScanBackwardDescriptor(**shifted_fields(self, LATER), name=self.name)

    def promised(self, depth: int) -> PrecisionGuarantee:
        """What results promise whose terms go through `depth` joins at most."""
        computed = computed_in(self.element)
        u, factors = computed.element, self.extent + 2
        if self.forward == "cumprod":
            count = math.expm1((factors + depth) * math.log1p(u.unit_roundoff)) / u.unit_roundoff
            terms: tuple[Term, ...] = (Term(count, u, "terms"),)
        elif self.forward == "logcumsumexp":
            terms = Term(6.0 * depth + 10, u, "terms"), Term(2.0, u, "shifted"), Term(depth + 2.0, u, "vanishing")
        else:
            terms = (Term(depth + 1.0, u, "terms"),)
        bound = Componentwise.rounded(terms, self.element, SOURCE, "outside")
        return PrecisionGuarantee.fixed_order(computed.math, u, bound, batch_invariant=True)


@dataclass(frozen=True)
class Lines(Config):
    """How a line along the axis is shared out."""

    along: int = term("threads that share a line")
    lines: int = term("lines of a CTA")
    down: bool = term("adjacent threads hold adjacent lines")

    def depth(self, extent: int) -> int:
        """Joins that a term goes through: a thread's, the tree's, those of tiles, and those of chunks."""
        tiles = -(-min(extent, LONGEST) // (ITEMS * self.along))
        return 2 * ITEMS + int(math.log2(self.along)) + 2 + tiles + _chunks(extent)


class ScanGradient(Candidate[ScanBackwardDescriptor]):
    """Threads along each line, from its last element to its first; long lines in chunks, a CTA each."""

    variant = "lines"
    launches = (f"{FILE}:scan_gradient",)

    def supports(self, desc: ScanBackwardDescriptor, device: DeviceSpec) -> Feasibility:
        return EXCLUSIVE if desc.exclusive else super().supports(desc, device)

    def configs(self, desc: ScanBackwardDescriptor, device: DeviceSpec) -> Iterable[Lines]:
        extents, steps, axis_steps = _walked(desc)
        groups = share(-(-min(desc.extent, LONGEST) // ITEMS))
        size = desc.element.bits // 8
        if extents and any(abs(line[-1]) == size and abs(step) != size for line, step in zip(steps, axis_steps)):
            yield Lines(min(ALONG_COLUMNS, groups), WARP, True)
        else:
            along = min(THREADS, groups)
            yield Lines(along, max(1, THREADS // 2 // along), False)

    def guarantee(self, desc: ScanBackwardDescriptor, device: DeviceSpec, config: Lines) -> PrecisionGuarantee:
        return desc.promised(config.depth(desc.extent))

    def cost(self, desc: ScanBackwardDescriptor, device: DeviceSpec, config: Lines) -> Cost:
        spent, chunked = 40.0 * math.prod(desc.shape), _chunks(desc.extent) > 1
        read_again = 3 * desc.element.nbytes(math.prod(desc.shape)) if chunked else 0
        one = Cost.streaming(device, desc.nbytes + read_again, flops=int(spent), instructions=spent)
        return Cost(desc.nbytes, one.flops, one.seconds + (device.overhead if chunked else 0.0), one.limit)

    def lower(self, desc: ScanBackwardDescriptor, device: DeviceSpec, config: Lines) -> tuple[Step, ...]:
        chunks = _chunks(desc.extent)
        if chunks == 1:
            return (_launch(desc, config, "WHOLE", 1, Packed(bytes(8))),)
        lines = math.prod(desc.shape) // desc.extent
        totals = Scratch(0, max(1, lines) * chunks * 2 * computed_in(desc.element).element.bits // 8)
        return tuple(_launch(desc, config, mode, chunks, totals) for mode in ("TOTALS", "CHUNKS"))


def _chunks(extent: int) -> int:
    return 1 if extent <= LONGEST else -(-extent // CHUNK)


def _walked(desc: ScanBackwardDescriptor) -> tuple[tuple[int, ...], list[tuple[int, ...]], tuple[int, ...]]:
    """The extents of the other axes, collapsed; each operand's steps along those, and along the axis, in bytes."""
    size = desc.element.bits // 8
    strides = [tuple(s * size for s in desc.layout(operand.name).strides) for operand in desc.operands]
    kept = [a for a in range(len(desc.shape)) if a != desc.axis]
    extents, steps = collapse([desc.shape[a] for a in kept], [[one[a] for a in kept] for one in strides])
    sign = -1 if desc.reverse else 1
    return extents, list(steps), tuple(sign * one[desc.axis] if desc.shape else 0 for one in strides)


def _launch(desc: ScanBackwardDescriptor, config: Lines, mode: str, chunks: int, totals: Arg) -> Launch:
    extents, steps, axis_steps = _walked(desc)
    lines, c = math.prod(extents), computed_in(desc.element).cuda
    index = index_type(max(lines, 1) * max(desc.extent, 1))
    shape = f"{ITEMS}, {config.along}, {config.lines}, {str(config.down).lower()}, {mode}, {len(extents)}, {index}"
    entry = f"scan_gradient<scan::{GRADIENTS[desc.forward]}<{c}>, {desc.element.number}, {c}, {shape}>"
    counts = (index_scalar(n, index) for n in (lines, desc.extent, CHUNK, chunks))
    places = (Ptr(o.name, last(desc, o.name) if desc.reverse else 0) for o in desc.operands)
    args: tuple[Any, ...] = (
        *counts, pack_dims(extents, steps, index), *map(np.int64, axis_steps), *places, totals
    )  # fmt: skip
    grid = max(1, -(-lines // config.lines)) * chunks
    return Launch(Kernel(FILE, entry), (grid, 1, 1), (config.along * config.lines, 1, 1), args)
