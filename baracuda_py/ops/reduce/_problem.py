"""What a reduction is: the table of reducers, and the descriptor."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from ...plan.descriptor import Descriptor, Slot, described
from ...plan.fields import flag
from ...types import ElementKind, InvalidProblemError, OperandTypeError
from ...types.errors import shown
from ...types.keeping import complete
from .._rows import FLOATS, Rows, axes_of, computed_in, rows_of

__all__ = [
    "LOGICAL",
    "NORMS",
    "TABLE",
    "LogicalDescriptor",
    "ReduceDescriptor",
    "Reduced",
    "Row",
    "StatisticDescriptor",
    "VectorNormDescriptor",
    "checked_p",
    "norm_row",
]

INTEGERS = tuple(kind for kind in ElementKind if kind.is_integer and not kind.packed)
CORRECTION = 1 << 31
LEAST_P, GREATEST_P = 1e-30, 1e30  # of a magnitude: f32 holds it and 1 / p


@dataclass(frozen=True)
class Row:
    """One reduction: the reducer of kernels/include/rows/reducers.cuh ({c} and {out} are types), whether it takes integers and
    has a result without terms, bytes of a state beside {c}'s size, instructions an element, the result's kind if it is not x's,
    whether integers' results have 64 bits, and whether it counts terms in C order."""

    name: str
    reducer: str
    doc: str
    integers: bool = False
    empty: bool = True
    state: Callable[[int], int] = lambda c: c
    instructions: float = 2.0
    result: ElementKind | None = None
    widens: bool = False
    ordered: bool = False


TABLE = {row.name: row for row in (
    Row("sum", "Sum<{c}, {out}, false>", "The sum; integers add up in 64 bits and wrap, as in NumPy.", integers=True,
        widens=True),
    Row("mean", "Sum<{c}, {out}, true>", "The arithmetic mean; NaN of nothing."),
    Row("max", "Extremum<{c}, {out}, true>", "The largest; a NaN is the result.", integers=True, empty=False),
    Row("min", "Extremum<{c}, {out}, false>", "The smallest; a NaN is the result.", integers=True, empty=False),
    Row("argmax", "ArgMax<{c}, {out}>", "The place of the first largest (i64), NaN the largest; one axis, or all in C order.",
        integers=True, empty=False, state=lambda c: 16, instructions=5.0, result=ElementKind.I64, ordered=True),
    Row("var", "Variance<{c}, {out}>", "The mean square deviation from the mean, of n - correction; NaN of nothing.",
        state=lambda c: 3 * c, instructions=6.0),
    Row("logsumexp", "LogSumExp<{c}, {out}, {digits}>", "log(sum(exp(x))) without overflow; inf of inf, -inf of nothing.",
        state=lambda c: 2 * c, instructions=8.0),
    Row("prod", "Prod<{c}, {out}>", "The product, 1 of nothing; integers are multiplied in 64 bits and wrap, as in NumPy.",
        integers=True, widens=True),
    Row("argmin", "ArgMin<{c}, {out}>", "The place of the first smallest (i64), NaN the smallest; one axis, or all in C order.",
        integers=True, empty=False, state=lambda c: 16, instructions=6.0, result=ElementKind.I64, ordered=True),
    Row("std", "StdDev<{c}, {out}>", "The square root of `var`, of n - correction; NaN of nothing.", state=lambda c: 3 * c,
        instructions=6.0),
    Row("nansum", "NanSum<{c}, {out}>", "The sum of what is not NaN; 0 where nothing is.", instructions=3.0),
    Row("nanmean", "NanMean<{c}, {out}>", "The arithmetic mean of what is not NaN; NaN where nothing is.", state=lambda c: 16,
        instructions=4.0),
    Row("nanmax", "NanExtremum<{c}, {out}, true>", "The largest that is not NaN; NaN where all are.", empty=False,
        instructions=4.0),
    Row("nanmin", "NanExtremum<{c}, {out}, false>", "The smallest that is not NaN; NaN where all are.", empty=False,
        instructions=4.0),
)}  # fmt: skip

