"""The gradients of reductions: an expression of elements, of operands that are broadcast along the reduced axes. What depends on
whole rows beside the forward call's own result (a mean, the number of equal terms) is reduced first.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

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
from ._pairs import PAIRS
from ._problem import NORMS, TABLE, Reduced, Row, StatisticDescriptor, checked_p, norm_row

__all__ = ["GRADIENTS", "ComposedGradient", "ReduceBackwardDescriptor", "VectorNormBackwardDescriptor", "guarantee"]

SOURCE = "first-order propagation through the expression (baracuda_py/numerics/expression.py)"


class GradientRow(NamedTuple):
    """The gradient of one reduction: an expression in `grad`, `x`, the result `y`, numbers, and statistics of each row, which
    `statistics` has by their names in the expression, each with its name in `StatisticDescriptor`."""

    formula: str
    numbers: tuple[str, ...] = ()
    statistics: Mapping[str, str] = MappingProxyType({})


# By the name of the reduction's row.
GRADIENTS = {
    "sum": GradientRow("grad"),
    "mean": GradientRow("grad / count", ("count",)),
    "max": GradientRow("where(x == y, grad, 0) / ties", (), {"ties": "max_ties"}),
    "min": GradientRow("where(x == y, grad, 0) / ties", (), {"ties": "min_ties"}),
    "var": GradientRow("grad * scale * (x - mean)", ("scale",), {"mean": "mean"}),
    "logsumexp": GradientRow("grad * exp(x - y)"),
    "prod": GradientRow("grad * where(x == 0, others, y / x)", (), {"others": "other_factors"}),
    "std": GradientRow("where(y == 0, 0, grad * scale * (x - mean) / (2 * y))", ("scale",), {"mean": "mean"}),
    "nansum": GradientRow("where(x == x, grad, 0)"),
    "nanmean": GradientRow("where(x == x, grad / ties, 0)", (), {"ties": "valid"}),
    "nanmax": GradientRow("where(x == y, grad / ties, 0)", (), {"ties": "nanmax_ties"}),
    "nanmin": GradientRow("where(x == y, grad / ties, 0)", (), {"ties": "nanmin_ties"}),
    "norm_zero": GradientRow("where(grad == grad, 0, grad)"),
    "norm_one": GradientRow("grad * sign(x)"),
    "norm_two": GradientRow("where(y == 0, 0, grad * (x / y))"),
    "norm_power": GradientRow("where((x == 0) | (y == 0), 0, grad * sign(x) * (abs(x) / y) ** power)", ("power",)),
    "norm_largest": GradientRow("where(abs(x) == y, grad * sign(x), 0) / ties", (), {"ties": "largest_ties"}),
    "norm_smallest": GradientRow("where(abs(x) == y, grad * sign(x), 0) / ties", (), {"ties": "smallest_ties"}),
    "aminmax": GradientRow("where(x == min, grad, 0) / min_ties + where(x == max, grad_max, 0) / max_ties", (),
                           {"min_ties": "min_ties", "max_ties": "max_ties"}),
    "var_mean": GradientRow("grad * scale * (x - mean) + grad_mean / count", ("scale", "count"), {"mean": "mean"}),
}  # fmt: skip
OF_NORMS = (*(row.name for row in NORMS.values()), "norm_power")
OF_PAIRS = tuple(PAIRS)


@cache
def _formula(name: str) -> Expression:
    return expression_of(GRADIENTS[name].formula)


@cache
def _mapped(name: str) -> type[Plan[Any]]:
    """The plan of the expression."""
    row = GRADIENTS[name]
    return formula_plan(name, _formula(name), row.numbers, tuple(row.statistics), OpCategory.REDUCE)


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

    called: ClassVar[Mapping[str, str]] = MappingProxyType({})  # operands of other names in the expression, with these

    def __post_init__(self) -> None:
        self._names_op(self.known(), "name")
        super().__post_init__()
        if self.takes_y and self.y_element is None:
            complete(self, y_element=self.element)

    @classmethod
    def known(cls) -> tuple[str, ...]:
        """Names of the ops."""
        return tuple(f"{name}_backward" for name in GRADIENTS if name not in (*OF_NORMS, *OF_PAIRS))

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
    def numbers(self) -> Mapping[str, float]:
        """The numbers in the expression: the terms of a result, or 2 over var's count of them."""
        count = max(self.extent - self.correction, 0)
        known = {"count": float(self.extent), "scale": 2 / count if count else math.inf}
        return {name: known[name] for name in self.own.numbers}

    def check(self) -> None:
        self.check_axes(self.row)
        if self.has("y") and not self.takes_y:
            raise InvalidProblemError(f"{self.op}: y has no part in this gradient", "leave y out")
        if self.y_element not in (None, self.element):
            raise OperandTypeError(f"{self.op}: y must hold {self.element}, got {self.y_element}", "cast it")

    @property
    def read(self) -> tuple[str, ...]:
        """The operands whose values count."""
        names = (operand.name for operand in self.signature_operands)
        return tuple(name for name in names if self.called.get(name, name) in self.formula.names)

    @property
    def nbytes(self) -> int:
        layouts = [self.layout(name) for name in ("grad_x", *self.read)]
        return sum(each.element.nbytes(math.prod(each.shape)) for each in layouts)

    def in_place(self, written: str, read: str) -> bool:
        """An element of each operand is read before the same one of grad_x is written, and rows are reduced before that."""
        return True

    def statistics(self) -> Mapping[str, StatisticDescriptor]:
        """The problems of the rows' statistics, whose results have x's axes."""
        x = self.layout("x")
        layout: dict[str, Any] = {"x_strides": x.strides, "x_align": x.align}
        return {
            called: StatisticDescriptor(self.shape, self.element, self.axes, 1, name=name, **layout)
            for called, name in self.own.statistics.items()
        }

    def elements(self) -> Any:
        """The problem of the expression: its operands have x's shape, with strides of 0 along the reduced axes."""
        fields: dict[str, Any] = {"out_element": self.element}
        for own in ("grad_x", *self.read):
            layout, name = self.layout(own), self.called.get(own, own)
            along = layout.strides if layout.shape == self.shape else self.spread(own)
            fields |= {f"{name}_strides": along, f"{name}_align": layout.align}
            if name != "grad_x":
                fields |= {f"{name}_shape": self.shape, f"{name}_element": self.element}
        for called, made in self.statistics().items():
            fields |= {f"{called}_shape": made.out_shape, f"{called}_element": made.layout("out").element}
        fields["numbers"] = tuple(self.numbers.values()) or None
        return _mapped(self.forward).descriptor(**fields)


