"""Decoding: every configuration, bits that do not depend on others, what a bound must notice, what is read and refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.ops.attention._decode import merge_launch as _merge
from baracuda_py.ops.attention._decode.split_keys import Costs, SplitKeys, SplitKeysConfig
from baracuda_py.ops.attention.samples.forward import qkv
from baracuda_py.plan.about.tune import admissible
from baracuda_py.types import DeviceSpec, ElementKind, PlanPreference

rng = np.random.default_rng(12)
BF16, F16, F32 = ElementKind.BF16, ElementKind.F16, ElementKind.F32
INVARIANT = PlanPreference(batch_invariant=True)
Array = np.ndarray[Any, Any]


def caches(
    batch: int = 2, tokens: int = 1, keys: int = 150, element: ElementKind = BF16, **more: Any
) -> dict[str, Array]:
    heads = more.pop("heads", (4, 2))
    return qkv(rng, element, batch, heads, tokens, keys, more.pop("d", 64), **more)


def ints(*numbers: int) -> Array:
    return np.array(numbers, np.int32)


def bits(x: Array) -> Array:
    return np.ascontiguousarray(x).view(f"u{x.dtype.itemsize}")


def held(plan: Any, out: Array, given: dict[str, Array], name: str = "out") -> None:
    """Raises AssertionError where `out` is outside of the plan's bound."""
    wide = dict(zip([o.name for o in plan.desc.operands if o.written], plan.reference(plan.desc, **given)))
    plan.precision_guarantee.of(name).check(out, np.asarray(wide[name]), given, measures=plan.measured(output=name))


@pytest.mark.parametrize(("heads", "d"), [((2, 2), 32), ((8, 1), 128), ((20, 1), 64)])
def test_every_kind_of_configuration(heads: tuple[int, int], d: int) -> None:
    given = {**caches(1, 2, 400, heads=heads, d=d), "lengths": ints(390)}
    desc = bp.DecodeAttentionDescriptor.of(**given, return_lse=True)
    plans = admissible(bp.DecodeAttentionPlan, desc, PlanPreference(), DeviceSpec.named("ptx"))
    configs = [(plan, plan.selection.config) for plan in plans if plan.sku.variant == "split_keys"]
    kinds = {(c.warps, c.ctas, c.clustered, c.splits > 2, bool(c.fixed)): plan for plan, c in configs}
    kinds |= {(p.sku.config,): p for p in plans if p.sku.variant == "simt_keys"}
    assert {c.clustered for _, c in configs} == {False, True} and len({c.splits for _, c in configs}) > 2
    assert any(plan.precision_guarantee.batch_invariant for plan in plans)
    for plan in kinds.values():
        out, lse = plan.run(**given)
        held(plan, out, given)
        held(plan, lse, given, "lse")


def test_a_score_far_above_the_others_gives_its_value() -> None:
    """Whichever split it is in: parts are taken relative to the highest score of all."""
    given = {**caches(1, 1, 400, heads=(2, 1), d=32), "lengths": ints(390)}
    given["q"][:], given["k"][:] = 1, 0
    desc = bp.DecodeAttentionDescriptor.of(**given)
    plans = admissible(bp.DecodeAttentionPlan, desc, PlanPreference(), DeviceSpec.named("ptx"))
    kinds = {(getattr(c := plan.selection.config, "clustered", None), c.splits > 1): plan for plan in plans}
    assert {(True, True), (False, True), (None, True)} <= set(kinds)
    for key in (3, 389):
        there = {**given, "k": given["k"].copy()}
        there["k"][:, :, key] = 30
        for plan in kinds.values():
            assert np.array_equal(bits(plan.run(**there)[:, :, 0]), bits(given["v"][:, [0, 0], key]))


