"""batch_norm_inference and its gradient: batch norm by given statistics, those of inference or of several devices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ....plan.candidate import Candidate, Cost
from ....plan.descriptor import Slot, described, scalar
from ....plan.plan import Plan
from ....plan.registry import Gradient, Op, register
from ....runtime.steps import Kernel, Launch, Run, Step
from ....types import Componentwise, DeviceSpec, ElementKind, OpCategory, PrecisionGuarantee, Term
from ..._function import CallArgs, SignatureRules, function_of
from ..._launch import index_scalar
from ..._rows import FLOATS, RowConfig, computed_in, row_cost
from .. import _guarantee
from .._problem import Part
from . import oracle, samples
from ._problem import ChannelNormed, ChannelRows, channel_rows, described_by
from .backward import SLOTS, GroupNormBackwardDescriptor, RowsGroupNormBackward, gradients_asked
from .forward import GroupNormDescriptor, WithEps

__all__ = [
    "BatchNormInferenceBackwardDescriptor", "BatchNormInferenceBackwardPlan", "BatchNormInferenceDescriptor",
    "BatchNormInferencePlan", "batch_norm_inference", "batch_norm_inference_backward",
]  # fmt: skip

FILE, KERNEL = "norm/fixed.cu", "norm_fixed"
ONE = 4  # bit of the kernel's WITH
ITEMS, THREADS = 4, 256


@described(
    Slot("out", "out", takes=FLOATS),
    Slot("x", takes=FLOATS),
    Slot("mean", shape="channel_shape", element="mean_element"),
    Slot("var", shape="channel_shape", element="var_element"),
    Slot("weight", optional=True, takes=FLOATS, shape="channel_shape"),
    Slot("bias", optional=True, takes=FLOATS, shape="channel_shape"),
)
class BatchNormInferenceDescriptor(WithEps, ChannelNormed):
    """(x - mean) / sqrt(var + eps) weight + bias of each channel of an x of `shape` [N, C, *]."""

    shape: tuple[int, ...]
    element: ElementKind
    num_groups: int | None = None
    eps: float = 1e-5
    name: str = "batch_norm_inference"
    mean_element: ElementKind | None = None
    var_element: ElementKind | None = None

    names = ("batch_norm_inference",)
    flagged = ("weight", "bias")
    in_place = GroupNormDescriptor.in_place

    def parts(self) -> Mapping[str, Part]:
        weight = self.kind("weight") or self.kind("bias") or self.element
        weight = weight if weight is self.computed else self.element
        statistics = {name: Part(self.computed, True) for name in ("mean", "var")}
        return {**statistics, "weight": Part(weight), "bias": Part(weight)}

    def rows(self) -> ChannelRows:
        """One row of all elements."""
        return channel_rows(self, ("out", "x", "weight", "bias", "mean", "var"), 0)


class ElementsBatchNorm(Candidate[BatchNormInferenceDescriptor]):
    """Each thread takes some vectors of elements, in the order of memory."""

    variant = "elements"
    launches = (f"{FILE}:{KERNEL}",)

    def configs(self, desc: BatchNormInferenceDescriptor, device: DeviceSpec) -> Iterable[RowConfig]:
        yield RowConfig(desc.rows().vector(desc.element), ITEMS, THREADS, True)

    def guarantee(
        self, desc: BatchNormInferenceDescriptor, device: DeviceSpec, config: RowConfig
    ) -> PrecisionGuarantee:
        return _promise(desc)

    def cost(self, desc: BatchNormInferenceDescriptor, device: DeviceSpec, config: RowConfig) -> Cost:
        return row_cost(device, desc.rows(), desc.nbytes, config, desc.element, instructions=8.0)

    def lower(self, desc: BatchNormInferenceDescriptor, device: DeviceSpec, config: RowConfig) -> tuple[Step, ...]:
        rows, index = desc.rows(), desc.rows().index
        flags = desc.flags + ONE * (config.vector > 1 and rows.one)
        shape = f"{config.vector}, {config.items}, {config.lanes}, {rows.column_rank}, {index}"
        eps = Run("eps", computed_in(desc.element).numpy)
        args = (index_scalar(rows.length, index), eps, rows.places(), *rows.pointers())
        grid = (max(1, -(-rows.length // (config.vector * config.items * config.lanes))), 1, 1)
        kernel = Kernel(FILE, f"{KERNEL}<{desc.types}, {shape}, {flags}>")
        return (Launch(kernel, grid, (config.lanes, 1, 1), args),)


def _promise(desc: BatchNormInferenceDescriptor) -> PrecisionGuarantee:
    """1 / sqrt(var + eps) errs by 5 u (`_guarantee`), then come a difference, two products and a sum."""
    computed = computed_in(desc.element)
    unit = computed.element
    terms = Term(9.0, unit, "scaled"), Term(1.0, unit, "abs_result"), Term(4.0, unit, "lost")
    bound = Componentwise.rounded(terms, desc.element, _guarantee.SOURCE, "out_of_range")
    return PrecisionGuarantee.fixed_order(computed.math, unit, bound)


class BatchNormInferencePlan(Plan[BatchNormInferenceDescriptor]):
    """Batch norm by given statistics: operands `x`, `mean`, `var`, `out`, and as the problem has them `weight`, `bias`."""

    descriptor = BatchNormInferenceDescriptor
    category = OpCategory.NORM
    candidates = (ElementsBatchNorm(),)
    measures = oracle.FIXED_MEASURES
    probes = (
        *({"shape": (2, 8, 64), "element": e, "weight_element": e, "bias_element": e} for e in ("f32", "bf16", "f64")),
        {"shape": (2, 8, 7, 7), "element": "f16"},
        {"shape": (2, 8, 64), "element": "bf16", "weight_element": "f32", "x_strides": (512, 1, 8),
         "out_strides": (512, 1, 8)},
    )  # fmt: skip
    reference = oracle.fixed

    @staticmethod
    def reference_guarantee(desc: BatchNormInferenceDescriptor) -> PrecisionGuarantee:
        return oracle.guarantee(desc, _promise(desc))


@function_of(
    BatchNormInferencePlan,
    rules=SignatureRules(of=described_by(BatchNormInferenceDescriptor)),
    name="batch_norm_inference",
)
def batch_norm_inference(
    x: Any, mean: Any, var: Any, weight: Any = None, bias: Any = None, *, eps: float = 1e-5, out: Any = None
) -> Any:
    """Batch norm by given statistics: (x - mean) / sqrt(var + eps) * weight + bias of each channel.

    x: [N, C, *], f16, bf16, f32 or f64, any strides. mean, var: [C], f32 (f64 for f64): running ones, or those of a batch that
    several devices share. weight, bias: [C], of one dtype, x's or f32. eps: 0, or positive as f32; a run-time value.
    out: like x, x itself included. Computed in f32 (f64 for f64) and rounded once. It is PyTorch's batch_norm with
    training=False; the statistics have no gradient. Returns out.

    Of a batch on several devices, each computes var_mean of its part; with the counts, the statistics of all follow, and this op
    normalises by them. Of `batch_norm_inference_backward`, add grad_bias and grad_weight up over devices to s and t, over n
    elements per channel in all: the gradient of x is grad_x + batch_norm_inference(x, mean, var, -weight * r * t / n,
    -weight * r * s / n), with r = 1 / sqrt(var + eps).
    """


@described(
    *SLOTS,
    Slot("mean", shape="channel_shape", element="mean_element"),
    Slot("var", shape="channel_shape", element="var_element"),
)
class BatchNormInferenceBackwardDescriptor(WithEps, GroupNormBackwardDescriptor):
    """The gradient of batch_norm_inference; `grad_bias_element` asks for grad_bias without a weight."""

    name: str = "batch_norm_inference_backward"
    eps: float = 1e-5
    var_element: ElementKind | None = None

    names = ("batch_norm_inference_backward",)
    statistics = ("mean", "var")

    @classmethod
    def of(
        cls, grad: Any, x: Any, weight: Any = None, mean: Any = None, var: Any = None, grad_x: Any = None,
        grad_weight: Any = None, grad_bias: Any = None, *, needs: Sequence[str] = (), eps: float = 1e-5,
        name: str = "batch_norm_inference_backward",
    ) -> BatchNormInferenceBackwardDescriptor:  # fmt: skip
        return cls._read(
            name, needs, {"eps": eps}, grad=grad, x=x, weight=weight, mean=mean, var=var, grad_x=grad_x,
            grad_weight=grad_weight, grad_bias=grad_bias,
        )  # fmt: skip


class RowsFixedBackward(RowsGroupNormBackward):
    """As of batch norm's gradient, without a channel's means."""

    def guarantee(self, desc: GroupNormBackwardDescriptor, device: DeviceSpec, config: RowConfig) -> PrecisionGuarantee:
        return _guarantee.backward_fixed(desc, self.down(desc, config))


class BatchNormInferenceBackwardPlan(Plan[BatchNormInferenceBackwardDescriptor]):
    """The gradient of batch norm by given statistics: operands `grad`, `x`, `mean`, `var`, `grad_x`, and as the problem has them
    `weight`, `grad_weight`, `grad_bias`."""

    descriptor = BatchNormInferenceBackwardDescriptor
    category = OpCategory.NORM
    candidates = (RowsFixedBackward(),)
    measures = oracle.FIXED_BACKWARD_MEASURES
    probes = (
        *({"shape": (2, 8, 64), "element": e, "weight_element": e} for e in ("f32", "bf16", "f64")),
        {"shape": (1, 2, 50264), "element": "bf16", "weight_element": "f32"},
        {"shape": (2, 8, 49), "element": "f16"},
    )  # fmt: skip
    reference = oracle.fixed_backward

    @staticmethod
    def reference_guarantee(desc: BatchNormInferenceBackwardDescriptor) -> PrecisionGuarantee:
        return oracle.guarantee(desc, _guarantee.backward_fixed(desc, 1))


@function_of(BatchNormInferenceBackwardPlan)
def batch_norm_inference_backward(
    grad: Any, x: Any, weight: Any = None, mean: Any = None, var: Any = None, *, eps: float = 1e-5, needs: Sequence[str] = (),
    grad_x: Any = None, grad_weight: Any = None, grad_bias: Any = None,
) -> CallArgs:  # fmt: skip
    """The gradients of `batch_norm_inference` with respect to x, weight and bias.

    grad, x: [N, C, *], of one dtype (f16, bf16, f32, f64), any strides; fastest where positions are contiguous. weight: [C] or
    None. mean, var: [C], f32 (f64 for f64). eps: of the forward op. needs: "bias" asks for grad_bias without a weight.
    Returns the named tuple (grad_x, grad_weight, grad_bias), or grad_x alone where weight is None and no grad_bias is asked for;
    each is allocated if not given, and grad_x may be grad or x. grad_weight and grad_bias are sum(grad * n) and sum(grad) of each
    channel, n = (x - mean) / sqrt(var + eps), in a fixed order, which the shape decides.
    """
    name, values = "batch_norm_inference_backward", {"eps": scalar(eps, "batch_norm_inference_backward: eps")}
    operands = {
        "grad_x": grad_x, "grad_weight": grad_weight, "grad_bias": grad_bias, "grad": grad, "x": x, "weight": weight,
        "mean": mean, "var": var,
    }  # fmt: skip
    BatchNormInferenceBackwardDescriptor.check_values(name, values, {})
    return gradients_asked(name, needs, operands, BatchNormInferenceBackwardDescriptor.of, values)


_GRADIENT = Gradient(
    "batch_norm_inference_backward", ("x", "weight", "mean", "var"),
    {part: f"grad_{part}" for part in ("x", "weight", "bias")},
)  # fmt: skip
register(Op(
    "batch_norm_inference", BatchNormInferencePlan, batch_norm_inference, samples.fixed, {"name": "batch_norm_inference"},
    _GRADIENT, {"torch": "batch_norm"},
))  # fmt: skip
register(Op(
    "batch_norm_inference_backward", BatchNormInferenceBackwardPlan, batch_norm_inference_backward, samples.fixed_backward,
    {"name": "batch_norm_inference_backward"},
))  # fmt: skip
