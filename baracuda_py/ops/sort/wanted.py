"""Top-k: lists in scratch, rows in parts, ties, NaN."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...samples.sample import Sample
from ...samples.wanted import Problems, bf16, f16, f32, f64

problems = Problems()
rng, n, want = problems.rng, problems.normal, problems.want


def ties(shape: tuple[int, ...], dt: Any, k: int, **options: Any) -> Sample:
    """A top-k where many elements are equal."""
    return Sample(f"{dt}{list(shape)} k {k}", {"x": rng.integers(0, 3000, shape).astype(dt)}, {"k": k, **options})


want("topk-runs-in-scratch", "topk", ties((2, 9001), f32, 5000), "select_rows")
want("topk-runs-of-64-bits", "topk", ties((1, 7000), np.dtype(np.int64), 7000, largest=False), "select_rows")
want("topk-in-parts", "topk", ties((2, 17003), f32, 33), "split_rows")
want("topk-parts-of-64-bits", "topk", ties((1, 17008), f64, 2000, largest=False, sorted=False), "split_rows")
want("topk-aligned-parts", "topk", ties((1, 24576), bf16, 9), "split_rows")
want("topk-runs-of-bytes", "topk", ties((1, 7000), np.dtype(np.uint8), 4500), "select_rows")
far = np.zeros((1, 5003), np.float32)
far[0, :10], far[0, 4900] = 5, 1
want("topk-last-one-far-behind", "topk", Sample("f32 11 of 5003", {"x": far}, {"k": 11}), "select_rows")
rising = np.arange(18_006, dtype=np.float32).reshape(2, 9003)
want("topk-of-elements-in-two-batches", "topk", Sample("f32 9 of 9003 rising", {"x": rising}, {"k": 9}), "select_rows")
tied, above, rare = np.zeros((1, 5003), np.float32), np.zeros((1, 20_000), np.float32), n((1, 6005))
# What is sampled: every ninth vector, or every fourth
tied[0, ::1000], above[0, : 30 * 144 : 144], rare[0, ::1500] = 1, 1, np.nan
want("topk-more-tie-than-are-listed", "topk", Sample("f32 40 of 5003", {"x": tied}, {"k": 40}), "select_rows")
want("topk-sample-above-the-rest", "topk", Sample("f32 50 of 20000", {"x": above}, {"k": 50}), "select_rows")
want("topk-nan-among-many", "topk", Sample("f32 14 of 6005", {"x": rare}, {"k": 14}), "select_rows")
rising = np.arange(2 * 40_003, dtype=np.float32).reshape(2, -1)
want("topk-greatest-far-behind", "topk", Sample("f32 1 of 40003 rising", {"x": rising}, {"k": 1}), "greatest_rows")
# Rows that registers hold, by a warp and by a CTA: a few threads have more great elements than count for the bound, so that more
# elements reach it than the list has room for.
for count, k, lanes, vector, great in ((600, 20, 32, 4, 4), (5001, 40, 256, 1, 16), (8000, 40, 128, 8, 8)):
    dt = bf16 if vector == 8 else f32
    crowded = n((2, count), dt)
    crowded[:, np.arange(crowded.shape[1]) // vector % lanes < great] += 9
    want(f"topk-held-crowded-{count}", "topk", Sample(f"{dt} {k} of {count}", {"x": crowded}, {"k": k}), "held_rows")
want(
    "topk-held-equal",
    "topk",
    Sample("f32 40 of 3000 equal", {"x": np.ones((2, 3000), np.float32)}, {"k": 40}),
    "held_rows",
)
for count, dt in ((700, bf16), (5001, f16)):
    want(
        f"topk-held-greatest-{count}",
        "topk",
        Sample(f"{dt} 1 of {count}", {"x": n((5, count), dt)}, {"k": 1}),
        "held_rows",
    )
special = n((4, 700), bf16)
special[:, 3::90], special[:, 5::110], special[:, 1::70] = -np.nan, np.nan, -0.0
for k in (1, 9):
    small = Sample(f"bf16 {k} smallest of 700, NaN", {"x": special}, {"k": k, "largest": False})
    want(f"topk-held-nan-700-{k}", "topk", Sample(f"bf16 {k} of 700, NaN", {"x": special}, {"k": k}), "held_rows")
    want(f"topk-held-smallest-{k}", "topk", small, "held_rows")
want("topk-held-100-of-3000", "topk", Sample("bf16 100 of 3000", {"x": n((3, 3000), bf16)}, {"k": 100}), "held_rows")
want("topk-held-150-of-5001", "topk", ties((2, 5001), f32, 150, sorted=False), "held_rows")
want("topk-greatest-tail", "topk", Sample("f32 1 of 9003", {"x": n((1, 9003))}, {"k": 1}), "greatest_rows")
want("topk-sorted-rows-in-order", "topk", ties((5, 300), f64, 7, sorted=False), "sort_rows")
