"""Products of bytes and codes of a byte, beyond the gauntlet: refusals in words, exact sums, every slot by itself."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.plan.about.tune import admissible
from baracuda_py.types import DeviceSpec

Array = np.ndarray[Any, Any]


def codes(shape: tuple[int, ...], dtype: Any = np.int8, seed: int = 0) -> Array:
    info = np.iinfo(dtype)
    return np.random.default_rng(seed).integers(info.min, info.max, shape, dtype, endpoint=True)


def scales(*shape: int) -> Array:
    return np.full(shape, 0.5, np.float32)


# ---- exact -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_ragged_products_are_exact(dtype: Any) -> None:
    """Against integers of 64 bits, weights in both orders."""
    for i, (m, n, k) in enumerate(itertools.product((1, 7, 65), (2, 13, 34), (33, 96))):
        device = "ptx" if i % 5 == dtype().itemsize + (dtype is np.uint8) else "cpu"
        a, w = codes((m, k), dtype, i), codes((n, k), seed=i + 1)
        wanted = a.astype(np.int64) @ w.T.astype(np.int64)
        b = w.T if i % 2 else np.ascontiguousarray(w.T)
        assert np.array_equal(bp.matmul_int8(a, b, device=device), wanted), (m, n, k)


@pytest.mark.parametrize(("m", "order"), [(1, "nk"), (9, "kn"), (66, "nk")])
def test_every_slot_counts_once(m: int, order: str) -> None:
    """One code of a and one of b at a time, each with a value of its own: no other element of the result is touched."""
    n, k = 34, 80
    for i, (row, inner, column) in enumerate(
        ((0, 0, 0), (m - 1, k - 1, n - 1), (m // 2, 17, 5), (0, 64, 33), (m - 1, 35, 16))
    ):
        a, w, wanted = np.zeros((m, k), np.int8), np.zeros((n, k), np.int8), np.zeros((m, n), np.int64)
        a[row, inner], w[column, inner] = -100 + i, 90 + i
        wanted[row, column] = (-100 + i) * (90 + i)
        b = w.T if order == "nk" else np.ascontiguousarray(w.T)
        assert np.array_equal(bp.matmul_int8(a, b, device="ptx"), wanted), (row, inner, column)


@pytest.mark.parametrize("dtype", [np.float16, bp.BF16.dtype])
def test_each_of_the_256_weights_is_itself(dtype: Any) -> None:
    """Conversions in registers: a token that is 1 in one place returns that place's weight."""
    w = np.resize(np.arange(-128, 128).astype(np.int8), (64, 32))
    a = np.eye(32, dtype=np.float32)[[0, 1, 2, 3, 30, 31]].astype(dtype)
    out = bp.matmul_int8(a, w.T, scale_b=np.ones((), np.float32), device="ptx", out_dtype="f32")
    assert np.array_equal(out, w.T.astype(np.float32)[[0, 1, 2, 3, 30, 31]])


@pytest.mark.parametrize(("m", "order", "k"), [(1, "nk", 512), (5, "kn", 44), (9, "nk", 50)])
def test_dynamic_is_quantising_first(m: int, order: str, k: int) -> None:
    """By a launch ahead, or by every CTA for itself: the same bits."""
    x = (
        np.random.default_rng(0).standard_normal((m, k)).astype(np.float16)
        * np.arange(1, m + 1, dtype=np.float16)[:, None]
    )
    w = codes((20, k))
    b, scale = (w.T if order == "nk" else np.ascontiguousarray(w.T)), np.linspace(0.5, 1, 20, dtype=np.float32)
    q, s = bp.quantize_int8(x, device="cpu")
    wanted = bp.matmul_int8(q, b, s, scale, device="ptx")
    for variant in ("gemv", "quantized"):
        pref = bp.PlanPreference(variant=variant)
        found = bp.matmul_int8(x, b, scale_b=scale, dynamic=True, out_dtype="f32", device="ptx", pref=pref)
        assert np.array_equal(found, wanted), variant


def test_there_and_back() -> None:
    x = np.random.default_rng(1).standard_normal((6, 64)).astype(np.float32)
    for options in ({}, {"per": "group", "group_size": 16}, {"per": "column"}, {"per": "tensor"}):
        for zero_points in (False, True):
            made = bp.quantize_int8(x, **options, zero_points=zero_points, device="cpu")
            back = bp.dequantize_int8(*made, **options, device="cpu")
            step = made.scales.reshape(6, 1) if not options else made.scales.max()
            assert np.abs(back - x).max() <= 0.5001 * np.max(step)
            again = bp.quantize_int8(back, **options, zero_points=zero_points, device="cpu")
            assert np.array_equal(again.codes, made.codes)


