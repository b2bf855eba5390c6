"""Quantized weights: stage buffers that wrap, sums of parts of K, staged activations."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ...samples.sample import Sample
from ...samples.wanted import Problems, bf16, f16, f32
from ...types.gguf import GgufFormat
from .gguf.samples import blocks
from .int4.samples import weight
from .nf4.samples import nf4_weight

problems = Problems()
rng, n, want = problems.rng, problems.normal, problems.want


# ---- int4 weights: rings of slabs that wrap
def int4(m: int, k: int, n: int) -> Sample:
    arrays, options = weight(rng, "tiled", k, n, 128)
    return Sample(f"f16 {m}x{n}x{k}", {"x": rng.standard_normal((m, k)).astype(f16), **arrays}, options)


want("int4-gemv-ring-wraps", "matmul_int4", int4(9, 2176, 16), "gemv", ("16x1 warps=8",))
want("int4-mma-ring-wraps", "matmul_int4", int4(17, 1152, 16), "mma", ("24x2 share=2",))
want("int4-mma-parts", "matmul_int4", int4(60, 256, 16), "mma", ("64x2 stages=4 parts=2",))


# ---- quantised weights: what only a preference asks for
def uneven_int4(lead: tuple[int, int], k: int, columns: int) -> Sample:
    arrays, options = weight(rng, "tiled", k, columns, 64, zeros=True)
    x, out = (n((lead[0], lead[1] + 1, extent), bf16)[:, :-1] for extent in (k, columns))
    return Sample(
        f"bf16 {lead} x{columns}x{k}", {"x": x, "bias": n((lead[0], 1, columns)), "out": out, **arrays}, options
    )


def w8a16(m: int, columns: int, k: int) -> Sample:
    codes = rng.integers(-127, 128, (columns, k)).astype(np.int8).T
    scales = rng.random(columns).astype(f32) * 0.01
    return Sample(f"bf16 {m}x{columns}x{k}", {"a": n((m, k), bf16), "b": codes, "scale_b": scales})


want("int4-uneven-rows", "matmul_int4", uneven_int4((2, 3), 128, 24), "even_rows")
want("int4-f32-weights", "matmul_int4", int4(3, 128, 24), "f32_weights")
want("w8a16-tiles", "matmul_int8", w8a16(67, 24, 80), "gemv_tiles")
want("w8a16-f32-weights", "matmul_int8", w8a16(3, 24, 80), "f32_weights")


# ---- NF4 weights: rings of slabs that wrap, sums of parts of K, and a mean of several sums
def nf4(m: int, n: int, k: int, **of: Any) -> Sample:
    made = {"x": rng.standard_normal((m, k)).astype(f16), **nf4_weight(rng, (n, k), **of)}
    return Sample(f"f16 {m}x{n}x{k}", made)


want("nf4-f32-weights", "matmul_nf4", nf4(3, 18, 128, double=True), "f32_weights")
want("nf4-gemv-ring-wraps", "matmul_nf4", nf4(9, 18, 2112, double=True), "gemv", ("16x1 across=1 stages=2",))
heights = {"x": rng.standard_normal((4200, 64)).astype(f16)}
want(
    "nf4-sums-of-magnitudes", "quantize_nf4", Sample("f16[4200, 64] double", heights, {"double_quant": True}), "blocks"
)


# ---- weights in GGUF blocks: more chunks than a warp holds, further rows of weights, codes from shared memory, staged rows of x
def in_blocks(kind: str, m: int, columns: int, k: int) -> Sample:
    form = GgufFormat.of(kind)
    w = blocks(rng, form, columns * k // form.block.weights).reshape(columns, -1)
    return Sample(f"{kind} {m}x{columns}x{k}", {"x": n((m, k), bf16), "w": w}, {"format": form.value})


want(
    "gguf-rings-that-wrap",
    "matmul_gguf",
    in_blocks("Q6_K", 1, 34, 1280),
    "exact_activation",
    ("warps_n=1 warps_k=4 stages=2*",),
    sms=1,
)
in_order = in_blocks("Q4_K", 3, 34, 1280)
want("gguf-f32-weights", "matmul_gguf", in_blocks("Q6_K", 3, 13, 256), "f32_weights")
want("gguf-q8-in-order", "matmul_gguf", replace(in_order, options={**in_order.options, "math": "int8"}), "q8_in_order")
want("gguf-codes-from-shared-memory", "matmul_gguf", in_blocks("IQ4_NL", 1, 13, 256), "exact_activation", ("* book",))
want("gguf-staged-activations", "matmul_gguf", in_blocks("Q6_K", 3, 13, 256), "exact_activation", ("* staged",))


# ---- int8: sums of long lines; columns that end within a CTA's, at a K of many rounds
def codes(*shape: int) -> Any:
    return rng.integers(-128, 128, shape).astype(np.int8)


lines: dict[str, Any] = {"a": codes(66, 1100), "b": codes(64, 1100).T, "zero_a": codes(66), "zero_b": codes(1, 64)}
want("int8-sums-of-long-lines", "matmul_int8", Sample("i8 66x64x1100 zero points", lines), "mma")
ragged = Sample("i8 3x144x1100, b in rows", {"a": codes(3, 1100), "b": codes(1100, 144)})
want("int8-ragged-columns", "matmul_int8", ragged, "gemv", ("blocks=8 unroll=1 warps=8",))
