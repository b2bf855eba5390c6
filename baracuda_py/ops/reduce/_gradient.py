"""The gradients of reductions: an expression of elements, of operands that are broadcast along the reduced axes. What depends on
whole rows beside the forward call's own result (a mean, the number of equal terms) is reduced first.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

from ...numerics.expression import Expression
from ...plan.candidate import Candidate, Cost
from ...plan.descriptor import Slot, described
from ...plan.lowering import Sub
from ...plan.plan import Plan
from ...plan.selection import Selection, selected
from ...runtime.steps import Ptr, Scratch
from ...types import (
    Componentwise,
    DeviceSpec,
    ElementKind,
    InvalidProblemError,
    OpCategory,
    OperandTypeError,
    PrecisionGuarantee,
    Term,
)
from ...types.keeping import complete
from .._rows import FLOATS, computed_in
from ..elementwise.backward.formula import expression_of, formula_plan
from . import oracle
from ._candidates import CANDIDATES
from ._problem import NORMS, TABLE, Reduced, Row, StatisticDescriptor, checked_p

__all__ = ["GRADIENTS", "ComposedGradient", "ReduceBackwardDescriptor", "VectorNormBackwardDescriptor", "guarantee"]

SOURCE = "first-order propagation through the expression (baracuda_py/numerics/expression.py)"


class GradientRow(NamedTuple):
    """The gradient of one reduction: an expression in `grad`, `x`, the result `y`, a number, and a statistic of each row, which
    `StatisticDescriptor` has under that name; `called` is its name in the expression."""

    formula: str
    number: str = ""
    statistic: str = ""
    called: str = ""


# By the name of the reduction's row.
GRADIENTS = {
    "sum": GradientRow("grad"),
    "mean": GradientRow("grad / count", "count"),
    "max": GradientRow("where(x == y, grad, 0) / ties", "", "max_ties", "ties"),
    "min": GradientRow("where(x == y, grad, 0) / ties", "", "min_ties", "ties"),
    "var": GradientRow("grad * scale * (x - mean)", "scale", "mean", "mean"),
    "logsumexp": GradientRow("grad * exp(x - y)"),
    "prod": GradientRow("grad * where(x == 0, others, y / x)", "", "other_factors", "others"),
    "std": GradientRow("where(y == 0, 0, grad * scale * (x - mean) / (2 * y))", "scale", "mean", "mean"),
    "nansum": GradientRow("where(x == x, grad, 0)"),
    "nanmean": GradientRow("where(x == x, grad / ties, 0)", "", "valid", "ties"),
    "nanmax": GradientRow("where(x == y, grad / ties, 0)", "", "nanmax_ties", "ties"),
    "nanmin": GradientRow("where(x == y, grad / ties, 0)", "", "nanmin_ties", "ties"),
    "norm_zero": GradientRow("where(grad == grad, 0, grad)"),
    "norm_one": GradientRow("grad * sign(x)"),
    "norm_two": GradientRow("where(y == 0, 0, grad * (x / y))"),
    "norm_largest": GradientRow("where(abs(x) == y, grad * sign(x), 0) / ties", "", "largest_ties", "ties"),
    "norm_smallest": GradientRow("where(abs(x) == y, grad * sign(x), 0) / ties", "", "smallest_ties", "ties"),
}
OF_NORMS = tuple(row.name for row in NORMS.values())


@cache
def _formula(name: str) -> Expression:
    return expression_of(GRADIENTS[name].formula)


@cache
def _mapped(name: str) -> type[Plan[Any]]:
    """The plan of the expression."""
    row = GRADIENTS[name]
    numbers, called = ((each,) if each else () for each in (row.number, row.called))
    return formula_plan(name, _formula(name), numbers, called, OpCategory.REDUCE)


class StatisticPlan(Plan[StatisticDescriptor]):
    """A statistic of rows: operands `x` and `out`."""

    descriptor = StatisticDescriptor
    category = OpCategory.REDUCE
    candidates = CANDIDATES
    reference = oracle.statistic


@described(
    Slot("grad_x", "out", takes=FLOATS),
    Slot("grad", takes=FLOATS, shape="out_shape", element="element"),
    Slot("x", takes=FLOATS),
    Slot("y", optional=True, takes=FLOATS, shape="out_shape"),
)
class ReduceBackwardDescriptor(Reduced):
    """The gradient of a reduction (`name` is ``<reduction>_backward``) with respect to an x of `shape`, for the axes, keepdims
    and correction of its call. `y` is its result, where the gradient takes it."""

    shape: tuple[int, ...]
    element: ElementKind
    axes: tuple[int, ...] | None = None
    keepdims: int = 0
    correction: int = 0
    name: str = "sum_backward"
    y_element: ElementKind | None = None

    def __post_init__(self) -> None:
        self._names_op(self.known(), "name")
        super().__post_init__()
        if self.takes_y and self.y_element is None:
            complete(self, y_element=self.element)

    @classmethod
    def known(cls) -> tuple[str, ...]:
        """Names of the ops."""
        return tuple(f"{name}_backward" for name in GRADIENTS if name not in OF_NORMS)

    @classmethod
    def of(
        cls, grad: Any, x: Any, y: Any = None, grad_x: Any = None, *, axis: Any = None, keepdims: bool = False,
        correction: int = 0, name: str = "sum_backward",
    ) -> ReduceBackwardDescriptor:  # fmt: skip
        """The descriptor of arrays of any layout."""
        tensors = cls.taken(name, {"x": x, "grad": grad, "y": y, "grad_x": grad_x})
        options = cls.options_of(name, tensors["x"].shape, axis, keepdims)
        return cls.of_tensors(tensors, correction=correction, name=name, **options)

    @property
    def row(self) -> Row:
        """The reduction."""
        return TABLE[self.name.removesuffix("_backward")]

    @property
    def forward(self) -> str:
        return self.row.name

    @property
    def own(self) -> GradientRow:
        return GRADIENTS[self.forward]

    @property
    def formula(self) -> Expression:
        return _formula(self.forward)

    @property
    def takes_y(self) -> bool:
        """Whether the result is an operand."""
        return "y" in self.formula.names

    @property
    def number(self) -> float:
        """The number in the expression: the terms of a result, or 2 over var's count of them."""
        if self.own.number == "count":
            return float(self.extent)
        count = max(self.extent - self.correction, 0)
        return 2 / count if count else math.inf

    def check(self) -> None:
        self.check_axes(self.row)
        if self.has("y") and not self.takes_y:
            raise InvalidProblemError(f"{self.op}: y has no part in this gradient", "leave y out")
        if self.y_element not in (None, self.element):
            raise OperandTypeError(f"{self.op}: y must hold {self.element}, got {self.y_element}", "cast it")

    @property
    def read(self) -> tuple[str, ...]:
        """The operands whose values count."""
        return tuple(name for name in ("grad", "x", "y") if name in self.formula.names)

    @property
    def nbytes(self) -> int:
        layouts = [self.layout(name) for name in ("grad_x", *self.read)]
        return sum(each.element.nbytes(math.prod(each.shape)) for each in layouts)

    def in_place(self, written: str, read: str) -> bool:
        """An element of each operand is read before the same one of grad_x is written, and rows are reduced before that."""
        return True

    def statistic(self) -> StatisticDescriptor:
        """The problem of the rows' statistic, whose result has x's axes."""
        x = self.layout("x")
        layout: dict[str, Any] = {"x_strides": x.strides, "x_align": x.align}
        return StatisticDescriptor(self.shape, self.element, self.axes, 1, name=self.own.statistic, **layout)

    def elements(self) -> Any:
        """The problem of the expression: its operands have x's shape, with strides of 0 along the reduced axes."""
        fields: dict[str, Any] = {"out_element": self.element}
        for name in ("grad_x", *self.read):
            layout = self.layout(name)
            along = layout.strides if layout.shape == self.shape else self.spread(name)
            fields |= {f"{name}_strides": along, f"{name}_align": layout.align}
            if name != "grad_x":
                fields |= {f"{name}_shape": self.shape, f"{name}_element": self.element}
        if self.own.called:
            made = self.statistic()
            fields |= {
                f"{self.own.called}_shape": made.out_shape,
                f"{self.own.called}_element": made.layout("out").element,
            }
        fields["numbers"] = (self.number,) if self.own.number else None
        return _mapped(self.forward).descriptor(**fields)


