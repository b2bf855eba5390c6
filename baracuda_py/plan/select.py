"""Selection: checks the problem, assesses every candidate, and chooses the fastest admissible one."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from ..runtime.steps import Launch, workspace_size
from ..types import BackendKind, BaracudaError, DeviceSpec, PlanPreference, PrecisionGuarantee, UnsupportedError
from .candidate import OK, Candidate, Change, Cost, Feasibility, natural, no, steps_of
from .descriptor import Descriptor

__all__ = ["Assessment", "advised", "assess", "best", "cheapest", "checked", "choose", "serves"]

D = TypeVar("D", bound=Descriptor)
GRID = (2**31 - 1, 65535, 65535)  # maximal CTAs of a launch along x, y and z
ROUNDING = 1 - 1e-9  # rounding may raise a floor above the prediction that it bounds
MAX_CHANGES = 8  # changes that are tried for one candidate
MAX_NAMED = 8  # configurations that a refusal names


@dataclass(frozen=True)
class Assessment:
    """One candidate's answer for one configuration. Cost and guarantee are None if it does not apply."""

    candidate: Candidate[Any]
    config: Any
    feasibility: Feasibility
    cost: Cost | None = None
    guarantee: PrecisionGuarantee | None = None


def checked(desc: D) -> D:
    """The canonical descriptor of a valid problem; raises InvalidProblemError or OperandTypeError otherwise."""
    desc.validate()
    return desc.canonical()


def assess(
    candidates: Sequence[Candidate[Any]],
    desc: Descriptor,
    pref: PlanPreference,
    device: DeviceSpec,
    *,
    only: str | None = None,
) -> list[Assessment]:
    """Every candidate's assessments of the canonical `desc`, one per configuration; with `only`, just the configuration that
    prints as that."""
    answers = []
    looked_at = _looked_at(desc, pref)
    for candidate in candidates:
        if device.is_host and candidate.backend is not BackendKind.REFERENCE:
            elsewhere = Change(device=DeviceSpec.named("sm_90a"))
            feasible = no("needs a GPU", 'device="sm_90a" to select and compile without one', elsewhere)
        else:
            feasible = _supported(candidate, desc, device)
        if not feasible:
            answers.append(Assessment(candidate, "", feasible))
            continue
        configs = [c for c in candidate.configs(desc, device) if only is None or str(c) == only]
        if not configs:
            answers.append(Assessment(candidate, "", no(f"no configuration of it fits this problem on {device}")))
        for config in configs:
            guarantee = candidate.guarantee(desc, device, config)
            cost = candidate.cost(desc, device, config)
            needs = _preferred(candidate, guarantee, pref, config)
            if needs and looked_at:
                needs = _launchable(candidate, desc, pref, device, config)
            answers.append(Assessment(candidate, config, needs, cost, guarantee))
    return answers


def best(
    candidates: Sequence[Candidate[Any]], desc: Descriptor, pref: PlanPreference, device: DeviceSpec
) -> Assessment:
    """The result of ``choose(assess(...))``, computed with as few calls to candidates as possible."""
    found = cheapest(candidates, desc, pref, device)
    return found[0] if found else choose(assess(candidates, desc, pref, device), desc, pref, device)


def cheapest(
    candidates: Sequence[Candidate[Any]], desc: Descriptor, pref: PlanPreference, device: DeviceSpec
) -> tuple[Assessment, float] | None:
    """The admissible configuration with the least predicted time, and that time in seconds; None if nothing serves.

    A candidate whose floor is not below the best time so far is skipped. The other candidates' configurations are checked in
    the order of their predicted times until one is admitted.
    """
    found, least = None, math.inf
    looked_at = _looked_at(desc, pref)
    for candidate in candidates:
        if device.is_host is not (candidate.backend is BackendKind.REFERENCE) or not _named(candidate, pref):
            continue
        if candidate.floor(desc, device) * ROUNDING >= least or not _supported(candidate, desc, device):
            continue
        for config, seconds in candidate.ranked(desc, device):
            if seconds >= least:
                break
            if _admitted(candidate, desc, pref, device, config, looked_at=looked_at):
                found, least = Assessment(candidate, config, OK), seconds
                break
    return (found, least) if found else None


