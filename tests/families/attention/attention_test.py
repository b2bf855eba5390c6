"""Attention: identities that are exact, what a bound must notice, features together, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.ops.attention.samples.forward import qkv
from baracuda_py.plan.about import tune
from baracuda_py.runtime.gpu.device import spec_of
from baracuda_py.types import ElementKind

rng = np.random.default_rng(11)
BF16, F16, F32 = ElementKind.BF16, ElementKind.F16, ElementKind.F32
Array = np.ndarray[Any, Any]


def small(rows: int = 20, keys: int = 30, element: ElementKind = F32, d: int = 16) -> dict[str, Array]:
    return qkv(rng, element, 1, (2, 1), rows, keys, d)


def bits(x: Array) -> Array:
    return x.view(f"u{x.dtype.itemsize}")


@pytest.mark.parametrize("device", ["cpu", "ptx"])
@pytest.mark.parametrize(("element", "math"), [(F16, None), (BF16, None), (F32, None), (F32, "tf32")])
def test_equal_scores_give_the_mean_of_whole_numbers(element: ElementKind, math: str | None, device: str) -> None:
    """Queries of zeros: every weight is 1, and sums of small integers over 64 keys are exact."""
    given = small(33, 64, element, 64)
    given["q"][...] = 0
    given["v"] = rng.integers(-4, 5, given["v"].shape).astype(element.dtype)
    out, lse = bp.attention(**given, return_lse=True, math=math, device=device)
    wanted = np.float64(given["v"]).mean(axis=2, keepdims=True)
    assert np.array_equal(out, np.broadcast_to(wanted, out.shape).astype(element.dtype))
    assert np.allclose(lse, np.log(64), atol=1e-6)


@pytest.mark.parametrize("device", ["cpu", "ptx"])
def test_one_dominant_score_gives_its_value(device: str) -> None:
    given = small(16, 48, BF16, 64)
    given["q"][...], given["k"][...] = 1, 0
    at = rng.integers(0, 48)
    given["k"][:, :, at] = 64  # e**512 above the others
    out = bp.attention(**given, device=device)
    assert np.array_equal(
        bits(out), bits(np.ascontiguousarray(np.broadcast_to(given["v"][:, :, at : at + 1], out.shape)))
    )


@pytest.mark.parametrize(("element", "math"), [(F16, None), (BF16, None), (F32, None), (F32, "tf32")])
@pytest.mark.parametrize(("rows", "keys"), [(40, 256), (64, 1024), (16, 16384)])
def test_the_bound_notices_a_lost_block_of_keys(element: ElementKind, math: str | None, rows: int, keys: int) -> None:
    """The last 32 keys left out."""
    given = small(rows, keys, element, 64)
    plan = bp.AttentionPlan.select(bp.AttentionDescriptor.of(**given, math=math), device="ptx")
    wide = np.asarray(plan.reference(plan.desc, **given)[0])
    fewer = {n: x if n == "q" else x[:, :, :-32] for n, x in given.items()}
    lost = np.asarray(plan.reference(bp.AttentionDescriptor.of(**fewer), **fewer)[0]).astype(element.dtype)
    held = plan.precision_guarantee.of("out")
    measures = plan.measured(output="out")
    held.check(wide.astype(element.dtype), wide, given, measures=measures)
    with pytest.raises(AssertionError, match="break"):
        held.check(lost, wide, given, measures=measures)


@pytest.mark.parametrize("variant", ["flash", "tc", "simt"])
@pytest.mark.parametrize("low", [-1e9, -1e10, -1e30, -3.4e38])
@pytest.mark.parametrize("element", [F16, BF16])
def test_masks_may_add_any_negative_number(element: ElementKind, low: float, variant: str) -> None:
    """Padding after the last key, as long as blocks are, and one row that is nothing else."""
    given = small(18, 200, element, 32)
    mask = np.zeros((18, 200), np.float32)
    mask[:, 90:] = mask[3] = low
    given["q"][:, :, 3] = 0
    pref = bp.PlanPreference(variant=variant)
    out, lse = bp.attention(**given, mask=mask, return_lse=True, device="ptx", pref=pref)
    seen = {n: x if n == "q" else x[:, :, :90] for n, x in given.items()}
    wanted, of_seen = bp.attention(**seen, return_lse=True, device="cpu")
    rest = np.arange(18) != 3
    assert np.allclose(np.float64(out)[:, :, rest], np.float64(wanted)[:, :, rest], atol=0.03)
    assert np.allclose(lse[:, :, rest], of_seen[:, :, rest], rtol=1e-5, atol=1e-4)
    mean = np.float64(given["v"]).mean(axis=2)
    assert np.allclose(np.float64(out)[:, :, 3], mean, atol=0.02) and np.allclose(lse[:, :, 3], low, rtol=1e-6)


@pytest.mark.parametrize("sink", [3e38, -3.4e38, -np.inf])
def test_sinks_may_be_any_number(sink: float) -> None:
    given = small(18, 40, BF16, 32)
    sinks = np.full(2, sink, np.float32)
    out, lse = bp.attention(
        **given, sinks=sinks, return_lse=True, device="ptx", pref=bp.PlanPreference(variant="flash")
    )
    wanted, of_row = bp.attention(**given, sinks=sinks, return_lse=True, device="cpu")
    assert np.allclose(np.float64(out), np.float64(wanted), atol=0.03) and np.allclose(
        lse, of_row, rtol=1e-5, atol=1e-4
    )


@pytest.mark.parametrize("variant", ["flash", "tc", "simt"])
def test_windows_and_blocks_may_be_larger_than_any_problem(variant: str) -> None:
    given = small(18, 40, BF16, 32)
    pref, far = bp.PlanPreference(variant=variant), 2**63 - 1
    wanted = bp.attention(**given, device="ptx", pref=pref)
    blocks: dict[str, Any] = {"block_mask": np.ones((1, 1, 1, 1), bool), "block_size": (2**32 - 1, 2**33)}
    for options in ({"window": (far, far)}, blocks):
        out = bp.attention(**given, **options, device="ptx", pref=pref)
        # Scores are scaled in another place where some may be left out: a result may be rounded to its neighbour
        np.testing.assert_allclose(out.astype(np.float32), wanted.astype(np.float32), rtol=2.0**-7, atol=2.0**-12)


@pytest.mark.parametrize("variant", ["flash", "tc", "simt"])
def test_growing_scores_are_rescaled(variant: str) -> None:
    """Keys come from the last to the first in flash, the other way round in simt: in both orders later blocks score higher."""
    for order in (1, -1):
        given = small(20, 300, BF16, 64)
        ramp = np.linspace(-6, 6, 300)[::order].reshape(1, 1, -1, 1)
        given["q"] = np.abs(given["q"]) + BF16.dtype.type(1)
        given["k"] = ramp.astype(BF16.dtype) + given["k"] * BF16.dtype.type(0.1)
        plan = bp.AttentionPlan.select(
            bp.AttentionDescriptor.of(**given), bp.PlanPreference(variant=variant), device="ptx"
        )
        plan.verify(**given)


@pytest.mark.parametrize(("d", "d_v"), [(160, 224), (224, 192)])
def test_columns_that_two_warps_share(d: int, d_v: int) -> None:
    """The second warp's begin in the middle of a panel; of queries some steps stay in registers."""
    given = qkv(rng, F16, 1, (1, 1), 33, 70, d, d_v)
    desc = bp.AttentionDescriptor.of(**given, causal=True).canonical()
    plans = tune.admissible(bp.AttentionPlan, desc, bp.PlanPreference(variant="flash"), spec_of("ptx"))
    next(plan for plan in plans if "split=2" in plan.sku.config and "held" in plan.sku.config).verify(**given)


