"""Products in several steps, each another plan: what every such candidate has in common."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

from ...plan.candidate import OK, Candidate, Cost, Feasibility, no
from ...plan.selection import Selection
from ...types import BaracudaError, DeviceSpec, PlanPreference

__all__ = ["Composite", "Parts", "Steps"]

Parts: TypeAlias = tuple[tuple[str, Selection], ...]

# What parts are selected with: a candidate does not know what was asked for, so it offers the parts that each answer would take.
FASTEST, *PROMISING = (
    PlanPreference(batch_invariant=invariant, exact_weights=exact)
    for exact in (False, True)
    for invariant in (False, True)
)


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
    """Configurations made of other plans' selections: the fastest, and those whose parts keep what a preference asks for."""

    def parts(self, desc: Any, device: DeviceSpec, pref: PlanPreference) -> Parts:
        """The steps in order, each selected with `pref`; raises a BaracudaError where one of the plans has no kernel for this."""
        raise NotImplementedError

    def supports(self, desc: Any, device: DeviceSpec) -> Feasibility:
        """Whether there is a kernel for every step; if not, why."""
        try:
            _parts(self, desc, device, FASTEST)
        except BaracudaError as error:
            return no(error.reason, error.fix)
        return OK

    def configs(self, desc: Any, device: DeviceSpec) -> Iterable[Steps]:
        seen = set[str]()
        for pref in (FASTEST, *PROMISING):
            try:
                made = Steps(_parts(self, desc, device, pref))
            except BaracudaError:
                continue
            if str(made) not in seen:
                seen.add(str(made))
                yield made

    def ranked(self, desc: Any, device: DeviceSpec) -> Iterator[tuple[Steps, float]]:
        """The fastest parts first; the others are selected only where those are not admitted."""
        every = iter(self.configs(desc, device))
        for fastest in every:
            yield fastest, self.cost(desc, device, fastest).seconds
            yield from sorted(
                ((config, self.cost(desc, device, config).seconds) for config in every), key=lambda priced: priced[1]
            )

    def cost(self, desc: Any, device: DeviceSpec, config: Steps) -> Cost:
        costs = [part.cost for _, part in config.parts]
        return Cost(desc.nbytes, sum(c.flops for c in costs), sum(c.seconds for c in costs), costs[-1].limit)


@lru_cache(maxsize=256)
def _parts(candidate: Composite, desc: Any, device: DeviceSpec, pref: PlanPreference) -> Parts:
    return candidate.parts(desc, device, pref)
