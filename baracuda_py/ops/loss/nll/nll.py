"""nll_loss: the negative log-likelihood of labels, and its gradient."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from ....numerics.guarantee import widely
from ....plan.candidate import Candidate, Cost
from ....plan.descriptor import Slot, described
from ....plan.plan import Plan
from ....plan.registry import Gradient, Op, register
from ....runtime.steps import Arg, Kernel, Launch, Ptr, Run, Scratch, Step
from ....types import Componentwise, DeviceSpec, ElementKind, PrecisionGuarantee, Term
from ..._fill import FILL, filled
from ..._function import function_of
from ..._launch import grid_of
from ..._rows import FLOATS, computed_in
from .._guarantee import SOURCE, depth
from .._loss import LABELS, STATUS, WIDE, on_request
from .._problem import STATUSES, LogitsProblem
from . import oracle, samples

__all__ = [
    "NllBackwardDescriptor",
    "NllBackwardPlan",
    "NllDescriptor",
    "NllPlan",
    "nll_loss",
    "nll_loss_backward",
]

FILE, THREADS = "loss/nll.cu", 256
FIELDS = ("shape", "element", "labels_element", "reduction", "ignore_index")
OPERANDS = (
    Slot("x", takes=FLOATS),
    Slot("labels", takes=LABELS, shape="row_shape"),
    Slot("weight", optional=True, takes=FLOATS, shape="classes_shape"),
)


class NllProblem(LogitsProblem):
    """The fields of both descriptors: log-probabilities x of `shape`, [N, C] or [C]."""

    values: ClassVar[tuple[str, ...]] = ("ignore_index",)

    @classmethod
    def check_values(cls, op: str, values: Mapping[str, float], operands: Mapping[str, Any]) -> None:
        """Any label may be ignored."""

    def step(self, name: str, axis: int = 0) -> np.int64:
        """Elements from one to the next along an axis of an operand; 0 where it has none."""
        strides = self.layout(name).strides
        return np.int64(strides[axis] if axis < len(strides) else 0)

    def rows_of(self, name: str) -> tuple[np.int64, np.int64]:
        """Elements from a row to the next, and from a class to the next."""
        strides = (0, *self.layout(name).strides)[-2:]
        return np.int64(strides[0]), np.int64(strides[1])

    def launch(self, name: str, more: str, ahead: tuple[Arg, ...], matrix: str) -> tuple[Step, ...]:
        """The launch over rows, `ahead` what it takes between the counts and status, and ahead of it the status that it sets."""
        weight = (Ptr("weight"), self.step("weight")) if self.has("weight") else (np.uint64(0), np.int64(0))
        args = (
            np.uint32(self.count), np.int64(self.shape[-1]), Run("ignore_index", "int64"), *ahead, self.status_arg, Ptr("labels"),
            self.step("labels"), *weight, Ptr(matrix), *self.rows_of(matrix),
        )  # fmt: skip
        kinds = f"{self.element.number}, {self.types(total=True)}{more}"
        return *self.status_cleared, Launch(
            Kernel(FILE, f"{name}<{kinds}>"), grid_of(self.count, THREADS), (THREADS, 1, 1), args
        )


@on_request(return_status=("status",))
@described(
    Slot("out", "out", takes=WIDE, shape="out_shape", element="computed"), STATUS, *OPERANDS, fields=FIELDS
)  # fmt: skip
class NllDescriptor(NllProblem):
    """x of `shape`, [N, C] or [C], and a label a row."""

    name = "nll_loss"


@on_request(return_status=("status",))
@described(
    Slot("grad_x", "out", takes=FLOATS),
    STATUS,
    Slot("grad", takes=WIDE, shape="out_shape", element="computed"),
    *OPERANDS,
    fields=FIELDS,
)
class NllBackwardDescriptor(NllProblem):
    """The gradient of the result of `nll_loss`, and the operands of its call."""

    name = "nll_loss_backward"


class PickCandidate(Candidate[NllProblem]):
    """A thread per row reads its label's column; one CTA adds up."""

    variant = "pick"
    launches = (f"{FILE}:nll_rows", "loss/cross_entropy.cu:cross_entropy_total")

    def cost(self, desc: NllProblem, device: DeviceSpec, config: Any) -> Cost:
        cost = Cost.streaming(device, 64 * desc.count, instructions=40.0 * desc.count)
        return replace(cost, seconds=cost.seconds + device.overhead * (desc.reduction != "none"))

    def guarantee(self, desc: NllProblem, device: DeviceSpec, config: Any) -> PrecisionGuarantee:
        return guarantee(desc, depth(desc.count))

    def lower(self, desc: NllProblem, device: DeviceSpec, config: Any) -> tuple[Step, ...]:
        if desc.reduction == "none":
            return desc.launch("nll_rows", "", (Ptr("out"), desc.step("out")), "x")
        losses = Scratch.named("losses", desc.computed.nbytes(max(desc.count, 1)))
        steps = desc.launch("nll_rows", "", (losses, np.int64(1)), "x")
        return *steps, desc.total_launch(losses, Ptr("out"))


