"""multilabel_margin_loss: the hinge of every pair of a target and another class of a row, and its gradient."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ....plan.candidate import Candidate, Cost
from ....plan.descriptor import Slot, described
from ....plan.registry import Gradient, Op, register
from ....runtime.steps import Arg, Kernel, Launch, Ptr, Scratch, Step
from ....tensor import Tensor
from ....types import DeviceSpec, ElementKind, InvalidProblemError, PrecisionGuarantee
from ..._function import function_of
from ..._rows import FLOATS, computed_in
from .._loss import LABELS, STATUS, TOTAL, WIDE, RowsLoss, RowsLossPlan, on_request
from . import oracle, samples

__all__ = [
    "MultilabelMarginBackwardDescriptor",
    "MultilabelMarginBackwardPlan",
    "MultilabelMarginDescriptor",
    "MultilabelMarginPlan",
    "multilabel_margin_loss",
    "multilabel_margin_loss_backward",
]

FILE, THREADS, MOST_CTAS = "loss/multilabel_margin.cu", 256, 1024
FIELDS = ("shape", "element", "target_element", "reduction")
OPERANDS = (Slot("x", takes=FLOATS), Slot("target", takes=LABELS, shape="shape"))
STATUSES = {1: ("a target is neither a class nor -1, the loss of its row NaN", "give 0 to C - 1, then -1")}


class MultilabelProblem(RowsLoss):
    """The fields of both descriptors: x of `shape`, [N, C] or [C], and targets of its shape."""

    target_element: ElementKind = ElementKind.I64
    labels_operand = "target"

    def check(self) -> None:
        self.check_rows("x")

    def refuse_values(self, tensors: Mapping[str, Tensor]) -> None:
        if self.reports:
            return
        target, classes = tensors["target"].array(), self.shape[-1]
        wrong = np.argwhere(((target < -1) | (target >= classes)) & ~oracle.ended(target))
        if wrong.size:
            place = tuple(wrong[0].tolist())
            raise InvalidProblemError(
                f"{self.op}: target[{', '.join(map(str, place))}] = {target[place]} is neither a class, 0 to "
                f"{classes - 1}, nor -1, which ends a row",
                "give classes, or pass status=, an int32 scalar that is then 1",
            )

    # ---- launches -------------------------------------------------------------------------------------------------

    @property
    def lanes(self) -> int:
        """Threads per row, which the number of classes alone decides."""
        return 32 if self.shape[-1] <= 256 else THREADS

    @property
    def ctas(self) -> int:
        return max(1, min(MOST_CTAS, -(-self.count // (THREADS // self.lanes))))

    @property
    def row_depth(self) -> int:
        """Additions that a term of a row goes through: of a tile of targets, of tiles, of a thread's classes, of the group."""
        parts = -(-self.shape[-1] // self.lanes)
        return min(self.lanes, self.shape[-1]) + 2 * parts + 5 + self.lanes // 32

    @property
    def depth(self) -> int:
        """Additions that the loss of a row goes through: of a group, of a CTA, of all."""
        groups = self.ctas * (THREADS // self.lanes)
        return -(-self.count // groups) + 5 + THREADS // 32 + 5 + MOST_CTAS // 32

    def matrix(self, name: str) -> tuple[Arg, np.int64, np.int64]:
        """An operand's address, and elements from a row to the next and from a class to the next."""
        strides = (0, *self.layout(name).strides)[-2:]
        return Ptr(name), np.int64(strides[0]), np.int64(strides[1])

    def launch(self, name: str, *ahead: Arg, written: tuple[Arg, ...] = ()) -> Launch:
        """The launch over rows, `ahead` what it takes between the counts and the status, and ahead of it the status."""
        words = -(-self.shape[-1] // 32)
        groups = self.ctas * (THREADS // self.lanes)
        marks: Arg = np.uint64(0) if words <= self.lanes else Scratch.named("marks", 4 * words * groups)
        args = (
            np.uint32(self.count), np.uint32(self.shape[-1]), *ahead, self.status_arg, marks, *written,
            *self.matrix("x"), *self.matrix("target"),
        )  # fmt: skip
        kinds = f"{self.element.number}, {computed_in(self.element).cuda}, {self.target_element.number}, {self.lanes}"
        kernel = Kernel(FILE, f"{name}<{kinds}>")
        return Launch(kernel, (self.ctas, 1, 1), (THREADS, 1, 1), args)


@on_request(return_status=("status",))
@described(Slot("out", "out", takes=WIDE, shape="out_shape", element="computed"), STATUS, *OPERANDS, fields=FIELDS)
class MultilabelMarginDescriptor(MultilabelProblem):
    """x of `shape`, [N, C] or [C], and the targets of each row."""

    name = "multilabel_margin_loss"


@on_request(return_status=("status",))
@described(
    Slot("grad_x", "out", takes=FLOATS), STATUS, Slot("grad", takes=WIDE, shape="out_shape", element="computed"), *OPERANDS,
    fields=FIELDS,
)  # fmt: skip
class MultilabelMarginBackwardDescriptor(MultilabelProblem):
    """The gradient of the result of `multilabel_margin_loss`, and the operands of its call."""

    name = "multilabel_margin_loss_backward"
    gradient = True


class PairsCandidate(Candidate[MultilabelProblem]):
    """A warp or a CTA per row goes over the pairs of its targets and other classes; one CTA adds up."""

    variant = "pairs"
    launches = (f"{FILE}:multilabel_margin", TOTAL)

    def cost(self, desc: MultilabelProblem, device: DeviceSpec, config: Any) -> Cost:
        """As if a row had eight targets: their number is known to the device alone."""
        pairs = desc.count * desc.shape[-1] * min(desc.shape[-1], 8)
        cost = Cost.streaming(device, desc.nbytes, instructions=(7.0 if desc.gradient else 4.0) * pairs, efficiency=0.7)
        return replace(cost, seconds=cost.seconds + device.overhead * desc.reduced)

    def guarantee(self, desc: MultilabelProblem, device: DeviceSpec, config: Any) -> PrecisionGuarantee:
        return desc.guarantee(desc.depth)

    def lower(self, desc: MultilabelProblem, device: DeviceSpec, config: Any) -> tuple[Step, ...]:
        return desc.valued(lambda *out: desc.launch("multilabel_margin", *out), desc.ctas, MOST_CTAS)


class CountsCandidate(Candidate[MultilabelProblem]):
    """As `pairs`, which are counted: of a class the targets, of a target, a warp each, the classes."""

    variant = "counts"
    launches = (f"{FILE}:multilabel_margin_backward",)

    cost = PairsCandidate.cost
    guarantee = PairsCandidate.guarantee

    def lower(self, desc: MultilabelProblem, device: DeviceSpec, config: Any) -> tuple[Step, ...]:
        ahead = (desc.scale, Ptr("grad"), desc.row_step("grad"))
        launch = desc.launch("multilabel_margin_backward", *ahead, written=desc.matrix("grad_x"))
        return *desc.status_cleared, launch


class MultilabelPlan(RowsLossPlan):
    """What both plans share."""

    statuses = STATUSES
    measures = oracle.MEASURES
    reference = oracle.evaluate
    probes = (
        *({"shape": (3, n), "element": e} for e in ("f32", "bf16", "f16", "f64") for n in (100, 10_000)),
        {"shape": (3, 100), "element": "f32", "target_element": "i32", "reduction": "none"},
    )


class MultilabelMarginPlan(MultilabelPlan):
    """The multi-label margin loss: operands `x`, `target`, `out`, and as the problem has it `status`."""

    descriptor = MultilabelMarginDescriptor
    candidates = (PairsCandidate(),)


class MultilabelMarginBackwardPlan(MultilabelPlan):
    """The gradient of `multilabel_margin_loss`: operands `grad`, `x`, `target`, `grad_x`, and as the problem has it `status`."""

    descriptor = MultilabelMarginBackwardDescriptor
    candidates = (CountsCandidate(),)


@function_of(MultilabelMarginPlan)
def multilabel_margin_loss(
    x: Any, target: Any, *, reduction: str = "mean", return_status: bool = False, out: Any = None, status: Any = None
) -> Any:
    """1 / C times the sum of max(0, 1 - x[t] + x[i]) over the targets t of a row x and its classes i that are no targets.

    x: [N, C], or [C] for one row (f16, bf16, f32, f64), any strides. target: of x's shape, int32 or int64; a row's targets are
    the classes ahead of its first -1, and what follows that has no meaning. A class that is given twice counts twice. As in
    torch.nn.functional.multilabel_margin_loss, but a NaN in x makes the loss NaN where a term has it.
    reduction: "mean" (over rows), "sum", or "none": [N]. Sums have a fixed order; "mean" of no rows is NaN.
    Targets out of range, below -1 or from C on, `status` and `return_status`: as labels in `cross_entropy`.
    out: f32 (f64 for f64), of 16-bit x too. Returns out, or (out, status).
    """


@function_of(MultilabelMarginBackwardPlan)
def multilabel_margin_loss_backward(
    grad: Any, x: Any, target: Any, *, reduction: str = "mean", return_status: bool = False, grad_x: Any = None,
    status: Any = None,
) -> Any:  # fmt: skip
    """The gradient of `multilabel_margin_loss` with respect to x: grad / C for each positive term, of its t minus that.

    grad: the gradient of the result, f32 (f64 for f64). x, target and the options: those of the forward call. Terms are counted:
    the gradients do not depend on an order of additions. grad_x: like x; allocated in C order if not given. Rows with a target
    out of range are NaN. Returns grad_x, or (grad_x, status).
    """


_gradient = Gradient("multilabel_margin_loss_backward", ("x", "target"), {"x": "grad_x"})
register(
    Op("multilabel_margin_loss", MultilabelMarginPlan, multilabel_margin_loss, samples.forward, {}, _gradient,
       {"torch": "multilabel_margin_loss"})
)  # fmt: skip
register(
    Op(
        "multilabel_margin_loss_backward",
        MultilabelMarginBackwardPlan,
        multilabel_margin_loss_backward,
        samples.backward,
    )
)
