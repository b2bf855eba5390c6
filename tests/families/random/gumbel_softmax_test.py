"""gumbel_softmax: the noise is that of fill_gumbel at each element's position, and the gradient draws it again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bp

COVERS = ("gumbel_softmax", "gumbel_softmax_backward")
X = np.random.default_rng(3).standard_normal((5, 36)).astype(np.float32)
HOW: dict[str, Any] = {"tau": 0.7, "seed": 21}


@pytest.mark.parametrize("device", ["cpu", "ptx"])
def test_gumbel_softmax_is_that_of_the_noise_of_fill_gumbel(device: str) -> None:
    for offset, axis in ((0, -1), (3, -1), (8, 0)):
        noise = bp.gumbel(X.shape, seed=21, offset=offset, device=device)
        wanted = bp.softmax((X + noise) / np.float32(0.7), axis=axis, device="cpu")
        got = bp.gumbel_softmax(X, **HOW, offset=offset, axis=axis, device=device)
        assert np.allclose(got, wanted, rtol=2e-5, atol=1e-7)
        hard = bp.gumbel_softmax(X, **HOW, offset=offset, axis=axis, hard=True, device=device)
        assert np.array_equal(hard.argmax(axis), wanted.argmax(axis)) and np.array_equal(np.unique(hard), [0, 1])


@pytest.mark.parametrize("device", ["cpu", "ptx"])
def test_gumbel_softmax_of_any_layout_is_the_same(device: str) -> None:
    wanted = bp.gumbel_softmax(X, **HOW, device=device)
    for view in (np.asfortranarray(X), np.repeat(X, 2, axis=1)[:, ::2], X[::-1].copy()[::-1]):
        assert np.allclose(bp.gumbel_softmax(view, **HOW, device=device), wanted, rtol=1e-5, atol=1e-7)
    parts = [bp.gumbel_softmax(X[i : i + 1], **HOW, offset=36 * i, device=device) for i in range(5)]
    assert np.concatenate(parts).tobytes() == wanted.tobytes()


@pytest.mark.parametrize("device", ["cpu", "ptx"])
def test_gumbel_softmax_gradient_is_that_of_the_soft_result(device: str) -> None:
    grad = np.random.default_rng(4).standard_normal(X.shape).astype(np.float32)
    y = bp.gumbel_softmax(X, **HOW, device=device)
    wanted = bp.softmax_backward(grad, y, device="cpu") / np.float32(0.7)
    assert np.allclose(bp.gumbel_softmax_backward(grad, X, **HOW, device=device), wanted, rtol=1e-4, atol=1e-6)
    into = grad.copy()
    bp.gumbel_softmax_backward(into, X, **HOW, grad_x=into, device=device)
    assert np.allclose(into, wanted, rtol=1e-4, atol=1e-6)


def test_gumbel_softmax_samples_the_classes() -> None:
    p = np.array([0.6, 0.3, 0.1])
    hard = bp.gumbel_softmax(np.tile(np.log(p), (20_000, 1)), 1.0, hard=True, seed=2, device="cpu")
    assert np.all(np.abs(hard.mean(axis=0) - p) < 4 * np.sqrt(p * (1 - p) / 20_000))


@pytest.mark.parametrize("device", ["cpu", "ptx"])
def test_gumbel_softmax_of_a_generator_moves_on(device: str) -> None:
    g = bp.Generator(21, device=device)
    first, second = (g.gumbel_softmax(X, 0.7) for _ in range(2))
    assert np.array_equal(first, bp.gumbel_softmax(X, **HOW, device=device))
    assert np.array_equal(second, bp.gumbel_softmax(X, **HOW, offset=X.size, device=device))


def test_gumbel_softmax_refuses_what_is_no_temperature() -> None:
    for tau in (0.0, -1.0, float("nan"), float("inf"), 1e-31):
        with pytest.raises(bp.InvalidProblemError, match=r"gumbel_softmax: tau=.* is not between"):
            bp.gumbel_softmax(X, tau, device="ptx")
    with pytest.raises(bp.InvalidProblemError, match="offset=-1"):
        bp.gumbel_softmax(X, offset=-1, device="ptx")
    with pytest.raises(bp.InvalidProblemError, match="axis 2 is out of range"):
        bp.gumbel_softmax(X, axis=2, device="ptx")


@pytest.mark.parametrize("device", ["cpu", "ptx"])
def test_gumbel_softmax_takes_the_ends_of_temperatures(device: str) -> None:
    assert np.allclose(bp.gumbel_softmax(X, 1e30, device=device), 1 / X.shape[1], rtol=1e-6)
    assert np.array_equal(
        bp.gumbel_softmax(X, 1e-30, seed=21, device=device), bp.gumbel_softmax(X, seed=21, hard=True, device=device)
    )


def test_gumbel_softmax_with_torch_is_straight_through() -> None:
    torch = pytest.importorskip("torch")
    x = torch.tensor(X, requires_grad=True)
    grad = torch.tensor(np.random.default_rng(4).standard_normal(X.shape).astype(np.float32))
    bp.gumbel_softmax(x, 0.7, hard=True, seed=21, device="cpu").backward(grad)
    wanted = bp.gumbel_softmax_backward(grad.numpy(), X, **HOW, device="cpu")
    assert np.allclose(x.grad.numpy(), wanted, rtol=1e-5, atol=1e-7)