@pytest.mark.parametrize("per", ["column", "tensor"])
def test_stripes_of_several_rounds(per: str) -> None:
    """The last round, and the last stripe, are not whole; the furthest elements are where either would lose them."""
    x = np.random.default_rng(2).standard_normal((301, 40)).astype(np.float32)
    x[::50] *= np.linspace(5, 9, 40, dtype=np.float32)
    x[-1, 7], x[127, 8], x[128, 9], x[63, 39] = 100, -101, 102, -103
    desc = bp.QuantizeDescriptor.of(x, per=per, dtype="u8", zero_points=True)
    device = dataclasses.replace(DeviceSpec.named("ptx"), sms=1)
    plans = admissible(bp.QuantizePlan, desc, bp.PlanPreference(), device)
    wanted = bp.quantize_int8(x, per=per, dtype="u8", zero_points=True, device="cpu")
    found = {str(plan.sku.config): plan.run(x=x) for plan in plans}
    assert len(found) > 2 and any("rounds=2" in config for config in found)
    for made in found.values():
        assert all(map(np.array_equal, made, wanted))


def test_splits_and_tiles_change_nothing() -> None:
    """Sums of integers are the same however K is shared out: every configuration gives the same bits."""
    a, b = codes((3, 2048)), codes((16, 2048), seed=1).T
    desc = bp.Int8MatmulDescriptor.of(a, b, scale_a=scales(3))
    wanted = bp.matmul_int8(a, b, scales(3), device="cpu")
    plans = [bp.Int8MatmulPlan.select(desc, bp.PlanPreference(variant=name), device="ptx") for name in ("gemv", "mma")]
    assert any("split_k" in str(plan.sku.config) for plan in plans)
    for plan in plans:
        assert np.array_equal(plan.run(a=a, b=b, scale_a=scales(3)), wanted)


@pytest.mark.parametrize("warps", ["unroll=2 warps=8", "unroll=8 warps=4", "unroll=2 warps=4 early"])
def test_rounds_follow_each_other(warps: str) -> None:
    """K of several rounds, the last of them not whole: weights asked for ahead, or round by round."""
    a, w = codes((3, 2112)), codes((20, 2112), seed=1)
    desc, device = bp.Int8MatmulDescriptor.of(a, w.T), DeviceSpec.named("ptx")
    plans = admissible(bp.Int8MatmulPlan, desc, bp.PlanPreference(variant="gemv"), device)
    plan = next(plan for plan in plans if str(plan.sku.config).endswith(warps))
    assert np.array_equal(plan.run(a=a, b=w.T), a.astype(np.int64) @ w.T.astype(np.int64))


# ---- refused -----------------------------------------------------------------------------------------------------------