def test_few_long_sequences_are_one_launch_without_scratch() -> None:
    """A cluster has a head's splits; without clusters, or where one does not hold them, a second launch merges."""
    shapes = {"q_shape": (1, 32, 1, 128), "k_shape": (1, 8, 8192, 128), "v_shape": (1, 8, 8192, 128)}
    desc = bp.DecodeAttentionDescriptor(**shapes, element=BF16, lengths_shape=(1,))
    plan = bp.DecodeAttentionPlan.select(desc, device="h200")
    (launch,) = plan.selection.launches
    assert plan.workspace_size == 0 and launch.grid == (64, 1, 1)
    for other in (
        bp.DecodeAttentionPlan.select(desc, device="sm_80"),
        bp.DecodeAttentionPlan.select(desc, INVARIANT, device="h200"),
    ):
        assert len(other.selection.launches) == 2 and other.workspace_size > 0


@pytest.mark.parametrize(("ctas", "clusters"), [(1, 15), (2, 30), (3, 45)])
def test_fewer_clusters_than_ctas_are_resident(ctas: int, clusters: int) -> None:
    """So many of 8 CTAs run at once on an H200, as its driver says. Where two launches do not fit, the next one begins late."""
    keys, device = SplitKeys(), DeviceSpec.named("h200")
    config = SplitKeysConfig(16, 128, 8, ctas=ctas, clustered=True, dims=128)
    assert keys._slots(device, config) == 8 * clusters
    desc = bp.DecodeAttentionDescriptor((1, 32, 1, 128), (1, 8, 8192, 128), (1, 8, 8192, 128), BF16)
    late = keys._late(Costs.of(device), config, keys._ctas(desc, config), keys._slots(device, config))
    assert (late > 0) == (ctas == 1)


def test_a_sequence_does_not_depend_on_the_others() -> None:
    """Alone, beside others, in a longer cache, in another layout: the same bits."""
    given, lengths = caches(3, 1, 1300), ints(1200, 700, 3)
    whole = bp.attention_decode(**given, lengths=lengths, pref=INVARIANT, device="ptx")
    for b in range(3):
        alone = {n: x[b : b + 1] for n, x in given.items()}
        shorter = {n: x if n == "q" else x[:, :, : lengths[b]] for n, x in alone.items()}
        transposed = {n: np.ascontiguousarray(x.transpose(0, 2, 1, 3)) for n, x in shorter.items()}
        for same in (
            bp.attention_decode(**alone, lengths=lengths[b : b + 1], pref=INVARIANT, device="ptx"),
            bp.attention_decode(**shorter, pref=INVARIANT, device="ptx"),
            bp.attention_decode(**transposed, layout="BSHD", pref=INVARIANT, device="ptx").transpose(0, 2, 1, 3),
        ):
            assert np.array_equal(bits(same[0]), bits(whole[b]))


def test_decode_is_invariant_to_splits_and_merged_rows() -> None:
    """Three splits of keys alone, and the same three of five; few sequences, and many. Teams of any size merge alike: that is
    tested of merge_attention."""
    given = caches(1, 1, 2100)
    short = {n: x if n == "q" else x[:, :, :1300] for n, x in given.items()}
    alone = bp.attention_decode(**short, pref=INVARIANT, device="ptx")
    longer = bp.attention_decode(**given, lengths=ints(1300), pref=INVARIANT, device="ptx")
    assert np.array_equal(bits(alone), bits(longer))
    kernels = set()
    for batch, keys in ((1, 1300), (1, 9000), (200, 1300), (200, 9000)):
        desc = bp.DecodeAttentionDescriptor((batch, 8, 1, 64), (batch, 2, keys, 64), (batch, 2, keys, 64), BF16)
        plan = bp.DecodeAttentionPlan.select(desc, INVARIANT, device="h200")
        kernels.add(plan.selection.launches[0].kernel)
    assert len(kernels) == 1


@pytest.mark.parametrize(("arch", "d", "d_v"), [("sm_90a", 256, 128), ("sm_80", 160, 128), ("sm_89", 224, 128)])
def test_decode_splits_keys_alike_for_any_number_of_tokens(arch: str, d: int, d_v: int) -> None:
    """Where shared memory has capacity for more warps of few rows than of many."""
    descs = (
        bp.DecodeAttentionDescriptor((1, 4, tokens, d), (1, 1, 3000, d), (1, 1, 3000, d_v), BF16) for tokens in (1, 16)
    )
    few, many = (bp.DecodeAttentionPlan.select(desc, INVARIANT, device=arch).selection.config for desc in descs)
    assert few.rows < many.rows and (few.warps, few.columns) == (many.warps, many.columns)


