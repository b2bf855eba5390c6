"""Gradients of reductions: ties, corners as PyTorch has them, chunks, in place, refusals."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.plan import get_op
from baracuda_py.samples import Sample

from ...gauntlet import Problem, admissible, served

OPS = ("sum", "mean", "max", "min", "var", "logsumexp", "prod", "std", "nansum", "nanmean", "norm")
WITHOUT_Y = ("sum", "mean", "var", "nansum", "nanmean")
THEIRS = {"max": "amax", "min": "amin"}  # torch's names
INF, NAN = np.inf, np.nan
CORNERS = [
    [INF, 0, 1],
    [INF, -INF, INF],
    [-INF, -INF, -INF],
    [-INF, 0, -INF],
    [INF, NAN, 0],
    [2, 2, -0.0],
    [0.0, -0.0, 0.0],
]


def gradient(op: str, x: Any, device: str = "cpu", *, axis: Any = None, keepdims: bool = False, **more: Any) -> Any:
    """The gradient of ones."""
    y = getattr(bp, op)(x, axis=axis, keepdims=keepdims, device="cpu")
    given = () if op in WITHOUT_Y else (y,)
    function = getattr(bp, f"{op}_backward")
    return function(np.ones_like(y), x, *given, axis=axis, keepdims=keepdims, device=device, **more)


def theirs(torch: Any, op: str) -> Any:
    """Torch's function of an axis, in terms that suit it."""
    if op == "prod":  # which takes one axis

        def product(x: Any, dim: Any, keepdim: bool = False) -> Any:
            for axis in sorted(np.atleast_1d(dim).tolist(), reverse=True):
                x = torch.prod(x, axis, keepdim)
            return x

        return product
    if op in ("var", "std"):
        return partial(getattr(torch, op), correction=0)
    return torch.linalg.vector_norm if op == "norm" else getattr(torch, THEIRS.get(op, op))


@pytest.mark.parametrize("device", ["cpu", "ptx"])
def test_gradient_of_equal_terms_is_shared(device: str) -> None:
    x = np.array([[3, 1, 3, 3], [-2, -2, 5, 0]], np.float32)
    third = np.float32(1) / np.float32(3)
    assert np.array_equal(gradient("max", x, device, axis=1), [[third, 0, third, third], [0, 0, 1, 0]])
    assert np.array_equal(gradient("min", x, device, axis=1), [[0, 1, 0, 0], [0.5, 0.5, 0, 0]])
    assert np.array_equal(gradient("max", x, device), [[0, 0, 0, 0], [0, 0, 1, 0]])


@pytest.mark.parametrize("device", ["cpu", "ptx"])
@pytest.mark.parametrize("op", [op for op in OPS if op not in ("prod", "norm")])  # which have tests of their own
def test_gradient_at_corners_is_that_of_torch(op: str, device: str) -> None:
    torch = pytest.importorskip("torch")
    x = torch.tensor(CORNERS, requires_grad=True)
    theirs(torch, op)(x, dim=1).sum().backward()
    got = gradient(op, np.array(CORNERS, np.float32), device, axis=1)
    assert np.allclose(got, x.grad.numpy(), rtol=1e-6, atol=1e-7, equal_nan=True)


