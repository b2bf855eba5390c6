"""Bounds of attention where f32 ends: weights that are flushed, subnormal values, sums that leave the range on their way."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.types import PlanPreference

Array = np.ndarray[Any, Any]
BF16, F32 = np.dtype(ml_dtypes.bfloat16), np.dtype(np.float32)


def holds(plan: Any, arrays: dict[str, Array]) -> Any:
    """What the plan gives, every output of which is within its bound of the oracle."""
    got, wide = plan.run(**arrays), plan.reference(plan.desc, **arrays)
    written = [o.name for o in plan.operands if o.written]
    for name, one, exact in zip(written, got if isinstance(got, tuple) else (got,), wide):
        measures = plan.measured(None, name)
        plan.precision_guarantee.of(name).check(np.asarray(one), np.asarray(exact), arrays, measures=measures)
    return got


def test_scales_near_zero_count_where_products_are_large() -> None:
    """Scores of 1e35 times 1e-35, and times 0; products of q and k that are beyond f32 are outside of the bound."""
    rng = np.random.default_rng(6)
    for d, d_v, variants in ((64, 64, ("flash", "split_keys")), (576, 512, ("latent_keys",))):
        for size, scale in ((1e17, 1e-35), (1e17, 0.0), (1e20, 1e-40)):
            q, k = rng.standard_normal((1, 2, 1, d)) * size, rng.standard_normal((1, 2, 40, d)) * size
            v = rng.standard_normal((1, 2, 40, d_v))
            arrays = {name: x.astype(BF16) for name, x in (("q", q), ("k", k), ("v", v))}
            for variant in variants:
                family = bp.AttentionPlan if variant == "flash" else bp.DecodeAttentionPlan
                desc = family.descriptor.of(**arrays, scale=scale)
                holds(family.select(desc, PlanPreference(variant=variant), device="ptx"), arrays)


def operands(kind: str, element: Any, d: int, d_v: int, keys: int) -> dict[str, Array]:
    rng = np.random.default_rng(5)
    q, k = np.zeros((1, 1, 1, d)), np.zeros((1, 1, keys, d))
    v = np.zeros((1, 1, keys, d_v))
    q[..., 0] = 1
    if kind == "flushed":  # weights of 2**-126.4, and values that show them
        k[..., 0, 0], v[..., 1:, :] = 87.6, 3e38
    elif kind == "overflowing":
        v[...] = 3e38
    elif kind == "rescaled":  # the first half, which comes last, weighs 2**7.9 times as much
        k[..., : keys // 2, 0], v[...] = 5.5, 1e36
    else:
        k[...], v[...] = rng.standard_normal(k.shape), rng.standard_normal(v.shape) * 1e-42
    return {name: x.astype(element) for name, x in (("q", q), ("k", k), ("v", v))}


@pytest.mark.parametrize("kind", ["flushed", "overflowing", "rescaled", "subnormal"])
@pytest.mark.parametrize(
    ("op", "variant", "element", "d", "d_v"),
    [
        ("attention", "flash", BF16, 64, 64),
        ("attention", "simt", F32, 16, 16),
        ("attention_decode", "split_keys", BF16, 64, 64),
        ("attention_decode", "simt_keys", F32, 16, 16),
        ("attention_decode", "latent_keys", BF16, 576, 512),
    ],
)
def test_bounds_hold_at_the_ends_of_f32(op: str, variant: str, element: Any, d: int, d_v: int, kind: str) -> None:
    arrays = operands(kind, element, d, d_v, 256 if kind == "rescaled" else 40)
    family = bp.AttentionPlan if op == "attention" else bp.DecodeAttentionPlan
    desc = family.descriptor.of(**arrays, scale=1.0)
    holds(family.select(desc, PlanPreference(variant=variant), device="ptx"), arrays)


@pytest.mark.parametrize("kind", ["flushed", "overflowing", "subnormal"])
def test_bounds_of_merging_hold_at_the_ends_of_f32(kind: str) -> None:
    outs = operands(kind, F32, 1, 8, 4 if kind == "subnormal" else 70)["v"][0, 0][:, None]
    lses = np.zeros((len(outs), 1), F32)
    lses[1:, 0] = {"flushed": -87.6, "overflowing": 0.0, "subnormal": np.array([-1, -0.4, 0.3])}[kind]
    arrays = {"outs": outs, "lses": lses}
    holds(bp.MergeAttentionPlan.select(bp.MergeAttentionDescriptor.of(**arrays), device="ptx"), arrays)


@pytest.mark.parametrize("kind", ["flushed", "overflowing"])
@pytest.mark.parametrize(("variant", "element", "d"), [("deterministic", BF16, 64), ("simt", F32, 16)])
def test_bounds_of_gradients_hold_at_the_ends_of_f32(variant: str, element: Any, d: int, kind: str) -> None:
    """Sums of products of grad and v may overflow where their differences from delta are 0."""
    arrays = operands(kind, element, d, d, 40)
    arrays["out"], lse = bp.attention(**arrays, scale=1.0, return_lse=True, device="cpu")
    arrays["grad"] = np.random.default_rng(7).standard_normal((1, 1, 1, d)).astype(element)
    arrays["lse"] = lse
    desc = bp.AttentionBackwardDescriptor.of(**arrays, scale=1.0)
    holds(bp.AttentionBackwardPlan.select(desc, PlanPreference(variant=variant), device="ptx"), arrays)


def opposite(element: Any, size: float, rows: int, d: int, d_v: int) -> dict[str, Array]:
    """Half of the keys have the highest score of all queries, the others its opposite."""
    rng = np.random.default_rng(8)
    q, k = np.full((1, 1, rows, d), size), np.full((1, 1, 79, d), size)
    k[:, :, 1::2] *= -1
    return {n: x.astype(element) for n, x in (("q", q), ("k", k), ("v", rng.standard_normal((1, 1, 79, d_v))))}


@pytest.mark.parametrize(("element", "size"), [(np.dtype(np.float16), 7800.0), (BF16, 1e5), (BF16, 1e9)])
@pytest.mark.parametrize(
    ("op", "variant", "d", "d_v"),
    [
        ("attention", "flash", 128, 128),
        ("attention", "tc", 128, 128),
        ("attention_decode", "split_keys", 128, 128),
        ("attention_decode", "latent_keys", 576, 512),
    ],
)
def test_far_scores_give_the_mean_of_the_highest(
    op: str, variant: str, d: int, d_v: int, element: Any, size: float
) -> None:
    """Scores of 2^29 and more, where rounding the base's product alone makes weights overflow."""
    arrays = opposite(element, size, 1 if op == "attention_decode" else 17, d, d_v)
    family = bp.AttentionPlan if op == "attention" else bp.DecodeAttentionPlan
    plan = family.select(family.descriptor.of(**arrays), PlanPreference(variant=variant), device="ptx")
    got = np.asarray(holds(plan, arrays), np.float64)
    assert np.allclose(got, arrays["v"][:, :, ::2].astype(np.float64).mean(2, keepdims=True), atol=0.01)


