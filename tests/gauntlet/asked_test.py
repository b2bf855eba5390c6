"""``bp.<op>.of``, ``.plan`` and ``.bind`` of every op: what a call of the function selects and computes, from its arguments."""

from __future__ import annotations

import inspect
import pydoc
from typing import Any

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.plan import all_ops, get_op

from . import Case, every_sample

COUNT = 4


@every_sample("cpu", count=COUNT, bounded=1, turns=True)
def test_asked_plan_is_the_one_of_the_descriptor(case: Case) -> None:
    problem = case.problem
    wanted = problem.op.plan.select(problem.desc, device="h200")
    function: Any = problem.op.function
    asked = problem.call_function(function.plan, device="h200")
    assert type(asked) is problem.op.plan
    described = problem.call_function(function.of, device=None)
    assert type(described) is type(problem.desc)
    assert described.canonical() == asked.desc.canonical()
    assert (asked.desc.op, asked.sku.variant) == (wanted.desc.op, wanted.sku.variant)


@every_sample("cpu", count=COUNT, bounded=1, turns=True)
def test_asked_bind_computes_what_the_function_does(case: Case) -> None:
    problem = case.problem
    function: Any = problem.op.function
    bound = problem.call_function(function.bind)
    problem.check_unchanged()
    made = bound()
    made = made if isinstance(made, tuple) else (made,)
    for name, result in zip(bound.selection.written, made, strict=True):
        if name not in problem.given:
            problem.check_result(name, result)
    if all(name in problem.given for name in problem.written):
        problem.check_images(problem.images())


@pytest.mark.parametrize("op", list(all_ops()))
def test_asked_functions_have_the_signature_of_the_op(op: str) -> None:
    function: Any = get_op(op).function
    for name in ("of", "plan", "bind"):
        asked = getattr(function, name)
        assert inspect.signature(asked) == inspect.signature(function)
        assert asked.__qualname__ == f"{function.__name__}.{name}" and len(asked.__doc__.splitlines()) <= 3
    page = pydoc.render_doc(function, renderer=pydoc.plaintext)
    assert "answer_about" not in page and function.__doc__.strip().partition("\n")[0] in page


def test_asked_needs_no_gpu_and_no_descriptor() -> None:
    x, w = np.ones((4, 256), np.float16), np.ones((256, 64), np.float16)
    plan = bp.matmul.plan(x, w, activation="silu", pref=bp.PlanPreference(batch_invariant=True), device="h200")
    assert plan == bp.MatmulPlan.select(
        bp.MatmulDescriptor.of(x, w, activation="silu"), bp.PlanPreference(batch_invariant=True), device="h200"
    )
    assert bp.matmul.of(x, w) == bp.MatmulDescriptor.of(x, w)
    with pytest.raises(bp.InvalidProblemError, match="matmul"):
        bp.matmul.plan(x, w.T, device="h200")
    with pytest.raises(bp.UnsupportedError, match='device="cpu"'):
        bp.matmul.plan(x, w)
    bound = bp.matmul.bind(x, w, device="cpu")
    assert (bound() == 256).all()
    w[:] = 2
    assert (bound() == 512).all(), "a bound call reads its operands again"
    assert (bp.matmul(x, w, device="cpu") == 512).all(), "the function itself still launches"


def test_asked_of_a_trimmed_function() -> None:
    """The function waits for a count; its plan does not."""
    x = np.array([[0.0, 1.0], [2.0, 0.0]], np.float32)
    assert type(bp.nonzero.plan(x, device="h200")) is bp.NonzeroPlan
    made = bp.nonzero.bind(x, device="cpu")()
    assert int(made.count[0]) == 2 and made.out.shape == (4, 2)
