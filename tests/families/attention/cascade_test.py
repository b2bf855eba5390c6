"""cascade_attention: that it is attention over whole sequences, parts of the prefix, what is not read, refusals."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.ops.attention._cascade import parts
from baracuda_py.ops.attention._cascade.guarantee import merged
from baracuda_py.ops.attention._decode.flash_pages import FlashPages
from baracuda_py.ops.attention._decode.wgmma_pages import WgmmaPages
from baracuda_py.ops.attention.samples.cascade import cascaded
from baracuda_py.ops.attention.samples.forward import cast
from baracuda_py.plan.about.tune import admissible
from baracuda_py.types import DeviceSpec, ElementKind, PlanPreference

from .paged_prompt_test import held

COVERS = ("cascade_attention",)
BF16, F16, F32 = ElementKind.BF16, ElementKind.F16, ElementKind.F32
INVARIANT = PlanPreference(batch_invariant=True)
Array = np.ndarray[Any, Any]


def problem(
    element: ElementKind = BF16, prefix: int = 64, lengths: tuple[int, ...] = (20, 5), **more: Any
) -> dict[str, Any]:
    return cascaded(np.random.default_rng(prefix + len(lengths)), element, prefix, list(lengths), **more)


def selected(given: dict[str, Any], pref: PlanPreference | None = None, **options: Any) -> Any:
    desc = bp.CascadeAttentionDescriptor.of(**given, **options)
    return bp.CascadeAttentionPlan.select(desc, pref, device="ptx")


def whole_tables(given: dict[str, Any], prefix: int) -> dict[str, Any]:
    """The same problem for `paged_attention`; the prefix fills its pages."""
    size = given["k_pages"].shape[1]
    shared = np.tile(given["prefix_table"][: prefix // size], (len(given["lengths"]), 1))
    made = {name: x for name, x in given.items() if name not in ("prefix_table", "prefix_length")}
    table = np.concatenate([shared, given["page_table"]], axis=1)
    return made | {"page_table": table, "lengths": given["lengths"] + np.int32(prefix)}


# ---- the result ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tokens", [1, 3, (4, 0, 1)], ids=["one token", "three tokens", "ragged"])
def test_cascade_is_attention_of_whole_tables(tokens: int | tuple[int, ...]) -> None:
    given = problem(F32, 64, (20, 5, 33), tokens=tokens)
    ours = bp.cascade_attention(**given, return_lse=True, return_status=True, device="cpu")
    theirs = bp.paged_attention(**whole_tables(given, 64), return_lse=True, return_status=True, device="cpu")
    for mine, other in zip(ours, theirs):
        assert np.allclose(mine, other, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("kernel", [FlashPages(), WgmmaPages()], ids=lambda kernel: kernel.variant)
def test_cascade_every_configuration_holds_the_bound(monkeypatch: pytest.MonkeyPatch, kernel: Any) -> None:
    """Prefixes of one part and of two, by the kernels of few tokens and by those of whole sequences."""
    monkeypatch.setattr(parts, "WHOLE_SEQUENCES", (kernel,))
    parts._split_prefix.cache_clear()
    given = problem(BF16, 1050, (40, 7), heads=(2, 1), d=128)
    desc = bp.CascadeAttentionDescriptor.of(**given, return_lse=True, return_status=True)
    plans = list(admissible(bp.CascadeAttentionPlan, desc, PlanPreference(), DeviceSpec.named("ptx:h200")))
    texts = [str(plan.sku.config) for plan in plans]
    assert any(f"prefix_parts=2 prefix={kernel.variant}" in text for text in texts)
    assert any("fixed" in text for text in texts)
    for plan in plans:
        out, lse, status = plan.run(**given)
        held(plan, given, out=out, lse=lse)
        assert not status.any()
    parts._split_prefix.cache_clear()


@pytest.mark.parametrize("keys", [0, 1, 600, 1024])
def test_cascade_prefix_parts_follow_the_length(keys: int) -> None:
    """Of two parts the second may be without keys, or both."""
    given = problem(F16, 1024, (9,), heads=(2, 1), d=64)
    given["prefix_length"][:] = keys
    desc = bp.CascadeAttentionDescriptor.of(**given, return_lse=True)
    plans = admissible(bp.CascadeAttentionPlan, desc, PlanPreference(), DeviceSpec.named("ptx:h200"))
    plan = next(plan for plan in plans if "prefix_parts=2" in str(plan.sku.config))
    out, lse = plan.run(**given)
    held(plan, given, out=out, lse=lse)


def test_cascade_reads_no_key_that_is_not_seen() -> None:
    """Slots behind the prefix's and the sequences' ends, and pages of no sequence, hold NaN."""
    given = problem(BF16, 70, (20, 5))
    wanted = bp.cascade_attention(**given, device="ptx")
    for name in ("k_pages", "v_pages"):
        pages = given[name]
        named = {*given["prefix_table"].tolist(), *given["page_table"].ravel().tolist()}
        pages[[page for page in range(len(pages)) if page not in named]] = np.nan
        pages[given["prefix_table"][4], 70 - 64 :] = np.nan
        pages[given["page_table"][0, 1], 20 - 16 :] = np.nan
        pages[given["page_table"][1, 0], 5:] = np.nan
    assert bp.cascade_attention(**given, device="ptx").tobytes() == wanted.tobytes()


def test_cascade_counts_the_sink_once() -> None:
    """Also where a sequence has no key of its own."""
    given = problem(BF16, 33, (0, 9)) | {"sinks": cast(np.array([3.0, -1.0, 0.0, 2.0]), BF16)}
    plan = selected(given, return_lse=True)
    out, lse = plan.run(**given)
    held(plan, given, out=out, lse=lse)
    plain = bp.cascade_attention(**given | {"sinks": None}, return_lse=True, device="ptx")
    assert np.allclose(np.exp(lse) - np.exp(plain.lse), np.exp(np.float32(given["sinks"]))[None, :, None], rtol=0.02)


@pytest.mark.parametrize("at", [0, 255, 256, 298, 299])
def test_cascade_looks_at_every_page_of_the_prefix(at: int) -> None:
    """More pages than threads, of one key each: one is missing, in use or behind the prefix's end."""
    given = problem(F16, 300, (2,), page_keys=1, heads=(1, 1), d=16)
    given["prefix_length"][:] = 299
    given["prefix_table"][at] = 1 << 20
    status = bp.cascade_attention(**given, return_status=True, device="ptx").status
    assert status.tolist() == [4 if at < 299 else 0]