@pytest.mark.parametrize(("op", "variant"), [("attention", "flash"), ("attention_decode", "split_keys")])
def test_slopes_alone_make_far_scores(op: str, variant: str) -> None:
    """The first key is the highest by 2^25, at 2^31."""
    rng = np.random.default_rng(13)
    q, k, v = (rng.standard_normal((1, 1, n, 64)).astype(np.float16) for n in (1, 79, 79))
    arrays = {"q": q, "k": k, "v": v, "alibi_slopes": np.array([-(2.0**25)], np.float32)}
    family = bp.AttentionPlan if op == "attention" else bp.DecodeAttentionPlan
    plan = family.select(family.descriptor.of(**arrays), PlanPreference(variant=variant), device="ptx")
    assert np.array_equal(np.asarray(holds(plan, arrays)), v[:, :, :1])


@pytest.mark.parametrize("size", [100.0, 7800.0, 20000.0])
@pytest.mark.parametrize("variant", ["fast", "deterministic", "simt"])
def test_weights_of_gradients_are_held_to_one(variant: str, size: float) -> None:
    """lse is rounded to f32: the exponential of what that loses is any number at scores of 2^29."""
    arrays = opposite(np.dtype(np.float16), size, 17, 64, 64)
    arrays["grad"] = np.random.default_rng(9).standard_normal((1, 1, 17, 64)).astype(np.float16)
    made = bp.attention(arrays["q"], arrays["k"], arrays["v"], return_lse=True, device="cpu")
    arrays |= {"out": np.asarray(made.out), "lse": np.nextafter(np.asarray(made.lse), np.float32(0))}
    pref = PlanPreference(variant=variant, deterministic=variant != "fast")
    plan = bp.AttentionBackwardPlan.select(bp.AttentionBackwardDescriptor.of(**arrays), pref, device="ptx")
    got = holds(plan, arrays)
    most = np.abs(arrays["grad"].astype(np.float64)).sum(axis=2).max()
    assert np.abs(np.asarray(got.grad_v, np.float64)).max() <= 1.01 * most


