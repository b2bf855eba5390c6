"""Cross entropy of a linear layer's logits, with its gradients in the same call, and the gradients alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ....numerics.guarantee import widely
from ....plan.descriptor import Slot, described
from ....plan.plan import Plan
from ....plan.registry import Gradient, Op, register
from ....types import PrecisionGuarantee
from ..._function import SignatureRules, function_of
from ..._rows import FLOATS
from .._loss import LABELS, STATUS, WIDE, on_request
from .._problem import STATUSES
from . import _guarantee, oracle, samples
from ._chunked import Chunked
from ._problem import FIELDS, LinearProblem

__all__ = [
    "LinearCrossEntropyBackwardDescriptor",
    "LinearCrossEntropyBackwardPlan",
    "LinearCrossEntropyDescriptor",
    "LinearCrossEntropyPlan",
    "linear_cross_entropy",
    "linear_cross_entropy_backward",
]

OPERANDS = (
    Slot("hidden", takes=FLOATS, shape="hidden_shape"),
    Slot("weight", takes=FLOATS, shape="weight_shape", element="element"),
    Slot("labels", takes=LABELS, shape="row_shape"),
)


@on_request(return_lse=("lse",), return_gradients=("grad_hidden", "grad_weight"), return_status=("status",))
@described(
    Slot("out", "out", takes=WIDE, shape="out_shape", element="computed"),
    Slot("lse", "out", optional=True, takes=WIDE, shape="row_shape"),
    Slot("grad_hidden", "out", optional=True, takes=FLOATS, shape="hidden_shape"),
    Slot("grad_weight", "out", optional=True, takes=WIDE, shape="weight_shape"),
    STATUS,
    *OPERANDS,
    fields=FIELDS,
)
class LinearCrossEntropyDescriptor(LinearProblem):
    """hidden, weight, and a label a row. The `<name>_element` of lse, a gradient or status says that it is an output."""

    name = "linear_cross_entropy"


@on_request(return_status=("status",))
@described(
    Slot("grad_hidden", "out", takes=FLOATS, shape="hidden_shape", element="element"),
    Slot("grad_weight", "out", takes=WIDE, shape="weight_shape", element="computed"),
    STATUS,
    Slot("grad", takes=WIDE, shape="out_shape", element="computed"),
    *OPERANDS,
    Slot("lse", takes=WIDE, shape="row_shape", element="computed"),
    fields=FIELDS,
)
class LinearCrossEntropyBackwardDescriptor(LinearProblem):
    """The gradient of the result of `linear_cross_entropy`, the operands of its call, and its lse."""

    name = "linear_cross_entropy_backward"


def _reference_guarantee(desc: LinearProblem) -> PrecisionGuarantee:
    """That of sums in float64."""
    (n, h), v = desc.hidden_shape, desc.shape[1]
    one = dict.fromkeys(("logits", *desc.gradients), _guarantee.Product(1.0, 1.0))
    return widely(_guarantee.guarantee(desc, one, row=1, rows=1, chunks=1), desc, max(n, h, v))


PROBES: tuple[Mapping[str, Any], ...] = (
    *(
        {"hidden_shape": (40, 64), "weight_shape": (72, 64), "element": e, "labels_element": "i64"}
        for e in ("bf16", "f16", "f32", "f64")
    ),
    {"hidden_shape": (4096, 1024), "weight_shape": (50_257, 1024), "element": "bf16", "labels_element": "i64"},
)
WITH_GRADIENTS = {
    "bf16": {"grad_hidden_element": "bf16", "grad_weight_element": "f32", "lse_element": "f32"},
    "f16": {"grad_hidden_element": "f16", "grad_weight_element": "f32"},
    "f32": {"grad_hidden_element": "f32", "grad_weight_element": "f32"},
    "f64": {"grad_hidden_element": "f64", "grad_weight_element": "f64"},
}


class LinearCrossEntropyPlan(Plan[LinearCrossEntropyDescriptor]):
    """Linear cross entropy: operands `hidden`, `weight`, `labels`, `out`, and as the problem has them `lse`, `grad_hidden`,
    `grad_weight` and `status`."""

    descriptor = LinearCrossEntropyDescriptor
    statuses = STATUSES
    candidates = (Chunked(),)
    measures = oracle.MEASURES
    reference = oracle.forward
    reference_guarantee = staticmethod(_reference_guarantee)
    probes = (*PROBES[-1:], *({**probe, **WITH_GRADIENTS[probe["element"]]} for probe in PROBES))


class LinearCrossEntropyBackwardPlan(Plan[LinearCrossEntropyBackwardDescriptor]):
    """The gradients of `linear_cross_entropy`: operands `grad`, `hidden`, `weight`, `labels`, `lse`, `grad_hidden`,
    `grad_weight`, and as the problem has it `status`."""

    descriptor = LinearCrossEntropyBackwardDescriptor
    statuses = STATUSES
    candidates = (Chunked(),)
    measures = oracle.MEASURES
    reference = oracle.backward
    reference_guarantee = staticmethod(_reference_guarantee)
    probes = PROBES


@function_of(
    LinearCrossEntropyPlan,
    rules=SignatureRules(wanted={"grad_hidden": "return_gradients", "grad_weight": "return_gradients"}),
)
def linear_cross_entropy(
    hidden: Any, weight: Any, labels: Any, *, ignore_index: int = -100, label_smoothing: float = 0.0,
    reduction: str = "mean", z_loss: float = 0.0, return_lse: bool = False, return_gradients: bool = False,
    return_status: bool = False, out: Any = None, lse: Any = None, grad_hidden: Any = None, grad_weight: Any = None,
    status: Any = None,
) -> Any:  # fmt: skip
    """`cross_entropy` of the logits x = hidden @ weight.T, which are never stored as a whole; with its gradients if asked.

    hidden: [N, H]. weight: [V, H], as of a linear layer, of hidden's dtype (f16, bf16, f32, f64); both of any strides. labels:
    [N] int32 or int64. ignore_index, label_smoothing, z_loss, reduction, labels out of range, `status` and `return_status`: as in
    `cross_entropy`. With reduction="none" and neither smoothing nor z_loss, -out are the labels' log-probabilities.
    return_lse: whether lse = log(sum(exp(x))) is an output, [N]. return_gradients: whether grad_hidden, of hidden's dtype, and
    grad_weight, f32 (f64 for f64), are: the gradients of the sum of out, for which the logits are computed once. An array that
    is passed as one of them asks for that one alone. Rows that are ignored have gradients of 0.
    Rows are taken in chunks. Scratch has the logits of a chunk, which their gradients overwrite: a fifth of the outputs at most,
    or 256 MiB where that is more. Logits and their gradients are rounded to hidden's dtype, sums are f32 (f64 for f64; f32
    operands are multiplied as f32), and grad_weight adds up the chunks in their order, in f32, so that results are the same bits
    at every call. With f16, scale the loss: gradients of logits below 6e-8 are 0.
    Gradients also flow by `linear_cross_entropy_backward`, which computes the logits a second time.
    Returns out (f32; f64 for f64), or the named tuple (out, lse, grad_hidden, grad_weight, status) of those that there are.
    """


@function_of(LinearCrossEntropyBackwardPlan)
def linear_cross_entropy_backward(
    grad: Any, hidden: Any, weight: Any, labels: Any, lse: Any, *, ignore_index: int = -100,
    label_smoothing: float = 0.0, reduction: str = "mean", z_loss: float = 0.0, return_status: bool = False,
    grad_hidden: Any = None, grad_weight: Any = None, status: Any = None,
) -> Any:  # fmt: skip
    """The gradients of `linear_cross_entropy` with respect to hidden and weight, given that of its result.

    grad: the gradient of the result, of its shape and dtype. hidden, weight, labels and the options: those of the forward call.
    lse: its output of that name. The logits are computed again, in chunks, and never stored as a whole. grad_hidden: of hidden's
    dtype. grad_weight: f32 (f64 for f64). Labels out of range are as in `cross_entropy_backward`.
    Returns (grad_hidden, grad_weight), and with `return_status` (or given `status`) status.
    """


_gradient = Gradient(
    "linear_cross_entropy_backward", ("hidden", "weight", "labels", "lse"),
    {"hidden": "grad_hidden", "weight": "grad_weight"},
)  # fmt: skip
register(Op("linear_cross_entropy", LinearCrossEntropyPlan, linear_cross_entropy, samples.forward, {}, _gradient))
register(
    Op("linear_cross_entropy_backward", LinearCrossEntropyBackwardPlan, linear_cross_entropy_backward, samples.backward)
)
