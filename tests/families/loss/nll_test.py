"""The negative log-likelihood against torch on the host; labels out of range."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bp

rng = np.random.default_rng(9)


@pytest.mark.parametrize("backend", ["cpu", "ptx"])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_nll_is_that_of_torch(reduction: str, backend: str) -> None:
    torch = pytest.importorskip("torch")
    x, labels, weight = rng.standard_normal((11, 7)), rng.integers(0, 7, 11), rng.random(7)
    labels[3] = 2
    both: tuple[dict[str, Any], ...] = ({}, {"weight": weight, "ignore_index": 2})
    for options in both:
        held = torch.tensor(x, requires_grad=True)
        given: dict[str, Any] = {n: torch.tensor(v) if n == "weight" else v for n, v in options.items()}
        wanted = torch.nn.functional.nll_loss(held, torch.tensor(labels), reduction=reduction, **given)
        got = bp.nll_loss(x, labels, reduction=reduction, **options, device=backend)
        assert np.allclose(got, wanted.detach().numpy(), rtol=1e-13, atol=1e-14)
        grad = np.asarray(rng.standard_normal(got.shape))
        wanted.backward(torch.tensor(grad))
        got = bp.nll_loss_backward(grad, x, labels, reduction=reduction, **options, device=backend)
        assert np.allclose(got, held.grad.numpy(), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("backend", ["cpu", "ptx"])
@pytest.mark.parametrize("label", [-1, 7, 2**40])
def test_nll_label_out_of_range(label: int, backend: str) -> None:
    x, labels = rng.standard_normal((5, 7)).astype(np.float32), rng.integers(0, 7, 5)
    labels[1], grad = label, np.ones(5, np.float32)
    slopes, status = np.full((5, 14), 3, np.float32), np.full((), 9, np.int32)
    with pytest.raises(bp.InvalidProblemError, match=rf"labels\[1\] = {label} is neither a class"):
        bp.nll_loss_backward(grad, x, labels, reduction="none", grad_x=slopes[:, :7], device=backend)
    assert (slopes == 3).all()
    bp.nll_loss_backward(grad, x, labels, reduction="none", grad_x=slopes[:, :7], status=status, device=backend)
    assert status == 1 and (slopes[:, 7:] == 3).all()
    assert np.isnan(slopes[:, :7]).all(axis=1).tolist() == [False, True, False, False, False]
    out, _ = bp.nll_loss(x, labels, reduction="none", status=status, device=backend)
    assert np.isnan(out).tolist() == [False, True, False, False, False]


def test_nll_of_another_shape_names_x() -> None:
    for shape in ((2, 3, 7), (4, 0), ()):
        with pytest.raises(bp.InvalidProblemError, match=r"nll_loss: x must have shape \[N, C\].*reshape x to"):
            bp.nll_loss(np.zeros(shape), np.zeros(shape[:-1], np.int64), device="cpu")