@pytest.mark.parametrize(("variant", "element"), [("deterministic", BF16), ("simt", F32)])
def test_gradients_beside_sinks_far_above_the_scores(variant: str, element: Any) -> None:
    """Weights just below 2^-126 are flushed, whatever they are multiplied with."""
    rng = np.random.default_rng(10)
    arrays = {n: (rng.standard_normal((1, 2, 17, 64)) * size).astype(element) for n, size in (("q", 1e-3), ("k", 1e3))}
    arrays |= {n: (rng.standard_normal((1, 2, 17, 64)) * 100).astype(element) for n in ("v", "grad")}
    arrays["sinks"] = np.array([87.5, 88.5], np.float32)
    made = bp.attention(*(arrays[n] for n in "qkv"), sinks=arrays["sinks"], return_lse=True, device="cpu")
    arrays |= {"out": np.asarray(made.out), "lse": np.asarray(made.lse)}
    pref = PlanPreference(variant=variant)
    holds(bp.AttentionBackwardPlan.select(bp.AttentionBackwardDescriptor.of(**arrays), pref, device="ptx"), arrays)


@pytest.mark.parametrize("variant", ["flash", "tc", "simt", "cpu"])
def test_a_cache_whose_end_was_never_written(variant: str) -> None:
    """Rows behind the last that any query sees are not multiplied, not even with 0."""
    rng, capacity, done, new = np.random.default_rng(11), 200, 41, 37
    k, v = (np.full((1, 2, capacity, 64), np.nan, BF16) for _ in "kv")
    for x in (k, v):
        x[:, :, : done + new] = rng.standard_normal((1, 2, done + new, 64))
    q = rng.standard_normal((1, 4, new, 64)).astype(BF16)
    pref, device = (PlanPreference(), "cpu") if variant == "cpu" else (PlanPreference(variant=variant), "ptx")
    desc = bp.AttentionDescriptor.of(q, k, v, causal=True, offset=done)
    plan = bp.AttentionPlan.select(desc, pref, device=device)
    got = np.asarray(plan.run(q=q, k=k, v=v, offset=done), np.float64)
    whole = [np.ascontiguousarray(x[:, :, : done + new]) for x in (k, v)]
    wide = bp.attention(*(x.astype(np.float64) for x in (q, *whole)), causal=True, offset=done, device="cpu")
    assert np.allclose(got, wide, atol=0.03)


@pytest.mark.parametrize("variant", ["deterministic", "simt"])
def test_gradients_of_a_cache_whose_end_was_never_written(variant: str) -> None:
    rng, capacity, seen = np.random.default_rng(12), 200, 78
    k, v = (np.full((1, 1, capacity, 64), np.nan, BF16) for _ in "kv")
    for x in (k, v):
        x[:, :, :seen] = rng.standard_normal((1, 1, seen, 64))
    q, grad = (rng.standard_normal((1, 2, 37, 64)).astype(BF16) for _ in "qg")
    made = bp.attention(q, k, v, causal=True, offset=seen - 37, return_lse=True, device="cpu")
    arrays = {"grad": grad, "q": q, "k": k, "v": v, "out": np.asarray(made.out), "lse": np.asarray(made.lse)}
    desc = bp.AttentionBackwardDescriptor.of(**arrays, causal=True, offset=seen - 37)
    plan = bp.AttentionBackwardPlan.select(desc, PlanPreference(variant=variant), device="ptx")
    assert all(np.isfinite(np.asarray(x, np.float64)).all() for x in holds(plan, arrays))


