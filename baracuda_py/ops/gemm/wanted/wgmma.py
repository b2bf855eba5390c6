"""Products by wgmma: stage buffers that wrap, clusters, split K, ragged tiles, padded operands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ....samples.sample import Sample
from ....samples.wanted import Problems, bf16, e4m3, f16, f32
from .products import mm

problems = Problems()
rng, n, padded, want = problems.rng, problems.normal, problems.padded, problems.want


# ---- wgmma
def many(name: str, sample: Sample, configs: Sequence[str], sms: int | None = None) -> None:
    want(f"wgmma-{name}", "matmul", sample, "wgmma", configs, sms=sms)


many("turns", mm(392, 264, 1480, bf16), ("128x128 ping_pong",), sms=2)
many(
    "turns-few-slabs", mm(392, 264, 320, bf16), ("128x128 ping_pong",), sms=2
)  # the last before the last tile ends in stage 0
many("turns-wide", mm(136, 520, 704, f16), ("64x256 ping_pong",), sms=2)
many("two-rows", mm(392, 264, 520, bf16), ("256x128", "128x128", "128x96", "64x128"), sms=2)
many("ring-wraps", mm(72, 72, 2600, bf16), ("64x64", "128x64", "64x16 ctas_per_sm=2"))
many(
    "clusters",
    mm(392, 264, 712, bf16, b="C"),
    ("128x64 cluster=2", "128x128 cluster=2", "128x128 cluster=2 ping_pong", "256x128 cluster=2"),
    sms=4,
)
many("clusters-n-major", mm(392, 264, 712, bf16), ("128x128 cluster=2", "128x128 cluster=2 ping_pong"), sms=4)
many(
    "split",
    mm(136, 200, 584, bf16),
    ("64x64 split_k=2 ctas_per_sm=2", "128x64 split_k=2", "128x128 split_k=2", "256x64 split_k=2"),
)
many(
    "split-deep",
    mm(72, 72, 2200, bf16),
    ("64x64 split_k=4", "64x32 split_k=2 ctas_per_sm=3", "128x64 split_k=4", "128x128 split_k=8"),
)
many("tail", mm(392, 72, 1040, bf16), ("*split_last_wave=*",), sms=2)
many("tail-turns", mm(392, 264, 1040, bf16), ("128x128 split_last_wave=* ping_pong",), sms=5)
many(
    "columns",
    mm(200, 136, 200, bf16, out=np.asfortranarray(n((200, 136), bf16))),
    ("128x64", "64x32", "128x64 transposed"),
)
many("columns-ragged", mm(200, 136, 200, bf16, out=n((136, 207), bf16)[:, :200].T), ("128x64", "64x32"))
many("rows-ragged", mm(150, 131, 200, bf16, b="C"), ("128x64", "64x32", "128x96", "128x128"), sms=2)
many("rows-ragged-pairs", mm(150, 131, 200, bf16, b="C", out=padded((150, 131), bf16, 3)), ("128x64", "64x32"))
many("straight", mm(150, 131, 200, bf16, b="C", out=n((150, 262), f32)[:, ::2]), ("128x64", "64x32"))
many("f32-rows", mm(150, 136, 200, bf16, out_dtype="f32"), ("128x64", "64x32", "64x16", "128x96"))
many("f32-columns", mm(150, 136, 200, bf16, out=np.asfortranarray(n((150, 136)))), ("64x64",))
many(
    "bands", mm(300, 328, 136, bf16), ("64x64", "128x96", "64x32 ctas_per_sm=2"), sms=4
)  # of two rows of tiles, the last of one
many("batch", mm(72, 72, 136, bf16, batch=(2, 3)), ("64x64", "128x64"))
many(
    "batch-one-operand",
    Sample("b of a batch", {"a": n((72, 136), bf16), "b": n((3, 136, 72), bf16)}),
    ("64x64", "128x64"),
)
many(
    "batch-three",
    Sample("three batch axes", {"a": n((2, 1, 3, 40, 72), bf16), "b": n((4, 1, 72, 40), bf16)}),
    ("64x64",),
)
many("tf32", mm(136, 72, 520, f32, b="C", math="tf32"), ("128x64", "64x64 split_k=2"))

want("tf32-n-major", "matmul", mm(72, 136, 128, f32, math="tf32"))


def eight(m: int, columns: int, k: int, blocks: bool = False, **o: Any) -> Sample:
    """fp8, with scales by blocks or none."""
    b = -(-k // 128)
    if blocks:
        o |= {
            "scale_a": rng.uniform(0.5, 2, (b, -(-m // 4) * 4)).astype(f32)[:, :m].T,
            "scale_b": rng.uniform(0.5, 2, (b, -(-columns // 128))).astype(f32),
        }
    return mm(m, columns, k, e4m3, b="C", **o)


many("fp8", eight(136, 72, 1232), ("128x64", "64x64"))
many("fp8-fast", eight(136, 72, 1232, math="fp8_fast"), ("128x64", "128x128 ping_pong"))
many("fp8-blocks", eight(200, 264, 720, True), ("128x128", "128x64", "64x64"), sms=2)
many("fp8-blocks-split", eight(136, 136, 1232, True), ("128x64 split_k=2", "64x64 split_k=2"))
many(
    "fp8-lines",
    eight(
        136,
        71,
        400,
        scale_a=rng.uniform(0.5, 2, (136, 1)).astype(f32),
        scale_b=rng.uniform(0.5, 2, (1, 71)).astype(f32),
    ),
    ("128x64",),
)
many(
    "fp8-batch-scales",
    mm(
        40,
        72,
        272,
        e4m3,
        b="C",
        batch=(3,),
        scale_a=rng.uniform(0.5, 2, (3, 1, 1)).astype(f32),
        scale_b=rng.uniform(0.5, 2, (3, 1, 1)).astype(f32),
    ),
    ("64x64",),
)
many(
    "fp8-shared-b",
    Sample(
        "scales of each matrix, one b",
        {
            "a": n((3, 40, 272), e4m3),
            "b": n((72, 272), e4m3).T,
            "scale_a": rng.uniform(0.5, 2, (3, 1, 1)).astype(f32),
            "scale_b": rng.uniform(0.5, 2, (1, 72)).astype(f32),
        },
    ),
    ("64x64",),
)
many(
    "fp8-columns",
    eight(
        40,
        48,
        272,
        scale_a=rng.uniform(0.5, 2, (40, 1)).astype(f32),
        scale_b=rng.uniform(0.5, 2, (1, 48)).astype(f32),
        out=np.asfortranarray(n((40, 48), f16)),
    ),
    ("64x64",),
)


# ---- wgmma_padded
def pads(name: str, sample: Sample, configs: Sequence[str] = ("64x64 *",)) -> None:
    want(f"pad-{name}", "matmul", sample, "wgmma_padded", configs)


pads("lines-600B", Sample("f16 pitches", {"a": n((65, 301), f16)[:, :300], "b": n((70, 303), f16)[:, :300].T}))
pads("lines-stepped", Sample("bf16 steps", {"a": n((65, 140), bf16)[:, ::2], "b": n((70, 77), bf16)}))
pads("turned-tf32", mm(70, 130, 101, f32, a="C", math="tf32"))
pads("turned-fp8", mm(70, 200, 333, e4m3))
pads("turned-batch", mm(40, 72, 200, f32, batch=(3,), math="tf32"))
pads(
    "blocks",
    Sample(
        "scale_a in rows",
        {
            "a": n((136, 272), e4m3),
            "b": n((72, 272), e4m3).T,
            "scale_a": rng.uniform(0.5, 2, (136, 3)).astype(f32),
            "scale_b": rng.uniform(0.5, 2, (3, 1)).astype(f32),
        },
    ),
)
pads(
    "lines-misaligned",
    Sample(
        "f16 from between two words",
        {"a": n((65 * 301 + 1,), f16)[1:].reshape(65, 301), "b": n((301 * 70 + 3,), f16)[3:].reshape(301, 70)},
    ),
)