def test_a_sequence_does_not_depend_on_the_others() -> None:
    """Alone, beside others, and among ragged ones: the same bits."""
    given = qkv(rng, BF16, 3, (2, 1), 37, 70, 64)
    how: Any = {"causal": True, "pref": bp.PlanPreference(batch_invariant=True), "device": "ptx"}
    whole = bp.attention(**given, **how)
    alone = bp.attention(**{n: x[1:2] for n, x in given.items()}, **how)
    assert np.array_equal(bits(alone[0]), bits(whole[1]))
    ragged = {n: np.ascontiguousarray(x.transpose(0, 2, 1, 3).reshape(-1, *x.shape[1::2])) for n, x in given.items()}
    starts = {f"cu_seqlens_{n}": np.arange(0, 4, dtype=np.int32) * given[n].shape[2] for n in "qk"}
    packed = bp.attention(**ragged, **starts, layout="THD", max_seqlen_q=37, **how)
    assert np.array_equal(bits(packed.reshape(3, 37, 2, 64)), bits(np.ascontiguousarray(whole.transpose(0, 2, 1, 3))))


@pytest.mark.parametrize("element", [BF16, F32])
def test_a_batch_invariant_plan_goes_by_what_a_sequence_is(element: ElementKind) -> None:
    """Whatever the batch and the number of queries: the same variant and configuration."""
    found = set()
    for batch, rows in ((1, 1), (1, 64), (7, 300), (64, 2048)):
        shapes = {"q_shape": (batch, 8, rows, 128), "k_shape": (batch, 2, 2048, 128), "v_shape": (batch, 2, 2048, 128)}
        desc = bp.AttentionDescriptor(**shapes, element=element, causal=True)
        plan = bp.AttentionPlan.select(desc, bp.PlanPreference(batch_invariant=True), device="h200")
        assert plan.precision_guarantee.batch_invariant
        found.add((plan.sku.variant, str(plan.sku.config)))
    assert len(found) == 1


