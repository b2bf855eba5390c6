"""Steps on numbers that are not finite, and on scalars at the ends of their ranges, as torch.optim takes them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.plan import get_op

torch = pytest.importorskip("torch")

COVERS = ("adam_update", "sgd_update", "lion_update", "adamw_update", "gradient_norm", "gradient_clip")
NAN, INF = float("nan"), float("inf")
BACKENDS = pytest.mark.parametrize("device", ["cpu", "ptx"])


def _zeros(count: int = 4) -> Any:
    return np.zeros(count, np.float32)


def _step() -> Any:
    return np.zeros((), np.float32)


@BACKENDS
def test_special_gradients_reach_all_states_as_in_torch(device: str) -> None:
    """AMSGrad's maximum keeps a NaN, from the gradient or from before."""
    grads = [np.array(g, np.float32) for g in ([1, NAN, 2, 0.5], [1, 1, 1, NAN])]
    held = torch.nn.Parameter(torch.ones(4))
    optimizer = torch.optim.Adam([held], amsgrad=True)
    param, step, states = np.ones(4, np.float32), _step(), [_zeros() for _ in range(3)]
    for grad in grads:
        held.grad = torch.tensor(grad)
        optimizer.step()
        bp.adam_update(param, grad, *states[:2], step, max_exp_avg_sq=states[2], device=device)
    of = optimizer.state[held]
    wanted = (held.detach(), of["exp_avg"], of["exp_avg_sq"], of["max_exp_avg_sq"])
    for got, one in zip((param, *states), wanted):
        assert np.allclose(got, one.numpy(), rtol=1e-6, equal_nan=True)


@BACKENDS
def test_special_parameters_are_not_read_without_weight_decay(device: str) -> None:
    param, buffer = np.array([INF, -INF, NAN, 1], np.float32), _zeros()
    bp.sgd_update(param, np.ones(4, np.float32), _step(), momentum_buffer=buffer, momentum=0.5, device=device)
    assert np.array_equal(buffer, np.ones(4))
    assert np.array_equal(param, [INF, -INF, NAN, np.float32(1) - np.float32(1e-3)], equal_nan=True)


@BACKENDS
def test_special_signs_of_lion(device: str) -> None:
    param = np.ones(4, np.float32)
    bp.lion_update(param, np.array([NAN, INF, -INF, 0], np.float32), _zeros(), _step(), lr=0.5, device=device)
    assert np.array_equal(param, [NAN, 0.5, 1.5, 1], equal_nan=True)


@BACKENDS
def test_special_parameters_are_not_rounded_by_chance(device: str) -> None:
    param = np.array([INF, -INF, NAN, 0], bp.BF16.dtype)
    bp.sgd_update(param, np.zeros(4, param.dtype), _step(), stochastic=True, device=device)
    assert np.array_equal(param.astype(np.float32), [INF, -INF, NAN, 0], equal_nan=True)


@BACKENDS
@pytest.mark.parametrize("found", [1.0, -1.0, NAN, INF])
def test_special_found_inf_skips_the_step(found: float, device: str) -> None:
    param, step = np.ones(4, np.float32), _step()
    bp.sgd_update(param, np.ones(4, np.float32), step, found_inf=np.array(found, np.float32), device=device)
    assert (param == 1).all() and step == 0


@BACKENDS
def test_special_norm_beyond_its_kind_is_infinite_and_clips(device: str) -> None:
    grad = np.full(4, 3e38, np.float32)
    assert bp.gradient_norm(grad, device=device).found_inf == 1
    assert bp.gradient_clip(grad, max_norm=1.0, device=device).norm == INF and np.allclose(grad, 0.5)
    wide = np.full(4, 3e38)
    assert bp.gradient_norm(wide, device=device).found_inf == 0


@BACKENDS
def test_special_norm_of_scaled_gradients_clips_what_is_unscaled(device: str) -> None:
    grad, scaled = np.array([3, 4], np.float32), np.array(8, np.float32)
    found = bp.gradient_norm(8 * grad, max_norm=2.5, grad_scale=scaled, device=device)
    assert found.norm == 5 and np.isclose(found.scale, 16, rtol=1e-6)


@BACKENDS
def test_special_clips_small_norms_as_torch(device: str) -> None:
    """1e-6 is added to a norm, which halves the share of one of that size."""
    held = torch.zeros(1, requires_grad=True)
    held.grad = torch.tensor([1e-6])
    torch.nn.utils.clip_grad_norm_([held], 1e-6)
    grad = np.array([1e-6], np.float32)
    bp.gradient_clip(grad, max_norm=1e-6, device=device)
    assert np.allclose(grad, held.grad.numpy(), rtol=1e-6)
    assert np.isclose(bp.gradient_norm(np.array([1e-6], np.float32), max_norm=1e-6, device=device).scale, 2, rtol=1e-6)


@BACKENDS
def test_special_infinite_mean_becomes_nan_as_in_torch(device: str) -> None:
    """It moves towards the gradient by a share of their difference."""
    param, mean, squares = np.ones(1, np.float32), np.full(1, INF, np.float32), np.ones(1, np.float32)
    wanted = torch.tensor(mean).lerp(torch.ones(1), 0.1)
    bp.adam_update(param, np.ones(1, np.float32), mean, squares, _step(), device=device)
    assert np.isnan(mean).all() and torch.isnan(wanted).all()


@pytest.mark.parametrize("scale", [1e18, 2e19, 6e20, 1e25])
@pytest.mark.parametrize("op", ["adam_update", "adamw_update", "lamb_update"])
def test_special_squares_beyond_f32_are_excepted(op: str, scale: float) -> None:
    """exp_avg_sq becomes infinite on every backend alike; the parameter, which such a divisor leaves, is excepted."""
    grad = np.array([scale, 1, -scale / 3, 2], np.float32)
    given = {
        "param": np.ones(4, np.float32),
        "grad": grad,
        "exp_avg": _zeros(),
        "exp_avg_sq": _zeros(),
        "step": _step(),
    }
    kept = []
    for device in ("cpu", "ptx"):
        held = {name: x.copy() for name, x in given.items()}
        getattr(bp, op)(**held, device=device)
        kept.append(held["exp_avg_sq"])
    assert np.array_equal(np.isinf(kept[0]), np.isinf(kept[1])) and np.isinf(kept[0]).any() == (scale > 5.9e20)
    family, desc = get_op(op).plan, get_op(op).plan.descriptor.of(**given)
    report = family.select(desc, device="ptx").verify(**given)
    excepted = family.measures["beyond"](desc, "param", **given).astype(bool)
    assert excepted[0] == (scale > 1e19) and report
