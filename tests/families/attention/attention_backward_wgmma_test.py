"""wgmma and wgmma_fast, gradients of attention by Hopper's warpgroup products: bounds, bits, tails, and what is refused."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.ops.attention._backward import flash as _backward_flash
from baracuda_py.ops.attention.backward import forward
from baracuda_py.ops.attention.samples import backward as samples
from baracuda_py.ops.attention.samples.forward import qkv
from baracuda_py.samples.sample import values
from baracuda_py.types import ElementKind, PlanPreference

from .attention_backward_test import bits, plan_of, within_bounds

COVERS = ("attention_backward",)
BF16, F16 = ElementKind.BF16, ElementKind.F16
NAMES = ("grad_q", "grad_k", "grad_v")
rng = np.random.default_rng(23)
saved = partial(samples.saved, forward)
Array = np.ndarray[Any, Any]


def problem(d: int, rows: int, keys: int, heads: tuple[int, int] = (1, 1), element: ElementKind = BF16,
            layout: str = "BHSD", batch: int = 1, **options: Any) -> dict[str, Array]:  # fmt: skip
    options |= {} if layout == "BHSD" else {"layout": layout}
    return saved(rng, qkv(rng, element, batch, heads, rows, keys, d, layout=layout), options)


def same(one: Any, other: Any, names: tuple[str, ...] = NAMES) -> bool:
    return all(np.array_equal(bits(getattr(one, n)), bits(getattr(other, n))) for n in names)


@pytest.mark.parametrize("variant", ["wgmma", "wgmma_fast"])
@pytest.mark.parametrize(
    ("d", "rows", "keys", "heads", "options"),
    [
        (128, 140, 150, (2, 1), {"causal": True}), (64, 140, 150, (2, 1), {"causal": True}),
        (128, 130, 270, (1, 1), {"window": (50, 5)}), (64, 200, 270, (1, 1), {"window": (50, 5)}),
        (96, 70, 129, (1, 1), {"element": F16, "scale": -0.2}), (40, 65, 127, (2, 2), {"element": F16, "batch": 2}),
        (128, 70, 33, (1, 1), {"causal": True}), (64, 1, 1, (1, 1), {}),
        (64, 150, 140, (2, 2), {"layout": "BSHD", "window": (None, 3)}), (128, 33, 300, (1, 1), {"causal": True, "offset": 90}),
    ],
)  # fmt: skip
def test_the_bound_holds(
    d: int, rows: int, keys: int, heads: tuple[int, int], options: dict[str, Any], variant: str
) -> None:
    given = problem(d, rows, keys, heads, **options)
    said = {name: x for name, x in options.items() if name not in ("element", "batch")}
    within_bounds(plan_of(given, variant, **said), given)


def _alibi(heads: int, rows: int, keys: int) -> dict[str, Array]:  # noqa: ARG001
    return {"alibi_slopes": np.linspace(0.5, 0.03, heads).astype(np.float32)}


def _half(heads: int, rows: int, keys: int) -> dict[str, Array]:
    """Rows of 16 aligned bytes where the number of keys is a multiple of 16, one of them of no key at all."""
    mask = rng.random((1, heads, rows, keys)) < 0.5
    mask[:, :, rows // 2] = False
    return {"mask": mask}


def _of_keys(heads: int, rows: int, keys: int) -> dict[str, Array]:  # noqa: ARG001
    return {"mask": np.broadcast_to(rng.random((1, 1, 1, keys)) < 0.5, (1, 1, rows, keys))}


def _of_queries(heads: int, rows: int, keys: int) -> dict[str, Array]:  # noqa: ARG001
    return {"mask": np.broadcast_to(rng.random((1, 1, rows, 1)) < 0.5, (1, 1, rows, keys))}


def _of_spaced_queries(heads: int, rows: int, keys: int) -> dict[str, Array]:  # noqa: ARG001
    """An entry per query, each at an aligned address: 16 bytes from there on are no 16 keys."""
    return {"mask": np.broadcast_to((rng.random((1, 1, rows, 16)) < 0.5)[..., :1], (1, 1, rows, keys))}


@pytest.mark.parametrize(
    ("d", "change", "rows", "keys", "options"),
    [
        (128, None, 140, 150, {"softcap": 2.0, "causal": True}), (64, None, 70, 129, {"softcap": 30.0, "scale": -0.4}),
        (64, _alibi, 140, 150, {"causal": True}), (128, _alibi, 70, 270, {"window": (90, 7), "softcap": 3.0}),
        (128, _half, 70, 272, {}), (64, _half, 70, 141, {"causal": True, "softcap": 3.0}),
        (64, _half, 33, 256, {"causal": True, "offset": 200}), (128, _of_keys, 70, 144, {"causal": True}),
        (64, _of_queries, 70, 150, {}), (64, _of_spaced_queries, 20, 40, {}),
    ],
)  # fmt: skip
def test_changed_scores(d: int, change: Any, rows: int, keys: int, options: dict[str, Any]) -> None:
    """Softcap, ALiBi and bool masks: the bound, and the same bits in any order of warps and of additions to grad_q."""
    operands = qkv(rng, BF16, 1, (2, 1), rows, keys, d) | (change(2, rows, keys) if change else {})
    given = saved(rng, operands, options)
    first = within_bounds(plan_of(given, "wgmma", **options), given)
    with bp.emulation(order="random", seed=2, copies="random"):
        assert same(plan_of(given, "wgmma_fast", **options).run(**given), first, NAMES[1:])


@pytest.mark.parametrize(("d", "options"), [(128, {"causal": True}), (64, {"softcap": 3.0, "window": (40, 9)})])
def test_ragged_sequences(d: int, options: dict[str, Any]) -> None:
    """None, one, and more than a tile of rows. What a sequence gives depends on no other: all but it are NaN in turn, as
    the rows ahead of the first sequence and behind the last are always."""
    counts = {"q": (7, 0, 130, 1), "k": (30, 5, 129, 200)}
    starts = {f"cu_seqlens_{n}": np.cumsum([3, *rows]).astype(np.int32) for n, rows in counts.items()}
    totals = {n: int(starts[f"cu_seqlens_{'q' if n == 'q' else 'k'}"][-1]) + 4 for n in "qkv"}
    operands = {n: values(rng, (rows, 2 if n == "q" else 1, d), BF16, 1.0) for n, rows in totals.items()}
    given = saved(rng, operands | starts, {**options, "layout": "THD"})
    for name in ("grad", "q", "k", "v", "out"):
        given[name][:3], given[name][-4:] = np.nan, np.nan
    whole = plan_of(given, "wgmma", **options, layout="THD").run(**given)
    for at in (1, 2, 3):
        rows, keys = (slice(*starts[f"cu_seqlens_{n}"][at : at + 2]) for n in "qk")
        parts = {"grad": rows, "q": rows, "out": rows, "k": keys, "v": keys}
        if at == 2:
            alone = {**given} | {n: np.full_like(given[n], np.nan) for n in parts}
            for name, part in parts.items():
                alone[name][part] = given[name][part]
            got = plan_of(alone, "wgmma", **options, layout="THD").run(**alone)
            assert all(
                np.array_equal(bits(getattr(got, n)[parts[n[5:]]]), bits(getattr(whole, n)[parts[n[5:]]]))
                for n in NAMES
            )
        found = {n: getattr(whole, n)[parts[n[5:]]][None].swapaxes(1, 2) for n in NAMES}
        if rows.start == rows.stop:
            assert not any(np.float64(found[n]).any() for n in NAMES)
            continue
        one = {n: given[n][None, part].swapaxes(1, 2) for n, part in parts.items()} | {
            "lse": given["lse"][None, :, rows]
        }
        plan = plan_of(one, "wgmma", **options)
        for name, exact in zip(NAMES, plan.reference(plan.desc, **one)):
            held, measures = plan.precision_guarantee.of(name), plan.measured(output=name)
            held.check(found[name], np.asarray(exact), one, measures=measures)


@pytest.mark.parametrize("slices", [1, 2])
@pytest.mark.parametrize("d", [64, 128])
def test_rounds_of_a_cta(d: int, slices: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """More blocks of keys than CTAs, the last of them short, where not every block visits all queries: within the bound, the
    same bits in every order of warps, CTAs and copies, and with sums in any order but for grad_q."""
    monkeypatch.setattr(_backward_flash, "MOST_SLICES", slices)
    options: dict[str, Any] = {"causal": True, "window": (150, 0)}
    given = problem(d, 200, 400, (2, 1), **options)
    plan = plan_of(given, "wgmma", **options)
    assert plan.selection.launches[1].grid == (slices, 1, 1)
    first = within_bounds(plan, given)
    with bp.emulation(order="random", seed=1, copies="random"):
        assert same(plan.run(**given), first)
    assert same(plan_of(given, "wgmma_fast", **options).run(**given), first, NAMES[1:])


@pytest.mark.parametrize("d", [64, 128])
def test_whole_numbers_are_exact(d: int) -> None:
    """Scores of 0 and lse of 0: weights are 1, and products and sums of small integers are exact."""
    given = problem(d, 70, 140, (2, 1), F16)
    for name in ("grad", "q", "k", "v"):
        given[name] = rng.integers(-1, 2, given[name].shape).astype(np.float16)
    given["out"][...], given["lse"][...] = 0, 0
    grad, v = np.float64(given["grad"])[0], np.float64(given["v"])[0, 0]
    of_weights = grad @ v.T
    for zeros, name, wanted in (
        ("q", "grad_q", of_weights @ np.float64(given["k"])[0, 0]),
        ("k", "grad_k", (of_weights.swapaxes(1, 2) @ np.float64(given["q"])[0]).sum(0, keepdims=True)),
    ):
        one = {**given, zeros: np.zeros_like(given[zeros])}
        got = plan_of(one, "wgmma", scale=1.0).run(**one)
        assert np.array_equal(getattr(got, name)[0], wanted.astype(np.float16))
        assert np.array_equal(got.grad_v[0, 0], grad.sum((0, 1)) + np.zeros((140, 1)))


@pytest.mark.parametrize("d", [64, 128])
def test_uninitialized_tail_of_a_cache_is_not_met(d: int) -> None:
    """Keys and values behind the last that any query sees, in the same block and in others: NaN in the place of zeros."""
    options: dict[str, Any] = {"causal": True, "offset": 47}
    given, found = problem(d, 70, 333, **options), []
    for filler in (0.0, np.nan):
        for name in ("k", "v"):
            given[name][:, :, 117:] = filler
        found.append(plan_of(given, "wgmma", **options).run(**given))
    assert same(*found) and not np.float64(found[1].grad_k[:, :, 117:]).any()
    assert np.isfinite(np.float64(found[1].grad_q)).all()


def test_weights_are_held_to_one() -> None:
    """With an lse that is too small, as rounding makes it where scores are large."""
    given = problem(64, 40, 70)
    given["lse"] -= 4.0
    within_bounds(plan_of(given, "wgmma"), given)


def test_heads_that_share_memory_are_stepped_once() -> None:
    """Keys and values that are broadcast over sequences and heads, as by expand, are read where they are."""
    given = problem(64, 40, 70, (2, 2), batch=2)
    for name in ("k", "v"):
        given[name] = np.broadcast_to(given[name][:1, :1], given[name].shape)
    copies = {n: np.ascontiguousarray(x) for n, x in given.items()}
    assert same(*(plan_of(x, "wgmma").run(**x) for x in (given, copies)))


def test_what_it_lacks_is_named() -> None:
    shapes: dict[str, Any] = {
        "q_shape": (1, 2, 40, 64), "k_shape": (1, 2, 50, 64), "v_shape": (1, 2, 50, 64), "element": BF16,
    }  # fmt: skip
    wide = {name: (1, 2, shapes[name][2], 136) for name in ("q_shape", "k_shape", "v_shape")}
    mask = {"mask_shape": (1, 1, 40, 50), "mask_element": ElementKind.BOOL}
    cases: tuple[tuple[dict[str, Any], str, str], ...] = (
        ({"mask_shape": (1, 1, 40, 50), "mask_element": BF16}, "h200", "nor masks that are added"),
        ({"block_mask_shape": (1, 1, 1, 1), "block_size": (64, 64)}, "h200", "neither block masks"),
        ({**mask, "alibi_slopes_shape": (2,)}, "h200", "ALiBi and a mask take at once"),
        (wide, "h200", "head dims are 136 and 136, and tiles hold 128"),
        ({"element": ElementKind.F32}, "h200", "q holds f32"),
        ({"k_strides": (0, 3200, 0, 1)}, "h200", "TMA does not step k's rows"),
        ({}, "sm_80", "sm_90a only"),
    )
    for fields, device, said in cases:
        desc = bp.AttentionBackwardDescriptor(**{**shapes, **fields})
        with pytest.raises(bp.UnsupportedError, match=said):
            bp.AttentionBackwardPlan.select(desc, PlanPreference(variant="wgmma"), device=device)


@pytest.mark.parametrize(("deterministic", "variant"), [(True, "wgmma"), (False, "wgmma_fast")])
def test_prompts_select_it_on_an_h200(deterministic: bool, variant: str) -> None:
    shape = (4, 16, 4096, 128)
    desc = bp.AttentionBackwardDescriptor(shape, shape, shape, BF16, causal=True)
    chosen = bp.AttentionBackwardPlan.select(desc, PlanPreference(deterministic=deterministic), device="h200")
    assert chosen.sku.variant == variant
