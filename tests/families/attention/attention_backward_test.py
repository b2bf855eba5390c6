"""The gradients of attention: those of PyTorch, identities, what a bound must notice, and what is refused."""

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
from baracuda_py.types import DeviceSpec, ElementKind, PlanPreference

from .backward import scores

saved = partial(samples.saved, forward)

rng = np.random.default_rng(12)
BF16, F16, F32, F64 = ElementKind.BF16, ElementKind.F16, ElementKind.F32, ElementKind.F64
Array = np.ndarray[Any, Any]


def problem(
    rows: int = 20,
    keys: int = 30,
    element: ElementKind = F32,
    d: int = 16,
    heads: tuple[int, int] = (2, 1),
    **options: Any,
) -> dict[str, Array]:
    return saved(rng, qkv(rng, element, 1, heads, rows, keys, d), options)


def bits(x: Array) -> Array:
    return x.view(f"u{x.dtype.itemsize}")


@pytest.mark.parametrize("device", ["cpu", "ptx"])
@pytest.mark.parametrize("options", [{}, {"causal": True, "softcap": 2.0, "window": (9, 4), "scale": 0.7}], ids=str)
def test_the_gradients_of_a_whole_attention(options: dict[str, Any], device: str) -> None:
    """Forward and backward in f64 against automatic differentiation of the softmax itself."""
    torch = pytest.importorskip("torch")
    given = qkv(rng, F64, 1, (2, 2), 21, 27, 12)
    made = bp.attention(**given, **options, return_lse=True, device=device)
    grad = rng.standard_normal(made.out.shape)
    got = bp.attention_backward(grad, **given, out=made.out, lse=made.lse, **options, device=device)
    leaves = {n: torch.tensor(x[0], requires_grad=True) for n, x in given.items()}
    for h in range(2):
        p = torch.softmax(scores(leaves["q"][h], leaves["k"][h], 0, h, given, options), 1)
        ((p @ leaves["v"][h]) * torch.tensor(grad[0, h])).sum().backward()
    for name, one in zip(("grad_q", "grad_k", "grad_v"), got):
        assert np.allclose(one[0], leaves[name[-1]].grad.numpy(), rtol=1e-10, atol=1e-12), name


@pytest.mark.parametrize("device", ["cpu", "ptx"])
@pytest.mark.parametrize("element", [F16, BF16, F32])
def test_equal_weights_spread_the_gradient_evenly(element: ElementKind, device: str) -> None:
    """Queries of zeros over 64 keys: grad_v is the mean of grad's whole numbers, grad_k is 0."""
    given = problem(32, 64, element, 64)
    given["q"][...] = 0
    given["grad"] = rng.integers(-4, 5, given["grad"].shape).astype(element.dtype)
    given["lse"][...] = np.float32(np.log(64))
    got = bp.attention_backward(**given, device=device)
    assert not np.float64(got.grad_k).any()
    wanted = np.float64(given["grad"]).sum(axis=(1, 2)) / 64  # over both heads, which share keys
    assert np.allclose(np.float64(got.grad_v)[0, 0], wanted[0], rtol=2.0**-7, atol=1e-6)


@pytest.mark.parametrize("element", [F16, BF16, F32])
@pytest.mark.parametrize("lost", ["keys", "queries"])
@pytest.mark.parametrize("length", [256, 1024])
def test_the_bound_notices_a_lost_block(element: ElementKind, lost: str, length: int) -> None:
    """The last 32 keys left out of grad_q, the last 32 queries out of grad_k and grad_v."""
    given = problem(length, length, element, 64, (1, 1))
    plan = bp.AttentionBackwardPlan.select(bp.AttentionBackwardDescriptor.of(**given), device="ptx")
    left = ("k", "v") if lost == "keys" else ("q", "grad", "out", "lse")
    fewer = {n: x[:, :, :-32] if n in left else x for n, x in given.items()}
    wide = plan.reference(plan.desc, **given)
    less = plan.reference(bp.AttentionBackwardDescriptor.of(**fewer), **fewer)
    for at, name in enumerate(("grad_q", "grad_k", "grad_v")):
        if (name == "grad_q") != (lost == "keys"):
            continue
        held, measures = plan.precision_guarantee.of(name), plan.measured(output=name)
        exact = np.asarray(wide[at])
        held.check(exact.astype(element.dtype), exact, given, measures=measures)
        with pytest.raises(AssertionError, match="break"):
            held.check(np.asarray(less[at]).astype(element.dtype), exact, given, measures=measures)


def plan_of(given: dict[str, Array], variant: str, **options: Any) -> Any:
    desc = bp.AttentionBackwardDescriptor.of(**given, **options)
    return bp.AttentionBackwardPlan.select(desc, PlanPreference(variant=variant, deterministic=False), device="ptx")


