"""Fused functions that differ in a constant alone, several results in one place, and options of a nested call."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import baracuda_py as bp

COVERS = ()
X = np.array([1, 2, -3], np.float32)


@pytest.mark.parametrize("device", ["cpu", "ptx"])
def test_fused_constants_of_either_zero_are_not_one(device: str) -> None:
    plus, minus = bp.fuse(lambda x: bp.copysign(x, 0.0)), bp.fuse(lambda x: bp.copysign(x, -0.0))
    assert plus(X, device=device).tolist() == [1, 2, 3]
    assert minus(X, device=device).tolist() == [-1, -2, -3]
    both = bp.fuse(lambda x: (bp.copysign(x, -0.0), bp.copysign(x, 0.0)))(X, device=device)
    assert [one.tolist() for one in both] == [[-1, -2, -3], [1, 2, 3]]


@pytest.mark.parametrize("device", ["cpu", "ptx"])
def test_fused_constants_of_another_type_are_not_one(device: str) -> None:
    x = X.astype(np.int32)
    functions = (
        lambda x: x * 2,
        lambda x: x * 2.0,
        lambda x: x + 1,
        lambda x: x + 1.0,
        lambda x: x**2,
        lambda x: x**2.0,
    )
    kinds = [bp.fuse(function)(x, device=device).dtype for function in functions]
    assert kinds == [np.int32, np.float64] * 3


@pytest.mark.parametrize("device", ["cpu", "ptx"])
def test_fused_results_in_one_place_are_refused(device: str) -> None:
    fused, out = bp.fuse(lambda x: (x * 2, x * 3)), X.copy()
    with pytest.raises(bp.OverlapError, match="out1 is written and shares memory with out2"):
        fused(X, out=(out, out), device=device)
    assert out.tolist() == X.tolist()
    fused(out, out=(out, np.empty_like(out)), device=device)  # one of them in place
    assert out.tolist() == [2, 4, -6]


@pytest.mark.parametrize("device", ["cpu", "ptx"])
def test_gradients_in_one_place_are_refused(device: str) -> None:
    out = np.zeros_like(X)
    with pytest.raises(bp.OverlapError, match="grad_x1 is written and shares memory with grad_x2"):
        bp.multiply_backward(X, X, X, grad_x1=out, grad_x2=out, device=device)
    assert not out.any()


@pytest.mark.parametrize("how", [{"out": X}, {"device": "cpu"}, {"stream": 1}, {"pref": bp.PlanPreference()}], ids=str)
def test_fused_within_another_takes_no_options(how: dict[str, Any]) -> None:
    inner = bp.fuse(lambda x: x * 2)
    with pytest.raises(bp.UnsupportedError, match="inside a fused function"):
        bp.fuse(lambda x: inner(x, **how) + 1)(X, device="cpu")


@pytest.mark.parametrize("device", ["cpu", "ptx"])
def test_fused_constants_that_are_not_finite(device: str) -> None:
    fused = bp.fuse(lambda x: (bp.minimum(x, math.inf), x + -math.inf, x * math.nan))
    same, least, none = fused(X, device=device)
    assert same.tolist() == X.tolist() and least.tolist() == [-math.inf] * 3 and np.isnan(none).all()


@pytest.mark.parametrize("device", ["cpu", "ptx"])
def test_fused_integer_constants_at_the_ends(device: str) -> None:
    lowest = -(2**63)
    x = np.array([lowest, 0, 5])
    assert bp.fuse(lambda x: bp.maximum(x, lowest) ^ lowest)(x, device=device).tolist() == [0, lowest, lowest + 5]
    most = bp.fuse(lambda x: x + (2**64 - 1))(np.array([0, 1], np.uint64), device=device)
    assert most.tolist() == [2**64 - 1, 0]


@pytest.mark.parametrize("kind", [bp.F16, bp.BF16])
def test_fused_bound_of_a_cast_covers_both_neighbours(kind: Any) -> None:
    """A rounded argument near the middle of two numbers of 16 bits may become either."""
    x = np.linspace(-4, 4, 1 << 17, dtype=np.float32)
    fused = bp.fuse(lambda x: bp.cast(bp.exp(x) * 0.1, kind))
    assert 0 < fused.plan(x, device="ptx").verify(x1=x).outputs[0].share <= 1
