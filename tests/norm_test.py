"""Norms' every output, each held to its own bound; rows that do not depend on one another; what is refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.ops.norm._guarantee import backward_bounds, forward_bounds, promise
from baracuda_py.ops.norm.backward import _down
from baracuda_py.plan import get_op
from baracuda_py.samples import Sample
from baracuda_py.samples.norm import norm_backward_weighted

from .gauntlet import Problem, admissible, named

BF16 = bp.BF16.dtype
rng = np.random.default_rng(3)
Array = np.ndarray[Any, Any]


def normal(*shape: int, dtype: Any = np.float32) -> Array:
    return rng.standard_normal(shape).astype(dtype)


def held(problem: Problem, plan: Any) -> None:
    """Runs a plan on poisoned outputs and holds each to its own bound."""
    desc, config = plan.desc.canonical(), plan._config
    problem.reset()
    plan.run(**problem.operands, **problem.values)
    if "backward" in problem.op.name:
        bounds: Mapping[str, Any] = backward_bounds(desc, config, _down(desc, plan.device, config))
    else:
        bounds = forward_bounds(desc, config)
    assert set(bounds) == set(problem.written)
    inputs = {n: s.host() for n, s in problem.slots.items() if n not in problem.written}
    images = problem.images()
    for name, bound in bounds.items():
        slot = problem.slots[name]
        with named(f"{problem.sample.label} {name} {config}"):
            guarantee = promise(desc.element, bound)
            wide = np.asarray(problem.wide[name])
            guarantee.check(slot.view(images[name]), wide, inputs, measures=plan.measured())
    for name, slot in problem.slots.items():
        outside = ~slot.touched() if name in problem.written else slice(None)
        assert np.array_equal(images[name][outside], slot.initial[outside]), name


def with_residual(op: str, shape: tuple[int, ...], dtype: Any) -> Sample:
    operands = {"x": normal(*shape, dtype=dtype), "residual": normal(*shape, dtype=dtype) * dtype(3)}
    operands["weight"] = normal(shape[-1], dtype=dtype)
    statistics = {"rstd": np.zeros(shape[:-1], np.float32)}
    if op == "layer_norm":
        statistics = {"mean": np.zeros(shape[:-1], np.float32)} | statistics
    return Sample(f"{np.dtype(dtype)}{list(shape)} residual", operands | statistics)


@pytest.mark.parametrize("op", ["rms_norm", "layer_norm"])
@pytest.mark.parametrize("shape", [(5, 72), (3, 4104), (2, 33000), (3, 35)])
@pytest.mark.parametrize("dtype", [BF16.type, np.float16, np.float32])
def test_a_residual_and_the_statistics_are_outputs(op: str, shape: tuple[int, ...], dtype: Any) -> None:
    problem = Problem(get_op(op), with_residual(op, shape, dtype), "ptx")
    held(problem, problem.plan)


@pytest.mark.parametrize("op", ["rms_norm_backward", "layer_norm_backward"])
def test_every_gradient(op: str) -> None:
    for sample in norm_backward_weighted({"name": op}):
        held(problem := Problem(get_op(op), sample, "ptx"), problem.plan)


@pytest.mark.parametrize("op", ["rms_norm", "layer_norm", "rms_norm_backward", "layer_norm_backward"])
def test_every_configuration(op: str) -> None:
    backward = "backward" in op
    samples = norm_backward_weighted({"name": op}) if backward else get_op(op).samples({"name": op})
    for sample in (s for s in samples if "4104" in s.label or "1040" in s.label):
        problem = Problem(get_op(op), sample, "ptx")
        plans = admissible(problem)
        assert len(plans) > 1
        for plan in plans:
            held(problem, plan)


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


def test_the_sum_with_a_residual_is_rounded_once() -> None:
    """A sum that f32 cannot hold, near a tie of bf16: rounding twice goes the other way."""
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
        ({"normalized_shape": (7,)}, "normalized_shape"),
        ({"normalized_shape": ()}, "normalized_shape"),
        ({"weight": np.zeros(7, np.float32)}, "normalized_shape"),
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