def test_starts_of_sequences_are_never_followed_outside() -> None:
    """Beyond the tensor, negative, decreasing: no fault, and what is inside is right."""
    given = {n: rng.standard_normal((t, 2, 32)).astype(np.float32) for n, t in (("q", 20), ("k", 25), ("v", 25))}
    starts = {"cu_seqlens_q": np.array([0, 12, 999], np.int32), "cu_seqlens_k": np.array([-7, 9, 999], np.int32)}
    got = bp.attention(**given, **starts, layout="THD", device="ptx")
    starts = {"cu_seqlens_q": np.array([0, 12, 20], np.int32), "cu_seqlens_k": np.array([0, 9, 25], np.int32)}
    assert np.allclose(got, bp.attention(**given, **starts, layout="THD", device="cpu"), atol=1e-5)
    wrong = np.array([20, 5, -3], np.int32)
    bp.attention(**given, cu_seqlens_q=wrong, cu_seqlens_k=wrong, layout="THD", device="ptx")


def test_more_than_kernels_count_is_refused() -> None:
    many = dict.fromkeys(("q_shape", "k_shape", "v_shape"), (1 << 16, 1 << 16, 1, 16))
    starts = dict.fromkeys(("cu_seqlens_q_shape", "cu_seqlens_k_shape"), (1 << 33,))
    ragged = dict.fromkeys(("q_shape", "k_shape", "v_shape"), (5, 2, 16))
    with pytest.raises(bp.UnsupportedError, match="CTAs"):
        bp.AttentionPlan.select(bp.AttentionDescriptor(**many, element=F16), device="h100")
    with pytest.raises(bp.InvalidProblemError, match="cu_seqlens_q has shape"):
        bp.AttentionPlan.select(bp.AttentionDescriptor(**ragged, **starts, order="THD", element=F16), device="h100")
    pages = dict.fromkeys(("k_pages_shape", "v_pages_shape"), (1 << 33, 16, 2, 64))
    with pytest.raises(bp.InvalidProblemError, match="k_pages has shape"):
        bp.PagedAttentionPlan.select(
            bp.PagedAttentionDescriptor(q_shape=(1, 1, 2, 64), page_table_shape=(1, 9), **pages, element=F16),
            device="h100",
        )


def test_tokens_of_no_sequence_are_no_work() -> None:
    q, starts = np.zeros((3, 2, 8), np.float16), np.zeros(1, np.int32)
    out = np.full_like(q, 7)
    bp.attention(q, q, q, cu_seqlens_q=starts, cu_seqlens_k=starts, layout="THD", out=out, device="ptx")
    assert (out == 7).all()


