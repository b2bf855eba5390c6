"""Losses of elements against torch on the host, over every option; what is refused."""

from __future__ import annotations

from functools import partial
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
    "poisson_nll_loss": ({}, {"full": True}, {"log_input": False, "eps": 1e-3}),
    "hinge_embedding_loss": ({}, {"margin": 0.3}),
    "gaussian_nll_loss": ({"full": True}, {"eps": 0.5}),
    "margin_ranking_loss": ({}, {"margin": 0.3}),
}
SIGNS = ("soft_margin_loss", "hinge_embedding_loss", "margin_ranking_loss")


def operands(name: str, options: dict[str, Any]) -> dict[str, Any]:
    x, target, third = rng.standard_normal((5, 13)), rng.random((5, 13)), rng.standard_normal((5, 13))
    x = rng.random((5, 13)) if name == "bce" or options.get("log_input") is False else x
    target = np.sign(target - 0.5) if name in SIGNS else target
    target[0, :3] = 1
    target[1, :3] = 0 if name not in SIGNS else -1
    x[:2, 0] = target[:2, 0] if name == "bce" else x[:2, 0]  # where the logarithm is clamped
    third[2] = x[2]  # scores that differ by a margin of 0
    target[2, :3] = 0.25 if name == "poisson_nll_loss" else target[2, :3]  # a count of 1, the last without full's term
    target = np.log(target + 1e-3) if options.get("log_target") else target * (1 + 3 * (name == "poisson_nll_loss"))
    if name == "gaussian_nll_loss":
        return {"x": x, "target": target, "var": np.abs(third) + 0.01}
    return {"x": x, "other": third, "target": target} if name == "margin_ranking_loss" else {"x": x, "target": target}


def torch_agrees(name: str, given: dict[str, Any]) -> Any:
    """Where the gradient of target is torch's: elsewhere torch's is infinite, or NaN."""
    x, target = given["x"], given["target"]
    return {"bce": (x > 0) & (x < 1), "kl_div": target != 0, "poisson_nll_loss": target != 0}.get(name, x == x)


@pytest.mark.filterwarnings("ignore:reduction. 'mean' divides")  # kl_div's
@pytest.mark.parametrize("backend", ["cpu", "ptx"])
@pytest.mark.parametrize("name", CALLS)
def test_elements_losses_are_those_of_torch(name: str, backend: str) -> None:
    torch = pytest.importorskip("torch")
    function = getattr(torch.nn.functional, get_op(name).peers["torch"])
    for options in CALLS[name]:
        for reduction in ("mean", "sum", "none"):
            options = {"reduction": reduction} | options
            given = operands(name, options)
            of_target = "target" in get_op(name).gradient.gradients  # type: ignore[union-attr]
            held = {n: torch.tensor(x, requires_grad=of_target or n != "target") for n, x in given.items()}
            wanted = function(*held.values(), **options)
            got = getattr(bp, name)(*given.values(), **options, device=backend)
            assert np.allclose(got, wanted.detach().numpy(), rtol=1e-13, atol=1e-14), options
            grad = np.asarray(rng.standard_normal(got.shape))
            wanted.backward(torch.tensor(grad))
            numbers = {n: x for n, x in options.items() if n != "full" or name == "poisson_nll_loss"}
            backward = partial(getattr(bp, f"{name}_backward"), grad, *given.values(), **numbers, device=backend)
            slopes = [x.grad.numpy() for n, x in held.items() if n != "target"]
            alone = backward() if len(slopes) > 1 else (backward(),)
            for mine, theirs in zip(alone, slopes, strict=True):
                assert np.allclose(mine, theirs, rtol=1e-12, atol=1e-14), options
            if of_target:
                *others, mine = backward(return_grad_target=True)
                assert all(map(np.array_equal, others, alone)), options
                inside = torch_agrees(name, given)
                assert np.allclose(mine[inside], held["target"].grad.numpy()[inside], rtol=1e-12, atol=1e-14), options


