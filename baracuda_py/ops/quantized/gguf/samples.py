"""Samples of blocks of GGUF formats: random ones, and those with extreme scales and codes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np

from ....samples.sample import Sample, values
from ....types import ElementKind
from ....types.gguf import GgufFormat

__all__ = ["adversarial_blocks", "blocks", "dequantize", "matmul", "quantize"]

Array: TypeAlias = np.ndarray[Any, Any]
F16, BF16, F32 = ElementKind.F16, ElementKind.BF16, ElementKind.F32
# f16: zeros, subnormals, ones, the largest, what is not finite.
HALVES = (0x0000, 0x8000, 0x0001, 0x83FF, 0x0400, 0x3C00, 0xBC01, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7E00)


def blocks(rng: np.random.Generator, kind: GgufFormat, count: int, scale: float = 0.05) -> Array:
    """Random bytes, and numbers of the size of `scale` where there are such; u8 [count, bytes]."""
    block = kind.block
    made = rng.integers(0, 256, (count, block.nbytes), dtype=np.uint8)
    for of in (block.d, *((block.least,) if block.least else ())):
        sizes = scale * rng.standard_normal((count, 1))
        if of.kind == "e8m0":
            made[:, of.at] = rng.integers(118, 128, count)
        else:
            number = sizes.astype(np.float16 if of.kind == "f16" else np.float32)
            made[:, of.at : of.at + number.itemsize] = number.view(np.uint8)
    return made


def adversarial_blocks(rng: np.random.Generator, kind: GgufFormat) -> Array:
    """Every extreme of d (and of the minimum beside it), codes of all zeros and ones, and every byte of the scales."""
    block = kind.block
    made = blocks(rng, kind, 256)
    made[::3] = np.where(rng.random((len(made[::3]), 1)) < 0.5, np.uint8(0), np.uint8(255))
    for i in range(256):
        if block.d.kind == "f16":
            d = np.array([HALVES[i % len(HALVES)]], np.uint16)
            made[i, block.d.at : block.d.at + 2] = d.view(np.uint8)
        elif block.d.kind == "f32":
            d32 = np.array([0, -0.0, 1e-45, 1e-38, 1, 3e38, np.inf, np.nan], np.float32)[i % 8 : i % 8 + 1]
            made[i, block.d.at : block.d.at + 4] = d32.view(np.uint8)
        else:
            made[i, block.d.at] = i * 171 % 256  # every one; every third are the least
        if block.least is not None:
            m = np.array([HALVES[i // len(HALVES) % len(HALVES)]], np.uint16)
            made[i, block.least.at : block.least.at + 2] = m.view(np.uint8)
        first = min(plane.at for plane in block.scales) if isinstance(block.scales, tuple) and block.scales else 4
        if block.scales:
            made[i, first + i % 4] = i
    return made


def dequantize(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:  # noqa: ARG001
    """Every format, random and adversarial, into every type; rows, shapes, an odd address, nothing."""
    rng = np.random.default_rng(seed)
    for i, kind in enumerate(GgufFormat):
        out = (F32, F16, BF16)[i % 3]
        made = blocks(rng, kind, 6).reshape(3, -1)
        yield Sample(f"{kind} to {out}", {"blocks": made}, {"format": kind.value, "out_dtype": out})
    for i, kind in enumerate(GgufFormat):
        out = (BF16, F16, F32)[i % 3]  # MXFP4's least numbers are f32's alone
        made = np.ascontiguousarray(adversarial_blocks(rng, kind)[:: 1 if full else 3])
        yield Sample(f"{kind} adversarial to {out}", {"blocks": made}, {"format": kind.value, "out_dtype": out})
    for kind in (GgufFormat.Q4_0, GgufFormat.Q6_K, GgufFormat.Q4_K, GgufFormat.Q8_K):
        memory = np.zeros(4 * kind.block.nbytes + 1, np.uint8)
        memory[1:] = blocks(rng, kind, 4).reshape(-1)
        yield Sample(
            f"{kind} at an odd address", {"blocks": memory[1:]},
            {"format": kind.value, "shape": (2, 2 * kind.block.weights)},
        )  # fmt: skip
    yield Sample("no blocks", {"blocks": np.zeros((0, 144), np.uint8)}, {"format": "q4_k"})


def quantize(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:  # noqa: ARG001
    """Every format that is made, of every type; ragged rows, zeros, extremes, what is not finite."""
    from .oracle.quantize import QUANTIZED

    rng = np.random.default_rng(seed)
    for i, kind in enumerate(QUANTIZED):
        element = (F32, F16, BF16)[i % 3]
        yield Sample(f"{element} to {kind}", {"x": values(rng, (3, 512), element)}, {"format": kind.value})
    for i, kind in enumerate(QUANTIZED):
        element = (BF16, F32, F16)[i % 3]
        x = values(rng, (5, 300 + i), element)
        yield Sample(f"{element} to {kind}, padded", {"x": x}, {"format": kind.value, "pad": True})
    corners = np.array([0, -0.0, np.inf, -np.inf, np.nan, 1e-45, 3e38, -3e38, 1e-38, 7, -7, 0.5], np.float32)
    for kind in QUANTIZED:
        x = np.zeros((4, 512), np.float32)
        x[0, : len(corners)] = corners
        x[1] = values(rng, (512,), F32, 1e-39)
        x[2, ::2] = -0.0
        x[3] = np.round(values(rng, (512,), F32)) / 2  # ties, where the largest is a number of steps
        x[3, ::32] = 127
        yield Sample(f"corners to {kind}", {"x": x}, {"format": kind.value})
    yield Sample("no rows", {"x": np.zeros((0, 256), np.float32)}, {"format": "q4_k"})


def matmul(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:
    """Every format by few rows of every type, ragged N, row pitches of every alignment, both arithmetics, and many rows."""
    rng = np.random.default_rng(seed)
    only = fixed.get("format")

    def sample(kind: GgufFormat, m: Any, n: int, count: int, element: ElementKind, **options: Any) -> Sample:
        lead = m if isinstance(m, tuple) else (m,)
        w = blocks(rng, kind, n * count).reshape(n, -1)
        x = values(rng, (*lead, count * kind.block.weights), element, 1.0)
        label = f"{kind} {element}{list(x.shape)} N={n}" + "".join(f" {k}={v}" for k, v in options.items())
        return Sample(label, {"x": x, "w": w}, ({} if only else {"format": kind.value}) | options)

    if only:
        kind = GgufFormat.of(only)
        yield sample(kind, 1, 18, 1, BF16)
        yield sample(kind, (), 34, 3, F16, out_dtype=F32)
        yield sample(kind, 8, 13, 1, F32, math="int8")
        yield sample(kind, 0, 20, 1, F16)
        return
    yield sample(GgufFormat.Q5_K, 1, 18, 2, F16)
    yield sample(GgufFormat.Q4_K, 1, 18, 5, F16)
    yield sample(GgufFormat.Q4_K, 3, 13, 4, BF16)
    yield sample(GgufFormat.Q4_0, (5,), 18, 5, F16)  # chunks that begin anywhere
    yield sample(GgufFormat.Q6_K, 3, 13, 2, BF16)
    yield sample(GgufFormat.Q8_0, 1, 2, 16, F32)
    yield sample(GgufFormat.Q5_1, (2, 4), 30, 8, BF16, math="int8")
    yield sample(GgufFormat.Q3_K, 2, 14, 1, F32, math="int8", out_dtype=BF16)
    yield sample(GgufFormat.IQ4_XS, 1, 18, 1, F16, math="int8")
    yield sample(GgufFormat.MXFP4, 7, 13, 8, BF16)
    yield sample(GgufFormat.Q4_K, 17, 20, 1, BF16)
    yield sample(GgufFormat.Q4_K, 34, 66, 1, F16)  # two tiles of columns
    yield sample(GgufFormat.Q8_0, 0, 20, 8, F16)
    if full:
        yield from _every(sample)


def _every(sample: Callable[..., Sample]) -> Iterator[Sample]:
    """Every format by every arithmetic, and many rows."""
    for i, kind in enumerate(GgufFormat):
        few = 5 if kind.block.weights == 32 else 1 + i % 2
        chunk = 8 if kind.block.weights == 32 else 1
        yield sample(kind, (1, 2, 3, 5, 8)[i % 5], (18, 13, 2)[i % 3], few, (F16, BF16, F32)[i % 3])
        yield sample(kind, (3, 1, 2, 8)[i % 4], (14, 30)[i % 2], chunk, (BF16, F32, F16)[i % 3], math="int8")
        for m in (7, 63, 65):
            yield sample(kind, m, 30, 4 * chunk, (BF16, F16)[i % 2])
            yield sample(kind, m, 30, 4 * chunk, F32, math="int8")
