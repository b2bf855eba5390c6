"""Exclusive scans and their gradients: the inclusive ones of all elements but one, on views that begin one element further."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from ...plan.candidate import OK, Candidate, Cost, Feasibility
from ...plan.lowering import Sub
from ...plan.plan import Plan
from ...plan.selection import Selection, selected
from ...runtime.steps import Launch, Ptr, Step
from ...tensor.axes import alignment_of
from ...types import DeviceSpec, PrecisionGuarantee
from .._fill import FILL, filled
from ._reversed import launched

__all__ = ["EXCLUSIVE", "OfShifted", "shifted_fields"]

EXCLUSIVE = Feasibility("the scan leaves out each element itself", instead="exclusive")


def _offset(desc: Any, name: str, later: Collection[str]) -> int:
    """Bytes from an operand's first element to that of its view: an element, of operands in `later`, which leave out the first
    element in the direction of the scan, while others leave out the last."""
    layout = desc.layout(name)
    if not layout.shape or (name in later) == desc.reverse:
        return 0
    return int(layout.strides[desc.axis] * layout.natural)


def shifted_fields(desc: Any, later: Collection[str]) -> dict[str, Any]:
    """The fields of the inclusive problem on those views."""
    fields: dict[str, Any] = {}
    for operand in desc.operands:
        layout = desc.layout(operand.name)
        fields[f"{operand.name}_strides"] = layout.strides
        fields[f"{operand.name}_align"] = min(layout.align, alignment_of(_offset(desc, operand.name, later)))
    shape = tuple(max(n - (axis == desc.axis), 0) for axis, n in enumerate(desc.shape))
    return {"shape": shape, "element": desc.element, "axis": desc.axis, "reverse": desc.reverse, **fields}


@dataclass(frozen=True)
class Inclusive:
    """The configuration: what scans the views."""

    scan: Selection

    def __str__(self) -> str:
        return f"{self.scan.desc.op}={self.scan.candidate.variant} {self.scan.config}".strip()


class OfShifted(Candidate[Any]):
    """The inclusive scan of all elements but one, and a launch for the ends of lines.

    `desc.inclusive()` is its problem, `later` are the operands that leave out the first element in its direction, and the end of
    each line of `written` becomes `desc.edge`.
    """

    variant = "exclusive"

    def __init__(self, plan: type[Plan[Any]], written: str, later: Collection[str]) -> None:
        self.plan, self.written, self.later = plan, written, later
        self.launches = (*launched(plan), FILL)  # type: ignore[misc]

    def supports(self, desc: Any, device: DeviceSpec) -> Feasibility:
        return OK if desc.exclusive else Feasibility("the scan counts each element itself", instead="rows")

    def configs(self, desc: Any, device: DeviceSpec) -> Iterable[Inclusive]:
        yield Inclusive(selected(self.plan, desc.inclusive(), None, device))

    def cost(self, desc: Any, device: DeviceSpec, config: Inclusive) -> Cost:
        one = config.scan.cost
        return Cost(desc.nbytes, one.flops, one.seconds + device.overhead, one.limit)

    def guarantee(self, desc: Any, device: DeviceSpec, config: Inclusive) -> PrecisionGuarantee:
        return config.scan.guarantee

    def lower(self, desc: Any, device: DeviceSpec, config: Inclusive) -> tuple[Step | Sub, ...]:
        edge = self._edge(desc)
        if desc.extent <= 1:
            return (edge,)
        operands = (operand.name for operand in desc.operands)
        return Sub(config.scan, {name: Ptr(name, _offset(desc, name, self.later)) for name in operands}), edge

    def _edge(self, desc: Any) -> Launch:
        """At the first element in the direction of the scan of what leaves that out, at the last one of others."""
        layout = desc.layout(self.written)
        kept = [a for a in range(len(desc.shape)) if a != desc.axis or not desc.extent]
        at_end = desc.shape and desc.extent and (self.written in self.later) == desc.reverse
        place = (desc.extent - 1) * layout.strides[desc.axis] * layout.natural if at_end else 0
        shape, strides = [desc.shape[a] for a in kept], [layout.strides[a] for a in kept]
        return filled(Ptr(self.written, int(place)), shape, strides, layout.element, desc.edge)
