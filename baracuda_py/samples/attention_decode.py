"""Samples of decoding: lengths, groups of heads, tokens, head dims, layouts, features, and enough keys for several splits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..types import ElementKind
from .attention import cast, qkv
from .sample import Sample

__all__ = ["attention_decode"]

Array = np.ndarray[Any, Any]
F16, BF16 = ElementKind.F16, ElementKind.BF16


def attention_decode(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:  # noqa: ARG001
    """Sizes, types, head dims and layouts; features."""
    rng = np.random.default_rng(seed)

    def sample(label: str, operands: dict[str, Any], lengths: Any = None, **options: Any) -> Sample:
        made = {} if lengths is None else {"lengths": np.array(lengths, np.int32)}
        return Sample(label, {**operands, **made}, options)

    yield sample("bf16 d64, lengths", qkv(rng, BF16, 3, (4, 2), 1, 70, 64), [1, 70, 33])
    yield sample("f16 d128, whole caches", qkv(rng, F16, 2, (8, 2), 1, 90, 128), return_lse=True)
    yield sample(
        "bf16 four tokens, lengths beyond the cache",
        qkv(rng, BF16, 4, (6, 2), 4, 41, 64),
        [0, 2, -9, 999],
        return_lse=True,
    )
    yield sample("bf16 several splits", qkv(rng, BF16, 1, (2, 1), 1, 700, 64), [650], return_lse=True)
    yield sample("bf16 several splits, 9 tokens", qkv(rng, BF16, 1, (2, 1), 9, 400, 32))
    yield sample("f16 64 rows and more", qkv(rng, F16, 1, (10, 1), 7, 60, 64), [57])
    yield sample("bf16 no token", qkv(rng, BF16, 1, (2, 1), 0, 20, 64))
    yield sample("bf16 empty cache", qkv(rng, BF16, 1, (2, 1), 1, 0, 64), return_lse=True)
    yield sample(
        "bf16 BSHD", qkv(rng, BF16, 2, (4, 2), 2, 50, 64, layout="BSHD"), [50, 17], layout="BSHD", return_lse=True
    )
    for element, d, d_v in ((F16, 32, 96), (BF16, 80, 72), (BF16, 256, 256)):
        yield sample(f"{element} d{d} d_v{d_v}", qkv(rng, element, 1, (2, 1), 1, 40, d, d_v), [35])
    latent = qkv(rng, BF16, 1, (4, 1), 1, 50, 576, 512)
    yield sample("bf16 latent, values are the keys' first columns", {**latent, "v": latent["k"][..., :512]}, [45])
    wide = qkv(rng, BF16, 2, (2, 2), 1, 40, 72)
    yield sample("bf16 rows apart", {n: x[..., :64] for n, x in wide.items()}, [40, 3])
    yield from _features(rng)
    if full:
        yield sample("bf16 long", qkv(rng, BF16, 2, (8, 2), 1, 5000, 128), [5000, 3111], return_lse=True)


def _features(rng: np.random.Generator) -> Iterator[Sample]:
    def problem(element: ElementKind = BF16, tokens: int = 3, keys: int = 200) -> dict[str, Any]:
        return {**qkv(rng, element, 2, (4, 2), tokens, keys, 64), "lengths": np.array([keys - 3, 60], np.int32)}

    def logits(*shape: int) -> Array:
        return rng.standard_normal(shape).astype(np.float32)

    slopes = np.array([0.5, 0.25, 0.125, 0.0625], np.float32)
    yield Sample("bf16 window", problem(), {"window": (70, 0), "return_lse": True})
    yield Sample("f16 window of one key", problem(F16), {"window": (0, 0)})
    yield Sample("f16 softcap, negative scale", problem(F16), {"softcap": 5.0, "scale": -0.2})
    yield Sample("bf16 negative scale", problem(), {"scale": -0.2})
    yield Sample("bf16 alibi", {**problem(), "alibi_slopes": slopes}, {"return_lse": True})
    yield Sample("f16 alibi a sequence", {**problem(F16), "alibi_slopes": np.stack([slopes, -slopes])}, {})
    yield Sample("bf16 sinks", {**problem(), "sinks": logits(4)}, {"return_lse": True})
    none = {**problem(), "lengths": np.array([0, 1], np.int32), "sinks": cast(logits(4), BF16)}
    yield Sample("bf16 sinks of its type, nothing seen", none, {"return_lse": True})
    yield Sample(
        "bf16 everything",
        {**problem(keys=500), "sinks": logits(4), "alibi_slopes": slopes},
        {"window": (300, None), "softcap": 3.0, "scale": 0.3, "return_lse": True},
    )
