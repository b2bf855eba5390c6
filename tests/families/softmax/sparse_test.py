"""sparsemax and entmax15 where a row holds infinities or NaN, on the host and emulated."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bp

COVERS = ("entmax15", "sparsemax")
INF, NAN = np.inf, np.nan


@pytest.mark.parametrize("device", ["cpu", "ptx"])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("function", [bp.sparsemax, bp.entmax15])
def test_sparse_rows_of_infinity_are_nan(function: Any, dtype: Any, device: str) -> None:
    """NaN, +inf and -inf alone make the whole row NaN; -inf beside a number is 0."""
    whole = np.array([[INF, 1, 2], [INF, INF, 2], [INF, -INF, 1], [NAN, 1, 2], [-INF, -INF, -INF]], dtype)
    assert np.isnan(function(whole, device=device)).all()
    beside = function(np.array([[-INF, 1, 1], [-INF, -INF, 5]], dtype), device=device)
    wanted = np.array([[0, 0.5, 0.5], [0, 0, 1]])
    assert np.allclose(beside, wanted, rtol=0, atol=1e-6)
