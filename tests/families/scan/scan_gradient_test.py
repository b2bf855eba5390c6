"""Gradients of running products, extrema and logarithms: those of torch, chunks, in place, threads, refusals."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.plan import get_op
from baracuda_py.samples import Sample

from ...gauntlet import Problem, admissible, served

OPS = ("cumprod", "cummax", "cummin", "logcumsumexp")
INF, NAN = np.inf, np.nan


def gradient(
    op: str, x: Any, grad: Any, device: str = "cpu", *, axis: int = -1, reverse: bool = False, **more: Any
) -> Any:
    y = getattr(bp, op)(x, axis, reverse=reverse, device="cpu")
    return getattr(bp, f"{op}_backward")(grad, x, y, axis, reverse=reverse, device=device, **more)


def theirs(torch: Any, op: str, x: Any, grad: Any, axis: int, reverse: bool) -> Any:
    held = torch.tensor(x, requires_grad=True)
    ahead = torch.flip(held, (axis,)) if reverse else held
    made = getattr(torch, op)(ahead, axis)
    made = made if op in ("cumprod", "logcumsumexp") else made.values
    (torch.flip(made, (axis,)) if reverse else made).backward(torch.tensor(grad))
    return held.grad.numpy()


@pytest.mark.parametrize("device", ["cpu", "ptx"])
@pytest.mark.parametrize("op", OPS)
def test_gradient_of_scan_is_that_of_torch(op: str, device: str) -> None:
    """Equal elements, zeros, one and several of them in a line, both directions."""
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(3)
    x = rng.integers(-2, 3, (4, 9)).astype(np.float32)
    grad = rng.standard_normal(x.shape).astype(np.float32)
    for axis, reverse in ((1, False), (0, True)):
        wanted = theirs(torch, op, x, grad, axis, reverse)
        np.testing.assert_allclose(gradient(op, x, grad, device, axis=axis, reverse=reverse), wanted, 1e-5, 1e-5)


@pytest.mark.parametrize("op", [*OPS, "cumsum"])
def test_scan_gradient_of_a_line_in_any_batch(op: str) -> None:
    """The bits of some rows and columns, by themselves and beside others, which the plan promises."""
    rng = np.random.default_rng(9)
    x, grad = (rng.uniform(0.9, 1.1, (19, 300)).astype(np.float32) * rng.choice([-1, 1], (19, 300)) for _ in "xg")
    x, grad = x.astype(np.float32), grad.astype(np.float32)

    def made(rows: int, axis: int) -> Any:
        one, by = (np.ascontiguousarray(array[:rows] if axis else array[:rows].T) for array in (x, grad))
        if op == "cumsum":
            return bp.cumsum_backward(by, axis, device="ptx")
        return gradient(op, one, by, "ptx", axis=axis)

    if op != "cumsum":
        assert get_op(f"{op}_backward").function.plan(grad, x, x, device="ptx").precision_guarantee.batch_invariant
    whole = made(19, 1)
    assert all(np.array_equal(made(rows, 1), whole[:rows]) for rows in (1, 2))
    assert np.array_equal(made(2, 0), made(19, 0)[:, :2])


@pytest.mark.parametrize("device", ["cpu", "ptx"])
def test_scan_gradient_of_equal_elements_and_nan(device: str) -> None:
    """The latest of equal elements has the gradient; a NaN begins a part of its own."""
    x = np.array([[1, 3, 3, 2, 3, 1], [2, NAN, 9, NAN, 1, 5], [-0.0, 0.0, -0.0, -1, 0, -2]], np.float32)
    made = gradient("cummax", x, np.ones_like(x), device)
    assert np.array_equal(made, [[1, 1, 2, 0, 2, 0], [1, 2, 0, 3, 0, 0], [1, 1, 2, 0, 2, 0]])
    assert np.array_equal(gradient("cummin", -x, np.ones_like(x), device), made)


@pytest.mark.parametrize("device", ["cpu", "ptx"])
def test_scan_gradient_does_not_cross_an_extremum(device: str) -> None:
    """An infinite or NaN gradient stays in its part."""
    grad = np.array([[1, 2, INF, 4, NAN]], np.float32)
    got = gradient("cummax", np.array([[1, 2, 1, 3, 4]], np.float32), grad, device)
    assert np.array_equal(got, [[1, INF, 0, 4, NAN]], equal_nan=True)


@pytest.mark.parametrize("device", ["cpu", "ptx"])
def test_scan_gradient_of_far_logarithms(device: str) -> None:
    """Exponents beyond the range of exp, of both signs: no overflow, no NaN."""
    x = np.array([[-500, 300, 900, -900, 1000], [1000, 900, -1000, 0, 1000]], np.float32)
    got = gradient("logcumsumexp", x, np.array([[1, -2, 3, -4, 5]] * 2, np.float32), device)
    assert np.allclose(got, [[1, -2, -1, 0, 5], [0.5, 0, 0, 0, 2.5]], 1e-3)  # of y, which is rounded


@pytest.mark.parametrize("op", OPS)
def test_scan_gradient_in_chunks_of_columns(op: str) -> None:
    rng = np.random.default_rng(5)
    x = np.exp(rng.standard_normal((8200, 2)) / 512).astype(np.float32)
    y = getattr(bp, op)(x, 0, device="cpu")
    sample = Sample("chunks", {"grad": rng.standard_normal(x.shape).astype(np.float32), "x": x, "y": y}, {"axis": 0})
    problem = Problem(get_op(f"{op}_backward"), sample, "ptx")
    served(problem, admissible(problem))


@pytest.mark.parametrize("op", OPS)
def test_scan_gradient_in_place(op: str) -> None:
    x = np.random.default_rng(6).standard_normal((3, 300)).astype(np.float32)
    grad = x[::-1].copy()
    wanted = gradient(op, x, grad, "ptx")
    held = grad.copy()
    assert gradient(op, x, held, "ptx", grad_x=held) is held and np.array_equal(held, wanted)
    y = getattr(bp, op)(x, device="cpu")
    held = x.copy()
    getattr(bp, f"{op}_backward")(grad, held, y, grad_x=held, device="ptx")
    assert np.array_equal(held, wanted)


def test_product_gradient_over_its_result_is_refused() -> None:
    x = np.ones((2, 5), np.float32)
    y = x.copy()
    with pytest.raises(bp.BaracudaError, match="grad_x"):
        bp.cumprod_backward(x, x, y, grad_x=y, device="ptx")
    assert np.array_equal(y, x)


@pytest.mark.parametrize("op", OPS)
def test_scan_gradient_from_two_threads(op: str) -> None:
    x = np.random.default_rng(7).standard_normal((3, 9, 5)).astype(np.float32)
    each = [(axis, reverse) for axis in (0, 1, 2) for reverse in (False, True)]
    wanted = [gradient(op, x, x, "ptx", axis=axis, reverse=reverse) for axis, reverse in each]
    with ThreadPoolExecutor(2) as pool:
        got = list(pool.map(lambda how: gradient(op, x, x, "ptx", axis=how[0], reverse=how[1]), each))
    assert all(np.array_equal(a, b) for a, b in zip(got, wanted))


@pytest.mark.parametrize("op", OPS)
def test_scan_gradient_through_torch_is_that_of_torch(op: str) -> None:
    torch = pytest.importorskip("torch")
    x = np.random.default_rng(8).standard_normal((3, 8)).astype(np.float32)
    held = torch.tensor(x, requires_grad=True)
    with bp.device("cpu"):
        getattr(bp, op)(held, 1).backward(torch.ones(3, 8))
    np.testing.assert_allclose(held.grad.numpy(), theirs(torch, op, x, np.ones_like(x), 1, False), 1e-5, 1e-5)


REFUSED: dict[str, tuple[dict[str, Any], type[bp.BaracudaError], str]] = {
    "an axis": ({"axis": 2}, bp.InvalidProblemError, "axis 2 is out of range"),
    "a grad of another shape": ({"grad": np.ones((3, 5), np.float32)}, bp.InvalidProblemError, "must have shape"),
    "a y of another dtype": ({"y": np.ones((3, 4), np.float64)}, bp.OperandTypeError, "y must hold"),
    "integers": (dict.fromkeys(("grad", "x", "y"), np.ones((3, 4), np.int32)), bp.OperandTypeError, "i32"),
    "reverse": ({"reverse": 2}, bp.InvalidProblemError, "reverse must be True or False"),
}


@pytest.mark.parametrize("device", ["cpu", "ptx"])
@pytest.mark.parametrize("case", REFUSED)
def test_wrong_scan_gradient_is_refused(case: str, device: str) -> None:
    wrong, error, says = REFUSED[case]
    one = np.ones((3, 4), np.float32)
    given = {"grad": one, "x": one, "y": one, "axis": 1, **wrong}
    with pytest.raises(error, match=says) as caught:
        bp.cummax_backward(given.pop("grad"), given.pop("x"), given.pop("y"), **given, device=device)
    assert str(caught.value).startswith("cummax_backward: ")