def test_a_token_does_not_depend_on_how_many_come_at_once() -> None:
    given = caches(1, 5, 540)
    for options in ({}, {"window": (520, 0)}, {"softcap": 4.0}):
        whole = bp.attention_decode(**given, **options, pref=INVARIANT, device="ptx")
        for t in range(5):
            one = {**given, "q": given["q"][:, :, t : t + 1]}
            alone = bp.attention_decode(**one, lengths=ints(536 + t), **options, pref=INVARIANT, device="ptx")
            assert np.array_equal(bits(alone[:, :, 0]), bits(whole[:, :, t])), (options, t)


@pytest.mark.gpu
def test_random_batches_give_the_same_bits() -> None:
    """200 batches of the same sequences, chosen, ordered and padded at random."""
    import cupy as cp

    given = {n: cp.asarray(x) for n, x in caches(24, 1, 3000, d=128, heads=(8, 2), element=F16).items()}
    lengths = rng.integers(1, 3001, 24)
    alone = [
        bp.attention_decode(
            **{n: x[b : b + 1] for n, x in given.items()},
            lengths=cp.asarray(lengths[b : b + 1], cp.int32),
            pref=INVARIANT,
        )[0].view(cp.uint16)
        for b in range(24)
    ]
    for _ in range(200):
        chosen = rng.integers(0, 24, rng.integers(1, 33))
        capacity = int(rng.integers(lengths[chosen].max(), 3001))
        batch = {n: x[chosen] if n == "q" else x[chosen][:, :, :capacity] for n, x in given.items()}
        got = bp.attention_decode(**batch, lengths=cp.asarray(lengths[chosen], cp.int32), pref=INVARIANT)
        for b, one in zip(chosen, got.view(cp.uint16)):
            assert bool((one == alone[b]).all())


@pytest.mark.parametrize("element", [F16, BF16])
@pytest.mark.parametrize("keys", [512, 1200])
def test_the_bound_notices_a_lost_split(element: ElementKind, keys: int) -> None:
    """The last 128 keys left out, the least that a split has."""
    given = caches(1, 1, keys, element)
    plan = bp.DecodeAttentionPlan.select(bp.DecodeAttentionDescriptor.of(**given), device="ptx")
    wide = np.asarray(plan.reference(plan.desc, **given)[0])
    fewer = {n: x if n == "q" else x[:, :, :-128] for n, x in given.items()}
    lost = np.asarray(plan.reference(bp.DecodeAttentionDescriptor.of(**fewer), **fewer)[0]).astype(element.dtype)
    held(plan, wide.astype(element.dtype), given)
    with pytest.raises(AssertionError, match="break"):
        held(plan, lost, given)


def test_nothing_beyond_the_lengths_is_read() -> None:
    """Keys and values there are NaN."""
    given, lengths = caches(3, 2, 90), ints(64, 17, 90)
    for b, n in enumerate(lengths):
        given["k"][b, :, n:] = given["v"][b, :, n:] = np.nan
    out = bp.attention_decode(**given, lengths=lengths, device="ptx")
    assert np.isfinite(np.float32(out)).all()
    assert np.allclose(
        np.float32(out), np.float32(bp.attention_decode(**given, lengths=lengths, device="cpu")), atol=0.02
    )


def test_nothing_behind_the_last_row_is_read() -> None:
    """Tiles have 96 columns, rows 72: a fault where the others are copied."""
    given = caches(1, 1, 32, d=72)
    got = [bp.attention_decode(**given, device=device) for device in ("ptx", "cpu")]
    assert np.allclose(*map(np.float32, got), atol=0.02)


def test_whole_caches_are_attention() -> None:
    given = caches(2, 7, 60)
    out = bp.attention_decode(**given, device="cpu")
    assert np.array_equal(bits(out), bits(bp.attention(**given, causal=True, device="cpu")))


