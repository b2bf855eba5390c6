"""The gradient of cumsum: running sums from the other end, which cumsum's own kernels compute on views that run backwards."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ...plan.candidate import Candidate, Cost, Feasibility
from ...plan.descriptor import Slot, described
from ...plan.fields import flag
from ...plan.lowering import Sub
from ...plan.plan import Plan
from ...plan.registry import Op, register
from ...plan.selection import Selection, selected
from ...runtime.steps import Ptr
from ...types import DeviceSpec, ElementKind, OpCategory, PrecisionGuarantee
from .._axis import AlongAxis
from .._function import function_of
from .._rows import FLOATS
from . import oracle, samples
from ._problem import check_flags
from ._reversed import OfReversed, launched, reversed_layouts
from .cumsum import CumsumDescriptor, CumsumPlan

__all__ = ["CumsumBackwardDescriptor", "CumsumBackwardPlan", "cumsum_backward"]

NAMES = {"grad": "x", "grad_x": "out"}  # operands of the running sums


@described(Slot("grad_x", "out", takes=FLOATS), Slot("grad", takes=FLOATS))
class CumsumBackwardDescriptor(AlongAxis):
    """The sums of a gradient of `shape` from each element on, along `axis`, for the direction of cumsum's call and whether that
    was exclusive."""

    shape: tuple[int, ...]
    element: ElementKind
    axis: int = -1
    reverse: bool = False
    exclusive: bool = False

    name = "cumsum_backward"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._each(("reverse", "exclusive"), flag)

    def check(self) -> None:
        check_flags(self)
        super().check()

    def in_place(self, written: str, read: str) -> bool:
        return not self.exclusive

    def scan(self) -> CumsumDescriptor:
        """The running sums in the other direction."""
        fields: dict[str, Any] = {"reverse": not self.reverse, "exclusive": self.exclusive}
        for own, name in NAMES.items():
            layout = self.layout(own)
            fields |= {f"{name}_strides": layout.strides, f"{name}_align": layout.align}
        return CumsumDescriptor(self.shape, self.element, self.axis, **fields)

    def reversed(self) -> CumsumDescriptor:
        """The running sums of the reversed views."""
        return CumsumDescriptor(self.shape, self.element, self.axis, **reversed_layouts(self, NAMES))


class CumsumOfReversed(OfReversed):
    """cumsum of the reversed gradient, into a reversed result."""

    def supports(self, desc: CumsumBackwardDescriptor, device: DeviceSpec) -> Feasibility:
        if desc.reverse or desc.exclusive:
            return Feasibility("the call was reversed or exclusive", instead="scan")
        return super().supports(desc, device)


@dataclass(frozen=True)
class OtherDirection:
    """The configuration: what scans."""

    scan: Selection

    def __str__(self) -> str:
        return f"cumsum={self.scan.candidate.variant} {self.scan.config}".strip()


class CumsumInOtherDirection(Candidate[CumsumBackwardDescriptor]):
    """cumsum of the gradient in the direction that is not the call's."""

    variant = "scan"
    launches = launched(CumsumPlan)

    def supports(self, desc: CumsumBackwardDescriptor, device: DeviceSpec) -> Feasibility:
        if desc.reverse or desc.exclusive:
            return super().supports(desc, device)
        return Feasibility("the call was neither reversed nor exclusive", instead="reversed")

    def configs(self, desc: CumsumBackwardDescriptor, device: DeviceSpec) -> Iterable[OtherDirection]:
        yield OtherDirection(selected(CumsumPlan, desc.scan(), None, device))

    def cost(self, desc: CumsumBackwardDescriptor, device: DeviceSpec, config: OtherDirection) -> Cost:
        return config.scan.cost

    def guarantee(
        self, desc: CumsumBackwardDescriptor, device: DeviceSpec, config: OtherDirection
    ) -> PrecisionGuarantee:
        return config.scan.guarantee

    def lower(self, desc: CumsumBackwardDescriptor, device: DeviceSpec, config: OtherDirection) -> tuple[Sub, ...]:
        return (Sub(config.scan, {name: Ptr(own) for own, name in NAMES.items()}),)


class CumsumBackwardPlan(Plan[CumsumBackwardDescriptor]):
    """Running sums from the end: operands `grad` and `grad_x`."""

    descriptor = CumsumBackwardDescriptor
    category = OpCategory.SCAN
    candidates = (CumsumOfReversed(CumsumPlan, NAMES), CumsumInOtherDirection())
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
        return CumsumPlan.reference_guarantee(desc.scan())


@function_of(CumsumBackwardPlan)
def cumsum_backward(
    grad: Any, /, axis: int = -1, *, reverse: bool = False, exclusive: bool = False, grad_x: Any = None
) -> Any:
    """The gradient of cumsum: the sums of grad's elements from each one on, along an axis.

    grad: the gradient of the result, f16, bf16, f32 or f64, of any shape and strides. axis, reverse, exclusive: as in the
    call of cumsum; with reverse, the sums are up to each element, and with exclusive, without itself.
    grad_x: an array like grad, grad itself included unless exclusive; allocated in C order if not given.
    Sums are computed as cumsum computes them, from the other end.
    Returns grad_x. Raises InvalidProblemError for an axis that there is not, OperandTypeError for a grad_x of another dtype.
    """


register(Op("cumsum_backward", CumsumBackwardPlan, cumsum_backward, samples.backward))
