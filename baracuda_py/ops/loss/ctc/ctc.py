"""ctc_loss: the connectionist temporal classification loss, and its gradient."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ....plan.candidate import Candidate, Cost
from ....plan.descriptor import Slot, described
from ....plan.registry import Gradient, Op, register
from ....runtime.steps import Ptr, Scratch, Step
from ....types import DeviceSpec, PrecisionGuarantee
from ..._function import function_of
from ..._rows import FLOATS
from .._loss import STATUS, TOTAL, WIDE, RowsLossPlan, on_request
from . import oracle, samples
from ._problem import FIELDS, FILE, MOST_CTAS, OPERANDS, CtcProblem

__all__ = [
    "CtcBackwardDescriptor",
    "CtcBackwardPlan",
    "CtcDescriptor",
    "CtcPlan",
    "ctc_loss",
    "ctc_loss_backward",
]

STEP_S = 1.0e-6  # of the recursion: a barrier, exponentials and a logarithm
STATUSES = {1: ("a length or a label is out of range, the loss of its sequence NaN", "give 0 to T, S, and C - 1")}


@on_request(return_status=("status",))
@described(Slot("out", "out", takes=WIDE, shape="out_shape", element="computed"), STATUS, *OPERANDS, fields=FIELDS)
class CtcDescriptor(CtcProblem):
    """log_probs of `shape`, [T, N, C], labels of `targets_shape`, [N, S], and the lengths of both."""

    name = "ctc_loss"


@on_request(return_status=("status",))
@described(
    Slot("grad_log_probs", "out", takes=FLOATS), STATUS,
    Slot("grad", takes=WIDE, shape="out_shape", element="computed"), *OPERANDS, fields=FIELDS,
)  # fmt: skip
class CtcBackwardDescriptor(CtcProblem):
    """The gradient of the result of `ctc_loss`, and the operands of its call."""

    name = "ctc_loss_backward"
    gradient = True


class AlphaCandidate(Candidate[CtcProblem]):
    """A CTA per sequence goes through the steps ahead; one CTA adds up."""

    variant = "alpha"
    launches = (f"{FILE}:ctc_loss", TOTAL)

    def cost(self, desc: CtcProblem, device: DeviceSpec, config: Any) -> Cost:
        return _cost(desc, device, recursions=1)

    def guarantee(self, desc: CtcProblem, device: DeviceSpec, config: Any) -> PrecisionGuarantee:
        return desc.guarantee(-(-desc.count // desc.ctas) + 5 + MOST_CTAS // 32)

    def lower(self, desc: CtcProblem, device: DeviceSpec, config: Any) -> tuple[Step, ...]:
        flags = (np.bool_(desc.zero_infinity), np.bool_(desc.reduction == "mean"), desc.rows, desc.status_arg)
        return desc.valued(lambda *out: desc.launch("ctc_loss", desc.ctas, *flags, *out), desc.ctas, MOST_CTAS)


class PosteriorsCandidate(Candidate[CtcProblem]):
    """A CTA per sequence finds the probability of each state at each step, ahead and back; a CTA per step adds them up."""

    variant = "posteriors"
    launches = (f"{FILE}:ctc_posteriors", f"{FILE}:ctc_gradient")

    def cost(self, desc: CtcProblem, device: DeviceSpec, config: Any) -> Cost:
        return _cost(desc, device, recursions=2)

    def guarantee(self, desc: CtcProblem, device: DeviceSpec, config: Any) -> PrecisionGuarantee:
        return desc.guarantee(0)

    def lower(self, desc: CtcProblem, device: DeviceSpec, config: Any) -> tuple[Step, ...]:
        steps, count, _ = desc.shape
        posteriors = Scratch.named("posteriors", desc.computed.nbytes(max(1, steps * count * desc.states)))
        links = Scratch.named("links", 4 * max(1, count * desc.targets_shape[-1]))
        losses = Scratch.named("losses", desc.computed.nbytes(max(1, count)))
        strides = map(np.int64, desc.layout("grad_log_probs").strides)
        flags = (np.bool_(desc.zero_infinity), np.bool_(desc.reduction == "mean"), desc.scale)
        found = (posteriors, links, losses)
        first = desc.launch("ctc_posteriors", desc.ctas, desc.rows, desc.status_arg, *found)
        if not steps * count:
            return *desc.status_cleared, first
        last = desc.launch(
            "ctc_gradient", steps * count, *flags, Ptr("grad"), desc.row_step("grad"), *found, Ptr("grad_log_probs"), *strides
        )  # fmt: skip
        return *desc.status_cleared, first, last


def _cost(desc: CtcProblem, device: DeviceSpec, recursions: int) -> Cost:
    """Steps in turn, of so many sequences at a time as there are SMs, two each."""
    cost = Cost.streaming(device, desc.nbytes)
    waves = -(-desc.count // (2 * device.sms)) * -(-desc.states // 256)
    return replace(cost, seconds=cost.seconds + device.overhead + recursions * waves * desc.shape[0] * STEP_S)


class CtcLossPlan(RowsLossPlan):
    """What both plans share."""

    statuses = STATUSES
    measures = oracle.MEASURES
    reference = oracle.evaluate
    probes = (
        *({"shape": (9, 2, 20), "targets_shape": (2, 4), "element": e} for e in ("f32", "bf16", "f16", "f64")),
        {"shape": (9, 2, 20), "targets_shape": (2, 1200), "targets_element": "i32", "lengths_element": "i32", "element": "f32",
         "reduction": "none"},
    )  # fmt: skip


class CtcPlan(CtcLossPlan):
    """The CTC loss: operands `log_probs`, `targets`, `input_lengths`, `target_lengths`, `out`, and as it has it `status`."""

    descriptor = CtcDescriptor
    candidates = (AlphaCandidate(),)


class CtcBackwardPlan(CtcLossPlan):
    """The gradient of `ctc_loss`: operands `grad`, those of the loss, `grad_log_probs`, and as it has it `status`."""

    descriptor = CtcBackwardDescriptor
    candidates = (PosteriorsCandidate(),)


@function_of(CtcPlan)
def ctc_loss(
    log_probs: Any, targets: Any, input_lengths: Any, target_lengths: Any, *, blank: int = 0, reduction: str = "mean",
    zero_infinity: bool = False, return_status: bool = False, out: Any = None, status: Any = None,
) -> Any:  # fmt: skip
    """Minus the logarithm of the probability of each sequence's labels, over all of their alignments with its steps.

    A. Graves et al., Connectionist Temporal Classification, ICML 2006; as in torch.nn.functional.ctc_loss. An alignment gives
    each step a class; blanks between labels, and repetitions of a label, count as one, and equal neighbours have a blank between.
    log_probs: [T, N, C] (f16, bf16, f32, f64), any strides, logarithms of probabilities. targets: [N, S] int32 or int64, padded
    with anything. input_lengths, target_lengths: [N] int32 or int64, both of one kind. blank: its class.
    reduction: "mean" (each loss divided by its number of labels, or by 1 if it has none, then the mean over N), "sum", or
    "none": [N]. Labels without an alignment have a loss of inf, with `zero_infinity` 0.
    Lengths and labels out of range, `status` and `return_status`: as labels in `cross_entropy`.
    out: f32 (f64 for f64), of 16-bit log_probs too. Sums have a fixed order. Returns out, or (out, status).
    """


@function_of(CtcBackwardPlan)
def ctc_loss_backward(
    grad: Any, log_probs: Any, targets: Any, input_lengths: Any, target_lengths: Any, *, blank: int = 0,
    reduction: str = "mean", zero_infinity: bool = False, return_status: bool = False, grad_log_probs: Any = None,
    status: Any = None,
) -> Any:  # fmt: skip
    """The gradient of `ctc_loss` with respect to log_probs: minus grad times the probability of each class at each step.

    That is the derivative. PyTorch's has exp(log_probs) added, of which the gradient of log_softmax makes nothing: behind it both
    are one. grad: the gradient of the result, f32 (f64 for f64). The other operands and the options: those of the forward call.
    grad_log_probs: like log_probs; allocated in C order if not given; 0 past a sequence's length. The steps of labels without an
    alignment are NaN, with `zero_infinity` 0; all of a sequence with lengths or labels out of range are NaN.
    The same labels are added in a fixed order. Returns grad_log_probs, or (grad_log_probs, status).
    """


_gradient = Gradient(
    "ctc_loss_backward", ("log_probs", "targets", "input_lengths", "target_lengths"), {"log_probs": "grad_log_probs"}
)
register(Op("ctc_loss", CtcPlan, ctc_loss, samples.forward, {}, _gradient, {"torch": "ctc_loss"}))
register(Op("ctc_loss_backward", CtcBackwardPlan, ctc_loss_backward, samples.backward))