def test_new_lengths_and_numbers_are_no_new_plan() -> None:
    given = caches(2, 1, 150)
    one = bp.DecodeAttentionDescriptor.of(**given, lengths=ints(3, 4), softcap=2.0, scale=0.5)
    other = bp.DecodeAttentionDescriptor.of(**given, lengths=ints(150, 1), softcap=3.0)
    assert one.canonical() == other.canonical()
    for softcap, lengths in ((2.0, ints(3, 4)), (30.0, ints(150, 1))):
        got = [bp.attention_decode(**given, lengths=lengths, softcap=softcap, device=d) for d in ("ptx", "cpu")]
        assert np.allclose(*map(np.float32, got), atol=0.02)


@pytest.mark.parametrize("kinds", ["f32 out", "given"])
def test_results_go_where_they_are_wanted(kinds: str) -> None:
    given = {**caches(2, 2, 400), "lengths": ints(390, 5)}
    capacity = np.full((2, 4, 3, 72), np.nan, np.float32 if kinds == "f32 out" else given["q"].dtype)
    out, lse = capacity[:, :, :2, :64], np.full((2, 4, 2), np.nan, np.float32)
    bp.attention_decode(**given, out=out, lse=lse, device="ptx")
    plan = bp.DecodeAttentionPlan.select(bp.DecodeAttentionDescriptor.of(**given, out=out, lse=lse), device="ptx")
    held(plan, out, given)
    held(plan, lse, given, "lse")
    assert np.isnan(np.float32(capacity[:, :, 2])).all() and np.isnan(np.float32(capacity[..., 64:])).all()


BYTES = {"k": np.zeros((2, 2, 9, 64), np.int8), "v": np.zeros((2, 2, 9, 64), np.int8)}
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"q": np.zeros((2, 3, 1, 64), np.float16)}, "heads"),
    ({"q": np.zeros((2, 4, 1, 32), np.float16)}, "head dim"),
    ({"q": np.zeros((3, 4, 1, 64), np.float16)}, "sequences"),
    ({"q": np.zeros((2, 4, 1, 64), np.float32)}, "caches of q.s type"),
    ({"k": np.zeros((2, 2, 9, 64), np.float32)}, "k"),
    ({"v": np.zeros((2, 2, 8, 64), np.float16)}, "k has shape"),
    ({"lengths": np.zeros(3, np.int32)}, "lengths"),
    ({"lengths": np.zeros(2, np.int64)}, "lengths"),
    ({"softcap": 0.0}, "softcap"),
    ({"scale": float("inf")}, "scale"),
    ({"window": 5}, "window"),
    ({"layout": "THD"}, "layout|THD"),
    ({"alibi_slopes": np.zeros(3, np.float32)}, "alibi_slopes"),
    ({"sinks": np.zeros(2, np.float32)}, "sinks"),
    ({"out": np.zeros((2, 4, 1, 64), np.float64)}, "out"),
    ({"lse": np.zeros((2, 4, 2), np.float32)}, "lse"),
    ({"k_scales": np.ones(2, np.float32)}, "k_scales of caches"),
    ({"k": np.zeros((2, 2, 9, 64), np.int8)}, "v"),
    ({"k_scale": float("nan")}, "k_scale"),
    ({"v_scale": np.ones(2, np.float32)}, "v_scale"),
    ({"v_scale": 1e39}, "v_scale=1e.39"),
    ({**BYTES, "v_scales": np.ones(3, np.float32)}, "v_scales has shape"),
    ({**BYTES, "v_scales": np.ones((2, 2, 9), np.float16)}, "v_scales"),
]


@pytest.mark.parametrize(("given", "says"), REFUSED, ids=[f"{i}-{says}" for i, (_, says) in enumerate(REFUSED)])
def test_what_is_refused(given: dict[str, Any], says: str) -> None:
    operands = {"q": np.zeros((2, 4, 1, 64), np.float16), "k": np.zeros((2, 2, 9, 64), np.float16)}
    operands["v"] = np.zeros((2, 2, 9, 64), np.float16)
    with pytest.raises((bp.InvalidProblemError, bp.OperandTypeError, bp.UnsupportedError), match=says):
        bp.attention_decode(**{**operands, **given}, device="cpu")


