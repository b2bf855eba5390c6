"""wgmma, attention by Hopper's warpgroup products: bits that do not depend on who issues them, tails, and what is refused."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.ops.attention.samples.forward import qkv
from baracuda_py.plan.about import tune
from baracuda_py.runtime.gpu.device import spec_of
from baracuda_py.types import ElementKind, PlanPreference

rng = np.random.default_rng(19)
F16, BF16 = ElementKind.F16, ElementKind.BF16
WGMMA = PlanPreference(variant="wgmma")
Array = np.ndarray[Any, Any]


def plans_of(desc: bp.AttentionDescriptor) -> list[bp.AttentionPlan]:
    return tune.admissible(bp.AttentionPlan, desc.canonical(), WGMMA, spec_of("ptx"))


def same(one: Any, other: Any) -> bool:
    return all(np.asarray(a).tobytes() == np.asarray(b).tobytes() for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("d", [64, 128])
def test_configurations_agree_to_the_bit(d: int) -> None:
    """Whether consumers take turns and who takes which tile decide nothing: a row's sums follow its own keys."""
    given = qkv(rng, BF16, 1, (2, 1), 140, 260, d)
    plans = plans_of(bp.AttentionDescriptor.of(**given, causal=True, return_lse=True))
    assert len(plans) > 2 and all(plan.precision_guarantee.of("out").batch_invariant for plan in plans)
    first, *others = (plan.run(**given) for plan in plans)
    assert all(same(first, other) for other in others)


@pytest.mark.parametrize("options", [{}, {"softcap": 2.0}, {"window": (60, 0)}])
def test_a_row_has_the_same_bits_alone(options: dict[str, Any]) -> None:
    """Of a batch and of one sequence, of a long sequence of queries and of its last ones."""
    given = qkv(rng, F16, 2, (2, 1), 150, 210, 128)

    def run(part: Any, rows: slice = slice(None)) -> Any:
        taken = {n: np.ascontiguousarray(x[part][:, :, rows] if n == "q" else x[part]) for n, x in given.items()}
        return bp.attention(**taken, causal=True, return_lse=True, device="ptx", pref=WGMMA, **options)

    whole, alone, last = run(slice(None)), run(slice(1, 2)), run(slice(None), slice(-9, None))
    assert same([x[1:2] for x in whole], alone)
    assert same([x[:, :, -9:] for x in whole], last)


@pytest.mark.parametrize("softcap", [None, 3.0])
@pytest.mark.parametrize("d", [64, 128, 256])
def test_uninitialized_tail_of_a_cache_is_not_met(d: int, softcap: float | None) -> None:
    """Keys and values behind the last that any query sees, in the same block and in others: NaN in the place of zeros."""
    given = qkv(rng, BF16, 1, (2, 1), 70, 333, d)
    for filler in (0.0, np.nan):
        for name in ("k", "v"):
            given[name][:, :, 117:] = filler
        desc = bp.AttentionDescriptor.of(**given, causal=True, offset=47, return_lse=True, softcap=softcap)
        found = [plan.run(**given, offset=47) for plan in plans_of(desc)]
        assert all(np.isfinite(out.astype(np.float32)).all() for out, _ in found)
        if filler == 0.0:
            wanted = found
    assert all(same(one, other) for one, other in zip(wanted, found, strict=True))


def test_neighbours_of_a_sequence_are_not_met() -> None:
    """Ragged sequences: keys and values of the next one are NaN, and infinite beyond the last."""
    lengths = [40, 130, 7]
    starts = np.cumsum([0, *lengths]).astype(np.int32)
    q, k, v = (rng.standard_normal((n, 2, 128)).astype(ml_dtypes.bfloat16) for n in (177, 400, 400))
    k[177:] = v[177:] = np.inf
    k[40:170] = v[40:170] = np.nan
    given: dict[str, Any] = {"cu_seqlens_q": starts, "cu_seqlens_k": starts, "layout": "THD", "return_lse": True}
    out, lse = bp.attention(q, k, v, **given, device="ptx", pref=WGMMA)
    for rows in (slice(0, 40), slice(170, 177)):
        one = [np.ascontiguousarray(x[rows].swapaxes(0, 1))[None] for x in (q, k, v)]
        wanted, wanted_lse = bp.attention(*one, return_lse=True, device="ptx", pref=WGMMA)
        assert same([out[rows].swapaxes(0, 1)[None], lse[:, rows][None]], [wanted, wanted_lse])


