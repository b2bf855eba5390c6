"""Appends to pages: threads that take several heads, requests without tokens."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...samples.sample import Sample
from ...samples.wanted import Problems, f16

problems = Problems()
n, want = problems.normal, problems.want


# ---- appends whose threads take several heads, which long prefills get
def appended(heads: int) -> Sample:
    """Rotated tokens, quantised to 8 bits by row."""
    rows, pages = (40, heads, 128), (4, 16, heads)
    k = (n(rows) * np.arange(1, heads + 1)[:, None]).astype(f16)
    given = {
        **{f"{x}_pages": np.zeros((*pages, 128), np.int8) for x in "kv"}, "k": k, "v": k.copy(),
        "page_table": np.arange(4, dtype=np.int32)[None], "lengths": np.zeros(1, np.int32),
        "cu_seqlens": np.array([0, 40], np.int32), "inv_freq": (10000.0 ** (-np.arange(64) / 64)).astype(np.float32),
        **{f"{x}_scales": np.zeros(pages, np.float32) for x in "kv"},
    }  # fmt: skip
    return Sample(f"int8 {heads} heads", given)


for heads in (4, 8):
    want(f"append-heads-{heads}", "paged_kv_append", appended(heads), configs=("*heads=2*",))


# ---- more requests than threads, most of them without tokens
asked: dict[str, Any] = {
    **{f"{x}_pages": np.zeros((700, 4, 1, 16), f16) for x in "kv"}, **{x: n((3, 1, 16), f16) for x in "kv"},
    "page_table": np.arange(700, dtype=np.int32)[:, None].copy(), "lengths": np.zeros(700, np.int32),
    "cu_seqlens": np.minimum(np.arange(701), 3).astype(np.int32),
}  # fmt: skip
want("append-to-few-of-many-requests", "paged_kv_append", Sample("f16 3 tokens of 700 requests", asked), "one_launch")
