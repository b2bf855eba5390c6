"""What ops have in common whose operands may hold values that are out of range: the modes, and the operand `status`."""

from __future__ import annotations

from typing import Any, ClassVar

from ..plan.candidate import OK, Change, Feasibility, no
from ..plan.descriptor import Descriptor, Slot
from ..types import DeviceSpec, ElementKind
from ._function import SignatureRules

__all__ = ["REPORTED", "STATUS", "ReportedProblem", "raises_on"]

STATUS = Slot("status", "out", element=ElementKind.I32, shape="scalar_shape", strided=False, aligned=False)
REPORTED = SignatureRules(wanted={"status": ("mode", "status")})


class ReportedProblem(Descriptor):
    """A problem some of whose values may be out of range, and what becomes of them. With ``mode="status"`` it has the operand
    `status`, if that is in its table."""

    modes: ClassVar[tuple[str, ...]] = ("drop", "status", "raise")
    mode: str = "drop"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._member(self.modes, "mode")

    def has(self, name: str) -> bool:
        return self.mode == "status" if name == "status" else super().has(name)

    def asked_for(self, name: str) -> str:
        return 'pass mode="status"' if name == "status" and name in self.slot_of else super().asked_for(name)

    @property
    def has_status(self) -> bool:
        """Whether a value out of range is reported."""
        return "status" in self.slot_of and self.has("status")

    @property
    def scalar_shape(self) -> tuple[int, ...]:
        return ()


def raises_on(desc: Any, device: DeviceSpec) -> Feasibility:
    """Whether the device can do what the problem's mode says."""
    if desc.mode == "raise" and not device.host_memory:
        reason = "a call does not wait for the GPU, and raises nothing of what it finds there"
        return no(reason, change=Change({"mode": "status"}))
    return OK
