"""Scans from the other end: the kernels that go forward, on views that run backwards."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ...plan.candidate import OK, Candidate, Cost, Feasibility
from ...plan.lowering import Sub
from ...plan.plan import Plan
from ...plan.selection import Selection, selected
from ...runtime.steps import Ptr
from ...tensor.axes import alignment_of
from ...types import DeviceSpec, PrecisionGuarantee

__all__ = ["OfReversed", "last", "launched", "reversed_layouts"]


def last(desc: Any, name: str) -> int:
    """Bytes from an operand's first element to the last one along the axis, where its reversed view begins."""
    layout = desc.layout(name)
    return (desc.extent - 1) * layout.strides[desc.axis] * layout.natural if layout.shape and desc.extent else 0


def reversed_layouts(desc: Any, names: Mapping[str, str]) -> dict[str, Any]:
    """The fields of a forward scan's operands that are reversed views of `desc`'s, which `names` maps them to."""
    fields: dict[str, Any] = {}
    for own, name in names.items():
        layout = desc.layout(own)
        strides = tuple(-s if axis == desc.axis else s for axis, s in enumerate(layout.strides))
        fields[f"{name}_strides"] = strides
        fields[f"{name}_align"] = min(layout.align, alignment_of(last(desc, own)))
    return fields


def launched(plan: type[Plan[Any]]) -> tuple[str, ...]:
    """The kernels of a plan's candidates."""
    return tuple(dict.fromkeys(launch for candidate in plan.candidates for launch in candidate.launches))


@dataclass(frozen=True)
class Reversed:
    """The configuration: what scans the views."""

    scan: Selection

    def __str__(self) -> str:
        return f"{self.scan.desc.op}={self.scan.candidate.variant} {self.scan.config}".strip()


class OfReversed(Candidate[Any]):
    """The forward scan of reversed operands, into a reversed result.

    `desc.reversed()` is its problem, `plan` that of forward scans, and `names` maps the operands to those of the forward scan.
    """

    variant = "reversed"

    def __init__(self, plan: type[Plan[Any]], names: Mapping[str, str]) -> None:
        self.plan, self.names, self.launches = plan, names, launched(plan)  # type: ignore[misc]

    def supports(self, desc: Any, device: DeviceSpec) -> Feasibility:
        return OK

    def configs(self, desc: Any, device: DeviceSpec) -> Iterable[Reversed]:
        yield Reversed(selected(self.plan, desc.reversed(), None, device))

    def cost(self, desc: Any, device: DeviceSpec, config: Reversed) -> Cost:
        return config.scan.cost

    def guarantee(self, desc: Any, device: DeviceSpec, config: Reversed) -> PrecisionGuarantee:
        return config.scan.guarantee

    def lower(self, desc: Any, device: DeviceSpec, config: Reversed) -> tuple[Sub, ...]:
        places = {name: Ptr(own, last(desc, own)) for own, name in self.names.items()}
        return (Sub(config.scan, places),)
