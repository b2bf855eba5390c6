"""The selection set: 200 matrix products on which the choice among kernels is judged, deterministic; and those of the rows."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import NamedTuple

from .gemm_rows import GEMM_ROWS, Contest
from .products import SHORT, Product

__all__ = ["ROWS", "SHAPES", "Shape"]

SEED = 20261
RANDOM = 140
MOST_FLOPS, MOST_BYTES = 2e12, 1 << 30
DTYPES = (("bfloat16", 0.5), ("float16", 0.4), ("float32", 0.1))
LAYOUTS = (("rr", 0.4), ("rc", 0.4), ("cr", 0.1), ("cc", 0.1))
STEPS = ((1, 0.4), (8, 0.3), (64, 0.3))  # what extents are rounded to

# Projections as (model and layer, N, K): a linear layer keeps its weights as [N, K], GPT-2 as [K, N].
PROJECTIONS = (
    ("Llama-3 8B qkv", 6144, 4096),
    ("Llama-3 8B out", 4096, 4096),
    ("Llama-3 8B gate and up", 28672, 4096),
    ("Llama-3 8B down", 4096, 14336),
    ("Llama-3 8B head", 128256, 4096),
    ("Llama-3 70B qkv", 10240, 8192),
    ("Llama-3 70B out", 8192, 8192),
    ("Llama-3 70B gate and up", 57344, 8192),
    ("Llama-3 70B down", 8192, 28672),
    ("Qwen2.5 7B qkv", 4608, 3584),
    ("Qwen2.5 7B gate and up", 37888, 3584),
    ("Qwen2.5 7B down", 3584, 18944),
    ("Qwen3 32B qkv", 10240, 5120),
    ("Qwen3 32B out", 5120, 8192),
    ("Mixtral 8x7B expert in", 14336, 4096),
    ("Mixtral 8x22B expert out", 6144, 16384),
    ("Mixtral 8x7B router", 8, 4096),
    ("GPT-2 qkv", 2304, 768),
    ("GPT-2 in", 3072, 768),
    ("GPT-2 head", 50257, 768),
)
# Every projection once with the tokens of a decode step, once in between, once with those of a prefill.
TOKENS = ((1, 2, 4, 8, 16), (32, 64, 128, 256, 512), (1024, 2048, 4096, 8192))


class Shape(NamedTuple):
    """One product and where it comes from."""

    source: str
    product: Product
    title: str = ""

    @property
    def name(self) -> str:
        p = self.product
        return self.title or f"{p.m}x{p.n}x{p.k} {SHORT[p.dtype]} {p.layout}"


def _listed() -> Iterator[Shape]:
    for index, (source, n, k) in enumerate(PROJECTIONS):
        gpt = source.startswith("GPT-2")
        dtype, layout = ("float16", "rr") if gpt else ("bfloat16", "rc")
        for counts in TOKENS:
            yield Shape(source, Product(counts[index % len(counts)], n, k, dtype, layout))


def _random(rng: random.Random) -> Iterator[Shape]:
    """Log-uniform extents, half of them odd sizes, within what a quick timing can hold."""

    def pick(choices: tuple[tuple[object, float], ...]) -> object:
        at = rng.random()
        for value, weight in choices:
            at -= weight
            if at < 0:
                return value
        return choices[-1][0]

    def extent(least: int, most: int) -> int:
        size = least * (most / least) ** rng.random()
        step = pick(STEPS)
        assert isinstance(step, int)
        return max(least, round(size / step) * step)

    while True:
        m, n, k = extent(1, 8192), extent(16, 16384), extent(16, 16384)
        product = Product(m, n, k, str(pick(DTYPES)), str(pick(LAYOUTS)))
        if product.flops <= MOST_FLOPS and product.read + product.written <= MOST_BYTES:
            yield Shape("random", product)


def _shapes() -> Iterator[Shape]:
    yield from _listed()
    seen: set[Product] = set()
    for shape in _random(random.Random(SEED)):
        if shape.product not in seen:
            seen.add(shape.product)
            yield shape
        if len(seen) == RANDOM:
            return


SHAPES: tuple[Shape, ...] = tuple(_shapes())
ROWS: tuple[Shape, ...] = tuple(Shape("row", r.make.product, r.name) for r in GEMM_ROWS if isinstance(r.make, Contest))
