"""Elementwise maps: several vectors per thread, corners of f64."""

from __future__ import annotations

import numpy as np

from ...samples.sample import Sample, adversarial
from ...samples.wanted import Problems, bf16
from ...types import ElementKind

problems = Problems()
n, want = problems.normal, problems.want

# ---- elementwise
want(
    "map-two-a-thread",
    "add",
    Sample("bf16 5003", {"x1": n((5003,), bf16), "x2": n((5003,), bf16)}),
    "contiguous",
    ("vector=8 unroll=2*",),
)
want(
    "map-strided-two-a-thread",
    "add",
    Sample("f32 60x40 of 80", {"x1": n((60, 80))[:, ::2], "x2": n((60, 40))}),
    "strided",
    ("vector=1 unroll=2*",),
)
c64 = adversarial(ElementKind.F64)
want("maximum-f64-corners", "maximum", Sample("f64", {"x1": c64[:, None], "x2": c64[None, :]}))
want(
    "pow-integers",
    "pow",
    Sample(
        "i32", {"x1": np.array([[-2], [-1], [0], [1], [3]], np.int32), "x2": np.arange(-5, 6, dtype=np.int32)[None]}
    ),
)
want(
    "gradients-two-a-thread",
    "multiply_backward",
    Sample("bf16 5003", {name: n((5003,), bf16) for name in ("grad", "x1", "x2")}),
    "contiguous",
    ("vector=8 unroll=2*",),
)
want(
    "gradients-strided-two-a-thread",
    "multiply_backward",
    Sample("f32 60x40 of 80", {"grad": n((60, 80))[:, ::2], "x1": n((60, 40)), "x2": n((60, 40))}),
    "strided",
    ("vector=1 unroll=2*",),
)
want(
    "gradients-of-two-layouts",
    "multiply_backward",
    Sample("f32", {**{k: n((33, 40)) for k in ("grad", "x1", "x2")}, "grad_x1": np.asfortranarray(n((33, 40)))}),
)
