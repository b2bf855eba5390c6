"""int4 weights: every code, group, lane and warp distinguished; there and back; every configuration; what is refused."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.ops.quantized import _staged_tokens
from baracuda_py.ops.quantized.int4 import oracle
from baracuda_py.ops.quantized.int4.samples import weight
from baracuda_py.plan.about.tune import admissible
from baracuda_py.types import DeviceSpec, ElementKind, PlanPreference

from .int4 import code_of, zero_of

rng = np.random.default_rng(4)
Array = np.ndarray[Any, Any]
FOREIGN = ("kaio", "awq", "gptq", "plain")
PTX = DeviceSpec.named("ptx")
F16, BF16 = np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)


def packed(layout: str, k: int, n: int, group: int = 32, **of: Any) -> bp.PackedInt4:
    arrays, options = weight(rng, layout, k, n, group, **of)
    return bp.PackedInt4(**options, **arrays)


def same(a: Any, b: Any) -> None:
    assert (a.layout, a.shape, a.group_size) == (b.layout, b.shape, b.group_size)
    assert a.operands.keys() == b.operands.keys()
    for name, x in a.operands.items():
        assert x.dtype == b.operands[name].dtype, name
        assert np.array_equal(x.view(np.uint8), b.operands[name].view(np.uint8)), name


def plans_of(x: Array, w: bp.PackedInt4, variant: str, **more: Any) -> list[Any]:
    desc = bp.Int4MatmulDescriptor.of(x, **w.operands, shape=w.shape, group_size=w.group_size, layout=w.layout, **more)
    return admissible(bp.Int4MatmulPlan, desc, PlanPreference(variant=variant), PTX)


# ---- layouts -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", ["cpu", "ptx"])
@pytest.mark.parametrize("layout", FOREIGN)
def test_there_and_back_is_the_identity(layout: str, device: str) -> None:
    zeros = layout != "kaio"
    for order in (False, True) if layout == "gptq" else (False,):
        first = packed(layout, 96, 24, zeros=zeros, order=order)
        tiled = bp.repack_int4(first, device=device)
        assert tiled.layout is bp.Int4Layout.TILED
        same(bp.repack_int4(tiled, layout, device=device), first)
        assert np.array_equal(
            bp.dequantize_int4(first, out_dtype="f32", device=device),
            bp.dequantize_int4(tiled, out_dtype="f32", device=device),
        )
        same(
            bp.repack_int4(first, "plain", device=device), bp.repack_int4(tiled, "plain", device=device)
        ) if not order else None


@pytest.mark.parametrize("layout", [*FOREIGN, "tiled"])
def test_each_code_has_a_place_of_its_own(layout: str) -> None:
    """One code that differs changes one nibble, and no two the same one."""
    k, n = 64, 16
    base = oracle.from_codes(layout, np.zeros((k, n), np.uint8)).view(np.uint8)
    seen = set()
    for at in np.ndindex(k, n):
        codes = np.zeros((k, n), np.uint8)
        codes[at] = 15
        changed = oracle.from_codes(layout, codes)
        assert code_of(layout, changed, *at) == 15
        bits = np.unpackbits(changed.view(np.uint8) ^ base)
        assert bits.sum() == 4
        seen.add(int(np.flatnonzero(bits)[0]))
    assert len(seen) == k * n


def test_layouts_of_the_formats_own_documents() -> None:
    """A word written out by hand."""
    row = np.arange(8, dtype=np.uint8)
    assert oracle.from_codes("awq", row[None])[0, 0] == 0x75316420
    assert oracle.from_codes("gptq", row[:, None])[0, 0] == 0x76543210
    assert oracle.from_codes("kaio", row[:, None])[0, 0] == 0x76543210 ^ 0x88888888
    assert zero_of("gptq", np.array([[0x76543210]], np.uint32), 0, 3) == 4


# ---- products: canaries -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [F16, BF16], ids=str)
@pytest.mark.parametrize("m", [3, 16])
def test_unit_tokens_read_single_weights(kind: Any, m: int, everything: bool) -> None:
    """x of one 1 a token picks rows of W, each code and group with a value of its own: results are exact."""
    k, n = 256, 34
    w = packed("tiled", k, n, zeros=True)
    w.scales[:, :n] = 2.0 ** (rng.integers(-3, 4, (k // 32, n)))
    dense = bp.dequantize_int4(w, out_dtype="f32", device="cpu")
    for first in (0, k - m):
        x = np.zeros((m, k), kind)
        x[np.arange(m), first + np.arange(m)] = 1
        for variant in ("gemv", "mma"):
            for plan in plans_of(x, w, variant, out_dtype="f32")[: 1 + 9 * everything]:
                got = plan.run(x=x, **w.operands)
                assert np.array_equal(got, dense[first : first + m]), plan.sku


def test_last_k_of_each_block_warp_and_split_counts() -> None:
    """Sums of ones, exact in f32, of which each part of K has its own weight."""
    k, n = 2048, 18
    w = packed("tiled", k, n, 128)
    w.scales[...] = 1
    w.codes[...] = oracle.from_codes("tiled", np.repeat(rng.integers(0, 16, (k // 8, n)).astype(np.uint8), 8, 0))
    dense = bp.dequantize_int4(w, out_dtype="f32", device="cpu")
    x = np.zeros((2, k), F16)
    x[0], x[1, 7::8] = 1, 1
    wanted = x.astype(np.float32) @ dense
    for variant in ("gemv", "mma"):
        plans = plans_of(x, w, variant, out_dtype="f32")
        assert len({plan.selection.config.split_k for plan in plans}) > 1
        chosen = {plan.selection.config.split_k: plan for plan in reversed(plans)}
        for plan in chosen.values():
            assert np.array_equal(plan.run(x=x, **w.operands), wanted), plan.sku


@pytest.mark.parametrize("variant", ["gemv", "mma"])
def test_staged_tokens_and_parts_of_k_do_not_meet_in_scratch(variant: str) -> None:
    k, n = 2048, 16
    w = packed("tiled", k, n, 128, order=True)
    w.scales[...] = 0.25
    x = rng.integers(-2, 3, (3, k)).astype(F16)
    wanted = x.astype(np.float32) @ bp.dequantize_int4(w, out_dtype="f32", device="cpu")
    plan = next(p for p in plans_of(x, w, variant, out_dtype="f32") if p.selection.config.split_k > 1)
    assert len(plan.kernels) == 3
    assert np.array_equal(plan.run(x=x, **w.operands), wanted)


@pytest.mark.parametrize("variant", ["gemv", "mma"])
def test_rows_of_the_tables(variant: str, everything: bool) -> None:
    """Tiles, each once, in its bound, on ragged extents."""
    seen: set[tuple[int, ...]] = set()
    tokens = (1, 2, 3, 8, 16, 23, 32) if variant == "gemv" else (16, 23, 32, 40, 48, 56, 63, 79)
    for m in tokens if everything else tokens[-2:]:
        x = rng.standard_normal((m, 192)).astype(F16)
        w = packed("tiled", 192, 34, 64, zeros=m % 2 == 1)
        for plan in plans_of(x, w, variant)[-2:] if not everything else plans_of(x, w, variant):
            config = plan.selection.config
            row = (config.tokens, config.strips, config.warps, config.parts, config.share, config.stages)
            if row in seen:
                continue
            seen.add(row)
            given = {"x": x, **w.operands}
            out = plan.run(**given)
            wide = plan.reference(plan.desc, **given)
            plan.precision_guarantee.check(out, np.asarray(wide), given, measures=plan.measured())
    assert len(seen) > (12 if everything else 1)


def test_bound_notices_a_lost_k_block() -> None:
    k, n = 4096, 16
    x = rng.standard_normal((1, k)).astype(F16)
    w = packed("tiled", k, n, 128)
    plan = plans_of(x, w, "gemv", out_dtype="f32")[0]
    given = {"x": x, **w.operands}
    wide = np.asarray(plan.reference(plan.desc, **given))
    lost = x.copy()
    lost[:, 128:256] = 0
    without = np.asarray(plan.reference(plan.desc, **{**given, "x": lost})).astype(np.float32)
    with pytest.raises(AssertionError):
        plan.precision_guarantee.check(without, wide, given, measures=plan.measured())


@pytest.mark.parametrize("variant", ["gemv", "mma"])
def test_a_bound_names_what_bf16_loses_among_subnormals(variant: str) -> None:
    """One product of each column, near the last place of f32: sums are kept at a 64th."""
    k, n = 8, 16
    w = packed("tiled", k, n, 8, scales=ElementKind.BF16)
    w.codes[...] = oracle.from_codes("tiled", np.tile(np.arange(16, dtype=np.uint8), (k, 1)))
    w.scales[...] = 2.0**-126
    x = np.zeros((1, k), BF16)
    x[0, 3] = 2.0**-18
    plan = plans_of(x, w, variant, out_dtype="f32")[0]
    given = {"x": x, **w.operands}
    wide = np.asarray(plan.reference(plan.desc, **given))
    assert np.array_equal(wide[0], (np.arange(16) - 8) * 2.0**-144)
    out = plan.run(**given)
    plan.precision_guarantee.check(out, wide, given, measures=plan.measured())
    with pytest.raises(AssertionError):  # nor is it wider than that
        plan.precision_guarantee.check(np.zeros_like(out), wide, given, measures=plan.measured())


def test_crossovers_are_known() -> None:
    """One token, a few, many: each by its own variant; foreign layouts by dequantising, which says what to do."""
    w = {"n": 8192, "x_element": "bf16"}
    chosen = [
        bp.Int4MatmulPlan.select(bp.Int4MatmulDescriptor((m, 8192), **w), device="h200").sku.variant
        for m in (1, 32, 4096)
    ]
    assert chosen == ["gemv", "mma", "dequantize_matmul"]
    foreign = bp.Int4MatmulDescriptor((1, 8192), **w, packing="gptq")
    assert bp.Int4MatmulPlan.select(foreign, device="h200").sku.variant == "dequantize_matmul"
    with pytest.raises(bp.UnsupportedError, match="repack_int4"):
        bp.Int4MatmulPlan.select(foreign, PlanPreference(variant="gemv"), device="h200")


# ---- projections -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("m", "variant"), [(5, "fused_gemv"), (20, "fused_mma"), (5, "three_products")])
def test_three_projections_are_three_products(m: int, variant: str) -> None:
    """Each of its own weight, width and bias; with sums that are exact, the same bits."""
    weights = [packed("tiled", 128, n, 64, zeros=True) for n in (34, 18, 13)]
    for w in weights:
        w.scales[...] = 0.5
    x = rng.integers(-3, 4, (m, 128)).astype(F16)
    biases = {f"bias_{part}": np.full(w.shape[1], i, np.float16) for i, (part, w) in enumerate(zip("qkv", weights))}
    pref = PlanPreference(variant=variant)
    made = bp.qkv_project_int4(x, *weights, **biases, out_dtype="f32", device="ptx", pref=pref)
    for out, w, bias in zip(made, weights, biases.values()):
        dense = bp.dequantize_int4(w, out_dtype="f32", device="cpu")
        assert np.array_equal(out, x.astype(np.float32) @ dense + bias)


def test_projections_that_differ_are_refused() -> None:
    x, weights = np.zeros((1, 64), F16), [packed("tiled", 64, 16, group) for group in (32, 32, 64)]
    with pytest.raises(bp.InvalidProblemError, match="pack all three alike"):
        bp.qkv_project_int4(x, *weights, device="cpu")


# ---- from a float matrix ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", ["tiled", "kaio", "awq", "gptq", "plain"])
def test_pack_and_dequantise(layout: str) -> None:
    """Within half a step of each group, in every layout alike."""
    w = rng.standard_normal((96, 24)).astype(np.float32)
    for symmetric in (True,) if layout == "kaio" else (True, False):
        made = bp.pack_int4(w, group_size=32, symmetric=symmetric, layout=layout, device="cpu")
        assert str(made.layout) == layout
        back = bp.dequantize_int4(made, out_dtype="f32", device="cpu")
        step = np.repeat(np.asarray(made.scales[:, :24], np.float32), 32, 0)
        assert (np.abs(back - w) <= 0.51 * step).all()
    assert made.bits_per_weight > 4


# ---- refusals -----------------------------------------------------------------------------------------------------------


def test_a_weight_of_another_layout_is_refused() -> None:
    w = packed("gptq", 128, 64)
    arrays = w.operands
    for layout in ("kaio", "awq", "tiled", "plain"):
        with pytest.raises(bp.InvalidProblemError, match=r"codes has shape .*layout"):
            bp.PackedInt4(layout, (128, 64), 32, **arrays)
        with pytest.raises(bp.InvalidProblemError, match="layout"):
            bp.matmul_int4(
                np.zeros((1, 128), F16), *arrays.values(), shape=(128, 64), group_size=32, layout=layout, device="ptx"
            )
    with pytest.raises(bp.InvalidProblemError, match=r"packed in layout 'gptq'.*repack_int4"):
        bp.matmul_int4(np.zeros((1, 128), F16), w, layout="awq", device="ptx")


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        ({"group_size": 48}, bp.InvalidProblemError, "32, 64, 128 or K=96"),
        ({"group_size": 64}, bp.InvalidProblemError, "pad K to 128 with numpy.pad, then pack_int4"),
        ({"shape": (100, 16), "group_size": 100, "layout": "gptq"}, bp.InvalidProblemError, "pad K to 104"),
        ({"shape": (96, 18), "layout": "awq"}, bp.InvalidProblemError, "pad N to 24"),
        ({"layout": "marlin"}, bp.InvalidProblemError, "gptq"),
        ({"scales": np.zeros((3, 15), F16)}, bp.InvalidProblemError, "scales has shape"),
        ({"scales": np.zeros((3, 16), np.float32)}, bp.OperandTypeError, "scales must hold f16 or bf16"),
        ({"codes": np.zeros((1, 2, 32, 4), np.uint8)}, bp.OperandTypeError, "codes must hold"),
        ({"zeros": np.zeros((3, 16), np.int32)}, bp.OperandTypeError, "zeros must hold u8"),
        ({"order": np.zeros(95, np.int32)}, bp.InvalidProblemError, "order has shape"),
    ],
    ids=str,
)  # fmt: skip
def test_refusals(change: dict[str, Any], error: type[Exception], says: str) -> None:
    good = packed("tiled", 96, 16)
    given = {"layout": "tiled", "shape": (96, 16), "group_size": 32, **good.operands, **change}
    with pytest.raises(error, match=says):
        bp.PackedInt4(**given)


def test_orders_and_zero_points_that_cannot_be_are_refused() -> None:
    w = packed("gptq", 64, 16, order=True)
    w.order[:] = 0
    with pytest.raises(bp.InvalidProblemError, match="group of each k"):
        bp.repack_int4(w, device="cpu")
    w = packed("tiled", 64, 16, zeros=True)
    w.zeros[0, 0] = 0
    with pytest.raises(bp.InvalidProblemError, match="'gptq' has 1 to 16"):
        bp.repack_int4(w, "gptq", device="cpu")
    with pytest.raises(bp.InvalidProblemError, match="no zero points"):
        bp.repack_int4(w, "kaio", device="cpu")
    with pytest.raises(bp.InvalidProblemError, match="K=128 and the weight is"):
        bp.matmul_int4(np.zeros((1, 128), F16), w, device="cpu")


@pytest.mark.parametrize("at", [-1, 64])
@pytest.mark.parametrize("layout", ["tiled", "gptq"])
def test_an_order_of_other_numbers_than_there_are_is_refused(layout: str, at: int) -> None:
    good, x = packed(layout, 64, 16, order=True), np.ones((1, 64), F16)
    arrays: dict[str, Any] = {**good.operands, "order": good.order.copy()}
    arrays["order"][5] = at
    of: dict[str, Any] = {"layout": layout, "shape": (64, 16), "group_size": 32}
    for call in (bp.PackedInt4, lambda **given: bp.matmul_int4(x, **given), bp.dequantize_int4):
        with pytest.raises(bp.InvalidProblemError, match=rf"order\[5\] is {at}, and (k's|groups) are 0 to"):
            call(**of, **arrays)
    # What the host does not see is not taken for another: no bit of the result is of a weight
    desc = bp.Int4MatmulDescriptor.of(x, **arrays, **of)
    variants = ("gemv", "mma") if layout == "tiled" else ("dequantize_matmul",)
    for variant in variants:
        plan = admissible(bp.Int4MatmulPlan, desc, PlanPreference(variant=variant), PTX)[0]
        assert np.isnan(plan.run(x=x, **arrays)).all()


def test_more_tokens_than_a_launch_stages_are_staged_by_several(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_staged_tokens, "MOST_STAGED", 5)
    w, x = packed("tiled", 128, 24, 64, order=True), rng.standard_normal((13, 130)).astype(F16)[:, :128]
    uneven = rng.standard_normal((2, 8, 128)).astype(F16)[:, :7]
    for tokens, variant, launches in ((x, "mma", 3), (x, "dequantize_matmul", 3), (uneven, "dequantize_matmul", 4)):
        plan = plans_of(tokens, w, variant)[0]
        assert sum("stage_tokens" in step.kernel.entry for step in plan.selection.launches) == launches
        plan.verify(x=tokens, **w.operands)
    plans_of(uneven, w, "f32_weights")[0].verify(x=uneven, **w.operands)


@pytest.mark.parametrize("variant", ["gemv", "mma", "dequantize_matmul", "f32_weights"])
def test_int4_order_outside_of_k_makes_nan(variant: str) -> None:
    """Plans take an order as it is. No variant reads memory that nothing wrote."""
    w, x = packed("tiled", 128, 24, 64, order=True), rng.standard_normal((3, 128)).astype(F16)
    assert w.order is not None
    plan = plans_of(x, w, variant)[0]
    for place, k in ((5, 300), (7, -1)):
        order = w.order.copy()
        order[place] = k
        assert np.isnan(plan.run(x=x, **{**w.operands, "order": order}).astype(np.float32)).all(), (place, k)
    order = w.order.copy()
    order[5] = order[6]  # a k that is named twice is multiplied twice, whatever the variant
    ordered = x[:, order].astype(np.float64)
    plain = bp.PackedInt4(w.layout, w.shape, w.group_size, w.codes, w.scales)
    wanted = ordered @ bp.dequantize_int4(plain, out_dtype="f32", device="cpu").astype(np.float64)
    got = plan.run(x=x, **{**w.operands, "order": order}).astype(np.float64)
    assert np.allclose(got, wanted, rtol=2e-3, atol=0.05)


def test_an_order_that_names_a_k_twice_is_refused() -> None:
    good = packed("tiled", 64, 16, order=True)
    good.order[5] = good.order[6]
    of: dict[str, Any] = {"layout": "tiled", "shape": (64, 16), "group_size": 32}
    for call in (bp.PackedInt4, lambda **given: bp.matmul_int4(np.ones((1, 64), F16), **given), bp.dequantize_int4):
        with pytest.raises(bp.InvalidProblemError, match="more than once, and is no permutation"):
            call(**of, **good.operands)


def test_a_gather_of_other_numbers_than_ks_is_refused() -> None:
    w = packed("gptq", 64, 16)
    for bad in (-1, 64):
        gather = np.arange(64, dtype=np.int32)
        gather[63] = bad
        with pytest.raises(bp.InvalidProblemError, match=rf"gather\[63\] is {bad}, and k's are 0 to 63"):
            bp.relayout_int4(w.codes, w.scales, gather=gather, group_size=32, device="cpu")


@pytest.mark.parametrize("shape", [(64,), (2, 32, 16), (0, 16)], ids=str)
def test_what_is_no_matrix_is_refused(shape: tuple[int, ...]) -> None:
    w = np.ones(shape, F16)
    for call in (bp.quantize_int4, bp.pack_int4):
        with pytest.raises(bp.InvalidProblemError, match="a weight of shape"):
            call(w, group_size=32, device="cpu")
    with pytest.raises(bp.InvalidProblemError, match="PackedInt4"):
        bp.PackedInt4("plain", shape, 32, w.astype(np.uint8), np.ones((2, 16), F16))  # type: ignore[arg-type]
