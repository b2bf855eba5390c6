"""Ranking: a problem checked, every candidate asked, every answer kept, the cheapest admissible one chosen."""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeVar

import numpy as np

from ..runtime.steps import workspace_size
from ..tensor.axes import span
from ..types import (
    BackendKind,
    DeviceSpec,
    InvalidProblemError,
    PlanPreference,
    PrecisionGuarantee,
    UnsupportedError,
)
from .candidate import OK, Candidate, Cost, Feasibility, no, steps_of
from .descriptor import Descriptor

__all__ = ["Assessment", "assess", "checked", "choose"]

D = TypeVar("D", bound=Descriptor)
ADDRESSES = 1 << 63  # bytes, and elements: what a signed 64-bit index reaches
ALIGNMENTS = tuple(1 << n for n in range(16))  # what an address may be aligned to; more than 16 counts as 16


@dataclass(frozen=True)
class Assessment:
    """One candidate's answer for one configuration. Cost and guarantee are None where it does not apply."""

    candidate: Candidate[Any]
    config: Any
    feasibility: Feasibility
    cost: Cost | None = None
    guarantee: PrecisionGuarantee | None = None


def checked(desc: D) -> D:
    """The canonical descriptor of a problem that makes sense; raises InvalidProblemError or OperandTypeError otherwise.

    Beside what the family itself validates: structure is made of whole numbers, and every operand can be addressed.
    """
    for field in fields(desc):
        _check_field(desc, field.name, getattr(desc, field.name), field.default)
    desc.validate()
    canonical = desc.canonical()
    for operand in canonical.operands:
        shape, strides, element, _ = canonical.layout(operand.name)
        count = math.prod(max(extent, 1) for extent in shape)
        low, high = span(shape, strides, element)
        far = max((abs(s) for s in strides), default=0)
        if max(element.nbytes(count), count, element.nbytes(far), high, -low) >= ADDRESSES:
            raise _too_far(f"{desc.op}: {operand.name}")
    return canonical


def _check_field(desc: Descriptor, name: str, value: Any, default: Any) -> None:
    if name in desc.values or (isinstance(value, (bool, float)) and type(value) is type(default)):
        return
    what = f"{type(desc).__name__}: {name}"
    parts = value if isinstance(value, tuple) else (value,)
    for part in (p for whole in parts for p in (whole if isinstance(whole, tuple) else (whole,))):
        number = isinstance(part, (int, np.integer)) and not isinstance(part, bool)
        if not number and not (part is None or isinstance(part, (str, enum.Enum))):
            raise InvalidProblemError(f"{what}={value!r:.80} is not made of integers and kinds", "give such, or None")
        if number and not -ADDRESSES < part < ADDRESSES:
            raise _too_far(what)
    if name.endswith("_align") and value is not None and value not in ALIGNMENTS:
        raise InvalidProblemError(f"{what}={value!r:.40} bytes", f"one of {', '.join(map(str, ALIGNMENTS))}, or None")


def _too_far(what: str) -> InvalidProblemError:
    """The numbers are not shown: they may have thousands of digits."""
    return InvalidProblemError(f"{what} reaches beyond 64-bit addresses", "give smaller extents and strides")


def assess(
    candidates: Sequence[Candidate[Any]],
    desc: Descriptor,
    pref: PlanPreference,
    device: DeviceSpec,
    *,
    only: str | None = None,
) -> list[Assessment]:
    """What every candidate says of the canonical `desc`, one entry a configuration; with `only`, of the configuration that
    prints so."""
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
            if only is not None and str(config) != only:
                continue
            guarantee = candidate.guarantee(desc, device, config)
            cost = candidate.cost(desc, device, config)
            needs = _preferred(candidate, guarantee, pref)
            if needs and pref.max_workspace_bytes is not None:
                scratch = workspace_size(steps_of(candidate, desc, device, config))
                if scratch > pref.max_workspace_bytes:
                    needs = no(f"needs {scratch} bytes of workspace", f"max_workspace_bytes={scratch}")
            answers.append(Assessment(candidate, config, needs, cost, guarantee))
            if only is not None:
                break
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
        mend = f" (to admit it: {a.feasibility.mend})" if a.feasibility.mend else ""
        named = reasons.setdefault(f"{a.feasibility.reason}{mend}", [])
        if a.candidate.variant not in named:
            named.append(a.candidate.variant)
    told = "; ".join(f"{', '.join(named)}: {reason}" for reason, named in reasons.items())
    raise UnsupportedError(f"{op}: no kernel for {device} serves this problem and preference. {told}")
