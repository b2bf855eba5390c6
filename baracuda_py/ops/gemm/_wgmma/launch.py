"""wgmma's launches: the instruction's text, the order of tiles, and the arguments of kernels/gemm/wgmma.cu."""

from __future__ import annotations

import struct
from dataclasses import astuple, dataclass, replace
from functools import lru_cache
from typing import Any

from ....runtime.steps import Kernel, Launch, Packed, Ptr, Struct
from ....types import DeviceSpec, ElementKind, MathPrecision
from ...products.epilogue import batch_struct, epilogue_args, epilogue_type, packed_strides
from ...products.gemm import BATCH_RANK, Gemm, Matrix
from .tile import STEP, Tile, clusters_at_once, group_m_of, k_blocks_of, pipeline_of, swapped_ab, traits_of
from .tma import ELEMENTS, epilogue_store_of, out_map, scales_map, view_of

__all__ = ["Raster", "launches", "promoted"]


@lru_cache(maxsize=256)
def product_text(n: int, a: ElementKind, b: ElementKind, a_transposed: bool, b_transposed: bool) -> str:
    """wgmma(acc, a, b, accumulate): acc += A B, or = where `accumulate` is 0, for m64n{n} and 32 bytes of K of operands in
    shared memory. Only 16-bit types may be transposed."""
    first, second = ELEMENTS[a][0], ELEMENTS[b][0]
    flags = f", {int(a_transposed)}, {int(b_transposed)}" if a.bits == 16 else ""
    count = n // 2
    registers = ", ".join(f"%{i}" for i in range(count))
    outputs = ", ".join(f'"+f"(d[{i}])' for i in range(count))
    return (
        '#include "core/dtype.cuh"\n'
        f"__device__ __forceinline__ void wgmma(float (&d)[{count}], u64 a, u64 b, int accumulate) {{\n"
        f'  asm volatile("{{ .reg .pred p; setp.ne.b32 p, %{count + 2}, 0;\\n"\n'
        f'    "wgmma.mma_async.sync.aligned.m64n{n}k{STEP * 8 // a.bits}.f32.{first}.{second} {{{registers}}}, '
        f'%{count}, %{count + 1}, p, 1, 1{flags}; }}"\n'
        f'    : {outputs} : "l"(a), "l"(b), "r"(accumulate));\n}}\n'
    )


def promoted(desc: Any) -> bool:
    """Whether the sums of each block of K are added in f32: where the precision asks for it, and with scales by blocks."""
    return bool(desc.precision is MathPrecision.FP8 or desc.gemm.blocked)


def _sums(gemm: Gemm, desc: Any, tile: Tile) -> tuple[str, Struct]:
    """How blocks of K are summed: the C++ type and its struct. Mirrors kernels/include/products/accumulator.cuh."""
    if gemm.blocked:
        of_a, of_b = scales_map(gemm, tile.bm), gemm.scales["scale_b"]
        assert of_a is not None
        batched = _batched(gemm, gemm.scales["scale_a"])
        return "BlockScaled", Struct(
            (of_a, Ptr(of_b.operand), packed_strides(of_b), Packed(struct.pack("<3I", *batched), 4))
        )
    return "Promoted" if promoted(desc) else "Accumulated", Struct((Packed(bytes(1), 1),))


def _batched(gemm: Gemm, x: Matrix) -> list[int]:
    """For each batch axis, 1 where `x` has it and 0 where it is broadcast."""
    return [*(0,) * (BATCH_RANK - len(gemm.batch)), *(int(s != 0) for s in x.batch)]


@dataclass(frozen=True)
class Raster:
    """The order of tiles (a cluster counts as one) and the range of tile numbers to compute: raster.cuh's Raster."""

    rows: int
    cols: int
    group_m: int
    begin: int
    end: int

    @classmethod
    def of(cls, gemm: Gemm, tile: Tile, device: DeviceSpec) -> Raster:
        rows, cols = -(-gemm.m // (tile.bm * tile.cluster)), -(-gemm.n // tile.bn)
        return cls(rows, cols, group_m_of(rows, cols, tile, device), 0, rows * cols * gemm.batches)

    def cut(self, at: int) -> tuple[Raster, Raster]:
        return replace(self, end=at), replace(self, begin=at)

    def with_last_wave(self, n: int) -> Raster:
        """The same work with each of the `n` tiles of a cluster, which are stacked, counted by itself."""
        return Raster(self.rows * n, self.cols, self.group_m * n, self.begin * n, self.end * n)


def launches(desc: Any, device: DeviceSpec, tile: Tile) -> tuple[Launch, ...]:
    """One launch, or two where the last wave splits K."""
    gemm = swapped_ab(desc, tile)
    raster = Raster.of(gemm, tile, device)
    if tile.split_last_wave == 1:
        return (_launch(desc, gemm, tile, raster, device),)
    at_once = clusters_at_once(device, tile)
    waves, rest = raster.cut(raster.end // at_once * at_once)
    split = _launch(desc, gemm, tile.of_last_wave, rest.with_last_wave(tile.cluster), device)
    return _launch(desc, gemm, tile, waves, device), split


def _launch(desc: Any, gemm: Gemm, tile: Tile, raster: Raster, device: DeviceSpec) -> Launch:
    a, b = view_of(gemm.a, gemm.m, gemm.k), view_of(gemm.b.mT, gemm.n, gemm.k)
    assert a is not None and b is not None
    of_a = a.boxes(Ptr(gemm.a.operand), gemm.batch, tile.bm)
    store = epilogue_store_of(gemm.out, gemm.m, gemm.n)
    result = out_map(gemm, tile.bn // tile.split_k, store)
    stages, shared_bytes = pipeline_of(traits_of(gemm), tile)
    sums, sums_args = _sums(gemm, desc, tile)
    sizes = (tile.bm, tile.bn, tile.rows, tile.consumers, stages, tile.cluster, tile.split_k, tile.ctas_per_sm)
    flags = map(_flag, (a.mn_major, b.mn_major, bool(gemm.batch)))
    entry = (
        f"gemm<{gemm.a.element.cuda}, {', '.join(map(str, sizes))}, {', '.join(flags)}, {store}, {sums}, "
        f"{epilogue_type(gemm, desc.activation)}>"
    )
    prelude = product_text(tile.bn, gemm.a.element, gemm.b.element, a.mn_major, b.mn_major)
    order = struct.pack("<5I", *astuple(raster)) + batch_struct(gemm).data
    batched = [*_batched(gemm, gemm.a), *_batched(gemm, gemm.b)]
    clusters = raster.end - raster.begin
    if tile.split_k == 1:
        clusters = min(clusters, clusters_at_once(device, tile))
    return Launch(
        Kernel("gemm/wgmma.cu", entry, prelude),
        (clusters * tile.cluster * tile.split_k, 1, 1),
        (128 * (1 + tile.consumers), 1, 1),
        (
            of_a,
            b.boxes(Ptr(gemm.b.operand), gemm.batch, tile.bn // tile.cluster),
            result or of_a.fields[0],
            epilogue_args(gemm),
            Packed(order, 4),
            Packed(struct.pack("<3I6I", gemm.m, gemm.n, k_blocks_of(gemm), *batched), 4),
            sums_args,
        ),
        shared_bytes=shared_bytes,
        pdl=True,
    )


def _flag(value: bool) -> str:
    return "true" if value else "false"
