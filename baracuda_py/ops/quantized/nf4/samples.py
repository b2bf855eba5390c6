"""Samples of NF4 weights: block sizes, both kinds of magnitudes, ragged extents, blocks of zeros and of what is not finite."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from ....samples.sample import Sample, values
from ....types import ElementKind

__all__ = ["dequantize_nf4", "matmul_nf4", "nf4_weight", "quantize_nf4"]

F16, BF16, F32 = ElementKind.F16, ElementKind.BF16, ElementKind.F32


def nf4_weight(
    rng: np.random.Generator, shape: tuple[int, ...], block_size: int = 64, *, double: bool = False
) -> dict[str, Any]:
    """Arrays of a weight: every code, and magnitudes that are all different."""
    blocks = -(-math.prod(shape) // block_size)
    made: dict[str, Any] = {"codes": rng.integers(0, 256, (*shape[:-1], shape[-1] // 2), dtype=np.uint8)}
    if not double:
        return made | {"absmax": (rng.random(blocks) * 0.2 + 0.01).astype(np.float32)}
    made["absmax"] = rng.integers(0, 256, blocks, dtype=np.uint8)
    made["scales"] = (rng.random(-(-blocks // 256)) * 0.05 + 0.01).astype(np.float32)
    return made | {"offset": np.asarray(np.float32(0.1))}


def matmul_nf4(_fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:
    """Tokens 1 to 65, ragged N, K that ends within a k_block, blocks within rows and across them, epilogues."""
    rng = np.random.default_rng(seed)

    def sample(
        m: int, n: int, k: int, block: int, element: ElementKind, more: Mapping[str, Any] = MappingProxyType({}), *,
        double: bool = False,
    ) -> Sample:  # fmt: skip
        label = f"{element} {m}x{n}x{k} block={block}" + " double" * double
        made = {"x": values(rng, (m, k), element, 1.0), **nf4_weight(rng, (n, k), block, double=double)}
        return Sample(label, made, {"block_size": block, **more})

    row = sample(1, 34, 320, 64, F16)
    yield Sample(f"{row.label} vector", {**row.operands, "x": row.operands["x"][0]}, row.options)
    batch = sample(6, 18, 192, 128, BF16, double=True)
    yield Sample(f"{batch.label} batch", {**batch.operands, "x": batch.operands["x"].reshape(2, 3, 192)}, batch.options)
    yield sample(2, 2, 576, 256, BF16, {"out_dtype": "f16"}, double=True)
    given = sample(3, 30, 128, 4096, F16, {"activation": "gelu"})
    yield Sample(given.label, {**given.operands, "bias": values(rng, (30,), F16, 1.0)}, given.options)
    yield sample(17, 18, 128, 64, BF16, double=True)
    yield sample(63, 13, 64, 64, F16, {"activation": "silu", "out_dtype": "f32"})
    given = sample(3, 24, 64, 64, F16)
    stored = np.zeros((64, 9), np.float16)
    stored[:, :3] = given.operands["x"].T
    out = np.zeros((3, 24), np.float16, order="F")
    yield Sample("columns", {**given.operands, "x": stored[:, :3].T, "out": out}, given.options)
    if full:
        for m in (1, 2, 4, 7, 8, 12, 16, 24, 65, 129):
            for block in (64, 128, 512, 4096):
                yield sample(m, 130, 512, block, (F16, BF16)[m % 2], double=m % 3 == 0)
    yield sample(0, 16, 64, 64, F16)


def dequantize_nf4(_fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:
    """Both kinds of magnitudes, results of each kind, blocks that go on in the next row, a last one that is short."""
    rng = np.random.default_rng(seed)
    for shape, block, double, out in (
        ((3, 128), 64, False, F32), ((2, 3, 64), 128, True, BF16), ((192,), 512, False, F16), ((17, 1024), 64, True, F16),
    ):  # fmt: skip
        label = f"{list(shape)} block={block}{' double' * double} {out}"
        options = {"block_size": block, "out_dtype": out.value}
        yield Sample(label, nf4_weight(rng, shape, block, double=double), options)
    if full:
        for block in (256, 1024, 2048, 4096):
            yield Sample(f"block={block}", nf4_weight(rng, (7, 4160), block, double=True), {"block_size": block})
    yield Sample("empty", nf4_weight(rng, (0, 64)), {})


def quantize_nf4(_fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:
    """Each way in which threads share a block, short last blocks, blocks of zeros, tiny and huge ones, what is not finite."""
    rng = np.random.default_rng(seed)
    cases: list[tuple[ElementKind, tuple[int, ...], int]]
    cases = [(F32, (5, 64), 64), (F16, (3, 192), 128), (BF16, (2, 320), 256), (F32, (9, 64), 512)]
    cases += [(F16, (4160,), 4096), (BF16, (5, 1024), 1024), (F32, (3, 2112), 2048)] * full
    for element, shape, block in cases:
        yield Sample(
            f"{element}{list(shape)} block={block}", {"x": values(rng, shape, element, 1.0)}, {"block_size": block}
        )
    x = values(rng, (6, 64), F32, 1.0)
    x[1], x[2] = 0, x[2] * np.float32(1e-39)
    x[3] *= np.float32(1e38) / np.abs(x[3]).max()
    x[4, 5:8] = np.nan, np.inf, -np.inf
    yield Sample("corners", {"x": x}, {})
    for element, rows in ((F32, 300), (BF16, 3)):
        yield Sample(f"{element} double {rows}", {"x": values(rng, (rows, 64), element, 1.0)}, {"double_quant": True})
    yield Sample("zeros double", {"x": np.zeros((2, 64), np.float16)}, {"double_quant": True})
    if full:
        yield Sample("sums of sums", {"x": values(rng, (4200, 64), F16, 1.0)}, {"double_quant": True})
    yield Sample("empty", {"x": np.zeros((0, 64), np.float16)}, {})