@pytest.mark.parametrize("arch", ["sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_120"])
def test_tiles_fit_every_arch(arch: str) -> None:
    """With what kernels declare themselves: 8 bytes a warp and row, and a byte a warp."""
    device = DeviceSpec.named(arch)
    for d, d_v in ((32, 32), (64, 64), (80, 96), (96, 96), (128, 128), (192, 128), (256, 256), (576, 512)):
        for heads, tokens in ((1, 1), (4, 1), (16, 4), (64, 16)):
            desc = bp.DecodeAttentionDescriptor(
                (1, heads, tokens, d), (1, 1, 5000, d), (1, 1, 5000, d_v), ElementKind.BF16
            )
            for plan in admissible(bp.DecodeAttentionPlan, desc, PlanPreference(), device):
                config = plan.selection.config
                if plan.sku.variant != "split_keys":
                    continue
                declared = config.warps * (8 * config.rows + 1)
                assert config.shared_bytes + declared <= device.shared_bytes, (d, d_v, heads, tokens)


# ---- 8 bits ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("element", [F16, BF16])
@pytest.mark.parametrize("cached", [ElementKind.FP8_E4M3, ElementKind.I8])
def test_every_code_is_widened_exactly(cached: ElementKind, element: ElementKind) -> None:
    """Four sequences of one key, whose value is the result; queries of one 1 each, whose score is a key's column."""
    codes = np.arange(256, dtype=np.uint8).view(cached.dtype).reshape(4, 1, 1, 64)
    keys = np.where(np.isnan(np.float32(codes)), 0, np.float32(codes)).astype(cached.dtype)
    q = np.broadcast_to(np.eye(64, dtype=element.dtype)[None, :, None], (4, 64, 1, 64)).copy()
    out, lse = bp.attention_decode(q, keys, codes, scale=1.0, return_lse=True, device="ptx")
    assert np.array_equal(np.float32(out), np.broadcast_to(np.float32(codes), out.shape), equal_nan=True)
    assert np.allclose(lse[:, :, 0], np.float32(keys[:, 0, 0]), rtol=1e-6, atol=0)  # by way of log2


def test_new_scales_are_no_new_plan() -> None:
    given = caches(1, 1, 40)
    given |= {n: (given[n] * 4).astype(ElementKind.FP8_E4M3.dtype) for n in "kv"}
    one, other = (bp.DecodeAttentionDescriptor.of(**given, k_scale=x).canonical() for x in (0.5, 2.0))
    assert one == other
    for k_scale, v_scale in ((0.5, 0.25), (-2.0, 3.0)):
        out = bp.attention_decode(**given, k_scale=k_scale, v_scale=v_scale, device="ptx")
        desc = bp.DecodeAttentionDescriptor.of(**given, k_scale=k_scale, v_scale=v_scale)
        held(bp.DecodeAttentionPlan.select(desc, device="ptx"), out, given)


# ---- pages -------------------------------------------------------------------------------------------------------------


