"""Every op inside ``bp.record()``: its function is kept as plans, and a replay computes the same again."""

from __future__ import annotations

import numpy as np

import baracuda_py as bp

from ..arena import host
from . import Case, every_sample


@every_sample("cpu", count=4, bounded=1, turns=True)
def test_recorded_call_is_replayed(case: Case) -> None:
    problem = case.problem
    without_waiting = {"trim": False} if problem.op.name == "nonzero" else {}
    assert problem.slots, "the operands are older than the recording"
    with bp.record() as step:
        result = problem.call_function(**without_waiting)
    assert type(step.plans[-1]) is problem.op.plan
    made = result if isinstance(result, tuple) else (result,)
    for array in map(host, made):
        array[...] = np.zeros((), array.dtype)
    problem.reset()
    step()
    for name, x in zip(step.bounds[-1].selection.written, made, strict=True):
        if name not in problem.given:
            problem.check_result(name, x)
    if all(name in problem.given for name in problem.written):
        problem.check_images(problem.images())