@pytest.mark.parametrize(("prefix", "own"), [(1024, 40), (40, 1024)])
def test_cascade_promises_what_its_parts_do(prefix: int, own: int) -> None:
    """The larger coefficient of both parts and more for the merge; bits of any batch only where both parts have them."""
    given = problem(BF16, prefix, (own,) * 5, heads=(2, 1))
    given["prefix_table"] = given["prefix_table"][: -(-prefix // 16)].copy()
    desc = bp.CascadeAttentionDescriptor.of(**given, return_lse=True)
    plans = list(admissible(bp.CascadeAttentionPlan, desc, PlanPreference(), DeviceSpec.named("ptx:h200")))
    assert {plan.precision_guarantee.batch_invariant for plan in plans} == {False, True}
    for plan in plans:
        of = plan.selection.config.of
        whole = plan.precision_guarantee
        assert whole.batch_invariant is all(of[part].guarantee.batch_invariant for part in ("prefix", "own"))
        terms = whole.of("out").bound.coefficients()
        for part in ("prefix", "own"):
            for (unit, measure), coefficient in of[part].guarantee.of("out").bound.coefficients().items():
                wanted = {"abs_result": "weighted", "smallest_normal": "computed_smallest_normal"}.get(measure, measure)
                assert terms[unit, wanted] >= coefficient, (part, measure)
        depth = max(of[part].guarantee.of("out").bound.coefficients()[F32, "weighted"] for part in ("prefix", "own"))
        assert terms[F32, "weighted"] > depth + 1.0
        assert terms[BF16, "abs_result"] == 1.0 and (F32, "abs_result") not in terms


def test_cascade_promises_do_not_depend_on_the_order_of_parts() -> None:
    given = problem(BF16, 40, (1024,) * 5, heads=(2, 1))
    given["prefix_table"] = given["prefix_table"][:3].copy()
    config = selected(given, INVARIANT, return_lse=True).selection.config
    desc = bp.CascadeAttentionDescriptor.of(**given, return_lse=True)
    few, many = (config.of[part].guarantee for part in ("prefix", "own"))
    whole = [merged(desc, pair, 2, 1064) for pair in ((few, many), (many, few))]
    assert few.of("out").bound != many.of("out").bound and whole[0].batch_invariant
    for name in ("out", "lse"):
        assert len({frozenset(one.of(name).bound.coefficients().items()) for one in whole}) == 1
    lone = replace(few, parts=tuple((name, replace(part, batch_invariant=False)) for name, part in few.parts))
    assert not merged(desc, (lone, many), 2, 1064).batch_invariant


def test_cascade_sequence_is_independent_of_the_batch() -> None:
    given = problem(BF16, 600, (40, 300, 7), heads=(2, 1))
    out, lse = bp.cascade_attention(**given, return_lse=True, pref=INVARIANT, device="ptx")
    plan = selected(given, INVARIANT)
    assert plan.precision_guarantee.batch_invariant and plan.precision_guarantee.deterministic
    for b in range(3):
        alone = given | {name: given[name][b : b + 1] for name in ("q", "page_table", "lengths")}
        one, lse_of_one = bp.cascade_attention(**alone, return_lse=True, pref=INVARIANT, device="ptx")
        assert one.tobytes() == out[b : b + 1].tobytes() and lse_of_one.tobytes() == lse[b : b + 1].tobytes()


# ---- operands --------------------------------------------------------------------------------------------------------------


def test_cascade_strided_operands() -> None:
    """q with its tokens last in memory, every other page id, results in a wider array; negative steps of heads."""
    given = problem(BF16, 50, (20, 5, 9), tokens=1)
    wanted = bp.cascade_attention(**given, return_lse=True, device="ptx")
    wide = np.full((3, 1, 4, 128), np.nan, BF16.dtype)
    q = np.zeros((3, 1, 8, 128), BF16.dtype)[:, :, ::-2, 32:96]
    q[...] = given["q"]
    table = np.repeat(given["prefix_table"], 3)[::3]
    lse = np.zeros((4, 1, 3), np.float32).transpose(2, 0, 1)
    made = bp.cascade_attention(**given | {"q": q, "prefix_table": table}, out=wide[..., 32:96], lse=lse, device="ptx")
    plan = selected(given | {"q": q, "prefix_table": table, "out": wide[..., 32:96], "lse": lse})
    held(plan, given, out=np.ascontiguousarray(made.out), lse=np.ascontiguousarray(made.lse))
    assert np.isnan(np.float32(wide[..., :32])).all() and wanted.out.shape == made.out.shape


def test_cascade_new_numbers_are_no_new_plan() -> None:
    given = problem(BF16, 64, (20, 5), on_device=False)
    plan = selected(given | {"prefix_length": None}, prefix_keys=64)
    for number, scale in ((64, 0.125), (31, -0.5), (0, 0.125)):
        out = plan.run(**given, prefix_keys=number, scale=scale)
        wide = plan.reference(plan.desc.at({"prefix_keys": number, "scale": scale}), **given)[0]
        assert np.allclose(np.float64(out), np.float64(wide), atol=0.02)
        called = bp.cascade_attention(**given, prefix_length=number, scale=scale, device="ptx")
        assert called.tobytes() == out.tobytes()


def test_cascade_results_may_be_f32() -> None:
    given = problem(F16, 40, (20, 5))
    out = np.full(given["q"].shape, np.nan, np.float32)
    plan = selected(given | {"out": out})
    held(plan, given, out=plan.run(**given, out=out))


def test_cascade_without_sequences_or_tokens() -> None:
    given = problem(BF16, 40, (20, 5), tokens=0)
    assert bp.cascade_attention(**given, device="ptx").shape == (2, 0, 4, 64)
    none = given | {name: given[name][:0] for name in ("q", "page_table", "lengths")}
    assert bp.cascade_attention(**none, return_status=True, device="ptx").status.shape == (0,)


# ---- what is refused -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"window": (20, 0)}, "paged_attention with tables of the whole sequences, which has windows"),
        ({"alibi_slopes": np.zeros(4, np.float32)}, "which has alibi_slopes"),
        ({"prefix_length": 81}, "prefix_length=81 of 5 pages of 16 keys"),
        ({"prefix_length": -1}, "prefix_length=-1 of 5 pages"),
        ({"prefix_length": np.zeros(2, np.int32)}, r"prefix_length has shape \(2,\)"),
        ({"prefix_length": np.zeros(1, np.int64)}, "prefix_length must hold i32"),
        ({"prefix_table": np.zeros((2, 5), np.int32)}, "prefix_table"),
        ({"prefix_table": np.zeros(5, np.int64)}, "prefix_table"),
        ({"q": np.zeros((2, 1, 3, 64), BF16.dtype)}, "3 heads"),
        ({"q": np.zeros((2, 1, 4, 64), np.float64)}, "q must hold f16, bf16 or f32"),
        ({"lengths": np.zeros(3, np.int32)}, "lengths has shape|lengths must have shape"),
    ],
)
def test_cascade_refuses_bad_arguments(changed: dict[str, Any], says: str) -> None:
    given = problem(BF16, 64, (20, 5), on_device=False) | {"out": np.full((2, 1, 4, 64), 7, BF16.dtype)}
    with pytest.raises(bp.BaracudaError, match=says):
        bp.cascade_attention(**given | changed, device="ptx")
    assert (given["out"] == 7).all()