def paged_like(given: dict[str, Array], page_keys: int, layout: str) -> dict[str, Array]:
    """Caches [B, H, S, D] cut into pages, in any order; q [B, T, H, D]."""
    batch, heads, keys, d = given["k"].shape
    each = -(-keys // page_keys)
    order = rng.permutation(batch * each)
    made: dict[str, Array] = {"q": np.ascontiguousarray(given["q"].transpose(0, 2, 1, 3))}
    for name in "kv":
        padded = np.zeros((batch, heads, each * page_keys, d), given[name].dtype)
        padded[:, :, :keys] = given[name]
        pages = (
            padded.reshape(batch, heads, each, page_keys, d).transpose(0, 2, 1, 3, 4).reshape(-1, heads, page_keys, d)
        )
        placed = np.empty_like(pages)
        placed[order] = pages
        made[f"{name}_pages"] = placed if layout == "HND" else np.ascontiguousarray(placed.transpose(0, 2, 1, 3))
    return {**made, "page_table": order.reshape(batch, each).astype(np.int32)}


@pytest.mark.parametrize(("page_keys", "layout"), [(16, "NHD"), (64, "HND"), (7, "NHD"), (1, "HND")])
def test_pages_give_the_bits_of_dense_caches(page_keys: int, layout: str) -> None:
    given, lengths = caches(2, 2, 600), ints(580, 77)
    dense = bp.attention_decode(**given, lengths=lengths, pref=INVARIANT, device="ptx")
    paged = paged_like(given, page_keys, layout)
    out = bp.paged_attention(**paged, lengths=lengths, layout=layout, pref=INVARIANT, device="ptx")
    assert np.array_equal(bits(out.transpose(0, 2, 1, 3)), bits(dense))


def test_ragged_tokens_give_the_bits_of_padded_ones() -> None:
    paged, lengths = paged_like(caches(2, 4, 300), 16, "NHD"), ints(290, 100)
    whole, status = bp.paged_attention(**paged, lengths=lengths, return_status=True, pref=INVARIANT, device="ptx")
    ragged = {**paged, "q": paged["q"].reshape(8, 4, 64)}
    out = bp.paged_attention(**ragged, lengths=lengths, cu_seqlens_q=ints(0, 4, 8), pref=INVARIANT, device="ptx")
    assert np.array_equal(bits(out.reshape(whole.shape)), bits(whole)) and not status.any()


@pytest.mark.parametrize("keys", [90, 700])
def test_starts_of_sequences_are_never_followed_outside(keys: int) -> None:
    """Beyond the tensor, negative, decreasing, with tokens of no sequence between: no fault, and what is inside is right."""
    paged, lengths = paged_like(caches(2, 5, keys), 16, "NHD"), ints(keys, 40)
    ragged = {**paged, "q": paged["q"].reshape(10, 4, 64)}
    for starts in (ints(-3, 4, 999), ints(9, 5, -3), ints(7, 7, 7)):
        bp.paged_attention(**ragged, lengths=lengths, cu_seqlens_q=starts, device="ptx")
    asked: dict[str, Any] = {"lengths": lengths, "cu_seqlens_q": ints(0, 5, 8), "return_lse": True, "pref": INVARIANT}
    out, lse = bp.paged_attention(**ragged, **asked, device="ptx")
    right = bp.paged_attention(**{**ragged, "q": ragged["q"][:8]}, **asked, device="ptx")
    assert np.array_equal(bits(out[:8]), bits(right.out)) and np.array_equal(lse[:, :8], right.lse)


def test_missing_pages_are_reported_and_never_read() -> None:
    """The other sequences' bits stay; nothing faults."""
    paged, lengths = paged_like(caches(3, 1, 90), 16, "NHD"), ints(90, 50, 33)
    whole = bp.paged_attention(**paged, lengths=lengths, device="ptx")
    paged["page_table"][1] = (1 << 30, -1, -(1 << 31), 18, 0, 0)
    lengths[2] = 1 << 30
    out, status = bp.paged_attention(**paged, lengths=lengths, return_status=True, device="ptx")
    assert status.tolist() == [0, 1, 2] and np.array_equal(bits(out[0]), bits(whole[0]))
    paged["page_table"][1, 4:], lengths[1:] = -1, (50, 90)
    paged["page_table"][1, :4] = (0, 1, 2, 3)
    _, status = bp.paged_attention(**paged, lengths=lengths, return_status=True, device="ptx")
    assert not status.any()  # entries that are not in use do not count


@pytest.mark.parametrize("device", ["ptx", "cpu"])
@pytest.mark.parametrize("tokens", [1, 3])
def test_pages_before_the_window_may_be_gone(tokens: int, device: str) -> None:
    """Token 0 of 90 keys stands at key 90 - tokens, and sees 40 before it."""
    paged = {**paged_like(caches(1, tokens, 90), 16, "NHD"), "lengths": ints(90)}
    seen = (90 - tokens - 40) // 16
    asked: dict[str, Any] = {"window": (40, 0), "return_status": True, "device": device}
    whole = bp.paged_attention(**paged, **asked)
    freed = {**paged, "page_table": paged["page_table"].copy()}
    freed["page_table"][0, :seen] = -1
    out, status = bp.paged_attention(**freed, **asked)
    assert status.tolist() == [0] and np.array_equal(bits(out), bits(whole.out))
    freed["page_table"][0, seen] = -1
    assert bp.paged_attention(**freed, **asked).status.tolist() == [1]


def test_keys_before_the_window_count_for_nothing() -> None:
    """Also those that are in a page, and a block, beside keys that are seen."""
    paged = {**paged_like(caches(1, 1, 90), 16, "NHD"), "lengths": ints(90)}
    whole = bp.paged_attention(**paged, window=(45, 0), device="ptx")
    first = int(paged["page_table"][0, 2])
    paged["k_pages"][first, : 90 - 1 - 45 - 32], paged["v_pages"][first, : 90 - 1 - 45 - 32] = np.nan, np.nan
    out = bp.paged_attention(**paged, window=(45, 0), device="ptx")
    assert np.array_equal(bits(out), bits(whole))


def test_nobody_sees_keys_beside_the_window_of_a_dense_cache() -> None:
    """The window begins within a block of 16 keys, and the length ends within another."""
    given = {**caches(1, 1, 90), "lengths": ints(85)}
    whole = bp.attention_decode(**given, window=(45, 0), device="ptx")
    for name in "kv":
        given[name][:, :, : 85 - 1 - 45], given[name][:, :, 85:] = np.nan, np.nan
    assert np.array_equal(bits(bp.attention_decode(**given, window=(45, 0), device="ptx")), bits(whole))


def test_the_bound_notices_a_lost_page() -> None:
    """One of 16 keys, of a thousand, reads as 0."""
    paged = {**paged_like(caches(1, 1, 400), 16, "NHD"), "lengths": ints(400)}
    plan = bp.PagedAttentionPlan.select(bp.PagedAttentionDescriptor.of(**paged), device="ptx")
    wide = np.asarray(plan.reference(plan.desc, **paged)[0])
    lost = paged["page_table"].copy()
    lost[0, 11] = -1
    wrong = np.asarray(plan.reference(plan.desc, **{**paged, "page_table": lost})[0])
    held(plan, wide.astype(paged["q"].dtype), paged)
    with pytest.raises(AssertionError, match="break"):
        held(plan, wrong.astype(paged["q"].dtype), paged)


def test_the_last_page_is_looked_at() -> None:
    paged = paged_like(caches(1, 1, 33), 16, "NHD")
    paged["page_table"][0, 2] = 3
    assert bp.paged_attention(**paged, lengths=ints(33), return_status=True, device="ptx").status[0] == 1
    assert bp.paged_attention(**paged, lengths=ints(32), return_status=True, device="ptx").status[0] == 0


PAGED_REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"q": np.zeros((1, 4, 64), np.float16)}, "q has shape"),
    ({"q": np.zeros((3, 1, 4, 64), np.float16)}, "sequences"),
    ({"q": np.zeros((2, 1, 3, 64), np.float16)}, "heads"),
    ({"q": np.zeros((2, 1, 4, 32), np.float16)}, "head dim"),
    ({"v_pages": np.zeros((5, 8, 2, 64), np.float16)}, "k_pages has shape"),
    ({"k_pages": np.zeros((5, 16, 2, 64), np.float32)}, "k_pages"),
    ({"page_table": np.zeros((2, 4), np.int64)}, "page_table"),
    ({"page_table": np.zeros(2, np.int32)}, "page_table"),
    ({"page_table": np.zeros((2, 8), np.int32)[:, ::2]}, "side by side"),
    ({"lengths": np.zeros(3, np.int32)}, "lengths"),
    ({"lengths": np.zeros(2, np.int64)}, "lengths"),
    ({"layout": "BHSD"}, "page_layout"),
    ({"max_seqlen_q": 3}, "max_seqlen_q"),
    ({"cu_seqlens_q": np.zeros(3, np.int32)}, "q has shape"),
    ({"status": np.zeros(3, np.int32)}, "status"),
    ({"status": np.zeros(2, np.int64)}, "status"),
]