@described(
    Slot("grad_x", "out", takes=FLOATS),
    Slot("grad", takes=FLOATS, shape="out_shape", element="element"),
    Slot("x", takes=FLOATS),
    Slot("y", optional=True, takes=FLOATS, shape="out_shape"),
)
class VectorNormBackwardDescriptor(ReduceBackwardDescriptor):
    """The gradient of a p-norm with respect to an x of `shape`, for the axes and keepdims of its call. `y` is its result, whose
    values count unless p is 0 or 1."""

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
        return norm_row(self.p)

    @property
    def numbers(self) -> Mapping[str, float]:
        """What the powers of a p that has no expression of its own are raised to."""
        return dict.fromkeys(self.own.numbers, self.p - 1)

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
    """The rows' statistics, if the expression has any, by reductions; the expression by the kernels of elementwise functions."""

    variant = "composed"
    launches = (
        *dict.fromkeys(launch for candidate in CANDIDATES for launch in candidate.launches),
        "elementwise/map.cu:map_contiguous",
        "elementwise/map.cu:map_strided",
    )

    def configs(self, desc: ReduceBackwardDescriptor, device: DeviceSpec) -> Iterable[Parts]:
        made = desc.statistics().items()
        parts = {called: selected(StatisticPlan, statistic, None, device) for called, statistic in made}
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
        names = ("grad_x", *desc.read)
        places: dict[str, Ptr | Scratch] = {desc.called.get(name, name): Ptr(name) for name in names}
        steps = []
        for called in desc.own.statistics:
            out = config.parts[called].desc.layout("out")
            places[called] = Scratch.named(called, out.element.nbytes(math.prod(out.shape)))
            steps.append(Sub(config.parts[called], {"x": Ptr("x"), "out": places[called]}))
        return (*steps, Sub(config.parts["grad_x"], places))


def guarantee(desc: ReduceBackwardDescriptor, depth: float) -> PrecisionGuarantee:
    """The rounding of each part, carried through the expression; a mean of terms that go through `depth` roundings, and the
    product of the other factors, move the result by as much as what they are multiplied by."""
    computed = computed_in(desc.element)
    terms = [Term(1.0, computed.element, "propagated")]
    if "mean" in desc.own.statistics:
        terms.append(Term(depth + 4, computed.element, "moved_mean"))
    if "others" in desc.own.statistics:
        u = computed.element.unit_roundoff
        terms.append(Term(math.expm1(desc.extent * math.log1p(u)) / u, computed.element, "moved_factors"))
    if desc.forward == "sum" or computed.element is desc.element:  # nothing is rounded at the end
        bound = Componentwise(tuple(terms), SOURCE, "overflowing_parts")
    else:
        bound = Componentwise.rounded(tuple(terms), desc.element, SOURCE, "overflowing_parts")
    flushes = desc.elements().row.flushed
    return replace(PrecisionGuarantee.fixed_order(computed.math, computed.element, bound), flushes_subnormals=flushes)
