"""Products by the portable kernels: epilogues, K in parts, tiles at edges, every layout."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....samples.sample import Sample
from ....samples.wanted import Problems, bf16, f16, f32, f64

problems = Problems()
n, padded, want = problems.normal, problems.padded, problems.want


def mm(
    m: int,
    columns: int,
    k: int,
    dt: Any = bf16,
    a: str = "R",
    b: str = "R",
    batch: tuple[int, ...] = (),
    **options: Any,
) -> Sample:
    """A product; a and b row-major (R) or column-major (C)."""
    x = n((*batch, m, k), dt) if a == "R" else n((*batch, k, m), dt).swapaxes(-1, -2)
    y = n((*batch, k, columns), dt) if b == "R" else n((*batch, columns, k), dt).swapaxes(-1, -2)
    arrays = {k: options.pop(k) for k in list(options) if k in ("c", "bias", "residual", "out", "scale_a", "scale_b")}
    return Sample(f"{dt} {list(batch)}{m}x{columns}x{k} {a}{b} {'+'.join(arrays)}", {"a": x, "b": y} | arrays, options)


# ---- epilogues
nan = np.full((33, 67), np.nan, f32)
for dt in (bf16, f16):
    want(f"beta-0-unpaired-{dt}", "matmul", mm(33, 67, 40, dt, c=nan.astype(dt), beta=0.0))
    want(f"beta-0-paired-{dt}", "matmul", mm(32, 64, 40, dt, c=nan[:32, :64].astype(dt).copy(), beta=0.0))
inf_a = n((33, 40), f32)
inf_a[3, 4], inf_a[7, 1] = np.inf, np.nan
want(
    "alpha-0",
    "matmul",
    Sample(
        "alpha 0 of what is not finite",
        {"a": inf_a.astype(bf16), "b": n((40, 64), bf16), "bias": n((64,), bf16)},
        {"alpha": 0.0},
    ),
)
want("alpha-0-f32", "matmul", Sample("f32 alpha 0", {"a": inf_a, "b": n((40, 67)), "bias": n((67,))}, {"alpha": 0.0}))
for act in ("gelu_tanh", "silu", "relu", "gelu"):
    want(
        f"epilogue-whole-{act}",
        "matmul",
        mm(
            72,
            136,
            64,
            bf16,
            bias=n((136,), bf16),
            residual=n((72, 136), bf16),
            c=n((72, 136), bf16),
            alpha=0.5,
            beta=-0.75,
            activation=act,
        ),
    )
want(
    "epilogue-unpaired",
    "matmul",
    mm(
        72,
        135,
        64,
        f16,
        bias=n((135,), f16),
        residual=n((72, 135), f16),
        c=n((72, 135), f16),
        alpha=0.5,
        beta=-0.75,
        activation="gelu_tanh",
    ),
)
for v in ("wgmma", "tc_async", "simt"):
    want(
        f"pairs-odd-n-{v}",
        "matmul",
        mm(
            40,
            67,
            64,
            bf16,
            b="C",
            bias=padded((67,), bf16, 1),
            residual=padded((40, 67), bf16, 5),
            c=padded((40, 67), bf16, 5),
            out=padded((40, 67), bf16, 5),
            beta=0.5,
        ),
        v,
    )
want(
    "bias-of-each-matrix",
    "matmul",
    mm(40, 56, 72, bf16, batch=(3,), bias=n((3, 1, 56), bf16), c=n((3, 40, 56), bf16), residual=n((3, 40, 1), bf16)),
)
want(
    "rows-that-do-not-follow-on",
    "matmul",
    Sample("a alone is one taller matrix", {"a": n((3, 40, 72)), "b": n((72, 56)), "residual": n((3, 1, 56))}),
)
for v in ("simt", "tc_async", "gemv"):
    m = 5 if v == "gemv" else 20
    want(
        f"batch-three-{v}",
        "matmul",
        Sample("three batch axes", {"a": n((2, 1, 3, m, 40), bf16), "b": n((4, 1, 40, 24), bf16)}),
        v,
    )
# ---- simt
want("simt-split", "matmul", mm(40, 36, 1200, f32), "simt", ("32x32x16 *split_k=*",))
want("simt-split-batch", "matmul", mm(40, 36, 1200, f32, batch=(2,)), "simt", ("32x32x16 *split_k=*",))
want(
    "simt-split-two-batches",
    "matmul",
    Sample("f32 of two batch axes", {"a": n((2, 1, 40, 1200)), "b": n((3, 1200, 36))}),
    "simt",
    ("32x32x16 *split_k=*",),
)
want("simt-split-ragged", "matmul", mm(40, 35, 1200, f32), "simt", ("32x32x16 *split_k=*",))
want(
    "simt-vectors-at-edges",
    "matmul",
    mm(68, 132, 83, f32, a="C"),
    "simt",
    ("64x64x16 thread=4x4 stages=3 ctas_per_sm=3", "128x128x8 thread=8x16 stages=3 ctas_per_sm=2"),
)
# a second band of tiles
want("simt-two-bands", "matmul", mm(300, 36, 17, f32), "simt", ("32x32x16 *",))
want("simt-f64", "matmul", mm(68, 132, 70, f64, a="C", b="C"), "simt", ("64x64x8 thread=4x4 stages=3 ctas_per_sm=2",))
want(
    "simt-bf16",
    "matmul",
    mm(68, 132, 72, bf16),
    "simt",
    ("64x64x16 thread=4x4 stages=3 ctas_per_sm=3", "16x128x16 thread=4x8 stages=3 ctas_per_sm=4"),
)
# ---- gemv
for m in (1, 3, 6, 8):
    want(
        f"gemv-rows-{m}",
        "matmul",
        mm(m, 70, 4400, bf16, b="C"),
        "gemv",
        ("*team=1 warps=4*along_k", "*team=4 warps=4*along_k", "*split_k=*along_k"),
    )
    want(f"gemv-strips-{m}", "matmul", mm(m, 200, 1400, bf16), "gemv", ("*team=4 *", "*team=8 *", "*split_k=*"))
want("gemv-batch", "matmul", mm(2, 72, 600, f32, batch=(3,)), "gemv")
want("gemv-ragged", "matmul", mm(3, 71, 333, f16, b="C"), "gemv")
want("gemv-ragged-strips", "matmul", mm(3, 71, 333, f16), "gemv")
want("gemv-ragged-strips-8", "matmul", mm(8, 71, 333, f16), "gemv", ("*team=32 *", "*team=16 *"))
want(
    "gemv-rows-of-odd-pitch",
    "matmul",
    Sample("f16 rows of 337", {"a": padded((3, 336), f16, 1), "b": n((70, 336), f16).T}),
    "gemv",
    ("*along_k",),
)
want("gemv-f64", "matmul", mm(5, 72, 300, f64), "gemv")
# ---- mma.sync
want(
    "tc-async-split-batch", "matmul", mm(40, 72, 1024, bf16, batch=(2,)), "tc_async", ("64x64 k_bytes=128 *split_k=*",)
)
want("tc-async-split-uneven", "matmul", mm(40, 72, 1100, bf16), "tc_async", ("64x64 k_bytes=128 *split_k=*",))
want(
    "tc-async-inside-by-rows",
    "matmul",
    mm(128, 100, 320, bf16, b="C"),
    "tc_async",
    ("64x64 k_bytes=128 warp=32x32 stages=4", "128x128 k_bytes=128 warp=64x64 stages=3"),
)
want(
    "tc-async-m-major",
    "matmul",
    mm(136, 130, 200, f16, a="C"),
    "tc_async",
    ("128x128 k_bytes=64 warp=64x32 stages=4", "64x64 k_bytes=128 warp=32x32 stages=4"),
)
want("tc-async-bands", "matmul", mm(150, 130, 100, bf16), "tc_async", ("64x64 k_bytes=64 warp=32x32 stages=5",), sms=4)
want("tc-bands", "matmul", mm(150, 130, 100, bf16), "tc", ("64x64 k_bytes=64 *",), sms=4)
want("tc-128", "matmul", mm(136, 130, 100, bf16, a="C", b="C"), "tc", ("128x128*",))
for arch in ("sm_80", "sm_100a"):
    want(f"f64-{arch}", "matmul", mm(70, 66, 90, f64), "tc_async", ("64x64 k_bytes=128 *",), arch=arch)
    want(f"tf32-{arch}", "matmul", mm(70, 66, 90, f32, math="tf32"), "tc_async", ("64x64 k_bytes=64 *",), arch=arch)
want(
    "tf32-m-major",
    "matmul",
    mm(72, 136, 90, f32, a="C", math="tf32"),
    "tc_async",
    ("64x64 k_bytes=128 *", "128x128 k_bytes=64 warp=64x64 stages=5"),
)
