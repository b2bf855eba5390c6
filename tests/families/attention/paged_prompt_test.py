"""Prompts against pages, and ragged sequences: what is selected, where tiles begin, and which keys are seen."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.ops.attention.samples.decode import pages_of
from baracuda_py.ops.attention.samples.forward import qkv
from baracuda_py.plan.about.tune import admissible
from baracuda_py.runtime.steps import Launch
from baracuda_py.types import DeviceSpec, ElementKind, PlanPreference

COVERS = ("paged_attention", "attention", "attention_decode")
BF16, F16 = ElementKind.BF16, ElementKind.F16
FLASH, SPLIT = PlanPreference(variant="flash_pages"), PlanPreference(variant="split_pages")
Array = np.ndarray[Any, Any]


def ints(*numbers: int) -> Array:
    return np.array(numbers, np.int32)


def prompt(
    element: ElementKind, lengths: list[int], tokens: tuple[int, ...], page_keys: int = 16, d: int = 64, **more: Any
) -> dict[str, Array]:
    """Ragged prompts, q of 4 heads over 2."""
    rng = np.random.default_rng(len(lengths) + d)
    made = pages_of(rng, element, lengths, page_keys, 2, d, **more)
    q = rng.standard_normal((sum(tokens), 4, d)).astype(element.dtype)
    return {"q": q, **made, "cu_seqlens_q": np.cumsum([0, *tokens]).astype(np.int32)}


def held(plan: Any, given: dict[str, Array], **results: Array) -> None:
    """Raises AssertionError where a result is outside of the plan's bound."""
    wide = dict(zip([o.name for o in plan.desc.operands if o.written], plan.reference(plan.desc, **given)))
    for name, result in results.items():
        bound = plan.precision_guarantee.of(name)
        bound.check(result, np.asarray(wide[name]), given, measures=plan.measured(output=name))


def selected(given: dict[str, Array], pref: PlanPreference = FLASH, **options: Any) -> Any:
    return bp.PagedAttentionPlan.select(bp.PagedAttentionDescriptor.of(**given, **options), pref, device="ptx")


# ---- prompts against pages -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("d", [32, 96, 128, 160, 192, 224, 256])
def test_flash_pages_every_configuration(d: int) -> None:
    given = prompt(BF16, [150, 33], (70, 20), 16, d)
    desc = bp.PagedAttentionDescriptor.of(**given, return_lse=True)
    plans = list(admissible(bp.PagedAttentionPlan, desc, FLASH, DeviceSpec.named("ptx:h200")))
    assert plans
    for plan in plans:
        out = np.full(given["q"].shape, np.nan, BF16.dtype)
        lse = np.full((4, 90), np.nan, np.float32)
        plan.run(**given, out=out, lse=lse)
        held(plan, given, out=out, lse=lse)


@pytest.mark.parametrize(("page_keys", "layout"), [(1, "HND"), (7, "NHD"), (64, "HND"), (200, "NHD")])
def test_flash_pages_any_page_size(page_keys: int, layout: str) -> None:
    given = prompt(F16, [150, 1, 90], (70, 1, 3), page_keys, layout=layout)
    out = bp.paged_attention(**given, layout=layout, window=(60, 0), pref=FLASH, device="ptx")
    held(selected(given, layout=layout, window=(60, 0)), given, out=out)