@pytest.mark.parametrize("window", [(127, 0), (63, 5), (1000, None), (0, 0)])
@pytest.mark.parametrize("tile", [(64, 64), (128, 32)])
def test_tiles_of_a_window_are_counted(window: tuple[int, int | None], tile: tuple[int, int]) -> None:
    """Tiles that hold some score that counts, one by one."""
    rows, keys = 700, 900
    shapes = {"q_shape": (1, 3, rows, 64), "k_shape": (1, 1, keys, 64), "v_shape": (1, 1, keys, 64)}
    sides = tuple(-1 if n is None else n for n in window)
    desc = bp.AttentionDescriptor(**shapes, element=BF16, window=sides)
    distance = np.arange(keys)[None] - np.arange(rows)[:, None] - (keys - rows)
    seen = (distance >= -window[0]) & (distance <= (keys if window[1] is None else window[1]))
    padded = np.zeros((-(-rows // tile[0]) * tile[0], -(-keys // tile[1]) * tile[1]), bool)
    padded[:rows, :keys] = seen
    blocks = padded.reshape(-1, tile[0], padded.shape[1] // tile[1], tile[1]).any(axis=(1, 3))
    assert desc.tiles(*tile) == pytest.approx(3 * blocks.sum())


def test_new_numbers_are_no_new_plan() -> None:
    given = small()
    for numbers in (
        {"softcap": 3.0, "offset": 2},
        {"softcap": 30.0, "offset": -5},
        {"softcap": 1.0, "offset": 0, "scale": 0.5},
    ):
        got = bp.attention(**given, causal=True, **numbers, device="ptx")
        assert np.allclose(got, bp.attention(**given, causal=True, **numbers, device="cpu"), atol=1e-5)
    one, other = (bp.AttentionDescriptor.of(**given, softcap=c).canonical() for c in (2.0, 3.0))
    assert one == other


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"q": np.zeros((1, 3, 4, 16), np.float32)}, "heads|sequences"),
    ({"q": np.zeros((1, 2, 4, 8), np.float32)}, "head dim"),
    ({"q": np.zeros((2, 2, 4, 16), np.float32)}, "sequences"),
    ({"q": np.zeros((4, 16), np.float32)}, "rank"),
    ({"k": np.zeros((1, 2, 30, 16), np.float16)}, "k"),
    ({"v": np.zeros((1, 2, 31, 16), np.float32)}, "k has shape"),
    ({"scale": float("inf")}, "scale"),
    ({"scale": float("nan")}, "scale"),
    ({"scale": -1e300}, "scale"),
    ({"softcap": 1e-50}, "softcap"),
    ({"softcap": 0.0}, "softcap"),
    ({"softcap": float("nan")}, "softcap"),
    ({"offset": 0.5}, "offset"),
    ({"window": (1, 2, 3)}, "window"),
    ({"window": (-2, 0)}, "window"),
    ({"window": 5}, "window"),
    ({"causal": "yes"}, "causal"),
    ({"layout": "SBHD"}, "order"),
    ({"math": "bf16"}, "math"),
    ({"mask": np.zeros((20, 31), np.float32)}, "mask"),
    ({"mask": np.zeros((20, 30), np.float64)}, "mask"),
    ({"block_mask": np.ones((1, 1, 2, 2), bool)}, "block_size"),
    ({"block_mask": np.ones((1, 1, 2, 3), bool), "block_size": (16, 16)}, "block_mask"),
    ({"block_size": (16, 16)}, "block_mask"),
    ({"alibi_slopes": np.zeros(3, np.float32)}, "alibi_slopes"),
    ({"alibi_slopes": np.zeros(2, np.float16)}, "alibi_slopes"),
    ({"sinks": np.zeros(1, np.float32)}, "sinks"),
    ({"sinks": np.zeros(2, np.float16)}, "sinks"),
    ({"cu_seqlens_q": np.zeros(2, np.int32)}, "cu_seqlens"),
    ({"max_seqlen_q": 5}, "max_seqlen_q"),
    ({"lse": np.zeros((1, 2, 21), np.float32)}, "lse"),
    ({"lse": np.zeros((1, 2, 20), np.float64)}, "lse"),
    ({"out": np.zeros((1, 2, 20, 16), np.float16)}, "out"),
    ({"out": np.zeros((1, 2, 20, 15), np.float32)}, "out"),
]


@pytest.mark.parametrize(("given", "says"), REFUSED, ids=[f"{i}-{says}" for i, (_, says) in enumerate(REFUSED)])
def test_what_is_refused(given: dict[str, Any], says: str) -> None:
    operands = {"q": np.zeros((1, 2, 20, 16), np.float32), "k": np.zeros((1, 2, 30, 16), np.float32)}
    operands["v"] = np.zeros((1, 2, 30, 16), np.float32)
    with pytest.raises((bp.InvalidProblemError, bp.OperandTypeError, bp.UnsupportedError), match=says):
        bp.attention(**{**operands, **given}, device="cpu")


def test_ragged_sequences_are_refused_with_what_cannot_go_along() -> None:
    x, starts = np.zeros((9, 2, 16), np.float32), np.array([0, 9], np.int32)
    given = {"q": x, "k": x, "v": x, "cu_seqlens_q": starts, "cu_seqlens_k": starts, "layout": "THD"}
    for wrong, says in (
        ({"mask": np.zeros((9, 9), np.float32)}, "leave out mask"),
        ({"block_mask": np.ones((1, 1, 1, 1), bool), "block_size": (16, 16)}, "leave out block_mask"),
        ({"cu_seqlens_k": None}, "cu_seqlens_k is missing"),
        ({"cu_seqlens_k": np.array([0, 4, 9], np.int32)}, "cu_seqlens_k has shape"),
        ({"cu_seqlens_k": np.array([0, 9], np.int64)}, "cu_seqlens_k"),
        ({"layout": "BSHD"}, "rank|cu_seqlens"),
    ):
        with pytest.raises((bp.InvalidProblemError, bp.OperandTypeError), match=says):
            bp.attention(**{**given, **wrong}, device="cpu")