def test_cascade_refuses_unevenly_spaced_tokens() -> None:
    given = problem(BF16, 64, (20, 5), tokens=2)
    given["q"] = np.zeros((2, 3, 4, 64), BF16.dtype)[:, :2]
    with pytest.raises(bp.UnsupportedError, match=r"contiguize\(q\)"):
        bp.cascade_attention(**given, device="ptx")


# ---- the cache -------------------------------------------------------------------------------------------------------------


def test_cache_shared_prefix_feeds_cascade() -> None:
    """Two forks of one sequence, with a token each: the page that both go on in is their own."""
    rng = np.random.default_rng(3)
    spec = bp.KVCacheSpec(layers=1, kv_heads=2, head_dim=16, page_size=4, element="f16")
    cache = bp.PagedKVCache(spec, pages=16, max_batch=4, device="cpu")

    def appended(batch: list[Any], count: int) -> None:
        cache.stage(batch)
        k, v = (rng.standard_normal((count, 2, 16)).astype(np.float16) for _ in "kv")
        cache.append(0, k, v)

    first = cache.allocate(10)
    appended([first], 10)
    cache.advance([first])
    batch = [first, cache.fork(first)]
    cache.extend({sequence: [1] for sequence in batch})
    appended(batch, 2)
    shared = cache.shared_prefix(batch)
    assert shared.prefix_table.tolist() == first.pages[:2] and shared.prefix_length == 8
    assert shared.lengths.tolist() == [3, 3] and shared.page_table.shape == (2, 1)
    q = rng.standard_normal((2, 1, 4, 16)).astype(np.float16)
    ours = bp.cascade_attention(q, **cache.layer(0), **shared._asdict(), device="cpu")
    table, lengths = cache.page_table[:2], cache.lengths_after[:2]
    theirs = bp.paged_attention(q, **cache.layer(0), page_table=table, lengths=lengths, device="cpu")
    assert ours.tobytes() == theirs.tobytes()


def test_cache_shared_prefix_of_unlike_sequences() -> None:
    spec = bp.KVCacheSpec(layers=1, kv_heads=1, head_dim=16, page_size=4, element="f16")
    cache = bp.PagedKVCache(spec, pages=16, max_batch=4, device="cpu")
    batch = [cache.allocate(9), cache.allocate(2)]
    shared = cache.shared_prefix(batch)
    assert shared.prefix_length == 0 and shared.prefix_table.shape == (0,) and shared.lengths.tolist() == [9, 2]
    assert shared.page_table.tolist() == [batch[0].pages, [*batch[1].pages, -1, -1]]
    assert cache.shared_prefix([]).page_table.shape == (0, 0)
    with pytest.raises(bp.InvalidProblemError, match="shared_prefix"):
        cache.shared_prefix([1])  # type: ignore[list-item]
