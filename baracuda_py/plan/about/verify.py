"""Checks plans: compares results, on copies of given operands or on the op's samples, with the oracle within the guarantee."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from typing import Any

import numpy as np

from ...call.caller import Caller
from ...call.operands.intake import feasible
from ...numerics.rounding import round_to
from ...samples import Packed, Sample
from ...samples.wanted import Wanted
from ...tensor import GpuBuffer
from ...types import BaracudaError, DeviceSpec, PlanPreference, UnsupportedError
from ..registry import Op, all_wanted, get_op
from ..selection import Selection, selected
from .report import Report, merged, of_output
from .tune import admissible, copy_of

__all__ = [
    "Outcome",
    "outcome_of",
    "placed",
    "verify",
    "verify_samples",
    "wanted_of",
    "wanted_outcomes",
    "wanted_plans",
]


def _host(x: Any) -> np.ndarray[Any, Any]:
    if isinstance(x, GpuBuffer):
        return x.to_host()
    return x if isinstance(x, np.ndarray) else np.asarray(x.get() if hasattr(x, "get") else x)


def verify(plan: Selection, operands: Mapping[str, Any], run: Callable[[dict[str, Any]], Any] | None = None) -> Report:
    """Raises AssertionError if a written operand differs from the oracle by more than its guarantee allows; returns how much of
    it the errors take. `run` replaces ``plan.run(**operands)``."""
    feasible(plan, operands).raise_on_error()
    desc = plan.desc.at(operands)
    written = [o for o in plan.operands if o.written]
    given = {n: x for n, x in operands.items() if x is not None}
    inputs = {o.name: np.array(_host(given[o.name])) for o in plan.operands if o.role != "out" and o.name in given}
    wide = plan.family.reference(desc, **inputs)
    copies = {o.name: copy_of(given[o.name]) for o in written if o.name in given}
    whole = {**given, **copies, **_own_status(plan, given)}
    result = Caller(plan)(whole, None, None) if run is None else run(whole)
    results, outputs = result if isinstance(result, tuple) else (result,), []
    for name, got, expected in zip(plan.written, results, wide if isinstance(wide, tuple) else (wide,)):
        element, measures = plan.canonical.layout(name).element, plan.measured(desc, name)
        held = _host(got)[: len(expected)] if name in desc.counted else _host(got)
        if element.is_integer:  # the oracle's integers are wide
            expected = round_to(np.asarray(expected), element)
        promised, reference = plan.guarantee.of(name), np.asarray(expected)
        try:
            promised.check(held, reference, inputs, output=element, measures=measures)
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}" if len(plan.written) > 1 else str(error)) from None
        outputs.append(of_output(name, element, *promised.deviations(held, reference, inputs, element, measures)))
    return Report(f"{plan.desc.op} on {plan.device}", 1, tuple(outputs))


def _own_status(plan: Selection, given: Mapping[str, Any]) -> dict[str, np.ndarray[Any, Any]]:
    """On a host device the output `status` where none was given: it is compared, and a plan without one would raise."""
    made = plan.device.host_memory and "status" in plan.written and "status" not in given
    layout = plan.canonical.layout("status") if made else None
    return {} if layout is None else {"status": np.empty(layout.shape, layout.element.dtype)}


@dataclass(frozen=True)
class Outcome:
    """The outcome of a sample: the `selection` that ran it (None: nothing serves it), and the `error`, or else the `report`."""

    selection: Selection | None
    error: Exception | None = None
    report: Report | None = None


def outcome_of(op: Op, sample: Sample, pref: PlanPreference, device: DeviceSpec) -> Outcome:
    """Runs one sample, at its own shapes and types. The outcome holds an AssertionError for a wrong result, and a BaracudaError
    for a fault or a compile error."""
    selection = None
    try:
        arrays = {name: placed(x, device.host_memory) for name, x in sample.operands.items()}
        desc = op.of_sample(arrays, sample.options)
        selection = selected(op.plan, desc, pref, device)
        given = arrays | {name: sample.options[name] for name in desc.values if name in sample.options}
        report = verify(selection, given)
    except UnsupportedError as error:
        return Outcome(selection, error)
    except (AssertionError, BaracudaError) as error:
        return Outcome(selection, error)
    return Outcome(selection, report=report)


def wanted_of(op: str, variant: str | None = None) -> list[Wanted]:
    """The problems of `op` that reach code which its samples do not reach; with `variant`, those that it may serve."""
    return [w for w in all_wanted() if w.op == op and (variant is None or w.variant in (None, variant))]


def wanted_plans(wanted: Wanted, desc: Any, spec: DeviceSpec, pref: PlanPreference | None = None) -> Iterator[Any]:
    """The plans that a wanted problem is for: of each of its patterns the first configuration that serves on `spec`."""
    device = wanted.device(spec)
    if device is None:
        return
    pref = replace(pref or PlanPreference(), deterministic=False)
    if wanted.variant is not None:
        pref = replace(pref, variant=wanted.variant)
    found: list[Any] = admissible(get_op(wanted.op).plan, desc, pref, device)
    for pattern in wanted.configs:
        yield from [plan for plan in found if fnmatch(str(plan.sku.config), pattern)][:1]


def wanted_outcomes(wanted: Wanted, pref: PlanPreference, spec: DeviceSpec) -> dict[str, Outcome]:
    """Runs a wanted problem by each of its plans; by labels that name the configuration."""
    op, sample = get_op(wanted.op), wanted.sample
    outcomes: dict[str, Outcome] = {}
    arrays = {name: placed(x, spec.host_memory) for name, x in sample.operands.items()}
    desc = op.of_sample(arrays, sample.options)
    given = arrays | {name: sample.options[name] for name in desc.values if name in sample.options}
    for plan in wanted_plans(wanted, desc, spec, pref):
        outcomes[f"{wanted.name}, {plan.sku.variant}[{plan.sku.config}]"] = _outcome(plan.selection, given)
    return outcomes


def _outcome(selection: Selection, given: Mapping[str, Any]) -> Outcome:
    try:
        return Outcome(selection, report=verify(selection, given))
    except (AssertionError, BaracudaError) as error:
        return Outcome(selection, error)


def verify_samples(plan: Selection) -> Report:
    """`verify` on every sample of the plan's op that its variant serves, and on the problems that it is wanted for."""
    op, reports = get_op(plan.desc.op), []
    pref = replace(plan.pref, variant=plan.candidate.variant)
    outcomes = [(sample.label, outcome_of(op, sample, pref, plan.device)) for sample in op.samples(op.fixed)]
    for wanted in wanted_of(op.name, plan.candidate.variant):
        outcomes += wanted_outcomes(wanted, pref, plan.device).items()
    for label, outcome in outcomes:
        if isinstance(outcome.error, AssertionError):
            raise AssertionError(f"{op.name}, sample {label}: {outcome.error}") from None
        if outcome.selection is not None:
            if outcome.error is not None:
                raise outcome.error
            reports += [(label, outcome.report)] if outcome.report is not None else []
    if not reports:
        raise UnsupportedError(
            f"{op.name}: verify has no sample that variant {plan.candidate.variant!r} serves",
            "pass operands: plan.verify(...)",
        )
    return merged(f"{op.name} on {plan.device}, variant {plan.candidate.variant}", reports)


def placed(x: Any, on_host: bool) -> Any:
    """A sample's operand where the plan runs, laid out as the sample has it."""
    if isinstance(x, Packed):
        if x.strides is None:
            x = GpuBuffer.view(x.data, x.element, x.shape)
        else:
            x = GpuBuffer.view(x.data, x.element).strided(x.shape, x.strides, x.offset)
    return x if on_host else copy_of(x, to_gpu=True)
