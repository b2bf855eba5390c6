"""Products with quantised weights keep what a preference asks for, whatever the kind of weight and the number of tokens: a row
has the same bits among any others (`batch_invariant`), and weights are not rounded to the activations' type (`exact_weights`)."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.ops.quantized.gguf.samples import blocks
from baracuda_py.ops.quantized.int4.samples import weight
from baracuda_py.ops.quantized.nf4 import oracle as nf4_oracle
from baracuda_py.plan.about.tune import admissible
from baracuda_py.types import Componentwise, DeviceSpec, PlanPreference
from baracuda_py.types.gguf import GgufFormat

Array = np.ndarray[Any, Any]
F16, BF16, F32 = np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16), np.dtype(np.float32)
SMALL, LARGE = (40, 256), (264, 2304)  # N and K; K of the larger goes by in many rounds
Size = tuple[int, int]
INVARIANT, EXACT = PlanPreference(batch_invariant=True), PlanPreference(exact_weights=True)
BOTH = PlanPreference(batch_invariant=True, exact_weights=True)
TOKENS = (1, 16, 17, 33, 128)
DEVICES = ("h200", "sm_80", "sm_89", "sm_100a", "sm_120")


@dataclass(frozen=True)
class Kind:
    """A product with weights of one kind: `function` of x and `operands`, whose descriptor is `described`; `dense` is the exact
    weight [K, N] where the product multiplies unquantized activations."""

    size: Size
    name: str
    element: Any
    function: Callable[..., Any]
    plan: Any
    operands: dict[str, Any]
    options: dict[str, Any]
    dense: Array | None = None

    def __call__(self, x: Array, pref: PlanPreference, device: Any = "ptx", **more: Any) -> list[Array]:
        made = self.function(x, **self.operands, **self.options, **more, pref=pref, device=device)
        return [made[i] for i in range(3)] if isinstance(made, tuple) else [made]

    def described(self, m: int) -> Any:
        x = {"a" if self.plan is bp.Int8MatmulPlan else "x": np.zeros((m, self.size[1]), self.element)}
        kind = {"weights": "int4"} if self.function is bp.qkv_project_int4 else {}
        return self.plan.descriptor.of(**x, **self.operands, **self.options, **kind)


def _int4(size: Size, name: str, element: Any, layout: str, group: int = 64, **of: bool) -> Kind:
    arrays, options = weight(np.random.default_rng(4), layout, size[1], size[0], group, **of)
    plain = bp.dequantize_int4(bp.PackedInt4(**options, **arrays), out_dtype="f32", device="cpu")  # exact in f32
    return Kind(size, name, element, bp.matmul_int4, bp.Int4MatmulPlan, arrays, options, plain.astype(np.float64))


def _nf4(size: Size, name: str, element: Any, *, double: bool) -> Kind:
    w = np.random.default_rng(5).standard_normal(size).astype(np.float32)
    packed = bp.pack_nf4(w, double_quant=double, device="cpu")
    sizes = nf4_oracle.magnitudes(*(packed.operands.get(x) for x in ("absmax", "scales", "offset")))
    codes = packed.operands["codes"]
    values = nf4_oracle.VALUES[np.stack([codes >> 4, codes & 15], -1).reshape(size)].astype(np.float64)
    dense = values * np.repeat(sizes.astype(np.float64), 64).reshape(size)
    return Kind(
        size, name, element, bp.matmul_nf4, bp.Nf4MatmulPlan, dict(packed.operands), {"block_size": 64}, dense.T
    )


def _gguf(size: Size, name: str, element: Any, kind: str, **options: Any) -> Kind:
    of = GgufFormat.of(kind, "test")
    w = blocks(np.random.default_rng(6), of, size[0] * size[1] // of.block.weights).reshape(size[0], -1)
    dense = bp.dequantize_gguf(bp.PackedGguf(w, kind, size), out_dtype="f32", device="cpu").astype(np.float64).T
    options |= {"format": kind}
    return Kind(
        size, name, element, bp.matmul_gguf, bp.GgufMatmulPlan, {"w": w}, options, None if "math" in options else dense
    )


def _int8(size: Size, name: str, element: Any, *, along_k: bool, group: int = 0, **options: Any) -> Kind:
    rng = np.random.default_rng(7)
    codes = rng.integers(-127, 128, size if along_k else size[::-1]).astype(np.int8)
    scales = (rng.random((size[1] // group, size[0]) if group else size[0]) * 0.01 + 1e-3).astype(np.float32)
    b = codes.T if along_k else codes
    dense = b.astype(np.float64) * (np.repeat(scales, group, 0) if group else scales).astype(np.float64)
    operands = {"b": b, "scale_b": scales}
    exact = element != np.int8 and not options
    return Kind(size, name, element, bp.matmul_int8, bp.Int8MatmulPlan, operands, options, dense if exact else None)


def _qkv(name: str, element: Any, kind: Kind, **options: Any) -> Kind:
    names = {"codes": "w{}", "b": "w{}", "scales": "scales_{}", "scale_b": "scale_{}", "zeros": "zeros_{}"}
    operands = {names[of].format(part): x for part in "qkv" for of, x in kind.operands.items()}
    function = bp.qkv_project_int4 if "codes" in kind.operands else bp.qkv_project_int8
    if function is bp.qkv_project_int4:
        options |= {"widths": (kind.size[0],) * 3, "group_size": kind.options["group_size"]}
    return Kind(kind.size, name, element, function, bp.QkvProjectPlan, operands, options)


def kinds(size: Size) -> tuple[Kind, ...]:
    return (
        _int4(size, "int4", BF16, "tiled", 32, zeros=True),
        _int4(size, "int4-ordered", F16, "tiled", order=True),
        _int4(size, "int4-gptq", F16, "gptq", zeros=True, order=True),
        _int4(size, "int4-awq", BF16, "awq", zeros=True),
        _nf4(size, "nf4", BF16, double=False),
        _nf4(size, "nf4-double", F16, double=True),
        _gguf(size, "gguf-q4_k", F16, "q4_k"),
        _gguf(size, "gguf-q6_k", BF16, "q6_k"),
        _gguf(size, "gguf-q4_0-f32", F32, "q4_0"),
        _gguf(size, "gguf-q5_0-int8", BF16, "q5_0", math="int8"),
        _int8(size, "w8a16", BF16, along_k=True),
        _int8(size, "w8a16-along-n", F16, along_k=False),
        _int8(size, "w8a16-grouped", F16, along_k=True, group=64),
        _int8(size, "int8", np.dtype(np.int8), along_k=True),
        _int8(size, "int8-dynamic", BF16, along_k=True, dynamic=True),
        _qkv("qkv-int4", BF16, _int4(size, "", BF16, "tiled")),
        _qkv("qkv-int8", BF16, _int8(size, "", BF16, along_k=True)),
        _qkv("qkv-int8-dynamic", F16, _int8(size, "", F16, along_k=True), dynamic=True),
    )


KINDS = kinds(SMALL)
every_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)


def tokens(kind: Kind, m: int) -> Array:
    x = np.random.default_rng(8).standard_normal((m, kind.size[1]))
    return (x * 40).astype(np.int8) if kind.element == np.int8 else x.astype(kind.element)


@every_kind
@pytest.mark.parametrize("pref", [INVARIANT, BOTH], ids=["invariant", "exact"])
def test_a_row_has_the_same_bits_among_any_others(kind: Kind, pref: PlanPreference) -> None:
    x = tokens(kind, max(TOKENS))
    whole = kind(x, pref)
    for m in TOKENS[:-1]:
        for part, all_rows in zip(kind(x[-m:], pref), whole):  # the last rows: each takes another place in its tile
            assert np.array_equal(part.view(np.uint8), all_rows[-m:].view(np.uint8)), f"{m} rows have other bits"


@every_kind
@pytest.mark.parametrize("pref", [INVARIANT, EXACT, BOTH], ids=["invariant", "exact", "both"])
def test_no_number_of_tokens_is_refused(kind: Kind, pref: PlanPreference) -> None:
    for device in DEVICES:
        for m in (1, 2, 3, 8, 15, 16, 17, 32, 33, 64, 65, 129, 512, 2048, 2049, 4096, 70000):
            guarantee = kind.plan.select(kind.described(m), pref, device=device).precision_guarantee
            assert guarantee.batch_invariant or not pref.batch_invariant
            assert guarantee.exact_weights or not pref.exact_weights


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.dense is not None], ids=lambda kind: kind.name)
@pytest.mark.parametrize("m", [1, 17, 70])
def test_exact_weights_are_not_rounded(kind: Kind, m: int) -> None:
    """The error is one of sums in f32: rounding weights to f16 costs several times what this allows."""
    assert kind.dense is not None
    x = tokens(kind, m)
    (got,) = kind(x, EXACT, out_dtype="f32")
    wide = x.astype(np.float64)
    allowed = (np.abs(wide) @ np.abs(kind.dense)) * (2 * kind.size[1] + 40) * 2.0**-24 / 8
    assert (np.abs(got - wide @ kind.dense) <= allowed).all()


@pytest.mark.parametrize("m", [1, 17])
def test_weights_beyond_f16_are_served_at_any_number_of_rows(m: int) -> None:
    """What dequantises to f16 makes infinities of them, and its bound says so; exact weights are right whatever the number."""
    n, k = 24, 1024
    rng = np.random.default_rng(10)
    operands = {
        "codes": rng.integers(0, 256, (n, k // 2)).astype(np.uint8),
        "absmax": np.full(n * k // 64, 7e4, np.float32),
    }
    codes = np.stack([operands["codes"] >> 4, operands["codes"] & 15], -1).reshape(n, k)
    dense = nf4_oracle.VALUES[codes].astype(np.float64) * float(np.float32(7e4))
    x = rng.standard_normal((m, k)).astype(np.float16)
    got = bp.matmul_nf4(x, **operands, out_dtype="f32", pref=EXACT, device="ptx")
    allowed = (np.abs(x.astype(np.float64)) @ np.abs(dense.T)) * (2 * k + 40) * 2.0**-24
    assert (np.abs(got - x.astype(np.float64) @ dense.T) <= allowed).all()
    desc = bp.Nf4MatmulDescriptor.of(x, **operands)
    outside = {}
    for variant in ("gemv", "dequantize_matmul", "f32_weights"):
        bound = bp.Nf4MatmulPlan.select(desc, PlanPreference(variant=variant), device="h200").precision_guarantee.bound
        assert isinstance(bound, Componentwise)
        outside[variant] = bound.outside
    assert outside == {"gemv": "beyond_f32", "dequantize_matmul": "beyond_weights", "f32_weights": "beyond_f32"}


def test_every_configuration_that_promises_it_adds_alike() -> None:
    """Of kernels that keep bits themselves, all tiles, over several rounds of K."""
    rng = np.random.default_rng(9)
    arrays, options = weight(rng, "tiled", 896, 24, 64, zeros=True)
    w = blocks(rng, GgufFormat.of("q4_0", "test"), 24 * 1280 // 32).reshape(24, -1)
    codes = rng.integers(-127, 128, (24, 2400)).astype(np.int8).T
    cases: tuple[tuple[Any, str, int, dict[str, Any], dict[str, Any]], ...] = (
        (bp.Int4MatmulPlan, "mma", 896, arrays, options),
        (bp.GgufMatmulPlan, "q8_in_order", 1280, {"w": w}, {"format": "q4_0", "math": "int8"}),
        (bp.Int8MatmulPlan, "gemv_tiles", 2400, {"b": codes, "scale_b": np.full(24, 0.01, np.float32)}, {}),
    )
    for kind, variant, k, operands, of in cases:
        x = rng.standard_normal((70, k)).astype(np.float16)
        name = "a" if kind is bp.Int8MatmulPlan else "x"
        whole: Array | None = None
        for m in (70, 19, 1):
            desc = kind.descriptor.of(x[-m:], **operands, **of)
            plans = admissible(kind, desc, replace(INVARIANT, variant=variant), DeviceSpec.named("ptx"))
            tiles = {re.sub("stages=.*", "", str(plan.sku.config)): plan for plan in plans}
            for plan in tiles.values():
                got = plan.run(**{name: x[-m:]}, **operands)
                whole = got if whole is None else whole
                assert np.array_equal(got.view(np.uint16), whole[-m:].view(np.uint16)), plan.sku


# ---- on the device -----------------------------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.parametrize("kind", kinds(LARGE), ids=lambda kind: kind.name)
@pytest.mark.parametrize("pref", [INVARIANT, BOTH], ids=["invariant", "exact"])
def test_rows_keep_their_bits_on_the_device(kind: Kind, pref: PlanPreference) -> None:
    import cupy

    moved = {name: cupy.asarray(x.T).T for name, x in kind.operands.items()}  # columns stay columns
    assert all(moved[name].strides == x.strides for name, x in kind.operands.items() if x.flags.f_contiguous)
    rows = {name: cupy.asarray(x) for name, x in kind.operands.items() if x.flags.c_contiguous}
    kind = replace(kind, operands=moved | rows)
    x = cupy.asarray(tokens(kind, 2176))
    whole = [part.get() for part in kind(x, pref, None)]
    for m in (1, 16, 17, 33, 64, 65, 129, 512, 2049):
        for part, all_rows in zip(kind(x[-m:], pref, None), whole):
            assert np.array_equal(part.get().view(np.uint8), all_rows[-m:].view(np.uint8)), f"{m} rows have other bits"
