"""Rows: top-k's lists, chunks of reductions and scans, norm gradients of several rows per CTA."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..sample import Sample
from .problem import bf16, f16, f32, f64, n, padded, rng, want


# ---- sort and indexing
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


# ---- rows
want("reduce-beyond-vectors", "sum", Sample("bf16 1003", {"x": n((1003,), bf16)}, {"axis": 0}), "rows")
want("reduce-chunks-of-rows", "argmax", Sample("f32 70001", {"x": n((70001,))}, {"axis": 0}), "rows")
want("reduce-chunks-of-columns", "var", Sample("f32 1100x70", {"x": n((1100, 70))}, {"axis": 0}), "columns")
want("scan-chunks-of-rows", "cumsum", Sample("f32 33001", {"x": n((33001,))}, {"axis": 0}), "rows")
want("scan-tiles-of-rows", "cumsum", Sample("f32 9001", {"x": n((2, 9001))}, {"axis": 1}), "rows")
want("scan-chunks-of-columns", "cumsum", Sample("f32 3x1030x5", {"x": n((3, 1030, 5))}, {"axis": 1}), "columns")


twice = n((2, 1024))
twice[:, [3, 515, 1023]] = np.nan
want("argmax-of-two-nan", "argmax", Sample("f32 2x1024, NaN at 3, 515 and 1023", {"x": twice}, {"axis": 1}), "rows")


def gradient(shape: tuple[int, int], dt: Any, *, centered: bool = True) -> Sample:
    """A layer norm's gradient, with a weight; not `centered`, an RMS norm's."""
    rows, columns = shape
    mean = {"mean": n((rows,))} if centered else {}
    return Sample(f"{dt} {rows}x{columns}", {
        "grad": n(shape, dt), "x": n(shape, dt), "weight": n((columns,), dt), **mean, "rstd": abs(n((rows,))) + f32.type(0.1),
    })  # fmt: skip


# More rows than an SM's CTAs have stages: of a CTA each, of groups, and of groups by accesses of 2 bytes
for shape, dt in (((17, 1040), f32), ((130, 264), bf16), ((110, 33), bf16)):
    want(f"norm-gradient-ahead-{shape[1]}", "layer_norm_backward", gradient(shape, dt), "rows", sms=1)
    of_rms = gradient(shape, dt, centered=False)
    want(f"rms-gradient-ahead-{shape[1]}", "rms_norm_backward", of_rms, "rows", sms=1)


# Rows that the CTAs of a cluster share: the last part is shorter, and ends within a vector
def cluster(op: str, columns: int, dt: Any, *names: str, **per_column: Any) -> None:
    arrays = {name: n((2, columns), dt) for name in names} | {k: n((columns,), v) for k, v in per_column.items()}
    want(f"cluster-{op}-{columns}", op, Sample(f"{dt} 2x{columns}", arrays), configs=("*ctas=*",))


for columns in (70_001, 70_008):
    cluster("softmax", columns, bf16, "x")
cluster("log_softmax", 35_011, f32, "x")
for columns in (70_001, 70_008):
    cluster("softmax_backward", columns, bf16, "grad", "y")
cluster("log_softmax_backward", 140_008, bf16, "grad", "y")
for columns in (70_001, 70_008):
    cluster("rms_norm", columns, bf16, "x", weight=bf16)
for columns in (34_999, 35_000):
    cluster("layer_norm", columns, f32, "x", weight=f32, bias=f32)


# Long rows, none of which starts where another does in its 16 bytes
def anywhere(op: str, dt: Any, *names: str, **per_column: Any) -> None:
    arrays = {name: padded((3, 2051), dt, 2 * i) for i, name in enumerate(names)}
    arrays |= {name: n((2052,), kind)[1:] for name, kind in per_column.items()}
    want(f"anywhere-{op}-2051", op, Sample(f"{dt} 3x2051", arrays), "anywhere")


anywhere("softmax", f16, "x")
anywhere("log_softmax", f32, "x")
anywhere("softmax_backward", bf16, "grad", "y")
anywhere("log_softmax_backward", f32, "grad", "y")
anywhere("rms_norm", f16, "x", weight=f32)
anywhere("layer_norm", bf16, "x", weight=bf16, bias=bf16)


want("norm-gradient-in-stripes", "layer_norm_backward", gradient((70, 20000), bf16), "rows")
