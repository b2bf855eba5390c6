"""Latent decoding: keys whose first columns are the values, on the tile made for them and by warpgroup products; what both read,
promise and refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.plan.about.tune import admissible
from baracuda_py.runtime.gpu.device import spec_of
from baracuda_py.types import DeviceSpec, ElementKind, PlanPreference

from .attention_decode_test import BF16, F16, INVARIANT, Array, bits, caches, held, ints, paged_like

COVERS = ("attention_decode", "paged_attention")
LATENT, WGMMA = PlanPreference(variant="latent_keys"), PlanPreference(variant="latent_wgmma")
PAGES = {"latent_keys": "latent_pages", "latent_wgmma": "latent_wgmma_pages"}
each = pytest.mark.parametrize("variant", PAGES)


def dense(variant: str) -> PlanPreference:
    return PlanPreference(variant=variant)


def paged(variant: str) -> PlanPreference:
    return PlanPreference(variant=PAGES[variant])


def latent(
    batch: int, tokens: int, keys: int, heads: int, element: ElementKind = BF16, **more: Any
) -> dict[str, Array]:
    """Queries and keys of 576 columns, of which the first 512 are values: a view."""
    given = caches(batch, tokens, keys, element, heads=(heads, 1), d=576, **more)
    return {**given, "v": given["k"][..., :512]}


def pages_of(given: dict[str, Array], size: int) -> dict[str, Array]:
    """The same keys in pages of so many, whose first columns are the values."""
    made = paged_like({**given, "v": given["k"]}, size, "NHD")
    made["v_pages"] = made["k_pages"][..., :512]
    return made


def selected(given: dict[str, Array], pref: PlanPreference, **options: Any) -> Any:
    return bp.DecodeAttentionPlan.select(bp.DecodeAttentionDescriptor.of(**given, **options), pref, device="ptx")


def selected_pages(given: dict[str, Array], pref: PlanPreference, **options: Any) -> Any:
    return bp.PagedAttentionPlan.select(bp.PagedAttentionDescriptor.of(**given, **options), pref, device="ptx")


def found(given: dict[str, Array], pref: PlanPreference, device: str = "ptx", **options: Any) -> list[Any]:
    """Every configuration for these arrays."""
    desc = bp.DecodeAttentionDescriptor.of(**given, return_lse=True, **options)
    return list(admissible(bp.DecodeAttentionPlan, desc, pref, DeviceSpec.named(device)))


def both_held(plan: Any, given: dict[str, Array]) -> None:
    out, lse = plan.run(**given)
    held(plan, out, given)
    held(plan, lse, given, "lse")


@pytest.mark.parametrize("device", ["ptx", "ptx:sm_80"])
def test_splits_tiles_and_rows_in_part(device: str) -> None:
    """66 rows of two tokens, lengths that leave splits without keys; 32 keys a tile where shared memory is small."""
    given = {**latent(2, 2, 200, 33), "lengths": ints(191, 3)}
    plans = found(given, LATENT, device)
    assert {plan.selection.config.keys for plan in plans} == {32 if "80" in device else 64}
    plans = [plan for plan in plans if plan.selection.config.splits == 2 and not plan.selection.config.fixed]
    assert [plan.selection.config.halved for plan in plans].count(True) == ("80" not in device)
    for plan in plans:
        both_held(plan, given)


@pytest.mark.parametrize("lengths", [(291, 3), (128, 64), (65, 0)])
def test_splits_and_rows_in_part_of_warpgroups(lengths: tuple[int, int]) -> None:
    """66 rows of two tokens, an odd number of blocks of keys, and none; lengths that leave splits without keys."""
    given = {**latent(2, 2, 300, 33), "lengths": ints(*lengths)}
    plans = found(given, WGMMA, "ptx:h200")
    assert {plan.selection.config.splits for plan in plans} >= {1, 3}
    for plan in plans:
        both_held(plan, given)


@each
def test_values_are_read_with_keys_or_beside_them(variant: str) -> None:
    """A view of the keys, and a copy of it: the same bits. Columns of something else with the layout of keys are not theirs."""
    given, pref = latent(1, 1, 330, 4), dense(variant)
    whole = bp.attention_decode(**given, pref=pref, device="ptx")
    separate = {**given, "v": np.ascontiguousarray(given["v"])}
    assert np.array_equal(bits(bp.attention_decode(**separate, pref=pref, device="ptx")), bits(whole))
    other = {**given, "v": latent(1, 1, 330, 4)["v"]}
    plan = selected(other, pref)
    held(plan, plan.run(**other), other)


@each
def test_sums_follow_scores_that_rise(variant: str) -> None:
    """One key of every tile is far above those before it, in blocks of either consumer."""
    given = latent(1, 1, 330, 5)
    for at in (30, 100, 190, 250, 329):
        given["k"][0, 0, at] = given["q"][0, at % 5, 0] * (at / 100)
    both_held(selected(given, dense(variant), return_lse=True), given)


@pytest.mark.parametrize(
    ("variant", "options"),
    [
        ("latent_keys", {"softcap": 3.0, "scale": -0.1}),
        ("latent_wgmma", {"scale": -0.1}),
        ("latent_wgmma", {"scale": 0.0}),
    ],
)
def test_other_columns_are_filled_up(variant: str, options: dict[str, float]) -> None:
    """Nothing behind the last row is read."""
    for d, d_v in ((520, 264), (320, 272)):
        given = caches(1, 1, 90, F16, heads=(3, 1), d=d, d_v=d_v)
        plan = found(given, dense(variant), **options)[0]
        held(plan, plan.run(**given, **options)[0], given)


@each
def test_latent_sinks_count_once_and_scales_are_separate(variant: str) -> None:
    given = {**latent(1, 1, 200, 1), "sinks": np.array([3], np.float32)}
    for plan in found(given, dense(variant), k_scale=0.5, v_scale=3.0):
        both_held(plan, given)


@pytest.mark.parametrize(
    ("variant", "window"),
    [("latent_keys", (40, 0)), ("latent_wgmma", None), ("latent_wgmma", (40, 0)), ("latent_wgmma", (100, 0))],
)
def test_keys_that_no_token_sees_are_not_met(variant: str, window: tuple[int, int] | None) -> None:
    """They are NaN: beyond the lengths, and before the window; in a row, in pages, and in pages of no sequence."""
    given, lengths = latent(2, 1, 200, 4), ints(150, 17)
    plan = selected(given, dense(variant), lengths=lengths, window=window)
    clean = plan.run(**given, lengths=lengths)
    held(plan, clean, {**given, "lengths": lengths})
    for b, n in enumerate(lengths):
        given["k"][b, :, n:] = np.nan
        given["k"][b, :, : max(n - 1 - (window[0] if window else n), 0)] = np.nan
    out = bp.attention_decode(**given, lengths=lengths, window=window, pref=dense(variant), device="ptx")
    assert np.array_equal(bits(out), bits(clean))
    for size in (16, 48, 64, 128):
        pages = pages_of(given, size)
        spare = sorted(set(range(len(pages["k_pages"]))) - set(pages["page_table"].ravel().tolist()))
        pages["k_pages"][spare] = np.nan
        out, status = bp.paged_attention(
            **pages, lengths=lengths, window=window, return_status=True, pref=paged(variant), device="ptx"
        )
        assert not status.any()
        assert np.array_equal(bits(out.transpose(0, 2, 1, 3)), bits(clean)), size


@each
@pytest.mark.parametrize("size", [16, 64])
def test_missing_pages_are_reported_and_masked(variant: str, size: int) -> None:
    """A page behind the last, and one before the first."""
    given = {**pages_of(latent(1, 1, 256, 2), size), "lengths": ints(250)}
    for at, entry in ((0, len(given["k_pages"])), (2, -1)):
        given["page_table"][0, at] = entry
        plan = selected_pages(given, paged(variant), return_status=True)
        out, status = plan.run(**given)
        assert status.tolist() == [1]
        held(plan, out, given)


@each
def test_a_pool_of_one_page(variant: str) -> None:
    """Its pages are not stepped."""
    given = {**pages_of(latent(1, 2, 64, 2), 64), "lengths": ints(50)}
    given["k_pages"] = given["k_pages"][given["page_table"][0, 0]][None]
    given["v_pages"], given["page_table"] = given["k_pages"][..., :512], ints(0)[None]
    plan = selected_pages(given, paged(variant))
    held(plan, plan.run(**given), given)
    given["page_table"][0, 0] = 1
    assert not np.asarray(plan.run(**given)).astype("f4").any()


def test_latent_sequence_is_independent_of_batch_and_pages() -> None:
    given, lengths = latent(2, 2, 530, 2), ints(525, 40)
    assert selected(given, INVARIANT).sku.variant == "latent_wgmma"
    whole = bp.attention_decode(**given, lengths=lengths, pref=INVARIANT, device="ptx")
    alone = {n: x[:1] for n, x in given.items()} | {"q": given["q"][:1, :, :1], "lengths": lengths[:1] - 1}
    out = bp.attention_decode(**alone, pref=INVARIANT, device="ptx")
    assert np.array_equal(bits(out[:, :, 0]), bits(whole[:1, :, 0]))
    out = bp.paged_attention(**pages_of(given, 16), lengths=lengths, pref=INVARIANT, device="ptx")
    assert np.array_equal(bits(out.transpose(0, 2, 1, 3)), bits(whole))


def test_one_variant_alone_promises_batch_invariance() -> None:
    plans = found(latent(1, 1, 700, 4), PlanPreference(), "h200")
    assert {p.sku.variant for p in plans if p.precision_guarantee.batch_invariant} == {"latent_wgmma"}


def test_the_bound_notices_a_lost_tile() -> None:
    given = latent(1, 1, 640, 1)
    plan = selected(given, LATENT)
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


def test_what_warpgroups_refuse() -> None:
    given = latent(1, 1, 64, 2)
    for options, said in (({"softcap": 3.0}, "softcap"), ({"alibi_slopes": np.ones(2, np.float32)}, "ALiBi")):
        with pytest.raises(bp.UnsupportedError, match=said):
            bp.attention_decode(**given, **options, pref=WGMMA, device="ptx")
    with pytest.raises(bp.UnsupportedError, match="sm_80"):
        bp.attention_decode(**given, pref=WGMMA, device="ptx:sm_80")
    odd = {**pages_of(given, 24), "lengths": ints(64)}
    with pytest.raises(bp.UnsupportedError, match="TMA copies 16 or more"):
        bp.paged_attention(**odd, pref=paged("latent_wgmma"), device="ptx")


@pytest.mark.gpu
@each
@pytest.mark.parametrize("tokens", [1, 2])
def test_many_heads_in_a_graph(variant: str, tokens: int) -> None:
    """Captured, and replayed with other lengths."""
    import cupy as cp

    k = cp.random.standard_normal((4, 1, 5000, 576), cp.float32).astype(F16.dtype)
    q = cp.random.standard_normal((4, 128, tokens, 576), cp.float32).astype(F16.dtype)
    given = {"q": q, "k": k, "v": k[..., :512], "lengths": cp.asarray([5000, 4096, 17, 1], cp.int32)}
    out = cp.empty((4, 128, tokens, 512), F16.dtype)
    desc = bp.DecodeAttentionDescriptor.of(**given, out=out, scale=0.03)
    plan = bp.DecodeAttentionPlan.select(desc, dense(variant))
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


@pytest.mark.gpu
@each
@pytest.mark.parametrize(("tokens", "size", "element"), [(1, 0, BF16), (2, 16, F16), (1, 64, BF16), (2, 0, F16)])
def test_many_heads_of_long_sequences(variant: str, tokens: int, size: int, element: ElementKind) -> None:
    """The first configuration and the last, twice; NaN behind the lengths."""
    import cupy as cp

    given = {**latent(2, tokens, 704, 66, element), "lengths": ints(690, 17)}
    for b, n in enumerate(given["lengths"]):
        given["k"][b, :, n:] = np.nan
    keys, values = ("k_pages", "v_pages") if size else ("k", "v")
    if size:
        given = {**pages_of(given, size), "lengths": given["lengths"]}
    arrays = {n: cp.asarray(x) for n, x in given.items() if n != values}
    arrays[values] = arrays[keys][..., :512]
    plans: Any = bp.PagedAttentionPlan if size else bp.DecodeAttentionPlan
    desc = plans.descriptor.of(**arrays, return_lse=True, scale=0.03)
    made = list(admissible(plans, desc, paged(variant) if size else dense(variant), spec_of()))
    for plan in (made[0], made[-1]):
        first, again = ([x.get() for x in plan.run(**arrays)] for _ in range(2))
        assert all(np.array_equal(bits(a), bits(b)) for a, b in zip(first, again))
        held(plan, first[0], given)
        held(plan, first[1], given, "lse")
