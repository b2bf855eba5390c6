"""Attention of e4m3 operands by wgmma: which value a weight multiplies, bits that do not depend on who issues products, tails,
the range of weights, scales, and what is refused."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.ops.attention_fp8.samples import qkv
from baracuda_py.plan.about import tune
from baracuda_py.runtime.gpu.device import spec_of
from baracuda_py.types import ElementKind, PlanPreference

rng = np.random.default_rng(23)
E4M3 = ml_dtypes.float8_e4m3fn
WGMMA = PlanPreference(variant="wgmma")
Array = np.ndarray[Any, Any]


def made(*sizes: Any) -> dict[str, Any]:
    return {**qkv(rng, *sizes)}


def plans_of(desc: bp.AttentionFp8Descriptor) -> list[bp.AttentionFp8Plan]:
    return tune.admissible(bp.AttentionFp8Plan, desc.canonical(), WGMMA, spec_of("ptx"))


def run(given: dict[str, Any], **options: Any) -> Any:
    return bp.attention_fp8(**given, **options, device="ptx", pref=WGMMA)


def same(one: Any, other: Any) -> bool:
    return all(np.asarray(a).tobytes() == np.asarray(b).tobytes() for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize(("d", "d_v"), [(64, 64), (128, 128), (128, 64), (256, 256)])
def test_a_weight_multiplies_its_own_value(d: int, d_v: int) -> None:
    """Query i is key order[i] and scores are steep: the result is that key's value, to the bit, in every column."""
    keys = 256
    k = rng.choice([-1.0, 1.0], (1, 1, keys, d)).astype(E4M3)
    order = rng.permutation(keys)
    v = rng.integers(-8, 9, (1, 1, keys, d_v)).astype(E4M3)
    out = run({"q": k[:, :, order], "k": k, "v": v}, scale=4.0, out_dtype="f32")
    assert np.array_equal(out[0, 0], v[0, 0, order].astype(np.float32))


@pytest.mark.parametrize("d", [64, 128])
def test_configurations_agree_to_the_bit(d: int) -> None:
    """Who takes which tile decides nothing: a row's sums follow its own keys."""
    given = made(1, (2, 1), 140, 260, d)
    plans = plans_of(bp.AttentionFp8Descriptor.of(**given, causal=True, return_lse=True))
    assert len(plans) > 1 and all(plan.precision_guarantee.of("out").batch_invariant for plan in plans)
    first, *others = (plan.run(**given) for plan in plans)
    assert all(same(first, other) for other in others)


def test_a_row_has_the_same_bits_alone() -> None:
    """Of a batch and of one sequence, of a long sequence of queries and of its last ones."""
    given = made(2, (2, 1), 150, 210, 128)

    def part(sequences: Any, rows: slice = slice(None)) -> Any:
        taken = {
            n: np.ascontiguousarray(x[sequences][:, :, rows] if n == "q" else x[sequences]) for n, x in given.items()
        }
        return run(taken, causal=True, return_lse=True)

    whole, alone, last = part(slice(None)), part(slice(1, 2)), part(slice(None), slice(-9, None))
    assert same([x[1:2] for x in whole], alone)
    assert same([x[:, :, -9:] for x in whole], last)


@pytest.mark.parametrize("d", [64, 128, 256])
def test_uninitialized_tail_of_a_cache_is_not_met(d: int) -> None:
    """Keys and values behind the last that any query sees, in the same block and in others: NaN in the place of zeros."""
    given = made(1, (2, 1), 70, 333, d)
    found = []
    for filler in (0.0, np.nan):
        for name in ("k", "v"):
            given[name][:, :, 117:] = filler
        desc = bp.AttentionFp8Descriptor.of(**given, causal=True, offset=47, return_lse=True)
        found.append([plan.run(**given, offset=47) for plan in plans_of(desc)])
    assert all(np.isfinite(out.astype(np.float32)).all() for out, _ in found[1])
    assert all(same(one, other) for one, other in zip(*found, strict=True))


def test_neighbours_of_a_sequence_are_not_met() -> None:
    """Ragged sequences: keys and values of the next one are NaN."""
    starts = np.cumsum([0, 40, 130, 7]).astype(np.int32)
    q, k, v = (rng.standard_normal((n, 2, 128)).astype(E4M3) for n in (177, 400, 400))
    k[40:170] = v[40:170] = np.nan
    ragged: dict[str, Any] = {"q": q, "k": k, "v": v, "cu_seqlens_q": starts, "cu_seqlens_k": starts}
    out, lse = run(ragged, layout="THD", return_lse=True)
    for rows in (slice(0, 40), slice(170, 177)):
        one: dict[str, Any] = {
            n: np.ascontiguousarray(x[rows].swapaxes(0, 1))[None] for n, x in (("q", q), ("k", k), ("v", v))
        }
        assert same([out[rows].swapaxes(0, 1)[None], lse[:, rows][None]], run(one, return_lse=True))


