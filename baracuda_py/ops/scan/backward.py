"""The gradient of cumsum: running sums from the other end, which cumsum's own kernels compute on views that run backwards."""

from __future__ import annotations

from typing import Any

from ...plan.descriptor import Slot, described
from ...plan.plan import Plan
from ...plan.registry import Op, register
from ...types import ElementKind, OpCategory, PrecisionGuarantee
from .._axis import AlongAxis
from .._function import function_of
from .._rows import FLOATS
from . import oracle, samples
from ._reversed import OfReversed, launched, reversed_layouts
from .cumsum import CumsumDescriptor, CumsumPlan

__all__ = ["CumsumBackwardDescriptor", "CumsumBackwardPlan", "cumsum_backward"]

NAMES = {"grad": "x", "grad_x": "out"}  # operands of the running sums


@described(Slot("grad_x", "out", takes=FLOATS), Slot("grad", takes=FLOATS))
class CumsumBackwardDescriptor(AlongAxis):
    """The sums of a gradient of `shape` from each element on, along `axis`."""

    shape: tuple[int, ...]
    element: ElementKind
    axis: int = -1

    name = "cumsum_backward"

    def reversed(self) -> CumsumDescriptor:
        """The running sums of the reversed views."""
        return CumsumDescriptor(self.shape, self.element, self.axis, **reversed_layouts(self, NAMES))


class CumsumOfReversed(OfReversed):
    """cumsum of the reversed gradient, into a reversed result."""

    plan, names, launches = CumsumPlan, NAMES, launched(CumsumPlan)


class CumsumBackwardPlan(Plan[CumsumBackwardDescriptor]):
    """Running sums from the end: operands `grad` and `grad_x`."""

    descriptor = CumsumBackwardDescriptor
    category = OpCategory.SCAN
    candidates = (CumsumOfReversed(),)
    measures = oracle.BACKWARD_MEASURES
    probes = (
        *({"shape": (3, n), "element": e} for e in ("f32", "bf16", "f64") for n in (100, 100_000)),
        *({"shape": (n, 300), "element": e, "axis": 0} for e in ("f32", "bf16") for n in (100, 4096)),
    )

    @classmethod
    def reference(cls, desc: CumsumBackwardDescriptor, **arrays: Any) -> Any:
        return oracle.backward(desc, **arrays)

    @classmethod
    def reference_guarantee(cls, desc: CumsumBackwardDescriptor) -> PrecisionGuarantee:
        return CumsumPlan.reference_guarantee(desc.reversed())


@function_of(CumsumBackwardPlan)
def cumsum_backward(grad: Any, /, axis: int = -1, *, grad_x: Any = None) -> Any:
    """The gradient of cumsum: the sums of grad's elements from each one on, along an axis.

    grad: the gradient of the result, f16, bf16, f32 or f64, of any shape and strides. axis: of the call of cumsum.
    grad_x: an array like grad, grad itself included; allocated in C order if not given.
    Sums are computed as cumsum computes them, from the other end.
    Returns grad_x. Raises InvalidProblemError for an axis that there is not, OperandTypeError for a grad_x of another dtype.
    """


register(Op("cumsum_backward", CumsumBackwardPlan, cumsum_backward, samples.backward))