def test_flash_pages_read_no_key_that_is_not_seen() -> None:
    """Pages of others, slots behind the length, and pages before the window hold NaN or are gone."""
    given = prompt(BF16, [150, 33], (40, 20))
    whole = bp.paged_attention(**given, window=(50, 0), pref=FLASH, device="ptx")
    for b, (length, first) in enumerate(zip((150, 33), (150 - 40 - 50, 0))):
        row = given["page_table"][b]
        row[: first // 16] = -1
        last = given["page_table"][b, (length - 1) // 16]
        for name in ("k_pages", "v_pages"):
            given[name][last, (length - 1) % 16 + 1 :] = np.nan
    named = set(given["page_table"][given["page_table"] >= 0].tolist())
    for page in set(range(len(given["k_pages"]))) - named:
        given["k_pages"][page], given["v_pages"][page] = np.nan, np.nan
    out, status = bp.paged_attention(**given, window=(50, 0), return_status=True, pref=FLASH, device="ptx")
    assert np.array_equal(out.view(np.uint16), whole.view(np.uint16)) and not status.any()


@pytest.mark.parametrize(("k_scale", "v_scale"), [(-0.5, 2.0), (0.0, -3.0)])
def test_flash_pages_numbers_of_keys_and_values(k_scale: float, v_scale: float) -> None:
    given, numbers = prompt(F16, [90], (33,)), {"k_scale": k_scale, "v_scale": v_scale}
    out, lse = bp.paged_attention(**given, **numbers, return_lse=True, pref=FLASH, device="ptx")
    held(selected(given, **numbers, return_lse=True), given, out=out, lse=lse)


def test_prompts_select_wgmma_pages_on_an_h200() -> None:
    def variant(tokens: int, element: str = "bf16", cached: str = "bf16", pref: PlanPreference | None = None) -> str:
        pages = (512, 64, 8, 128)
        desc = bp.PagedAttentionDescriptor(
            (4, tokens, 32, 128), pages, pages, (4, 128), ElementKind(element), cache_element=ElementKind(cached)
        )
        return str(bp.PagedAttentionPlan.select(desc, pref or PlanPreference(), device="ptx:h200").sku.variant)

    assert variant(2048) == variant(512) == "wgmma_pages"
    assert variant(1) == variant(8) == "split_pages"
    assert variant(2048, cached="i8") == "split_pages"
    assert variant(2048, pref=PlanPreference(batch_invariant=True)) == "split_pages"
    with pytest.raises(bp.BaracudaError, match="pages hold i8 and q bf16"):
        variant(2048, cached="i8", pref=FLASH)


def test_ragged_costs_count_the_tokens_of_the_mean_sequence() -> None:
    """One token each of 64 sequences is decoded, however many tokens there are in all; so is it if the longest is given."""
    pages = (8192, 64, 8, 128)
    for tokens, longest, wanted in (
        (64, None, "split"),
        (64, 1, "split"),
        (64 * 512, None, "wgmma"),
        (64 * 512, 600, "wgmma"),
    ):
        desc = bp.PagedAttentionDescriptor(
            (tokens, 32, 128), pages, pages, (64, 128), BF16, "THD", max_seqlen_q=longest, cu_seqlens_q_shape=(65,)
        )
        plan = bp.PagedAttentionPlan.select(desc, device="ptx:h200")
        assert plan.sku.variant == f"{wanted}_pages", (tokens, longest)


@pytest.mark.gpu
@pytest.mark.parametrize("d", [64, 128, 256])
def test_flash_pages_agree_with_dense_keys_on_a_device(d: int) -> None:
    """Thousands of keys, pages in no order, and many CTAs at once: the same bits twice, and what whole sequences give."""
    import cupy as cp

    lengths, tokens, page_keys = (5000, 3111, 700), 700, 16
    rng = cp.random.default_rng(1)

    def normal(*shape: int) -> Any:
        return rng.standard_normal(shape, dtype=cp.float32).astype(cp.float16)

    each = -(-max(lengths) // page_keys)
    order = cp.asarray(np.random.default_rng(0).permutation(3 * each).reshape(3, each), cp.int32)
    k_pages, v_pages = (normal(3 * each, page_keys, 2, d) for _ in "kv")
    q, have = normal(3, tokens, 8, d), cp.asarray(lengths, cp.int32)
    paged = {"k_pages": k_pages, "v_pages": v_pages, "page_table": order, "lengths": have}
    out = bp.paged_attention(q, **paged, pref=FLASH)
    assert cp.array_equal(out, bp.paged_attention(q, **paged, pref=FLASH))
    keys, values = (x[order].reshape(3, each * page_keys, 2, d) for x in (k_pages, v_pages))
    for b, length in enumerate(lengths):
        at = slice(b, b + 1)
        k, v = keys[at, :length], values[at, :length]
        dense = bp.attention(q[at], k, v, causal=True, layout="BSHD", pref=PlanPreference(variant="flash"))
        assert float(cp.abs(out[at].astype(cp.float32) - dense.astype(cp.float32)).max()) < 4e-3, b


@pytest.mark.gpu
def test_many_ragged_sequences_on_a_device() -> None:
    """Two thousand sequences of up to 300 tokens, each as it is alone."""
    import cupy as cp

    lengths = np.random.default_rng(5).integers(0, 300, 2000)
    starts = np.cumsum([0, *lengths]).astype(np.int32)
    rng = cp.random.default_rng(1)
    q, k, v = (rng.standard_normal((int(starts[-1]), h, 64), dtype=cp.float32).astype(cp.float16) for h in (4, 2, 2))
    of_all = cp.asarray(starts)
    out = bp.attention(q, k, v, cu_seqlens_q=of_all, cu_seqlens_k=of_all, layout="THD", causal=True)
    for b in range(0, 2000, 37):
        at = slice(int(starts[b]), int(starts[b + 1]))
        alone = bp.attention(q[None, at], k[None, at], v[None, at], layout="BSHD", causal=True)
        assert bool((cp.abs(out[at].astype(cp.float32) - alone[0].astype(cp.float32)) < 4e-3).all()), b


# ---- pages that are missing, and values' scales ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("variant", "tokens", "d", "options"),
    [
        ("flash_pages", 70, 64, {}), ("flash_pages", 70, 256, {"softcap": 3.0}), ("split_pages", 3, 64, {"softcap": 3.0}),
        ("split_pages", 3, 128, {}), ("simt_pages", 2, 64, {}), ("latent_pages", 2, 512, {}),
        ("wgmma_pages", 70, 64, {}), ("wgmma_pages", 70, 128, {"softcap": 3.0}),
    ],
)  # fmt: skip
def test_missing_pages_are_masked(variant: str, tokens: int, d: int, options: dict[str, Any]) -> None:
    """As keys are that a mask leaves out. A sequence of nothing but missing pages is 0, its lse -inf."""
    size = 16 if variant == "wgmma_pages" else 7
    given = prompt(BF16, [150, 40], (tokens, 2), size, d)
    given["page_table"][0, [3, 7 if size == 16 else 11]], given["page_table"][1] = (-1, 1 << 30), -5
    pref = PlanPreference(variant=variant)
    out, lse, status = bp.paged_attention(
        **given, **options, return_lse=True, return_status=True, pref=pref, device="ptx"
    )
    assert status.tolist() == [1, 1] and not out[tokens:].any() and np.isneginf(lse[:, tokens:]).all()
    keys = np.arange(150)
    there = given["page_table"][0, keys // size]
    seen = (there >= 0) & (there < len(given["k_pages"]))
    k, v = (given[n][np.where(seen, there, 0), keys % size].swapaxes(0, 1)[None] for n in ("k_pages", "v_pages"))
    q = given["q"][:tokens].swapaxes(0, 1)[None]
    wanted = bp.attention(q, k, v, mask=seen[None, None, None], causal=True, return_lse=True, device="cpu", **options)
    assert np.allclose(np.float64(out[:tokens]), np.float64(wanted.out[0].swapaxes(0, 1)), atol=0.02)
    assert np.allclose(lse[:, :tokens], wanted.lse[0], atol=1e-5)


@pytest.mark.parametrize("number", [255.9, 255.95, 255.999])
@pytest.mark.parametrize("paged", [False, True])
def test_scales_of_values_below_256_stay_in_f16(number: float, paged: bool) -> None:
    """A weight of 2**8, which the softmax lets stand, times its value's scale rounds to f16's infinity."""
    d, keys = 64, 200
    q, k, v = np.zeros((1, 1, 1, d), np.float16), np.zeros((1, 1, keys, d), np.int8), np.ones((1, 1, keys, d), np.int8)
    q[..., 0] = 1
    numbers = {"scale": 1.0, "k_scale": 7.9999 / np.log2(np.e) / 127}
    scales = np.full((1, 1, keys), number, np.float32)
    for at in range(16, keys, 16):
        k[...], k[0, 0, at, 0] = 0, 127
        if paged:
            table, pages = ints(0)[None], {"k_pages": k, "v_pages": v, "v_scales": scales}
            out = bp.paged_attention(
                q, **pages, page_table=table, lengths=ints(keys), layout="HND", device="ptx", pref=SPLIT, **numbers
            )
        else:
            pref = PlanPreference(variant="split_keys")
            out = bp.attention_decode(q, k, v, v_scales=scales, device="ptx", pref=pref, **numbers)
        assert np.allclose(np.float64(out), number, rtol=2**-10), at


# ---- ragged sequences -------------------------------------------------------------------------------------------------------


def ragged(lengths: list[int], element: ElementKind = BF16, keys: list[int] | None = None) -> dict[str, Array]:
    made = qkv(np.random.default_rng(3), element, 1, (2, 1), sum(lengths), sum(keys or lengths), 32, layout="BSHD")
    starts = {
        f"cu_seqlens_{n}": np.cumsum([0, *x]).astype(np.int32) for n, x in (("q", lengths), ("k", keys or lengths))
    }
    return {n: x[0] for n, x in made.items()} | starts


@pytest.mark.parametrize("variant", ["flash", "tc"])
@pytest.mark.parametrize("count", [1, 5, 40, 70])
def test_ragged_tiles_find_their_sequence(count: int, variant: str) -> None:
    """Also empty sequences, those of whole tiles, and more than a warp looks at together."""
    pattern = [3, 0, 64, 1, 0, 0, 65, 128, 2] if count < 10 else [3, 0, 1, 0, 0, 7, 2]
    lengths = [pattern[i % len(pattern)] for i in range(count)]
    given = ragged(lengths)
    options: dict[str, Any] = {"layout": "THD", "causal": True, "return_lse": True}
    pref = PlanPreference(variant=variant)
    out, lse = bp.attention(**given, **options, pref=pref, device="ptx")
    plan = bp.AttentionPlan.select(bp.AttentionDescriptor.of(**given, **options), pref, device="ptx")
    held(plan, given, out=out, lse=lse)


def test_ragged_tiles_of_a_thousand_sequences() -> None:
    """Three rounds of the search: nearly all are empty."""
    lengths = [0] * 1100
    lengths[0], lengths[31], lengths[700], lengths[1099] = 2, 70, 5, 9
    given = ragged(lengths)
    out = bp.attention(**given, layout="THD", causal=True, pref=PlanPreference(variant="flash"), device="ptx")
    starts = given["cu_seqlens_q"]
    for b in (0, 31, 700, 1099):
        at = slice(starts[b], starts[b + 1])
        alone = bp.attention(*(given[n][None, at] for n in "qkv"), layout="BSHD", causal=True, device="cpu")
        assert np.allclose(np.float64(out[at]), np.float64(alone[0]), atol=0.02), b


@pytest.mark.parametrize("variant", ["flash", "tc"])
def test_ragged_grid_does_not_grow_with_the_longest_sequence(variant: str) -> None:
    total, batch, heads = (1024, 16, 8) if variant == "tc" else (131072, 256, 32)
    shapes: dict[str, Any] = {
        "k_shape": (total, heads, 64),
        "v_shape": (total, heads, 64),
        "cu_seqlens_k_shape": (batch + 1,),
    }
    for longest in (None, 512):
        desc = bp.AttentionDescriptor(
            (total, heads, 64), element=BF16, order="THD", causal=True, cu_seqlens_q_shape=(batch + 1,),
            max_seqlen_q=longest, max_seqlen_k=longest, **shapes,
        )  # fmt: skip
        plan = bp.AttentionPlan.select(desc, PlanPreference(variant=variant), device="ptx:h200")
        ctas = sum(step.grid[0] for step in plan.selection.steps if isinstance(step, Launch))
        assert ctas <= (total // 16 + batch) * heads if variant == "tc" else ctas <= (total // 64 + batch) * heads


def test_ragged_gradients_do_not_launch_for_the_longest_sequence() -> None:
    """256 sequences of 131,072 tokens together: twice the mean, and no CTA a block of all tokens."""
    q, k = (131072, 32, 128), (131072, 8, 128)
    desc = bp.AttentionBackwardDescriptor(
        q_shape=q, k_shape=k, v_shape=k, element=BF16, order="THD", causal=True,
        cu_seqlens_q_shape=(257,), cu_seqlens_k_shape=(257,),
    )  # fmt: skip
    for variant in ("fast", "deterministic", "simt"):
        pref = PlanPreference(variant=variant, deterministic=variant != "fast")
        plan = bp.AttentionBackwardPlan.select(desc, pref, device="ptx:h200")
        ctas = [step.grid[0] for step in plan.selection.steps if isinstance(step, Launch)]
        assert max(ctas) <= 2 * 131072 * 32 // 8, (variant, ctas)  # 8 rows a CTA, the fewest


def test_ragged_starts_outside_of_the_tensor_are_not_followed() -> None:
    given = ragged([40, 9, 30])
    for starts in (ints(-3, 40, 49, 999), ints(79, 49, 40, -5), ints(9, 9, 9, 9)):
        broken = {**given, "cu_seqlens_q": starts}
        bp.attention(**broken, layout="THD", causal=True, pref=PlanPreference(variant="flash"), device="ptx")
