"""A whole decoder layer under ``bp.preference(batch_invariant=True)``: a sequence's bits alone and in a batch."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

import baracuda_py as bp
from benchmarks import invariance
from tests.readme import ROOT

BATCHES = (1, 8, 33, 133)
WIDTH, COLUMNS, KEYS = 256, 64, 8  # emulated: one head of keys for four of queries
F16 = np.float16
DEVICE = "ptx:sm_80"
Product = Callable[[Any], Any]


# ---- real sizes: what is selected -------------------------------------------------------------------------------------


@pytest.mark.parametrize("weights", list(invariance.WEIGHTS))
def test_invariance_of_a_layer_at_real_sizes(weights: str) -> None:
    """Every plan promises it at every batch, and a product has one variant, whose order of sums is one for all tiles."""
    with bp.preference(batch_invariant=True):
        layers = [invariance.layer_plans(weights, batch) for batch in BATCHES]
    for plans in layers:
        for plan in plans:
            outputs = [o.name for o in plan.operands if o.written]
            assert all(plan.precision_guarantee.of(name).batch_invariant for name in outputs), plan.sku
    for alike in zip(*layers, strict=True):
        op = alike[0].desc.op
        if op.startswith("matmul") or "attention" in op:
            assert len({plan.sku.variant for plan in alike}) == 1, [str(plan.sku) for plan in alike]


def test_invariance_costs_what_the_page_says() -> None:
    text = (ROOT / "docs/reproducibility.md").read_text(encoding="utf-8")
    ratios = invariance.costs((1, *BATCHES[1:]))
    assert f"at most {round(100 * (max(invariance.costs(invariance.BATCHES)['f16']) - 1))} % slower" in text
    for weights, said in (("int4", "int4"), ("NF4", "NF4"), ("GGUF Q4_K", "GGUF")):
        assert f"{said} {ratios[weights][0]:.1f} ×" in text


# ---- small sizes: the bits --------------------------------------------------------------------------------------------


def products(weights: str, k: int, n: int, seed: int) -> Product:
    """The product with random weights of that kind."""
    w = (np.random.default_rng(seed).standard_normal((n, k)) / k**0.5).astype(np.float32)
    if weights == "int4":
        int4 = bp.pack_int4(np.ascontiguousarray(w.T), device="cpu")
        return lambda x: bp.matmul_int4(x, int4)
    if weights == "NF4":
        nf4 = bp.pack_nf4(w, device="cpu")
        return lambda x: bp.matmul_nf4(x, nf4)
    if weights == "GGUF Q4_K":
        blocks = bp.PackedGguf(bp.quantize_gguf(w, "Q4_K", device="cpu"), "Q4_K", (n, k))
        return lambda x: bp.matmul_gguf(x, blocks)
    plain = np.ascontiguousarray(w.T).astype(F16)
    return lambda x: bp.matmul(x, plain)


def sequences(batch: int) -> dict[str, Any]:
    """A token and the cache of each sequence; the first one is the same in every batch."""
    rng = np.random.default_rng(1)
    shapes = {"x": (WIDTH,), "k_cache": (1, KEYS, COLUMNS), "v_cache": (1, KEYS, COLUMNS)}
    one = [{name: rng.standard_normal(shape) for name, shape in shapes.items()} for _ in range(batch)]
    made: dict[str, Any] = {name: np.stack([each[name] for each in one]).astype(F16) for name in shapes}
    return {**made, "lengths": (3 + np.arange(batch, dtype=np.int32)) % (KEYS - 1)}


@cache
def layer_of(weights: str) -> Callable[..., Any]:
    qkv, out = products(weights, WIDTH, WIDTH + 2 * COLUMNS, 2), products(weights, WIDTH, WIDTH, 3)
    gate_up, down = products(weights, WIDTH, 2 * WIDTH, 4), products(weights, WIDTH, WIDTH, 5)
    norm = np.ones(WIDTH, F16)

    def layer(x: Any, k_cache: Any, v_cache: Any, lengths: Any) -> Any:
        batch = len(x)
        heads = qkv(bp.rms_norm(x, norm)).reshape(batch, -1, 1, COLUMNS)
        q, k, v = heads[:, :-2], heads[:, -2:-1], heads[:, -1:]
        rotated = bp.rope(q, lengths[:, None], k=k)
        bp.kv_append(k_cache, v_cache, rotated.k_out, v, lengths)
        attended = bp.attention_decode(rotated.out, k_cache, v_cache, bp.add(lengths, 1))
        x = bp.add(x, out(attended.reshape(batch, -1)))
        both = gate_up(bp.rms_norm(x, norm))
        return bp.add(x, down(bp.silu_mul(both[:, :WIDTH], both[:, WIDTH:])))

    return layer


@cache
def row_of(weights: str, batch: int) -> Any:
    """The first sequence's result in a batch."""
    with bp.device(DEVICE), bp.preference(batch_invariant=True):
        return layer_of(weights)(**sequences(batch))[0]


@pytest.mark.parametrize("batch", BATCHES[1:])
@pytest.mark.parametrize("weights", list(invariance.WEIGHTS))
def test_invariance_of_a_layer_in_bits(weights: str, batch: int) -> None:
    """One sequence alone and in the batch, on emulated kernels."""
    alone, beside = row_of(weights, 1), row_of(weights, batch)
    assert np.isfinite(alone.astype(np.float32)).all() and alone.any()
    assert np.array_equal(alone.view(np.uint16), beside.view(np.uint16))
