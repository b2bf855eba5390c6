"""latent_wgmma and latent_wgmma_pages: one latent key row for many heads by warpgroup products; what they read, promise and
refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.plan.about.tune import admissible
from baracuda_py.runtime.gpu.device import spec_of
from baracuda_py.types import DeviceSpec, ElementKind, PlanPreference

from .attention_decode_test import BF16, F16, INVARIANT, Array, bits, caches, held, ints, paged_like
from .attention_latent_test import latent

COVERS = ("attention_decode", "paged_attention")
DENSE, PAGES = PlanPreference(variant="latent_wgmma"), PlanPreference(variant="latent_wgmma_pages")
PTX = DeviceSpec.named("ptx:h200")


def found(given: dict[str, Array], **options: Any) -> list[Any]:
    """Every configuration for these arrays."""
    desc = bp.DecodeAttentionDescriptor.of(**given, return_lse=True, **options)
    return list(admissible(bp.DecodeAttentionPlan, desc, DENSE, PTX))


def pages_of(given: dict[str, Array], size: int) -> dict[str, Array]:
    """The same keys in pages of so many, whose first columns are the values."""
    made = paged_like({**given, "v": given["k"]}, size, "NHD")
    made["v_pages"] = made["k_pages"][..., :512]
    return made


@pytest.mark.parametrize("lengths", [(291, 3), (128, 64), (65, 0)])
def test_splits_tiles_and_rows_in_part(lengths: tuple[int, int]) -> None:
    """66 rows of two tokens, an odd number of blocks of keys, and none; lengths that leave splits without keys."""
    given = {**latent(2, 2, 300, 33), "lengths": ints(*lengths)}
    plans = found(given)
    assert {plan.selection.config.splits for plan in plans} >= {1, 3}
    for plan in plans:
        out, lse = plan.run(**given)
        held(plan, out, given)
        held(plan, lse, given, "lse")


def test_values_are_read_with_keys_or_after_them() -> None:
    """A view of the keys, and a copy of it: the same bits. Columns of something else with the layout of keys are not theirs."""
    given = latent(1, 1, 330, 4)
    whole = bp.attention_decode(**given, pref=DENSE, device="ptx")
    separate = {**given, "v": np.ascontiguousarray(given["v"])}
    assert np.array_equal(bits(bp.attention_decode(**separate, pref=DENSE, device="ptx")), bits(whole))
    other = {**given, "v": latent(1, 1, 330, 4)["v"]}
    plan = found(other)[0]
    out, _ = plan.run(**other)
    held(plan, out, other)


def test_sums_follow_scores_that_rise() -> None:
    """One key of every block is far above those before it, in blocks of either consumer."""
    given = latent(1, 1, 330, 5)
    for at in (30, 100, 190, 250, 329):
        given["k"][0, 0, at] = given["q"][0, at % 5, 0] * (at / 100)
    plan = found(given)[0]
    out, lse = plan.run(**given)
    held(plan, out, given)
    held(plan, lse, given, "lse")


@pytest.mark.parametrize("scale", [-0.1, 0.0])
def test_other_columns_are_filled_up(scale: float) -> None:
    """Nothing behind the last row is read."""
    for d, d_v in ((520, 264), (320, 272)):
        given = caches(1, 1, 90, F16, heads=(3, 1), d=d, d_v=d_v)
        plan = found(given, scale=scale)[0]
        out, _ = plan.run(**given, scale=scale)
        held(plan, out, given)


def test_sinks_count_once_and_scales_are_separate() -> None:
    given = {**latent(1, 1, 200, 1), "sinks": np.array([3], np.float32)}
    for plan in found(given, k_scale=0.5, v_scale=3.0):
        out, lse = plan.run(**given)
        held(plan, out, given)
        held(plan, lse, given, "lse")


@pytest.mark.parametrize("window", [None, (40, 0), (100, 0)])
def test_keys_that_no_token_sees_are_not_met(window: tuple[int, int] | None) -> None:
    """They are NaN: beyond the lengths, and before the window; in a row, in pages, and in pages of no sequence."""
    given, lengths = latent(2, 1, 200, 4), ints(150, 17)
    desc = bp.DecodeAttentionDescriptor.of(**given, lengths=lengths, window=window)
    plan = bp.DecodeAttentionPlan.select(desc, DENSE, device="ptx")
    clean = plan.run(**given, lengths=lengths)
    held(plan, clean, {**given, "lengths": lengths})
    for b, n in enumerate(lengths):
        given["k"][b, :, n:] = np.nan
        given["k"][b, :, : max(n - 1 - (window[0] if window else n), 0)] = np.nan
    out = bp.attention_decode(**given, lengths=lengths, window=window, pref=DENSE, device="ptx")
    assert np.array_equal(bits(out), bits(clean))
    for size in (16, 48, 64, 128):
        paged = pages_of(given, size)
        spare = sorted(set(range(len(paged["k_pages"]))) - set(paged["page_table"].ravel().tolist()))
        paged["k_pages"][spare] = np.nan
        out, status = bp.paged_attention(
            **paged, lengths=lengths, window=window, return_status=True, pref=PAGES, device="ptx"
        )
        assert not status.any()
        assert np.array_equal(bits(out.transpose(0, 2, 1, 3)), bits(clean)), size


@pytest.mark.parametrize("size", [16, 64])
def test_missing_pages_are_reported_and_masked(size: int) -> None:
    given = pages_of(latent(1, 1, 256, 2), size)
    plain = {**given, "lengths": ints(250)}
    for at, entry in ((0, len(given["k_pages"])), (2, -1)):
        plain["page_table"][0, at] = entry
        desc = bp.PagedAttentionDescriptor.of(**plain, return_status=True)
        plan = bp.PagedAttentionPlan.select(desc, PAGES, device="ptx")
        out, status = plan.run(**plain)
        assert status.tolist() == [1]
        held(plan, out, plain)


def test_a_pool_of_one_page() -> None:
    """Its pages are not stepped."""
    given = pages_of(latent(1, 2, 64, 2), 64)
    given = {**given, "lengths": ints(50)}
    given["k_pages"] = given["k_pages"][given["page_table"][0, 0]][None]
    given["v_pages"], given["page_table"] = given["k_pages"][..., :512], ints(0)[None]
    plan = bp.PagedAttentionPlan.select(bp.PagedAttentionDescriptor.of(**given), PAGES, device="ptx")
    held(plan, plan.run(**given), given)
    given["page_table"][0, 0] = 1
    assert not np.asarray(plan.run(**given)).astype("f4").any()


def test_a_sequence_is_independent_of_batch_and_pages() -> None:
    given, lengths = latent(2, 2, 530, 2), ints(525, 40)
    whole = bp.attention_decode(**given, lengths=lengths, pref=INVARIANT, device="ptx")
    alone = {n: x[:1] for n, x in given.items()} | {"q": given["q"][:1, :, :1], "lengths": lengths[:1] - 1}
    out = bp.attention_decode(**alone, pref=INVARIANT, device="ptx")
    assert np.array_equal(bits(out[:, :, 0]), bits(whole[:1, :, 0]))


def test_what_it_refuses() -> None:
    given = latent(1, 1, 64, 2)
    for options, said in (({"softcap": 3.0}, "softcap"), ({"alibi_slopes": np.ones(2, np.float32)}, "ALiBi")):
        with pytest.raises(bp.UnsupportedError, match=said):
            bp.attention_decode(**given, **options, pref=DENSE, device="ptx")
    with pytest.raises(bp.UnsupportedError, match="sm_80"):
        bp.attention_decode(**given, pref=DENSE, device="ptx:sm_80")
    odd = {**pages_of(given, 24), "lengths": ints(64)}
    with pytest.raises(bp.UnsupportedError, match="TMA copies 16 or more"):
        bp.paged_attention(**odd, pref=PAGES, device="ptx")


@pytest.mark.gpu
@pytest.mark.parametrize(("tokens", "size", "element"), [(1, 0, BF16), (2, 16, F16), (1, 64, BF16), (2, 0, F16)])
def test_many_heads_of_long_sequences(tokens: int, size: int, element: ElementKind) -> None:
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
    found = list(admissible(plans, desc, PAGES if size else DENSE, spec_of()))
    for plan in (found[0], found[-1]):
        first, again = ([x.get() for x in plan.run(**arrays)] for _ in range(2))
        assert all(np.array_equal(bits(a), bits(b)) for a, b in zip(first, again))
        held(plan, first[0], given)
        held(plan, first[1], given, "lse")
