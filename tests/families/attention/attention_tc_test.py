"""tc, attention with all scores in shared memory: tiles agree to the bit, and which names take it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.ops.attention.samples.forward import qkv
from baracuda_py.plan.about import tune
from baracuda_py.runtime.gpu.device import spec_of
from baracuda_py.types import ElementKind, PlanPreference

rng = np.random.default_rng(5)
F16, BF16 = ElementKind.F16, ElementKind.BF16


@pytest.mark.parametrize("masked", [False, True])
def test_every_tile_gives_the_same_bits(masked: bool) -> None:
    """The result of a row does not depend on the queries beside it: the first block that a tile takes does."""
    given: dict[str, Any] = qkv(rng, F16, 1, (1, 1), 33, 250, 40, 24)
    given["sinks"] = np.array([2.0], np.float32)
    options: dict[str, Any] = {"window": (60, 0)}
    if masked:
        given["block_mask"] = np.array([[1, 0, 0, 1], [0, 1, 0, 1]], bool)[None, None]  # a row alone in the second
        options = {"block_size": (32, 64), "causal": True}
    desc = bp.AttentionDescriptor.of(**given, **options, return_lse=True)
    plans = tune.admissible(bp.AttentionPlan, desc.canonical(), PlanPreference(variant="tc"), spec_of("ptx"))
    assert len(plans) == 3
    found = []
    for plan in plans:
        out, lse = np.zeros(desc.out_shape, np.float16), np.zeros(desc.stats_shape, np.float32)
        plan.run(**given, out=out, lse=lse)
        found.append((out.tobytes(), lse.tobytes()))
    plans[0].verify(**given)
    assert len(set(found)) == 1


def test_names_take_it_where_keys_are_few() -> None:
    """As many as KAIO's attention_tc takes; beyond, the fastest. Batch invariance can be had on both sides."""
    for keys, *variants in ((384, "tc", "tc"), (385, "flash", "wgmma")):
        shape = {"q_shape": (1, 1, 2048, 64), "k_shape": (1, 1, keys, 64), "v_shape": (1, 1, keys, 64)}
        desc = bp.AttentionDescriptor(**shape, element=BF16, name="attention_tc")
        for pref, variant in zip((PlanPreference(), PlanPreference(batch_invariant=True)), variants, strict=True):
            assert bp.AttentionPlan.select(desc, pref, device="h200").sku.variant == variant
    desc = bp.AttentionDescriptor((9, 64), (1025, 64), (1025, 64), element=BF16)
    with pytest.raises(bp.UnsupportedError, match="1025 keys"):
        bp.AttentionPlan.select(desc, PlanPreference(variant="tc"), device="h200")


def test_nothing_seen_is_nothing() -> None:
    q, k = np.ones((20, 64), np.float16), np.ones((0, 64), np.float16)
    out, lse = bp.attention_tc(q, k, k, return_lse=True, device="ptx")
    assert out.dtype == np.float32 and not out.any() and np.isneginf(lse).all()
