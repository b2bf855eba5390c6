"""Cross entropy of rows of logits and labels of classes, and its gradient."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ...numerics.guarantee import widely
from ...plan.candidate import Candidate, Cost, Feasibility, no
from ...plan.descriptor import Slot, described
from ...plan.plan import Plan
from ...plan.registry import Gradient, Op, register
from ...runtime.steps import Ptr, Scratch, Step
from ...types import DeviceSpec, PrecisionGuarantee
from .._function import function_of
from .._rows import FLOATS, RowConfig, Rows, row_configs, row_cost, share
from .._unaligned import unaligned_rows
from . import _guarantee, oracle, samples
from ._loss import LABELS, STATUS, WIDE, on_request
from ._problem import FIELDS, STATUSES, LogitsProblem

__all__ = [
    "CrossEntropyBackwardDescriptor",
    "CrossEntropyBackwardPlan",
    "CrossEntropyDescriptor",
    "CrossEntropyPlan",
    "cross_entropy",
    "cross_entropy_backward",
]


@on_request(return_lse=("lse",), return_status=("status",))
@described(
    Slot("out", "out", takes=WIDE, shape="out_shape", element="computed"),
    Slot("lse", "out", optional=True, shape="row_shape"),
    STATUS,
    Slot("logits", takes=FLOATS),
    Slot("labels", takes=LABELS, shape="row_shape"),
    Slot("weight", optional=True, takes=FLOATS, shape="classes_shape"),
    fields=FIELDS,
)
class CrossEntropyDescriptor(LogitsProblem):
    """logits of `shape`, [N, C] or [C], and a label a row. `lse_element` and `status_element` say that these are outputs."""

    name = "cross_entropy"
    kernel_operands = {"out": "out", "grad": "", "lse": "lse", "labels": "labels", "x": "logits", "weight": "weight"}


@on_request(return_status=("status",))
@described(
    Slot("grad_logits", "out", takes=FLOATS),
    STATUS,
    Slot("grad", takes=WIDE, shape="out_shape", element="computed"),
    Slot("logits", takes=FLOATS),
    Slot("labels", takes=LABELS, shape="row_shape"),
    Slot("lse", shape="row_shape", element="computed"),
    Slot("weight", optional=True, takes=FLOATS, shape="classes_shape"),
    fields=FIELDS,
)
class CrossEntropyBackwardDescriptor(LogitsProblem):
    """The gradient of the result of `cross_entropy`, the operands of its call, and its lse."""

    name = "cross_entropy_backward"
    kernel_operands = {
        "out": "grad_logits", "grad": "grad", "lse": "lse", "labels": "labels", "x": "logits", "weight": "weight",
    }  # fmt: skip

    def in_place(self, written: str, read: str) -> bool:
        """A thread writes the columns that it alone has read."""
        return written == "grad_logits" and read == "logits"


# Threads of a row at most. One pass is one turn of loads after another, and CTAs beside each other fill the gaps; a row in
# registers, which more threads could hold, would be read once all the same.
LANES = 256
VECTORS = 4  # that a thread has of an unaligned row at a time
TOTAL = "loss/cross_entropy.cu:cross_entropy_total"


class RowsCandidate(Candidate[LogitsProblem]):
    """A group of threads per row, which stays in registers if it fits and is streamed if it does not; one CTA adds up."""

    variant = "rows"
    unaligned = False
    launches = ("loss/cross_entropy.cu:cross_entropy", TOTAL)

    def totals(self, desc: LogitsProblem) -> bool:
        """Whether there is a launch that adds up."""
        return desc.reduction != "none"

    def configs(self, desc: LogitsProblem, device: DeviceSpec) -> Iterable[RowConfig]:
        configs = row_configs(desc.shape[-1], desc.rows().vector(desc.element), desc.element, streams=LANES)
        return (config for config in configs if config.lanes <= LANES)

    def cost(self, desc: LogitsProblem, device: DeviceSpec, config: RowConfig) -> Cost:
        cost = row_cost(device, desc.rows(), desc.nbytes, config, desc.element, instructions=12.0)
        return replace(cost, seconds=cost.seconds + device.overhead * self.totals(desc))

    def guarantee(self, desc: LogitsProblem, device: DeviceSpec, config: RowConfig) -> PrecisionGuarantee:
        depth = config.depth(desc.shape[-1])
        return _guarantee.forward(
            desc, depth=depth, scalings=depth // config.vector + 7, rows=_guarantee.depth(desc.count)
        )

    def lower(self, desc: LogitsProblem, device: DeviceSpec, config: RowConfig) -> tuple[Step, ...]:
        losses = (
            Scratch.named("losses", desc.computed.nbytes(max(desc.count, 1))) if self.totals(desc) else np.uint64(0)
        )
        launch = desc.rows_launch("cross_entropy", desc.types(), config, losses, unaligned=self.unaligned)
        return (*launch, desc.total_launch(losses, Ptr("out"))) if self.totals(desc) else launch


class BackwardCandidate(RowsCandidate):
    """A group of threads per row in one pass; ahead of it, one CTA adds up the weights where they count."""

    launches = (TOTAL, "loss/cross_entropy.cu:cross_entropy_backward")

    def totals(self, desc: LogitsProblem) -> bool:
        return desc.reduction == "mean" or desc.has("weight")

    def guarantee(self, desc: LogitsProblem, device: DeviceSpec, config: RowConfig) -> PrecisionGuarantee:
        return _guarantee.backward(desc, rows=_guarantee.depth(desc.count), classes=_guarantee.depth(desc.shape[-1]))

    def lower(self, desc: LogitsProblem, device: DeviceSpec, config: RowConfig) -> tuple[Step, ...]:
        types = f"{desc.types()}, {str(desc.reduction == 'mean').lower()}"
        sums = Scratch.named("sums", desc.computed.nbytes(2)) if self.totals(desc) else np.uint64(0)
        launch = desc.rows_launch("cross_entropy_backward", types, config, sums, unaligned=self.unaligned)
        return (desc.total_launch(np.uint64(0), sums), *launch) if self.totals(desc) else launch


class Unaligned(Candidate[LogitsProblem]):
    """A CTA a long row that starts at any address, by aligned words; there are no weights of classes."""

    variant = "unaligned"
    unaligned = True

    def supports(self, desc: LogitsProblem, device: DeviceSpec) -> Feasibility:
        if desc.has("weight"):
            return no("it has no weights of classes", "rows has them")
        return unaligned_rows(desc.rows(), desc.element, 16)

    def configs(self, desc: LogitsProblem, device: DeviceSpec) -> Iterable[RowConfig]:
        vector = Rows.widest(desc.element)
        yield RowConfig(vector, VECTORS, min(LANES, max(128, share(desc.shape[-1] // (vector * VECTORS)))))


class UnalignedCandidate(Unaligned, RowsCandidate):
    """The loss of such rows."""

    launches = ("loss/cross_entropy.cu:cross_entropy_unaligned", TOTAL)


class UnalignedBackwardCandidate(Unaligned, BackwardCandidate):
    """The gradient of such rows."""

    launches = (TOTAL, "loss/cross_entropy.cu:cross_entropy_backward_unaligned")


PROBES: tuple[Mapping[str, Any], ...] = (
    *({"shape": (3, n), "element": e} for e in ("f32", "bf16", "f16", "f64") for n in (100, 4096, 151_936)),
    {"shape": (3, 128_256), "element": "bf16", "labels_element": "i32", "weight_element": "f32", "reduction": "none"},
)


class CrossEntropyPlan(Plan[CrossEntropyDescriptor]):
    """Cross entropy: operands `logits`, `labels`, `out`, and as the problem has them `weight`, `lse` and `status`."""

    descriptor = CrossEntropyDescriptor
    statuses = STATUSES
    candidates = (RowsCandidate(), UnalignedCandidate())
    measures = oracle.MEASURES
    reference = oracle.forward
    probes = PROBES

    @staticmethod
    def reference_guarantee(desc: CrossEntropyDescriptor) -> PrecisionGuarantee:
        return widely(_guarantee.forward(desc, depth=1, scalings=0, rows=1), desc, max(desc.shape))


class CrossEntropyBackwardPlan(Plan[CrossEntropyBackwardDescriptor]):
    """The gradient of `cross_entropy`: operands `grad`, `logits`, `labels`, `lse`, `grad_logits`, and as the problem has them
    `weight` and `status`."""

    descriptor = CrossEntropyBackwardDescriptor
    statuses = STATUSES
    candidates = (BackwardCandidate(), UnalignedBackwardCandidate())
    measures = oracle.BACKWARD_MEASURES
    reference = oracle.backward
    probes = PROBES

    @staticmethod
    def reference_guarantee(desc: CrossEntropyBackwardDescriptor) -> PrecisionGuarantee:
        return widely(_guarantee.backward(desc, rows=1, classes=1), desc, max(desc.shape))


@function_of(CrossEntropyPlan)
def cross_entropy(
    logits: Any, labels: Any, weight: Any = None, *, ignore_index: int = -100, label_smoothing: float = 0.0,
    reduction: str = "mean", z_loss: float = 0.0, return_lse: bool = False, return_status: bool = False, out: Any = None,
    lse: Any = None, status: Any = None,
) -> Any:  # fmt: skip
    """Cross entropy of rows of logits: weight[y] (lse - x[y]) of a row x and its label y, lse = log(sum(exp(x))).

    logits: [N, C], or [C] for one row (f16, bf16, f32, f64), any strides. labels: [N] int32 or int64, classes or `ignore_index`,
    whose rows have no loss. weight: [C], of logits' dtype or f32. label_smoothing: the share s of the target that is spread over
    the classes: the loss of a row is (1 - s) weight[y] (lse - x[y]) + s / C sum(weight (lse - x)). z_loss: its multiple of lse**2
    is added to the loss of each row that counts, without a weight. ignore_index, label_smoothing and z_loss are run-time values.
    reduction: "mean" divides the sum by the sum of weight[y] of the rows that count: NaN where none does, as in PyTorch. "sum",
    or "none": [N]. Sums have a fixed order.
    return_lse: whether lse is an output: [N], as `cross_entropy_backward` takes it. It is a constant: gradients do not flow
    through it. Results are f32 (f64 for f64), those of 16-bit logits too, of which PyTorch's are 16 bits wide.
    A label that is neither a class nor `ignore_index` is never read. On ``device="cpu"`` and ``"ptx"`` it raises
    InvalidProblemError before anything is written, unless `status` is passed. A call does not wait for a GPU: there, the loss
    of its row is NaN, with "mean" and "sum" all of it. `status` (`return_status`): int32 scalar, 1 if there was one, else 0.
    Returns out, or the named tuple (out, lse, status) of those that there are; allocated if not given.
    """


@function_of(CrossEntropyBackwardPlan)
def cross_entropy_backward(
    grad: Any, logits: Any, labels: Any, lse: Any, weight: Any = None, *, ignore_index: int = -100,
    label_smoothing: float = 0.0, reduction: str = "mean", z_loss: float = 0.0, return_status: bool = False,
    grad_logits: Any = None, status: Any = None,
) -> Any:  # fmt: skip
    """The gradient of `cross_entropy` with respect to logits: grad weight[y] (softmax(x) - onehot(y)), in one pass.

    grad: the gradient of the result, of its shape and dtype. logits, labels, weight and the numbers: those of the forward call.
    lse: its output of that name, which is rounded to its dtype: softmax(x) is exp(x - lse), and may be off by 3 percent where an
    f32 lse is 1e6. grad_logits: like logits, or logits itself, which is then overwritten; allocated in C order if not given.
    Rows of `ignore_index` are 0. Labels out of range are as in `cross_entropy`: on a GPU their rows are NaN, with "mean" all
    rows, and `status` is 1. Returns grad_logits, with `return_status` (or given `status`) (grad_logits, status).
    """


_gradient = Gradient("cross_entropy_backward", ("logits", "labels", "lse", "weight"), {"logits": "grad_logits"})
register(
    Op("cross_entropy", CrossEntropyPlan, cross_entropy, samples.forward, {}, _gradient, {"torch": "cross_entropy"})
)
register(Op("cross_entropy_backward", CrossEntropyBackwardPlan, cross_entropy_backward, samples.backward))