@pytest.mark.parametrize(
    ("given", "says"), PAGED_REFUSED, ids=[f"{i}-{says}" for i, (_, says) in enumerate(PAGED_REFUSED)]
)
def test_what_pages_are_refused(given: dict[str, Any], says: str) -> None:
    pages = np.zeros((5, 16, 2, 64), np.float16)
    operands = {"q": np.zeros((2, 1, 4, 64), np.float16), "k_pages": pages, "v_pages": pages}
    operands |= {"page_table": np.zeros((2, 4), np.int32), "lengths": np.zeros(2, np.int32)}
    with pytest.raises((bp.InvalidProblemError, bp.OperandTypeError, bp.UnsupportedError), match=says):
        bp.paged_attention(**{**operands, **given}, device="cpu")


# ---- merging -----------------------------------------------------------------------------------------------------------


def test_merged_parts_are_the_whole() -> None:
    """A shared prefix and what follows it."""
    given = caches(2, 3, 90, F32)
    whole = bp.attention(**given, return_lse=True, device="cpu")
    parts = [
        bp.attention(given["q"], given["k"][:, :, s], given["v"][:, :, s], return_lse=True, device="cpu")
        for s in (slice(0, 50), slice(50, 90))
    ]
    outs, lses = (np.stack(x) for x in zip(*parts))
    for device in ("cpu", "ptx"):
        out, lse = bp.merge_attention(outs, lses, device=device)
        assert np.allclose(out, whole.out, atol=2e-6) and np.allclose(lse, whole.lse, atol=2e-6)


