"""Quantized norms and gates: against the norm and then the quantizer, products of their codes, depth of sums, refusals."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.ops.norm.quantized.oracle import depth_bound
from baracuda_py.plan import get_op
from baracuda_py.samples import Sample

from ...gauntlet import Problem, admissible, served

BF16 = bp.BF16.dtype
OPS = [f"{op}_{kind}" for op in ("rms_norm", "layer_norm", "silu_mul") for kind in ("int8", "fp8")]
rng = np.random.default_rng(5)
Array = np.ndarray[Any, Any]


def normal(*shape: int, dtype: Any = np.float32) -> Array:
    return rng.standard_normal(shape).astype(dtype)


def operands_of(op: str, shape: tuple[int, ...], dtype: Any) -> dict[str, Array]:
    if op.startswith("silu"):
        return {"x": normal(*shape, dtype=dtype), "y": normal(*shape, dtype=dtype)}
    return {"x": normal(*shape, dtype=dtype), "weight": normal(shape[-1], dtype=dtype)}


@pytest.mark.parametrize("scheme", [{}, {"per": "group", "group_size": 64}], ids=["row", "group"])
@pytest.mark.parametrize("op", OPS)
def test_quantized_every_configuration(op: str, scheme: dict[str, Any]) -> None:
    problem = Problem(get_op(op), Sample("wide", operands_of(op, (2, 4160), BF16), scheme), "ptx")
    plans = admissible(problem)
    assert len(plans) > 1
    served(problem, plans)


@pytest.mark.parametrize("op", OPS)
def test_quantized_f32_equals_norm_then_quantize(op: str) -> None:
    """Of f32 the norm's own result is not rounded further: codes are those of the two ops, but for ties."""
    given = operands_of(op, (5, 384), np.float32)
    base, _, kind = op.rpartition("_")
    names = {} if base == "silu_mul" else {"weight": given["weight"]}
    first = (given["x"], given["y"]) if base == "silu_mul" else (given["x"],)
    result = getattr(bp, base)(*first, **names, device="ptx")
    for scheme in ({}, {"per": "group", "group_size": 128}):
        wanted = getattr(bp, f"quantize_{kind}")(result, **scheme, device="ptx")
        got = getattr(bp, op)(*first, **names, **scheme, device="ptx")
        assert got.codes.dtype == wanted.codes.dtype
        assert np.allclose(got.scales, wanted.scales, rtol=1e-6, atol=0)
        same = got.codes.astype(np.float32) == wanted.codes.astype(np.float32)
        assert same.mean() > 0.99


@pytest.mark.parametrize("op", ["rms_norm_int8", "layer_norm_fp8"])
def test_quantized_residual_is_the_sum(op: str) -> None:
    x, residual, weight = normal(3, 512, dtype=BF16), normal(3, 512, dtype=BF16), normal(512, dtype=BF16)
    got = getattr(bp, op)(x, weight, residual=residual, device="ptx")
    summed = (x.astype(np.float64) + residual.astype(np.float64)).astype(BF16)
    assert np.array_equal(got.residual_out.view(np.uint16), summed.view(np.uint16))
    alone = getattr(bp, op)(summed, weight, device="ptx")
    assert np.array_equal(got.codes.view(np.uint8), alone.codes.view(np.uint8))
    assert np.array_equal(got.scales, alone.scales)
    placed = getattr(bp, op)(x, weight, residual=residual, residual_out=residual, device="ptx")
    assert placed.residual_out is residual
    assert np.array_equal(placed.codes.view(np.uint8), got.codes.view(np.uint8))


def test_quantized_codes_multiply_as_matmul_takes_them() -> None:
    x, weight = normal(4, 256, dtype=BF16), normal(256, dtype=BF16)
    b = rng.integers(-127, 128, (256, 32)).astype(np.int8)
    codes, scales = bp.rms_norm_int8(x, weight, device="ptx")
    got = bp.matmul_int8(codes, b, scale_a=scales, device="ptx")
    y = bp.rms_norm(x.astype(np.float32), weight.astype(np.float32), device="cpu").astype(np.float64)
    wanted = y @ b
    assert np.abs(got - wanted).max() <= (scales[:, None] / 2 * np.abs(b).sum(axis=0) * 1.01).max()