@pytest.mark.parametrize("op", OPS)
def test_gradient_through_torch_is_that_of_torch(op: str) -> None:
    torch = pytest.importorskip("torch")
    values = torch.randint(-3, 4, (4, 6, 9), generator=torch.Generator().manual_seed(1)).float()
    for axis, keepdims in ((0, False), ((0, 2), True), (-1, True), ((0, 1, 2), False)):
        ours, other = (values.clone().requires_grad_() for _ in range(2))
        out = theirs(torch, op)(other, dim=axis, keepdim=keepdims)
        grad = torch.linspace(-1, 2, out.numel()).reshape(out.shape)
        out.backward(grad)
        with bp.device("cpu"):
            getattr(bp, op)(ours, axis=axis, keepdims=keepdims).backward(grad)
        torch.testing.assert_close(ours.grad, other.grad, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shape", [(70_001,), (600, 70)])
def test_equal_terms_are_counted_over_chunks(shape: tuple[int, ...]) -> None:
    x = np.zeros(shape, np.float32)
    x[3] = -1
    y = x.max(axis=0, keepdims=True)
    made = bp.max_backward(np.ones_like(y), x, y, axis=0, keepdims=True, device="ptx")
    assert np.array_equal(made, np.where(x == y, 1 / np.float32(shape[0] - 1), np.float32(0)))


@pytest.mark.parametrize("op", OPS)
def test_gradient_in_place_of_x(op: str) -> None:
    x = np.random.default_rng(3).standard_normal((7, 40)).astype(np.float32)
    wanted = gradient(op, x.copy(), "ptx", axis=1)
    held = x.copy()
    y = getattr(bp, op)(x, axis=1, device="cpu")
    given = () if op in WITHOUT_Y else (y,)
    assert getattr(bp, f"{op}_backward")(np.ones_like(y), held, *given, axis=1, grad_x=held, device="ptx") is held
    assert np.array_equal(held, wanted)


@pytest.mark.parametrize("op", OPS)
def test_gradient_from_two_threads(op: str) -> None:
    x = np.random.default_rng(4).standard_normal((3, 9, 5)).astype(np.float32)
    each = [(axis, keepdims) for axis in (0, 1, (0, 2), None) for keepdims in (False, True)]
    wanted = [gradient(op, x, "ptx", axis=axis, keepdims=keepdims) for axis, keepdims in each]
    with ThreadPoolExecutor(2) as pool:
        got = list(pool.map(lambda how: gradient(op, x, "ptx", axis=how[0], keepdims=how[1]), each))
    assert all(np.array_equal(a, b) for a, b in zip(got, wanted))


def test_a_mean_far_from_zero_is_within_the_bound() -> None:
    x = (np.random.default_rng(5).standard_normal((3, 5000)) + 1000).astype(np.float32)
    for axis, grad in ((1, np.ones(3, np.float32)), (0, np.ones(5000, np.float32))):
        problem = Problem(get_op("var_backward"), Sample(f"{axis}", {"grad": grad, "x": x}, {"axis": axis}), "ptx")
        served(problem, admissible(problem))


REFUSED: dict[str, tuple[str, dict[str, Any], type[bp.BaracudaError], str]] = {
    "grad of x's shape": ("sum", {"grad": np.ones((3, 4), np.float32)}, bp.InvalidProblemError, "grad must have shape"),
    "an axis": ("mean", {"axis": 2}, bp.InvalidProblemError, "axis 2 is out of range"),
    "keepdims of a number": ("sum", {"keepdims": 1}, bp.InvalidProblemError, "keepdims must be True or False"),
    "keepdims": ("var", {"keepdims": 2}, bp.InvalidProblemError, "keepdims must be True or False"),
    "integers": ("sum", {"x": np.ones((3, 4), np.int32), "grad": np.ones(3, np.int32)}, bp.OperandTypeError, "i32"),
    "another dtype": ("mean", {"grad": np.ones(3, np.float64)}, bp.OperandTypeError, "must hold"),
    "a wrong out": ("sum", {"grad_x": np.ones((3, 5), np.float32)}, bp.InvalidProblemError, "grad_x must have shape"),
}


@pytest.mark.parametrize("device", ["cpu", "ptx"])
@pytest.mark.parametrize("case", REFUSED)
def test_a_wrong_gradient_call_is_refused(case: str, device: str) -> None:
    op, wrong, error, says = REFUSED[case]
    given = {"grad": np.ones(3, np.float32), "x": np.ones((3, 4), np.float32), "axis": 1, **wrong}
    before = {name: np.copy(x) for name, x in given.items()}
    with pytest.raises(error, match=says) as caught:
        getattr(bp, f"{op}_backward")(given.pop("grad"), given.pop("x"), **given, device=device)
    assert str(caught.value).startswith(f"{op}_backward: ")
    assert all(np.array_equal(before[name], x) for name, x in wrong.items())


def test_a_descriptor_refuses_a_result_that_has_no_part() -> None:
    with pytest.raises(bp.InvalidProblemError, match="sum_backward: y has no part"):
        bp.ReduceBackwardDescriptor((3, 4), "f32", (1,), name="sum_backward", y_element="f32").validate()
    with pytest.raises(bp.InvalidProblemError, match="at least one element"):
        bp.ReduceBackwardDescriptor((3, 0), "f32", (1,), name="max_backward").validate()


@pytest.mark.parametrize("device", ["cpu", "ptx"])
@pytest.mark.parametrize("p", [0.0, 1.0, 2.0, INF, -INF, 3.0, 0.5, -1.5])
def test_norm_gradient_is_that_of_torch(p: float, device: str) -> None:
    torch = pytest.importorskip("torch")
    x = torch.tensor([[3.0, -3, 1, 0], [0, 0, 0, 0], [-0.5, 2, -2, 0.5]], requires_grad=True)
    if p:
        torch.linalg.vector_norm(x, p, dim=1).sum().backward()
    wanted = x.grad.numpy() if p else np.zeros(x.shape)  # torch has none for a count
    held = x.detach().numpy()
    y = bp.norm(held, p, axis=1, device="cpu")
    got = bp.norm_backward(np.ones_like(y), held, y, p, axis=1, device=device)
    assert np.allclose(got, wanted, rtol=2e-6, atol=0)


@pytest.mark.parametrize("device", ["cpu", "ptx"])
def test_product_gradient_of_zeros_is_that_of_torch(device: str) -> None:
    torch = pytest.importorskip("torch")
    x = torch.tensor([[2.0, 0, 3, -4], [0, 5, 0, 1], [1, 2, 3, 4], [-0.0, 2, 1, 1]], requires_grad=True)
    x.prod(1).sum().backward()
    assert np.array_equal(gradient("prod", x.detach().numpy(), device, axis=1), x.grad.numpy())


@pytest.mark.parametrize("device", ["cpu", "ptx"])
def test_product_gradient_beside_two_zeros(device: str) -> None:
    """0, however large the product of the others is, and NaN beside an infinity or NaN."""
    x = np.array([[0, -0.0, 1e30, -1e30], [0, 0, np.inf, 1], [0, 0, NAN, 1]], np.float32)
    got = gradient("prod", x, device, axis=1)
    assert np.array_equal(got[:, :2], [[0, 0], [NAN, NAN], [NAN, NAN]], equal_nan=True)


@pytest.mark.parametrize("device", ["cpu", "ptx"])
def test_gradient_of_extremum_skips_nan(device: str) -> None:
    x = np.array([[NAN, 3, 3, 1], [NAN, NAN, NAN, NAN], [2, -1, NAN, -1]], np.float32)
    assert np.array_equal(gradient("nanmax", x, device, axis=1), [[0, 0.5, 0.5, 0], [0, 0, 0, 0], [1, 0, 0, 0]])
    assert np.array_equal(gradient("nanmin", x, device, axis=1), [[0, 0, 0, 1], [0, 0, 0, 0], [0, 0.5, 0, 0.5]])