def test_whole_numbers_are_exact() -> None:
    """Queries of zeros: every weight is 2^8, and sums of small integers over 256 keys are exact."""
    given = made(1, (2, 1), 130, 256, 128)
    given["q"][...] = 0
    given["v"] = rng.integers(-4, 5, given["v"].shape).astype(E4M3)
    wanted = given["v"].astype(np.float64).mean(axis=2, keepdims=True).astype(np.float32)
    for plan in plans_of(bp.AttentionFp8Descriptor.of(**given, out_dtype="f32")):
        assert np.array_equal(plan.run(**given), np.broadcast_to(wanted, given["q"].shape))


def test_negative_scores_and_nan() -> None:
    """Bits of negative floats have the reverse order of integers: rows of negative scores, some with a positive one in an
    early block, and rows with a NaN of either sign beside rows without."""
    given = {n: np.zeros((1, 1, m, 64), E4M3) for n, m in (("q", 70), ("k", 500), ("v", 500))}
    given["q"][..., 0], given["q"][0, 0, ::2, 1] = 1.0, 1.0
    given["k"][..., 0] = -rng.uniform(1, 40, 500)
    given["k"][0, 0, 3, 1] = 64.0
    given["v"][0, 0] = rng.standard_normal((500, 64))
    given["q"][0, 0, 5, 2], given["q"][0, 0, 40, 2] = np.nan, -np.nan
    out, lse = run(given, scale=1.0, return_lse=True, out_dtype="f32")
    q, k, v = (given[n][0, 0].astype(np.float64) for n in ("q", "k", "v"))
    whole = np.isfinite(q).all(axis=-1)
    scores = q[whole] @ k.T
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    assert np.allclose(lse[0, 0, whole], np.log(weights.sum(axis=-1)) + scores.max(axis=-1), rtol=1e-5)
    off = np.abs(out[0, 0, whole] - weights @ v / weights.sum(axis=-1, keepdims=True))
    assert (off <= 2.0**-4 * (weights @ np.abs(v)) / weights.sum(axis=-1, keepdims=True)).all()
    assert np.isnan(out[0, 0, ~whole]).all()