@pytest.mark.parametrize("op", OPS)
def test_quantized_rows_of_zeros_and_nan(op: str) -> None:
    given = operands_of(op, (4, 128), np.float32)
    given["x"][0], given["x"][2, 5] = 0, np.nan
    for scheme in ({}, {"per": "group", "group_size": 32}):
        problem = Problem(get_op(op), Sample("corners", given, scheme), "ptx")
        served(problem, [problem.plan])
        got = getattr(bp, op)(**given, **scheme, device="ptx") if op[0] != "s" else getattr(bp, op)(
            given["x"], given["y"], **scheme, device="ptx"
        )  # fmt: skip
        assert (got.scales[0] == 1).all()
        assert (got.codes[0].astype(np.float32) == 0).all()
        nan = got.codes[2, 5]
        assert nan == 0 if op.endswith("int8") else np.isnan(nan.astype(np.float32))


def test_quantized_codes_saturate_symmetrically() -> None:
    x = np.array([[1.0, -1.0, 0.5, 0.0] * 8], np.float32)
    codes = bp.rms_norm_int8(x, device="ptx").codes
    assert codes.min() == -127
    assert codes.max() == 127
    codes = bp.rms_norm_fp8(x, device="ptx").codes.astype(np.float32)
    assert codes.min() == -448
    assert codes.max() == 448


@pytest.mark.parametrize("op", ["rms_norm_int8", "layer_norm_int8"])
def test_quantized_depth_bound_covers_all_configurations(op: str) -> None:
    plan = get_op(op).plan
    for element, vector in (("bf16", 8), ("bf16", 1), ("f32", 4), ("f32", 1)):
        for n in (1, 8, 100, 4096, 16384, 32768, 33000, 50257, 400_000):
            strides = (n, 1) if vector > 1 else (2 * n, 2)
            desc = plan.descriptor(shape=(2, n), element=element, x_strides=strides, name=op)
            (candidate,) = plan.candidates
            for config in candidate.configs(desc.canonical(), bp.DeviceSpec.named("sm_90a")):
                assert config.depth(n) <= depth_bound(n), (element, n, config)


def test_quantized_bound_is_zero_away_from_ties() -> None:
    """A code that is off by one is found wherever the value is not near a tie."""
    given = operands_of("rms_norm_int8", (4, 256), np.float32)
    problem = Problem(get_op("rms_norm_int8"), Sample("s", given), "ptx")
    measures = problem.plan.selection.measured(problem.desc, "codes")
    allowed = measures["code_error"](**given) * 2.0**-24
    assert (allowed == 0).mean() > 0.99
    assert allowed.max() <= 1
    exact, _ = get_op("rms_norm_int8").plan.reference(problem.desc, **given)
    promise = problem.plan.precision_guarantee.of("codes")
    promise.check(exact.astype(np.int8), exact, given, measures=measures)
    wrong = exact.copy()
    wrong.reshape(-1)[np.flatnonzero(allowed == 0)[7]] += 1
    with pytest.raises(AssertionError, match="1 of 1024"):
        promise.check(wrong.astype(np.int8), exact, given, measures=measures)


def test_quantized_two_threads() -> None:
    given = operands_of("layer_norm_int8", (3, 192), BF16)
    wanted = bp.layer_norm_int8(**given, device="ptx")
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda _: bp.layer_norm_int8(**given, device="ptx"), range(6)))
    assert all(np.array_equal(got.codes, wanted.codes) for got in found)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"per": "column"}, "per"),
        ({"per": "group", "group_size": 128}, "does not divide"),
        ({"per": "group", "group_size": 16}, "group_size=16"),
        ({"per": "group"}, "group_size=None"),
        ({"group_size": 32}, "group_size=32"),
        ({"eps": -1.0}, "eps"),
        ({"codes": np.zeros((3, 96), np.uint8)}, "codes"),
        ({"scales": np.zeros((3, 1), np.float32)}, "scales"),
        ({"weight": np.zeros(95, np.float32)}, "weight has shape"),
        ({"normalized_shape": (3, 96), "per": "group", "group_size": 32}, "last axis alone"),
    ],
)
def test_quantized_refusals(given: dict[str, Any], says: str) -> None:
    with pytest.raises((bp.InvalidProblemError, bp.OperandTypeError), match=says):
        bp.rms_norm_int8(normal(3, 96), **given, device="cpu")


def test_quantized_refuses_f64_and_shapes_that_differ() -> None:
    with pytest.raises(bp.OperandTypeError, match="f64"):
        bp.rms_norm_fp8(normal(3, 96, dtype=np.float64), device="cpu")
    with pytest.raises(bp.InvalidProblemError, match="y"):
        bp.silu_mul_int8(normal(3, 96), normal(3, 95), device="cpu")
    with pytest.raises(bp.OperandTypeError, match="y"):
        bp.silu_mul_int8(normal(3, 96), normal(3, 96, dtype=ml_dtypes.bfloat16), device="cpu")
