"""Reductions: chunks of rows and columns, several NaN."""

from __future__ import annotations

import numpy as np

from ...samples.sample import Sample
from ...samples.wanted import Problems, bf16

problems = Problems()
n, want = problems.normal, problems.want

want("reduce-beyond-vectors", "sum", Sample("bf16 1003", {"x": n((1003,), bf16)}, {"axis": 0}), "rows")
want("reduce-chunks-of-rows", "argmax", Sample("f32 70001", {"x": n((70001,))}, {"axis": 0}), "rows")
want("reduce-chunks-of-columns", "var", Sample("f32 1100x70", {"x": n((1100, 70))}, {"axis": 0}), "columns")

twice = n((2, 1024))
twice[:, [3, 515, 1023]] = np.nan
want("argmax-of-two-nan", "argmax", Sample("f32 2x1024, NaN at 3, 515 and 1023", {"x": twice}, {"axis": 1}), "rows")
