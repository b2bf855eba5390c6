"""What lower modules of this package ask of a Selection: a protocol, so that they do not import it."""

from __future__ import annotations

from typing import Any, Protocol

from ..runtime.steps import Step
from ..types import DeviceSpec, PlanPreference

__all__ = ["Selected"]


class Selected(Protocol):
    """A problem, and what was chosen for it."""

    @property
    def desc(self) -> Any: ...

    @property
    def canonical(self) -> Any: ...

    @property
    def names(self) -> tuple[str, ...]: ...

    @property
    def pref(self) -> PlanPreference: ...

    @property
    def device(self) -> DeviceSpec: ...

    @property
    def config(self) -> Any: ...

    @property
    def steps(self) -> tuple[Step, ...]: ...