def test_elements_refuse_what_is_for_another_loss() -> None:
    x = np.zeros((2, 3), np.float32)
    with pytest.raises(bp.InvalidProblemError, match="batchmean is for kl_div alone"):
        bp.mse_loss(x, x, reduction="batchmean", device="cpu")
    for name, options in (("huber_loss", {"delta": 0.0}), ("smooth_l1_loss", {"beta": -1.0})):
        with pytest.raises(bp.InvalidProblemError, match="beta and eps of 0 or more"):
            getattr(bp, name)(x, x, **options, device="cpu")
    with pytest.raises(bp.OperandTypeError, match="var must hold f32, as x does, got f64"):
        bp.gaussian_nll_loss(x, x, np.ones((2, 3)), device="cpu")
    with pytest.raises(bp.InvalidProblemError, match="shape"):
        bp.margin_ranking_loss(x, x[:1], x, device="cpu")


@pytest.mark.parametrize("backend", ["cpu", "ptx"])
def test_elements_broadcast_variance_is_a_view(backend: str) -> None:
    x, target, var = (rng.random((6, 9)).astype(np.float32) for _ in range(3))
    shared = np.broadcast_to(var[:, :1], var.shape)
    got = bp.gaussian_nll_loss(x, target, shared, device=backend)
    assert got == bp.gaussian_nll_loss(x, target, shared.copy(), device=backend)


@pytest.mark.parametrize("backend", ["cpu", "ptx"])
def test_elements_gradient_of_target_at_the_ends(backend: str) -> None:
    """Where torch's is infinite or NaN: the derivative of what is clamped, the limit, and that of what is added."""
    one = np.ones(3)

    def of_target(name: str, x: Any, target: Any, **options: Any) -> list[float]:
        backward = getattr(bp, f"{name}_backward")
        made = backward(
            one, np.array(x), np.array(target), return_grad_target=True, reduction="none", device=backend, **options
        )
        return made.grad_target.tolist()  # type: ignore[no-any-return]

    assert of_target("bce", [0.0, 1.0, 0.5], [0.3, 0.3, 0.3]) == [100, -100, 0]
    assert of_target("kl_div", [-1.0, -1.0, 0.0], [0.0, 1.0, 1.0]) == [-np.inf, 2, 1]
    assert of_target("poisson_nll_loss", [0.5, -0.5, 0.5], [0.0, 1.0, 0.5], full=True) == [-0.5, 0.5, -0.5]


@pytest.mark.parametrize("backend", ["cpu", "ptx"])
def test_elements_gradients_take_the_place_of_operands(backend: str) -> None:
    """Both of what a thread has read; with a third operand there are two launches, and nothing is written in place."""
    grad, x, target = np.ones(()), rng.standard_normal((3, 7)), rng.standard_normal((3, 7))
    wanted = bp.huber_loss_backward(grad, x, target, return_grad_target=True, device=backend)
    made = bp.huber_loss_backward(grad, x, target, grad_x=x, grad_target=target, device=backend)
    assert made.grad_x is x and made.grad_target is target
    assert np.array_equal(x, wanted.grad_x) and np.array_equal(target, wanted.grad_target)
    kept, other = target.copy(), rng.standard_normal((3, 7))
    with pytest.raises(bp.OverlapError, match="grad_target is written and shares memory with target"):
        bp.margin_ranking_loss_backward(grad, x, other, target, grad_target=target, device=backend)
    assert np.array_equal(kept, target)


def test_elements_refuse_a_gradient_of_target() -> None:
    x, grad = np.zeros((2, 3), np.float32), np.ones((), np.float32)
    with pytest.raises(bp.OperandTypeError, match="grad_target must hold f32, as x does, got f64"):
        bp.mse_loss_backward(grad, x, x, grad_target=np.zeros((2, 3)), device="cpu")
    with pytest.raises(bp.InvalidProblemError, match="return_grad_target must be True or False"):
        bp.mse_loss_backward(grad, x, x, return_grad_target="yes", device="cpu")
    with pytest.raises(bp.InvalidProblemError, match="shape"):
        bp.mse_loss_backward(grad, x, x, grad_target=np.zeros((3, 2), np.float32), device="cpu")
    hinge = get_op("hinge_embedding_loss_backward")
    desc = hinge.describe(shape=(2, 3), element="f32", grad_target_element="f32")
    with pytest.raises(bp.InvalidProblemError, match="there is no gradient of target: leave grad_target out"):
        hinge.plan.select(desc, device="cpu")
