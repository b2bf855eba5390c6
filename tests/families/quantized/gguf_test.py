"""GGUF blocks: every format by formulas written out and by the package, exact sums, what is refused, a file's tensor."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.call.operands import key
from baracuda_py.ops.quantized.gguf.oracle import matmul as oracle
from baracuda_py.ops.quantized.gguf.oracle.quantize import QUANTIZED, quantized
from baracuda_py.ops.quantized.gguf.samples import adversarial_blocks, blocks
from baracuda_py.plan.about.tune import admissible
from baracuda_py.types import DeviceSpec
from baracuda_py.types.gguf import BLOCKS, GgufFormat

from ...arena import host
from ...gauntlet import readable
from ...readme import ROOT
from ...readme import blocks as shown
from .gguf import BYTES, weights_of

COVERS = ("dequantize_gguf", "quantize_gguf", "matmul_gguf", "matmul_q4k")
Array = np.ndarray[Any, Any]
PACKAGE_MAKES = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0")
every_format = pytest.mark.parametrize("kind", list(GgufFormat), ids=str)


def same(got: Array, wanted: Array) -> bool:
    """Bit for bit, but for the bits of NaN."""
    nan = np.isnan(wanted)
    return np.array_equal(np.isnan(got), nan) and np.array_equal(
        np.where(nan, 0, got).astype(np.float32).view(np.uint32),
        np.where(nan, 0, wanted).astype(np.float32).view(np.uint32),
    )


# ---- dequantise and quantise -------------------------------------------------------------------------------------------


@every_format
def test_the_table_agrees_with_the_formats_written_out(kind: GgufFormat) -> None:
    rng = np.random.default_rng(1)
    assert kind.block.nbytes == BYTES[kind.name]
    for made in (blocks(rng, kind, 30), adversarial_blocks(rng, kind)[::5]):
        assert same(oracle.dequantized(kind.block, made), weights_of(kind, made))


@every_format
def test_emulated_weights_are_the_oracles_bit_for_bit(kind: GgufFormat) -> None:
    rng = np.random.default_rng(2)
    made = np.ascontiguousarray(adversarial_blocks(rng, kind)[::5])
    assert same(bp.dequantize_gguf(made, kind.name, device="ptx"), oracle.dequantized(kind.block, made))


@every_format
def test_every_bit_of_a_block_counts_once(kind: GgufFormat) -> None:
    """Each code has bits of its own: one that is set moves one weight."""
    block = kind.block
    code_bits = sorted(
        {(at, low + i) for p in block.planes for at, low in p.places(block.weights) for i in range(p.bits)}
    )
    assert len(code_bits) == block.weights * sum(p.bits for p in block.planes)
    zeros = np.zeros((len(code_bits) + 1, block.nbytes), np.uint8)
    for i, (at, bit) in enumerate(code_bits):
        zeros[i, at] = 1 << bit
    moved = oracle.parts_of(block, zeros).value
    assert ((moved[:-1] != moved[-1]).sum(axis=-1) <= 1).all()  # of a book both codes may mean the same


def test_the_package_dequantises_the_same() -> None:
    gguf = pytest.importorskip("gguf")
    rng = np.random.default_rng(3)
    for kind, block in BLOCKS.items():
        there = getattr(gguf.GGMLQuantizationType, block.name, None)
        if there is None or block.name in ("Q8_K", "Q8_1"):  # of these it knows the size alone
            continue
        assert int(there) == block.ggml
        for made in (blocks(rng, kind, 40), adversarial_blocks(rng, kind)):
            with np.errstate(all="ignore"):
                assert same(oracle.dequantized(block, made), gguf.quants.dequantize(made, there))


def test_the_package_quantises_the_same() -> None:
    gguf = pytest.importorskip("gguf")
    x = np.random.default_rng(4).standard_normal((50, 256)).astype(np.float32)
    for name in PACKAGE_MAKES:
        there = getattr(gguf.GGMLQuantizationType, name)
        assert np.array_equal(quantized(GgufFormat.of(name).block, x), gguf.quants.quantize(x, there)), name


@pytest.mark.parametrize("kind", QUANTIZED, ids=str)
def test_what_a_block_holds_is_made_again(kind: GgufFormat) -> None:
    """Weights that are codes of a block come back unchanged."""
    x = np.zeros((2, 256), np.float32)
    steps = {"Q4_0": (-8, 7), "Q5_0": (-16, 15), "Q6_K": (-32, 31), "Q8_0": (-127, 127), "Q8_1": (-127, 127)}
    low, high = steps.get(kind.name, (0, 31 if kind.name == "Q5_1" else 15))
    codes = np.random.default_rng(5).integers(low, high + 1, x.shape)
    codes[:, ::16], codes[:, 1::16] = low, high
    x[:] = codes * (63 if kind.name == "Q4_K" else 128 if kind.name == "Q6_K" else 1)
    made = bp.quantize_gguf(x, kind.name, device="ptx")
    assert np.array_equal(bp.dequantize_gguf(made, kind.name, device="ptx"), x)


# ---- products ----------------------------------------------------------------------------------------------------------


def whole_blocks(rng: np.random.Generator, kind: GgufFormat, count: int) -> Array:
    """Random codes and scales of sub-blocks, d = 1 and dmin = 2: weights are integers."""
    made = blocks(rng, kind, count)
    for of, number in ((kind.block.d, 1.0), (kind.block.least, 2.0)):
        if of is not None and of.kind != "e8m0":
            dtype: Any = np.float16 if of.kind == "f16" else np.float32
            made[:, of.at : of.at + np.dtype(dtype).itemsize] = np.array([number], dtype).view(np.uint8)
        elif of is not None:
            made[:, of.at] = 128
    return made


@pytest.mark.parametrize("math", [None, "int8"])
@pytest.mark.parametrize(
    ("kind", "element", "m", "n"),
    [
        ("Q4_K", "f16", 1, 34),
        ("Q6_K", "bf16", 3, 13),
        ("Q8_0", "f32", 2, 18),
        ("Q5_0", "f16", 7, 14),
        ("IQ4_XS", "bf16", 8, 30),
        ("Q2_K", "bf16", 1, 18),
        ("Q2_K", "f16", 2, 13),
        ("Q4_K", "bf16", 4, 14),
    ],
)
def test_sums_of_integers_are_exact(kind: str, element: str, m: int, n: int, math: str | None) -> None:
    """Every nibble, group and lane has a value of its own, and no sum is rounded: activations are integers of which every 32
    reach 127, so that Q8_1 holds them exactly."""
    rng = np.random.default_rng(6)
    form = GgufFormat.of(kind)
    w = whole_blocks(rng, form, 2 * n * max(1, 256 // form.block.weights)).reshape(n, -1)
    k = w.shape[1] // form.block.nbytes * form.block.weights
    x = rng.integers(-3, 4, (m, k))
    x[:, ::32] = 127
    weights = oracle.dequantized(form.block, w).astype(np.int64)
    wanted = x.astype(np.int64) @ weights.T
    assert np.abs(wanted).max() < 1 << 24 and (np.abs(x) @ np.abs(weights).T).max() < 1 << 24
    pref = bp.PlanPreference(variant="q8_activation" if math else "exact_activation")
    given = x.astype(bp.ElementKind.of(element).dtype)
    got = bp.matmul_gguf(given, w, kind, math=math, out_dtype="f32", device="ptx", pref=pref)
    assert np.array_equal(got.astype(np.int64), wanted)


def test_rows_that_no_32_bits_count_are_refused() -> None:
    k = 1 << 29
    desc = bp.GgufMatmulDescriptor((1, k), "bf16", (16, k // 256 * 144), "q4_k")
    with pytest.raises(bp.UnsupportedError, match=r"2\*\*28 bytes"):
        bp.GgufMatmulPlan.select(desc, bp.PlanPreference(variant="exact_activation"), device="h200")


@pytest.mark.parametrize(("kind", "element", "m"), [("IQ4_NL", "bf16", 1), ("IQ4_XS", "f16", 3)])
def test_codes_from_shared_memory(kind: str, element: str, m: int) -> None:
    """Whole and ragged chunks, and scales that others have worked out."""
    rng, form = np.random.default_rng(15), GgufFormat.of(kind)
    w = blocks(rng, form, 18 * 512 // form.block.weights).reshape(18, -1)
    x = rng.standard_normal((m, 512)).astype(bp.ElementKind.of(element).dtype)
    desc = bp.GgufMatmulDescriptor.of(x, w, format=kind)
    plans = admissible(bp.GgufMatmulPlan, desc, bp.PlanPreference(variant="exact_activation"), DeviceSpec.named("ptx"))
    next(plan for plan in plans if "book" in plan.sku.config).verify(x=x, w=w)


def test_f32_activations_count_with_all_their_bits() -> None:
    """One weight of 1: the result is the activation, whichever bits it has."""
    w = np.zeros((16, 34), np.uint8)
    w[:, :2] = np.array([1], np.float16).view(np.uint8)
    w[:, 2 + 9] = 1
    bits = np.random.default_rng(7).integers(0, 1 << 32, 12, dtype=np.uint32)
    bits = bits & np.uint32(0x8FFFFFFF) | np.uint32(0x30000000)
    x = np.zeros((12, 32), np.float32)
    x[:, 9] = bits.view(np.float32)
    pref = bp.PlanPreference(variant="exact_activation")
    got = bp.matmul_gguf(x, w, "Q8_0", device="ptx", pref=pref)
    assert np.array_equal(got, np.repeat(x[:, 9:10], 16, axis=1))


def test_the_default_rounds_no_activation() -> None:
    desc = bp.GgufMatmulDescriptor((1, 8192), "bf16", (8192, 32 * 144), "q4_k")
    exact = bp.GgufMatmulPlan.select(desc, device="h200")
    assert exact.sku.variant == "exact_activation"
    assert exact.precision_guarantee.math_precision is bp.MathPrecision.BF16
    may_round = bp.GgufMatmulDescriptor((1, 8192), "bf16", (8192, 32 * 144), "q4_k", math="int8")
    rounded = bp.GgufMatmulPlan.select(may_round, bp.PlanPreference(variant="q8_activation"), device="h200")
    assert rounded.precision_guarantee.math_precision is bp.MathPrecision.INT8
    assert "rounded_activations" in str(rounded.precision_guarantee)
    spared = bp.GgufMatmulPlan.select(may_round, bp.PlanPreference(variant="exact_activation"), device="h200")
    assert spared.precision_guarantee.math_precision is bp.MathPrecision.BF16
    assert "rounded" not in str(spared.precision_guarantee).replace("unrounded", "")
    x, w = np.ones((1, 256), np.float32), np.zeros((16, 144), np.uint8)
    assert not bp.matmul_q4k(x, w, pref=bp.PlanPreference(math="int8"), device="ptx").any()


def test_many_rows_are_multiplied_with_dequantised_weights() -> None:
    def variant(m: int, **pref: Any) -> str:
        desc = bp.GgufMatmulDescriptor((m, 8192), "bf16", (8192, 32 * 144), "q4_k")
        return str(bp.GgufMatmulPlan.select(desc, bp.PlanPreference(**pref), device="h200").sku.variant)

    assert variant(4096) == "dequantized" and variant(8).startswith("exact")
    assert variant(4096, max_workspace_bytes=0) == "panels"


@pytest.mark.parametrize("device", ["ptx", "ptx:sm_80"])
def test_dequantised_products(device: str) -> None:
    rng = np.random.default_rng(8)
    w = blocks(rng, GgufFormat.Q6_K, 20).reshape(20, -1)
    plain: Any = {"f16": np.float16, "bf16": ml_dtypes.bfloat16}
    for name, dtype in plain.items():
        x = rng.standard_normal((5, 256)).astype(dtype)
        desc = bp.GgufMatmulDescriptor.of(x, w, format="Q6_K")
        plan = bp.GgufMatmulPlan.select(desc, bp.PlanPreference(variant="dequantized"), device=device)
        plan.verify(x=x, w=w)
        assert plan.workspace_size >= 2 * 20 * 256, name


@pytest.mark.parametrize(
    ("kind", "k", "m", "element", "math"),
    [("Q6_K", 256, 63, "bf16", None), ("Q4_0", 160, 65, "f16", "int8"), ("Q3_K", 256, 20, "f32", None)],
)
def test_many_tiles(kind: str, k: int, m: int, element: str, math: str | None) -> None:
    """Groups of sub-blocks in a loop, and more rows of activations than a CTA takes."""
    rng = np.random.default_rng(12)
    form = GgufFormat.of(kind)
    w = blocks(rng, form, 30 * k // form.block.weights).reshape(30, -1)
    x = rng.standard_normal((m, k)).astype(bp.ElementKind.of(element).dtype)
    desc = bp.GgufMatmulDescriptor.of(x, w, format=kind, math=math)
    pref = bp.PlanPreference(variant="q8_activation" if math else "exact_activation")
    bp.GgufMatmulPlan.select(desc, pref, device="ptx").verify(x=x, w=w)


@pytest.mark.parametrize(
    ("kind", "k", "m", "n", "math", "chunk"),
    [
        ("Q2_K", 5120, 1, 18, None, 1024),
        ("Q4_K", 2560, 4, 66, None, 512),  # of whose rows a CTA takes more than it has room for at once
        ("IQ4_XS", 512, 1, 13, "int8", 512),
        ("Q4_0", 1024, 7, 2, None, 512),
    ],
)
def test_larger_chunks(kind: str, k: int, m: int, n: int, math: str | None, chunk: int) -> None:
    """Where rows are whole ones: several parts of a slot, and warps with one chunk more than others."""
    rng = np.random.default_rng(14)
    form = GgufFormat.of(kind)
    w = blocks(rng, form, n * k // form.block.weights).reshape(n, -1)
    x = rng.standard_normal((m, k)).astype(ml_dtypes.bfloat16)
    desc = bp.GgufMatmulDescriptor.of(x, w, format=kind, math=math)
    pref = bp.PlanPreference(variant="q8_activation" if math else "exact_activation")
    plans = admissible(bp.GgufMatmulPlan, desc, pref, replace(DeviceSpec.named("ptx"), sms=1))
    next(plan for plan in plans if f"chunk={chunk}" in plan.sku.config).verify(x=x, w=w)


@pytest.mark.parametrize(
    ("kind", "k", "m", "sms"),
    [
        ("Q4_K", 2304, 1, 2),
        ("Q4_0", 1120, 5, 2),
        ("Q6_K", 512, 3, 2),
    ],
)
@pytest.mark.parametrize("order", ["lockstep", "random"])
def test_a_cta_goes_on_to_further_rows(kind: str, k: int, m: int, sms: int, order: str) -> None:
    """Copies run ahead into the next rows, of warps with chunks and of those without, while sums of the last ones meet."""
    rng = np.random.default_rng(11)
    form = GgufFormat.of(kind)
    w = blocks(rng, form, 99 * k // form.block.weights).reshape(99, -1)
    x = rng.standard_normal((m, k)).astype(np.float16)
    desc = bp.GgufMatmulDescriptor.of(x, w, format=kind)
    few = replace(DeviceSpec.named("ptx"), sms=sms)
    plan = bp.GgufMatmulPlan.select(desc, bp.PlanPreference(variant="exact_activation"), device=few)
    (launch,) = plan.launch_config
    assert 1 < max(launch.grid) < 5  # of seven blocks of rows
    with bp.emulation(order="random", seed=3, copies="random") if order == "random" else nullcontext():
        plan.verify(x=x, w=w)


def test_a_row_of_nothing_finite_leaves_others_alone() -> None:
    rng = np.random.default_rng(9)
    w = blocks(rng, GgufFormat.Q4_K, 16)
    x = rng.standard_normal((3, 256)).astype(np.float16)
    alone = bp.matmul_q4k(x, w, device="ptx")
    x[1, 5] = np.inf
    x[1, 7] = np.nan
    for math in (None, "int8"):
        got = bp.matmul_q4k(x, w, device="ptx", math=math)
        assert np.isfinite(got[[0, 2]]).all()
        if math is None:
            assert np.array_equal(got[[0, 2]], alone[[0, 2]]) and np.isnan(got[1]).all()


# ---- what is refused ---------------------------------------------------------------------------------------------------


def zeros(*shape: int, dtype: Any = np.uint8) -> Array:
    return np.zeros(shape, dtype)


PACKED = bp.PackedGguf(zeros(8, 144), "Q4_K", (8, 256))
OTHER = bp.PackedGguf(zeros(8, 176), "Q5_K", (8, 256))
ROW = zeros(1, 256, dtype=np.float16)
REFUSED: list[tuple[str, tuple[Any, ...], dict[str, Any], type[bp.BaracudaError], str]] = [
    (
        "dequantize_gguf",
        (zeros(3, 100), "Q4_K"),
        {},
        bp.BufferTooSmallError,
        "100 bytes a row, and Q4_K blocks of 144 take 144",
    ),
    ("dequantize_gguf", (zeros(100), "Q4_0"), {"shape": (2, 96)}, bp.BufferTooSmallError, "100 bytes in all"),
    ("dequantize_gguf", (zeros(200), "Q4_0"), {"shape": (2, 96)}, bp.InvalidProblemError, "200 bytes"),
    ("dequantize_gguf", (zeros(200), "Q4_0"), {"shape": (2, 95)}, bp.InvalidProblemError, "pad them with zeros to 96"),
    ("dequantize_gguf", (zeros(3, 144), "Q4_L"), {}, bp.InvalidProblemError, "q4_k"),
    ("dequantize_gguf", (zeros(3, 144), 12), {}, bp.InvalidProblemError, "iq4_nl"),
    ("dequantize_gguf", (zeros(3, 144, dtype=np.int8), "Q4_K"), {}, bp.OperandTypeError, "u8"),
    ("dequantize_gguf", (zeros(3, 144), "Q4_K"), {"out_dtype": "f64"}, bp.OperandTypeError, "f16, bf16 or f32"),
    (
        "quantize_gguf",
        (zeros(3, 100, dtype=np.float32), "Q4_K"),
        {},
        bp.InvalidProblemError,
        "quantize_gguf(w, 'Q4_K', pad=True)",
    ),
    ("quantize_gguf", (zeros(3, 256, dtype=np.float32), "Q5_K"), {}, bp.InvalidProblemError, "q4_0, q4_1"),
    ("quantize_gguf", (zeros(3, 256), "Q4_K"), {}, bp.OperandTypeError, "f16, bf16 or f32"),
    (
        "matmul_gguf",
        (zeros(1, 100, dtype=np.float16), zeros(8, 144), "Q4_K"),
        {},
        bp.InvalidProblemError,
        "pad them with zeros to 256",
    ),
    (
        "matmul_gguf",
        (zeros(1, 512, dtype=np.float16), zeros(8, 144), "Q4_K"),
        {},
        bp.BufferTooSmallError,
        "144 bytes a row, and 512",
    ),
    (
        "matmul_gguf",
        (zeros(1, 256, dtype=np.float16), zeros(8, 145), "Q4_K"),
        {},
        bp.InvalidProblemError,
        "145 bytes a row",
    ),
    ("matmul_gguf", (zeros(1, 256, dtype=np.float16), zeros(1152), "Q4_K"), {}, bp.InvalidProblemError, "[N, bytes]"),
    ("matmul_gguf", (zeros(1, 256), zeros(8, 144), "Q4_K"), {}, bp.OperandTypeError, "f16, bf16 or f32"),
    ("matmul_gguf", (ROW, zeros(8, 144)), {}, bp.InvalidProblemError, "format is missing"),
    ("matmul_gguf", (ROW, PACKED, "Q5_K"), {}, bp.InvalidProblemError, "leave format out"),
    ("matmul_q4k", (ROW, OTHER), {}, bp.InvalidProblemError, "use matmul_gguf"),
    ("dequantize_gguf", (PACKED,), {"shape": (8, 256)}, bp.InvalidProblemError, "leave shape out"),
    ("dequantize_gguf", (zeros(8, 144),), {}, bp.InvalidProblemError, "format is missing"),
    (
        "matmul_gguf",
        (zeros(1, 256, dtype=np.float16), zeros(8, 144), "Q4_K"),
        {"math": "tf32"},
        bp.OperandTypeError,
        "int8",
    ),
]


@pytest.mark.parametrize("device", ["cpu", "ptx"])
@pytest.mark.parametrize(("op", "operands", "options", "error", "says"), REFUSED)
def test_refused(
    op: str, operands: tuple[Any, ...], options: dict[str, Any], error: type[bp.BaracudaError], says: str, device: str
) -> None:
    with pytest.raises(error) as caught:
        getattr(bp, op)(*operands, **options, device=device)
    readable(caught.value, op, says)


def test_a_truncated_buffer_says_what_it_lacks() -> None:
    out = np.full((1, 8), 7, np.float16)
    with pytest.raises(bp.BufferTooSmallError) as caught:
        bp.matmul_gguf(zeros(1, 512, dtype=np.float16), zeros(8, 144), "Q4_K", out=out, device="ptx")
    assert (caught.value.needed, caught.value.got) == (288, 144) and (out == 7).all()


def test_a_member_of_the_packages_enumeration_is_a_format() -> None:
    there = SimpleNamespace(name="Q4_K")
    assert GgufFormat.of(there) is GgufFormat.Q4_K is GgufFormat.of("q4_k")


# ---- a file ------------------------------------------------------------------------------------------------------------


def test_the_tensor_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The example of the docs, on a file that is written here."""
    gguf = pytest.importorskip("gguf")
    (example,) = shown(ROOT / "docs" / "gguf.md", "py")
    made = blocks(np.random.default_rng(10), GgufFormat.Q4_K, 20).reshape(10, -1)
    writer = gguf.GGUFWriter(str(tmp_path / "model.gguf"), "llama")
    writer.add_tensor("blk.0.ffn_up.weight", made, raw_dtype=gguf.GGMLQuantizationType.Q4_K)
    for step in ("write_header_to_file", "write_kv_data_to_file", "write_tensors_to_file", "close"):
        getattr(writer, step)()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "cupy", np)
    monkeypatch.setattr(key._known, "cupy", None)  # restores what the calls of the example learn
    names: dict[str, Any] = {}
    with bp.device("cpu"):
        exec(example, names)
    wanted = oracle.dequantized(GgufFormat.Q4_K.block, made).astype(np.float64).sum(axis=-1)
    assert np.allclose(host(names["y"])[0], wanted, rtol=2e-3, atol=2e-2)
