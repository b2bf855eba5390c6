"""simt: the FMA kernel that takes every problem. Tiles and costs of kernels/gemm/simt.cu."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from ....plan.candidate import Feasibility
from ....plan.grammar import Config, term
from ....runtime.steps import Kernel, Launch, Ptr, Step
from ....types import ArchSku, BackendKind, DeviceSpec, ElementKind, MathPrecision, PrecisionGuarantee
from ..._fitted import Fitted
from ...products.checks import MOST_CTAS, admitted, countable, launchable
from ...products.epilogue import accumulator, batch_struct, epilogue_args, epilogue_type, packed_strides
from ...products.gemm import Gemm, Matrix
from ...products.guarantee import ROUNDED, guarantee_of
from ...products.split import partial_epilogue, partial_size, reduce_step, second_pass
from ...products.table import Table, Tabled, across, longest, spread, with_splits
from ...products.vector import nearest_axis, vector_width

__all__ = ["MATHS", "Simt", "fma_rate"]

MATHS = (MathPrecision.F32, MathPrecision.F64, MathPrecision.F16, MathPrecision.BF16)
_VECTOR = {ElementKind.F32: 4, ElementKind.F64: 2}  # elements per 16-byte access, and accumulators per 16 bytes
_SLOW_F64 = (ArchSku.SM89, ArchSku.SM120)


@dataclass(frozen=True)
class Tile(Config):
    """A CTA's BM x BN of the result and BK of K. `share` is the part of the FMA rate that a full SM reaches. The formulas also
    take a Tile whose fields are arrays, one entry per configuration."""

    bm: int = term("rows of the result a CTA computes", leads=True)
    bn: int = term("columns of the result a CTA computes", leads=True)
    bk: int = term("of K that is in shared memory at once, a stage", leads=True)
    thread: tuple[int, int] = term("rows x columns of the result that a thread sums")
    stages: int = term("blocks of K in the pipeline of shared memory")
    ctas_per_sm: int = term("CTAs that an SM holds at once", default=1)
    split_k: int = term("parts of K that are summed apart and then added", default=1)
    share: float = term("of the FMA rate", default=1.0, hidden=True)

    @property
    def threads(self) -> int:
        return (self.bm // self.thread[0]) * (self.bn // self.thread[1])

    def count(self, gemm: Gemm) -> tuple[int, int]:
        """Tiles down and across."""
        return -(-gemm.m // self.bm), -(-gemm.n // self.bn)

    def launched(self, gemm: Gemm) -> int:
        """CTAs."""
        down, across = self.count(gemm)
        return down * across * gemm.batches * self.split_k

    def in_flight(self, gemm: Gemm) -> int:
        """Bytes of the operands in flight per CTA."""
        return (self.stages - 1) * self.bk * (self.bm + self.bn) * gemm.a.itemsize

    def k_split(self, k: int) -> int:
        """Elements of K per split, in whole blocks."""
        return -(-k // (self.split_k * SPLIT_UNIT)) * SPLIT_UNIT


# Shares: the fraction of FMAs among the main loop's instructions; lower where shared memory is the limit.
TILES = {
    ElementKind.F32: (
        Tile(128, 256, 8, (8, 16), 3, share=0.91),
        Tile(128, 128, 8, (8, 16), 3, ctas_per_sm=2, share=0.9),
        Tile(128, 64, 8, (8, 8), 3, ctas_per_sm=3, share=0.85),
        Tile(64, 64, 16, (4, 4), 3, ctas_per_sm=3, share=0.6),
        Tile(32, 128, 16, (8, 8), 3, ctas_per_sm=4, share=0.8),
        Tile(16, 128, 16, (4, 8), 3, ctas_per_sm=4, share=0.75),
        Tile(32, 32, 16, (4, 2), 3, ctas_per_sm=4, share=0.35),
    ),
    ElementKind.F64: (
        Tile(128, 64, 8, (8, 4), 3, share=0.85),
        Tile(64, 64, 8, (4, 4), 3, ctas_per_sm=2, share=0.7),
        Tile(32, 32, 16, (4, 2), 3, ctas_per_sm=3, share=0.4),
    ),
}
_MOST_SHARE = {element: max(tile.share for tile in tiles) for element, tiles in TILES.items()}
SKINNY = 32  # at most so many columns: the transposed product is computed, for which there are low tiles
SPLIT_UNIT = 64  # a split starts at a multiple, so that vectors along k stay whole
_LEAST_K, _MOST_SPLITS = 256, 32
_SCHEDULED = 128  # threads: one warp for each of an SM's schedulers


class Costs(Fitted, table="gemm.simt"):
    lone_cta_ratio: float
    bandwidth_efficiency: float
    round_trip_s: float
    latency_s: float


def fma_rate(element: ElementKind, device: DeviceSpec) -> float:
    """FLOP/s of plain FMAs in f32 or f64."""
    if element is ElementKind.F64:
        return device.rate("f32") / (64.0 if device.tier in _SLOW_F64 else 2.0)
    return device.rate("f32")


@lru_cache(maxsize=1024)
def _swapped_ab(desc: Any) -> Gemm:
    """The problem, transposed where it has few columns."""
    gemm: Gemm = desc.gemm
    return gemm.swapped if gemm.n <= SKINNY and gemm.n < gemm.m else gemm


@lru_cache(maxsize=8)
def _columns(acc: ElementKind) -> Tile:
    """The menu, each tile twice: K whole, and split."""
    columns: Tile = spread((*TILES[acc], *TILES[acc]))
    return columns


@lru_cache(maxsize=64)
def _table(desc: Any, device: DeviceSpec) -> Table[Tile]:
    gemm, acc, costs = _swapped_ab(desc), accumulator(desc.gemm), Costs.of(device)
    menu, columns = TILES[acc], _columns(acc)
    extents: dict[str, Any] = {"m": float(gemm.m), "n": float(gemm.n), "batch": (float(gemm.batches),)}
    floats = replace(gemm, **extents)  # floats do not overflow
    whole: Any = columns.launched(floats)
    fits = whole <= MOST_CTAS
    # K in as many parts as fill the SMs once, none of them empty.
    slots = device.sms * columns.ctas_per_sm // np.maximum(1.0, whole)
    wanted = np.maximum(1.0, np.minimum(slots, min(gemm.k // _LEAST_K, _MOST_SPLITS)))
    splits = np.maximum(1.0, across(gemm.k, np.maximum(1, with_splits(columns, wanted).k_split(gemm.k))))
    splits[: len(menu)] = 1.0
    fits[len(menu) :] &= splits[len(menu) :] > 1
    tile = with_splits(columns, splits)
    ctas = np.maximum(1.0, tile.launched(floats))
    deepest = across(ctas, float(device.sms))  # CTAs of the busiest SM
    alone = costs.lone_cta_ratio * np.minimum(1.0, deepest * tile.threads / _SCHEDULED)
    share = tile.share * np.where(deepest >= tile.ctas_per_sm, 1.0, alone)
    flops = 2.0 * tile.bm * tile.bn * np.maximum(np.minimum(gemm.k, tile.k_split(gemm.k)), 1) * deepest
    under_way = np.minimum(ctas, tile.ctas_per_sm * device.sms) * tile.in_flight(gemm)
    streamed = np.minimum(costs.bandwidth_efficiency, under_way / (device.bandwidth * costs.round_trip_s))
    seconds, limit = longest(
        {
            "FMA issue": flops * device.sms / (fma_rate(acc, device) * share),
            "bandwidth": gemm.nbytes / (device.bandwidth * streamed),
        }
    )
    seconds = device.overhead + costs.latency_s + seconds + second_pass(gemm, splits, device, costs.latency_s)
    return Table(
        np.where(fits, seconds, np.inf),
        lambda place: replace(menu[place % len(menu)], split_k=int(splits[place])),
        limit,
    )


def _way(tile: Tile, acc: ElementKind, matrix: Matrix, rows: int, cols: int, k_axis: int) -> tuple[bool, int]:
    """Whether an operand is loaded along K, and how many elements at a time: a vector or one."""
    axis, widest = nearest_axis(matrix, rows, cols), _VECTOR[acc]
    # Vectors along K pass through registers, one block at a time, which leaves too few bytes in flight for streaming tiles.
    streams = axis == k_axis and matrix.element is acc and tile.bm <= SKINNY
    whole = not streams and vector_width(matrix, rows, cols, axis, widest) == widest
    return axis == k_axis, widest if whole else 1


class Simt(Tabled):
    """Any element, stride, alignment and epilogue. Where K is whole, each sum in order of K, whatever the tile; where it is
    split, gemm/reduce.cu adds the parts in order."""

    variant = "simt"
    launches = ("gemm/simt.cu:simt", "gemm/reduce.cu:reduce")
    backend = BackendKind.BESPOKE

    def supports(self, desc: Any, device: DeviceSpec) -> Feasibility:
        maths = MATHS if desc.gemm.k else tuple(MathPrecision)  # an empty sum is 0 in every precision
        if not (admissible := admitted(desc, self.variant, maths) and countable(desc.gemm, 32)):
            return admissible
        return launchable(min(tile.launched(_swapped_ab(desc)) for tile in TILES[accumulator(desc.gemm)]))

    def table(self, desc: Any, device: DeviceSpec) -> Table[Tile]:
        return _table(desc, device)

    def floor(self, desc: Any, device: DeviceSpec) -> float:
        gemm, acc, costs = desc.gemm, accumulator(desc.gemm), Costs.of(device)
        rate = fma_rate(acc, device) * _MOST_SHARE[acc]
        memory = gemm.nbytes / (device.bandwidth * costs.bandwidth_efficiency)
        return float(device.overhead + costs.latency_s + max(gemm.flops / rate, memory))

    def guarantee(self, desc: Any, device: DeviceSpec, config: Tile) -> PrecisionGuarantee:
        # Only for strict f32 can selection take no other variant, with another order of sums, for another M.
        lone = desc.precision is MathPrecision.F32 and config.split_k == 1
        k = min(desc.gemm.k, config.k_split(desc.gemm.k))
        return guarantee_of(desc, desc.precision, k, each=ROUNDED, splits=config.split_k, batch_invariant=lone)

    def lower(self, desc: Any, device: DeviceSpec, config: Tile) -> tuple[Step, ...]:
        gemm = _swapped_ab(desc)
        acc = accumulator(gemm)
        if not gemm.k:  # K = 0: no operand is read, so its type does not matter
            gemm = replace(gemm, a=replace(gemm.a, element=acc), b=replace(gemm.b, element=acc))
        epilogue, args = epilogue_type(gemm, desc.activation), epilogue_args(gemm)
        if config.split_k > 1:
            epilogue, args = partial_epilogue(gemm, config.split_k)
        ways = ((gemm.a, gemm.m, gemm.k, 1), (gemm.b, gemm.k, gemm.n, 0))
        loads = [_way(config, acc, matrix, rows, cols, k_axis) for matrix, rows, cols, k_axis in ways]
        shape = (config.bm, config.bn, config.bk, *config.thread, config.stages, config.ctas_per_sm)
        flags = (f"{str(along_k).lower()}, {wide}" for along_k, wide in loads)
        types = f"{gemm.a.element.number}, {acc.number}"
        entry = f"simt<{types}, {', '.join(map(str, (*shape, *flags)))}, {epilogue}>"
        extents = (gemm.m, gemm.n, gemm.k, *config.count(gemm), config.split_k, config.k_split(gemm.k))
        first = Launch(
            Kernel("gemm/simt.cu", entry), (config.launched(gemm), 1, 1), (config.threads, 1, 1),
            (Ptr(gemm.a.operand), Ptr(gemm.b.operand), args, packed_strides(gemm.a), packed_strides(gemm.b), batch_struct(gemm),
             *(np.uint32(x) for x in extents), np.int64(partial_size(gemm))),
        )  # fmt: skip
        return (first, reduce_step(desc, gemm, config.split_k)) if config.split_k > 1 else (first,)
