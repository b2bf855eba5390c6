"""Every op of the registry through the gauntlet, on the NumPy back end and on the device."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.plan import all_ops, get_op
from baracuda_py.types import UnsupportedError

from .. import gauntlet
from ..families import by_op, family_of, templates
from . import Case, Problem, every_sample, named

OPS = list(all_ops())
INDEPENDENT = by_op(lambda family: family.independent)
every_op = pytest.mark.parametrize("op", OPS)
FEW = 8
PARTS = {"matmul": 4}  # ops of hundreds of configurations
NOMINAL = ("h200", "sm_80")


@every_sample("cpu", "cuda", bounded=dict.fromkeys(OPS, 1) | {ops[0]: 2 for ops in templates()}, turns=True)
def test_gauntlet(case: Case) -> None:
    """Results, guard bytes, repeats, bindings, and the public function."""
    if case.backend == "cuda":
        gauntlet.warm_op(case)
    gauntlet.run(case.problem)


@every_sample("cuda", count=FEW * 2, parts=PARTS)
def test_gauntlet_variants(case: Case) -> None:
    """Every variant and configuration that would serve a sample serves it within its guarantee."""
    problem = case.problem
    plans = case.part.of(gauntlet.admissible(problem))
    gauntlet.warm(plans)
    gauntlet.served(problem, plans)


@every_sample("cuda", count=FEW)
def test_gauntlet_graph_and_streams(case: Case) -> None:
    """Capture and replay where promised; a second stream."""
    gauntlet.warm_op(case)
    problem = case.problem
    gauntlet.graph(problem)
    problem.reset()
    gauntlet.other_stream(problem)


@every_sample("cpu", "cuda", count=FEW, bounded=1, turns=True)
def test_gauntlet_refusals(case: Case) -> None:
    """A wrong operand of each sort: the right error, in words one can act on, and nothing is written."""
    problem = case.problem
    tried = list(gauntlet.refusals(problem))
    for refusal in tried:
        with named(f"{refusal.operand} {refusal.label}"):
            gauntlet.refused(problem, refusal)
    gauntlet.shared_memory(problem)
    assert len(tried) >= 3


@every_sample("cpu", bounded=1, turns=True, ops=[op for op in OPS if op in INDEPENDENT])
def test_the_oracle_agrees_with_an_independent_implementation(case: Case) -> None:
    """NumPy slicing, SciPy, mpmath: never the oracle's own code."""
    INDEPENDENT[case.op](case.problem)


@every_op
def test_an_op_has_an_independent_implementation(op: str) -> None:
    assert op in INDEPENDENT, (
        f"{op} has no independent implementation: give its row a check=, or tests/families/{family_of(op)} a function"
    )
    assert gauntlet.cases(op, "cpu"), "the op has no samples"


# ---- the gauntlet itself can fail --------------------------------------------------------------------------------------


def _problem(op: str = "add", skip: int = 1) -> Problem:
    samples = gauntlet.samples_of(get_op(op), everything=True)
    return Problem(get_op(op), samples[skip], "cpu")


def test_a_wrong_oracle_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = _problem("add")
    expected = problem.wide["out"]
    monkeypatch.setattr(bp.BinaryPlan, "reference", classmethod(lambda cls, desc, **arrays: expected * (1 + 2.0**-20)))
    with pytest.raises(AssertionError, match="break"):
        gauntlet.run(problem)


@pytest.mark.parametrize("place", ["inside", "before", "after", "gap"])
def test_one_corrupt_byte_is_noticed(place: str) -> None:
    op = get_op("write_slice")
    sample = next(s for s in op.samples(op.fixed) if "stepped" in s.label)
    problem = Problem(op, sample, "cpu")
    problem.plan.run(**problem.operands)
    images = problem.images()
    problem.check_images(images)
    dest = problem.slots["dest"]
    gap = int(np.flatnonzero(~dest.touched()[dest.offset :])[0]) + dest.offset
    at = {"inside": dest.offset, "before": dest.offset - 1, "after": len(dest.initial) - 1, "gap": gap}[place]
    images["dest"][at] ^= 0x10
    with pytest.raises(AssertionError, match="1 bytes are wrong"):
        problem.check_images(images)


def test_a_changed_input_is_noticed() -> None:
    problem = _problem("add")
    problem.plan.run(**problem.operands)
    images = problem.images()
    images["x1"][problem.slots["x1"].offset] ^= 1
    with pytest.raises(AssertionError, match="x1 is an input and was changed"):
        problem.check_images(images)


def test_a_call_that_ought_to_be_refused_and_is_not_is_noticed() -> None:
    problem = _problem("add")
    good = gauntlet.Refusal("nothing wrong", "x1", (bp.InvalidProblemError,), problem.operands)
    with pytest.raises(AssertionError, match="accepts it"):
        gauntlet.refused(problem, good)


def test_a_result_off_by_more_than_the_bound_is_noticed() -> None:
    problem = _problem("exp")
    problem.plan.run(**problem.operands)
    images = problem.images()
    view = problem.slots["out"].view(images["out"])
    view[...] = np.nextafter(np.nextafter(view, np.asarray(np.inf, view.dtype)), np.asarray(np.inf, view.dtype))
    with pytest.raises(AssertionError, match="ulp"):
        problem.check_images(images)


# ---- what every op must say of itself ----------------------------------------------------------------------------------


@every_op
def test_an_op_is_documented_and_public(op: str) -> None:
    entry = get_op(op)
    assert getattr(bp, op) is entry.function
    assert entry.summary.endswith(".") or entry.summary, "no docstring"
    checks: list[Callable[[], Any]] = [lambda: entry.plan.__doc__, lambda: entry.plan.descriptor.__doc__]
    assert all(check() for check in checks)
    parameters = gauntlet.parameters(entry.function)
    for name in ("stream", "pref", "device"):
        assert parameters[name].kind is parameters[name].KEYWORD_ONLY


@every_op
def test_every_sample_selects_or_is_refused(op: str, everything: bool) -> None:
    """Selection and lowering on devices that are only named: no empty extent, no corner breaks a cost model."""
    kind, seen = get_op(op).plan, set()
    for sample in get_op(op).samples(get_op(op).fixed, full=everything):
        with named(sample.label):
            desc = Problem(get_op(op), sample, "cpu").desc
            if desc in seen:
                continue
            seen.add(desc)
            for device in NOMINAL:
                with contextlib.suppress(UnsupportedError):
                    kind.select(desc, device=device).selection.steps  # noqa: B018
