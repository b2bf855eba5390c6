"""wgmma_pages, prompts against pages by warpgroup products: the bits of keys in a row, what is not read, what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.plan.about.tune import admissible
from baracuda_py.types import DeviceSpec, ElementKind, PlanPreference

from .paged_prompt_test import held, prompt, selected

COVERS = ("paged_attention", "attention")
BF16, F16 = ElementKind.BF16, ElementKind.F16
PAGES, WHOLE = PlanPreference(variant="wgmma_pages"), PlanPreference(variant="wgmma")
Array = np.ndarray[Any, Any]
LENGTHS, TOKENS = [190, 33], (70, 20)


def poisoned(given: dict[str, Array], seen_from: list[int], lengths: list[int]) -> dict[str, Array]:
    """The same with NaN in what no token sees: pages of no sequence, slots behind lengths, and pages before the window, whose
    entries name a page of NaN or none."""
    made = {name: x.copy() for name, x in given.items()}
    size = made["k_pages"].shape[1]
    named = set(made["page_table"][made["page_table"] >= 0].tolist())
    spare = sorted(set(range(len(made["k_pages"]))) - named)
    for name in ("k_pages", "v_pages"):
        made[name][spare] = np.nan
        for row, length in zip(made["page_table"], lengths):
            made[name][row[(length - 1) // size], (length - 1) % size + 1 :] = np.nan
    for row, first, length in zip(made["page_table"], seen_from, lengths):
        row[: first // size] = [spare[0] if i % 2 else -1 for i in range(first // size)]
        row[-(-length // size) :] = spare[0]
    return made


def whole(given: dict[str, Array], b: int, **options: Any) -> tuple[Array, Array]:
    """One sequence's keys and values in a row, without pages."""
    length, size = int(given["lengths"][b]), given["k_pages"].shape[1]
    at, keys = slice(*given["cu_seqlens_q"][b : b + 2]), np.arange(length)
    k, v = (given[n][given["page_table"][b, keys // size], keys % size][None] for n in ("k_pages", "v_pages"))
    q = given["q"][None, at]
    out, lse = bp.attention(q, k, v, causal=True, layout="BSHD", return_lse=True, pref=WHOLE, device="ptx", **options)
    return out[0], lse[0]


@pytest.mark.parametrize(
    ("d", "page_keys", "options"),
    [
        (128, 16, {}), (128, 32, {"window": (40, 0)}), (128, 64, {}), (128, 128, {"softcap": 3.0}), (128, 256, {}),
        (128, 48, {}), (64, 16, {"window": (100, 0)}), (64, 64, {}), (64, 112, {}), (64, 128, {"window": (150, 0)}),
        (192, 16, {}), (256, 16, {}), (256, 64, {"window": (64, 0)}),
    ],
)  # fmt: skip
def test_pages_give_the_bits_of_keys_in_a_row(d: int, page_keys: int, options: dict[str, Any]) -> None:
    """Ragged prompts, four heads over two; NaN wherever no token looks."""
    given = prompt(BF16, LENGTHS, TOKENS, page_keys, d)
    reach = options.get("window", (1 << 20,))[0]
    first = [max(length - tokens - reach, 0) for length, tokens in zip(LENGTHS, TOKENS)]
    out, lse, status = bp.paged_attention(
        **poisoned(given, first, LENGTHS), **options, return_lse=True, return_status=True, pref=PAGES, device="ptx"
    )
    assert not status.any()
    for b in range(2):
        at = slice(*given["cu_seqlens_q"][b : b + 2])
        wanted, wanted_lse = whole(given, b, **options)
        assert out[at].tobytes() == wanted.tobytes() and lse[:, at].tobytes() == wanted_lse.tobytes(), b


@pytest.mark.parametrize("d", [64, 128])
def test_configurations_agree_and_hold_the_bound(d: int) -> None:
    given = prompt(F16, LENGTHS, TOKENS, 32, d)
    desc = bp.PagedAttentionDescriptor.of(**given, return_lse=True)
    plans = list(admissible(bp.PagedAttentionPlan, desc, PAGES, DeviceSpec.named("ptx:h200")))
    assert len(plans) > 2
    found = [plan.run(**given) for plan in plans]
    held(plans[0], given, out=found[0][0], lse=found[0][1])
    assert all(a.tobytes() == b.tobytes() for other in found[1:] for a, b in zip(found[0], other))


@pytest.mark.parametrize(("k_scale", "v_scale"), [(-0.5, 2.0), (0.0, -3.0)])
def test_numbers_of_keys_and_values(k_scale: float, v_scale: float) -> None:
    given, numbers = prompt(F16, [90], (33,)), {"k_scale": k_scale, "v_scale": v_scale}
    out, lse = bp.paged_attention(**given, **numbers, return_lse=True, pref=PAGES, device="ptx")
    held(selected(given, PAGES, **numbers, return_lse=True), given, out=out, lse=lse)


def test_pages_of_other_strides() -> None:
    """Heads before keys, gaps between pages, and one page that all sequences name."""
    given = prompt(BF16, [128, 100], (40, 7), 128, 128)
    for name in ("k_pages", "v_pages"):
        wide = np.full((len(given[name]), 2, 2, 128, 128), np.nan, given[name].dtype)
        wide[:, 1] = given[name].swapaxes(1, 2)
        given[name] = wide[:, 1]
    out = bp.paged_attention(**given, layout="HND", pref=PAGES, device="ptx")
    held(selected(given, PAGES, layout="HND"), given, out=out)
    for name in ("k_pages", "v_pages"):
        given[name] = np.broadcast_to(given[name][:1], given[name].shape)
    given["page_table"][1, 0] = -1
    out = bp.paged_attention(**given, layout="HND", pref=PAGES, device="ptx")
    held(selected(given, PAGES, layout="HND"), given, out=out)
    assert not out[40:].any()


def test_prompts_without_ragged_tokens() -> None:
    """As many tokens each, one sequence shorter than its tokens, one without keys."""
    given = prompt(BF16, [150, 9, 0], (20, 20, 20), 16, 128)
    given["q"] = given["q"].reshape(3, 20, 4, 128)
    del given["cu_seqlens_q"]
    out, lse = bp.paged_attention(**given, return_lse=True, pref=PAGES, device="ptx")
    held(selected(given, PAGES, return_lse=True), given, out=out, lse=lse)


def test_pages_that_tma_does_not_copy_are_refused() -> None:
    def desc(page_keys: int, **more: Any) -> bp.PagedAttentionDescriptor:
        pages = (99, page_keys, 8, 128)
        fields: dict[str, Any] = {"cache_element": BF16, **more}
        return bp.PagedAttentionDescriptor((4, 2048, 32, 128), pages, pages, (4, 99), BF16, **fields)

    for page_keys in (1, 7, 8, 24, 100):
        with pytest.raises(bp.UnsupportedError, match=f"a page holds {page_keys} keys"):
            bp.PagedAttentionPlan.select(desc(page_keys), PAGES, device="h200")
        assert bp.PagedAttentionPlan.select(desc(page_keys), device="h200").sku.variant == "flash_pages"
    with pytest.raises(bp.UnsupportedError, match="pages hold i8 and q bf16"):
        bp.PagedAttentionPlan.select(desc(64, cache_element=ElementKind.I8), PAGES, device="h200")
    with pytest.raises(bp.UnsupportedError, match="sm_90a only"):
        bp.PagedAttentionPlan.select(desc(64), PAGES, device="sm_80")
    assert bp.PagedAttentionPlan.select(desc(64), device="h200").sku.variant == "wgmma_pages"
