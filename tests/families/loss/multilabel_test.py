"""The multi-label margin loss against torch on the host; ends of rows, duplicates, targets out of range, corners."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bp

rng = np.random.default_rng(10)


def compared(x: Any, target: Any, reduction: str, backend: str) -> None:
    """The loss and its gradient beside torch's."""
    torch = pytest.importorskip("torch")
    held = torch.tensor(x, requires_grad=True)
    wanted = torch.nn.functional.multilabel_margin_loss(held, torch.tensor(target), reduction=reduction)
    got = bp.multilabel_margin_loss(x, target, reduction=reduction, device=backend)
    assert np.allclose(got, wanted.detach().numpy(), rtol=1e-13, atol=1e-14)
    grad = np.asarray(rng.standard_normal(got.shape))
    wanted.backward(torch.tensor(grad))
    got = bp.multilabel_margin_loss_backward(grad, x, target, reduction=reduction, device=backend)
    assert np.allclose(got, held.grad.numpy(), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("backend", ["cpu", "ptx"])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_multilabel_margin_is_that_of_torch(reduction: str, backend: str) -> None:
    """Rows that end at once, that have all classes as targets, and that have some twice; warps and CTAs per row."""
    for shape in ((6, 13), (13,), (3, 300), (1, 1)):
        target = rng.integers(0, shape[-1], shape)
        rows = target.reshape(-1, shape[-1])
        rows[-1, min(5, shape[-1] - 1) :] = -1
        if len(rows) > 2:
            rows[0], rows[1, 0] = rng.permutation(shape[-1]), -1
        compared(rng.standard_normal(shape), target, reduction, backend)


@pytest.mark.parametrize("backend", ["cpu", "ptx"])
def test_multilabel_margin_counts_duplicates(backend: str) -> None:
    x = rng.standard_normal((1, 5))
    once, twice = (np.array([[*t, *[-1] * (5 - len(t))]]) for t in ([2], [2, 2]))
    for call in (
        lambda t: bp.multilabel_margin_loss(x, t, device=backend),
        lambda t: bp.multilabel_margin_loss_backward(np.ones(()), x, t, device=backend),
    ):
        assert np.allclose(call(twice), 2 * call(once), rtol=1e-13)
    compared(x, twice, "mean", backend)


@pytest.mark.parametrize("backend", ["cpu", "ptx"])
def test_multilabel_margin_at_the_hinge(backend: str) -> None:
    """A term of 0 has no slope."""
    compared(np.eye(3, 4) + np.eye(3, 4, 1), np.array([[0, 1, -1, 0], [1, -1, 0, 0], [2, 3, -1, 3]]), "sum", backend)
    compared(np.eye(2, 4), np.array([[0, -1, 0, 0], [1, -1, 0, 0]]), "sum", backend)


@pytest.mark.parametrize("backend", ["cpu", "ptx"])
@pytest.mark.parametrize("label", [-2, 7, 2**40, -(2**63)])
def test_multilabel_target_out_of_range(label: int, backend: str) -> None:
    x, target = rng.standard_normal((5, 7)).astype(np.float32), np.full((5, 7), -1)
    target[:, :3], grad, out = rng.integers(0, 7, (5, 3)), np.ones(5, np.float32), np.full((), 7, np.float32)
    target[1, 2], target[0, 5] = label, label  # the latter follows the end of its row
    slopes, status = np.full((5, 14), 3, np.float32), np.full((), 9, np.int32)
    with pytest.raises(bp.InvalidProblemError, match=rf"target\[1, 2\] = {label} is neither a class, 0 to 6, nor -1"):
        bp.multilabel_margin_loss(x, target, out=out, device=backend)
    assert out == 7
    bp.multilabel_margin_loss_backward(
        grad, x, target, reduction="none", grad_x=slopes[:, :7], status=status, device=backend
    )
    assert status == 1 and (slopes[:, 7:] == 3).all()
    assert np.isnan(slopes[:, :7]).all(axis=1).tolist() == [False, True, False, False, False]
    got, _ = bp.multilabel_margin_loss(x, target, reduction="none", status=status, device=backend)
    assert np.isnan(got).tolist() == [False, True, False, False, False]
    target[1, 2] = -1
    got, status = bp.multilabel_margin_loss(x, target, return_status=True, device=backend)
    assert status == 0 and np.isfinite(got)


@pytest.mark.parametrize("backend", ["cpu", "ptx"])
def test_multilabel_margin_of_nan_and_infinities(backend: str) -> None:
    x = np.zeros((4, 4))
    x[0, 1], x[1, 1], x[2, 1], x[3, 0] = np.nan, np.inf, -np.inf, np.nan
    target = np.array([[0, -1, 0, 0]] * 4)
    got = bp.multilabel_margin_loss(x, target, reduction="none", device=backend)
    assert np.array_equal(got, [np.nan, np.inf, 0.5, np.nan], equal_nan=True)
    got = bp.multilabel_margin_loss_backward(np.full(4, 4.0), x, target, reduction="none", device=backend)
    assert np.array_equal(got, [[-2, 0, 1, 1], [-3, 1, 1, 1], [-2, 0, 1, 1], [0, 0, 0, 0]])


@pytest.mark.parametrize("backend", ["cpu", "ptx"])
def test_multilabel_margin_sums_many_rows(backend: str) -> None:
    """More rows than groups of threads: each adds up several."""
    x, target = rng.standard_normal((9000, 2)), np.tile([[1, -1], [0, 1], [-1, 0]], (3000, 1))
    term = np.maximum(1 - x[::3, 1] + x[::3, 0], 0) / 2
    got = bp.multilabel_margin_loss(x, target, device=backend)
    assert np.allclose(got, term.sum() / 9000, rtol=1e-12)


def test_multilabel_margin_refuses_other_shapes() -> None:
    x, target = np.zeros((2, 3), np.float32), np.zeros((2, 3), np.int64)
    with pytest.raises(bp.InvalidProblemError, match=r"x must have shape \[N, C\]"):
        bp.multilabel_margin_loss(x[None], target[None], device="cpu")
    with pytest.raises(bp.BaracudaError, match="target"):
        bp.multilabel_margin_loss(x, target[:, :2], device="cpu")
    with pytest.raises(bp.OperandTypeError, match="target must hold i32 or i64, got f32"):
        bp.multilabel_margin_loss(x, x, device="cpu")
    with pytest.raises(bp.InvalidProblemError, match="reduction"):
        bp.multilabel_margin_loss(x, target, reduction="max", device="cpu")
    got = bp.multilabel_margin_loss(x[:0], target[:0], reduction="sum", device="cpu")
    assert got == 0 and np.isnan(bp.multilabel_margin_loss(x[:0], target[:0], device="cpu"))
