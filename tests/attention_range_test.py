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


def holds(plan: Any, arrays: dict[str, Array]) -> None:
    """Every output is within its bound of the oracle."""
    got, wide = plan.run(**arrays), plan.reference(plan.desc, **arrays)
    written = [o.name for o in plan.operands if o.written]
    for name, one, exact in zip(written, got if isinstance(got, tuple) else (got,), wide):
        measures = plan.measured(None, name)
        plan.precision_guarantee.of(name).check(np.asarray(one), np.asarray(exact), arrays, measures=measures)


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
