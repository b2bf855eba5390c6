"""Ranking: every candidate asked, every answer kept, the cheapest admissible one chosen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..runtime.steps import workspace_size
from ..types import BackendKind, DeviceSpec, PlanPreference, PrecisionGuarantee, UnsupportedError
from .candidate import OK, Candidate, Cost, Feasibility, no
from .descriptor import Descriptor

__all__ = ["Assessment", "assess", "choose"]


@dataclass(frozen=True)
class Assessment:
    """One candidate's answer for one configuration. Cost and guarantee are None where it does not apply."""

    candidate: Candidate[Any]
    config: Any
    feasibility: Feasibility
    cost: Cost | None = None
    guarantee: PrecisionGuarantee | None = None


def assess(
    candidates: Sequence[Candidate[Any]], desc: Descriptor, pref: PlanPreference, device: DeviceSpec
) -> list[Assessment]:
    """What every candidate says of the canonical `desc`, one entry a configuration."""
    answers = []
    for candidate in candidates:
        if device.is_host and candidate.backend is not BackendKind.REFERENCE:
            feasible = no("needs a GPU", 'device="sm_90a" to select and compile without one')
        else:
            feasible = candidate.supports(desc, device)
        if not feasible:
            answers.append(Assessment(candidate, "", feasible))
            continue
        for config in candidate.configs(desc, device):
            guarantee = candidate.guarantee(desc, device, config)
            cost = candidate.cost(desc, device, config)
            needs = _preferred(candidate, guarantee, pref)
            if needs and pref.max_workspace_bytes is not None:
                scratch = workspace_size(candidate.lower(desc, device, config))
                if scratch > pref.max_workspace_bytes:
                    needs = no(f"needs {scratch} bytes of workspace", f"max_workspace_bytes={scratch}")
            answers.append(Assessment(candidate, config, needs, cost, guarantee))
    return answers


def _preferred(candidate: Candidate[Any], guarantee: PrecisionGuarantee, pref: PlanPreference) -> Feasibility:
    if pref.variant is not None and candidate.variant != pref.variant:
        return no(f"not the preferred variant {pref.variant!r}", f"variant={candidate.variant!r}")
    if pref.backend is not None and candidate.backend is not pref.backend:
        return no(f"not the preferred back end {pref.backend}", f'backend="{candidate.backend}"')
    if pref.math is not None and guarantee.math_precision is not pref.math:
        return no(f"computes in {guarantee.math_precision}, not {pref.math}", f'math="{guarantee.math_precision}"')
    if pref.deterministic and not guarantee.deterministic:
        return no("its result depends on scheduling", "deterministic=False")
    if pref.bit_stable and not guarantee.bit_stable_on_same_hardware:
        return no("its bits may differ between processes", "bit_stable=False")
    if pref.batch_invariant and not guarantee.batch_invariant:
        return no("a row's result depends on the batch", "batch_invariant=False")
    return OK


def choose(answers: Sequence[Assessment], op: str, pref: PlanPreference, device: DeviceSpec) -> Assessment:
    """The admissible answer with the least predicted time; ties go to the earlier candidate."""
    admitted = [a for a in answers if a.feasibility and a.cost is not None]
    if admitted:
        return min(admitted, key=lambda a: a.cost.seconds if a.cost else 0.0)
    known = [a.candidate.variant for a in answers]
    if pref.variant is not None and pref.variant not in known:
        raise UnsupportedError(
            f"{op}: no variant is called {pref.variant!r}", f"choose among {', '.join(dict.fromkeys(known))}"
        )
    reasons: dict[str, list[str]] = {}  # variants that give the same one speak together
    for a in answers:
        mend = f" (mend: {a.feasibility.mend})" if a.feasibility.mend else ""
        named = reasons.setdefault(f"{a.feasibility.reason}{mend}", [])
        if a.candidate.variant not in named:
            named.append(a.candidate.variant)
    told = "; ".join(f"{', '.join(named)}: {reason}" for reason, named in reasons.items())
    raise UnsupportedError(f"{op}: no kernel for {device} serves this problem and preference. {told}")
