"""What the problems of segments have in common: offsets of rows along the leading axis, and what is refused."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from ...plan.descriptor import Slot
from ...plan.fields import integer
from ...tensor import Tensor
from ...tensor.axes import c_strides, merge_axes
from ...types import ElementKind, InvalidProblemError
from .._reported import ReportedProblem
from .._rows import FLOATS

__all__ = [
    "FIELDS", "INDICES", "OFFSETS", "STATUSES", "TABLE", "Columns", "Reduction", "SegmentProblem", "columns_of",
    "refuse_offsets", "slots_of",
]  # fmt: skip

INDICES = (ElementKind.I32, ElementKind.I64)
FIELDS = ("x_shape", "offsets_shape", "element", "offsets_element", "mode", "name")
OFFSETS = Slot("offsets", takes=INDICES, element="offsets_element", strided=False)
STATUSES = {1: ("an offset is out of range or below the one before it", "give offsets that do not decrease, of 0 to n")}


class Reduction(NamedTuple):
    """A reduction: its struct in kernels/include/segment/reductions.cuh, and that of its gradient."""

    cuda: str
    gradient: str

    @property
    def chosen(self) -> bool:
        """Whether the result is one of the elements."""
        return self.gradient == "Share"

    @property
    def remembered(self) -> bool:
        """Whether the gradient is made of the elements and the result."""
        return self.gradient in ("Share", "LogSumExp")

    @property
    def reads(self) -> bool:
        """Whether the gradient is made of the elements."""
        return self.remembered or self.gradient == "OtherFactors"


TABLE = {
    "segment_sum": Reduction("Sum", "Sum"),
    "segment_mean": Reduction("Mean", "Mean"),
    "segment_max": Reduction("Max", "Share"),
    "segment_min": Reduction("Min", "Share"),
    "segment_prod": Reduction("Product", "OtherFactors"),
    "segment_logsumexp": Reduction("LogSumExp", "LogSumExp"),
}


class Columns(NamedTuple):
    """The columns of rows of x and of the gradient: merged axes with strides in bytes, none where both are contiguous; the bytes
    from a row of each to the next, and how many elements one access may move."""

    shape: tuple[int, ...]
    strides: tuple[tuple[int, ...], ...]
    steps: tuple[int, int]
    vector: int


class SegmentProblem(ReportedProblem):
    """Rows of x along its leading axis, and the offsets of segments of them."""

    result: ClassVar[str] = "out"
    x_shape: tuple[int, ...]
    offsets_shape: tuple[int, ...]
    element: ElementKind
    offsets_element: ElementKind = ElementKind.I64
    mode: str = "drop"

    @property
    def reduction(self) -> Reduction:
        return TABLE[self.op.removesuffix("_backward")]

    @property
    def rows(self) -> int:
        return self.x_shape[0] if self.x_shape else 0

    @property
    def segments(self) -> int:
        return max(math.prod(self.offsets_shape) - 1, 0)

    @property
    def length(self) -> int:
        """Elements of a row."""
        return math.prod(self.x_shape[1:])

    @property
    def out_shape(self) -> tuple[int, ...]:
        return (self.segments, *self.x_shape[1:])

    def check(self) -> None:
        if not self.x_shape:
            raise InvalidProblemError(f"{self.op}: x has no axis", "pass x.reshape(1)")
        if len(self.offsets_shape) != 1 or not self.offsets_shape[0]:
            raise InvalidProblemError(
                f"{self.op}: offsets must have shape [segments + 1], got {self.offsets_shape}",
                "pass the first row of each segment, and the end of the last one",
            )

    def refuse_values(self, tensors: Mapping[str, Tensor]) -> None:
        if self.mode != "raise":
            return
        refuse_offsets(self.op, tensors["offsets"].array(), self.rows, f"x has {self.rows} rows")

    def columns(self, x: tuple[int, ...] | None, grad: tuple[int, ...] | None, aligned: tuple[str, ...]) -> Columns:
        """Those of x and of the gradient, by their strides in elements; None for one that is not read, or that is in C order.
        `aligned` are the operands that are accessed."""
        row = c_strides(self.x_shape)
        strides = row if x is None else x, row if grad is None else grad
        return columns_of(self.element, self.x_shape[1:], strides, [self.layout(name).align for name in aligned])


def columns_of(
    element: ElementKind,
    shape: tuple[int, ...],
    strides: tuple[tuple[int, ...], tuple[int, ...]],
    aligned: Sequence[int],
) -> Columns:
    """Columns of `shape` of two arrays of rows, by their strides in elements, and the alignment of all that is accessed."""
    size = element.bits // 8
    axes, merged = merge_axes(shape, [one[1:] for one in strides])
    dense = all(one in ((), (1,)) for one in merged)
    steps = [size * integer(one[0], "stride") for one in strides]
    vector = 16 // size if dense else 1
    whole = [size * math.prod(shape), *steps, *aligned]
    while any(step % (vector * size) for step in whole):
        vector //= 2
    scaled = tuple(tuple(size * s for s in one) for one in merged)
    return Columns(() if dense else axes, ((), ()) if dense else scaled, (steps[0], steps[1]), vector)


def refuse_offsets(op: str, offsets: np.ndarray[Any, Any], rows: int, extent: str) -> None:
    """Raises InvalidProblemError where offsets decrease or exceed the rows; `extent` says how many there are of what."""
    wrong = (offsets < 0) | (offsets > rows)
    wrong[1:] |= offsets[1:] < offsets[:-1]
    if wrong.any():
        at = int(np.flatnonzero(wrong)[0])
        before = f", behind {int(offsets[at - 1])}" if at else ""
        raise InvalidProblemError(
            f"{op}: offsets[{at}] = {int(offsets[at])}{before} is out of order or range: {extent}",
            f'give offsets that do not decrease, of 0 to {rows}, or mode="drop" or "status"',
        )


def slots_of(*, status: Slot | None = None, y: bool = False, grad: bool = False) -> tuple[Slot, ...]:
    """The table of a reduction, or of its gradient."""
    if not grad:
        assert status is not None
        return (
            Slot("out", "out", takes=FLOATS, shape="out_shape", strided=False),
            status,
            Slot("x", takes=FLOATS),
            OFFSETS,
        )
    result = (Slot("y", takes=FLOATS, shape="out_shape", strided=False),) if y else ()
    return (
        Slot("grad_x", "out", takes=FLOATS, shape="x_shape", strided=False),
        Slot("grad", takes=FLOATS, shape="out_shape"),
        Slot("x", takes=FLOATS),
        *result,
        OFFSETS,
    )