def test_softcap_errs_by_little_of_the_cap() -> None:
    """Of one key beside another whose score is 0: the logarithm of the weights' ratio is the capped score."""
    scores = np.concatenate([np.linspace(-300, 300, 61), [0.01, -0.01, 1e4, -1e4]]).astype(np.float32)
    k, v = np.zeros((1, len(scores), 2, 64), np.float16), np.zeros((1, len(scores), 2, 64), np.float16)
    q = np.zeros((1, len(scores), 1, 64), np.float16)
    q[0, :, 0, 0], k[:, :, 1, 0] = scores, 1
    desc = bp.AttentionDescriptor.of(q, k, v, scale=1.0, softcap=8.0, return_lse=True)
    plan = bp.AttentionPlan.select(desc, PlanPreference(variant="flash"), device="ptx")
    lse = np.asarray(plan.run(q=q, k=k, v=v).lse, np.float64)[0, :, 0]
    exact = np.logaddexp(0, 8.0 * np.tanh(q[0, :, 0, 0].astype(np.float64) / 8.0))
    assert np.abs(lse - exact).max() <= 8.0 * 2.0**-20


def pair(d: int, first: list[float], second: list[float], second_rest: float = 0.0) -> dict[str, Array]:
    """One query of ones and two keys, which begin as given; the second's other elements are `second_rest`. Only the first key's
    values are not 0."""
    k, v = np.zeros((1, 1, 2, d), F32), np.zeros((1, 1, 2, d), F32)
    k[0, 0, 0, : len(first)], k[0, 0, 1, : len(second)], k[0, 0, 1, len(second) :] = first, second, second_rest
    v[0, 0, 0] = 1
    return {"q": np.ones((1, 1, 1, d), F32), "k": k, "v": v}


@pytest.mark.parametrize(("d", "size", "rest"), [(64, 2.0**21, 0.124), (256, 2.0**21, 0.124), (256, 2.0**20, 0.062)])
def test_attention_bound_where_score_sums_round_alike(d: int, size: float, rest: float) -> None:
    """The second key's score loses d - 1 products to rounding, so that the first key, exp(-11) of the row, gets its weight."""
    arrays = pair(d, [size + (d - 1) * rest - 11], [size], rest)
    holds(bp.AttentionPlan.select(bp.AttentionDescriptor.of(**arrays, scale=1.0), device="ptx"), arrays)


@pytest.mark.parametrize("size", [200.0, 2048.0, 8192.0])
def test_attention_bound_where_tf32_rounds_differently(size: float) -> None:
    """In TF32 the first key is rounded up and the second down: the lesser score becomes the greater."""
    up, down, lead = 1 + 2.0**-11 + 2.0**-20, 1 + 2.0**-11 - 2.0**-20, size * 2.0**-11
    arrays = pair(16, [size * up], [size * down, 2.0**-19 * size + lead])
    desc = bp.AttentionDescriptor.of(**arrays, scale=1.0, math="tf32")
    holds(bp.AttentionPlan.select(desc, device="ptx"), arrays)


@pytest.mark.parametrize("d", [64, 128])
def test_gradients_bound_where_score_sums_round_alike(d: int) -> None:
    """The second key's products are rounded up, so that its weight is computed as 1 for exp(-9)."""
    arrays, exact = pair(d, [0], [2.0**21], 0.13), 2.0**21 + (d - 1) * float(np.float32(0.13))
    arrays["k"][0, 0, 0, 0] = exact + 9
    ones = np.ones((1, 1, 1, d), F32)
    arrays |= {"grad": ones, "out": ones, "lse": np.full((1, 1, 1), exact + 9, F32)}
    holds(bp.AttentionBackwardPlan.select(bp.AttentionBackwardDescriptor.of(**arrays, scale=1.0), device="ptx"), arrays)
