"""NF4 weights: values and map by their formulas; every code and block distinguished; every configuration; what is refused."""

from __future__ import annotations

from collections.abc import Callable
from statistics import NormalDist
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.ops.quantized.nf4.oracle import MAP, VALUES
from baracuda_py.ops.quantized.nf4.samples import nf4_weight
from baracuda_py.packed.nf4 import BLOCK_SIZES, nf4_shapes
from baracuda_py.plan.about.tune import admissible
from baracuda_py.types import DeviceSpec, PlanPreference

from .nf4 import nf4_code, nf4_magnitude

rng = np.random.default_rng(16)
Array = np.ndarray[Any, Any]
PTX = DeviceSpec.named("ptx")
F16, BF16, F32 = np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16), np.dtype(np.float32)


def plans_of(x: Array, w: dict[str, Any], block_size: int = 64, **more: Any) -> list[Any]:
    desc = bp.Nf4MatmulDescriptor.of(x, **w, block_size=block_size, **more)
    return admissible(bp.Nf4MatmulPlan, desc, PlanPreference(variant="gemv"), PTX)


# ---- values ------------------------------------------------------------------------------------------------------------


def test_values_are_quantiles_of_the_normal_distribution() -> None:
    """QLoRA, appendix E, with bitsandbytes' probability of the largest: eight above 0, seven below, and 0."""
    largest, inverse = 0.9677083, NormalDist().inv_cdf
    above = [inverse(p) for p in np.linspace(largest, 0.5, 9)[:-1]]
    below = [-inverse(p) for p in np.linspace(largest, 0.5, 8)[:-1]]
    wanted = np.array(sorted([*above, 0.0, *below])) / max(above)
    assert np.allclose(VALUES, wanted, rtol=0, atol=5e-7)


def test_the_map_has_a_sign_an_exponent_and_a_fraction() -> None:
    """For each exponent the middles of as many even parts of 0.1 to 1 as its bits leave; either sign, 0 and 1."""
    sizes = []
    for exponent in range(7):
        ends = np.linspace(0.1, 1, 2**exponent + 1)
        sizes += (10.0 ** (exponent - 6) * (ends[1:] + ends[:-1]) / 2).tolist()
    wanted = np.array(sorted([*sizes, *(-x for x in sizes), 0.0, 1.0]))
    assert len(MAP) == 256
    assert np.allclose(MAP, wanted, rtol=1e-7, atol=0)


