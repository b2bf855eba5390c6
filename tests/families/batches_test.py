"""Ops along an axis promise a row or a column the same bits in any batch: by itself with few others, and among more of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.ops._axis import AlongAxis
from baracuda_py.plan import all_ops, get_op
from baracuda_py.types import PlanPreference

from ..gauntlet import parameters

INVARIANT = PlanPreference(batch_invariant=True)
REDUCTIONS = ("sum", "mean", "var", "prod", "logsumexp", "norm", "argmax")
OPS = (
    *(
        name
        for name, op in all_ops().items()
        if issubclass(op.plan.descriptor, AlongAxis)
        and "axis" in (taken := parameters(op.function))
        and "seed" not in taken  # what is drawn goes by an element's place among all
    ),
    *REDUCTIONS,
)
LINES = 7  # an odd number, so that columns are taken one by one, and two at once of six


def operands(op: str, shape: tuple[int, int], kind: Any) -> list[Any]:
    """Values about which products stay finite, one array for each input that is not optional."""
    rng = np.random.default_rng(8)
    slots = get_op(op).plan.descriptor.slot_of.values()
    count = sum(slot.role == "in" and not slot.optional for slot in slots)
    return [(rng.uniform(0.7, 1.3, shape) * rng.choice([-1, 1], shape)).astype(kind) for _ in range(count)]


@pytest.mark.parametrize("axis", [1, 0])
@pytest.mark.parametrize("op", OPS)
def test_lines_have_the_same_bits_in_any_batch(op: str, axis: int) -> None:
    """A single column is a row in memory, which other kernels take: of columns there are three and six."""
    function: Any = getattr(bp, op)
    for extent, kind in ((33, np.float32), (1030, np.float32), (333, np.float16)):
        given = operands(op, (LINES, extent) if axis else (extent, LINES), kind)
        plan = function.plan(*given, axis=axis, pref=INVARIANT, device="ptx")
        assert plan.precision_guarantee.batch_invariant
        whole = function(*given, axis=axis, pref=INVARIANT, device="ptx")
        lines = whole.ndim - 1 if axis == 0 else 0  # of the result
        for count in (1, 2, 3) if axis else (3, 6):
            few = [np.ascontiguousarray(x.take(range(count), 1 - axis)) for x in given]
            found = function(*few, axis=axis, pref=INVARIANT, device="ptx")
            assert found.tobytes() == np.ascontiguousarray(whole.take(range(count), lines)).tobytes(), (extent, count)
