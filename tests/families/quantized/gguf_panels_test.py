"""Tiles of rows times widened GGUF weights: every configuration's sums of integers, which no rounding touches."""

from __future__ import annotations

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.ops.quantized.gguf._panels import TABLE
from baracuda_py.ops.quantized.gguf.oracle import matmul as oracle
from baracuda_py.ops.quantized.gguf.samples import blocks as random_blocks
from baracuda_py.plan.about.tune import admissible
from baracuda_py.types.gguf import GgufFormat

from .gguf_test import whole_blocks

PANELS = bp.PlanPreference(variant="panels")


@pytest.mark.parametrize(
    ("kind", "m", "n", "blocks"), [("Q4_K", 17, 5, 9), ("Q6_K", 9, 66, 2), ("Q8_0", 20, 13, 9), ("Q5_0", 65, 5, 1)]
)
def test_sums_of_integers_are_exact(kind: str, m: int, n: int, blocks: int) -> None:
    """Chunks that begin anywhere, more of them than are in shared memory, K in parts, rows and columns beyond a tile."""
    rng, form = np.random.default_rng(6), GgufFormat.of(kind)
    w = whole_blocks(rng, form, n * blocks).reshape(n, -1)
    if kind == "Q6_K":
        w.reshape(-1, form.block.nbytes)[:, 192:208] %= 16  # scales of sub-blocks: weights that f16 holds
    weights = oracle.dequantized(form.block, w)
    assert (weights.astype(np.float16) == weights).all()
    x = rng.integers(-3, 4, (m, weights.shape[1]))
    wanted = x @ weights.astype(np.int64).T
    assert (np.abs(x) @ np.abs(weights).astype(np.int64).T).max() < 1 << 24
    given = x.astype(np.float16)
    desc = bp.GgufMatmulDescriptor.of(given, w, format=kind, out_dtype="f32")
    first = bp.GgufMatmulPlan.select(desc, PANELS, device="ptx")
    plans = admissible(bp.GgufMatmulPlan, desc, PANELS, first.device)
    assert plans
    for plan in plans:
        out = np.full((m, n), np.nan, np.float32)
        plan.run(x=given, w=w, out=out)
        assert np.array_equal(out.astype(np.int64), wanted), plan.sku.config


def test_every_tile_is_a_candidate_for_many_rows() -> None:
    desc = bp.GgufMatmulDescriptor((256, 8192), "bf16", (8192, 32 * 144), "q4_k")
    plan = bp.GgufMatmulPlan.select(desc, PANELS, device="h200")
    found = [p.selection.config for p in admissible(bp.GgufMatmulPlan, desc, PANELS, plan.device)]
    assert {(tile.m, tile.n, tile.warp) for tile in found} == {(tile.m, tile.n, tile.warp) for tile in TABLE}


@pytest.mark.parametrize("kind", list(GgufFormat), ids=str)
def test_weights_are_those_of_dequantize_gguf(kind: GgufFormat) -> None:
    """A row of x with a single one picks weights, which no sum rounds."""
    rng, element = np.random.default_rng(8), (bp.F16, bp.BF16)[len(kind.value) % 2]
    w = random_blocks(rng, kind, 8).reshape(2, -1)
    weights = bp.dequantize_gguf(w, kind, out_dtype=element, device="ptx").astype(np.float32)
    picked = rng.integers(0, weights.shape[1], 9)
    x = np.zeros((9, weights.shape[1]), element.dtype)
    x[np.arange(9), picked] = 1
    got = bp.matmul_gguf(x, w, kind, out_dtype="f32", device="ptx", pref=PANELS)
    assert (got == weights[:, picked].T).all()