A, B, HALF = codes((4, 32)), codes((32, 8)), np.ones((4, 32), np.float16)
I32, F32 = np.ones(8, np.int32), np.ones(8, np.float32)
REFUSED: dict[str, tuple[tuple[Any, ...], dict[str, Any], type[Exception], str]] = {
    "floats": ((HALF, B.astype(np.float16)), {}, bp.OperandTypeError, "use matmul"),
    "f32 beside weights": ((HALF.astype(np.float32), B, None, F32), {}, bp.OperandTypeError, "cast it to f16 or bf16"),
    "unsigned weights": ((A, B.view(np.uint8)), {}, bp.OperandTypeError, "b must hold i8"),
    "extents": ((A, B[:30]), {}, bp.InvalidProblemError, "do not agree on K"),
    "scale of a half": ((A, B, np.ones(4, np.float16)), {}, bp.OperandTypeError, "scale_a must hold f32"),
    "scale of another shape": ((A, B, np.ones(5, np.float32)), {}, bp.InvalidProblemError, r"no scale.*\(4,\)"),
    "groups of bytes": ((A, B, None, np.ones((2, 8), np.float32)), {}, bp.InvalidProblemError, "no scale"),
    "groups that do not divide": ((HALF, B, None, np.ones((3, 8), np.float32)), {}, bp.InvalidProblemError, "no scale"),
    "zero point of another kind": ((A, B), {"zero_a": np.ones((), np.uint8)}, bp.OperandTypeError, "zero_a must hold i8"),
    "zero point of another shape": ((A, B), {"zero_b": codes((7,))}, bp.InvalidProblemError, "no zero point"),
    "scale of floats": ((HALF, B, np.ones(4, np.float32), F32), {}, bp.InvalidProblemError, "not quantised"),
    "no scale of weights": ((HALF, B), {}, bp.InvalidProblemError, "scale_b is missing"),
    "i8 without a scale": ((A, B), {"out_dtype": "i8"}, bp.InvalidProblemError, "needs a scale"),
    "f16 without a scale": ((A, B), {"out_dtype": "f16"}, bp.InvalidProblemError, "needs a scale"),
    "i32 with a scale": ((A, B, None, F32), {"out_dtype": "i32"}, bp.InvalidProblemError, "exact sum"),
    "i8 of floats": ((HALF, B, None, F32), {"out_dtype": "i8"}, bp.OperandTypeError, "dynamic=True"),
    "f64": ((A, B), {"out_dtype": "f64"}, bp.OperandTypeError, "one of f32"),
    "gelu as i8": ((A, B, None, F32), {"out_dtype": "i8", "activation": "gelu"}, bp.UnsupportedError, "quantize_int8"),
    "float bias of sums": ((A, B), {"bias": F32}, bp.OperandTypeError, "a bias of i32"),
    "integer bias of floats": ((A, B, None, F32), {"bias": I32}, bp.OperandTypeError, "f32, f16 or bf16"),
    "bias of another shape": ((A, B), {"bias": I32[:5]}, bp.InvalidProblemError, "bias of shape"),
    "dynamic bytes": ((A, B, None, F32), {"dynamic": True}, bp.OperandTypeError, "quantised already"),
    "a batch of weights": ((A, B[None]), {}, bp.InvalidProblemError, r"\[K, N\]"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_bad_input_is_refused_in_words(case: str) -> None:
    operands, options, error, words = REFUSED[case]
    for device in ("cpu", "ptx"):
        with pytest.raises(error, match=words):
            bp.matmul_int8(*operands, **options, device=device)


@pytest.mark.parametrize(
    ("dtype", "zeros", "most"),
    [
        ("i8", (), 131071),
        ("u8", (), 65793),
        ("u8", ("zero_a",), 65793),
        ("i8", ("zero_a", "zero_b"), 33025),
    ],
)
def test_the_largest_exact_k(dtype: str, zeros: tuple[str, ...], most: int) -> None:
    """The last K that is taken, and the first that is not, whose error names the largest."""

    def desc(k: int) -> Any:
        given: dict[str, Any] = {f"{name}_shape": () for name in zeros}
        given |= {f"{name}_element": dtype if name.endswith("a") else "i8" for name in zeros}
        return bp.Int8MatmulDescriptor((4, k), (k, 8), dtype, b_strides=(1, k), **given)

    bp.Int8MatmulPlan.select(desc(most), device="h200")
    with pytest.raises(bp.InvalidProblemError, match=f"largest exact K of these operands is {most}"):
        bp.Int8MatmulPlan.select(desc(most + 1), device="h200")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"per": "group"}, "give group_size"), ({"per": "group", "group_size": 24}, "pad rows to 72"),
        ({"group_size": 8}, 'per="group"'), ({"per": "channel"}, "one of tensor, row, column, group"),
        ({"dtype": "i16"}, "codes must hold i8 or u8, got i16"), ({"per": "group", "group_size": 0}, "1 or more"),
    ],
)  # fmt: skip
def test_schemes_that_make_no_sense(options: dict[str, Any], words: str) -> None:
    with pytest.raises((bp.InvalidProblemError, bp.OperandTypeError), match=words):
        bp.quantize_int8(np.zeros((3, 64), np.float32), **options, device="cpu")


@pytest.mark.parametrize("kind", ["float8_e5m2", "int8", "float16"])
def test_codes_of_another_kind_name_those_that_the_op_takes(kind: str) -> None:
    codes = np.zeros((3, 8), np.dtype(getattr(ml_dtypes, kind, kind)))
    with pytest.raises(
        bp.OperandTypeError, match=r"codes must hold fp8_e4m3, got \w+: (call dequantize_int8|pass fp8)"
    ):
        bp.dequantize_fp8(codes, np.ones(3, np.float32), device="cpu")


def test_a_projection_names_the_part_that_is_wrong() -> None:
    x, w, s = HALF, [codes((32, n)) for n in (16, 8, 8)], [np.ones(n, np.float32) for n in (16, 8, 8)]
    with pytest.raises(bp.InvalidProblemError, match=r"of k: .*scale_b"):
        bp.qkv_project_int8(x, *w, s[0], np.ones(5, np.float32), s[2], device="cpu")
    with pytest.raises(bp.InvalidProblemError, match="wv"):
        bp.qkv_project_int8(x, w[0], w[1], w[2][:16], *s, device="cpu")


def test_scales_with_uneven_steps_are_refused_by_select() -> None:
    """A scale of each row of [2, 3] whose leading axes cannot be one: before a kernel is chosen."""
    a, b = np.ones((2, 3, 16), np.int8), np.ones((16, 8), np.int8)
    scale = np.ones((3, 2, 1), np.float32).transpose(1, 0, 2)
    with pytest.raises(bp.UnsupportedError, match=r"scale_a of shape .* is not evenly spaced: pass scale_a in C order"):
        bp.Int8MatmulPlan.select(bp.Int8MatmulDescriptor.of(a, b, scale_a=scale), device="h200")
