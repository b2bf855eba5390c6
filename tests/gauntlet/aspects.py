"""What is asked of every op: right results however it is called, of every variant, from a graph, on another stream."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

import baracuda_py as bp
from baracuda_py.plan import Plan
from baracuda_py.plan.about import tune
from baracuda_py.types import PlanPreference

from .problem import Problem, named, parameters

__all__ = ["admissible", "graph", "other_stream", "run", "served", "variants"]


def run(problem: Problem) -> None:
    """The plan, twice; bound; and the public function with and without its output given."""
    plan = problem.plan
    assert plan.can_implement(**problem.operands, **problem.values), "can_implement refuses its own operands"
    problem.reset()
    result = plan.run(**problem.operands, **problem.values)
    first = problem.images()
    problem.check_images(first)
    returned = result if isinstance(result, tuple) else (result,)
    for name, array in zip((n for n in problem.written if n in plan.selection.written), returned):
        assert array is problem.operands[name], f"run returns something else than {name}"
    problem.reset()
    bound = plan.bind(**problem.operands, **problem.values)
    problem.check_unchanged()
    bound()
    second = problem.images()
    for name in problem.written:
        if plan.precision_guarantee.of(name).deterministic:
            assert np.array_equal(first[name], second[name]), f"{name} differs between run and bound"
    if not plan.precision_guarantee.deterministic:
        problem.check_images(second)
    problem.reset()
    _function(problem)


def _function(problem: Problem) -> None:
    fresh = problem.call_function()
    outs = [o for o in problem.desc.operands if o.role == "out" and o.name not in problem.given]
    if not outs:
        problem.check_images(problem.images())
    else:
        made = fresh if isinstance(fresh, tuple) else (fresh,)
        for name, result in zip(problem.plan.selection.written, made, strict=True):
            if name not in problem.given:
                problem.check_result(name, result)
    known = parameters(problem.op.function)
    if all(o.name in known for o in outs) and outs:
        problem.reset()
        problem.call_function(**{o.name: problem.slots[o.name].operand for o in outs})
        problem.check_images(problem.images())


def variants(problem: Problem) -> None:
    """Every admissible variant, and every configuration of it, gives a result within its own guarantee."""
    served(problem, admissible(problem))


def served(problem: Problem, plans: Iterable[Plan[Any]]) -> None:
    """Each of the plans serves the problem within its guarantee and writes nothing else."""
    for plan in plans:
        with named(str(plan.sku)):
            problem.reset()
            plan.run(**problem.operands, **problem.values)
            problem.check_images(problem.images(), plan)


def admissible(problem: Problem) -> list[Plan[Any]]:
    """One plan for every admitted candidate and configuration."""
    plan = problem.plan
    return tune.admissible(type(plan), problem.desc, PlanPreference(deterministic=False), plan.device)


def graph(problem: Problem) -> None:
    """Captured and replayed twice, with other contents the second time round."""
    plan = problem.plan
    if not plan.capture_safe:
        return
    workspace = None
    if plan.workspace_size:
        import cupy

        workspace = cupy.empty(plan.workspace_size, np.uint8)
    bound = plan.bind(**problem.operands, **problem.values, workspace=workspace)
    held = bp.Graph(bound)
    problem.check_unchanged()
    for _ in range(2):
        problem.reset()
        held.launch()
        problem.check_images(problem.images())


def other_stream(problem: Problem) -> None:
    """On a non-blocking stream, given by name and made current."""
    import cupy

    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.runtime.deviceSynchronize()
    problem.plan.run(**problem.operands, **problem.values, stream=stream)
    problem.check_images(problem.images())
    problem.reset()
    cupy.cuda.runtime.deviceSynchronize()
    with stream:
        problem.plan.run(**problem.operands, **problem.values)
    problem.check_images(problem.images())
