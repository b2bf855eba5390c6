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

from . import gauntlet
from .gauntlet import Problem, named, problems
from .independent import INDEPENDENT

OPS = list(all_ops())
every_op = pytest.mark.parametrize("op", OPS)
FEW = 8


@every_op
def test_gauntlet(op: str, backend: str, everything: bool) -> None:
    """Results, guard bytes, repeats, bindings, and the public function."""
    taken = list(problems(get_op(op), backend, everything=everything))
    assert taken, "the op has no samples"
    if backend == "cuda":
        gauntlet.warm([p.plan for p in taken])
    for problem in taken:
        with named(problem.sample.label):
            gauntlet.run(problem)


@every_op
@pytest.mark.gpu
def test_gauntlet_variants(op: str, everything: bool) -> None:
    """Every variant and configuration that would serve a sample serves it within its guarantee."""
    taken = list(problems(get_op(op), "cuda", everything=everything, count=FEW * 2))
    gauntlet.warm([plan for p in taken for plan in gauntlet.admissible(p)])
    for problem in taken:
        with named(problem.sample.label):
            gauntlet.variants(problem)


@every_op
@pytest.mark.gpu
def test_gauntlet_graph_and_streams(op: str, everything: bool) -> None:
    """Capture and replay where promised; a second stream."""
    taken = list(problems(get_op(op), "cuda", everything=everything, count=FEW))
    gauntlet.warm([p.plan for p in taken])
    for problem in taken:
        with named(problem.sample.label):
            gauntlet.graph(problem)
            problem.reset()
            gauntlet.other_stream(problem)


@every_op
def test_gauntlet_refusals(op: str, backend: str, everything: bool) -> None:
    """A wrong operand of each sort: the right error, in words one can act on, and nothing is written."""
    count = 0
    for problem in problems(get_op(op), backend, everything=everything, count=FEW):
        for refusal in gauntlet.refusals(problem):
            with named(f"{problem.sample.label}: {refusal.operand} {refusal.label}"):
                gauntlet.refused(problem, refusal)
                count += 1
        with named(problem.sample.label):
            gauntlet.shared_memory(problem)
    assert count >= 3 * FEW


@every_op
def test_the_oracle_agrees_with_an_independent_implementation(op: str, everything: bool) -> None:
    """NumPy slicing, SciPy, mpmath: never the oracle's own code."""
    if op not in INDEPENDENT:
        pytest.skip(f"{op} has no independent implementation in tests/independent.py yet")
    for problem in problems(get_op(op), "cpu", everything=everything):
        with named(problem.sample.label):
            INDEPENDENT[op](problem)


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
    parameters = gauntlet._parameters(entry.function)
    for name in ("stream", "pref", "device"):
        assert parameters[name].kind is parameters[name].KEYWORD_ONLY


@every_op
@pytest.mark.parametrize("device", ["h200", "sm_80"])
def test_every_sample_selects_or_is_refused(op: str, device: str) -> None:
    """Selection and lowering on a device that is only named: no empty extent, no corner breaks a cost model."""
    for problem in problems(get_op(op), "cpu", everything=True):
        with named(problem.sample.label), contextlib.suppress(UnsupportedError):
            get_op(op).plan.select(problem.desc, device=device).selection.steps  # noqa: B018