def test_how_many_rows_are_merged_changes_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row is a warp's where rows are many, and four warps' where they are few."""
    outs = rng.standard_normal((11, 3, 8)).astype(np.float32)
    lses = rng.standard_normal((11, 3)).astype(np.float32)
    desc = bp.MergeAttentionDescriptor.of(outs, lses)
    results, names = [], set()
    for few in (8, 0):
        monkeypatch.setattr(_merge, "ROWS_PER_SM_FOR_TEAMS", few)
        plan = bp.MergeAttentionPlan.select(desc, device="ptx")
        names.add(plan.kernels[0].name)
        results.append(plan.run(outs=outs, lses=lses))
    assert len(names) == 2
    assert all(np.array_equal(bits(one), bits(other)) for one, other in zip(*results))


def test_one_part_stays_as_it_is() -> None:
    outs, lses = rng.standard_normal((1, 2, 9, 64)).astype(F16.dtype), rng.standard_normal((1, 2, 9)).astype(np.float32)
    out, lse = bp.merge_attention(outs.transpose(0, 2, 1, 3), lses, layout="THD", device="ptx")
    assert np.array_equal(out.transpose(1, 0, 2), outs[0]) and np.array_equal(lse, lses[0])


@pytest.mark.parametrize(
    ("outs", "lses", "options", "says"),
    [
        ((2, 1, 2, 3, 8), (2, 1, 2, 4), {}, "lses"),
        ((2, 3, 8), (2, 3), {"layout": "THD"}, "rank"),
        ((0, 3, 8), (0, 3), {}, "no parts"),
        ((2, 3, 8), (2, 3), {"layout": "SHD"}, "order"),
        ((2, 3, 8), (2, 3), {"out": np.zeros((3, 9), np.float32)}, "out"),
    ],
)
def test_what_is_not_merged(outs: Any, lses: Any, options: Any, says: str) -> None:
    with pytest.raises((bp.InvalidProblemError, bp.OperandTypeError), match=says):
        bp.merge_attention(np.zeros(outs, np.float32), np.zeros(lses, np.float32), **options, device="cpu")
