"""Samples of projections to queries, keys and values: widths that differ, few tokens and many, every kind of x."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from .....samples.sample import Sample
from .....types import ElementKind

__all__ = ["project"]

I8, BF16, F16 = ElementKind.I8, ElementKind.BF16, ElementKind.F16


def _case(
    rng: np.random.Generator, m: int, widths: tuple[int, ...], k: int, x: ElementKind, bias: bool
) -> dict[str, Any]:
    """Weights of unlike sizes, so that a projection that takes another's shows."""
    made: dict[str, Any] = {}
    tokens = rng.standard_normal((m, k)) if x.is_float else rng.integers(-128, 128, (m, k))
    made["x"] = tokens.astype(x.dtype)
    for size, part, n in zip((1, 7, 120), "qkv", widths):
        made[f"w{part}"] = rng.integers(-size, size + 1, (n, k)).astype(np.int8).T
        made[f"scale_{part}"] = rng.uniform(0.01, 0.02, n).astype(np.float32)
        if bias:
            made[f"bias_{part}"] = rng.standard_normal(n).astype(np.float32)
    return made


def project(_fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:
    rng = np.random.default_rng(seed)
    cases = [(1, (34, 18, 14), 128, BF16, False), (7, (48, 16, 13), 64, F16, True), (5, (18, 30, 2), 80, I8, True)]
    cases += [(66, (24, 8, 16), 48, I8, False), (65, (32, 8, 8), 64, BF16, False)]
    cases += [(m, (130, 30, 34), 100, x, True) for m in (1, 63, 65) for x in (I8, BF16)] if full else []
    for m, widths, k, x, bias in cases:
        given = _case(rng, m, widths, k, x, bias)
        if x is I8:
            given["scale_x"] = rng.uniform(0.5, 1.5, m).astype(np.float32)
        yield Sample(f"{x} {m}x{'+'.join(map(str, widths))}x{k}", given, {"out_dtype": "bf16"} if x is I8 else {})
    yield Sample("dynamic", _case(rng, 6, (24, 8, 8), 64, F16, True), {"dynamic": True})
    across = _case(rng, 3, (128, 16, 32), 36, BF16, False)
    across |= {f"w{part}": np.ascontiguousarray(across[f"w{part}"]) for part in "qkv"}
    yield Sample("weights along N", across)
    rotated = _case(rng, 6, (32, 16, 9), 48, F16, True)
    rotated["x"] = rotated["x"].reshape(2, 3, 48)
    frequencies = np.float32(0.3) ** np.arange(3, dtype=np.float32)
    yield Sample("turned", rotated | {"inv_freq": frequencies}, {"head_dim": 8})
    angles = np.arange(20)[:, None] * frequencies
    tables = {"cos": np.cos(angles).astype(np.float32), "sin": np.sin(angles).astype(np.float32)}
    rotated = _case(rng, 3, (24, 12, 4), 32, I8, False) | {"positions": np.array([7, 0, 19], np.int32), **tables}
    yield Sample("turned by tables", rotated, {"head_dim": 6, "style": "interleaved", "attention_factor": 1.5})
