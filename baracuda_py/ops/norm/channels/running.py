"""batch_norm_running: batch norm that also updates running statistics, in the same kernel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from ....plan.descriptor import Slot, described
from ....plan.plan import Plan
from ....plan.registry import Op, register
from ....runtime.steps import Run, Step
from ....types import Componentwise, DeviceSpec, ElementKind, InvalidProblemError, OpCategory, PrecisionGuarantee, Term
from ..._function import SignatureRules, function_of
from ..._rows import FLOATS, RowConfig, computed_in
from .. import _guarantee
from .._problem import Part
from ..forward import KERNEL_OPERANDS
from . import oracle, samples
from ._problem import ChannelRows, channel_rows, described_by
from .forward import FILE, GroupNormDescriptor, RowsGroupNorm, kernel_flags

__all__ = ["BatchNormRunningDescriptor", "BatchNormRunningPlan", "batch_norm_running"]

RUNNING = ("running_mean", "running_var")


@described(
    Slot("out", "out", takes=FLOATS),
    Slot("mean", "out", optional=True, shape="row_shape"),
    Slot("rstd", "out", optional=True, shape="row_shape"),
    Slot("running_mean", "inout", shape="row_shape", element="running_element"),
    Slot("running_var", "inout", shape="row_shape", element="running_element"),
    Slot("x", takes=FLOATS),
    Slot("weight", optional=True, takes=FLOATS, shape="channel_shape"),
    Slot("bias", optional=True, takes=FLOATS, shape="channel_shape"),
)
class BatchNormRunningDescriptor(GroupNormDescriptor):
    """Batch norm of an x of `shape` [N, C, *]; running statistics become (1 - momentum) running + momentum statistic."""

    name: str = "batch_norm_running"
    momentum: float = 0.1
    running_element: ElementKind | None = None
    values: ClassVar[tuple[str, ...]] = ("eps", "momentum")

    names = ("batch_norm_running",)

    def parts(self) -> Mapping[str, Part]:
        return {**super().parts(), "running": Part(self.computed, True)}

    def check(self) -> None:
        super().check()
        if self.length < 2 and self.channels:
            raise InvalidProblemError(
                f"{self.op}: x of shape {self.shape} has {self.length} elements per channel, of which there is no "
                "unbiased variance",
                "pass two or more",
            )

    @classmethod
    def check_values(cls, op: str, values: Mapping[str, float], operands: Mapping[str, Any]) -> None:
        super().check_values(op, values, operands)
        if not 0 <= values["momentum"] <= 1:
            raise InvalidProblemError(f"{op}: momentum={values['momentum']}", "give a number of 0 to 1")

    def rows(self) -> ChannelRows:
        return channel_rows(self, (*KERNEL_OPERANDS, *RUNNING), 2)


class RowsBatchNormRunning(RowsGroupNorm):
    """As of batch norm; the thread that has a channel's statistics updates the running ones."""

    launches = (f"{FILE}:batch_norm", f"{FILE}:batch_norm_cluster")

    def guarantee(self, desc: GroupNormDescriptor, device: DeviceSpec, config: RowConfig) -> PrecisionGuarantee:
        return _promise(desc, config.depth(desc.length))

    def lower(self, desc: GroupNormDescriptor, device: DeviceSpec, config: RowConfig) -> tuple[Step, ...]:
        values = (Run(name, computed_in(desc.element).numpy) for name in ("eps", "momentum"))
        return (desc.rows().launch(FILE, "batch_norm", desc.types, config, str(kernel_flags(desc, config)), *values),)


def _promise(desc: GroupNormDescriptor, depth: int) -> PrecisionGuarantee:
    """Running statistics take momentum times the error of a mean or of a mean square deviation, and four roundings of terms of
    which neither exceeds the result and the other one."""
    unit = computed_in(desc.element).element
    own = Term(4.0, unit, "abs_result"), Term(8.0, unit, "computed_smallest_normal")
    squared = Term((depth + 1.0) ** 2 * unit.unit_roundoff, unit, "momentum_mean_squared")
    terms = {
        "running_mean": (Term(depth + 5.0, unit, "momentum_mean"), *own),
        "running_var": (Term(depth + 11.0, unit, "momentum_var"), squared, *own),
    }
    bounds = {name: Componentwise(of, _guarantee.SOURCE, "row_out_of_range") for name, of in terms.items()}
    return _guarantee.forward(desc, depth=depth, more=bounds)


class BatchNormRunningPlan(Plan[BatchNormRunningDescriptor]):
    """Batch norm with running statistics: operands `x`, `running_mean`, `running_var`, `out`, and as the problem has them
    `weight`, `bias`, `mean`, `rstd`."""

    descriptor = BatchNormRunningDescriptor
    category = OpCategory.NORM
    candidates = (RowsBatchNormRunning(),)
    measures = oracle.RUNNING_MEASURES
    probes = (
        {"shape": (2, 8, 64), "element": "f32", "weight_element": "f32", "bias_element": "f32"},
        {"shape": (2, 8, 64), "element": "bf16", "rstd_element": "f32"},
        {"shape": (1, 2, 50264), "element": "bf16"},
        {"shape": (2, 8, 64), "element": "f64"},
    )  # fmt: skip
    reference = oracle.running

    @staticmethod
    def reference_guarantee(desc: BatchNormRunningDescriptor) -> PrecisionGuarantee:
        return oracle.guarantee(desc, _promise(desc, 1))


RULES = SignatureRules(wanted={"mean": "stats", "rstd": "stats"}, of=described_by(BatchNormRunningDescriptor))


@function_of(BatchNormRunningPlan, rules=RULES, name="batch_norm_running")
def batch_norm_running(
    x: Any, running_mean: Any, running_var: Any, weight: Any = None, bias: Any = None, *, momentum: float = 0.1,
    eps: float = 1e-5, stats: bool = False, out: Any = None, mean: Any = None, rstd: Any = None,
) -> Any:  # fmt: skip
    """Batch norm by the batch's own statistics, as `batch_norm`, which updates running statistics in the same kernel.

    running_mean, running_var: [C], f32 (f64 for f64), written: (1 - momentum) times what they hold, plus momentum times the
    batch's mean and unbiased variance. momentum: 0 to 1, a run-time value. All else is as of `batch_norm`; each channel has two
    elements or more. It is PyTorch's batch_norm with training=True. `batch_norm_backward` computes its gradient, which autograd
    does not record, since it writes to operands; torch.compile takes no such op of several results: call it outside.
    Returns the named tuple (out, running_mean, running_var), with mean and rstd behind out where `stats` asks for them.
    """


register(Op(
    "batch_norm_running", BatchNormRunningPlan, batch_norm_running, samples.running, {"name": "batch_norm_running"},
    peers={"torch": "batch_norm"},
))  # fmt: skip
