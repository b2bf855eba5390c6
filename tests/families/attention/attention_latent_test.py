"""Latent decoding: keys whose first columns are the values, on the tile made for them; what it reads, promises and refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.plan.about.tune import admissible
from baracuda_py.types import DeviceSpec, ElementKind, PlanPreference

from .attention_decode_test import BF16, F16, INVARIANT, Array, bits, caches, held, ints, paged_like

LATENT = PlanPreference(variant="latent_keys")
PTX = DeviceSpec.named("ptx")


def latent(
    batch: int, tokens: int, keys: int, heads: int, element: ElementKind = BF16, **more: Any
) -> dict[str, Array]:
    """Queries and keys of 576 columns, of which the first 512 are values: a view."""
    given = caches(batch, tokens, keys, element, heads=(heads, 1), d=576, **more)
    return {**given, "v": given["k"][..., :512]}


def selected(given: dict[str, Array], pref: PlanPreference = LATENT, device: str = "ptx", **options: Any) -> Any:
    return bp.DecodeAttentionPlan.select(bp.DecodeAttentionDescriptor.of(**given, **options), pref, device=device)


@pytest.mark.parametrize("device", ["ptx", "ptx:sm_80"])
def test_splits_tiles_and_rows_in_part(device: str) -> None:
    """66 rows of two tokens, lengths that leave splits without keys; 32 keys a tile where shared memory is small."""
    given = {**latent(2, 2, 200, 33), "lengths": ints(191, 3)}
    desc = bp.DecodeAttentionDescriptor.of(**given, return_lse=True)
    found = admissible(bp.DecodeAttentionPlan, desc, LATENT, DeviceSpec.named(device))
    assert {plan.selection.config.keys for plan in found} == {32 if "80" in device else 64}
    plans = [plan for plan in found if plan.selection.config.splits == 2 and not plan.selection.config.fixed]
    assert [plan.selection.config.halved for plan in plans].count(True) == ("80" not in device)
    for plan in plans:
        out, lse = plan.run(**given)
        held(plan, out, given)
        held(plan, lse, given, "lse")


def test_values_are_read_with_keys_or_beside_them() -> None:
    """A view of the keys, and a copy of it: the same bits. Columns of something else with the layout of keys are not theirs."""
    given = latent(1, 1, 200, 4)
    whole = bp.attention_decode(**given, pref=LATENT, device="ptx")
    separate = {**given, "v": np.ascontiguousarray(given["v"])}
    assert np.array_equal(bits(bp.attention_decode(**separate, pref=LATENT, device="ptx")), bits(whole))
    other = {**given, "v": latent(1, 1, 200, 4)["v"]}
    plan = selected(other)
    held(plan, plan.run(**other), other)


def test_sums_follow_scores_that_rise() -> None:
    """One key of every tile is far above those before it."""
    given = latent(1, 1, 200, 4)
    for at in (30, 100, 190):
        given["k"][0, 0, at] = given["q"][0, at % 4, 0] * (at / 100)
    plan = selected(given, return_lse=True)
    out, lse = plan.run(**given)
    held(plan, out, given)
    held(plan, lse, given, "lse")


def test_other_columns_are_filled_up() -> None:
    """Nothing behind the last row is read."""
    given = caches(1, 1, 90, F16, heads=(3, 1), d=520, d_v=264)
    plan = selected(given, softcap=3.0, scale=-0.1)
    assert plan.sku.variant == "latent_keys"
    held(plan, plan.run(**given, softcap=3.0, scale=-0.1), given)


def test_latent_sinks_count_once_and_scales_are_separate() -> None:
    given = {**latent(1, 1, 130, 1), "sinks": np.array([3], np.float32)}
    desc = bp.DecodeAttentionDescriptor.of(**given, return_lse=True, k_scale=0.5, v_scale=3.0)
    plan = next(p for p in admissible(bp.DecodeAttentionPlan, desc, LATENT, PTX) if p.selection.config.splits == 2)
    out, lse = plan.run(**given)
    held(plan, out, given)
    held(plan, lse, given, "lse")


def test_a_page_behind_the_last_is_not_there() -> None:
    dense = latent(1, 1, 40, 2)
    given = paged_like({**dense, "v": dense["k"]}, 16, "NHD")
    given["v_pages"] = given["k_pages"][..., :512]
    given["page_table"][0, 1] = len(given["k_pages"])
    given["lengths"] = ints(40)
    pref = PlanPreference(variant="latent_pages")
    out, status = bp.paged_attention(**given, return_status=True, pref=pref, device="ptx")
    assert status.tolist() == [1]
    given["page_table"][0, 1] = -1
    assert np.array_equal(bits(out), bits(bp.paged_attention(**given, pref=pref, device="ptx")))


def test_keys_that_no_token_sees_are_not_read() -> None:
    """They are NaN: beyond the lengths, and before the window."""
    given, lengths = latent(2, 1, 200, 4), ints(150, 17)
    clean = bp.attention_decode(**given, lengths=lengths, window=(40, 0), pref=LATENT, device="ptx")
    for b, n in enumerate(lengths):
        given["k"][b, :, n:], given["k"][b, :, : max(n - 41, 0)] = np.nan, np.nan
    out = bp.attention_decode(**given, lengths=lengths, window=(40, 0), pref=LATENT, device="ptx")
    assert np.array_equal(bits(out), bits(clean))


def test_latent_sequence_is_independent_of_batch_and_pages() -> None:
    given, lengths = latent(2, 2, 530, 2), ints(525, 40)
    assert selected(given, INVARIANT).sku.variant == "latent_wgmma"
    whole = bp.attention_decode(**given, lengths=lengths, pref=INVARIANT, device="ptx")
    alone = {n: x[:1] for n, x in given.items()} | {"q": given["q"][:1, :, :1], "lengths": lengths[:1] - 1}
    out = bp.attention_decode(**alone, pref=INVARIANT, device="ptx")
    assert np.array_equal(bits(out[:, :, 0]), bits(whole[:1, :, 0]))
    paged = paged_like({**given, "v": given["k"]}, 16, "NHD")
    paged["v_pages"] = paged["k_pages"][..., :512]
    out = bp.paged_attention(**paged, lengths=lengths, pref=INVARIANT, device="ptx")
    assert np.array_equal(bits(out.transpose(0, 2, 1, 3)), bits(whole))


def test_one_variant_alone_promises_batch_invariance() -> None:
    desc = bp.DecodeAttentionDescriptor.of(**latent(1, 1, 700, 4))
    plans = admissible(bp.DecodeAttentionPlan, desc, PlanPreference(), DeviceSpec.named("h200"))
    assert {p.sku.variant for p in plans if p.precision_guarantee.batch_invariant} == {"latent_wgmma"}


def test_the_bound_notices_a_lost_tile() -> None:
    given = latent(1, 1, 640, 1)
    plan = selected(given)
    wide = np.asarray(plan.reference(plan.desc, **given)[0])
    fewer = {n: x if n == "q" else x[:, :, :-64] for n, x in given.items()}
    lost = np.asarray(plan.reference(bp.DecodeAttentionDescriptor.of(**fewer), **fewer)[0]).astype(BF16.dtype)
    held(plan, wide.astype(BF16.dtype), given)
    with pytest.raises(AssertionError, match="break"):
        held(plan, lost, given)


@pytest.mark.parametrize(
    ("shapes", "device", "chosen"),
    [
        ((128, 8192, 576, 512), "h200", "latent_wgmma"),
        ((128, 8192, 576, 512), "sm_80", "latent_keys"),
        ((128, 8192, 576, 512), "sm_89", "split_keys"),  # 99 KB hold no tile
        ((128, 8192, 256, 256), "h200", "split_keys"),
    ],
)
def test_where_it_is_chosen(shapes: tuple[int, ...], device: str, chosen: str) -> None:
    heads, keys, d, d_v = shapes
    desc = bp.DecodeAttentionDescriptor((4, heads, 1, d), (4, 1, keys, d), (4, 1, keys, d_v), BF16)
    assert bp.DecodeAttentionPlan.select(desc, device=device).sku.variant == chosen


def test_bytes_are_decoded_by_the_others() -> None:
    shapes = {"q_shape": (4, 128, 1, 576), "k_shape": (4, 1, 8192, 576), "v_shape": (4, 1, 8192, 512)}
    desc = bp.DecodeAttentionDescriptor(**shapes, element=BF16, cache_element=ElementKind.FP8_E4M3)
    assert bp.DecodeAttentionPlan.select(desc, device="h200").sku.variant == "split_keys"
    with pytest.raises(bp.UnsupportedError, match="caches"):
        bp.DecodeAttentionPlan.select(desc, LATENT, device="h200")


@pytest.mark.gpu
@pytest.mark.parametrize("tokens", [1, 2])
def test_many_heads_of_long_sequences(tokens: int) -> None:
    """Also captured in a graph, and replayed with other lengths."""
    import cupy as cp

    k = cp.random.standard_normal((4, 1, 5000, 576), cp.float32).astype(F16.dtype)
    q = cp.random.standard_normal((4, 128, tokens, 576), cp.float32).astype(F16.dtype)
    given = {"q": q, "k": k, "v": k[..., :512], "lengths": cp.asarray([5000, 4096, 17, 1], cp.int32)}
    out = cp.empty((4, 128, tokens, 512), F16.dtype)
    plan = bp.DecodeAttentionPlan.select(bp.DecodeAttentionDescriptor.of(**given, out=out, scale=0.03), LATENT)
    call = plan.bind(**given, out=out, scale=0.03)
    stream = cp.cuda.Stream(non_blocking=True)
    with stream:
        call()
        stream.begin_capture()
        call()
        graph = stream.end_capture()
    for lengths in ([5000, 4096, 17, 1], [3, 700, 2000, 4999]):
        given["lengths"][:] = cp.asarray(lengths, cp.int32)
        cp.cuda.Device().synchronize()
        graph.launch(stream)
        stream.synchronize()
        held(plan, out.get(), {name: x.get() for name, x in given.items()})
