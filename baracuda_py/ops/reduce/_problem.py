"""What a reduction is: the table of reducers, and the descriptor."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...plan.descriptor import Descriptor, Slot, described
from ...types import ElementKind, InvalidProblemError, OperandTypeError
from .._rows import FLOATS, Rows, axes_of, computed_in, rows_of

__all__ = ["TABLE", "ReduceDescriptor", "Reduced", "StatisticDescriptor"]

INTEGERS = tuple(kind for kind in ElementKind if kind.is_integer and not kind.packed)
CORRECTION = 1 << 31


@dataclass(frozen=True)
class Row:
    """One reduction: the reducer of kernels/include/rows/reducers.cuh ({c} and {out} are types), whether it takes integers and
    has a result without terms, bytes of a state beside {c}'s size, and instructions an element."""

    name: str
    reducer: str
    doc: str
    integers: bool = False
    empty: bool = True
    state: Callable[[int], int] = lambda c: c
    instructions: float = 2.0


TABLE = {row.name: row for row in (
    Row("sum", "Sum<{c}, {out}, false>", "The sum; integers add up in 64 bits and wrap, as in NumPy.", integers=True),
    Row("mean", "Sum<{c}, {out}, true>", "The arithmetic mean; NaN of nothing."),
    Row("max", "Extremum<{c}, {out}, true>", "The largest; a NaN is the result.", integers=True, empty=False),
    Row("min", "Extremum<{c}, {out}, false>", "The smallest; a NaN is the result.", integers=True, empty=False),
    Row("argmax", "ArgMax<{c}, {out}>", "The place of the first largest (i64), NaN the largest; one axis, or all in C order.",
        integers=True, empty=False, state=lambda c: 16, instructions=5.0),
    Row("var", "Variance<{c}, {out}>", "The mean square deviation from the mean, of n - correction; NaN of nothing.",
        state=lambda c: 3 * c, instructions=6.0),
    Row("logsumexp", "LogSumExp<{c}, {out}, {digits}>", "log(sum(exp(x))) without overflow; inf of inf, -inf of nothing.",
        state=lambda c: 2 * c, instructions=8.0),
)}  # fmt: skip

# Results that gradients are made of, in the type computed in.
STATISTICS = {row.name: row for row in (
    TABLE["mean"],
    Row("max_ties", "Ties<{c}, {out}, true>", "How many terms equal the largest.", empty=False, state=lambda c: 16,
        instructions=5.0),
    Row("min_ties", "Ties<{c}, {out}, false>", "How many terms equal the smallest.", empty=False, state=lambda c: 16,
        instructions=5.0),
)}  # fmt: skip


def _kept(op: str, keepdims: Any) -> int:
    """1 for True, 0 for False; InvalidProblemError for anything else."""
    if isinstance(keepdims, (bool, np.bool_, int)) and keepdims in (0, 1):
        return int(keepdims)
    raise InvalidProblemError(f"{op}: keepdims must be True or False, got {keepdims!r}", "give a bool")


class Reduced(Descriptor):
    """The part of a problem that says which axes are reduced."""

    shape: tuple[int, ...]
    axes: tuple[int, ...] | None
    keepdims: int
    correction: int

    @staticmethod
    def options_of(op: str, shape: tuple[int, ...], axis: Any, keepdims: Any) -> dict[str, Any]:
        """The fields of a call's axis and keepdims, for an x of `shape`."""
        return {"axes": axes_of(op, axis, len(shape)), "keepdims": _kept(op, keepdims)}

    @property
    def along(self) -> tuple[int, ...]:
        return axes_of(self.op, self.axes, len(self.shape))

    @property
    def out_shape(self) -> tuple[int, ...]:
        kept = ((n, a in self.along) for a, n in enumerate(self.shape))
        return tuple(1 if gone else n for n, gone in kept if not gone or self.keepdims)

    @property
    def extent(self) -> int:
        """Terms a result."""
        return math.prod(self.shape[a] for a in self.along)

    def spread(self, name: str) -> tuple[int, ...]:
        """The strides of an operand of the result's shape over all axes of x, 0 along those that are gone."""
        strides = iter(self.layout(name).strides)
        return tuple(
            (next(strides) * 0 if self.keepdims else 0) if a in self.along else next(strides)
            for a in range(len(self.shape))
        )

    def check_axes(self, row: Row) -> None:
        """Raises where `row` has no result."""
        _kept(self.op, self.keepdims)
        if not -CORRECTION <= self.correction < CORRECTION:
            raise InvalidProblemError(
                f"{self.op}: correction={self.correction} has more than 32 bits", "give a smaller one"
            )
        if not self.extent and not row.empty:
            raise InvalidProblemError(
                f"{self.op}: shape {self.shape} has nothing along axis {self.along}", "reduce over at least one element"
            )