@pytest.mark.parametrize("device", ["cpu", "ptx"])
def test_every_code_and_every_magnitude_means_its_value(device: str) -> None:
    codes = np.arange(256, dtype=np.uint8).repeat(32).reshape(256, 32)  # a block is one pair
    absmax, scales, offset = np.arange(256, dtype=np.uint8), np.array([0.5], F32), np.asarray(F32.type(2))
    made = bp.dequantize_nf4(codes, absmax, scales=scales, offset=offset, device=device)
    sizes = MAP * np.float32(0.5) + np.float32(2)
    assert np.array_equal(made[:, 0], VALUES[np.arange(256) // 16] * sizes)
    assert np.array_equal(made[:, 63], VALUES[np.arange(256) % 16] * sizes)


@pytest.mark.parametrize("begin", [1, 2, 4])
def test_codes_at_any_address(begin: int) -> None:
    """Read and written by bytes, by two and by four."""
    x = rng.standard_normal((3, 64)).astype(F32)
    wanted, absmax = bp.quantize_nf4(x, device="cpu")
    stored = np.zeros(16 + 96, np.uint8)
    first = (begin - stored.ctypes.data) % 16
    codes = stored[first : first + 96].reshape(3, 32)
    bp.quantize_nf4(x, out=codes, device="ptx")
    assert np.array_equal(codes, wanted)
    made = bp.dequantize_nf4(codes, absmax, device="ptx")
    assert np.array_equal(made, bp.dequantize_nf4(wanted, absmax, device="cpu"))


@pytest.mark.parametrize("block_size", BLOCK_SIZES)
def test_there_and_back(block_size: int) -> None:
    """Within half of the widest gap of the block's magnitude, by blocks that go on in the next row; values themselves exactly."""
    x = rng.standard_normal((5, 960)).astype(F32)
    for double in (False, True):
        packed = bp.pack_nf4(x, block_size=block_size, double_quant=double, device="ptx" if block_size > 256 else "cpu")
        assert packed.double_quant is double
        back = bp.dequantize_nf4(packed, device="cpu")
        most = np.repeat([nf4_magnitude(packed.operands, i) for i in range(len(packed.absmax))], block_size)[: x.size]
        assert (np.abs(back - x).reshape(-1) <= (0.153 + 0.02 * double) * most).all()
    again = bp.quantize_nf4(back, block_size=block_size, device="cpu")
    assert np.array_equal(again[0], packed.codes)


def test_ties_and_ends_take_the_lower_code() -> None:
    middles = (VALUES[:-1] + VALUES[1:]) * np.float32(0.5)
    x = np.zeros((1, 64), F32)
    x[0, :15], x[0, 15:30], x[0, 30] = middles, np.nextafter(middles, np.float32(2)), 1
    for device in ("cpu", "ptx"):
        codes, absmax = bp.quantize_nf4(x, device=device)
        assert absmax.tolist() == [1.0]
        got = [nf4_code(codes, i) for i in range(31)]
        assert got == [*range(15), *range(1, 16), 15]


def test_a_weight_as_bitsandbytes_holds_it() -> None:
    """Its codes in one column; the same weight."""
    w = rng.standard_normal((6, 128)).astype(F16)
    packed = bp.pack_nf4(w, double_quant=True, device="cpu")
    other = bp.PackedNf4((6, 128), **{**packed.operands, "codes": packed.codes.reshape(-1, 1)})
    assert np.array_equal(other.codes, packed.codes)
    assert bp.pack_nf4(w, device="cpu").bits_per_weight == 4.5
    x = np.ones((2, 128), F16)
    y = bp.matmul_nf4(x, other, out_dtype="f32", device="cpu")
    assert np.allclose(y, x.astype(F32) @ bp.dequantize_nf4(other, device="cpu").T, atol=1e-4)


# ---- products ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "m"), [(F16, 3), (BF16, 16)], ids=str)
def test_unit_tokens_read_single_weights(kind: Any, m: int, everything: bool) -> None:
    """x of one 1 a token picks columns of W, each block with a power of two of its own: results are exact, values rounded."""
    n, k = 34, 320
    w = nf4_weight(rng, (n, k))
    w["absmax"] = np.exp2(rng.integers(-3, 4, n * k // 64)).astype(F32)
    numbers = VALUES.astype(kind).astype(F32)[[nf4_code(w["codes"], i) for i in range(n * k)]]
    dense = (numbers * np.repeat(w["absmax"], 64)).reshape(n, k)
    for first in (0, 120, k - m):
        x = np.zeros((m, k), kind)
        x[np.arange(m), first + np.arange(m)] = 1
        for plan in plans_of(x, w, out_dtype="f32")[: 1 + 99 * everything]:
            assert np.array_equal(plan.run(x=x, **w), dense[:, first : first + m].T), plan.sku


def test_last_k_of_each_block_warp_and_split_counts() -> None:
    """Codes of 0, 1 and -1 alone: sums are exact, and every part of K has its own."""
    n, k = 18, 2048 + 64
    w = nf4_weight(rng, (n, k), 128)
    w["codes"] = (np.array([0, 7, 15])[rng.integers(0, 3, (n, k // 2))] * 17).astype(np.uint8)
    w["absmax"] = np.exp2(rng.integers(0, 3, len(w["absmax"]))).astype(F32)
    dense = bp.dequantize_nf4(**w, block_size=128, device="cpu")
    x = np.zeros((2, k), F16)
    x[0], x[1, 15::16] = 1, 1
    plans = plans_of(x, w, 128, out_dtype="f32")
    chosen = {plan.selection.config.split_k: plan for plan in reversed(plans)}
    assert len(chosen) > 1
    for plan in chosen.values():
        assert np.array_equal(plan.run(x=x, **w), x.astype(F32) @ dense.T), plan.sku


def test_staged_tokens_and_parts_of_k_do_not_meet_in_scratch() -> None:
    n, k = 16, 2048
    w = nf4_weight(rng, (n, k))
    w["codes"], w["absmax"] = (w["codes"] % 2 * 0xF0 + 7).astype(np.uint8), np.full(n * k // 64, 0.25, F32)
    stored = rng.integers(-2, 3, (k, 3)).astype(F16)
    x = stored.T
    wanted = x.astype(F32) @ bp.dequantize_nf4(**w, device="cpu").T
    plan = next(p for p in plans_of(x, w, out_dtype="f32") if p.selection.config.split_k > 1)
    assert len(plan.kernels) == 3
    assert np.array_equal(plan.run(x=x, **w), wanted)


def test_rows_of_the_table(everything: bool) -> None:
    """Tiles, each once, in its bound, on ragged extents; doubly quantised where M is even."""
    seen: set[tuple[int, ...]] = set()
    for m in (1, 2, 3, 8, 16, 19) if everything else (8,):
        x = rng.standard_normal((m, 192)).astype(F16)
        w = nf4_weight(rng, (34, 192), double=m % 2 == 0)
        for plan in plans_of(x, w) if everything else plans_of(x, w)[-1:]:
            config = plan.selection.config
            row = (config.tokens, config.strips, config.across, config.along, config.stages, config.depth)
            if row in seen:
                continue
            seen.add(row)
            given = {"x": x, **w}
            out = plan.run(**given)
            plan.precision_guarantee.check(
                out, np.asarray(plan.reference(plan.desc, **given)), given, measures=plan.measured()
            )
    assert len(seen) > (20 if everything else 0)


DEEP = 8192  # of K: more than samples have


def lost_block(w: dict[str, Array]) -> None:
    """64 of K, of one row."""
    w["absmax"][5 * DEEP // 64 + 70] = 0


def lost_k_block(w: dict[str, Array]) -> None:
    """256 of K, of all rows."""
    w["codes"][:, 512:640] = 0x77


def larger_magnitude(w: dict[str, Array]) -> None:
    """By 5 %, of one block."""
    w["absmax"][3 * DEEP // 64 + 17] *= np.float32(1.05)


def swapped_codes(w: dict[str, Array]) -> None:
    """Every -0.09 a 0, and every 0 a -0.09."""
    codes = np.arange(16, dtype=np.uint8)
    codes[[6, 7]] = 7, 6
    w["codes"][...] = codes[w["codes"] >> 4] << 4 | codes[w["codes"] & 15]


@pytest.mark.parametrize("fault", [lost_block, lost_k_block, larger_magnitude, swapped_codes])
@pytest.mark.parametrize("variant", ["gemv", "dequantize_matmul"])
@pytest.mark.parametrize("kind", [F16, BF16], ids=str)
def test_a_bound_notices(kind: Any, variant: str, fault: Callable[[dict[str, Array]], None], everything: bool) -> None:
    """What rounded weights or values make of the sums is known to the bit, so that nothing hides behind it."""
    own = np.random.default_rng(5)
    x, w = own.standard_normal((3, DEEP)).astype(kind), nf4_weight(own, (16, DEEP))
    desc = bp.Nf4MatmulDescriptor.of(x, **w, out_dtype="f32")
    plans = admissible(bp.Nf4MatmulPlan, desc, PlanPreference(variant=variant), PTX)
    broken = {name: array.copy() for name, array in w.items()}
    fault(broken)
    wide, without = (np.asarray(plans[0].reference(desc, x=x, **each)) for each in (w, broken))
    for plan in plans if everything else plans[:1] + plans[-1:]:
        with pytest.raises(AssertionError):
            plan.precision_guarantee.check(without.astype(F32), wide, {"x": x, **w}, measures=plan.measured())


@pytest.mark.parametrize("arch", ["sm_80", "sm_89", "sm_90a", "sm_100a", "sm_120"])
def test_nf4_kernels_fit_every_arch(arch: str) -> None:
    for m in (1, 2, 4, 8, 16, 17):
        desc = bp.Nf4MatmulDescriptor((m, 256), 34, "f16")
        assert bp.Nf4MatmulPlan.select(desc, PlanPreference(variant="gemv"), device=f"ptx:{arch}").kernels


def test_crossovers_are_known() -> None:
    """A few tokens by the kernel that reads codes; many by dequantising; a buffer off its 16 bytes says what it lacks."""
    w = {"n": 8192, "x_element": "bf16"}
    variants = [
        bp.Nf4MatmulPlan.select(bp.Nf4MatmulDescriptor((m, 8192), **w), device="h200").sku.variant
        for m in (1, 16, 48, 4096)
    ]
    assert variants == ["gemv", "gemv", "gemv", "dequantize_matmul"]
    with pytest.raises(bp.UnsupportedError, match="codes"):
        bp.Nf4MatmulPlan.select(
            bp.Nf4MatmulDescriptor((1, 8192), **w, codes_align=4), PlanPreference(variant="gemv"), device="h200"
        )


# ---- refusals ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        ({"block_size": 96}, bp.InvalidProblemError, "64, 128, 256, 512, 1024, 2048, 4096"),
        ({"shape": (4, 100)}, bp.InvalidProblemError, r"pad them with zeros to 128 by numpy.pad, then pack_nf4"),
        ({"shape": (4, 192)}, bp.InvalidProblemError, "codes has shape"),
        ({"shape": (4, 128, 1)}, bp.InvalidProblemError, "give"),
        ({"shape": 4}, bp.InvalidProblemError, "shape=4"),
        ({"codes": None}, bp.InvalidProblemError, "codes is missing"),
        ({"codes": np.zeros((4, 64), np.int8)}, bp.OperandTypeError, "codes must hold u8"),
        ({"absmax": np.zeros(7, F32)}, bp.InvalidProblemError, "absmax has shape"),
        ({"absmax": np.zeros(8, F16)}, bp.OperandTypeError, "absmax must hold f32 or u8"),
        ({"absmax": np.zeros(8, np.uint8)}, bp.InvalidProblemError, "scales is missing"),
        ({"offset": np.zeros((), F32)}, bp.InvalidProblemError, "offset was given"),
        ({"scales": np.zeros(2, F32)}, bp.InvalidProblemError, "scales has shape"),
    ],
    ids=str,
)
def test_refusals(change: dict[str, Any], error: type[Exception], says: str) -> None:
    given = {"shape": (4, 128), **nf4_weight(rng, (4, 128)), **change}
    with pytest.raises(error, match=says):
        bp.PackedNf4(**given)


def test_refusals_of_ops() -> None:
    out, w = np.full((1, 4), 7, F16), nf4_weight(rng, (4, 128))
    for call, error, says in (
        (lambda: bp.quantize_nf4(np.ones((3, 70), F32), device="ptx"), bp.InvalidProblemError, "to 128 by"),
        (lambda: bp.quantize_nf4(np.ones((3, 64), F32), block_size=32, device="ptx"), bp.InvalidProblemError, "one of 64"),
        (lambda: bp.quantize_nf4(np.ones((3, 64)), device="ptx"), bp.OperandTypeError, "x"),
        (lambda: bp.quantize_nf4(np.ones((0, 64), F32), double_quant=True, device="ptx"), bp.InvalidProblemError, "no mean"),
        (lambda: bp.quantize_nf4(np.ones((2, 64), F32), double_quant=1, device="ptx"), bp.InvalidProblemError, "True nor"),
        (lambda: bp.pack_nf4(np.ones(64, F32), device="ptx"), bp.InvalidProblemError, r"\[N, K\]"),
        (lambda: bp.dequantize_nf4(np.zeros((2, 32), np.uint8), np.ones(1, F32), device="ptx"), bp.InvalidProblemError, "absmax"),
        (lambda: bp.matmul_nf4(np.ones((1, 64), F16), **w, out=out, device="ptx"), bp.InvalidProblemError, "codes"),
        (lambda: bp.matmul_nf4(np.ones((1, 128), F32), **w, device="ptx"), bp.OperandTypeError, "x must"),
    ):  # fmt: skip
        with pytest.raises(error, match=says):
            call()
    assert (out == 7).all()


def test_shapes_of_a_weight() -> None:
    assert nf4_shapes((3, 320), 256) == {"codes": (3, 160), "absmax": (4,), "scales": (1,), "offset": ()}


@pytest.mark.parametrize("rows", [1 << 24, 1 << 26])
def test_places_of_more_than_32_bits(rows: int) -> None:
    """2**30 values and 2**32: threads are counted by eights, and places by values and bytes."""
    made = bp.QuantizeNf4Plan.select(bp.QuantizeNf4Descriptor((rows, 64), "bf16"), device="h200")
    back = bp.DequantizeNf4Plan.select(bp.DequantizeNf4Descriptor((rows, 64), "bf16"), device="h200")
    for plan in (made, back):
        assert plan.kernels[0].name.endswith("u64>" if rows * 64 >= 1 << 32 else "u32>")


@pytest.mark.parametrize("double", [False, True])
def test_wide_places_are_the_same_values(monkeypatch: pytest.MonkeyPatch, double: bool) -> None:
    from baracuda_py.ops.quantized.nf4 import dequantize as dequantize_nf4
    from baracuda_py.ops.quantized.nf4 import quantize as quantize_nf4

    x = rng.standard_normal((9, 320)).astype(F32)
    wanted = bp.quantize_nf4(x, double_quant=double, device="cpu")
    arrays = dict(zip(("codes", "absmax", "scales", "offset"), wanted))
    for module in (dequantize_nf4, quantize_nf4):
        monkeypatch.setattr(module, "index_type", lambda count: "u64")
    made = bp.QuantizeNf4Plan.select(bp.QuantizeNf4Descriptor.of(x, double_quant=double), device="ptx").run(x=x)
    assert all(map(np.array_equal, made, wanted))
    plan = bp.DequantizeNf4Plan.select(bp.DequantizeNf4Descriptor.of(**arrays), device="ptx")
    assert np.array_equal(plan.run(**arrays), bp.dequantize_nf4(**arrays, device="cpu"))


@pytest.mark.parametrize("variant", ["gemv", "dequantize_matmul"])
def test_nf4_infinite_magnitude_affects_the_bound_of_its_columns(variant: str) -> None:
    rng = np.random.default_rng(5)
    codes, absmax = bp.quantize_nf4(rng.standard_normal((32, 256)).astype(np.float32), device="cpu")
    operands = {"x": rng.standard_normal((3, 256)).astype(np.float16), "codes": codes, "absmax": absmax.copy()}
    operands["absmax"][5] = np.inf  # of column 1, whose sums are no numbers
    plan = bp.Nf4MatmulPlan.select(
        bp.Nf4MatmulDescriptor.of(**operands), bp.PlanPreference(variant=variant), device="ptx"
    )
    plan.verify(**operands)


def test_packed_weights_are_themselves_alone() -> None:
    codes, absmax = bp.quantize_nf4(np.ones((2, 64), np.float32), device="cpu")
    one, other = (bp.PackedNf4((2, 64), codes, absmax) for _ in range(2))
    assert one == one and one != other and len({one, other}) == 2


def test_packed_codes_are_in_c_order() -> None:
    codes, absmax = bp.quantize_nf4(np.ones((4, 128), np.float32), device="cpu")
    with pytest.raises(bp.InvalidProblemError) as raised:
        bp.PackedNf4((4, 128), np.asfortranarray(codes), absmax)
    assert "codes is not in C order: strides (1, 4) (elements), not (64, 1)" in str(raised.value)
    assert "contiguize codes" in str(raised.value)
    bp.PackedNf4((4, 128), np.ascontiguousarray(np.asfortranarray(codes)), absmax)
