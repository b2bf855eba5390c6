"""Products in several steps, each another plan: what every such candidate has in common."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

from ...plan.candidate import OK, Candidate, Cost, Feasibility, no
from ...plan.selection import Selection
from ...types import BaracudaError, DeviceSpec

__all__ = ["Composite", "Parts", "Steps"]

Parts: TypeAlias = tuple[tuple[str, Selection], ...]


@dataclass(frozen=True)
class Steps:
    """A configuration: what is launched, by name."""

    parts: Parts

    def __str__(self) -> str:
        return " ".join(
            f"{name}={part.candidate.variant}" + (f"[{part.config}]" if str(part.config) else "")
            for name, part in self.parts
        )

    @property
    def of(self) -> dict[str, Selection]:
        return dict(self.parts)


class Composite(Candidate[Any]):
    """One configuration, made of other plans' selections."""

    def parts(self, desc: Any, device: DeviceSpec) -> Parts:
        """The steps in order; raises a BaracudaError where one of the plans has no kernel for this."""
        raise NotImplementedError

    def supports(self, desc: Any, device: DeviceSpec) -> Feasibility:
        """Whether there is a kernel for every step; if not, why."""
        try:
            _parts(self, desc, device)
        except BaracudaError as error:
            return no(error.reason, error.fix)
        return OK

    def configs(self, desc: Any, device: DeviceSpec) -> Iterable[Steps]:
        try:
            yield Steps(_parts(self, desc, device))
        except BaracudaError:
            return

    def cost(self, desc: Any, device: DeviceSpec, config: Steps) -> Cost:
        costs = [part.cost for _, part in config.parts]
        return Cost(desc.nbytes, sum(c.flops for c in costs), sum(c.seconds for c in costs), costs[-1].limit)


@lru_cache(maxsize=256)
def _parts(candidate: Composite, desc: Any, device: DeviceSpec) -> Parts:
    return candidate.parts(desc, device)
