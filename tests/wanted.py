"""Problems beside the ops' own samples, chosen to reach what a kernel can do: tails, vectors at edges, rings of stages that wrap,
persistent CTAs that take several tiles, ragged bands, K in parts, every family of tiles and of epilogues.

Each names the variant and, as patterns, the configurations that it is for; of each pattern the first that serves is run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np

from baracuda_py.samples.attention import qkv
from baracuda_py.samples.gguf import blocks
from baracuda_py.samples.int4 import weight
from baracuda_py.samples.nf4 import nf4_weight
from baracuda_py.samples.sample import Sample, adversarial
from baracuda_py.types import DeviceSpec, ElementKind
from baracuda_py.types.gguf import GgufFormat

__all__ = ["WANTED", "Wanted"]

rng = np.random.default_rng(7)
bf16, f16, f32, f64 = (np.dtype(x) for x in (ml_dtypes.bfloat16, np.float16, np.float32, np.float64))
e4m3 = np.dtype(ml_dtypes.float8_e4m3fn)


@dataclass(frozen=True)
class Wanted:
    name: str
    op: str
    sample: Sample
    device: Any = "ptx"
    variant: str | None = None
    configs: tuple[str, ...] = ("*",)


WANTED: list[Wanted] = []


def want(
    name: str, op: str, sample: Sample, variant: str | None = None, configs: Sequence[str] = ("*",), device: Any = "ptx"
) -> None:
    WANTED.append(Wanted(name, op, sample, device, variant, tuple(configs)))


def small(sms: int, arch: str = "sm_90a") -> DeviceSpec:
    """A chip with so few SMs that CTAs take several tiles, bands are lower than the result, and K of the last tiles is split."""
    return replace(DeviceSpec.named(f"ptx:{arch}"), name=f"ptx:small{sms}", sms=sms)


def n(shape: tuple[int, ...], dt: Any = f32) -> Any:
    return rng.standard_normal(shape).astype(dt)


def padded(shape: tuple[int, ...], dt: Any, spare: int) -> Any:
    return n((*shape[:-1], shape[-1] + spare), dt)[..., : shape[-1]]


def big(shape: tuple[int, ...]) -> Any:
    return rng.integers(0, 255, shape, np.uint8)


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
# ---- copies
want(
    "append-nothing",
    "kv_append",
    Sample(
        "f16 0 tokens",
        {
            "k_cache": n((4, 3, 17, 8), f16),
            "v_cache": n((4, 3, 17, 8), f16),
            "k": n((4, 3, 0, 8), f16),
            "v": n((4, 3, 0, 8), f16),
            "positions": np.array([0, 17, 18, -1]),
        },
    ),
)
want(
    "runs-out-of-phase",
    "write_slice",
    Sample(
        "u8 rows out of phase, gaps on both sides",
        {"dest": big((9, 150)), "source": big((7, 140))[:, 3:130]},
        {"ranges": ((1, 8), (1, 128))},
    ),
    "vectorised",
    ("*unroll=1", "*unroll=2", "*unroll=4"),
)
want(
    "runs-to-an-aligned-end",
    "write_slice",
    Sample(
        "u8 rows, the last to a multiple of 16",
        {"dest": big((9, 150)), "source": big((7, 117))},
        {"ranges": ((1, 8), (1, 118))},
    ),
    "vectorised",
    ("*unroll=1",),
)
want(
    "runs-long",
    "write_slice",
    Sample(
        "u8 long rows", {"dest": big((3, 3011)), "source": big((2, 3000))[:, 2:2990]}, {"ranges": ((1, 3), (5, 2993))}
    ),
    "vectorised",
    ("*unroll=2",),
)
want(
    "runs-aligned",
    "write_slice",
    Sample("f32 aligned rows", {"dest": n((40, 64)), "source": n((30, 32))}, {"ranges": ((3, 33), (16, 48))}),
    "vectorised",
    ("grain=16*unroll=2",),
)
want(
    "elements-many",
    "contiguize",
    Sample("u16 70x90 every other", {"x": np.arange(70 * 180, dtype=np.uint16).reshape(70, 180)[:, ::2]}),
    "elements",
    ("4", "1"),
)
for dt in (bf16, np.dtype(np.uint8), f32):
    src = n((65, 80)).astype(dt)[:, :63].T
    want(
        f"transpose-ragged-{dt}",
        "write_slice",
        Sample(
            f"{dt} ragged transpose", {"dest": n((72, 80)).astype(dt), "source": src}, {"ranges": ((0, 63), (0, 65))}
        ),
        "transpose",
        ("8x8 access_bytes=8", "8x8 access_bytes=4")
        if dt.itemsize == 1
        else ("8x8 access_bytes=16", "8x8 access_bytes=8", "16x16 access_bytes=16"),
    )
want(
    "transpose-tile-batch",
    "contiguize",
    Sample("bf16 tiles of a batch", {"x": n((3, 130, 71), bf16).transpose(0, 2, 1)}),
    "transpose_tile",
)
want(
    "transpose-batch",
    "contiguize",
    Sample("f32 batch, two tiles", {"x": n((3, 136, 72)).transpose(0, 2, 1)}),
    "transpose",
    ("8x8 access_bytes=16",),
)
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
want(
    "tc-async-bands", "matmul", mm(150, 130, 100, bf16), "tc_async", ("64x64 k_bytes=64 warp=32x32 stages=5",), small(4)
)
want("tc-bands", "matmul", mm(150, 130, 100, bf16), "tc", ("64x64 k_bytes=64 *",), small(4))
want("tc-128", "matmul", mm(136, 130, 100, bf16, a="C", b="C"), "tc", ("128x128*",))
for arch in ("sm_80", "sm_100a"):
    want(f"f64-{arch}", "matmul", mm(70, 66, 90, f64), "tc_async", ("64x64 k_bytes=128 *",), f"ptx:{arch}")
    want(f"tf32-{arch}", "matmul", mm(70, 66, 90, f32, math="tf32"), "tc_async", ("64x64 k_bytes=64 *",), f"ptx:{arch}")
want(
    "tf32-m-major",
    "matmul",
    mm(72, 136, 90, f32, a="C", math="tf32"),
    "tc_async",
    ("64x64 k_bytes=128 *", "128x128 k_bytes=64 warp=64x64 stages=5"),
)


# ---- wgmma
def many(name: str, sample: Sample, configs: Sequence[str], device: Any = "ptx") -> None:
    want(f"wgmma-{name}", "matmul", sample, "wgmma", configs, device)


many("turns", mm(392, 264, 1480, bf16), ("128x128 ping_pong",), small(2))
many(
    "turns-few-slabs", mm(392, 264, 320, bf16), ("128x128 ping_pong",), small(2)
)  # the last before the last tile ends in stage 0
many("turns-wide", mm(136, 520, 704, f16), ("64x256 ping_pong",), small(2))
many("two-rows", mm(392, 264, 520, bf16), ("256x128", "128x128", "128x96", "64x128"), small(2))
many("ring-wraps", mm(72, 72, 2600, bf16), ("64x64", "128x64", "64x16 ctas_per_sm=2"))
many(
    "clusters",
    mm(392, 264, 712, bf16, b="C"),
    ("128x64 cluster=2", "128x128 cluster=2", "128x128 cluster=2 ping_pong", "256x128 cluster=2"),
    small(4),
)
many("clusters-n-major", mm(392, 264, 712, bf16), ("128x128 cluster=2", "128x128 cluster=2 ping_pong"), small(4))
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
many("tail", mm(392, 72, 1040, bf16), ("*split_last_wave=*",), small(2))
many("tail-turns", mm(392, 264, 1040, bf16), ("128x128 split_last_wave=* ping_pong",), small(5))
many(
    "columns",
    mm(200, 136, 200, bf16, out=np.asfortranarray(n((200, 136), bf16))),
    ("128x64", "64x32", "128x64 transposed"),
)
many("columns-ragged", mm(200, 136, 200, bf16, out=n((136, 207), bf16)[:, :200].T), ("128x64", "64x32"))
many("rows-ragged", mm(150, 131, 200, bf16, b="C"), ("128x64", "64x32", "128x96", "128x128"), small(2))
many("rows-ragged-pairs", mm(150, 131, 200, bf16, b="C", out=padded((150, 131), bf16, 3)), ("128x64", "64x32"))
many("straight", mm(150, 131, 200, bf16, b="C", out=n((150, 262), f32)[:, ::2]), ("128x64", "64x32"))
many("f32-rows", mm(150, 136, 200, bf16, out_dtype="f32"), ("128x64", "64x32", "64x16", "128x96"))
many("f32-columns", mm(150, 136, 200, bf16, out=np.asfortranarray(n((150, 136)))), ("64x64",))
many(
    "bands", mm(300, 328, 136, bf16), ("64x64", "128x96", "64x32 ctas_per_sm=2"), small(4)
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
many("fp8-blocks", eight(200, 264, 720, True), ("128x128", "128x64", "64x64"), small(2))
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


def gradient(shape: tuple[int, int], dt: Any) -> Sample:
    """A layer norm's gradient, with a weight."""
    rows, columns = shape
    return Sample(f"{dt} {rows}x{columns}", {
        "grad": n(shape, dt), "x": n(shape, dt), "weight": n((columns,), dt), "mean": n((rows,)),
        "rstd": abs(n((rows,))) + f32.type(0.1),
    })  # fmt: skip


