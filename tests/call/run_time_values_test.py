"""Values that are given at run time reach the kernel in every call, also those that are computed from them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.call.cache import plan_cache
from baracuda_py.call.paths.recipe import Recipe
from baracuda_py.plan import all_ops, get_op

from ..gauntlet import Problem, samples_of
from .simulated import Gpus, simulated


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gpus]:
    yield from simulated(monkeypatch, "h200")


@pytest.mark.parametrize("op", [name for name, op in all_ops().items() if op.plan.descriptor.values])
def test_scalars_that_follow_from_values_are_declared(op: str) -> None:
    """A repeated call keeps the scalars of the first, but for the values that it passes and what `derived` names."""
    problems = [Problem(get_op(op), sample, "cpu") for sample in samples_of(get_op(op))]
    given = [problem.values for problem in problems if problem.values]
    for problem in problems:
        desc = problem.desc.canonical()
        kept = desc.resolve({})[1]
        for values in given:
            known = {name: x for name, x in values.items() if name in desc.values}
            try:
                scalars = desc.resolve(known)[1]
            except bp.BaracudaError:  # values of another problem, which this one refuses
                continue
            numbers = {name: x for name, x in scalars.items() if isinstance(x, (int, float)) and name not in known}
            moved = {name for name, x in numbers.items() if repr(x) != repr(kept[name])}
            assert moved <= set(desc.derived), f"{moved - set(desc.derived)} follow from {known}"


CALLS = {
    "dropout": lambda x, p: bp.dropout(x, p, seed=3, out=x),
    "uniform": lambda x, p: bp.fill_uniform(x, 0.0, 1.0 + p, seed=3),
    "normal": lambda x, p: bp.fill_normal(x, p, seed=3),
    "bernoulli": lambda x, p: bp.fill_bernoulli(x, p, seed=3),
}


@pytest.mark.parametrize("name", CALLS)
def test_repeated_function_launches_with_its_own_values(gpus: Gpus, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    fired: list[dict[str, Any]] = []
    monkeypatch.setattr(
        Recipe, "launch", lambda _self, _pointers, values, _scratch, _stream: fired.append(dict(values))
    )
    x, called = gpus.array(np.ones((3, 5), np.float32)), CALLS[name]
    for p in (0.25, 0.5, 0.25):
        called(x, p)
    assert fired[0] == fired[2] != fired[1]
    plan_cache.clear()
    called(x, 0.5)
    assert fired[3] == fired[1], "a repeated call launches with other values than a first one"