LOGICAL = {row.name: row for row in (
    Row("any", "Holds<{c}, {out}, false>", "Whether a term is not 0, as NaN is; False of nothing.", integers=True,
        state=lambda c: 4, result=ElementKind.BOOL),
    Row("all", "Holds<{c}, {out}, true>", "Whether no term is 0, as NaN is not; True of nothing.", integers=True,
        state=lambda c: 4, result=ElementKind.BOOL),
    Row("count_nonzero", "CountNonzero<{c}, {out}>", "How many terms are not 0, as NaN is (i64); 0 of nothing.", integers=True,
        state=lambda c: 8, result=ElementKind.I64),
)}  # fmt: skip

# By p; `norm_row` has those of any other p.
NORMS = {
    0.0: Row("norm_zero", "CountNonzero<{c}, {out}>", "how many terms are not 0", state=lambda c: 8),
    1.0: Row("norm_one", "Norm1<{c}, {out}>", "sum(abs(x))"),
    2.0: Row("norm_two", "Norm2<{c}, {out}>", "sqrt(sum(x * x))"),
    math.inf: Row("norm_largest", "NormInf<{c}, {out}, true>", "max(abs(x))", empty=False),
    -math.inf: Row("norm_smallest", "NormInf<{c}, {out}, false>", "min(abs(x))", empty=False),
}


@cache
def norm_row(p: float) -> Row:
    """The row of a p-norm. The kernel of any other p has p and 1 / p, as their bits in f64, for template arguments."""
    if p in NORMS:
        return NORMS[p]
    bits = ", ".join(f"{np.float64(number).view(np.uint64):#x}ull" for number in (p, 1 / p))
    reducer = f"NormPower<{{c}}, {{out}}, {bits}>"
    return Row("norm_power", reducer, "sum(abs(x) ** p) ** (1 / p)", empty=p > 0, instructions=42.0)


# Results that gradients are made of, in the type computed in.
STATISTICS = {row.name: row for row in (
    TABLE["mean"],
    Row("max_ties", "Ties<{c}, {out}, true>", "How many terms equal the largest.", empty=False, state=lambda c: 16,
        instructions=5.0),
    Row("min_ties", "Ties<{c}, {out}, false>", "How many terms equal the smallest.", empty=False, state=lambda c: 16,
        instructions=5.0),
    *(Row(name, f"TiesOf<rows::{of}, {{c}}, {{out}}>", f"How many {doc}.", state=lambda c: 16, instructions=6.0)
      for name, of, doc in (
          ("nanmax_ties", "NanExtremum<{c}, {c}, true>", "terms equal the largest that is not NaN"),
          ("nanmin_ties", "NanExtremum<{c}, {c}, false>", "terms equal the smallest that is not NaN"),
          ("largest_ties", "NormInf<{c}, {c}, true>", "terms have the largest magnitude"),
          ("smallest_ties", "NormInf<{c}, {c}, false>", "terms have the smallest magnitude"))),
    Row("valid", "Valid<{c}, {out}>", "How many terms are not NaN.", state=lambda c: 8, instructions=3.0),
    Row("other_factors", "OtherFactors<{c}, {out}>", "The product of all terms but one that is 0; 0 where two are.",
        state=lambda c: 16, instructions=4.0),
)}  # fmt: skip


def checked_p(op: str, p: Any) -> float:
    """The p of a norm; InvalidProblemError for what is none."""
    p = {"inf": math.inf, "-inf": -math.inf}.get(p, p) if isinstance(p, str) else p  # as JSON has it
    try:
        held = math.nan if isinstance(p, bool) or not isinstance(p, numbers.Real) else float(p)
    except OverflowError:  # of an int
        held = math.nan
    if not (held in NORMS or LEAST_P <= abs(held) <= GREATEST_P):
        raise InvalidProblemError(
            f"{op}: p must be 0, inf, -inf, or of a magnitude from {LEAST_P:g} to {GREATEST_P:g}, got {shown(p)}",
            "give one of these, such as 2.0",
        )
    return held


