"""Losses of elements against torch on the host, over every option; what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.plan import get_op

rng = np.random.default_rng(6)
CALLS: dict[str, tuple[dict[str, Any], ...]] = {
    "mse_loss": ({},),
    "l1_loss": ({},),
    "smooth_l1_loss": ({}, {"beta": 0.4}, {"beta": 0.0}),
    "huber_loss": ({}, {"delta": 0.4}),
    "bce": ({},),
    "bce_with_logits": ({},),
    "kl_div": ({}, {"log_target": True}, {"reduction": "batchmean"}),
    "soft_margin_loss": ({},),
}


def operands(name: str, log_target: bool = False) -> tuple[Any, Any]:
    x, target = rng.standard_normal((5, 13)), rng.random((5, 13))
    x = rng.random((5, 13)) if name == "bce" else x
    target = np.sign(target - 0.5) if name == "soft_margin_loss" else target
    target[0, :3] = 1
    target[1, :3] = 0 if name != "soft_margin_loss" else -1
    x[:2, 0] = target[:2, 0] if name == "bce" else x[:2, 0]  # where the logarithm is clamped
    return x, (np.log(target + 1e-3) if log_target else target)


@pytest.mark.filterwarnings("ignore:reduction. 'mean' divides")  # kl_div's
@pytest.mark.parametrize("backend", ["cpu", "ptx"])
@pytest.mark.parametrize("name", CALLS)
def test_elements_losses_are_those_of_torch(name: str, backend: str) -> None:
    torch = pytest.importorskip("torch")
    function = getattr(torch.nn.functional, get_op(name).peers["torch"])
    for options in CALLS[name]:
        for reduction in ("mean", "sum", "none"):
            options = {"reduction": reduction} | options
            x, target = operands(name, options.get("log_target", False))
            held = torch.tensor(x, requires_grad=True)
            wanted = function(held, torch.tensor(target), **options)
            got = getattr(bp, name)(x, target, **options, device=backend)
            assert np.allclose(got, wanted.detach().numpy(), rtol=1e-13, atol=1e-14), options
            grad = np.asarray(rng.standard_normal(got.shape))
            wanted.backward(torch.tensor(grad))
            got = getattr(bp, f"{name}_backward")(grad, x, target, **options, device=backend)
            assert np.allclose(got, held.grad.numpy(), rtol=1e-12, atol=1e-14), options


def test_elements_refuse_what_is_for_another_loss() -> None:
    x = np.zeros((2, 3), np.float32)
    with pytest.raises(bp.InvalidProblemError, match="batchmean is for kl_div alone"):
        bp.mse_loss(x, x, reduction="batchmean", device="cpu")
    for name, options in (("huber_loss", {"delta": 0.0}), ("smooth_l1_loss", {"beta": -1.0})):
        with pytest.raises(bp.InvalidProblemError, match="give a beta of 0 or more"):
            getattr(bp, name)(x, x, **options, device="cpu")
