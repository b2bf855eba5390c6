"""Corners of the quantised ops that samples have not: extents of one and none, every zero point, options that make no sense."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.plan.about.tune import admissible
from baracuda_py.types import DeviceSpec

Array = np.ndarray[Any, Any]
HALVES = (np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16))


def bytes_of(rng: np.random.Generator, *shape: int) -> Array:
    return rng.integers(-128, 128, shape).astype(np.int8)


# ---- int8 --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("m", "n", "k"), [(1, 1, 33), (70, 1, 33), (70, 5, 1), (0, 5, 33), (70, 0, 33), (1, 1, 1), (0, 0, 0)]
)
@pytest.mark.parametrize("variant", [None, "staged"])
def test_bytes_of_extents_of_one_and_none(m: int, n: int, k: int, variant: str | None) -> None:
    """Strides of an axis that is never stepped say nothing: a copy of such an operand is contiguous along K, and not copied."""
    rng = np.random.default_rng(0)
    a, b = bytes_of(rng, m, k)[:, ::-1], bytes_of(rng, k, n)[::-1]
    pref = None if variant is None else bp.PlanPreference(variant=variant)
    try:
        got = bp.matmul_int8(a, b, device="ptx", pref=pref)
    except bp.UnsupportedError:
        assert variant is not None  # both are contiguous along K
    else:
        assert np.array_equal(got, a.astype(np.int64) @ b.astype(np.int64))


@pytest.mark.parametrize("variant", ["gemv", "mma"])
def test_parts_of_k_meet_with_their_zero_points(variant: str) -> None:
    """Every part of K has sums of its own."""
    rng = np.random.default_rng(4)
    a, b = rng.integers(0, 256, (5, 4096)).astype(np.uint8), bytes_of(rng, 18, 4096).T
    zeros = {"zero_a": rng.integers(0, 256, 5).astype(np.uint8), "zero_b": bytes_of(rng, 18)}
    desc = bp.Int8MatmulDescriptor.of(a, b, **zeros)
    plans = admissible(bp.Int8MatmulPlan, desc, bp.PlanPreference(variant=variant), DeviceSpec.named("ptx"))
    plan = next(plan for plan in plans if plan.selection.config.split_k > 1)
    wide_a, wide_b = (x.astype(np.int64) for x in (a, b))
    wanted = (wide_a - zeros["zero_a"].astype(np.int64)[:, None]) @ (wide_b - zeros["zero_b"].astype(np.int64))
    assert np.array_equal(plan.run(a=a, b=b, **zeros), wanted)


@pytest.mark.parametrize("device", ["cpu", "ptx"])
def test_bytes_saturate_round_to_even_and_are_0_of_nan(device: str) -> None:
    a, b = np.arange(-128, 128, dtype=np.int16).astype(np.int8)[:, None], np.full((1, 6), 1, np.int8)
    scales = np.array([0.5, 1, 3, -2, np.nan, np.inf], np.float32)
    got = bp.matmul_int8(a, b, scale_b=scales, out_dtype="i8", device=device)
    wide = a.astype(np.float64) * np.nan_to_num(scales, nan=0, posinf=1e9)
    assert np.array_equal(got, np.clip(np.rint(wide), -128, 127))


@pytest.mark.parametrize("device", ["cpu", "ptx"])
@pytest.mark.parametrize("per", ["tensor", "row", "column", "group"])
@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 4)])
def test_scales_of_nothing_are_one(shape: tuple[int, ...], per: str, device: str) -> None:
    group = 2 if per == "group" else None
    made = bp.quantize_int8(np.zeros(shape, np.float32), per=per, group_size=group, zero_points=True, device=device)
    assert made[0].shape == shape and (made[1] == 1).all() and (made[2] == -128).all()


@pytest.mark.parametrize("device", ["cpu", "ptx"])
def test_rows_of_no_blocks_sum_to_zero(device: str) -> None:
    x, w = np.ones((3, 0), np.float32), np.zeros((16, 0), np.uint8)
    assert np.array_equal(bp.matmul_gguf(x, w, "Q4_K", device=device), np.zeros((3, 16)))


def test_a_format_whose_name_raises_is_not_known() -> None:
    hostile = type("Hostile", (), {"name": property(lambda self: 1 // 0)})()
    with pytest.raises(bp.InvalidProblemError, match="format"):
        bp.dequantize_gguf(np.zeros((1, 144), np.uint8), hostile, device="cpu")


@pytest.mark.parametrize("kind", HALVES, ids=str)
def test_signed_codes_as_halves(kind: Any) -> None:
    """Every byte, each by an activation of its own."""
    w = np.zeros((8, 34), np.uint8)
    w[:, :2] = np.ones(1, np.float16).view(np.uint8)
    w[:, 2:] = np.arange(256, dtype=np.uint8).reshape(8, 32)
    pref = bp.PlanPreference(variant="exact_activation")
    got = bp.matmul_gguf(np.eye(32, dtype=kind)[:20], w, "Q8_0", out_dtype="f32", device="ptx", pref=pref)
    assert np.array_equal(got, w[:, 2:22].view(np.int8).T)


def test_flops_are_those_of_the_product() -> None:
    for rows, math in ((1, None), (33, None), (33, "int8")):
        desc = bp.GgufMatmulDescriptor((rows, 512), "f16", (40, 288), "q4_k", math=math)
        variants = ["q8_activation"] if math else ["exact_activation", "dequantized"]
        for variant in variants:
            plan = bp.GgufMatmulPlan.select(desc, bp.PlanPreference(variant=variant), device="h200")
            assert plan.cost.flops == 2 * rows * 512 * 40, variant


# ---- int4 --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", HALVES, ids=str)
@pytest.mark.parametrize("variant", ["gemv", "mma"])
def test_zero_points_are_any_byte(kind: Any, variant: str) -> None:
    """Every byte as zero point of an even and of an odd column, beside every place of a word."""
    k, n = 64, 256
    rng = np.random.default_rng(1)
    codes = rng.integers(0, 16, (k, n)).astype(np.uint8)
    zeros = np.stack([np.arange(n), np.arange(n)[::-1]]).astype(np.uint8)
    plain = bp.PackedInt4("plain", (k, n), 32, codes, np.ones((2, n), np.float16), zeros)
    x = np.zeros((3, k), kind)
    x[0, 5], x[1, 37], x[2, ::8] = 1, 1, 1
    wide = codes.astype(np.int64) - np.repeat(zeros.astype(np.int64), 32, 0)
    pref = bp.PlanPreference(variant=variant)
    got = bp.matmul_int4(x, bp.repack_int4(plain, device="cpu"), out_dtype="f32", device="ptx", pref=pref)
    assert np.array_equal(got, x.astype(np.int64) @ wide)


@pytest.mark.parametrize("variant", ["gemv", "mma"])
def test_rows_that_end_between_eights_are_filled(variant: str) -> None:
    """K = 13 is one group; the last row ends where memory does."""
    rng = np.random.default_rng(3)
    codes = rng.integers(0, 16, (13, 18)).astype(np.uint8)
    plain = bp.PackedInt4("plain", (13, 18), 13, codes, np.ones((1, 18), np.float16))
    x = rng.integers(-3, 4, (3, 13)).astype(np.float16)
    pref = bp.PlanPreference(variant=variant)
    got = bp.matmul_int4(x, bp.repack_int4(plain, device="cpu"), out_dtype="f32", device="ptx", pref=pref)
    assert np.array_equal(got, x.astype(np.int64) @ (codes.astype(np.int64) - 8))


def test_an_infinite_scale_is_outside_the_bound_and_alone() -> None:
    """Times a code of 0 it is a weight that is NaN; of sums, that are scaled, it is not."""
    made = bp.pack_int4(np.eye(64, 16, dtype=np.float32), group_size=32, device="cpu")
    made.scales[1, 3] = np.inf
    x = np.ones((3, 64), np.float16)
    desc = bp.Int4MatmulDescriptor.of(x, **made.operands, shape=made.shape, group_size=32)
    for variant in ("gemv", "dequantize_matmul"):
        plan = bp.Int4MatmulPlan.select(desc, bp.PlanPreference(variant=variant), device="ptx")
        plan.verify(x=x, **made.operands)
        got = np.asarray(plan.run(x=x, **made.operands))
        assert np.isfinite(np.delete(got, 3, axis=1)).all() and not np.isfinite(got[:, 3]).any()


def packed(layout: str, **more: Any) -> bp.PackedInt4:
    made = bp.pack_int4(np.ones((64, 16), np.float32), group_size=32, layout=layout, device="cpu")
    return bp.PackedInt4(layout, (64, 16), 32, made.codes, made.scales, **more)


@pytest.mark.parametrize(
    ("layout", "to", "order"),
    [
        ("gptq", "tiled", np.full(64, 2**31 - 1)),  # counts of which would be as many
        ("gptq", "tiled", np.full(64, -1)),
        ("gptq", "tiled", np.repeat([0, 1], [31, 33])),
        ("tiled", "gptq", np.zeros(64)),
        ("tiled", "gptq", np.full(64, -1)),
        ("tiled", "gptq", np.r_[np.arange(63), 64]),
    ],
)
def test_an_order_that_is_none_is_refused(layout: str, to: str, order: Array) -> None:
    with pytest.raises(bp.InvalidProblemError, match="order"):
        bp.repack_int4(packed(layout, order=order.astype(np.int32)), to, device="cpu")


@pytest.mark.parametrize("shape", ["ab", 5, (64, "q"), (64, 15.5), (float("nan"), 16), (None, 16), ([1], 16), (64,)])
def test_shapes_that_are_none_are_refused(shape: Any) -> None:
    w, x = packed("tiled"), np.ones((1, 64), np.float16)
    arrays: Any = {"shape": shape, "group_size": 32, "layout": "tiled", "device": "cpu"}
    for call in (
        lambda: bp.dequantize_int4(w.codes, w.scales, **arrays),
        lambda: bp.matmul_int4(x, w.codes, w.scales, **arrays),
        lambda: bp.relayout_int4(w.codes, w.scales, to="gptq", **arrays),
    ):
        with pytest.raises(bp.InvalidProblemError, match="shape"):
            call()


@pytest.mark.parametrize("widths", [5, (16, 16), (16, 16, 16, 16), "abc", (16, 16, 16.5)])
def test_widths_that_are_none_are_refused(widths: Any) -> None:
    w, x = packed("tiled"), np.ones((1, 64), np.float16)
    given, scales = (x, *[w.codes] * 3), {f"scales_{part}": w.scales for part in "qkv"}
    with pytest.raises(bp.InvalidProblemError, match="widths"):
        bp.qkv_project_int4(*given, **scales, widths=widths, group_size=32, device="cpu")
    with pytest.raises(bp.InvalidProblemError, match="widths"):
        bp.QkvProjectDescriptor.of(*given, **scales, widths=widths, group_size=32, weights="int4")


@pytest.mark.parametrize("symmetric", ["no", None, 2, np.array([True, False])])
def test_symmetric_is_a_bool(symmetric: Any) -> None:
    for make in (bp.pack_int4, bp.quantize_int4):
        with pytest.raises(bp.InvalidProblemError, match="symmetric"):
            make(np.ones((64, 16), np.float32), group_size=32, symmetric=symmetric, device="cpu")


# ---- guarantees --------------------------------------------------------------------------------------------------------

K = 2048


def rounded_products(rng: np.random.Generator) -> Any:
    """Plans that round weights or activations first, their operands, and the same with a 32nd or a 16th of K lost."""
    x = rng.standard_normal((6, K)).astype(ml_dtypes.bfloat16)
    w = rng.standard_normal((16, K)).astype(np.float32)
    blocks = bp.quantize_gguf(w, "Q8_0", device="cpu")
    lost = blocks.copy()
    lost[:, 5 * 68 : 6 * 68] = 0
    for math, variant in ((None, "dequantized"), ("int8", "q8_activation")):
        desc: Any = bp.GgufMatmulDescriptor.of(x, blocks, format="Q8_0", math=math, out_dtype="f32")
        yield bp.GgufMatmulPlan, desc, variant, {"x": x, "w": blocks}, {"w": lost}
    tiled = bp.pack_int4(w.T, group_size=128, device="cpu")
    scales = tiled.scales.copy()
    scales[5] = 0
    desc = bp.Int4MatmulDescriptor.of(x, **tiled.operands, shape=tiled.shape, group_size=128, out_dtype="f32")
    yield bp.Int4MatmulPlan, desc, "dequantize_matmul", {"x": x, **tiled.operands}, {"scales": scales}
    codes, scale = bp.quantize_int8(w, device="cpu")
    fewer = codes.copy()
    fewer[:, 640:768] = 0
    desc = bp.Int8MatmulDescriptor.of(x, codes.T, scale_b=scale, out_dtype="f32")
    yield bp.Int8MatmulPlan, desc, "dequantized", {"a": x, "b": codes.T, "scale_b": scale}, {"b": fewer.T}


def test_what_rounding_costs_hides_no_lost_group() -> None:
    """Rounded operands are known to the bit, so that the bound is what they make of the sums: most of what a lost part of K would
    change is outside it, and nothing of what rounding does."""
    for family, desc, variant, operands, lost in rounded_products(np.random.default_rng(2)):
        plan = family.select(desc, bp.PlanPreference(variant=variant), device="ptx")
        plan.verify(**operands)
        wide, without = (np.asarray(family.reference(desc, **given)) for given in (operands, operands | lost))
        f32, measures = bp.ElementKind.F32, plan.measured(desc, "out")
        allowed = plan.precision_guarantee.of("out").bound.allowed(wide, f32, operands, measures)
        assert (np.abs(without - wide) > allowed).mean() > 0.8, variant


@pytest.mark.parametrize("op", ["int4", "gguf"])
def test_what_is_staged_is_explained(op: str) -> None:
    if op == "int4":
        desc: Any = bp.Int4MatmulDescriptor((3, 8192), 8192, "f16", x_strides=(1, 3))
        plan: Any = bp.Int4MatmulPlan.select(desc, bp.PlanPreference(variant="gemv"), device="h200")
    else:
        desc = bp.GgufMatmulDescriptor((3, 512), "f16", (40, 288), "q4_k", math="int8")
        plan = bp.GgufMatmulPlan.select(desc, bp.PlanPreference(variant="q8_activation"), device="h200")
    staging, product = ("stage_tokens", "int4_gemv") if op == "int4" else ("gguf_quantize", "gguf_product")
    explanation = plan.explain()
    assert explanation.steps == (staging, product)
    assert f"runs, in order: {staging}, {product}" in repr(explanation)
    assert f"{staging}: grid" in str(plan)
