"""wgmma: Hopper's warpgroup tensor cores fed by TMA (kernels/gemm/wgmma.cu), for 16-bit operands whose rows lie on 16 bytes."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from ...plan.candidate import OK, Candidate, Cost, Feasibility, no
from ...runtime.steps import Kernel, Launch, Packed, Ptr, Scratch, Step, TensorMap
from ...types import ArchSku, DeviceSpec, ElementKind, PrecisionGuarantee
from ._epilogue import batch_struct, epilogue_args, epilogue_type
from ._guarantee import TRUNCATED, guarantee_of
from ._problem import BATCH_RANK, Gemm, Matrix

__all__ = ["Wgmma"]

BK = 64  # of K a stage: 128 bytes, one swizzled row
SHARED = 232448  # bytes a CTA may have
STAGING = 16384  # a consumer
SLACK = 1024 + 512  # alignment and barriers
MOST_STAGES = 10
LIMIT = 1 << 31


@dataclass(frozen=True)
class Tile:
    """BM x BN of the result a CTA, `rows` blocks of 64 a consumer; `cluster` CTAs, one above the other, share B."""

    bm: int
    bn: int
    rows: int
    cluster: int
    swapped: bool = False

    @property
    def consumers(self) -> int:
        return self.bm // (64 * self.rows)

    def __str__(self) -> str:
        flags = ("x2" if self.cluster == 2 else "") + ("T" if self.swapped else "")
        return f"{self.bm}x{self.bn}{flags}"


TILES = tuple(
    Tile(bm, bn, rows, cluster)
    for bm, bn, rows in (
        (128, 256, 1), (256, 128, 2), (128, 192, 1), (128, 224, 1), (128, 160, 1), (128, 128, 1), (128, 96, 1), (128, 64, 1),
        (64, 256, 1), (64, 192, 1), (64, 128, 1), (64, 64, 1), (64, 32, 1), (64, 16, 1),
    )
    for cluster in (1, 2)
)  # fmt: skip


@dataclass(frozen=True)
class View:
    """How TMA sees a matrix operand: `mn_major` where M (or N) is the contiguous axis."""

    matrix: Matrix
    mn: int  # extent of M or N
    k: int
    mn_major: bool

    def tensor_map(self, of: Ptr | Scratch, batch: tuple[int, ...], box_mn: int) -> TensorMap:
        x = self.matrix
        inner, outer, pitch = (self.mn, self.k, x.col) if self.mn_major else (self.k, self.mn, x.row)
        box = (64, BK) if self.mn_major else (BK, box_mn)
        return _tensor_map(x, of, inner, outer, pitch, batch, box, 128)


def _tensor_map(
    x: Matrix,
    of: Ptr | Scratch,
    inner: int,
    outer: int,
    pitch: int,
    batch: tuple[int, ...],
    box: tuple[int, int],
    swizzle: int,
) -> TensorMap:
    """Rank 2, or rank 5 where there is a batch; axes that are not stepped along have extent 1."""
    shape, strides, boxes = [inner, outer], [pitch * x.itemsize if outer > 1 else 16], list(box)
    if batch:
        fill = BATCH_RANK - len(batch)
        for extent, step in list(zip((1,) * fill + batch, (0,) * fill + x.batch))[::-1]:
            shape.append(extent if step else 1)
            strides.append(step * x.itemsize if step else 16)
            boxes.append(1)
    return TensorMap(of, x.element.dtype.name, tuple(shape), tuple(strides), tuple(boxes), swizzle)


def _pitched(x: Matrix, pitch: int, outer: int) -> bool:
    """Whether the lines of `x` and its matrices start on multiples of 16 bytes, upwards."""
    steps = (*((pitch,) if outer > 1 else ()), *x.batch)
    return (
        x.align >= 16
        and all(s >= 0 and s * x.itemsize % 16 == 0 and s * x.itemsize < 1 << 40 for s in steps)
        and (outer == 1 or pitch > 0)
    )


def view_of(x: Matrix, mn: int, k: int) -> View | None:
    """The operand [mn, k] as TMA can take it, or None."""
    if (x.col == 1 or k == 1) and _pitched(x, x.row, mn):
        return View(x, mn, k, False)
    if (x.row == 1 or mn == 1) and _pitched(x, x.col, k):
        return View(x, mn, k, True)
    return None


@lru_cache(maxsize=256)
def product_text(n: int, element: str, a_transposed: bool, b_transposed: bool) -> str:
    """wgmma(acc, a, b, accumulate): acc += A B, or = where `accumulate` is 0, for m64n{n}k16 with both in shared memory."""
    count = n // 2
    registers = ", ".join(f"%{i}" for i in range(count))
    outputs = ", ".join(f'"+f"(d[{i}])' for i in range(count))
    return (
        '#include "dtype.cuh"\n'
        f"__device__ __forceinline__ void wgmma(float (&d)[{count}], u64 a, u64 b, int accumulate) {{\n"
        f'  asm volatile("{{ .reg .pred p; setp.ne.b32 p, %{count + 2}, 0;\\n"\n'
        f'    "wgmma.mma_async.sync.aligned.m64n{n}k16.f32.{element}.{element} {{{registers}}}, %{count}, %{count + 1}, '
        f'p, 1, 1, {int(a_transposed)}, {int(b_transposed)}; }}"\n'
        f'    : {outputs} : "l"(a), "l"(b), "r"(accumulate));\n}}\n'
    )


def _flag(value: bool) -> str:
    return "true" if value else "false"


class Wgmma(Candidate[Any]):
    variant = "wgmma"

    def supports(self, desc: Any, device: DeviceSpec) -> Feasibility:
        gemm: Gemm = desc.gemm
        if desc.variant is not None:
            return no(f"{desc.op} fixes variant {desc.variant!r}", "use matmul")
        if device.tier is not ArchSku.SM90A:
            return no("warpgroup instructions exist on sm_90a only", 'device="sm_90a"')
        if gemm.a.element not in (ElementKind.F16, ElementKind.BF16):
            return no(f"multiplies f16 and bf16, not {gemm.a.element}", "cast the operands")
        if gemm.k == 0:
            return no("there is nothing to multiply (K = 0)")
        if max(gemm.m, gemm.n, gemm.k, gemm.batches) >= LIMIT or len(gemm.batch) > BATCH_RANK:
            return no(f"extents below 2**31 and at most {BATCH_RANK} batch axes", "contiguize the operands")
        for x, mn, k in ((gemm.a, gemm.m, gemm.k), (gemm.b.mT, gemm.n, gemm.k)):
            if view_of(x, mn, k) is None:
                return no(
                    f"{x.operand}'s rows or columns do not lie on multiples of 16 bytes with unit steps along them "
                    f"(steps {x.row}, {x.col}, alignment {x.align})",
                    f"pad {x.operand}'s leading dimension to a multiple of {16 // x.itemsize} elements",
                )
        return OK

    def configs(self, desc: Any, device: DeviceSpec) -> Iterator[Tile]:
        gemm: Gemm = desc.gemm
        for tile in (replace(t, swapped=s) for t in TILES for s in (False, True)):
            oriented = _oriented(desc, tile)
            b = view_of(oriented.b.mT, oriented.n, gemm.k)
            assert b is not None
            halves = not b.mn_major or -(-tile.bn // 64) % 2 == 0  # what each CTA of a cluster copies of B
            if tile.cluster == 1 or (halves and oriented.m > tile.bm):
                yield tile

    def cost(self, desc: Any, device: DeviceSpec, config: Tile) -> Cost:
        gemm = _oriented(desc, config)
        clock = device.rate("issue") / (device.sms * 128)
        tiles = -(-gemm.m // (config.bm * config.cluster)) * -(-gemm.n // config.bn) * gemm.batches
        waves = -(-tiles // (device.sms // config.cluster))
        blocks = -(-gemm.k // BK)
        products = config.bm // 64 * (BK // 16)
        tensor = products * config.bn / 2 * 1.04
        shared = products * (16 + config.bn / 4)
        loads = (config.bm + config.bn / config.cluster) * BK * 2 / 40
        block = max(tensor, shared, loads)
        limits = {"tensor cores": tensor, "shared memory": shared, "L2": loads}
        finish = 500 + config.bm * config.bn * gemm.out.itemsize / 40
        seconds = (waves * (blocks * block + finish) + 1800) / clock
        memory = gemm.nbytes / device.bandwidth
        limit = "bandwidth" if memory > seconds else max(limits, key=lambda name: limits[name])
        return Cost(gemm.nbytes, gemm.flops, max(seconds, memory) + device.overhead / 2, limit)

    def guarantee(self, desc: Any, device: DeviceSpec, config: Tile) -> PrecisionGuarantee:
        # Every tile sums k16 by k16 in order, so a row's result is the same whatever the tile.
        return guarantee_of(desc, desc.precision, desc.gemm.k, each=TRUNCATED)

    def lower(self, desc: Any, device: DeviceSpec, config: Tile) -> tuple[Step, ...]:
        return (launch(desc, device, config),)


def _oriented(desc: Any, tile: Tile) -> Gemm:
    gemm: Gemm = desc.gemm
    return gemm.swapped if tile.swapped else gemm


def _stored_by_tma(gemm: Gemm, wide: bool) -> bool:
    """Whether the result may leave by TMA: 16-bit, its rows on multiples of 16 bytes, a tile as `wide` as a box."""
    out = gemm.out
    return (
        wide and out.itemsize == 2 and out.col == 1 and _pitched(out, out.row, gemm.m) and all(s > 0 for s in out.batch)
    )


def launch(desc: Any, device: DeviceSpec, tile: Tile) -> Launch:
    gemm = _oriented(desc, tile)
    a, b = view_of(gemm.a, gemm.m, gemm.k), view_of(gemm.b.mT, gemm.n, gemm.k)
    assert a is not None and b is not None
    staged = _stored_by_tma(gemm, tile.bn >= 32)
    width = 32 if tile.bn % 64 else 64
    out_map = (
        _tensor_map(gemm.out, Ptr(gemm.out.operand), gemm.n, gemm.m, gemm.out.row, gemm.batch, (width, 64), 2 * width)
        if staged
        else a.tensor_map(Ptr(gemm.a.operand), gemm.batch, tile.bm)  # not looked at
    )
    stage = (tile.bm + (-(-tile.bn // 64) * 64 if b.mn_major else tile.bn)) * BK * 2
    room = SHARED - SLACK - (STAGING * tile.consumers if staged else 0)
    stages = min(MOST_STAGES, room // stage)
    entry = (
        f"gemm<{gemm.a.element.cuda}, {tile.bm}, {tile.bn}, {tile.rows}, {stages}, {tile.cluster}, {_flag(a.mn_major)}, "
        f"{_flag(b.mn_major)}, {_flag(bool(gemm.batch))}, {_flag(staged)}, {epilogue_type(gemm, desc.activation)}>"
    )
    prelude = product_text(tile.bn, str(gemm.a.element), a.mn_major, b.mn_major)
    rows, cols = -(-gemm.m // (tile.bm * tile.cluster)), -(-gemm.n // tile.bn)
    blocks = -(-gemm.k // BK)
    raster = struct.pack("<4I", rows, cols, _band(rows, cols, tile, device), gemm.batches) + batch_struct(gemm).data
    fill = (0,) * (BATCH_RANK - len(gemm.batch))
    batched = [*fill, *(int(s != 0) for s in gemm.a.batch), *fill, *(int(s != 0) for s in gemm.b.batch)]
    extents = struct.pack("<5I6IIq", gemm.m, gemm.n, blocks, 1, blocks, *batched, 0, 0)
    ctas = min(rows * cols * gemm.batches * tile.cluster, device.sms // tile.cluster * tile.cluster)
    return Launch(
        Kernel("gemm/wgmma.cu", entry, prelude),
        (ctas, 1, 1),
        (128 * (1 + tile.consumers), 1, 1),
        (
            a.tensor_map(Ptr(gemm.a.operand), gemm.batch, tile.bm),
            b.tensor_map(Ptr(gemm.b.operand), gemm.batch, tile.bn // tile.cluster),
            out_map,
            epilogue_args(gemm),
            Packed(raster, 4),
            Packed(extents, 8),
        ),
        shared_bytes=stages * stage + (STAGING * tile.consumers if staged else 0) + SLACK,
        overlapped=True,
    )


def _band(rows: int, cols: int, tile: Tile, device: DeviceSpec) -> int:
    """Rows of tiles a band: what the tiles in flight together read of A and B is least."""
    flying = device.sms // tile.cluster
    height = tile.bm * tile.cluster
    return min(range(1, min(rows, 32) + 1), key=lambda band: band * height + min(cols, -(-flying // band)) * tile.bn)
