"""The gradient of cumsum: running sums from the other end, which cumsum's own kernels compute on views that run backwards."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ...plan.candidate import OK, Candidate, Cost, Feasibility
from ...plan.descriptor import Slot, described
from ...plan.lowering import Sub
from ...plan.plan import Plan
from ...plan.registry import Op, register
from ...plan.selection import Selection, selected
from ...runtime.steps import Ptr
from ...tensor.axes import alignment_of
from ...types import DeviceSpec, ElementKind, OpCategory, PrecisionGuarantee
from .._axis import AlongAxis
from .._function import function_of
from .._rows import FLOATS
from . import oracle, samples
from .cumsum import CumsumDescriptor, CumsumPlan

__all__ = ["CumsumBackwardDescriptor", "CumsumBackwardPlan", "cumsum_backward"]


@described(Slot("grad_x", "out", takes=FLOATS), Slot("grad", takes=FLOATS))
class CumsumBackwardDescriptor(AlongAxis):
    """The sums of a gradient of `shape` from each element on, along `axis`."""

    shape: tuple[int, ...]
    element: ElementKind
    axis: int = -1

    name = "cumsum_backward"

    def last(self, name: str) -> int:
        """Bytes from an operand's first element to the last one along the axis, where its reversed view begins."""
        layout = self.layout(name)
        return (self.extent - 1) * layout.strides[self.axis] * layout.natural if layout.shape and self.extent else 0

    def reversed(self) -> CumsumDescriptor:
        """The running sums of the reversed views."""
        fields: dict[str, Any] = {}
        for own, name in (("grad", "x"), ("grad_x", "out")):
            layout = self.layout(own)
            strides = tuple(-s if axis == self.axis else s for axis, s in enumerate(layout.strides))
            fields[f"{name}_strides"] = strides
            fields[f"{name}_align"] = min(layout.align, alignment_of(self.last(own)))
        return CumsumDescriptor(self.shape, self.element, self.axis, **fields)


@dataclass(frozen=True)
class Reversed:
    """The configuration: what computes the running sums."""

    sums: Selection

    def __str__(self) -> str:
        return f"cumsum={self.sums.candidate.variant} {self.sums.config}".strip()


class CumsumOfReversed(Candidate[CumsumBackwardDescriptor]):
    """cumsum of the reversed gradient, into a reversed result."""

    variant = "reversed"
    launches = tuple(dict.fromkeys(launch for candidate in CumsumPlan.candidates for launch in candidate.launches))

    def supports(self, desc: CumsumBackwardDescriptor, device: DeviceSpec) -> Feasibility:
        return OK

    def configs(self, desc: CumsumBackwardDescriptor, device: DeviceSpec) -> Iterable[Reversed]:
        yield Reversed(selected(CumsumPlan, desc.reversed(), None, device))

    def cost(self, desc: CumsumBackwardDescriptor, device: DeviceSpec, config: Reversed) -> Cost:
        return config.sums.cost

    def guarantee(self, desc: CumsumBackwardDescriptor, device: DeviceSpec, config: Reversed) -> PrecisionGuarantee:
        return config.sums.guarantee

    def lower(self, desc: CumsumBackwardDescriptor, device: DeviceSpec, config: Reversed) -> tuple[Sub, ...]:
        places = {name: Ptr(own, desc.last(own)) for own, name in (("grad", "x"), ("grad_x", "out"))}
        return (Sub(config.sums, places),)


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
