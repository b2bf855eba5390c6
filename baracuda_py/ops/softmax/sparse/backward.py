"""The gradients of sparsemax and entmax15, from their results."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ....plan.descriptor import described
from ....plan.registry import Op, register
from ....types import Componentwise, DeviceSpec, ElementKind, PrecisionGuarantee, Term
from ..._function import function_of
from ..._rows import RowConfig, computed_in, row_configs
from ..backward import DOC, SLOTS
from . import oracle, samples
from .forward import SOURCE, TABLE, RowsSparse, SparsePlan, SparseSoftmax

__all__ = ["SparseSoftmaxBackwardDescriptor", "SparseSoftmaxBackwardPlan", "entmax15_backward", "sparsemax_backward"]

FORMULA = "w * (grad - sum(w * grad) / sum(w))"


@described(*SLOTS)
class SparseSoftmaxBackwardDescriptor(SparseSoftmax):
    """The gradient of `name` without its ``_backward``, along `axis`."""

    shape: tuple[int, ...]
    element: ElementKind
    axis: int = -1
    name: str = "sparsemax_backward"

    def __post_init__(self) -> None:
        self._names_op(tuple(f"{name}_backward" for name in TABLE), "name")
        super().__post_init__()

    def promised(self, depth: int) -> PrecisionGuarantee:
        """Of the mean: both sums, a root and a product a term, and the quotient; then a root, a difference and a product."""
        computed = computed_in(self.element)
        unit = computed.element
        terms = (
            Term(2.0 * depth + 10, unit, "w_mean"), Term(4.0, unit, "w_grad"), Term(4.0, unit, "computed_smallest_normal"),
        )  # fmt: skip
        bound = Componentwise.rounded(terms, self.element, SOURCE, "overflowing")
        return PrecisionGuarantee.fixed_order(computed.math, unit, bound)


class RowsSparseSoftmaxBackward(RowsSparse):
    """A group of threads per row, which stays in registers where it fits and is streamed where it does not."""

    kernel, instructions = "sparse_softmax_backward", 12.0

    def configs(self, desc: SparseSoftmaxBackwardDescriptor, device: DeviceSpec) -> Iterable[RowConfig]:
        """As of the gradient of softmax: accesses of 8 bytes."""
        vector = min(desc.rows().vector(desc.element), 64 // desc.element.bits)
        return row_configs(desc.extent, vector, desc.element, shallow=True, streams=512)


class SparseSoftmaxBackwardPlan(SparsePlan):
    """The gradient of sparsemax or entmax15 along an axis: operands `grad`, `y` and `grad_x`."""

    descriptor = SparseSoftmaxBackwardDescriptor
    candidates = (RowsSparseSoftmaxBackward(),)
    measures = oracle.BACKWARD_MEASURES
    probes = tuple({"shape": (3, n), "element": e} for e in ("f32", "bf16", "f64") for n in (100, 4096, 50257))
    reference = oracle.backward


def _along(grad: Any, y: Any, /, axis: int = -1, *, grad_x: Any = None) -> Any: ...


def _published(name: str, weight: str) -> Callable[..., Any]:
    """The gradient of `name`, which is registered."""
    called, doc = f"{name}_backward", DOC.format(name=name, formula=FORMULA, where=f", w = {weight}")
    function = function_of(SparseSoftmaxBackwardPlan, called=called, doc=doc, name=called)(_along)
    register(Op(called, SparseSoftmaxBackwardPlan, function, samples.sparse_backward, {"name": called}))
    return function


sparsemax_backward = _published("sparsemax", "1 where y > 0, else 0")
entmax15_backward = _published("entmax15", "sqrt(y)")
