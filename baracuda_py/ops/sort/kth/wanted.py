"""Elements by rank: rows in parts, a k whose candidates are listed, NaN in several vectors, ties across tiles."""

from __future__ import annotations

import numpy as np

from ....samples.sample import Sample
from ....samples.wanted import Problems, bf16, f32, f64

problems = Problems()
rng, n, want = problems.rng, problems.normal, problems.want

want("kth-in-parts", "kthvalue", Sample("f32 33 of 17003", {"x": n((2, 17003))}, {"k": 33}), "split_rows")
want("kth-listed", "kthvalue", Sample("f32 9 of 5003", {"x": n((2, 5003))}, {"k": 9}), "select_rows")
tied = rng.integers(0, 3, (2, 9001)).astype(bf16)
want("kth-among-ties", "kthvalue", Sample("bf16 4000 of 9001", {"x": tied}, {"k": 4000}), "select_rows")
want(
    "kth-greatest-of-64-bits",
    "kthvalue",
    Sample("f64 3001 of 3001", {"x": n((2, 3001), f64)}, {"k": 3001}),
    "select_rows",
)
nan = n((3, 5000), f32)
nan[0, [4100, 4101, 4999]], nan[1] = np.nan, np.nan
want("median-nan-in-several-vectors", "median", Sample("f32 of 5000, NaN", {"x": nan}), "select_rows")
want("median-nan-in-short-rows", "median", Sample("f32 of 90, NaN", {"x": nan[:, 4080:4170]}), "sort_rows")
