"""What the registry says of an op: its operands, its variants with the conditions that each needs, its bounds and flags."""

from __future__ import annotations

import contextlib
import inspect
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from ...plan.candidate import Candidate, Feasibility
from ...plan.plan import Plan
from ...plan.registry import Op, get_op
from ...plan.selection import Selection, selected
from ...types import BaracudaError, DeviceSpec, ElementKind, PlanPreference
from ..problems import compact, kinds_of, sample_descriptors

__all__ = [
    "DEVICE",
    "Bounds",
    "OperandFacts",
    "VariantFacts",
    "bounds_of",
    "descriptors",
    "in_place",
    "operands_of",
    "plans_of",
    "variants_of",
]

DEVICE = "h200"
DEVICE_NAMES = (DEVICE, "sm_80")  # the devices whose refusals are listed
SAMPLES = 100  # an op's first samples, whose refusals are listed
REFUSALS = 4  # of a variant


@dataclass(frozen=True)
class OperandFacts:
    """A line of the table of operands."""

    name: str
    role: str
    kinds: str
    shape: str
    layout: str


@dataclass(frozen=True)
class VariantFacts:
    """A line of the table of variants; the flags are those of the first problem that the variant serves."""

    name: str
    backend: str
    summary: str
    on_request: tuple[str, ...]
    refusals: tuple[Feasibility, ...]
    selection: Selection | None


@dataclass(frozen=True)
class Bounds:
    """The bounds of the op's example problem, by the kinds that share one."""

    problem: str
    bounds: tuple[tuple[str, str], ...]


@lru_cache(maxsize=4)
def descriptors(name: str) -> tuple[Any, ...]:
    """The descriptors of an op's first samples."""
    return tuple(itertools.islice(sample_descriptors(get_op(name)), SAMPLES))


@lru_cache(maxsize=4)
def plans_of(name: str) -> dict[ElementKind, Plan[Any]]:
    """The plans for an op's example problem, by kind, on the device that the pages name."""
    return kinds_of(get_op(name), DeviceSpec.named(DEVICE))


ROLES = {"in": "read", "out": "written", "inout": "updated in place"}


def operands_of(op: Op) -> Iterator[OperandFacts]:
    """The operands of the op's descriptor, in the order of plans."""
    cls = op.plan.descriptor
    examples = [*(plan.desc for plan in plans_of(op.name).values()), *descriptors(op.name)]
    optional = {operand.name for operand in cls.signature_operands if operand.optional}
    slots = {slot.name: slot for slot in cls.slots}
    for operand in cls.signature_operands or examples[0].operands:
        slot = slots.get(operand.name)
        having = [desc for desc in examples if _has(desc, operand.name)]
        held = {desc.layout(operand.name).element for desc in having}
        taken = slot.takes if slot is not None and slot.takes else [kind for kind in ElementKind if kind in held]
        shapes = [desc.layout(operand.name).shape for desc in having]
        shown = next((shape for shape in shapes if shape and 0 not in shape), shapes[0] if shapes else None)
        order = "any strides" if slot is None or slot.strided else "C order"
        start = "any element" if slot is None or slot.aligned else "aligned to an element"
        named = "" if slot is None else f"`{slot.shape}`"
        yield OperandFacts(
            operand.name,
            ROLES[operand.role] + (", optional" if operand.name in optional else ""),
            compact(list(taken)),
            ", such as ".join(filter(None, (named, "" if shown is None else str(shown)))),
            order if order == "any strides" else f"{order}, {start}",
        )


def _has(desc: Any, name: str) -> bool:
    return any(operand.name == name and not operand.optional for operand in desc.operands)


def in_place(op: Op) -> list[tuple[str, str]]:
    """The pairs (written operand, read operand) that may be the same view."""
    found: dict[tuple[str, str], None] = {}
    for desc in descriptors(op.name):
        for written, read in itertools.permutations(desc.operands, 2):
            if written.written and desc.in_place(written.name, read.name):
                found[written.name, read.name] = None
    return list(found)


def variants_of(op: Op) -> Iterator[VariantFacts]:
    """The variants in the order in which they are considered."""
    devices = [DeviceSpec.named(name) for name in DEVICE_NAMES]
    for candidate in op.plan.candidates:
        refusals, served = _asked(op, candidate, devices)
        yield VariantFacts(
            candidate.variant,
            candidate.backend.value,
            _first_sentence(candidate),
            candidate.on_request,
            tuple(refusals[:REFUSALS]),
            served,
        )


def _first_sentence(candidate: Candidate[Any]) -> str:
    """The first paragraph of the candidate's docstring, which may be a base class's."""
    owners = (cls.__doc__ for cls in type(candidate).__mro__ if cls is not Candidate and cls is not object)
    text = next((inspect.cleandoc(doc) for doc in owners if doc), "")
    return " ".join(text.split("\n\n", 1)[0].split())


def _asked(op: Op, candidate: Candidate[Any], devices: list[DeviceSpec]) -> tuple[list[Feasibility], Selection | None]:
    """The refusals of the op's samples, one for each reason but for its numbers, and a selection for the first that is served."""
    refusals: dict[str, Feasibility] = {}
    served: Selection | None = None
    for device in devices:
        for desc in descriptors(op.name):
            with contextlib.suppress(BaracudaError):
                desc.validate()
                answer = candidate.supports(desc.canonical(), device)
                if not answer:
                    refusals.setdefault(re.sub(r"\d+(, \d+)*", "#", answer.reason), answer)
                elif served is None and device is devices[0] and not desc.empty:
                    served = selected(op.plan, desc, _preferred(candidate), device)
    return list(refusals.values()), served


def _preferred(candidate: Candidate[Any]) -> PlanPreference:
    flags: dict[str, Any] = dict.fromkeys(candidate.on_request[:1], True)
    return PlanPreference(variant=candidate.variant, deterministic=False, **flags)


def bounds_of(op: Op) -> Bounds:
    """The bounds of plans for the op's example problem, on the device that the pages name."""
    kinds: dict[str, list[str]] = {}
    plans = plans_of(op.name)
    for kind, plan in plans.items():
        kinds.setdefault(str(plan.precision_guarantee.bound), []).append(kind.value)
    shapes = ""
    for plan in itertools.islice(plans.values(), 1):
        known = [o for o in plan.desc.operands if o.role != "out" and not o.optional]
        shapes = ", ".join(f"{o.name} {plan.desc.layout(o.name).shape}" for o in known)
    return Bounds(shapes, tuple((", ".join(of), bound) for bound, of in kinds.items()))
