"""The gradients of embedding_bag: sums, in a fixed order, of the gradients of the bags that name each row."""

from __future__ import annotations

from typing import Any

from ....numerics.guarantee import widely
from ....plan.descriptor import Slot, described
from ....plan.plan import Plan
from ....plan.registry import Op, register
from ....types import PrecisionGuarantee
from ..._function import SignatureRules, function_of
from ..._rows import FLOATS
from . import oracle, samples
from ._candidates import BySortedRows, gradient_bound
from ._problem import FIELDS, OPERANDS, BagProblem

__all__ = ["EmbeddingBagBackwardDescriptor", "EmbeddingBagBackwardPlan", "embedding_bag_backward"]


@described(
    Slot("grad_weight", "out", takes=FLOATS, shape="weight_shape", element="element", strided=False),
    Slot("grad_per_sample_weights", "out", takes=FLOATS, shape="input_shape", element="element", strided=False),
    Slot("grad", takes=FLOATS, shape="out_shape", element="element"),
    *OPERANDS,
    fields=FIELDS,
)
class EmbeddingBagBackwardDescriptor(BagProblem):
    """The gradient of the result of `embedding_bag`, and the operands of its call."""

    name = "embedding_bag_backward"

    def has(self, name: str) -> bool:
        return super().has("per_sample_weights" if name == "grad_per_sample_weights" else name)


class EmbeddingBagBackwardPlan(Plan[EmbeddingBagBackwardDescriptor]):
    """The gradients of bags: operands `grad`, `input`, `weight`, `grad_weight`, and as the problem has them `offsets`,
    `per_sample_weights` and `grad_per_sample_weights`."""

    descriptor = EmbeddingBagBackwardDescriptor
    candidates = (BySortedRows(),)
    measures = oracle.MEASURES
    reference = oracle.backward
    probes = (
        {"input_shape": (9, 20), "weight_shape": (100, 64), "element": "bf16"},
        {"input_shape": (3000,), "offsets_shape": (9,), "offsets_element": "i64", "weight_shape": (100, 33), "element": "f32",
         "reduce": "sum", "per_sample_weights_element": "f32"},
        {"input_shape": (3000,), "offsets_shape": (9,), "offsets_element": "i32", "weight_shape": (100, 8), "element": "f64",
         "reduce": "max", "include_last_offset": True, "input_element": "i32"},
    )  # fmt: skip

    @staticmethod
    def reference_guarantee(desc: EmbeddingBagBackwardDescriptor) -> PrecisionGuarantee:
        return widely(gradient_bound(desc, 1.0), desc, max(desc.count, desc.length, 1))


@function_of(EmbeddingBagBackwardPlan, rules=SignatureRules(wanted={"grad_per_sample_weights": "per_sample_weights"}))
def embedding_bag_backward(
    grad: Any, input: Any, weight: Any, offsets: Any = None, *, reduce: str = "mean", per_sample_weights: Any = None,
    include_last_offset: bool = False, padding_idx: int | None = None, mode: str = "drop", grad_weight: Any = None,
    grad_per_sample_weights: Any = None,
) -> Any:  # fmt: skip
    """The gradients of `embedding_bag` with respect to weight and per_sample_weights.

    grad: [B, D], the gradient of the result, of weight's dtype, any strides. All others: those of the forward call. Entries that
    were left out add nothing, and ``mode="raise"`` raises where the forward call raised. Values of weight are read with
    per_sample_weights, and with ``reduce="max"``, where weight must be in C order: rows that are equal to the maximum of their
    bag share its gradient evenly (torch gives it to the first one).
    Entries are sorted by row, and the gradients of the bags of each row, times weight, or over the size of the bag, are summed in
    pieces of 256 entries: in f32 (f64 for f64), rounded once; the same bits at every call. A share of a maximum is rounded to
    weight's dtype first.
    grad_weight: of weight's shape; grad_per_sample_weights: of input's, each the product of the gradient with its entry's row;
    in C order, allocated if not given. Returns (grad_weight, grad_per_sample_weights) where there are weights, else grad_weight
    alone.
    """


register(Op("embedding_bag_backward", EmbeddingBagBackwardPlan, embedding_bag_backward, samples.backward))