# More rows than an SM's CTAs have stages: of a CTA each, of groups, and of groups by accesses of 2 bytes
for shape, dt in (((17, 1040), f32), ((130, 264), bf16), ((110, 33), bf16)):
    want(f"norm-gradient-ahead-{shape[1]}", "layer_norm_backward", gradient(shape, dt), "rows", device=small(1))
want("norm-gradient-in-stripes", "layer_norm_backward", gradient((70, 20000), bf16), "rows")


# ---- int4 weights: rings of slabs that wrap
def int4(m: int, k: int, n: int) -> Sample:
    arrays, options = weight(rng, "tiled", k, n, 128)
    return Sample(f"f16 {m}x{n}x{k}", {"x": rng.standard_normal((m, k)).astype(f16), **arrays}, options)


want("int4-gemv-ring-wraps", "matmul_int4", int4(9, 2176, 16), "gemv", ("16x1 warps=8",))
want("int4-mma-ring-wraps", "matmul_int4", int4(17, 1152, 16), "mma", ("24x2 share=2",))
want("int4-mma-parts", "matmul_int4", int4(60, 256, 16), "mma", ("64x2 stages=4 parts=2",))


# ---- NF4 weights: rings of slabs that wrap, sums of parts of K, and a mean of several sums
def nf4(m: int, n: int, k: int, **of: Any) -> Sample:
    made = {"x": rng.standard_normal((m, k)).astype(f16), **nf4_weight(rng, (n, k), **of)}
    return Sample(f"f16 {m}x{n}x{k}", made)


