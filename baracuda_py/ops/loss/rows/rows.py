"""Losses whose value is a function of sums along a row, and their gradients. An entry of the table is two ops."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ....plan.candidate import Candidate, Cost
from ....plan.registry import Gradient, Op, register
from ....runtime.steps import Scratch, Step
from ....types import DeviceSpec, PrecisionGuarantee
from ..._function import function_of
from ..._rows import RowConfig, row_cost
from .._guarantee import depth
from .._loss import RowsLossPlan
from . import oracle, samples
from ._table import TABLE
from .problem import FILE, PROBLEMS, RowLoss

__all__ = [
    "cosine_embedding_loss",
    "cosine_embedding_loss_backward",
    "multi_margin_loss",
    "multi_margin_loss_backward",
    "multilabel_soft_margin_loss",
    "multilabel_soft_margin_loss_backward",
    "triplet_margin_loss",
    "triplet_margin_loss_backward",
]


class RowsCandidate(Candidate[RowLoss]):
    """A group of threads per row, which stays in registers if it fits and is streamed if it does not; one CTA adds up."""

    variant = "rows"
    launches = (f"{FILE}:row_loss", f"{FILE}:row_loss_total")

    def configs(self, desc: RowLoss, device: DeviceSpec) -> Iterable[RowConfig]:
        return desc.configs()

    def cost(self, desc: RowLoss, device: DeviceSpec, config: RowConfig) -> Cost:
        spent = sum(one.instructions()[0] for one in (*desc.sums.values(), *desc.expressions.values()))
        cost = row_cost(device, desc.rows(), desc.nbytes, config, desc.element, instructions=spent)
        return replace(cost, seconds=cost.seconds + device.overhead * desc.reduced)

    def guarantee(self, desc: RowLoss, device: DeviceSpec, config: RowConfig) -> PrecisionGuarantee:
        return desc.guarantee(depth(desc.count))

    def lower(self, desc: RowLoss, device: DeviceSpec, config: RowConfig) -> tuple[Step, ...]:
        if not desc.reduced:
            return desc.row_launch(config, np.uint64(0))
        losses = Scratch.named("losses", desc.computed.nbytes(max(desc.count, 1)))
        return (*(desc.row_launch(config, losses) if desc.count else ()), desc.total_launch(losses))


class RowLossPlan(RowsLossPlan):
    """What the plans of these losses share."""

    candidates = (RowsCandidate(),)
    measures = oracle.MEASURES
    reference = oracle.evaluate
    probes = (
        *({"shape": (3, n), "element": e} for e in ("f32", "bf16", "f16", "f64") for n in (100, 40_000)),
        {"shape": (3, 100), "element": "f32", "reduction": "none"},
    )


def _plan_of(name: str) -> type[RowLossPlan]:
    descriptor = PROBLEMS[name]
    labels = {1: ("a label is no class, the loss of its row NaN", "give 0 to C - 1")}
    own = {
        "descriptor": descriptor, "statuses": labels if "status" in descriptor.slot_of else {}, "__module__": __name__,
        "__doc__": RowLossPlan.__doc__, "declared_as": RowLossPlan,
    }  # fmt: skip
    made = type(descriptor.__name__.replace("Descriptor", "Plan"), (RowLossPlan,), own)
    globals()[made.__name__] = made
    return made


def _forward(template: Callable[..., Any]) -> Callable[..., Any]:
    """The function of a loss, which is registered."""
    name = template.__name__
    row = TABLE[name]
    plan = _plan_of(name)
    made = function_of(plan)(template)
    weight = ("weight",) if row.weighted else ()
    saved = tuple(dict.fromkeys((*row.inputs, *(("target",) if row.target else ()), *weight)))
    gradient = Gradient(f"{name}_backward", saved, {one: f"grad_{one}" for one in row.inputs})
    register(Op(name, plan, made, partial(samples.forward, name), {}, gradient, {"torch": name}))
    return made


def _backward(template: Callable[..., Any]) -> Callable[..., Any]:
    """The function of a gradient, which is registered."""
    name = template.__name__
    plan = _plan_of(name)
    made = function_of(plan)(template)
    register(Op(name, plan, made, partial(samples.backward, name.removesuffix("_backward"))))
    return made


@_forward
def cosine_embedding_loss(x1: Any, x2: Any, target: Any, *, margin: float = 0.0, reduction: str = "mean") -> Any:
    """1 - c of each pair of rows with target 1, and max(0, c - margin) with target -1; c = cos(x1, x2).

    x1, x2: [N, C], or [C] for one pair (f16, bf16, f32, f64), any strides. target: [N] of their dtype; other values have no loss.
    c is sum(x1 x2) / sqrt((sum(x1**2) + 1e-12) (sum(x2**2) + 1e-12)), as in torch.nn.functional.cosine_embedding_loss.
    margin is a run-time value. reduction: "mean", "sum", or "none": [N]. Sums have a fixed order; "mean" of no rows is NaN.
    out: f32 (f64 for f64), for 16-bit operands too, of which PyTorch's is 16 bits wide. Returns out.
    """


@_backward
def cosine_embedding_loss_backward(
    grad: Any, x1: Any, x2: Any, target: Any, *, margin: float = 0.0, reduction: str = "mean", grad_x1: Any = None,
    grad_x2: Any = None,
) -> Any:  # fmt: skip
    """The gradients of `cosine_embedding_loss` with respect to x1 and x2.

    grad: the gradient of the result, f32 (f64 for f64). x1, x2, target and the options: those of the forward call.
    grad_x1, grad_x2: like x1; allocated if not given. Returns (grad_x1, grad_x2). There is no gradient of target.
    """


@_forward
def triplet_margin_loss(
    anchor: Any, positive: Any, negative: Any, *, margin: float = 1.0, p: float = 2.0, eps: float = 1e-6,
    swap: bool = False, reduction: str = "mean",
) -> Any:  # fmt: skip
    """max(0, margin + d(anchor, positive) - d(anchor, negative)) of rows; d(a, b) is the p-norm of a - b + eps.

    anchor, positive, negative: [N, C], or [C] for one row (f16, bf16, f32, f64), of one shape and dtype, any strides.
    p: the norm's, 1 or more. swap: d(positive, negative) stands in for d(anchor, negative) where it is smaller. As in
    torch.nn.functional.triplet_margin_loss; margin and eps are run-time values.
    reduction: "mean", "sum", or "none": [N]. Sums have a fixed order; "mean" of no rows is NaN.
    out: f32 (f64 for f64), for 16-bit operands too, of which PyTorch's is 16 bits wide. Returns out.
    """


@_backward
def triplet_margin_loss_backward(
    grad: Any, anchor: Any, positive: Any, negative: Any, *, margin: float = 1.0, p: float = 2.0, eps: float = 1e-6,
    swap: bool = False, reduction: str = "mean", grad_anchor: Any = None, grad_positive: Any = None,
    grad_negative: Any = None,
) -> Any:  # fmt: skip
    """The gradients of `triplet_margin_loss` with respect to anchor, positive and negative, 0 for a distance of 0.

    grad: the gradient of the result, f32 (f64 for f64). The other operands and the options: those of the forward call.
    grad_anchor, grad_positive, grad_negative: like anchor; allocated if not given. Returns all three.
    """


@_forward
def multi_margin_loss(
    x: Any, target: Any, weight: Any = None, *, p: float = 1.0, margin: float = 1.0, reduction: str = "mean",
    return_status: bool = False, out: Any = None, status: Any = None,
) -> Any:  # fmt: skip
    """weight[y] / C times the sum over classes i other than y of max(0, margin - x[y] + x[i])**p, for rows x and labels y.

    x: [N, C], or [C] for one row (f16, bf16, f32, f64), any strides. target: [N] int32 or int64, the classes y. weight: [C],
    of x's dtype. p: 1 or 2. As in torch.nn.functional.multi_margin_loss; margin is a run-time value.
    reduction: "mean" (over rows), "sum", or "none": [N]. Sums have a fixed order; "mean" of no rows is NaN.
    Labels out of range, `status` and `return_status`: as in `cross_entropy`; no label is ignored.
    out: f32 (f64 for f64), of 16-bit x too. Returns out, or (out, status).
    """


@_backward
def multi_margin_loss_backward(
    grad: Any, x: Any, target: Any, weight: Any = None, *, p: float = 1.0, margin: float = 1.0, reduction: str = "mean",
    return_status: bool = False, grad_x: Any = None, status: Any = None,
) -> Any:  # fmt: skip
    """The gradient of `multi_margin_loss` with respect to x.

    grad: the gradient of the result, f32 (f64 for f64). x, target, weight and the options: those of the forward call.
    grad_x: like x; allocated in C order if not given. Rows whose label is out of range are NaN. Returns grad_x, or
    (grad_x, status).
    """


@_forward
def multilabel_soft_margin_loss(x: Any, target: Any, weight: Any = None, *, reduction: str = "mean") -> Any:
    """The mean over the classes of a row of -weight (target log(sigmoid(x)) + (1 - target) log(sigmoid(-x))).

    x, target: [N, C], or [C] for one row (f16, bf16, f32, f64), of one shape and dtype, any strides; target from 0 to 1.
    weight: [C], of x's dtype. As in torch.nn.functional.multilabel_soft_margin_loss.
    reduction: "mean", "sum", or "none": [N]. Sums have a fixed order; "mean" of no rows is NaN.
    out: f32 (f64 for f64), for 16-bit operands too, of which PyTorch's is 16 bits wide. Returns out.
    """


@_backward
def multilabel_soft_margin_loss_backward(
    grad: Any, x: Any, target: Any, weight: Any = None, *, reduction: str = "mean", return_grad_target: bool = False,
    grad_x: Any = None, grad_target: Any = None,
) -> Any:  # fmt: skip
    """The gradient of `multilabel_soft_margin_loss` with respect to x: grad weight (sigmoid(x) - target) / C.

    grad: the gradient of the result, f32 (f64 for f64). x, target, weight and the options: those of the forward call.
    grad_x: like x; allocated if not given. Returns grad_x. With return_grad_target, or where it is given, the last output is
    grad_target, of x's dtype: -grad weight x / C. There is no gradient of weight.
    """
