"""masked_select and masked_scatter beside PyTorch's: trimming, gradients, sources that are short, places in memory, refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import baracuda_py as bp

COVERS = ("masked_select", "masked_scatter")
DEVICES = ("cpu", "ptx")
RNG = np.random.default_rng(3)
X, MASK = RNG.standard_normal((9, 131)).astype(np.float32), RNG.random((9, 131)) < 0.4


@pytest.mark.parametrize("device", DEVICES)
def test_masked_select_is_trimmed_to_the_count(device: str) -> None:
    assert np.array_equal(bp.masked_select(X, MASK, device=device), X[MASK])
    flipped = bp.masked_select(X[::-1, ::-2], MASK[::-1, ::2], device=device)
    assert np.array_equal(flipped, X[::-1, ::-2][MASK[::-1, ::2]])
    made = bp.masked_select(X, MASK, size=7, device=device)
    assert made.out.tolist() == X[MASK][:7].tolist() and made.count.tolist() == [np.count_nonzero(MASK)]
    assert bp.masked_select(X[:0], MASK[:0], device=device).shape == (0,)


@pytest.mark.parametrize("device", DEVICES)
def test_masked_select_of_an_empty_shape_fills_its_size(device: str) -> None:
    made = bp.masked_select(X[:0], MASK[:0], size=3, out=np.full(3, 7, np.float32), device=device)
    assert made.out.tolist() == [0, 0, 0] and made.count.tolist() == [0]


@pytest.mark.parametrize("device", DEVICES)
def test_masked_scatter_in_place_and_with_a_short_source(device: str) -> None:
    out, source = X.copy(), np.arange(20, dtype=np.float32)
    made = bp.masked_scatter(out, MASK, source, mode="status", out=out, device=device)
    assert int(made.status) == 1
    wanted = X.copy()
    wanted.reshape(-1)[np.flatnonzero(MASK)[:20]] = source
    assert np.array_equal(out, wanted)
    kept = X.copy()
    with pytest.raises(bp.InvalidProblemError, match="source has 20 elements, and 503 are under the mask"):
        bp.masked_scatter(X, MASK, source, mode="raise", out=kept, device=device)
    assert np.array_equal(kept, X)
    broadcast = bp.masked_scatter(X, MASK[:1], np.zeros(9 * 131, np.float32), mode="raise", device=device)
    assert np.array_equal(broadcast, np.where(MASK[:1], 0, X))


@pytest.mark.parametrize("device", DEVICES)
def test_masked_scatter_gradient_in_place(device: str) -> None:
    grad, source = X.copy(), np.zeros((50, 50), np.float32)
    made = bp.masked_scatter_backward(grad, MASK, source, grad_x=grad, device=device)
    assert np.array_equal(grad, np.where(MASK, 0, X))
    found = X[MASK]
    assert np.array_equal(made.grad_source.reshape(-1)[: found.size], found)
    assert not made.grad_source.reshape(-1)[found.size :].any()


@pytest.mark.parametrize("device", DEVICES)
def test_masked_ops_have_the_gradients_of_torch(device: str) -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    x = torch.randn(5, 1, 9, dtype=torch.float64, requires_grad=True)
    source = torch.randn(20, 15, dtype=torch.float64, requires_grad=True)
    mask = torch.rand(6, 9) < 0.5
    with bp.device(device):
        for ours, right, leaves in (
            (lambda: bp.masked_select(x, mask), lambda: torch.masked_select(x, mask), (x,)),
            (
                lambda: bp.masked_scatter(x, mask, source),
                lambda: x.expand(5, 6, 9).masked_scatter(mask, source),
                (x, source),
            ),
        ):
            made, wanted = ours(), right()
            assert torch.equal(made, wanted)
            weight = torch.randn_like(made)
            got = torch.autograd.grad((made * weight).sum(), leaves)
            for a, b in zip(got, torch.autograd.grad((wanted * weight).sum(), leaves)):
                assert torch.equal(a, b)


def test_counted_results_under_autocast() -> None:
    torch = pytest.importorskip("torch")
    x = torch.tensor([[0.0, 2.0], [3.0, 0.0]], requires_grad=True)
    with bp.device("cpu"), torch.autocast("cpu", torch.bfloat16):
        assert bp.nonzero(x).tolist() == [[0, 1], [1, 0]]
        assert bp.masked_select(x, x > 0).tolist() == [2, 3]


def test_recorded_masked_select_needs_a_size() -> None:
    x = X.copy()
    with pytest.raises(bp.UnsupportedError, match="trim=False"), bp.record():
        bp.masked_select(x, MASK, device="cpu")
    with bp.record() as step:
        made = bp.masked_select(x, MASK, size=10, device="cpu")
    x += 1
    step()
    assert np.array_equal(made.out, x[MASK][:10])


REFUSED: tuple[tuple[Callable[[], Any], type[bp.BaracudaError], str], ...] = (
    (
        lambda: bp.masked_select(X, MASK.astype(np.uint8), device="cpu"),
        bp.OperandTypeError,
        "mask must hold bool, got u8",
    ),
    (lambda: bp.masked_select(X, MASK[:, :5], device="cpu"), bp.InvalidProblemError, r"mask of shape \(9, 5\) do not"),
    (lambda: bp.masked_select(X, MASK, size=-1, device="cpu"), bp.InvalidProblemError, "size=-1 is negative"),
    (lambda: bp.masked_scatter(X, MASK, X.astype("f8"), device="cpu"), bp.OperandTypeError, "source must hold f32"),
    (lambda: bp.masked_scatter(X, MASK, X, mode="clip", device="cpu"), bp.InvalidProblemError, "one of drop, status"),
    (lambda: bp.masked_scatter(X, MASK, X, mode="raise", device="h200"), bp.UnsupportedError, 'mode="status"|status'),
    (
        lambda: bp.masked_select_backward(X, MASK, X, device="cpu"),
        bp.InvalidProblemError,
        r"grad has shape \(9, 131\), and the result of masked_select one axis",
    ),
    (
        lambda: bp.masked_scatter_backward(X[:1], MASK, X, device="cpu"),
        bp.InvalidProblemError,
        r"mask of shape \(9, 131\) does not broadcast to grad's shape \(1, 131\)",
    ),
)


@pytest.mark.parametrize(("call", "error", "says"), REFUSED)
def test_masked_ops_refuse(call: Callable[[], Any], error: Any, says: str) -> None:
    with pytest.raises(error, match=says):
        call()
