"""The gradients of reductions of segments."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

from ...numerics.guarantee import widely
from ...numerics.rounding import round_to
from ...plan.descriptor import described
from ...plan.plan import Plan
from ...plan.registry import Op, register
from ...types import ElementKind, PrecisionGuarantee
from .._function import function_of
from . import oracle, samples
from ._candidates import Spread, gradient_bound
from ._problem import FIELDS, TABLE, SegmentProblem, slots_of
from .reduce import SegmentDescriptor

__all__ = [
    "SegmentBackwardDescriptor",
    "SegmentBackwardPlan",
    "SegmentExtremumBackwardDescriptor",
    "SegmentExtremumBackwardPlan",
    "segment_logsumexp_backward",
    "segment_max_backward",
    "segment_mean_backward",
    "segment_min_backward",
    "segment_prod_backward",
    "segment_sum_backward",
]


class BackwardProblem(SegmentProblem):
    """The gradient of the result of a reduction, and the operands of its call."""

    result = "grad_x"
    name: str

    def __post_init__(self) -> None:
        own = "y" in self.slot_of
        self._names_op(tuple(f"{name}_backward" for name, row in TABLE.items() if row.remembered == own), "name")
        super().__post_init__()


@described(*slots_of(grad=True), fields=FIELDS)
class SegmentBackwardDescriptor(BackwardProblem):
    """Of a sum, a mean or a product."""

    name: str = "segment_sum_backward"


@described(*slots_of(grad=True, y=True), fields=FIELDS)
class SegmentExtremumBackwardDescriptor(BackwardProblem):
    """Of a maximum, a minimum or a log-sum-exp; y is its result."""

    name: str = "segment_max_backward"


class SegmentBackwardPlan(Plan[Any]):
    """The gradient of a sum, a mean or a product of segments: operands `grad_x`, `grad`, `x` and `offsets`."""

    descriptor: ClassVar[Any] = SegmentBackwardDescriptor
    candidates = (Spread(),)
    measures = oracle.MEASURES
    reference = oracle.backward
    probes = tuple(
        {"x_shape": shape, "offsets_shape": (9,), "element": element, "name": f"segment_{name}_backward"}
        for shape in ((40, 64), (5000, 3), (300,)) for element in ("bf16", "f32", "f64") for name in ("sum", "mean", "prod")
    )  # fmt: skip

    @staticmethod
    def reference_guarantee(desc: SegmentProblem) -> PrecisionGuarantee:
        return widely(gradient_bound(desc, 1.0), desc)


class SegmentExtremumBackwardPlan(SegmentBackwardPlan):
    """The gradient of a maximum, a minimum or a log-sum-exp of segments: operands `grad_x`, `grad`, `x`, `y` and `offsets`."""

    descriptor = SegmentExtremumBackwardDescriptor
    probes = tuple(
        {"x_shape": shape, "offsets_shape": (9,), "element": element, "name": f"segment_{name}_backward"}
        for shape in ((40, 64), (5000, 3), (300,)) for element in ("bf16", "f32", "f64") for name in ("max", "logsumexp")
    )  # fmt: skip


def _of_sum(grad: Any, x: Any, offsets: Any, *, mode: str = "drop", grad_x: Any = None) -> Any: ...


def _of_extremum(grad: Any, x: Any, y: Any, offsets: Any, *, mode: str = "drop", grad_x: Any = None) -> Any: ...


_DOC = """The gradient of {name}: of each row {formula}, and 0 for a row of no segment.

grad: the gradient of the result, of x's dtype and of shape [segments, *x.shape[1:]], any strides. {operands}. offsets, mode:
those of the forward call; offsets that are refused give zeros, and with ``"raise"`` InvalidProblemError, as there.
Computed in f32 (f64 for f64) and rounded once{first}; the same bits at every call.
grad_x: of x's shape, in C order; allocated if not given. Returns grad_x.
"""
_X = "x: the operand of the forward call, of which only\nthe shape counts"
_READ = "x: the operand of the forward call"
_XY = "x: the operand of the forward call; y: its\nresult, in C order"
_TIES = "grad / t of its segment where x is y, else 0, where t of the segment's elements are; where y is NaN, those that are NaN"
_SHARED = ", the quotient to x's dtype; ties share a gradient evenly, as in torch.segment_reduce"
_SAID = {
    "segment_sum": ("that of its segment", _X, ""),
    "segment_mean": ("grad / n of its segment, of n rows", _X, ""),
    "segment_max": (_TIES, _XY, _SHARED),
    "segment_min": (_TIES, _XY, _SHARED),
    "segment_prod": ("grad times the product of the other elements of its segment", _READ, ""),
    "segment_logsumexp": ("grad * exp(x - y) of its segment", _XY, ""),
}


def _result(name: str, x: Any, offsets: Any) -> Any:
    """The forward result of a sample."""
    return round_to(oracle.reduce(SegmentDescriptor.of(x, offsets, name=name), x, offsets), ElementKind.of(x.dtype))


def _published(name: str) -> Callable[..., Any]:
    """The function of the gradient of a row of the table, which is registered."""
    own, backward = TABLE[name].remembered, f"{name}_backward"
    formula, operands, first = _SAID[name]
    plan = SegmentExtremumBackwardPlan if own else SegmentBackwardPlan
    doc = _DOC.format(name=name, formula=formula, operands=operands, first=first)
    function = function_of(plan, called=backward, doc=doc, name=backward)(_of_extremum if own else _of_sum)
    problems = partial(samples.backward, partial(_result, name) if own else None)
    register(Op(backward, plan, function, problems, {"name": backward}))
    return function


segment_sum_backward = _published("segment_sum")
segment_mean_backward = _published("segment_mean")
segment_max_backward = _published("segment_max")
segment_min_backward = _published("segment_min")
segment_prod_backward = _published("segment_prod")
segment_logsumexp_backward = _published("segment_logsumexp")
