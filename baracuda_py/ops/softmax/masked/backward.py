"""masked_softmax_backward: the gradient of masked_softmax, from its result. It is that of softmax, scaled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from ....numerics.guarantee import widely
from ....plan.descriptor import described
from ....plan.plan import Plan
from ....plan.registry import Op, register
from ....types import ElementKind, InvalidProblemError, OpCategory, PrecisionGuarantee
from ..._function import function_of
from .. import _guarantee
from ..backward import CANDIDATES, SLOTS, SoftmaxBackward
from . import oracle, samples
from .forward import MaskedSoftmaxDescriptor

__all__ = ["MaskedSoftmaxBackwardDescriptor", "MaskedSoftmaxBackwardPlan", "masked_softmax_backward"]


@described(*SLOTS)
class MaskedSoftmaxBackwardDescriptor(SoftmaxBackward):
    """The gradient of masked_softmax along the last axis of `shape`: scale y (grad - sum(grad y))."""

    shape: tuple[int, ...]
    element: ElementKind
    scale: float = 1.0
    name: str = "masked_softmax_backward"
    values: ClassVar[tuple[str, ...]] = ("scale",)

    def __post_init__(self) -> None:
        self._names_op(("masked_softmax_backward",), "name")
        super().__post_init__()

    @property
    def axis(self) -> int:  # type: ignore[override]
        return max(len(self.shape) - 1, 0)

    def check(self) -> None:
        if not self.shape:
            raise InvalidProblemError(f"{self.op}: a number has no rows", "pass an array of rank 1 or more")

    @classmethod
    def check_values(cls, op: str, values: Mapping[str, Any], operands: Mapping[str, Any]) -> None:
        MaskedSoftmaxDescriptor.check_values(op, {"offset": 0, **values}, operands)

    def scalars(self, given: Mapping[str, Any]) -> dict[str, Any]:
        values = super().scalars(given)
        self.check_values(self.op, values, {})
        return values


class MaskedSoftmaxBackwardPlan(Plan[MaskedSoftmaxBackwardDescriptor]):
    """The gradient of masked_softmax: operands `grad`, `y` and `grad_x`."""

    descriptor = MaskedSoftmaxBackwardDescriptor
    category = OpCategory.SOFTMAX
    candidates = CANDIDATES
    measures = oracle.BACKWARD_MEASURES
    probes = tuple({"shape": (3, n), "element": e} for e in ("f32", "bf16", "f64") for n in (100, 4096, 50257))
    reference = oracle.backward

    @staticmethod
    def reference_guarantee(desc: MaskedSoftmaxBackwardDescriptor) -> PrecisionGuarantee:
        return widely(_guarantee.backward(desc.element, log=False, depth=1, scaled=True), desc, desc.extent)


@function_of(MaskedSoftmaxBackwardPlan)
def masked_softmax_backward(grad: Any, y: Any, /, *, scale: float = 1.0, grad_x: Any = None) -> Any:
    """The gradient of `masked_softmax` with respect to x: scale * y * (grad - sum(grad * y)) along the last axis.

    grad, y: the gradient of the result and the result, of one shape and dtype (f16, bf16, f32, f64), any strides; what a row does
    not see has y = 0, and no gradient. scale: of the forward op.
    grad_x: like y, grad or y itself included; allocated in C order if not given. Returns grad_x.
    """


register(
    Op(
        "masked_softmax_backward", MaskedSoftmaxBackwardPlan, masked_softmax_backward, samples.masked_softmax_backward,
        {"name": "masked_softmax_backward"},
    )
)  # fmt: skip