def test_what_each_variant_promises() -> None:
    given = problem(200, 300, BF16, 64)
    fast, ordered, simt = (plan_of(given, variant) for variant in ("fast", "deterministic", "simt"))
    assert not fast.deterministic and ordered.deterministic and simt.deterministic
    assert not fast.precision_guarantee.of("grad_q").deterministic
    assert fast.precision_guarantee.of("grad_k").deterministic and ordered.precision_guarantee.deterministic
    chosen = bp.AttentionBackwardPlan.select(fast.desc, device="ptx")
    assert chosen.deterministic and chosen.sku.variant == "wgmma"


@pytest.mark.parametrize(
    ("d", "causal", "group", "chosen"),
    [(128, True, 4, "wgmma_fast"), (64, False, 4, "wgmma_fast"), (256, True, 1, "fast"), (256, False, 1, "fast")],
)
def test_which_is_faster(d: int, causal: bool, group: int, chosen: str) -> None:
    """As measured on an H200, at 4096 tokens."""
    shape, of_keys = (4, 2048 // d, 4096, d), (4, 2048 // d // group, 4096, d)
    desc = bp.AttentionBackwardDescriptor(shape, of_keys, of_keys, ElementKind.BF16, causal=causal)
    assert (
        bp.AttentionBackwardPlan.select(desc, PlanPreference(deterministic=False), device="h200").sku.variant == chosen
    )


def plan_with(given: dict[str, Array], variant: str, monkeypatch: pytest.MonkeyPatch, size: Any, **options: Any) -> Any:
    """A plan whose configuration is of `size` (a row of the menu)."""
    for key in _backward_flash.MENU:
        monkeypatch.setitem(_backward_flash.MENU, key, (size,))
    return plan_of(given, variant, **options)


def within_bounds(plan: Any, given: dict[str, Array]) -> Any:
    """The result, checked."""
    got, wide = plan.run(**given), plan.reference(plan.desc, **given)
    for name, one, exact in zip(("grad_q", "grad_k", "grad_v"), got, wide):
        plan.precision_guarantee.of(name).check(one, exact, given, measures=plan.measured(output=name))
    return got


SMALL = (64, 64, 32, 4, 1, 0, 2, 2)


@pytest.mark.parametrize("slices", [1, 2])
def test_the_order_of_slices_is_fixed(slices: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer slices than blocks of keys, and as many, causal and with a window, where not every block of keys visits all queries:
    within the bound, the same bits in every order of warps and CTAs."""
    monkeypatch.setattr(_backward_flash, "MOST_SLICES", slices)
    options: dict[str, Any] = {"causal": True, "window": (70, 0)} if slices == 2 else {}
    given = problem(70, 200, F16, 32, (1, 1), **options)
    plan = plan_with(given, "deterministic", monkeypatch, SMALL, **options)
    first = within_bounds(plan, given)
    with bp.emulation(order="random", seed=1, copies="random"):
        assert all(np.array_equal(bits(a), bits(b)) for a, b in zip(plan.run(**given), first))


@pytest.mark.parametrize("slices", [1, 2])
@pytest.mark.parametrize(
    ("heads", "options"),
    [((1, 1), {}), ((2, 1), {"causal": True, "window": (70, 0)}), ((1, 1), {"window": (90, 30)})],
    ids=str,
)
def test_blocks_of_keys_add_in_turn(
    slices: int, heads: tuple[int, int], options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four blocks of keys and fewer slices: within the bound, the same bits in every order of warps and CTAs."""
    monkeypatch.setattr(_backward_flash, "MOST_SLICES", slices)
    monkeypatch.setattr(_backward_flash.FlashBackward, "_adds_in_order", lambda self, *_: self.ordered)
    given = problem(130, 200, F16, 32, heads, **options)
    plan = plan_with(given, "deterministic", monkeypatch, SMALL, **options)
    assert plan.selection.launches[1].grid == (4, 1, 1)
    first = within_bounds(plan, given)
    with bp.emulation(order="random", seed=1, copies="random"):
        assert all(np.array_equal(bits(a), bits(b)) for a, b in zip(plan.run(**given), first))


@pytest.mark.parametrize("section", [1, 2, 3])
def test_causal_heads_are_interleaved(section: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Five heads of keys in sections, of which the last is shorter, and blocks of keys that differ in what they see."""
    monkeypatch.setattr(_backward_flash.FlashBackward, "_section", lambda *_: section)
    given = problem(70, 200, F16, 32, (5, 5), causal=True)
    within_bounds(plan_with(given, "fast", monkeypatch, SMALL, causal=True), given)


def test_how_many_heads_are_interleaved() -> None:
    """About as many as keep the device busy twice, under causal and where CTAs do not wait for each other."""
    shape, of_keys = (4, 16, 4096, 128), (4, 4, 4096, 128)
    for causal, ordered, most in ((True, False, 8), (False, False, 1), (True, True, 1)):
        desc = bp.AttentionBackwardDescriptor(shape, of_keys, of_keys, BF16, causal=causal)
        config = _backward_flash.FlashBackwardConfig(*_backward_flash.MENU[128, False][0], (128, 128))
        candidate = _backward_flash.FlashBackward("", ordered=ordered)
        assert candidate._section(desc, DeviceSpec.named("h200"), config, 32) == most


@pytest.mark.parametrize("specialized", [1, 2])
@pytest.mark.parametrize("stages", [1, 2])
def test_warps_that_share_keys_do_different_things(
    specialized: int, stages: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = problem(70, 80, BF16, 64, (1, 1), causal=True)
    plan = plan_with(given, "fast", monkeypatch, (64, 64, 32, 8, 2, specialized, stages, 1), causal=True)
    within_bounds(plan, given)


def visitors(tile: int, rows: int, keys: int, offset: int, left: int, right: int) -> list[int]:
    """Blocks of 32 keys that go through tile `tile` of 64 queries, as kernels find their queries (rows_of)."""

    def rows_of(j: int) -> tuple[int, int]:
        return max(min(j - offset - right, rows), 0), max(min(j - offset + left + 1, rows), 0)

    ends = [(rows_of(j)[0], rows_of(min(j + 32, keys) - 1)[1]) for j in range(0, keys, 32)]
    return [block for block, (begin, end) in enumerate(ends) if begin // 64 <= tile < -(-end // 64)]


@pytest.mark.parametrize("rows", [1, 64, 130, 200])
@pytest.mark.parametrize("keys", [1, 63, 128, 333])
def test_which_blocks_of_keys_visit_a_tile(rows: int, keys: int) -> None:
    """The formula that kernels know a tile's first visitor by (Visitors::of)."""
    far, blocks = 1 << 40, -(-keys // 32)
    for left, right in ((far, far), (far, 0), (50, 0), (0, 30), (3, -1)):
        for offset in (keys - rows, 0, -100, 150, -(1 << 33)):
            first, end = (max(min(x, 1 << 30), -(1 << 30)) for x in (offset - left, offset + right + 1))
            for tile in range(-(-rows // 64)):
                seen, past = tile * 64 + first, (tile + 1) * 64 + end - 1
                begin = blocks if seen >= keys else max(seen, 0) // 32
                stop = blocks if (tile + 1) * 64 > rows else min(-(-max(past, 0) // 32), blocks)
                assert list(range(begin, stop)) == visitors(tile, rows, keys, offset, left, right)


def test_grad_k_and_grad_v_do_not_depend_on_the_order_of_sums() -> None:
    given = problem(40, 140, BF16, 64)
    one, other = (plan_of(given, variant).run(**given) for variant in ("fast", "deterministic"))
    assert np.array_equal(bits(one.grad_k), bits(other.grad_k)) and np.array_equal(bits(one.grad_v), bits(other.grad_v))


@pytest.mark.parametrize("variant", ["fast", "deterministic"])
def test_block_mask_skips_blocks_of_longer_sequences(variant: str) -> None:
    """Blocks of whole tiles that are left out; then ragged sequences of 150 where 10 was said."""
    mask = np.zeros((1, 1, 3, 2), bool)
    mask[0, 0, [0, 2], [0, 1]] = True
    options: dict[str, Any] = {"block_size": (64, 128)}
    given = saved(rng, {**qkv(rng, BF16, 1, (1, 1), 180, 250, 64), "block_mask": mask}, options)
    plan = plan_of(given, variant, **options)
    for name, got, exact in zip(("grad_q", "grad_k", "grad_v"), plan.run(**given), plan.reference(plan.desc, **given)):
        plan.precision_guarantee.of(name).check(got, exact, given, measures=plan.measured(output=name))
    assert not np.float64(plan.run(**given).grad_q[:, :, 64:128]).any()

    ragged = {n: rng.standard_normal((200, 1, 64)).astype(BF16.dtype) for n in "qkv"}
    starts = {f"cu_seqlens_{n}": np.array([0, 150, 200], np.int32) for n in "qk"}
    said = {"layout": "THD", "max_seqlen_q": 10, "max_seqlen_k": 10}
    given = saved(rng, {**ragged, **starts}, {"layout": "THD"})
    wanted = bp.attention_backward(**given, layout="THD", device="cpu")
    got = plan_of(given, variant, **said).run(**given)
    assert all(np.allclose(np.float64(a), np.float64(b), atol=0.05) for a, b in zip(got, wanted))


@pytest.mark.parametrize("variant", ["fast", "deterministic", "simt"])
def test_no_sequences(variant: str) -> None:
    q, k, lse = (
        np.zeros((0, 2, 5, 16), np.float16),
        np.zeros((0, 2, 7, 16), np.float16),
        np.zeros((0, 2, 5), np.float32),
    )
    pref = bp.PlanPreference(variant=variant, deterministic=variant != "fast")
    gradients = bp.attention_backward(q, q, k, k, q, lse, device="ptx", pref=pref)
    assert [x.shape for x in gradients] == [q.shape, k.shape, k.shape]


def test_unseen_queries_and_keys_get_zero_gradients() -> None:
    given = problem(20, 30, BF16, 64, causal=True, offset=-10)
    got = bp.attention_backward(**given, causal=True, offset=-10, device="ptx")
    assert not np.float64(got.grad_q[:, :, :10]).any()
    assert np.float64(got.grad_q[:, :, 10:]).any(axis=-1)[:, :, 1:].all()  # but the first, whose one weight is 1
    assert not np.float64(got.grad_k[:, :, 10:]).any() and not np.float64(got.grad_v[:, :, 10:]).any()


def test_starts_of_sequences_are_never_followed_outside() -> None:
    given = {n: rng.standard_normal((t, 2, 32)).astype(np.float32) for n, t in (("q", 20), ("k", 25), ("v", 25))}
    starts = {"cu_seqlens_q": np.array([0, 12, 20], np.int32), "cu_seqlens_k": np.array([0, 9, 25], np.int32)}
    given = saved(rng, {**given, **starts}, {"layout": "THD"})
    wanted = bp.attention_backward(**given, layout="THD", device="cpu")
    given |= {"cu_seqlens_q": np.array([0, 12, 999], np.int32), "cu_seqlens_k": np.array([-7, 9, 999], np.int32)}
    for one, other in zip(bp.attention_backward(**given, layout="THD", device="ptx"), wanted):
        assert np.allclose(one, other, atol=1e-4)
    wrong = np.array([20, 5, -3], np.int32)
    bp.attention_backward(**{**given, "cu_seqlens_q": wrong, "cu_seqlens_k": wrong}, layout="THD", device="ptx")


def test_new_numbers_are_no_new_plan() -> None:
    for numbers in ({"softcap": 3.0, "offset": 12, "scale": 0.5}, {"softcap": 30.0, "offset": 8}):
        given = problem(causal=True, **numbers)
        got = bp.attention_backward(**given, causal=True, **numbers, device="ptx")
        wanted = bp.attention_backward(**given, causal=True, **numbers, device="cpu")
        assert all(np.allclose(a, b, atol=1e-5) for a, b in zip(got, wanted))
    one, other = (bp.AttentionBackwardDescriptor.of(**problem(), softcap=c).canonical() for c in (2.0, 3.0))
    assert one == other


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"grad": np.zeros((1, 2, 20, 15), np.float32)}, "grad"),
    ({"grad": np.zeros((1, 2, 20, 16), np.float16)}, "grad"),
    ({"out": np.zeros((1, 2, 21, 16), np.float32)}, "out"),
    ({"lse": np.zeros((1, 2, 21), np.float32)}, "lse"),
    ({"lse": np.zeros((1, 2, 20), np.float64)}, "lse"),
    ({"lse": None}, "lse"),
    ({"k": np.zeros((1, 1, 30, 8), np.float32)}, "head dim"),
    ({"grad_q": np.zeros((1, 2, 20, 16), np.float64)}, "grad_q"),
    ({"grad_sinks": np.zeros(2, np.float32)}, "sinks"),
    ({"softcap": 0.0}, "softcap"),
    ({"window": (1, 2, 3)}, "window"),
    ({"mask": np.zeros((20, 31), np.float32)}, "mask"),
    (
        {n: np.zeros((1, 0, 20, 16), np.float32) for n in ("grad", "q", "out")}
        | {"lse": np.zeros((1, 0, 20), np.float32)},
        "0 heads",
    ),
    ({"needs": ("mask",)}, "mask"),
    ({"needs": ("alibi_slopes",)}, "alibi_slopes"),
    ({"needs": ("sinks",)}, "needs"),
    ({"needs": ("mask",), "mask": np.zeros((20, 30), bool)}, "bool"),
    (
        {"needs": "mask", "mask": np.zeros((20, 30), np.float32), "grad_mask": np.zeros((20, 30), np.float64)},
        "grad_mask",
    ),
    ({"grad_mask": np.zeros((20, 30), np.float32)}, "mask"),
]


@pytest.mark.parametrize(("wrong", "says"), REFUSED, ids=[f"{i}-{says}" for i, (_, says) in enumerate(REFUSED)])
def test_what_is_refused(wrong: dict[str, Any], says: str) -> None:
    given = {**problem(), **wrong}
    with pytest.raises((bp.InvalidProblemError, bp.OperandTypeError, bp.UnsupportedError), match=says):
        bp.attention_backward(**given, device="cpu")
