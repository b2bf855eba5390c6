"""dropout: which elements are dropped is a function of (seed, position); its gradient drops the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import baracuda_py as bp

COVERS = ("dropout", "dropout_backward")
X = np.linspace(1, 2, 67, dtype=np.float32)
HOW: dict[str, Any] = {"p": 0.3, "seed": 12}


@pytest.mark.parametrize("device", ["cpu", "ptx"])
def test_dropout_drops_the_same_of_every_kind_and_layout(device: str) -> None:
    kept = bp.dropout(X, **HOW, device=device) != 0
    assert np.array_equal(kept, ~bp.bernoulli(67, 0.3, seed=12, device=device))
    for dtype in ("float16", "float64"):
        assert np.array_equal(bp.dropout(X.astype(dtype), **HOW, device=device) != 0, kept)
    transposed = np.repeat(X, 2).reshape(67, 2).T[0]
    assert np.array_equal(bp.dropout(transposed[::-1], **HOW, device=device) != 0, kept)
    assert np.array_equal(bp.dropout_backward(X, **HOW, device=device) != 0, kept)


@pytest.mark.parametrize("device", ["cpu", "ptx"])
def test_dropout_equals_that_of_its_parts(device: str) -> None:
    whole = bp.dropout(X, **HOW, device=device)
    for cut in (1, 18, 64):
        parts = bp.dropout(X[:cut], **HOW, device=device), bp.dropout(X[cut:], **HOW, offset=cut, device=device)
        assert np.concatenate(parts).tobytes() == whole.tobytes()


@pytest.mark.parametrize("device", ["cpu", "ptx"])
def test_dropout_in_place_and_with_a_residual(device: str) -> None:
    wanted = bp.dropout(X, **HOW, device=device)
    x = X.copy()
    assert bp.dropout(x, **HOW, out=x, device=device) is x and np.array_equal(x, wanted)
    rest = X.copy()
    bp.dropout(X, **HOW, residual=rest, out=rest, device=device)
    assert np.allclose(rest, wanted + X, rtol=1e-6)


@pytest.mark.parametrize("device", ["cpu", "ptx"])
def test_dropout_of_nothing_and_of_all(device: str) -> None:
    odd = np.array([np.nan, np.inf, -0.0, 1.0], np.float32)
    same = bp.dropout(odd, 0.0, device=device)
    assert np.array_equal(same, odd, equal_nan=True) and np.signbit(same[2])
    assert not bp.dropout(odd, 1.0, device=device).any()
    assert bp.dropout(odd, 1.0, residual=X[:4], device=device).tobytes() == X[:4].tobytes()


def test_dropout_keeps_the_mean() -> None:
    for p in (0.1, 0.5, 0.9):
        y = bp.dropout(np.ones(20_000, np.float32), p, seed=6, device="cpu")
        assert abs(y.mean() - 1) < 3.3 * np.sqrt(p / (1 - p) / 20_000)


@pytest.mark.parametrize("device", ["cpu", "ptx"])
def test_dropout_of_a_generator_moves_on(device: str) -> None:
    g = bp.Generator(12, device=device)
    first, second = (g.dropout(X, 0.3) for _ in range(2))
    assert np.array_equal(first, bp.dropout(X, **HOW, device=device))
    assert np.array_equal(second, bp.dropout(X, **HOW, offset=67, device=device))


def test_dropout_of_a_generator_keeps_its_position() -> None:
    """Its gradient is of the position of its own call, though the generator has moved on."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("baracuda_py.interop.torch")
    g, x = bp.Generator(12, device="cpu"), torch.ones(64, requires_grad=True)
    with bp.device("cpu"):
        y = g.dropout(x, 0.5)
        bp.uniform(9, generator=g)
        y.sum().backward()
    assert torch.equal(x.grad, y.detach()) and 0 < int((y == 0).sum()) < 64


REFUSED: tuple[tuple[str, Callable[..., Any], type[bp.BaracudaError], str], ...] = (
    ("p", lambda: bp.dropout(X, 1.5, device="cpu"), bp.InvalidProblemError, "p=1.5 is no probability"),
    ("p nan", lambda: bp.dropout(X, float("nan"), device="cpu"), bp.InvalidProblemError, "no probability"),
    ("offset", lambda: bp.dropout(X, offset=-1, device="cpu"), bp.InvalidProblemError, "offset=-1"),
    ("position", lambda: bp.dropout(X, position=np.array([-1]), device="ptx"), bp.InvalidProblemError, "negative"),
    ("residual", lambda: bp.dropout(X, residual=X[:5], device="cpu"), bp.InvalidProblemError, "residual"),
    ("residual kind", lambda: bp.dropout(X, residual=X.astype("f8"), device="cpu"), bp.OperandTypeError, "residual must hold"),
    ("kind", lambda: bp.dropout(X.astype(int), device="cpu"), bp.OperandTypeError, "must hold f16"),
    ("overlap", lambda: bp.dropout(X[1:], out=X[:-1], device="cpu"), bp.OverlapError, "out"),
)  # fmt: skip


@pytest.mark.parametrize(("call", "error", "says"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_dropout_bad_arguments_are_refused(call: Any, error: Any, says: str) -> None:
    before = X.tobytes()
    with pytest.raises(error, match=says):
        call()
    assert X.tobytes() == before


def test_dropout_gradient_in_torch() -> None:
    torch = pytest.importorskip("torch")
    x, rest = (torch.from_numpy(X.copy()).requires_grad_() for _ in range(2))
    grad = torch.from_numpy(X[::-1].copy())
    position = torch.tensor([5])
    y = bp.dropout(x, 0.3, residual=rest, seed=12, position=position, device="cpu")
    y.backward(grad)
    wanted = bp.dropout_backward(grad.numpy(), **HOW, offset=5, device="cpu")
    assert np.array_equal(x.grad.numpy(), wanted) and torch.equal(rest.grad, grad)


def test_dropout_compiles_in_torch() -> None:
    torch = pytest.importorskip("torch")

    def step(x: Any) -> Any:
        return bp.dropout(x * 2, 0.3, seed=12, device="cpu") + 1

    x = torch.from_numpy(X.copy()).requires_grad_()
    made = torch.compile(step, backend="aot_eager", fullgraph=True)(x)
    made.sum().backward()
    assert torch.equal(made, step(x.detach()))
    assert np.array_equal(x.grad.numpy(), 2 * bp.dropout_backward(np.ones_like(X), **HOW, device="cpu"))