@described(
    Slot("grad_x", "out", takes=FLOATS),
    Slot("grad", takes=FLOATS, shape="out_shape", element="element"),
    Slot("x", takes=FLOATS),
    Slot("y", optional=True, takes=FLOATS, shape="out_shape"),
)
class VectorNormBackwardDescriptor(ReduceBackwardDescriptor):
    """The gradient of a p-norm with respect to an x of `shape`, for the axes and keepdims of its call. `y` is its result, whose
    values count where p is 2, inf or -inf."""

    shape: tuple[int, ...]
    element: ElementKind
    axes: tuple[int, ...] | None = None
    keepdims: int = 0
    correction: int = 0
    name: str = "norm_backward"
    p: float = 2.0
    y_element: ElementKind | None = None

    def __post_init__(self) -> None:
        complete(self, p=checked_p("norm_backward", self.p))
        super().__post_init__()

    @classmethod
    def known(cls) -> tuple[str, ...]:
        return ("norm_backward",)

    @classmethod
    def of(  # type: ignore[override]
        cls, grad: Any, x: Any, y: Any = None, grad_x: Any = None, *, p: float = 2.0, axis: Any = None, keepdims: bool = False,
        name: str = "norm_backward",
    ) -> VectorNormBackwardDescriptor:  # fmt: skip
        """The descriptor of arrays of any layout."""
        tensors = cls.taken(name, {"x": x, "grad": grad, "y": y, "grad_x": grad_x})
        options = cls.options_of(name, tensors["x"].shape, axis, keepdims)
        return cls.of_tensors(tensors, p=p, name=name, **options)

    @property
    def row(self) -> Row:
        return NORMS[self.p]

    @property
    def takes_y(self) -> bool:
        return True