@described(Slot("out", "out", shape="out_shape", element="out_element"), Slot("x", takes=(*FLOATS, *INTEGERS)))
class ReduceDescriptor(Reduced):
    """`name` of an x of `shape` over `axes` (all of them where None), which stay as extents of 1 where `keepdims` is 1.

    `correction` is var's: what is taken from the count.
    """

    shape: tuple[int, ...]
    element: ElementKind
    axes: tuple[int, ...] | None = None
    keepdims: int = 0
    correction: int = 0
    name: str = "sum"
    out_element: ElementKind | None = None

    def __post_init__(self) -> None:
        self._names_op(tuple(TABLE), "name")
        super().__post_init__()

    @classmethod
    def of(
        cls, x: Any, out: Any = None, *, axis: int | Sequence[int] | None = None, keepdims: bool = False, correction: int = 0,
        name: str = "sum",
    ) -> ReduceDescriptor:  # fmt: skip
        """The descriptor of arrays of any layout."""
        tensors = cls.taken(name, {"x": x, "out": out})
        options = cls.options_of(name, tensors["x"].shape, axis, keepdims)
        return cls.of_tensors(tensors, correction=correction, name=name, **options)

    @property
    def row(self) -> Row:
        return TABLE[self.name]

    def default_element(self, name: str) -> ElementKind:
        if self.name == "argmax":
            return ElementKind.I64
        if self.name == "sum" and self.element.is_integer:
            return ElementKind.U64 if self.element.value[0] == "u" else ElementKind.I64
        return self.element

    def check(self) -> None:
        if self.element.is_integer and not self.row.integers:
            raise OperandTypeError(f"{self.op}: {self.element} is not supported", "cast it to f32")
        if self.out_element not in (None, self.default_element("out")):
            wanted = self.default_element("out")
            raise OperandTypeError(
                f"{self.op}: out must hold {wanted}, got {self.out_element}", f"pass an out of {wanted}"
            )
        self.check_axes(self.row)
        if self.name == "argmax" and len(self.along) not in (1, len(self.shape)):
            raise InvalidProblemError(
                f"{self.op}: axis={self.axes} are several axes, not all", "give one axis, or None"
            )

    def rows(self) -> Rows:
        names = {"out": self.spread("out"), "x": self.layout("x").strides}
        return rows_of(self, self.shape, self.along, names, ("out",), ordered=self.name == "argmax")

    @property
    def computed(self) -> str:
        """The CUDA type computed in."""
        if self.element.is_float:
            return computed_in(self.element).cuda
        return "u64" if self.element.value[0] == "u" else "i64"

    @property
    def reducer(self) -> str:
        out = self.layout("out").element
        return "rows::" + self.row.reducer.format(c=self.computed, out=out.number, digits=self.element.digits)

    @property
    def state(self) -> int:
        """Bytes of a state."""
        return self.row.state(4 if self.computed == "float" else 8)


class StatisticDescriptor(ReduceDescriptor):
    """One of `STATISTICS` of floats, in f32 (f64 of f64): a step of a gradient, without a public function."""

    def __post_init__(self) -> None:
        self._names_op(tuple(STATISTICS), "name")
        Descriptor.__post_init__(self)

    @property
    def row(self) -> Row:
        return STATISTICS[self.name]

    def default_element(self, name: str) -> ElementKind:
        return computed_in(self.element).element