@pytest.mark.parametrize("step", [0.02, 0.5, -0.5])
def test_growing_scores_stay_in_the_range_of_weights(step: float) -> None:
    """Scores that grow from key to key by so much: weights keep below 448, sums and values so far are rescaled."""
    keys = 300
    given = {n: np.zeros((1, 1, m, 64), E4M3) for n, m in (("q", 64), ("k", keys), ("v", keys))}
    ramp = np.arange(keys)
    given["q"][..., :3] = 1.0, 16.0, 256.0
    given["k"][0, 0, :, :3] = np.stack([ramp % 16, ramp // 16 % 16, ramp // 256], axis=-1)
    given["v"][0, 0] = rng.standard_normal((keys, 64))
    out, lse = run(given, scale=step, return_lse=True, out_dtype="f32")
    scores = ramp * step
    weights = np.exp(scores - scores.max())
    assert np.allclose(lse, np.log(weights.sum()) + scores.max(), rtol=1e-5)
    wanted = weights @ given["v"][0, 0].astype(np.float64) / weights.sum()
    assert (
        np.abs(out - wanted) <= 2.0**-4 * (weights @ np.abs(given["v"][0, 0].astype(np.float64)) / weights.sum())
    ).all()


def test_weights_far_below_the_highest_count() -> None:
    """One key is 2^12 times as heavy as each of 2047 others, which weigh a third of all: they are normal numbers of e4m3."""
    given = {n: np.zeros((1, 1, m, 64), E4M3) for n, m in (("q", 8), ("k", 2048), ("v", 2048))}
    given["q"][..., 0], given["k"][0, 0, 7, 0] = 1.0, 12.0
    given["v"][..., 1] = 1.0
    given["v"][0, 0, 7, 1] = 0.0
    out = run(given, scale=float(np.log(2)), out_dtype="f32")
    assert np.allclose(out[..., 1], 2047 / (2047 + 4096), rtol=1e-3) and not out[..., 0].any()


def test_far_scores_give_the_value_of_the_highest() -> None:
    """Scores of 2^24 and more, where one unit of f32 is many factors of two."""
    given = made(1, (1, 1), 70, 200, 64)
    out, lse = run(given, scale=3e6, return_lse=True, out_dtype="f32")
    scores = 3e6 * (given["q"].astype(np.float64) @ given["k"].astype(np.float64).swapaxes(-1, -2))
    assert np.isfinite(out).all() and np.allclose(lse, scores.max(axis=-1), rtol=1e-6)
    clear = np.diff(np.sort(scores, axis=-1)[..., -2:])[..., 0] > 1e4
    best = given["v"][0, 0].astype(np.float32)[scores.argmax(axis=-1)]
    assert clear.any() and np.array_equal(out[clear], best[clear])


@pytest.mark.parametrize("device", ["ptx", "ptx:sm_80", "cpu"])
def test_scales_are_multiplied_where_they_belong(device: str) -> None:
    """Scales are powers of two: the same bits as of operands that are multiplied with them."""
    given = made(2, (4, 2), 20, 70, 64)
    scales: dict[str, Any] = {
        n: 2.0 ** rng.integers(-1, 2, (2, h)).astype(np.float32) for n, h in (("q", 4), ("k", 2), ("v", 2))
    }
    multiplied: dict[str, Any] = {
        n: (x.astype(np.float32) * scales[n][..., None, None]).astype(E4M3) for n, x in given.items()
    }
    given = {n: (x.astype(np.float32) / scales[n][..., None, None]).astype(E4M3) for n, x in multiplied.items()}
    multiplied = {n: (x.astype(np.float32) * scales[n][..., None, None]).astype(E4M3) for n, x in given.items()}
    by_head: dict[str, Any] = {f"{n}_scales": x for n, x in scales.items()}
    one = bp.attention_fp8(**given, **by_head, k_scale=2.0, v_scale=0.5, device=device)
    other = bp.attention_fp8(**multiplied, scale=0.25, v_scale=0.5, device=device)
    assert same([one], [other])


@pytest.mark.parametrize("device", ["ptx", "ptx:sm_80", "cpu"])
def test_a_scale_that_is_nan_is_not_lost(device: str) -> None:
    """A head whose keys' scale is NaN has NaN results, and the other head has not."""
    given = made(1, (2, 2), 20, 70, 64)
    out = bp.attention_fp8(**given, k_scales=np.array([np.nan, 1.0], np.float32), device=device).astype(np.float32)
    assert np.isnan(out[0, 0]).all() and np.isfinite(out[0, 1]).all()


def test_new_numbers_are_no_new_plan() -> None:
    given = made(1, (1, 1), 20, 70, 64)
    plan = bp.AttentionFp8Plan.select(bp.AttentionFp8Descriptor.of(**given), WGMMA, device="ptx")
    half, whole = (plan.run(**given, v_scale=v_scale) for v_scale in (0.5, 1.0))
    assert np.array_equal(np.float32(half) * 2, np.float32(whole))


def test_nothing_seen_is_nothing() -> None:
    """Queries that see no key, some of them in a tile with others that do, and a whole tile of them."""
    out, lse = run(made(1, (1, 1), 200, 30, 64), causal=True, return_lse=True)
    assert not out[:, :, :170].any() and np.isneginf(lse[:, :, :170]).all()
    assert out[:, :, 170:].any(axis=-1).all() and np.isfinite(lse[:, :, 170:]).all()


def test_heads_that_share_memory_are_stepped_once() -> None:
    """Keys and values that are broadcast over sequences and heads, as by expand, are read where they are."""
    given = made(2, (2, 2), 40, 70, 64)
    for name in ("k", "v"):
        given[name] = np.broadcast_to(given[name][:1, :1], given[name].shape)
    copies = {n: np.ascontiguousarray(x) for n, x in given.items()}
    assert same(*([run(x)] for x in (given, copies)))


def test_what_it_lacks_is_named() -> None:
    shapes: dict[str, Any] = {
        "q_shape": (1, 2, 40, 64),
        "k_shape": (1, 2, 50, 64),
        "v_shape": (1, 2, 50, 64),
        "element": ElementKind.FP8_E4M3,
    }
    cases: tuple[tuple[dict[str, Any], str, str], ...] = (
        ({"k_strides": (0, 3200, 0, 1)}, "h200", "TMA does not step k's rows"),
        ({"v_shape": (1, 2, 50, 40)}, "h200", "v's head dim"),
        ({"q_align": 8}, "h200", "q's first touched element is aligned to 8 bytes"),
        ({}, "sm_80", "sm_90a only"),
    )
    for fields, device, said in cases:
        desc = bp.AttentionFp8Descriptor(**{**shapes, **fields})
        with pytest.raises(bp.UnsupportedError, match=said):
            bp.AttentionFp8Plan.select(desc, WGMMA, device=device)
        assert bp.AttentionFp8Plan.select(desc, device=device).sku.variant == "simt"


def test_what_is_refused() -> None:
    given = made(1, (4, 2), 20, 30, 64)
    cases: tuple[tuple[dict[str, Any], type[Exception], str], ...] = (
        ({"k_scales": np.ones(4, np.float32)}, bp.InvalidProblemError, r"k_scales has shape \(4,\)"),
        ({"q_scales": np.ones((2, 4), np.float32)}, bp.InvalidProblemError, r"q_scales has shape \(2, 4\)"),
        ({"v_scales": np.ones(2)}, bp.OperandTypeError, "v_scales"),
        ({"k_scale": float("nan")}, bp.InvalidProblemError, "k_scale=nan"),
        ({"v_scale": 1e39}, bp.InvalidProblemError, r"v_scale=1e\+39"),
        ({"out_dtype": "f64"}, bp.OperandTypeError, "f64"),
        ({"q": given["q"].astype(np.float16)}, bp.OperandTypeError, "q"),
        ({"v": given["v"][:, :1]}, bp.InvalidProblemError, "k has shape"),
    )
    for more, error, said in cases:
        with pytest.raises(error, match=said):
            bp.attention_fp8(**(given | more), device="ptx")
