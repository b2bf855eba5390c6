"""Softmax's gradients where exponentials leave the normal numbers, sums leave f32, and terms cancel on the host."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import mpmath
import numpy as np
import pytest

import baracuda_py as bp

BF16, F16, F32 = (np.dtype(x) for x in (ml_dtypes.bfloat16, np.float16, np.float32))
DEVICES = ("ptx", "cpu")


def plan_of(grad: Any, y: Any, device: str, name: str = "log_softmax_backward") -> Any:
    desc = bp.SoftmaxBackwardDescriptor.of(grad=grad, y=y, name=name)
    return bp.SoftmaxBackwardPlan.select(desc, device=device)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("large", [100.0, 65536.0, 1e30])
@pytest.mark.parametrize("kind", [F32, BF16], ids=str)
def test_log_softmax_backward_subnormal_exponential(kind: Any, large: float, device: str) -> None:
    """exp(y) is no normal number, and exp(y) times the sum of the gradients may be one."""
    y = np.array([[0.0, -103.5, -95.0, -90.0, -87.2, -140.0]], kind)
    grad = np.zeros((1, 6), kind)
    grad[0, 0] = large
    plan = plan_of(grad, y, device)
    plan.verify(grad=grad, y=y)
    got = plan.run(grad=grad, y=y).astype(np.float64)[0, 1:]
    wanted = -np.exp(y.astype(np.float64)[0, 1:]) * float(grad[0, 0])
    relative = 2.0**-7 if kind == BF16 else 2.0**-16
    assert (np.abs(got - wanted) <= relative * np.abs(wanted) + 2.0**-133).all(), (got, wanted)


@pytest.mark.parametrize("name", ["softmax_backward", "log_softmax_backward"])
def test_softmax_backward_sum_beyond_f32(name: str) -> None:
    """What a sum that f32 does not hold makes of a row is no promise, and the other rows are none the worse."""
    rng = np.random.default_rng(3)
    grad = rng.standard_normal((5, 1000)).astype(BF16)
    grad[2] = 4e37
    y = (np.full((5, 1000), -6.9) if name.startswith("log") else np.ones((5, 1000))).astype(BF16)
    plan = plan_of(grad, y, "ptx", name)
    assert "overflowing" in str(plan.precision_guarantee.bound)
    plan.verify(grad=grad, y=y)


def test_log_softmax_backward_infinite_gradient() -> None:
    grad, y = np.array([[np.inf, 1, 2]], F32), np.array([[-0.1, -104.5, -160.0]], F32)
    plan = plan_of(grad, y, "ptx")
    plan.verify(grad=grad, y=y)
    assert np.isneginf(plan.run(grad=grad, y=y)[0, 1:]).all()


@pytest.mark.parametrize("low", [-26.0, -60.0, -3.0])
def test_log_softmax_of_the_host_near_zero(low: float) -> None:
    """The first result is -log1p(exp(low)), which a sum that begins with 1 does not hold."""
    for kind in (np.float32, np.float64):
        x = np.array([[0.0, low, low - 5]], kind)
        got = bp.log_softmax(x, device="cpu")
        with mpmath.workdps(60):
            total = mpmath.log(mpmath.fsum(mpmath.exp(mpmath.mpf(float(v))) for v in x[0]))
            for value, source in zip(got[0], x[0]):
                exact = mpmath.mpf(float(source)) - total
                assert abs(mpmath.mpf(float(value)) - exact) <= float(np.spacing(abs(kind(exact)))), (low, kind)


def test_host_guarantees_hold_where_terms_cancel() -> None:
    """Against exact arithmetic: what plans of the host promise is true of sums that all but vanish."""
    rng = np.random.default_rng(5)
    y = np.exp(rng.standard_normal((40, 513)) * 9)
    y = (y / y.sum(-1, keepdims=True)).astype(F32)
    grad = rng.standard_normal((40, 513)).astype(F32)
    plan = plan_of(grad, y, "cpu", "softmax_backward")
    wide_y, wide = y.astype(np.longdouble), grad.astype(np.longdouble)
    exact = wide_y * (wide - (wide * wide_y).sum(-1, keepdims=True))
    measures = plan.selection.measured(plan.desc, "grad_x")
    operands = {"grad": grad, "y": y}
    plan.precision_guarantee.check(plan.run(**operands), exact, operands, measures=measures)
    x = np.array([2.0**80, 1.0, -(2.0**80)], F32)
    total = bp.ReducePlan.select(bp.ReduceDescriptor.of(x, axis=-1, name="sum"), device="cpu")
    measures = total.selection.measured(total.desc, "out")
    total.precision_guarantee.check(total.run(x=x), np.float64(1.0), {"x": x}, measures=measures)
