"""The gradient of gumbel_softmax, with the forward call's noise drawn again."""

from __future__ import annotations

from typing import Any

from ....numerics.guarantee import widely
from ....plan.descriptor import Slot, described
from ....plan.plan import Plan
from ....plan.registry import Op, register
from ....types import Componentwise, ElementKind, OpCategory, PrecisionGuarantee, Term
from ..._function import function_of
from ..._rows import FLOATS, computed_in
from .._drawn import POSITION, VALUES
from . import oracle, samples
from ._problem import FILE, SOURCE, Noisy, RowsOfScores

__all__ = ["GumbelSoftmaxBackwardDescriptor", "GumbelSoftmaxBackwardPlan", "gumbel_softmax_backward"]


@described(Slot("grad_x", "out", takes=FLOATS), Slot("grad", takes=FLOATS), Slot("x", takes=FLOATS), POSITION)
class GumbelSoftmaxBackwardDescriptor(Noisy):
    """The gradient of gumbel_softmax's x, of `shape`, along `axis`."""

    shape: tuple[int, ...]
    element: ElementKind
    axis: int = -1
    tau: float = 1.0
    seed: int = 0
    offset: int = 0
    subsequence: int = 0

    name = "gumbel_softmax_backward"
    values = ("tau", *VALUES)
    arrays = ("grad_x", "grad", "x")
    inputs = 2


class RowsGumbelSoftmaxBackward(RowsOfScores):
    """As of `RowsOfScores`, in three passes over the row."""

    launches = (f"{FILE}:gumbel_softmax_backward",)
    kernel = "gumbel_softmax_backward"

    @staticmethod
    def promised(desc: GumbelSoftmaxBackwardDescriptor, depth: int, scalings: int) -> PrecisionGuarantee:
        """What p errs by moves the two terms of p (grad - sum(p grad)), and the sum; the sum's own additions, and products."""
        computed = computed_in(desc.element)
        unit = computed.element
        terms = (
            Term(3.0, unit, "moved_shifts"), Term(1.0, unit, "moved_scores"),
            Term(2.0 * depth + 10.0 * scalings + 30, unit, "moved"), Term(4.0, unit, "moved_smallest"),
        )  # fmt: skip
        bound = Componentwise.rounded(terms, desc.element, SOURCE, "undetermined")
        return PrecisionGuarantee.fixed_order(computed.math, unit, bound)


class GumbelSoftmaxBackwardPlan(Plan[GumbelSoftmaxBackwardDescriptor]):
    """The gradient of gumbel_softmax: operands `grad_x`, `grad`, `x`, and `position` where the offset is in memory."""

    descriptor = GumbelSoftmaxBackwardDescriptor
    category = OpCategory.RANDOM
    candidates = (RowsGumbelSoftmaxBackward(),)
    measures = oracle.BACKWARD_MEASURES
    probes = (
        *({"shape": (3, n), "element": e} for e in ("f32", "bf16", "f64") for n in (100, 4096, 50257)),
        {"shape": (6, 40), "element": "f32", "axis": 0},
    )
    reference = oracle.backward

    @staticmethod
    def reference_guarantee(desc: GumbelSoftmaxBackwardDescriptor) -> PrecisionGuarantee:
        return widely(RowsGumbelSoftmaxBackward.promised(desc, 1, 0), desc, desc.extent)


@function_of(GumbelSoftmaxBackwardPlan)
def gumbel_softmax_backward(
    grad: Any, x: Any, tau: float = 1.0, *, axis: int = -1, seed: int = 0, offset: int = 0, subsequence: int = 0,
    position: Any = None, grad_x: Any = None,
) -> Any:  # fmt: skip
    """The gradient of `gumbel_softmax` with respect to x: p * (grad - sum(p * grad)) / tau, p the soft result, hard or not.

    grad: the gradient of the result, of x's shape and dtype. x and all other arguments: those of the forward call, from which
    its noise follows. grad_x: like x, x or grad itself included; allocated in C order if not given. Computed in f32 (f64 for
    f64) and rounded once. Returns grad_x.
    """


register(Op("gumbel_softmax_backward", GumbelSoftmaxBackwardPlan, gumbel_softmax_backward, samples.backward))
