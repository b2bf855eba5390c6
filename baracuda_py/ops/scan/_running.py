"""What a running product, extremum or logarithm of a sum is: the table of scans, their descriptor, and their error bounds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ...plan.descriptor import Slot, described
from ...types import (
    Componentwise,
    ElementKind,
    InvalidProblemError,
    OperandTypeError,
    PrecisionGuarantee,
    Term,
    Ulp,
)
from .._rows import FLOATS, computed_in
from ._exclusive import shifted_fields
from ._problem import INTEGERS, LATER, NAMES, CumsumDescriptor
from ._reversed import reversed_layouts

__all__ = ["SCANS", "ScanDescriptor"]

SOURCE = "Higham, Accuracy and Stability of Numerical Algorithms, section 3.1"
OF_LOGARITHMS = "as of logsumexp (ops/reduce/_guarantee.py)"


@dataclass(frozen=True)
class Row:
    """One scan: the reducer of kernels/include/rows/reducers.cuh that puts terms together ({c} and {out} are types), whether it
    takes integers and widens them to 64 bits, values of {c} in a state, and what no term gives, if it has an exclusive form."""

    name: str
    reducer: str
    doc: str
    integers: bool = True
    widens: bool = False
    values: int = 1
    edge: float | None = None


SCANS = {row.name: row for row in (
    Row("cumprod", "Prod<{c}, {out}>", "The products of x's elements", widens=True, edge=1),
    Row("cummax", "Extremum<{c}, {out}, true>", "The largest of x's elements, NaN from a NaN on,"),
    Row("cummin", "Extremum<{c}, {out}, false>", "The smallest of x's elements, NaN from a NaN on,"),
    Row("logcumsumexp", "LogSumExp<{c}, {out}, {digits}>", "log(sum(exp(x))) of x's elements, without overflow,",
        integers=False, values=2, edge=-math.inf),
)}  # fmt: skip


@described(Slot("out", "out", element="out_element"), Slot("x", takes=(*FLOATS, *INTEGERS)))
class ScanDescriptor(CumsumDescriptor):
    """`name` of the elements of an x of `shape` up to each one along `axis`, counted from the end if negative; from each one on
    where `reverse`, and of all but the element itself where `exclusive`."""

    shape: tuple[int, ...]
    element: ElementKind
    axis: int = -1
    reverse: bool = False
    exclusive: bool = False
    name: str = "cumprod"
    out_element: ElementKind | None = None

    def __post_init__(self) -> None:
        self._names_op(tuple(SCANS), "name")
        super().__post_init__()

    @property
    def row(self) -> Row:
        return SCANS[self.name]

    def default_element(self, name: str) -> ElementKind:
        return self.summed if self.element.is_integer and self.row.widens else self.element

    def check(self) -> None:
        if self.element.is_integer and not self.row.integers:
            raise OperandTypeError(f"{self.op}: {self.element} is not supported", "cast it to f32")
        super().check()
        if self.exclusive and self.row.edge is None:
            raise InvalidProblemError(f"{self.op}: there is no extremum of nothing", "leave exclusive out")

    def reversed(self) -> ScanDescriptor:
        """The forward scan of the reversed views."""
        fields: dict[str, Any] = {"name": self.name, "out_element": self.out_element, **reversed_layouts(self, NAMES)}
        return ScanDescriptor(self.shape, self.element, self.axis, **fields)

    def inclusive(self) -> ScanDescriptor:
        """The scan of all elements but one, each counted itself."""
        return ScanDescriptor(**shifted_fields(self, LATER), name=self.name, out_element=self.out_element)

    @property
    def edge(self) -> float:  # type: ignore[override]
        """The result of no element."""
        return self.row.edge or 0

    @property
    def state(self) -> str:
        out, c = self.layout("out").element, self.summed.number
        reducer = self.row.reducer.format(c=c, out=out.number, digits=self.element.digits)
        return f"rows::Scanned<{c}, rows::{reducer}>"

    @property
    def total(self) -> ElementKind:
        if self.row.values == 1:
            return self.summed
        return ElementKind.COMPLEX128 if self.summed is ElementKind.F64 else ElementKind.COMPLEX64

    @property
    def prelude(self) -> str:
        return '#include "rows/scanned.cuh"\n'

    def promised(self, depth: int) -> PrecisionGuarantee:
        """Products of n terms err by (1 + u)**(n - 1) - 1 of themselves in any order; an extremum is one of the terms; the
        logarithm of a sum errs as that of a reduction does whose terms go through so many joins."""
        if self.element.is_integer:
            return PrecisionGuarantee.exact(self.layout("out").element)
        computed = computed_in(self.element)
        u = computed.element
        if self.name in ("cummax", "cummin"):
            return PrecisionGuarantee.fixed_order(computed.math, u, Ulp(0.5), batch_invariant=True)
        if self.name == "cumprod":
            factors = Term(math.expm1(self.extent * math.log1p(u.unit_roundoff)) / u.unit_roundoff, u, "magnitude")
            bound = Componentwise.rounded((factors,), self.element, SOURCE, "overflowing_product")
        else:
            terms = Term(6 * depth + 8, u, "one"), Term(3.0, u, "running_shift"), Term(4.0, u, "log_sum")
            bound = Componentwise.rounded((*terms, Term(1.0, u, "abs_result")), self.element, OF_LOGARITHMS)
        return PrecisionGuarantee.fixed_order(computed.math, u, bound, batch_invariant=True)
