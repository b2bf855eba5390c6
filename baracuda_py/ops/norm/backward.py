"""The gradients of rms_norm and layer_norm, from x, the statistics that the forward op saved, and the gradient of its result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...plan.descriptor import Slot, described
from ...plan.plan import Plan
from ...plan.registry import Op, register
from ...types import ElementKind, OpCategory, PrecisionGuarantee
from .._function import CallArgs, function_of
from .._rows import FLOATS, RowConfig
from . import _guarantee, oracle, samples
from ._problem import Normed, Part, asked, probes
from ._stripes import LongNormBackward, StripedNormBackward

__all__ = ["NormBackwardDescriptor", "NormBackwardPlan", "layer_norm_backward", "rms_norm_backward"]


@described(
    Slot("grad_x", "out", takes=FLOATS),
    Slot("grad_weight", "out", optional=True, shape="normalized_shape", strided=False),
    Slot("grad_bias", "out", optional=True, shape="normalized_shape", strided=False),
    Slot("grad", takes=FLOATS),
    Slot("x", takes=FLOATS),
    Slot("weight", optional=True, takes=FLOATS, shape="normalized_shape"),
    Slot("mean", optional=True, shape="row_shape"),
    Slot("rstd", shape="row_shape", element="rstd_element"),
)
class NormBackwardDescriptor(Normed):
    """The gradient of `name` without its ``_backward``. With a weight there is a grad_weight, and of layer_norm a grad_bias;
    `grad_bias_element` asks for that without a weight."""

    shape: tuple[int, ...]
    element: ElementKind
    normalized_shape: tuple[int, ...] | None = None
    name: str = "rms_norm_backward"
    rstd_element: ElementKind | None = None

    suffix = "_backward"
    taken_by_kernel = ("grad_x", "grad", "x", "mean", "rstd", "weight")
    flagged = ("grad_weight", "grad_bias")

    def parts(self) -> Mapping[str, Part]:
        given, weight = self.kind("weight") is not None, self.kind("weight") or self.element
        return {
            "mean": Part(self.computed, self.centered), "rstd": Part(self.computed, True),
            "weight": Part(weight if weight is self.computed else self.element), "grad_weight": Part(weight, given),
            "grad_bias": Part(weight, (given or None) if self.centered else False),
        }  # fmt: skip

    def in_place(self, written: str, read: str) -> bool:
        """grad_x may be grad or x itself."""
        return written == "grad_x" and read in ("grad", "x")


class NormBackwardPlan(Plan[NormBackwardDescriptor]):
    """A norm's gradient: operands `grad`, `x`, `rstd`, `grad_x`, and as the problem has them `weight`, `mean`, `grad_weight`,
    `grad_bias`."""

    descriptor = NormBackwardDescriptor
    category = OpCategory.NORM
    candidates = (LongNormBackward(), StripedNormBackward())
    measures = oracle.BACKWARD_MEASURES
    probes = (*probes(300), {"shape": (40, 8192), "element": "f16", "weight_element": "f32"})
    reference = oracle.backward

    @staticmethod
    def reference_guarantee(desc: NormBackwardDescriptor) -> PrecisionGuarantee:
        return oracle.guarantee(desc, _guarantee.backward(desc, RowConfig(1, 1, 1, True), 1))


def _asked(name: str, operands: dict[str, Any], normalized_shape: Sequence[int] | None) -> CallArgs:
    sums = {"grad_weight", "grad_bias"} if operands["weight"] is not None else set()
    return asked(
        NormBackwardDescriptor, name, operands, {"grad_x", "grad", "x", "mean", "rstd"} | sums, normalized_shape
    )


@function_of(NormBackwardPlan)
def rms_norm_backward(
    grad: Any, x: Any, weight: Any = None, rstd: Any = None, *, normalized_shape: Sequence[int] | None = None, grad_x: Any = None,
    grad_weight: Any = None,
) -> CallArgs:  # fmt: skip
    """The gradients of `rms_norm` with respect to x (or the residual, which has the same) and weight.

    grad, x: [..., *normalized_shape], of one dtype (f16, bf16, f32, f64), any strides; x is what was normalised, with a
    residual the forward op's `residual_out`. weight: [*normalized_shape] or None. rstd: [...], f32 (f64 for f64), of the
    forward op.
    Returns the named tuple (grad_x, grad_weight), or grad_x alone where weight is None; each is allocated if not given, and
    grad_x may be grad or x. Sums over rows go in a fixed order, which the number of rows and of SMs decides.
    """
    operands = {"grad_x": grad_x, "grad_weight": grad_weight, "grad": grad, "x": x, "weight": weight, "rstd": rstd}
    return _asked("rms_norm_backward", operands, normalized_shape)


@function_of(NormBackwardPlan)
def layer_norm_backward(
    grad: Any, x: Any, weight: Any = None, mean: Any = None, rstd: Any = None, *, normalized_shape: Sequence[int] | None = None,
    grad_x: Any = None, grad_weight: Any = None, grad_bias: Any = None,
) -> CallArgs:  # fmt: skip
    """The gradients of `layer_norm` with respect to x, weight and bias.

    As `rms_norm_backward`. mean: like rstd. Returns the named tuple (grad_x, grad_weight, grad_bias), or grad_x alone where
    weight is None and no grad_bias is given.
    """
    operands = {
        "grad_x": grad_x, "grad_weight": grad_weight, "grad_bias": grad_bias, "grad": grad, "x": x, "weight": weight, "mean":
        mean, "rstd": rstd,
    }  # fmt: skip
    return _asked("layer_norm_backward", operands, normalized_shape)


for _name, _function in (("rms_norm_backward", rms_norm_backward), ("layer_norm_backward", layer_norm_backward)):
    register(Op(_name, NormBackwardPlan, _function, samples.norm_backward, {"name": _name}))
