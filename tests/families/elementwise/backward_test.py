"""Calls of the gradients of elementwise functions: numbers, broadcasts, outputs in place, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.ops.elementwise._row import ROWS
from baracuda_py.plan import all_ops

COVERS = ()
rng = np.random.default_rng(7)


def numbers(*shape: int) -> Any:
    return rng.standard_normal(shape).astype(np.float32)


def test_every_row_with_gradients_has_their_op() -> None:
    ops = all_ops()
    for name, row in ROWS.items():
        own = f"{name}_backward" if row.result != "given" else name
        assert (ops[name].gradient.op if ops[name].gradient else "") == (own if row.gradient else "")
        assert not row.gradient or own in ops


def test_gradient_of_a_number_is_not_computed() -> None:
    grad, x, out = numbers(5, 7), numbers(5, 7), np.empty((5, 7), np.float32)
    made = bp.multiply_backward(grad, x, 2.5, device="cpu")
    assert isinstance(made, np.ndarray) and np.array_equal(made, grad * np.float32(2.5))
    with pytest.raises(bp.InvalidProblemError, match="grad_x2"):
        bp.multiply_backward(grad, x, 2.5, grad_x2=out, device="cpu")
    with pytest.raises(bp.InvalidProblemError, match="x1 is a number, which has no gradient: pass x1 as an array"):
        bp.copysign_backward(grad, 2.5, x, device="cpu")


@pytest.mark.parametrize("odd", [{"grad_x2_strides": {}}, {"grad_x2_strides": 3.0}, {"grad_x2_align": 1j}], ids=str)
def test_fields_of_a_gradient_that_is_not_computed_are_checked(odd: dict[str, Any]) -> None:
    known: dict[str, Any] = {"grad_shape": (7,), "x1_shape": (7,), "x2_shape": None}
    known |= dict.fromkeys(("grad_element", "x1_element", "x2_element"), "f32")
    make: Any = bp.MultiplyBackwardDescriptor
    with pytest.raises(bp.InvalidProblemError, match=next(iter(odd))):
        make(**known, **odd)
    assert make(**known, grad_x2_strides=[1], grad_x2_align=4).canonical() == make(**known).canonical()


def test_gradient_of_absent_bounds_is_not_computed() -> None:
    grad, x = numbers(5, 7), numbers(5, 7)
    made = bp.clamp_backward(grad, x, max=0.5, device="cpu")
    assert np.array_equal(made, np.where(x < 0.5, grad, 0))


def test_gradient_of_a_broadcast_has_the_common_shape() -> None:
    grad, x1, x2 = numbers(5, 7), numbers(5, 1), numbers(7)
    made = bp.multiply_backward(grad, x1, x2, device="cpu")
    assert np.array_equal(made.grad_x1, grad * x2) and np.array_equal(made.grad_x2, grad * x1)


def test_gradient_may_replace_what_it_is_of() -> None:
    grad, x1, x2 = numbers(5, 7), numbers(5, 7), numbers(5, 7)
    wanted = grad * x2, grad * x1
    made = bp.multiply_backward(grad, x1, x2, grad_x1=grad, grad_x2=x2, device="cpu")
    assert made[0] is grad and made[1] is x2
    assert np.array_equal(grad, wanted[0]) and np.array_equal(x2, wanted[1])


def test_integers_have_no_gradient() -> None:
    grad, x = numbers(5), np.arange(5)
    with pytest.raises(bp.OperandTypeError, match="square_backward: i64 is not supported"):
        bp.square_backward(grad, x, device="cpu")


def test_pow_gradient_at_zero_is_zero() -> None:
    grad, zero, power = (np.full(1, n, np.float32) for n in (3, 0, 2))
    for x2, y in ((power, zero), (zero, zero + 1)):
        grad_x1 = bp.pow_backward(grad, zero, x2, y, device="cpu").grad_x1
        assert grad_x1 == 0
    assert bp.pow_backward(grad, zero, power, zero, device="cpu").grad_x2 == 0


@pytest.mark.parametrize("device", ["cpu", "ptx"])
def test_fmax_and_fmin_gradients_pass_by_nan(device: str) -> None:
    """The gradient is that of the argument which is the result; of equal ones, the first."""
    x1, x2 = (np.array(x, np.float32) for x in ([1, np.nan, 2, 1, np.nan], [np.nan, 1, 1, 2, np.nan]))
    grad, same = np.full(5, 3, np.float32), np.ones(5, np.float32)
    for op, first in ((bp.fmax_backward, [3, 0, 3, 0, 3]), (bp.fmin_backward, [3, 0, 0, 3, 3])):
        made = op(grad, x1, x2, device=device)
        assert made.grad_x1.tolist() == first and (made.grad_x1 + made.grad_x2 == grad).all()
        assert op(grad, same, same, device=device).grad_x1.tolist() == grad.tolist()


@pytest.mark.parametrize("device", ["cpu", "ptx"])
def test_threshold_and_hardswish_gradients_of_nan(device: str) -> None:
    """As the results: NaN stays NaN."""
    grad, x = np.full(3, 2, np.float32), np.array([np.nan, -5, 5], np.float32)
    assert bp.threshold_backward(grad, x, device=device).tolist() == [2, 0, 2]
    made = bp.hardswish_backward(grad, x, device=device)
    assert np.isnan(made[0]) and made[1:].tolist() == [0, 2]
