"""group_norm, instance_norm and batch_norm, in one kernel: x is read once where a group's elements of an item fit registers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from ....plan.candidate import Candidate, Cost
from ....plan.descriptor import Descriptor, Slot, described
from ....plan.fields import integer
from ....plan.plan import Plan
from ....plan.registry import Gradient, Op, register
from ....runtime.steps import Run, Step
from ....types import DeviceSpec, ElementKind, OpCategory, PrecisionGuarantee
from ..._function import SignatureRules, function_of
from ..._rows import FLOATS, RowConfig, clustered, computed_in, row_configs, row_cost
from .. import _guarantee
from .._problem import Part
from ..forward import KERNEL_OPERANDS, NormDescriptor
from . import oracle, samples
from ._problem import BATCHED, GROUPED, ChannelNormed, ChannelRows, channel_rows, described_by

__all__ = [
    "GroupNormDescriptor", "GroupNormPlan", "RowsGroupNorm", "WithEps", "batch_norm", "group_norm", "instance_norm",
]  # fmt: skip

FILE, KERNEL = "norm/forward.cu", "norm"
STATS, ONE = 8, 16  # bits of the kernel's WITH


class WithEps(Descriptor):
    """A problem with a run-time value `eps`, which is 0 or positive as f32."""

    values: ClassVar[tuple[str, ...]] = ("eps",)

    @classmethod
    def check_values(cls, op: str, values: Mapping[str, float], operands: Mapping[str, Any]) -> None:
        NormDescriptor.check_values(op, values, operands)

    def scalars(self, given: Mapping[str, Any]) -> dict[str, float]:
        values = super().scalars(given)
        self.check_values(self.op, values, {})
        return values


@described(
    Slot("out", "out", takes=FLOATS),
    Slot("mean", "out", optional=True, shape="row_shape"),
    Slot("rstd", "out", optional=True, shape="row_shape"),
    Slot("x", takes=FLOATS),
    Slot("weight", optional=True, takes=FLOATS, shape="channel_shape"),
    Slot("bias", optional=True, takes=FLOATS, shape="channel_shape"),
)
class GroupNormDescriptor(WithEps, ChannelNormed):
    """`name` of an x of `shape` [N, C, *] over `num_groups` groups of channels, by default of one channel each; of
    batch_norm, over all items too.

    `rstd_element` and `mean_element` say that the statistics are outputs too.
    """

    shape: tuple[int, ...]
    element: ElementKind
    num_groups: int | None = None
    eps: float = 1e-5
    name: str = "group_norm"

    names: ClassVar[tuple[str, ...]] = (*GROUPED, BATCHED)
    flagged = ("weight", "bias")

    def parts(self) -> Mapping[str, Part]:
        weight = self.kind("weight") or self.kind("bias") or self.element
        weight = weight if weight is self.computed else self.element
        stats = None if self.kind("rstd") is None and self.kind("mean") is None else True
        return {
            "mean": Part(self.computed, stats), "rstd": Part(self.computed, stats), "weight": Part(weight),
            "bias": Part(weight),
        }  # fmt: skip

    def in_place(self, written: str, read: str) -> bool:
        """out may be x itself: a thread writes columns that it alone has read."""
        return written == "out" and read == "x"

    def rows(self) -> ChannelRows:
        return channel_rows(self, KERNEL_OPERANDS, 2)


class RowsGroupNorm(Candidate[GroupNormDescriptor]):
    """A group of threads per item and group of channels, whose elements stay in registers where they fit and are streamed, by
    a cluster of CTAs, where they do not. Moves x and out once; streamed, x is read again twice, from L2 where that holds the
    rows in flight."""

    variant = "rows"
    launches = (f"{FILE}:{KERNEL}", f"{FILE}:{KERNEL}_cluster")

    def configs(self, desc: GroupNormDescriptor, device: DeviceSpec) -> Iterable[RowConfig]:
        for config in row_configs(desc.length, desc.rows().vector(desc.element), desc.element, streams=512):
            yield clustered(config, desc.length, desc.element, device)

    def guarantee(self, desc: GroupNormDescriptor, device: DeviceSpec, config: RowConfig) -> PrecisionGuarantee:
        return _guarantee.forward(desc, depth=config.depth(desc.length))

    def cost(self, desc: GroupNormDescriptor, device: DeviceSpec, config: RowConfig) -> Cost:
        return row_cost(device, desc.rows(), desc.nbytes, config, desc.element, instructions=8.0)

    def lower(self, desc: GroupNormDescriptor, device: DeviceSpec, config: RowConfig) -> tuple[Step, ...]:
        eps = Run("eps", computed_in(desc.element).numpy)
        return (desc.rows().launch(FILE, KERNEL, desc.types, config, f"true, {kernel_flags(desc, config)}", eps),)


def kernel_flags(desc: GroupNormDescriptor, config: RowConfig) -> int:
    """The kernel's WITH."""
    return desc.flags + STATS * desc.has("rstd") + ONE * (config.vector > 1 and desc.rows().one)