@dataclass(frozen=True)
class Parts:
    """A configuration: what is selected for each step, in their order."""

    parts: Mapping[str, Selection]

    def __str__(self) -> str:
        named = ((n, part.candidate.variant, str(part.config)) for n, part in self.parts.items())
        return " ".join(f"{n}={variant}" + (f"[{config}]" if config else "") for n, variant, config in named)


class ComposedGradient(Candidate[ReduceBackwardDescriptor]):
    """The rows' statistic, if the expression has one, by a reduction; the expression by the kernels of elementwise functions."""

    variant = "composed"
    launches = (
        *dict.fromkeys(launch for candidate in CANDIDATES for launch in candidate.launches),
        "elementwise/map.cu:map_contiguous",
        "elementwise/map.cu:map_strided",
    )

    def configs(self, desc: ReduceBackwardDescriptor, device: DeviceSpec) -> Iterable[Parts]:
        parts = {}
        if desc.own.statistic:
            parts[desc.own.called] = selected(StatisticPlan, desc.statistic(), None, device)
        parts["grad_x"] = selected(_mapped(desc.forward), desc.elements(), None, device)
        yield Parts(parts)

    def cost(self, desc: ReduceBackwardDescriptor, device: DeviceSpec, config: Parts) -> Cost:
        costs = [part.cost for part in config.parts.values()]
        longest = max(costs, key=lambda cost: cost.seconds)
        return Cost(desc.nbytes, sum(c.flops for c in costs), sum(c.seconds for c in costs), longest.limit)

    def guarantee(self, desc: ReduceBackwardDescriptor, device: DeviceSpec, config: Parts) -> PrecisionGuarantee:
        mean = config.parts.get("mean")
        bound = mean.guarantee.bound if mean else None
        return guarantee(desc, bound.terms[0].coefficient if isinstance(bound, Componentwise) else 0.0)

    def lower(self, desc: ReduceBackwardDescriptor, device: DeviceSpec, config: Parts) -> tuple[Sub, ...]:
        places: dict[str, Ptr | Scratch] = {name: Ptr(name) for name in ("grad_x", *desc.read)}
        steps = []
        if statistic := config.parts.get(desc.own.called):
            out = statistic.desc.layout("out")
            places[desc.own.called] = Scratch.named("statistic", out.element.nbytes(math.prod(out.shape)))
            steps.append(Sub(statistic, {"x": Ptr("x"), "out": places[desc.own.called]}))
        return (*steps, Sub(config.parts["grad_x"], places))


def guarantee(desc: ReduceBackwardDescriptor, depth: float) -> PrecisionGuarantee:
    """The rounding of each part, carried through the expression; a mean of terms that go through `depth` roundings, and the
    product of the other factors, move the result by as much as what they are multiplied by."""
    computed = computed_in(desc.element)
    terms = [Term(1.0, computed.element, "propagated")]
    if desc.own.called == "mean":
        terms.append(Term(depth + 4, computed.element, "moved_mean"))
    if desc.own.called == "others":
        u = computed.element.unit_roundoff
        terms.append(Term(math.expm1(desc.extent * math.log1p(u)) / u, computed.element, "moved_factors"))
    if desc.forward == "sum" or computed.element is desc.element:  # nothing is rounded at the end
        bound = Componentwise(tuple(terms), SOURCE, "overflowing_parts")
    else:
        bound = Componentwise.rounded(tuple(terms), desc.element, SOURCE, "overflowing_parts")
    flushes = desc.elements().row.flushed
    return replace(PrecisionGuarantee.fixed_order(computed.math, computed.element, bound), flushes_subnormals=flushes)
