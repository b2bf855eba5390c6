"""Long rows that start at any address: norms, softmax and their gradients by aligned words."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.plan import get_op
from baracuda_py.samples import Sample

from ..gauntlet import Problem, admissible, served

rng = np.random.default_rng(11)
F16, F32, BF16 = np.dtype(np.float16), np.dtype(np.float32), np.dtype(ml_dtypes.bfloat16)
ALONG = {
    "softmax": ("x",), "log_softmax": ("x",), "softmax_backward": ("grad", "y"), "log_softmax_backward": ("grad", "y"),
    "rms_norm": ("x",), "layer_norm": ("x",),
}  # fmt: skip
PER_COLUMN = {"rms_norm": ("weight",), "layer_norm": ("weight", "bias")}


def rows_at(offset: int, count: int, length: int, dtype: Any) -> Any:
    """Rows of a matrix that has `offset` columns more, in front."""
    return rng.standard_normal((count, offset + length)).astype(dtype)[:, offset:]


def served_by_all(op: str, operands: dict[str, Any], **options: Any) -> None:
    problem = Problem(get_op(op), Sample("", operands, options), "ptx")
    plans = admissible(problem)
    assert {plan.sku.variant for plan in plans} >= {"rows", "unaligned"}
    served(problem, plans)


@pytest.mark.parametrize("op", ALONG)
def test_unaligned_rows(op: str) -> None:
    """Operands of different alignment; a last column that counts."""
    for offset, length in ((1, 2051), (4, 2055), (0, 2049)):
        operands = {name: rows_at(offset + i, 2, length, F16) for i, name in enumerate(ALONG[op])}
        operands["x" if "x" in operands else "grad"][:, -1] = 3
        operands |= {name: rows_at(i, 1, length, F16)[0] for i, name in enumerate(PER_COLUMN.get(op, ()), 1)}
        served_by_all(op, operands)


@pytest.mark.parametrize("kinds", [(BF16, BF16), (BF16, F32), (F32, F32)], ids=str)
@pytest.mark.parametrize("op", PER_COLUMN)
def test_weights_and_statistics(op: str, kinds: tuple[Any, Any]) -> None:
    """Weights that start anywhere, of x's kind and of f32; statistics as results."""
    kind, of_weight = kinds
    for parts in (PER_COLUMN[op], PER_COLUMN[op][1:])[: 2 if of_weight is kind else 1]:
        operands = {name: rows_at(i, 1, 2059, of_weight)[0] for i, name in enumerate(parts, 1)}
        operands |= {name: np.zeros(3, np.float32) for name in ("mean", "rstd")[op == "rms_norm" :]}
        served_by_all(op, {"x": rows_at(3, 3, 2059, kind), **operands})


@pytest.mark.parametrize("op", [op for op in ALONG if op not in ("softmax", "log_softmax")])
def test_where_a_row_starts_changes_no_bit(op: str) -> None:
    for length in (2049, 20_001):
        along = [rows_at(0, 3, length, F16) for _ in ALONG[op]]
        weights = [rows_at(0, 1, length, F16)[0] for _ in PER_COLUMN.get(op, ())]
        whole = getattr(bp, op)(*along, *weights, device="ptx")
        for offset in (1, 3, 4):
            moved = [rows_at(offset + i, 1, length, F16) for i in range(len(along))]
            for x, row in zip(along, moved):
                row[:] = x[2]
            assert np.array_equal(getattr(bp, op)(*moved, *weights, device="ptx")[0], whole[2])


@pytest.mark.parametrize("op", [op for op in ALONG if op not in ("softmax", "log_softmax")])
def test_in_place_of_what_is_read(op: str) -> None:
    out = "grad_x" if "backward" in op else "out"
    for i in range(len(ALONG[op])):
        along = [rows_at(1 + 2 * i, 3, 9001, F32) for i in range(len(ALONG[op]))]
        wanted = getattr(bp, op)(*along, device="ptx")
        assert getattr(bp, op)(*along, **{out: along[i]}, device="ptx") is along[i]
        assert np.array_equal(along[i], wanted)


def test_a_residual_is_refused() -> None:
    x = rows_at(1, 2, 2049, F16)
    with pytest.raises(bp.BaracudaError, match="residual"):
        bp.rms_norm(x, residual=x.copy(), pref=bp.PlanPreference(variant="unaligned"), device="ptx")