class GroupNormPlan(Plan[GroupNormDescriptor]):
    """A norm over groups of channels: operands `x`, `out`, and as the problem has them `weight`, `bias`, `mean`, `rstd`."""

    descriptor = GroupNormDescriptor
    category = OpCategory.NORM
    candidates = (RowsGroupNorm(),)
    measures = oracle.MEASURES
    probes = (
        *({"shape": (2, 8, n), "element": e, "num_groups": 2, "weight_element": e}
          for e in ("f32", "bf16", "f64") for n in (49, 1024, 50264)),
        {"shape": (2, 8, 64), "element": "f16", "num_groups": 4, "weight_element": "f32", "bias_element": "f32",
         "rstd_element": "f32", "x_strides": (512, 1, 8), "out_strides": (512, 1, 8)},
        {"shape": (2, 8, 64), "element": "f32", "name": "instance_norm"},
        {"shape": (2, 8, 64), "element": "bf16", "name": "batch_norm", "weight_element": "f32", "rstd_element": "f32"},
    )  # fmt: skip
    reference = oracle.norm

    @staticmethod
    def reference_guarantee(desc: GroupNormDescriptor) -> PrecisionGuarantee:
        return oracle.guarantee(desc, _guarantee.forward(desc, depth=1))


RULES = SignatureRules(wanted={"mean": "stats", "rstd": "stats"}, of=described_by(GroupNormDescriptor))


@function_of(GroupNormPlan, rules=RULES._replace(reads={"num_groups": integer}), name="group_norm")
def group_norm(
    x: Any, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5, *, stats: bool = False, out: Any = None,
    mean: Any = None, rstd: Any = None,
) -> Any:  # fmt: skip
    """Group norm: (x - mean) / sqrt(var + eps) * weight + bias, mean and var over the channels of a group and all positions.

    x: [N, C, *], f16, bf16, f32 or f64, any strides; fastest where positions are contiguous, or channels (channels-last).
    num_groups: divides C; a group is C / num_groups adjacent channels. weight, bias: [C], of one dtype, x's or f32. eps: 0, or
    positive as f32; a run-time value.
    stats: whether mean and rstd = 1 / sqrt(var + eps) are outputs, each [N, num_groups], f32 (f64 for f64), as
    `group_norm_backward` takes them. The variance is the mean square deviation from the mean, in a pass of its own.
    Returns out, or the named tuple (out, mean, rstd). All are allocated if not given; out may be x. Computed in f32 (f64 for
    f64) and rounded once.
    """


@function_of(GroupNormPlan, rules=RULES, name="instance_norm")
def instance_norm(
    x: Any, *, weight: Any = None, bias: Any = None, eps: float = 1e-5, stats: bool = False, out: Any = None, mean: Any = None,
    rstd: Any = None,
) -> Any:  # fmt: skip
    """Instance norm: (x - mean) / sqrt(var + eps) * weight + bias, mean and var over the positions of each channel.

    As `group_norm` with a group per channel; statistics are [N, C]. There are no running statistics.
    """


@function_of(GroupNormPlan, rules=RULES, name="batch_norm")
def batch_norm(
    x: Any, *, weight: Any = None, bias: Any = None, eps: float = 1e-5, stats: bool = False, out: Any = None, mean: Any = None,
    rstd: Any = None,
) -> Any:  # fmt: skip
    """Batch norm by the batch's own statistics: (x - mean) / sqrt(var + eps) * weight + bias, mean and var of each channel.

    As `group_norm`, mean and var over all items and positions; statistics are [C], as `batch_norm_backward` takes them. It is
    PyTorch's batch_norm with training=True and no running statistics, which `batch_norm_running` updates in the same kernel, and
    by which `batch_norm_inference` normalises. Slow where positions are not contiguous.
    """


for _name, _function in (("group_norm", group_norm), ("instance_norm", instance_norm), ("batch_norm", batch_norm)):
    _gradients = {part: f"grad_{part}" for part in ("x", "weight", "bias")}
    _backward = f"{_name if _name == BATCHED else GROUPED[0]}_backward"
    _gradient = Gradient(_backward, ("x", "weight", "mean", "rstd"), _gradients)
    register(Op(_name, GroupNormPlan, _function, samples.norm, {"name": _name}, _gradient, {"torch": _name}))
