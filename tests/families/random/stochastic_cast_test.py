"""stochastic_cast: the mean is the number, and how one is rounded is a function of (seed, position)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bp

COVERS = ("stochastic_cast",)
X = np.random.default_rng(5).standard_normal(67).astype(np.float32)
HOW: dict[str, Any] = {"seed": 12, "subsequence": 2}


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_stochastic_cast_keeps_the_mean(dtype: str) -> None:
    for number, unit in ((1.0021, 2.0**-7), (-3.3e-6, 2.0**-24 if dtype == "f16" else 2.0**-26), (777.7, 4.0)):
        made = bp.stochastic_cast(np.full(40_000, number, np.float32), dtype, seed=3, device="cpu").astype(np.float64)
        assert len(np.unique(made)) == 2
        assert abs(made.mean() - np.float32(number)) < 4 * unit / 2 / 200, (number, made.mean())


@pytest.mark.parametrize("device", ["cpu", "ptx"])
def test_stochastic_cast_equals_that_of_its_parts(device: str) -> None:
    whole = bp.stochastic_cast(X, **HOW, device=device)
    for cut in (1, 5, 16):
        parts = [
            bp.stochastic_cast(X[:cut], **HOW, device=device),
            bp.stochastic_cast(X[cut:], **HOW, offset=cut, device=device),
        ]
        assert np.concatenate(parts).tobytes() == whole.tobytes()
    transposed = np.ascontiguousarray(X[:60].reshape(6, 10).T).T
    assert bp.stochastic_cast(transposed, **HOW, device=device).tobytes() == whole[:60].tobytes()


@pytest.mark.parametrize("device", ["cpu", "ptx"])
def test_stochastic_cast_of_a_generator_moves_on(device: str) -> None:
    g = bp.Generator(12, subsequence=2, device=device)
    first, second = (g.stochastic_cast(X, "f16") for _ in range(2))
    assert first.tobytes() == bp.stochastic_cast(X, "f16", **HOW, device=device).tobytes()
    assert second.tobytes() == bp.stochastic_cast(X, "f16", **HOW, offset=67, device=device).tobytes()


def test_small_updates_are_not_lost_in_the_mean() -> None:
    p, nearest = np.ones(2000, np.float32), np.ones(2000, np.float32)
    g = bp.Generator(1, device="cpu")
    for _ in range(100):
        p = g.stochastic_cast(p + np.float32(1e-4)).astype(np.float32)
        nearest = bp.cast(nearest + np.float32(1e-4), "bf16", device="cpu").astype(np.float32)
    assert (nearest == 1).all()
    assert abs(p.mean() - 1.01) < 2e-3


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: bp.stochastic_cast(X, "f32", device="cpu"), bp.InvalidProblemError, "dtype=f32"),
        (lambda: bp.stochastic_cast(X.astype("f8"), device="cpu"), bp.OperandTypeError, "x must hold f32"),
        (
            lambda: bp.stochastic_cast(X, out=np.zeros(67, "f2"), device="cpu"),
            bp.OperandTypeError,
            "out must hold bf16",
        ),
        (lambda: bp.stochastic_cast(X, offset=-1, device="cpu"), bp.InvalidProblemError, "offset=-1"),
    ],
    ids=["dtype", "kind", "out", "offset"],
)
def test_stochastic_cast_bad_arguments_are_refused(call: Any, error: Any, says: str) -> None:
    with pytest.raises(error, match=says):
        call()
