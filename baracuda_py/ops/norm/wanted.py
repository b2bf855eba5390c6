"""Norms: rows of a cluster, rows that start anywhere, gradients of several rows per CTA."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...samples.sample import Sample
from ...samples.wanted import Problems, bf16, f16, f32
from .._row_problems import cluster, kept, resident, unaligned

problems = Problems()
n, want = problems.normal, problems.want


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

# Rows of a cluster, and rows that start anywhere
for columns in (70_001, 70_008):
    cluster(problems, "rms_norm", columns, bf16, "x", weight=bf16)
for columns in (34_999, 35_000):
    cluster(problems, "layer_norm", columns, f32, "x", weight=f32, bias=f32)
cluster(problems, "rms_norm_int8", 70_008, bf16, "x", weight=bf16)
grouped_codes = Sample("bf16 2x70016, groups", {"x": n((2, 70_016), bf16)}, {"per": "group", "group_size": 64})
want("cluster-layer_norm_fp8-groups", "layer_norm_fp8", grouped_codes, configs=("*ctas=*",))
kept(problems, "rms_norm", 70_003, bf16, "x", weight=bf16)
kept(problems, "layer_norm", 33_001, f32, "x", weight=f32, bias=f32)
unaligned(problems, "rms_norm", f16, "x", weight=f32)
unaligned(problems, "layer_norm", bf16, "x", weight=bf16, bias=bf16)

# Gradients of long rows: of a CTA, and of a cluster that keeps both inputs, one or none; none starts where another does
for columns, configs in ((9001, "*lanes=512"), (33_001, "*kept=2"), (70_003, "*kept=1"), (70_003, "*lanes=512 ctas=?")):
    centered = columns != 33_001
    given = gradient((2, columns), f32, centered=centered)
    moved = {name: problems.padded((2, columns), f32, 1 + 2 * i) for i, name in enumerate(("grad", "x"))}
    sample = Sample(f"{given.label}, odd", {**given.operands, **moved, "weight": n((columns + 1,), f32)[1:]})
    op = "layer_norm_backward" if centered else "rms_norm_backward"
    want(f"long-gradient-{columns}-{configs.strip('*?')}", op, sample, "long", (configs,), arch="sm_90a")

want("norm-gradient-in-stripes", "layer_norm_backward", gradient((70, 20000), bf16), "rows")
shared = {"x": n((2, 70_008), bf16), "residual": n((2, 70_008), bf16), "weight": n((70_008,), bf16)}
summed = Sample("bf16 2x70008, residual", {**shared, "residual_out": np.zeros_like(shared["x"])})
want("cluster-rms_norm-residual", "rms_norm", summed, configs=("*ctas=*",))

# Groups of channels that a cluster shares
channels, parts = (1, 2, 35_000), {"weight": n((2,), f32), "bias": n((2,), f32)}
groups = {"num_groups": 1}
grouped = Sample("f32 1x2x35000, one group", {"x": n(channels, f32), **parts}, groups)
want("cluster-group_norm", "group_norm", grouped, configs=("*ctas=*",))
kept_statistics = {"running_mean": n((2,)), "running_var": abs(n((2,)))}
want("cluster-batch_norm_running", "batch_norm_running", Sample("f32 1x2x35000", {"x": n(channels, f32), **kept_statistics}),
     configs=("*ctas=*",))  # fmt: skip
statistics = {"mean": n((1, 1)), "rstd": abs(n((1, 1))) + f32.type(0.1)}
operands = {"grad": n(channels, f32), "x": n(channels, f32), "weight": parts["weight"], **statistics}
backward = Sample("f32 1x2x35000, one group", operands)
want("cluster-group_norm_backward", "group_norm_backward", backward, configs=("*ctas=*",))

# Vectors that a cluster divides by their lengths
for op, axis, per_row in (("normalize", 1, {}), ("weight_norm", 0, {"g": n((2, 1), f32)})):
    vectors = {"x": n((2, 35_003), f32), **per_row}
    for name, arrays in ((op, vectors), (f"{op}_backward", {"grad": n((2, 35_003), f32), **vectors})):
        want(f"cluster-{name}", name, Sample("f32 2x35003", arrays, {"axis": axis}), "rows", ("*ctas=*",))

# Vectors of which none starts where another does: in registers, streamed by a CTA and by a cluster, kept; and down a long axis
UNALIGNED = (
    ((5, 1001), bf16, "unaligned", "*resident*"), ((2, 20_001), bf16, "unaligned", "*lanes=512"),
    ((2, 70_003), bf16, "unaligned", "*ctas=*"), ((2, 33_001), f32, "kept", "*kept=?"),
)  # fmt: skip
for op, axis in (("normalize", 1), ("weight_norm", 0)):
    for shape, dt, variant, config in UNALIGNED:
        moved = {name: problems.padded(shape, dt, 1 + 2 * i) for i, name in enumerate(("x", "grad"))}
        per_row = {"g": n((shape[0], 1), dt)} if axis == 0 else {}
        for name, arrays in ((op, {"x": moved["x"], **per_row}), (f"{op}_backward", {**moved, **per_row})):
            sample = Sample(f"{dt} {shape[0]}x{shape[1]}, odd", arrays, {"axis": axis})
            want(f"{variant}-{name}-{shape[1]}", name, sample, variant, (config,), arch="sm_90a")
    down = {name: n((32_773, 3), f32) for name in ("x", "grad")}
    per_column = {"g": n((1, 3), f32)} if op == "weight_norm" else {}
    for name, arrays in ((op, {"x": down["x"], **per_column}), (f"{op}_backward", {**down, **per_column})):
        sample = Sample("f32 32773x3, down", arrays, {"axis": 1 - axis})
        want(f"columns-{name}", name, sample, "columns", ("*parts=*",), arch="sm_90a")

# Rows that start anywhere, in registers of one warp or of several
for columns, dt in ((203, bf16), (1001, f32)):
    resident(problems, "rms_norm", columns, dt, "x", weight=f32)
    resident(problems, "layer_norm", columns, dt, "x", weight=dt, bias=dt)
