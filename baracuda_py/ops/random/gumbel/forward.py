"""gumbel_softmax: softmax of logits with Gumbel noise, which is a function of (seed, position)."""

from __future__ import annotations

from typing import Any

from ....numerics.guarantee import widely
from ....plan.descriptor import Slot, described
from ....plan.fields import flag
from ....plan.plan import Plan
from ....plan.registry import Gradient, Op, register
from ....types import Componentwise, ElementKind, OpCategory, PrecisionGuarantee, Term
from ..._function import function_of
from ..._rows import FLOATS, computed_in
from .._drawn import POSITION, VALUES
from . import oracle, samples
from ._problem import FILE, SOURCE, Noisy, RowsOfScores

__all__ = ["GumbelSoftmaxDescriptor", "GumbelSoftmaxPlan", "gumbel_softmax"]


@described(Slot("out", "out", takes=FLOATS), Slot("x", takes=FLOATS), POSITION)
class GumbelSoftmaxDescriptor(Noisy):
    """softmax((x + g) / tau) of an x of `shape` along `axis`, g noise; with `hard` 1 at the largest, and 0 elsewhere."""

    shape: tuple[int, ...]
    element: ElementKind
    axis: int = -1
    hard: bool = False
    tau: float = 1.0
    seed: int = 0
    offset: int = 0
    subsequence: int = 0

    name = "gumbel_softmax"
    values = ("tau", *VALUES)
    arrays = ("out", "x")
    inputs = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        self._each(("hard",), flag)


class RowsGumbelSoftmax(RowsOfScores):
    """As of `RowsOfScores`; maximum and sum come in one pass."""

    launches = (f"{FILE}:gumbel_softmax",)
    kernel = "gumbel_softmax"

    def types(self, desc: GumbelSoftmaxDescriptor) -> str:
        return f"{desc.template}, {str(desc.hard).lower()}"

    @staticmethod
    def promised(desc: GumbelSoftmaxDescriptor, depth: int, scalings: int) -> PrecisionGuarantee:
        """Of softmax and the noise; of the largest, unless another one is as near as the scores err."""
        computed = computed_in(desc.element)
        unit = computed.element
        terms: tuple[Term, ...] = (Term(1.0, unit, "abs_result"),)
        if not desc.hard:
            terms = (
                Term(3.0, unit, "shifted"), Term(3.0, unit, "expected"), Term(1.0, unit, "score_error"),
                Term(depth + 5.0 * scalings + 12, unit, "abs_result"), Term(4.0, unit, "computed_smallest_normal"),
            )  # fmt: skip
        bound = Componentwise.rounded(terms, desc.element, SOURCE, "undetermined")
        return PrecisionGuarantee.fixed_order(computed.math, unit, bound)


class GumbelSoftmaxPlan(Plan[GumbelSoftmaxDescriptor]):
    """Softmax of noisy scores: operands `out`, `x`, and `position` where the offset is in memory."""

    descriptor = GumbelSoftmaxDescriptor
    category = OpCategory.RANDOM
    candidates = (RowsGumbelSoftmax(),)
    measures = oracle.MEASURES
    probes = (
        *({"shape": (3, n), "element": e} for e in ("f32", "bf16", "f64") for n in (100, 4096, 50257)),
        {"shape": (6, 40), "element": "f32", "axis": 0, "hard": True},
    )
    reference = oracle.forward

    @staticmethod
    def reference_guarantee(desc: GumbelSoftmaxDescriptor) -> PrecisionGuarantee:
        return widely(RowsGumbelSoftmax.promised(desc, 1, 0), desc, desc.extent)


@function_of(GumbelSoftmaxPlan)
def gumbel_softmax(
    x: Any, tau: float = 1.0, *, hard: bool = False, axis: int = -1, seed: int = 0, offset: int = 0, subsequence: int = 0,
    position: Any = None,
) -> Any:  # fmt: skip
    """softmax((x + g) / tau) along an axis, g independent noise of Gumbel's distribution: a sample of the classes whose
    logits are x, relaxed by the temperature tau.

    x: an array of any shape and strides (f16, bf16, f32, f64), fastest along the innermost axis; out may be x itself. Element
    i, in C order, has the noise -log(-log(u)), u = (w + 1/2) / 2**32 of the random bits w at position offset + i of the stream
    (seed, subsequence) (f64: of 64 bits): that of `fill_gumbel`, unrounded. No noise is stored: `gumbel_softmax_backward` with
    the same arguments draws it again. tau: a run-time number from 1e-30 to 1e30. hard: 1 at the first of the row's largest and 0
    elsewhere; its gradient is that of the soft result, as PyTorch has it (straight-through). axis: counted from the end if
    negative. position: an array of one i64 in x's memory, which is added to `offset` when the kernel runs (`take_position`).
    Computed in f32 (f64 for f64) and rounded once. A row that holds NaN or +inf, or -inf alone, is NaN; so is one of which some
    (x + g) / tau overflows to +inf in what is computed in, such as f32 x of 3e38 with tau = 0.1 (not with ``device="cpu"``,
    which computes f32 in f64). Returns out. Raises InvalidProblemError for an axis that there is not, and for another tau.
    """


register(
    Op(
        "gumbel_softmax", GumbelSoftmaxPlan, gumbel_softmax, samples.forward,
        gradient=Gradient("gumbel_softmax_backward", ("x", "position"), {"x": "grad_x"}),
        peers={"torch": "nn.functional.gumbel_softmax"},
    )
)  # fmt: skip