want("nf4-gemv-ring-wraps", "matmul_nf4", nf4(9, 18, 2112, double=True), "gemv", ("16x1 across=1 stages=2",))
heights = {"x": rng.standard_normal((4200, 64)).astype(f16)}
want(
    "nf4-sums-of-magnitudes", "quantize_nf4", Sample("f16[4200, 64] double", heights, {"double_quant": True}), "blocks"
)


# ---- decoding: splits of a short sequence that are left without keys, and CTAs of a cluster with half of the values' columns
def decoded(keys: int, lengths: tuple[int, ...], heads: int, d: int, d_v: int) -> Sample:
    arrays = qkv(rng, ElementKind.BF16, len(lengths), (heads, 1), 1, keys, d, d_v)
    return Sample(f"bf16 {lengths} of {keys}", {**arrays, "lengths": np.array(lengths, np.int32)}, {"return_lse": True})


want(
    "decode-splits-without-keys",
    "attention_decode",
    decoded(300, (290, 3), 2, 64, 64),
    "split_keys",
    ("16x64 splits=2 stages=4",),
)
want(
    "latent-splits-without-keys",
    "attention_decode",
    decoded(200, (190, 3), 2, 576, 512),
    "latent_keys",
    ("64x64 splits=2", "64x64 splits=2 halved"),
)
want(
    "decode-halves-of-values",
    "attention_decode",
    decoded(300, (290,), 2, 64, 64),
    "split_keys",
    ("16x32 splits=8 *",),
    small(16),
)


# ---- weights in GGUF blocks: more chunks than a warp holds, further rows of weights, codes from shared memory, staged rows of x
def in_blocks(kind: str, m: int, columns: int, k: int) -> Sample:
    form = GgufFormat.of(kind)
    w = blocks(rng, form, columns * k // form.block.weights).reshape(columns, -1)
    return Sample(f"{kind} {m}x{columns}x{k}", {"x": n((m, k), bf16), "w": w}, {"format": form.value})


want(
    "gguf-rings-that-wrap",
    "matmul_gguf",
    in_blocks("Q6_K", 1, 34, 1280),
    "exact_activation",
    ("warps_n=1 warps_k=4 stages=2*",),
    small(1),
)
want("gguf-codes-from-shared-memory", "matmul_gguf", in_blocks("IQ4_NL", 1, 13, 256), "exact_activation", ("* book",))
want("gguf-staged-activations", "matmul_gguf", in_blocks("Q6_K", 3, 13, 256), "exact_activation", ("* staged",))
