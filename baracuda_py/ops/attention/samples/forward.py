"""Samples of attention: few and small, every feature alone and some together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ....samples.sample import Sample, values
from ....types import ElementKind

__all__ = ["attention", "cast", "named", "qkv"]

Array = np.ndarray[Any, Any]
F16, BF16, F32, F64 = ElementKind.F16, ElementKind.BF16, ElementKind.F32, ElementKind.F64
ORDERS = {"BHSD": (0, 1, 2, 3), "BSHD": (0, 2, 1, 3)}


def qkv(
    rng: np.random.Generator, element: ElementKind, batch: int, heads: tuple[int, int], rows: int, keys: int, d: int,
    d_v: int | None = None, layout: str = "BHSD",
) -> dict[str, Array]:  # fmt: skip
    """q, k and v of normal values, (query, key) `heads`; in whatever layout, contiguous."""
    hq, hkv = heads
    shapes = {"q": (batch, hq, rows, d), "k": (batch, hkv, keys, d), "v": (batch, hkv, keys, d_v or d)}
    return {n: values(rng, tuple(s[a] for a in ORDERS[layout]), element, 1.0) for n, s in shapes.items()}


def attention(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:  # noqa: ARG001
    """Sizes, types, head dims and layouts; features. `full`: also what others have a part of."""
    rng = np.random.default_rng(seed)

    def sample(label: str, operands: dict[str, Any], **options: Any) -> Sample:
        return Sample(label, operands, options)

    yield sample("bf16 d128 GQA, causal", qkv(rng, BF16, 1, (4, 2), 113, 203, 128), causal=True, return_lse=True)
    sizes = [(0, 5), (5, 0), (1, 257)] + ([(1, 1), (70, 33), (1, 4097), (1023, 1024), (33, 500)] if full else [])
    for rows, keys in sizes:
        yield sample(f"bf16 {rows} x {keys}", qkv(rng, BF16, 1, (2, 1), rows, keys, 64), causal=True, return_lse=True)
    yield from _features(rng, full)
    yield from _ragged(rng)
    yield sample("f16 d80 d_v96", qkv(rng, F16, 1, (2, 1), 35, 45, 80, 96), return_lse=True)
    tf32 = qkv(rng, F32, 1, (2, 1), 35, 75, 72, 64)
    yield sample("tf32 d72 d_v64", tf32, math="tf32", causal=True, window=(30, -1), scale=-0.1, return_lse=True)
    yield sample("f16 many blocks, negative scale", qkv(rng, F16, 1, (1, 1), 70, 450, 64), window=(300, 20), scale=-0.2)
    yield sample("bf16 d256, causal", qkv(rng, BF16, 1, (1, 1), 70, 150, 256), causal=True, return_lse=True)
    yield sample("bf16 MLA", qkv(rng, BF16, 1, (2, 1), 3, 40, 576, 512), causal=True)
    one = {n: x[0, 0] for n, x in qkv(rng, F32, 1, (1, 1), 20, 20, 24).items()}
    yield sample("f32 one head of rank 2", one, return_lse=True)
    yield sample("f16 BSHD", qkv(rng, F16, 2, (2, 1), 37, 41, 64, layout="BSHD"), layout="BSHD", causal=True)
    wide = qkv(rng, BF16, 1, (2, 2), 40, 48, 72)
    yield sample("bf16 rows apart", {n: x[..., :64] for n, x in wide.items()})
    yield sample("bf16 rows at odd places", {n: x[..., 1:65] for n, x in wide.items()}, causal=True)
    far = {**qkv(rng, BF16, 1, (2, 1), 35, 90, 64), "alibi_slopes": np.array([0.25, -(2.0**25)], np.float32)}
    yield sample("bf16 softcap, alibi, scores of 2^31", far, softcap=5.0, causal=True, return_lse=True)
    if full:
        yield sample("bf16 d64", qkv(rng, BF16, 1, (2, 2), 50, 70, 64))
        yield sample("tf32 d32", qkv(rng, F32, 1, (2, 1), 35, 75, 32), math="tf32", return_lse=True)
        for element, d, d_v in ((F32, 40, 40), (F64, 33, 20), (F16, 32, 32)):
            yield sample(f"{element} d{d} d_v{d_v}", qkv(rng, element, 1, (2, 1), 35, 45, d, d_v), return_lse=True)


def _features(rng: np.random.Generator, full: bool) -> Iterator[Sample]:
    def problem(element: ElementKind = BF16, d: int = 64) -> dict[str, Any]:
        return qkv(rng, element, 2, (2, 1), 45, 77, d)

    def logits(*shape: int) -> Array:
        return rng.standard_normal(shape).astype(np.float32)

    slopes = np.array([0.5, 0.0625], np.float32)
    yield Sample("bf16 window", problem(), {"window": (20, 3), "return_lse": True})
    softcap = {"softcap": 5.0, "causal": True, "window": (31, None)}
    yield Sample("f16 softcap, causal, window, sinks", {**problem(F16), "sinks": cast(logits(2), F16)}, softcap)
    yield Sample("bf16 alibi", {**problem(), "alibi_slopes": slopes}, {"causal": True})
    yield Sample(
        "f32 alibi a sequence, scale",
        {**problem(F32, 32), "alibi_slopes": np.stack([slopes, slopes * 2])},
        {"scale": 0.3},
    )
    hidden = rng.random((2, 1, 45, 77)) < 0.5
    hidden[:, :, 5] = False
    blocks = np.array([[1, 0, 1], [0, 0, 0], [0, 1, 1]], bool)[None, None]
    block = {"block_size": (16, 32), "return_lse": True}
    yield Sample("bf16 bool mask, block mask", {**problem(), "mask": hidden, "block_mask": blocks}, block)
    added = logits(45, 77)
    added[7] = -np.inf
    yield Sample("f16 added mask", {**problem(F16), "mask": added}, {"return_lse": True})
    yield Sample(
        "bf16 added mask of its type", {**problem(), "mask": cast(logits(2, 2, 45, 1), BF16)}, {"causal": True}
    )
    yield Sample("bf16 sinks", {**problem(), "sinks": logits(2)}, {"causal": True, "offset": -4, "return_lse": True})
    yield Sample("f64 everything", {
        **qkv(rng, F64, 1, (2, 1), 45, 77, 33, 20), "sinks": logits(2), "alibi_slopes": slopes, "mask": hidden[:1],
        "block_mask": np.ones((1, 1, 3, 3), bool),
    }, {"causal": True, "window": (40, 0), "softcap": 3.0, "offset": 20, "block_size": (16, 32), "return_lse": True})  # fmt: skip
    if full:
        yield Sample("bf16 offset", problem(), {"causal": True, "offset": 3, "return_lse": True})
        yield Sample("bf16 bool mask", {**problem(), "mask": hidden}, {"return_lse": True})
        yield Sample("bf16 block mask", {**problem(), "block_mask": blocks}, block)
        of_its_type = {**problem(), "sinks": cast(logits(2), BF16)}
        yield Sample("bf16 sinks of its type, window", of_its_type, {"causal": True, "window": (15, 0)})


def _ragged(rng: np.random.Generator) -> Iterator[Sample]:
    """Sequences one behind the other, some empty, some that no query sees."""
    starts_q, starts_k = np.array([0, 7, 7, 40, 41], np.int32), np.array([0, 30, 35, 35, 100], np.int32)
    for label, options in (("", {}), (", causal", {"causal": True, "return_lse": True, "max_seqlen_q": 33})):
        made = {n: values(rng, s, BF16, 1.0) for n, s in (("q", (41, 2, 64)), ("k", (100, 1, 64)), ("v", (100, 1, 64)))}
        operands = {**made, "cu_seqlens_q": starts_q, "cu_seqlens_k": starts_k}
        yield Sample(f"bf16 ragged{label}", operands, {"layout": "THD", **options})


def named(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:  # noqa: ARG001
    """Of one head and of several; f32 too where the name takes it."""
    rng = np.random.default_rng(seed)
    yield Sample("f16 rank 2", {n: x[0, 0] for n, x in qkv(rng, F16, 1, (1, 1), 64, 64, 64).items()})
    made = qkv(rng, BF16, 1, (2, 1), 33, 200, 72, 64)
    yield Sample("bf16 GQA, mask", {**made, "mask": rng.random((33, 200)) < 0.5}, {"return_lse": True})
    if "tc" not in dict(fixed)["name"]:
        yield Sample("f32 rank 2", {n: x[0, 0] for n, x in qkv(rng, F32, 1, (1, 1), 30, 40, 32).items()})


def cast(x: Array, element: ElementKind) -> Array:
    return x.astype(element.dtype)