def serves(candidate: Candidate[Any], desc: Descriptor, pref: PlanPreference, device: DeviceSpec, config: Any) -> bool:
    """Whether `select` would choose this configuration of the candidate for this problem if it were the fastest."""
    return bool(
        _supported(candidate, desc, device)
        and _admitted(candidate, desc, pref, device, config, looked_at=_looked_at(desc, pref))
    )


def _looked_at(desc: Descriptor, pref: PlanPreference) -> bool:
    """Whether a configuration's steps must be checked. Each CTA writes at least one element, so only large problems can have
    grids that are too large."""
    written = sum(math.prod(desc.layout(o.name).shape) for o in desc.operands if o.written)
    return written > GRID[0] or pref.max_workspace_bytes is not None


def _supported(candidate: Candidate[Any], desc: Descriptor, device: DeviceSpec) -> Feasibility:
    return candidate.supports(desc, device) and (OK if candidate.unaligned else natural(desc))


def _named(candidate: Candidate[Any], pref: PlanPreference) -> bool:
    """Whether the preference permits this variant and back end."""
    named = pref.variant in (None, candidate.variant) and pref.backend in (None, candidate.backend)
    return named and _requested(candidate, pref)


def _requested(candidate: Candidate[Any], pref: PlanPreference) -> bool:
    """Whether the preference sets a flag that the candidate needs, or names the candidate."""
    asked = pref.variant == candidate.variant or any(getattr(pref, flag) for flag in candidate.on_request)
    return asked or not candidate.on_request


def _admitted(
    candidate: Candidate[Any],
    desc: Descriptor,
    pref: PlanPreference,
    device: DeviceSpec,
    config: Any,
    *,
    looked_at: bool,
) -> Feasibility:
    needs = _preferred(candidate, candidate.guarantee(desc, device, config), pref, config)
    return needs and (_launchable(candidate, desc, pref, device, config) if looked_at else OK)


def _preferred(
    candidate: Candidate[Any], guarantee: PrecisionGuarantee, pref: PlanPreference, config: Any
) -> Feasibility:
    if pref.variant not in (None, candidate.variant):
        return _asked(f"not the preferred variant {pref.variant!r}", variant=candidate.variant)
    if pref.backend not in (None, candidate.backend):
        return _asked(f"not the preferred back end {pref.backend}", backend=candidate.backend)
    if pref.config not in (None, str(config)):
        return _asked("not the preferred configuration", config=str(config))
    if not _requested(candidate, pref):
        flag = candidate.on_request[0]
        return _asked(f"serves only where {flag} is asked for", **{flag: True})
    if pref.math not in (None, guarantee.math_precision):
        return _asked(f"computes in {guarantee.math_precision}, not {pref.math}", math=guarantee.math_precision)
    if pref.deterministic and not guarantee.deterministic:
        return _asked("its result depends on scheduling", deterministic=False)
    if pref.bit_stable and not guarantee.bit_stable_on_same_hardware:
        return _asked("its bits may differ between processes", bit_stable=False)
    if pref.batch_invariant and not guarantee.batch_invariant:
        return _asked("a row's result depends on the batch", batch_invariant=False)
    if pref.exact_weights and not guarantee.exact_weights:
        return _asked("rounds weights to the activations' type", exact_weights=False)
    return OK


def _asked(reason: str, **pref: Any) -> Feasibility:
    """A refusal because of the preference, with the change of the preference that would admit the candidate."""
    return no(reason, change=Change(pref=pref))


def _launchable(
    candidate: Candidate[Any], desc: Descriptor, pref: PlanPreference, device: DeviceSpec, config: Any
) -> Feasibility:
    """Whether the steps' grids are within launch limits, and their scratch within the preference's limit."""
    try:
        steps = steps_of(candidate, desc, device, config)
    except (OverflowError, struct.error):
        return no("it counts further than its arguments have bits")
    for grid in (step.grid for step in steps if isinstance(step, Launch)):
        if any(n > most for n, most in zip(grid, GRID)):
            return no(f"its grid is {grid}, and a launch has at most {GRID}")
    scratch = workspace_size(steps)
    if pref.max_workspace_bytes is not None and scratch > pref.max_workspace_bytes:
        return _asked(f"needs {scratch} bytes of workspace", max_workspace_bytes=scratch)
    return OK