class PlaceCandidate(Candidate[NllProblem]):
    """The gradients become 0, then a thread per row writes that of its label; ahead of it one CTA adds up the weights."""

    variant = "place"
    launches = (f"{FILE}:nll_backward", "loss/cross_entropy.cu:cross_entropy_total", FILL)

    def cost(self, desc: NllProblem, device: DeviceSpec, config: Any) -> Cost:
        cost = Cost.streaming(device, desc.element.nbytes(desc.count * desc.shape[-1]) + 64 * desc.count)
        return replace(cost, seconds=cost.seconds + device.overhead * (1 + (desc.reduction == "mean")))

    def guarantee(self, desc: NllProblem, device: DeviceSpec, config: Any) -> PrecisionGuarantee:
        return guarantee(desc, depth(desc.count))

    def lower(self, desc: NllProblem, device: DeviceSpec, config: Any) -> tuple[Step, ...]:
        x, mean = desc.layout("grad_x"), desc.reduction == "mean"
        sums = Scratch.named("sums", desc.computed.nbytes(2))
        ahead = (Ptr("grad"), desc.step("grad"), sums if mean else np.uint64(0))
        return (
            filled(Ptr("grad_x"), x.shape, x.strides, x.element, 0),
            *((desc.total_launch(np.uint64(0), sums),) if mean else ()),
            *desc.launch("nll_backward", f", {str(mean).lower()}", ahead, "grad_x"),
        )


def guarantee(desc: NllProblem, rows: int) -> PrecisionGuarantee:
    """A product, and for a sum over rows its depth; the sum of weights that divides errs by as much, and may cancel."""
    computed, output = computed_in(desc.element), desc.slots[0].name
    sums = {"mean": 2.0 * rows, "sum": 1.0 * rows * (output == "out"), "none": 0.0}[desc.reduction]
    terms = [
        Term(sums + 4.0, computed.element, "losses" if output == "out" else "slopes"),
        Term(8.0, computed.element, "lost"),
    ]
    bound = Componentwise.rounded(terms, desc.layout(output).element, SOURCE, "overflowing")
    alone = desc.reduction == "none" or (output != "out" and desc.reduction == "sum")
    found = PrecisionGuarantee.fixed_order(computed.math, computed.element, bound, batch_invariant=alone)
    if not desc.has("status"):
        return found
    return PrecisionGuarantee.by_output(**{output: found, "status": PrecisionGuarantee.exact(ElementKind.I32)})


def _reference_guarantee(desc: NllProblem) -> PrecisionGuarantee:
    return widely(guarantee(desc, 1), desc, max(desc.shape))


PROBES: tuple[Mapping[str, Any], ...] = (
    *({"shape": (300, 100), "element": e} for e in ("f32", "bf16", "f16", "f64")),
    {"shape": (300, 100), "element": "bf16", "labels_element": "i32", "weight_element": "f32", "reduction": "none"},
)


class NllPlan(Plan[NllDescriptor]):
    """The negative log-likelihood: operands `x`, `labels`, `out`, and as the problem has them `weight` and `status`."""

    descriptor = NllDescriptor
    statuses = STATUSES
    candidates = (PickCandidate(),)
    measures = oracle.MEASURES
    reference = oracle.forward
    reference_guarantee = staticmethod(_reference_guarantee)
    probes = PROBES


class NllBackwardPlan(Plan[NllBackwardDescriptor]):
    """The gradient of `nll_loss`: operands `grad`, `x`, `labels`, `grad_x`, and as the problem has them `weight` and
    `status`."""

    descriptor = NllBackwardDescriptor
    statuses = STATUSES
    candidates = (PlaceCandidate(),)
    measures = oracle.BACKWARD_MEASURES
    reference = oracle.backward
    reference_guarantee = staticmethod(_reference_guarantee)
    probes = PROBES


@function_of(NllPlan)
def nll_loss(
    x: Any, labels: Any, weight: Any = None, *, ignore_index: int = -100, reduction: str = "mean",
    return_status: bool = False, out: Any = None, status: Any = None,
) -> Any:  # fmt: skip
    """The negative log-likelihood -weight[y] x[y] of rows x of log-probabilities and their labels y.

    x: [N, C], or [C] for one row (f16, bf16, f32, f64), any strides. labels: [N] int32 or int64. weight, ignore_index, reduction,
    labels out of range, `status` and `return_status`: as in `cross_entropy`, and so is "mean", a sum over weight[y].
    out: f32 (f64 for f64), of 16-bit x too. One column of each row is read. Returns out, or (out, status).
    """


@function_of(NllBackwardPlan)
def nll_loss_backward(
    grad: Any, x: Any, labels: Any, weight: Any = None, *, ignore_index: int = -100, reduction: str = "mean",
    return_status: bool = False, grad_x: Any = None, status: Any = None,
) -> Any:  # fmt: skip
    """The gradient of `nll_loss` with respect to x: -grad weight[y] at each row's label, and 0 elsewhere.

    grad: the gradient of the result, of its shape and dtype. x (whose values are not read), labels, weight and the options: those
    of the forward call. grad_x: like x; allocated in C order if not given. Rows whose label is out of range are NaN.
    Returns grad_x, or (grad_x, status).
    """


_gradient = Gradient("nll_loss_backward", ("x", "labels", "weight"), {"x": "grad_x"}, shapes=("x",))
register(Op("nll_loss", NllPlan, nll_loss, samples.forward, {}, _gradient, {"torch": "nll_loss"}))
register(Op("nll_loss_backward", NllBackwardPlan, nll_loss_backward, samples.backward))
