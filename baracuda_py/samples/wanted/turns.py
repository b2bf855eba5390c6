"""What only large problems have: second turns of loops, later bands, blocks and rounds, chunks of several rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..sample import Sample
from .problem import bf16, f16, f32, n, rng, want
from .products import mm

# ---- scans: chunks of several rows, and blocks of columns of several rows
want("scan-chunks-of-several-rows", "cumsum", Sample("f32 2x33001", {"x": n((2, 33001))}, {"axis": 1}), "rows")
want("scan-blocks-of-columns", "cumsum", Sample("f32 3x40x150", {"x": n((3, 40, 150))}, {"axis": 1}), "columns")

# ---- reductions, sorts and norms
rising = np.arange(2 * 40_003, dtype=np.float32).reshape(2, -1)
want("topk-greatest-far-behind", "topk", Sample("f32 1 of 40003 rising", {"x": rising}, {"k": 1}), "greatest_rows")
shared = {"x": n((2, 70_008), bf16), "residual": n((2, 70_008), bf16), "weight": n((70_008,), bf16)}
summed = Sample("bf16 2x70008, residual", {**shared, "residual_out": np.zeros_like(shared["x"])})
want("cluster-rms_norm-residual", "rms_norm", summed, configs=("*ctas=*",))

# ---- products: a second band of tiles; sums of long lines; columns that end within a CTA's, at a K of many rounds
want("simt-two-bands", "matmul", mm(300, 36, 17, f32), "simt", ("32x32x16 *",))


def codes(*shape: int) -> Any:
    return rng.integers(-128, 128, shape).astype(np.int8)


lines: dict[str, Any] = {"a": codes(66, 1100), "b": codes(64, 1100).T, "zero_a": codes(66), "zero_b": codes(1, 64)}
want("int8-sums-of-long-lines", "matmul_int8", Sample("i8 66x64x1100 zero points", lines), "mma")
ragged = Sample("i8 3x144x1100, b in rows", {"a": codes(3, 1100), "b": codes(1100, 144)})
want("int8-ragged-columns", "matmul_int8", ragged, "gemv", ("blocks=8 unroll=1 warps=8",))

# ---- heads in rounds, written elsewhere than they are read
heads = {"x": n((2, 9, 5, 64), bf16), "inv_freq": (10000.0 ** (-np.arange(32) / 32)).astype(f32)}
spaced = Sample("bf16 every other head of out", {**heads, "out": n((2, 18, 5, 64), bf16)[:, ::2]})
want("rope-rounds-into-spaced-heads", "rope", spaced, "pairs", ("*heads=2 rounds=2*", "*rounds=4*"))

# ---- appends: more sequences than threads, and more requests without tokens
places = rng.integers(-1, 4, 700)
caches = {f"{x}_cache": n((700, 1, 2, 8), f16) for x in "kv"}
nothing = {"k": n((700, 1, 0, 8), f16), "v": n((700, 1, 0, 8), f16), "positions": places}
want("append-nothing-to-many", "kv_append", Sample("f16 0 tokens, 700 sequences", {**caches, **nothing}))
asked: dict[str, Any] = {
    **{f"{x}_pages": np.zeros((700, 4, 1, 16), f16) for x in "kv"}, **{x: n((3, 1, 16), f16) for x in "kv"},
    "page_table": np.arange(700, dtype=np.int32)[:, None].copy(), "lengths": np.zeros(700, np.int32),
    "cu_seqlens": np.minimum(np.arange(701), 3).astype(np.int32),
}  # fmt: skip
want("append-to-few-of-many-requests", "paged_kv_append", Sample("f16 3 tokens of 700 requests", asked), "one_launch")


# ---- gradients of sinks, of more rows than a CTA has threads
def with_sinks(rows: int, keys: int, d: int) -> Sample:
    """One head of attention with a sink, and its results as they would have been saved."""
    q, k, v, grad = (n((1, 1, x, d), f32) for x in (rows, keys, keys, rows))
    scores, sink = q @ k.swapaxes(-1, -2) / np.sqrt(d), n((1,))
    lse = np.log(np.exp(scores).sum(-1) + np.exp(sink))
    out = (np.exp(scores - lse[..., None]) @ v).astype(f32)
    given = {"q": q, "k": k, "v": v, "sinks": sink, "grad": grad, "out": out, "lse": lse.astype(f32)}
    return Sample(f"f32 {rows} rows, a sink", given)


want("sinks-of-many-rows", "attention_backward", with_sinks(300, 9, 16))
