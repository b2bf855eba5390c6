"""Descriptors take packed weights as functions do: what runs, and why, is asked about the weight that one holds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bp

RNG = np.random.default_rng(3)
X = RNG.standard_normal((5, 256)).astype(np.float16)
INT4 = bp.pack_int4(RNG.standard_normal((256, 48)).astype(np.float32), group_size=64, symmetric=False, device="cpu")
NF4 = bp.pack_nf4(RNG.standard_normal((48, 256)).astype(np.float32), block_size=128, device="cpu")
GGUF = bp.PackedGguf(
    bp.quantize_gguf(RNG.standard_normal((48, 256)).astype(np.float32), "Q6_K", device="cpu"), "Q6_K", (48, 256)
)
WEIGHT = {"shape": (256, 48), "group_size": 64, "layout": "tiled"}

PRODUCTS = {
    "int4": (bp.Int4MatmulPlan, INT4, {**INT4.operands}, WEIGHT),
    "nf4": (bp.Nf4MatmulPlan, NF4, {**NF4.operands}, {"block_size": 128}),
    "gguf": (bp.GgufMatmulPlan, GGUF, {"w": GGUF.blocks}, {"format": "Q6_K"}),
}
INVERSES = {
    "int4": (bp.DequantizeInt4Plan, INT4, {**INT4.operands}, WEIGHT),
    "nf4": (bp.DequantizeNf4Plan, NF4, {**NF4.operands}, {"block_size": 128}),
    "gguf": (bp.GgufDequantizePlan, GGUF, {"blocks": GGUF.blocks}, {"format": "Q6_K", "shape": (48, 256)}),
}
FUNCTIONS: dict[str, Any] = {"int4": bp.matmul_int4, "nf4": bp.matmul_nf4, "gguf": bp.matmul_gguf}


@pytest.mark.parametrize("kind", PRODUCTS)
def test_a_product_is_described_by_its_packed_weight(kind: str) -> None:
    family, weight, arrays, options = PRODUCTS[kind]
    plan = family.select(family.descriptor.of(X, weight), device="ptx")
    assert plan == family.select(family.descriptor.of(x=X, **arrays, **options), device="ptx")
    assert np.array_equal(plan.run(x=X, **arrays), FUNCTIONS[kind](X, weight, device="ptx"))


@pytest.mark.parametrize("kind", INVERSES)
def test_its_inverse_is_described_by_it(kind: str) -> None:
    family, weight, arrays, options = INVERSES[kind]
    options = options if kind != "gguf" else {"format": "Q6_K"}
    assert family.descriptor.of(weight) == family.descriptor.of(**arrays, **options)


@pytest.mark.parametrize("kind", PRODUCTS)
def test_what_a_packed_weight_says_is_not_said_twice(kind: str) -> None:
    family, weight, _, options = PRODUCTS[kind]
    of = family.descriptor.of
    assert of(X, weight, **{name: x for name, x in options.items() if name != "shape"}) == of(X, weight)
    other: dict[str, Any] = {"int4": {"group_size": 32}, "nf4": {"block_size": 64}, "gguf": {"format": "Q4_K"}}[kind]
    with pytest.raises(bp.InvalidProblemError, match=r"and (the weight has|w is packed as)"):
        of(X, weight, **other)


def test_a_projection_is_described_by_its_packed_weights() -> None:
    weights = [
        bp.pack_int4(RNG.standard_normal((256, n)).astype(np.float32), group_size=64, device="cpu")
        for n in (48, 16, 16)
    ]
    desc = bp.QkvProjectDescriptor.of(X, *weights, weights="int4")
    assert (desc.widths, desc.group_size) == ((48, 16, 16), 64)
    arrays = {
        f"{'w' if name == 'codes' else name + '_'}{part}": x
        for part, weight in zip("qkv", weights)
        for name, x in weight.operands.items()
    }
    plan = bp.QkvProjectPlan.select(desc, device="ptx")
    got, wanted = plan.run(x=X, **arrays), bp.qkv_project_int4(X, *weights, device="ptx")
    assert all(np.array_equal(a, b) for a, b in zip(got, wanted))
    with pytest.raises(bp.InvalidProblemError, match="leave widths out"):
        bp.QkvProjectDescriptor.of(X, *weights, widths=(48, 16, 32), weights="int4")
    different = bp.pack_int4(RNG.standard_normal((256, 16)).astype(np.float32), group_size=128, device="cpu")
    with pytest.raises(bp.InvalidProblemError, match="pack all three alike"):
        bp.QkvProjectDescriptor.of(X, weights[0], weights[1], different, weights="int4")


def test_what_a_packed_weight_says_of_itself_reads_no_numbers() -> None:
    assert repr(INT4) == (
        "PackedInt4(layout='tiled', shape=(256, 48), group_size=64, codes=u32[3, 4, 32, 4], scales=f16[4, 48], zeros=u8[4, 48])"
    )
    assert repr(NF4) == "PackedNf4(shape=(48, 256), codes=u8[48, 128], absmax=f32[96], block_size=128)"
    assert repr(GGUF) == "PackedGguf(blocks=u8[48, 210], format='q6_k', shape=(48, 256))"
