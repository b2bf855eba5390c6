"""What samples of a few rows and one type do not reach: stripes of several rows, wide integers, values that round twice."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bp

WHERE = ("ptx", pytest.param("cuda", marks=pytest.mark.gpu))
ROWS = {"ptx": 700, "cuda": 9001}  # more than one for each CTA's groups


def called(function: Any, where: str, *arrays: Any, **options: Any) -> Any:
    """The function's results on the host, of arrays that are on the host."""
    if where == "ptx":
        return function(*arrays, **options, device=where)
    import cupy

    found = function(*(cupy.asarray(x) for x in arrays), **options)
    return tuple(x.get() for x in found) if isinstance(found, tuple) else found.get()


@pytest.mark.parametrize("where", WHERE)
def test_gradients_of_norms_by_stripes_of_several_rows(where: str) -> None:
    rng, columns = np.random.default_rng(3), 64
    x, grad = (rng.standard_normal((ROWS[where], columns)).astype(np.float32) for _ in range(2))
    weight = rng.standard_normal(columns).astype(np.float32)
    h, g, w = (a.astype(np.float64) for a in (x, grad, weight))
    rstd = 1 / np.sqrt((h * h).mean(axis=1, keepdims=True) + 1e-5)
    of_x, of_weight = called(bp.rms_norm_backward, where, grad, x, weight, rstd[:, 0].astype(np.float32))
    normal, scaled = h * rstd, g * w
    wanted = rstd * (scaled - normal * (scaled * normal).mean(axis=1, keepdims=True))
    np.testing.assert_allclose(of_x, wanted, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(of_weight, (g * normal).sum(axis=0), rtol=1e-4, atol=1e-2)


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("op", ["erf", "gelu", "neg", "relu", "silu", "sqrt", "tanh"])
def test_zeros_keep_their_sign_in_kernels(op: str, where: str) -> None:
    """To which a bound in ulps is blind."""
    for kind in (bp.F16, bp.BF16, bp.F32, bp.F64):
        x = np.array([-0.0, 0.0], np.float32).astype(kind.dtype)
        found = np.signbit(called(getattr(bp, op), where, x).astype(np.float32))
        assert (found == np.signbit(getattr(bp, op)(x, device="cpu").astype(np.float32))).all(), kind


@pytest.mark.parametrize("where", WHERE)
def test_signed_and_unsigned_integers_are_compared_as_numbers(where: str) -> None:
    signed = np.array([-1, 1, -(2**63), 2**63 - 1, 0, -5], np.int64)
    unsigned = np.array([1, 2, 0, 2**63, 2**64 - 1, 2**64 - 5], np.uint64)
    wanted = [int(a) < int(b) for a, b in zip(signed, unsigned)]
    assert called(bp.less, where, signed, unsigned).tolist() == wanted
    assert called(bp.less, where, unsigned, signed).tolist() == [int(b) < int(a) for a, b in zip(signed, unsigned)]


@pytest.mark.parametrize("where", WHERE)
def test_a_cast_rounds_once(where: str) -> None:
    """By way of f32 these would be ties, and go to even: down."""
    for kind, ulp in ((bp.BF16, 2.0**-7), (bp.F16, 2.0**-10)):
        x = np.array([1 + ulp / 2 + 2.0**-40, -1 - ulp / 2 - 2.0**-40], np.float64)
        assert called(bp.cast, where, x, dtype=kind).astype(np.float64).tolist() == [1 + ulp, -1 - ulp]
