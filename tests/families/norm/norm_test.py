"""Norms in every configuration; rows that do not depend on one another; what is refused."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.plan import get_op
from baracuda_py.samples import Sample

from ...gauntlet import Problem, admissible, served

BF16 = bp.BF16.dtype
rng = np.random.default_rng(3)
Array = np.ndarray[Any, Any]


def normal(*shape: int, dtype: Any = np.float32) -> Array:
    return rng.standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("op", ["rms_norm", "layer_norm", "rms_norm_backward", "layer_norm_backward"])
def test_every_configuration(op: str) -> None:
    for sample in (
        s for s in get_op(op).samples({"name": op}) if any(n in s.label for n in ("4104", "1040", "70, 20000"))
    ):
        problem = Problem(get_op(op), sample, "ptx")
        plans = admissible(problem)
        assert len(plans) > 1 or "20000" in sample.label
        served(problem, plans)


@pytest.mark.parametrize("op", ["rms_norm", "layer_norm"])
def test_a_long_row_with_a_residual(op: str) -> None:
    """What is read again is the sum."""
    (sample,) = (s for s in get_op(op).samples({"name": op}) if "33000" in s.label)
    problem = Problem(get_op(op), sample, "ptx")
    assert not problem.plan.selection.config.resident
    served(problem, [problem.plan])


@pytest.mark.parametrize("kind", [np.float32, np.float64, BF16])
@pytest.mark.parametrize("op", ["rms_norm", "layer_norm", "rms_norm_backward", "layer_norm_backward"])
def test_bounds_hold_at_the_ends_of_the_range(op: str, kind: Any) -> None:
    """Squares and products that overflow, vanish, or are not normal numbers, and rows beside them that are as ever."""
    top, least = (float(getattr(ml_dtypes.finfo(kind), name)) for name in ("max", "smallest_normal"))
    scales = np.array([1, top / 64, top**0.6, top**0.3, least * 4, least**0.6, least**0.3])[:, None]
    for eps, turn in ((0.0, 0), (1e-5, 3), (1.0, 5)):
        x, grad = ((rng.standard_normal((7, 33)) * np.roll(scales, by, axis=0)).astype(kind) for by in (0, turn))
        operands: dict[str, Any] = {"x": x, "weight": (rng.standard_normal(33) * least**-0.2).astype(kind)}
        computed = np.float64 if kind is np.float64 else np.float32
        statistics = ("mean", "rstd") if "layer" in op else ("rstd",)
        operands |= {name: np.full(7, 0.5, computed) for name in statistics}
        options = {"eps": eps}
        if "backward" in op:
            operands, options = {"grad": grad, **operands}, {}
        problem = Problem(get_op(op), Sample(f"{eps}", operands, options), "ptx")
        served(problem, [problem.plan])


def test_a_row_does_not_depend_on_the_others() -> None:
    x, w = normal(9, 700, dtype=BF16), normal(700, dtype=BF16)
    whole = bp.layer_norm(x, w, w, device="ptx")
    for rows in (slice(0, 1), slice(3, 8)):
        assert np.array_equal(bp.layer_norm(x[rows], w, w, device="ptx").view(np.uint16), whole[rows].view(np.uint16))


def test_in_place() -> None:
    for n in (264, 40000):
        x, r, w = (normal(2, n, dtype=BF16) for _ in range(3))
        wanted = bp.rms_norm(x, w[0], residual=r, device="ptx")
        got = bp.rms_norm(x, w[0], residual=r, out=x, residual_out=r, device="ptx")
        assert got.out is x
        assert got.residual_out is r
        for a, b in zip(got, wanted):
            assert np.array_equal(a.view(np.uint16), b.view(np.uint16))


def test_a_gradient_in_place_of_the_one_it_comes_from() -> None:
    for n in (264, 40000):
        g, x, w = (normal(3, n) for _ in range(3))
        rstd = np.abs(normal(3)) + 1
        wanted = bp.rms_norm_backward(g, x, w[0], rstd, device="ptx")
        got = bp.rms_norm_backward(g, x, w[0], rstd, grad_x=g, device="ptx")
        assert got.grad_x is g
        for a, b in zip(got, wanted):
            assert np.array_equal(a, b)


@pytest.mark.parametrize("backend", ["cpu", "ptx"])
@pytest.mark.parametrize("order", [(0, 2, 1), (2, 1, 0)])
def test_sums_over_rows_lie_in_c_order_however_rows_lie(backend: str, order: tuple[int, ...]) -> None:
    """Rows of two axes, whose inner one is not the innermost of memory."""
    for shape in ((5, 3, 7), (2, 101, 200)):  # resident, streamed
        grad, x, grad_x = (normal(*(shape[a] for a in order)).transpose(order) for _ in range(3))
        weight, mean = normal(*shape[:0:-1]).T, normal(shape[0])
        rstd = np.abs(normal(shape[0])) + np.float32(0.1)
        given = {"mean": mean, "rstd": rstd, "normalized_shape": shape[1:], "grad_x": grad_x, "device": backend}
        got = bp.layer_norm_backward(grad, x, weight, **given)
        n = (x.astype(np.float64) - mean[:, None, None]) * rstd[:, None, None]
        assert np.allclose(got.grad_weight, (grad * n).sum(axis=0), rtol=1e-4, atol=1e-4)
        assert np.allclose(got.grad_bias, grad.astype(np.float64).sum(axis=0), rtol=1e-4, atol=1e-4)
        alone = bp.layer_norm_backward(grad, x, **given, grad_bias=np.full(shape[1:], np.nan, np.float32))
        assert np.array_equal(alone.grad_bias, got.grad_bias)
        assert not hasattr(alone, "grad_weight")


def test_the_sum_with_a_residual_is_rounded_once() -> None:
    """Sums that f32 cannot hold, near ties of bf16."""
    x = np.array([[1 + 2.0**-7, 1.0, 256.0]], BF16)
    r = np.array([[2.0**-8 * (1 + 2.0**-7), 2.0**-8 + 2.0**-15, 2.0**-30]], BF16)
    for a, b in ((x, r), (-x, -r), (x, -r)):
        got = bp.rms_norm(a, residual=b, device="ptx").residual_out
        assert np.array_equal(got, bp.rms_norm(a, residual=b, device="cpu").residual_out)
    a = rng.standard_normal((64, 512)).astype(BF16)
    b = (rng.standard_normal((64, 512)) * 2.0 ** -rng.integers(0, 40, (64, 512))).astype(BF16)
    got = bp.rms_norm(a, residual=b, device="ptx").residual_out
    assert np.array_equal(got.view(np.uint16), bp.rms_norm(a, residual=b, device="cpu").residual_out.view(np.uint16))


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"eps": -1.0}, "eps"),
        ({"eps": float("nan")}, "eps"),
        ({"eps": 1e300}, "eps"),
        ({"eps": 1e-46}, "eps"),
        ({"normalized_shape": (7,)}, "normalized_shape"),
        ({"normalized_shape": ()}, "normalized_shape"),
        ({"weight": np.zeros(7, np.float32)}, "weight has shape"),
        ({"weight": np.zeros(8, np.int32)}, "weight"),
        ({"weight": np.zeros(8, np.float16)}, "weight"),
        ({"residual": np.zeros((3, 8), np.float16)}, "residual"),
        ({"residual_out": np.zeros((3, 8), np.float32)}, "residual"),
    ],
)
def test_what_is_refused(given: dict[str, Any], says: str) -> None:
    with pytest.raises((bp.InvalidProblemError, bp.OperandTypeError), match=says):
        bp.rms_norm(normal(3, 8), **given, device="cpu")
    with pytest.raises(bp.InvalidProblemError, match="mean"):
        bp.layer_norm_backward(normal(3, 8), normal(3, 8), None, None, normal(3), device="cpu")
