"""Samples of attention of e4m3 operands: few and small, every feature alone and some together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np

from ...samples.sample import Sample

__all__ = ["attend", "qkv", "scales"]

Array = np.ndarray[Any, Any]
E4M3 = np.dtype(ml_dtypes.float8_e4m3fn)


def qkv(
    rng: np.random.Generator, batch: int, heads: tuple[int, int], rows: int, keys: int, d: int, d_v: int | None = None, *,
    layout: str = "BHSD",
) -> dict[str, Array]:  # fmt: skip
    """q, k and v of normal values, (query, key) `heads`; in whatever layout, contiguous."""
    hq, hkv = heads
    shapes = {"q": (batch, hq, rows, d), "k": (batch, hkv, keys, d), "v": (batch, hkv, keys, d_v or d)}
    axes = (0, 2, 1, 3) if layout == "BSHD" else (0, 1, 2, 3)
    return {n: rng.standard_normal(tuple(s[a] for a in axes)).astype(E4M3) for n, s in shapes.items()}


def scales(rng: np.random.Generator, *shape: int) -> Array:
    return (rng.random(shape) + 0.5).astype(np.float32)


def attend(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:  # noqa: ARG001
    """Sizes, head dims, layouts, scales; features. `full`: also what others have a part of."""
    rng = np.random.default_rng(seed)

    def sample(label: str, operands: dict[str, Any], **options: Any) -> Sample:
        return Sample(label, operands, options)

    of_heads = {"q_scales": scales(rng, 4), "k_scales": scales(rng, 2), "v_scales": scales(rng, 2)}
    first = {**qkv(rng, 1, (4, 2), 113, 203, 128), **of_heads}
    yield sample("d128 GQA, causal, scales", first, causal=True, return_lse=True, k_scale=0.5, v_scale=2.0)
    sizes = [(0, 5), (5, 0), (1, 257)] + ([(1, 1), (70, 33), (300, 257), (33, 500)] if full else [])
    for rows, keys in sizes:
        yield sample(f"{rows} x {keys}", qkv(rng, 1, (2, 1), rows, keys, 64), causal=True, return_lse=True)
    yield sample("d256, causal", qkv(rng, 1, (1, 1), 70, 150, 256), causal=True, return_lse=True)
    of_each = {"q_scales": scales(rng, 2, 2), "k_scales": -scales(rng, 2, 1), "v_scales": scales(rng, 2, 1)}
    batches = {**qkv(rng, 2, (2, 1), 45, 177, 64), **of_each}
    yield sample("scales a sequence, negative", batches, q_scale=0.7, return_lse=True)
    yield sample("softcap, window, f32", qkv(rng, 1, (2, 1), 45, 177, 64), softcap=5.0, window=(90, 3), out_dtype="f32")
    yield sample(
        "offset, f16", qkv(rng, 1, (2, 1), 45, 77, 64), causal=True, offset=-4, return_lse=True, out_dtype="f16"
    )
    starts_q, starts_k = np.array([0, 7, 7, 40, 41], np.int32), np.array([0, 30, 35, 35, 200], np.int32)
    ragged = {
        n: rng.standard_normal(s).astype(E4M3)
        for n, s in (("q", (41, 2, 64)), ("k", (200, 1, 64)), ("v", (200, 1, 64)))
    }
    ragged |= {"cu_seqlens_q": starts_q, "cu_seqlens_k": starts_k, "k_scales": scales(rng, 1)}
    yield sample("ragged, causal", ragged, layout="THD", causal=True, return_lse=True, max_seqlen_q=33)
    each = {"q_scales": scales(rng, 4, 2), "k_scales": scales(rng, 4, 1), "v_scales": scales(rng, 4, 1)}
    yield sample("ragged, scales a sequence", {**ragged, **each}, layout="THD")
    yield sample("d80 d_v96, negative scale", qkv(rng, 1, (2, 1), 35, 145, 80, 96), scale=-0.1, return_lse=True)
    yield sample("d24 d_v20", qkv(rng, 1, (2, 1), 35, 45, 24, 20), return_lse=True)
    one = {n: x[0, 0] for n, x in qkv(rng, 1, (1, 1), 20, 20, 64).items()}
    yield sample("one head of rank 2", {**one, "v_scales": scales(rng, 1)}, return_lse=True)
    yield sample("BSHD", qkv(rng, 2, (2, 1), 37, 41, 64, layout="BSHD"), layout="BSHD", causal=True)
    yield sample("rows apart", {n: x[..., :64] for n, x in qkv(rng, 1, (2, 2), 40, 48, 80).items()})
    yield sample(
        "rows at odd places", {n: x[..., 1:65] for n, x in qkv(rng, 1, (2, 2), 40, 48, 72).items()}, causal=True
    )
    backwards = qkv(rng, 1, (2, 1), 40, 48, 64)
    yield sample("rows backwards", {n: x[:, :, ::-1] for n, x in backwards.items()}, causal=True)
