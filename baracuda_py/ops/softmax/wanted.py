"""Softmax: rows of a cluster, streamed or kept, rows that start anywhere."""

from __future__ import annotations

from ...samples.sample import Sample
from ...samples.wanted import Problems, bf16, f16, f32
from .._row_problems import cluster, kept, resident, unaligned

problems = Problems()

for columns in (70_001, 70_008):
    cluster(problems, "softmax", columns, bf16, "x")
cluster(problems, "log_softmax", 35_011, f32, "x")
for columns in (70_001, 70_008):
    cluster(problems, "softmax_backward", columns, bf16, "grad", "y")
cluster(problems, "log_softmax_backward", 140_008, bf16, "grad", "y")
unaligned(problems, "softmax", f16, "x")
unaligned(problems, "log_softmax", f32, "x")
unaligned(problems, "softmax_backward", bf16, "grad", "y")
unaligned(problems, "log_softmax_backward", f32, "grad", "y")
kept(problems, "softmax", 70_003, bf16, "x")
kept(problems, "log_softmax", 33_001, f32, "x")
kept(problems, "softmax_backward", 70_003, bf16, "grad", "y")
kept(problems, "log_softmax_backward", 70_008, f16, "grad", "y")

# Down a long axis, shared by a cluster: its last part is shorter
down = Sample("f32 33003x5", {"x": problems.normal((33_003, 5), f32)}, {"axis": 0})
problems.want("cluster-softmax-columns", "softmax", down, "columns", ("*parts=*",))

# Rows that start anywhere, in registers of one warp or of several
for columns, dt in ((203, f16), (1001, f32)):
    resident(problems, "softmax", columns, dt, "x")
    resident(problems, "log_softmax", columns, dt, "x")
    resident(problems, "softmax_backward", columns, dt, "grad", "y")
    resident(problems, "log_softmax_backward", columns, dt, "grad", "y")
