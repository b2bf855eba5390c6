"""Scans: chunks of rows and columns, blocks of columns."""

from __future__ import annotations

from ...samples.sample import Sample
from ...samples.wanted import Problems

problems = Problems()
n, want = problems.normal, problems.want

want("scan-chunks-of-rows", "cumsum", Sample("f32 33001", {"x": n((33001,))}, {"axis": 0}), "rows")
want("scan-tiles-of-rows", "cumsum", Sample("f32 9001", {"x": n((2, 9001))}, {"axis": 1}), "rows")
want("scan-chunks-of-columns", "cumsum", Sample("f32 3x1030x5", {"x": n((3, 1030, 5))}, {"axis": 1}), "columns")
want("scan-chunks-of-several-rows", "cumsum", Sample("f32 2x33001", {"x": n((2, 33001))}, {"axis": 1}), "rows")
want("scan-blocks-of-columns", "cumsum", Sample("f32 3x40x150", {"x": n((3, 40, 150))}, {"axis": 1}), "columns")