def advised(
    answer: Assessment, desc: Descriptor, pref: PlanPreference, device: DeviceSpec, *, instead: str = ""
) -> Feasibility:
    """A refusal with all the changes that are needed together, found by following each refusal's change until the candidate
    serves. If that fails, only `instead`, the variant that serves."""
    feasible, change = answer.feasibility, Change()
    fixes: list[str] = []
    asked = (desc, pref, device)
    while feasible.change is not None and len(fixes) < MAX_CHANGES:
        fixes.append(feasible.fix)
        change |= feasible.change
        try:
            asked = feasible.change.applied(*asked)
            found = [a.feasibility for a in assess([answer.candidate], *asked)]
        except BaracudaError:
            break  # the changed problem is inconsistent
        if any(found):
            return replace(answer.feasibility, fix=" and ".join(dict.fromkeys(fixes)), change=change)
        feasible = found[0]
    return replace(answer.feasibility, fix="", change=None, instead=instead)


def choose(answers: Sequence[Assessment], desc: Descriptor, pref: PlanPreference, device: DeviceSpec) -> Assessment:
    """The admissible answer with the least predicted time; ties go to the earlier candidate.

    If there is none, raises the error of a candidate that would otherwise serve (an address between two elements), or else an
    UnsupportedError with every candidate's reason and fix.
    """
    admitted = [a for a in answers if a.feasibility and a.cost is not None]
    if admitted:
        return min(admitted, key=lambda a: a.cost.seconds if a.cost else 0.0)
    known = [a.candidate.variant for a in answers]
    if pref.variant is not None and pref.variant not in known:
        raise UnsupportedError(
            f"{desc.op}: no variant is called {pref.variant!r}", f"choose among {', '.join(dict.fromkeys(known))}"
        )
    if pref.config is not None:
        _refuse_config(answers, desc, pref, device)
    for a in answers:
        if (
            a.feasibility.error
            and pref.variant in (None, a.candidate.variant)
            and pref.backend in (None, a.candidate.backend)
        ):
            raise a.feasibility.error
    aligning = any(not a.candidate.unaligned for a in answers)
    if aligning and pref.variant is None and pref.backend is None and (bar := natural(desc)).error:
        raise bar.error  # wider accesses need aligned elements too
    reasons: dict[str, list[str]] = {}  # variants with the same reason are listed together
    for a in answers:
        feasible = advised(a, desc, pref, device)
        named = reasons.setdefault(feasible.reason + (f" ({feasible.advice})" if feasible.advice else ""), [])
        if a.candidate.variant not in named:
            named.append(a.candidate.variant)
    refusals = "; ".join(f"{', '.join(named)}: {reason}" for reason, named in reasons.items())
    raise UnsupportedError(f"{desc.op}: no kernel for {device} serves this problem and preference. {refusals}")


def _refuse_config(answers: Sequence[Assessment], desc: Descriptor, pref: PlanPreference, device: DeviceSpec) -> None:
    """Raises UnsupportedError, with the configurations that serve, if any would without the preferred one."""
    candidates = list(dict.fromkeys(a.candidate for a in answers))
    found = [a for a in assess(candidates, desc, replace(pref, config=None), device) if a.feasibility]
    found.sort(key=lambda a: a.cost.seconds if a.cost else 0.0)
    if not found:
        return
    names = [f"{a.candidate.variant}[{a.config}]" for a in found]
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    where = f" of {pref.variant}" if pref.variant else ""
    raise UnsupportedError(
        f"{desc.op}: no configuration {pref.config!r:.80}{where} serves this problem on {device}",
        f"choose among {', '.join(names[:MAX_NAMED])}{more}; plan.options(top=None) lists all",
    )