class Reduced(Descriptor):
    """The part of a problem that says which axes are reduced."""

    shape: tuple[int, ...]
    axes: tuple[int, ...] | None
    keepdims: int
    correction: int

    @staticmethod
    def options_of(op: str, shape: tuple[int, ...], axis: Any, keepdims: Any) -> dict[str, Any]:
        """The fields of a call's axis and keepdims, for an x of `shape`."""
        return {"axes": axes_of(op, axis, len(shape)), "keepdims": int(flag(keepdims, f"{op}: keepdims"))}

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
        if not isinstance(self.keepdims, (bool, np.bool_, int)) or self.keepdims not in (0, 1):
            raise InvalidProblemError(f"{self.op}: keepdims must be 0 or 1, got {self.keepdims!r}", "give a bool")
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
        if self.row.result is not None:
            return self.row.result
        if self.row.widens and self.element.is_integer:
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
        if self.row.ordered and len(self.along) not in (1, len(self.shape)):
            raise InvalidProblemError(
                f"{self.op}: axis={self.axes} are several axes, not all", "give one axis, or None"
            )

    def rows(self) -> Rows:
        names = {"out": self.spread("out"), "x": self.layout("x").strides}
        return rows_of(self, self.shape, self.along, names, ("out",), ordered=self.row.ordered)

    @property
    def computed(self) -> str:
        """The CUDA type computed in."""
        if self.element.is_float:
            return computed_in(self.element).cuda
        return "i64" if self.element.value[0] == "i" else "u64"

    @property
    def stored(self) -> str:
        """The CUDA type of x's elements; a bool is a byte."""
        return self.element.cuda if self.element is ElementKind.BOOL else self.element.number

    @property
    def reducer(self) -> str:
        out = self.layout("out").element
        written = out.cuda if out is ElementKind.BOOL else out.number
        return "rows::" + self.row.reducer.format(c=self.computed, out=written, digits=self.element.digits)

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


@described(
    Slot("out", "out", shape="out_shape", element="out_element"),
    Slot("x", takes=(*FLOATS, *INTEGERS, ElementKind.BOOL)),
)
class LogicalDescriptor(ReduceDescriptor):
    """`name`, which asks whether terms are 0, of an x of `shape` over `axes` (all of them where None), which stay as extents of 1
    where `keepdims` is 1. A bool is not 0 where any of its bits is set."""

    shape: tuple[int, ...]
    element: ElementKind
    axes: tuple[int, ...] | None = None
    keepdims: int = 0
    correction: int = 0
    name: str = "any"
    out_element: ElementKind | None = None

    def __post_init__(self) -> None:
        self._names_op(tuple(LOGICAL), "name")
        Descriptor.__post_init__(self)

    @classmethod
    def of(  # type: ignore[override]
        cls, x: Any, out: Any = None, *, axis: int | Sequence[int] | None = None, keepdims: bool = False, name: str = "any",
    ) -> LogicalDescriptor:  # fmt: skip
        """The descriptor of arrays of any layout."""
        tensors = cls.taken(name, {"x": x, "out": out})
        return cls.of_tensors(tensors, name=name, **cls.options_of(name, tensors["x"].shape, axis, keepdims))

    @property
    def row(self) -> Row:
        return LOGICAL[self.name]


@described(Slot("out", "out", shape="out_shape", element="out_element"), Slot("x", takes=FLOATS))
class VectorNormDescriptor(ReduceDescriptor):
    """The p-norm of an x of `shape` over `axes` (all of them where None), which stay as extents of 1 where `keepdims` is 1."""

    shape: tuple[int, ...]
    element: ElementKind
    axes: tuple[int, ...] | None = None
    keepdims: int = 0
    correction: int = 0
    name: str = "norm"
    p: float = 2.0
    out_element: ElementKind | None = None

    def __post_init__(self) -> None:
        self._names_op(("norm",), "name")
        complete(self, p=checked_p(self.op, self.p))
        Descriptor.__post_init__(self)

    @classmethod
    def of(  # type: ignore[override]
        cls, x: Any, out: Any = None, *, p: float = 2.0, axis: int | Sequence[int] | None = None, keepdims: bool = False,
        name: str = "norm",
    ) -> VectorNormDescriptor:  # fmt: skip
        """The descriptor of arrays of any layout."""
        tensors = cls.taken(name, {"x": x, "out": out})
        options = cls.options_of(name, tensors["x"].shape, axis, keepdims)
        return cls.of_tensors(tensors, p=p, name=name, **options)

    @property
    def row(self) -> Row:
        return norm_row(self.p)
