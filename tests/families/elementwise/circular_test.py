"""sin, cos and tan of angles that are hard to reduce: large ones, and the floats nearest to multiples of pi / 2."""

from __future__ import annotations

import math
from typing import Any

import mpmath
import numpy as np
import pytest

import baracuda_py as bp

Array = np.ndarray[Any, Any]
REDUCED = {"float32": 63_000, "float64": 600_000_000}  # quarter turns that are subtracted as three numbers
# m 2^e that are the nearest to multiples of pi / 2 among all numbers of their type (J.-M. Muller, "Elementary Functions").
HARDEST = {"float32": math.ldexp(16367173, 72), "float64": math.ldexp(6381956970095103, 797)}


def angles(dtype: str, count: int) -> Array:
    rng, most = np.random.default_rng(5), np.finfo(dtype).maxexp
    spread = np.ldexp(rng.uniform(1, 2, count), rng.integers(-20, most, count)).astype(dtype)
    with mpmath.workprec(1200):
        turns = [int(rng.integers(1, 1 << 20)) << int(rng.integers(0, most - 24)) for _ in range(count)]
        turns += rng.integers(1, REDUCED[dtype], 10 * count).tolist()
        near = np.array([float(mpmath.mpf(n) * mpmath.pi / 2) for n in turns]).astype(dtype)
    edges = np.array([1e5, 1e9, HARDEST[dtype], np.finfo(dtype).max, math.pi, math.pi / 2], dtype)
    edges = np.concatenate([edges, np.nextafter(edges, np.zeros((), dtype))])
    x = np.concatenate([spread, near, edges])
    return np.concatenate([x, -x])


@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
@pytest.mark.parametrize(("dtype", "ulps"), [("float32", 2.5), ("float64", 3.5)])
def test_circular_functions_of_angles_that_are_hard(name: str, dtype: str, ulps: float) -> None:
    x = angles(dtype, 400)
    function = getattr(bp, name)
    got = function(x, device="ptx")
    with mpmath.workprec(1200):
        half = [getattr(mpmath, name)(mpmath.mpf(float(a))) for a in x[: len(x) // 2]]
        exact = [*half, *(of if name == "cos" else -of for of in half)]  # x ends with the negative ones
        worst = max(
            abs(mpmath.mpf(float(y)) - of) / mpmath.mpf(float(np.spacing(np.abs(np.array(float(of), dtype)))))
            for y, of in zip(got, exact)
        )
    assert worst <= (ulps if name != "tan" else 2 * ulps), f"{float(worst)} ulp"
    assert (function(x, device="ptx") == got).all()


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_circular_functions_of_zeros_and_infinities(dtype: str) -> None:
    x = np.array([0.0, -0.0, np.inf, -np.inf, np.nan], dtype)
    assert np.array_equal(np.signbit(bp.sin(x, device="ptx")[:2]), [False, True])
    assert np.array_equal(np.signbit(bp.tan(x, device="ptx")[:2]), [False, True])
    assert (bp.cos(x, device="ptx")[:2] == 1).all()
    for function in (bp.sin, bp.cos, bp.tan):
        assert np.isnan(function(x, device="ptx")[2:]).all()