def test_whole_numbers_are_exact() -> None:
    """Queries of zeros: every weight is 1, and sums of small integers over 256 keys are exact."""
    given = qkv(rng, F16, 1, (2, 1), 130, 256, 128)
    given["q"][...] = 0
    given["v"] = rng.integers(-4, 5, given["v"].shape).astype(np.float16)
    wanted = np.float64(given["v"]).mean(axis=2, keepdims=True).astype(np.float16)
    for plan in plans_of(bp.AttentionDescriptor.of(**given)):
        assert np.array_equal(plan.run(**given), np.broadcast_to(wanted, given["q"].shape))


def test_unaligned_masks_are_read_within_their_ends() -> None:
    """Of rows at odd addresses nothing is read before the first entry, nor behind the last; the bits are those of a copy."""
    given = qkv(rng, BF16, 1, (1, 1), 70, 208, 64)
    held = rng.integers(0, 2, 3 + 70 * 208).astype(bool)
    mask = held[3:].reshape(70, 208)
    masks = (mask, mask.copy())
    one, other = (bp.attention(**given, mask=x, return_lse=True, device="ptx", pref=WGMMA) for x in masks)
    assert same(one, other)


def test_a_mask_of_keys_counts_for_all_queries() -> None:
    """Stored once, or for each query: the same bits, of queries in several tiles."""
    given = qkv(rng, BF16, 1, (1, 1), 300, 300, 64)
    mask = rng.integers(0, 2, (1, 1, 1, 300)).astype(bool)
    masks = (mask, np.ascontiguousarray(np.broadcast_to(mask, (1, 1, 300, 300))))
    one, other = (bp.attention(**given, mask=x, causal=True, return_lse=True, device="ptx", pref=WGMMA) for x in masks)
    assert same(one, other)


def test_a_lone_hidden_key_is_hidden() -> None:
    """From one query, whose neighbours see every key."""
    given = qkv(rng, BF16, 1, (1, 1), 30, 128, 64)
    given["v"][:, :, 7] = 1e6
    mask = np.ones((30, 128), bool)
    mask[5, 7] = False
    out = bp.attention(**given, mask=mask, device="ptx", pref=WGMMA).astype(np.float32)
    large = np.abs(out[0, 0]).max(axis=1) > 100
    assert large.sum() == 29 and not large[5]


def test_nothing_seen_is_nothing() -> None:
    """Queries that see no key, some of them in a tile with others that do, and a whole tile of them."""
    given = qkv(rng, BF16, 1, (1, 1), 200, 30, 64)
    out, lse = bp.attention(**given, causal=True, return_lse=True, device="ptx", pref=WGMMA)
    assert not out[:, :, :170].any() and np.isneginf(lse[:, :, :170]).all()
    assert out[:, :, 170:].any(axis=-1).all() and np.isfinite(lse[:, :, 170:]).all()


def test_what_it_lacks_is_named() -> None:
    shapes: dict[str, Any] = {
        "q_shape": (1, 2, 40, 64),
        "k_shape": (1, 2, 50, 64),
        "v_shape": (1, 2, 50, 64),
        "element": BF16,
    }
    cases: tuple[tuple[dict[str, Any], str, str], ...] = (
        ({"mask_shape": (1, 1, 40, 50), "mask_element": BF16}, "h200", "its masks are bool"),
        ({"block_mask_shape": (1, 1, 3, 2), "block_size": (16, 32)}, "h200", "wgmma has no block masks"),
        ({"element": ElementKind.F32}, "h200", "q holds f32"),
        ({"k_strides": (0, 3200, 0, 1)}, "h200", "TMA does not step k's rows"),
        ({}, "sm_80", "sm_90a only"),
    )
    for fields, device, said in cases:
        desc = bp.AttentionDescriptor(**{**shapes, **fields})
        with pytest.raises(bp.UnsupportedError, match=said):
            bp.AttentionPlan.select(desc, WGMMA, device=device)
        assert bp.AttentionPlan.select(desc, device=device).sku.variant != "wgmma"


def test_heads_that_share_memory_are_stepped_once() -> None:
    """Keys and values that are broadcast over sequences and heads, as by expand, are read where they are."""
    given = qkv(rng, BF16, 2, (2, 2), 40, 70, 64)
    for name in ("k", "v"):
        given[name] = np.broadcast_to(given[name][:1, :1], given[name].shape)
    copies = {n: np.ascontiguousarray(x) for n, x in given.items()}
    assert same(*([bp.attention(**x, device="ptx", pref=WGMMA)] for x in (given, copies)))
