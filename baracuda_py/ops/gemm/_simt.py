"""simt: the FMA kernel that takes every problem. Tiles and costs of kernels/gemm/simt.cu."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from ...plan.candidate import Candidate, Cost, Feasibility
from ...runtime.steps import Kernel, Launch, Ptr, Step
from ...types import ArchSku, BackendKind, DeviceSpec, ElementKind, MathPrecision, PrecisionGuarantee
from ._checks import admitted, countable, launchable
from ._epilogue import accumulator, batch_struct, epilogue_args, epilogue_type, walk
from ._guarantee import ROUNDED, guarantee_of
from ._problem import Gemm, Matrix
from ._split import partial_epilogue, reduce_step, second_pass, slab_of
from ._vector import nearest_axis, vector_width

__all__ = ["MATHS", "Simt", "fma_rate"]

MATHS = (MathPrecision.F32, MathPrecision.F64, MathPrecision.F16, MathPrecision.BF16)
_VECTOR = {ElementKind.F32: 4, ElementKind.F64: 2}  # elements an access and accumulators a 16-byte word
_SLOW_F64 = (ArchSku.SM89, ArchSku.SM120)


@dataclass(frozen=True)
class Tile:
    """BM x BN of the result and BK of K a CTA, TM x TN a thread, the slabs of the ring, the CTAs an SM that registers are
    bounded for, and the share of the FMA rate that a full SM reaches; into how many parts K is split."""

    bm: int
    bn: int
    bk: int
    tm: int
    tn: int
    stages: int
    ctas: int
    share: float
    splits: int = 1

    def __str__(self) -> str:
        split = f"s{self.splits}" if self.splits > 1 else ""
        return f"{self.bm}x{self.bn}x{self.bk}/{self.tm}x{self.tn}{split}"

    @property
    def threads(self) -> int:
        return (self.bm // self.tm) * (self.bn // self.tn)

    def count(self, gemm: Gemm) -> tuple[int, int]:
        """Tiles down and across."""
        return -(-gemm.m // self.bm), -(-gemm.n // self.bn)

    def launched(self, gemm: Gemm) -> int:
        """CTAs."""
        down, across = self.count(gemm)
        return down * across * gemm.batches * self.splits

    def in_flight(self, gemm: Gemm) -> int:
        """Bytes of the operands under way to a CTA."""
        return (self.stages - 1) * self.bk * (self.bm + self.bn) * gemm.a.itemsize

    def k_split(self, k: int) -> int:
        """k's a split, whole slabs."""
        return -(-k // (self.splits * SPLIT_UNIT)) * SPLIT_UNIT


# Shares: FMAs among the instructions of the main loop, less where shared memory sets the pace.
TILES = {
    ElementKind.F32: (
        Tile(128, 256, 8, 8, 16, 3, 1, 0.91), Tile(128, 128, 8, 8, 16, 3, 2, 0.9), Tile(128, 64, 8, 8, 8, 3, 3, 0.85),
        Tile(64, 64, 16, 4, 4, 3, 3, 0.6), Tile(32, 128, 16, 8, 8, 3, 4, 0.8), Tile(16, 128, 16, 4, 8, 3, 4, 0.75),
        Tile(32, 32, 16, 4, 2, 3, 4, 0.35),
    ),
    ElementKind.F64: (
        Tile(128, 64, 8, 8, 4, 3, 1, 0.85), Tile(64, 64, 8, 4, 4, 3, 2, 0.7), Tile(32, 32, 16, 4, 2, 3, 3, 0.4),
    ),
}  # fmt: skip
SKINNY = 32  # columns or fewer are turned into rows, of which there are low tiles
SPLIT_UNIT = 64  # a split starts at a multiple, so that vectors along k stay whole
_LEAST_K, _MOST_SPLITS = 256, 32
# Fitted to the sweep of an H200:
_ALONE = 0.46  # of its share, for fewer CTAs than are meant to cover each other's waits; less for under four warps
_SCHEDULED = 128  # threads that give each scheduler of an SM a warp
_STREAMED = 0.36  # of the bandwidth, for tiles that wait for each slab
_ROUND_TRIP = 1.4e-6  # seconds of bandwidth that must be in flight
_LATENCY = 3e-7  # beyond the device's overhead: until the first slab is there and after the last store


def fma_rate(element: ElementKind, device: DeviceSpec) -> float:
    """FLOP/s of plain FMAs in f32 or f64."""
    if element is ElementKind.F64:
        return device.rate("f32") / (64.0 if device.tier in _SLOW_F64 else 2.0)
    return device.rate("f32")


@lru_cache(maxsize=1024)
def _oriented(desc: Any) -> Gemm:
    """The problem with few columns as one with few rows."""
    gemm: Gemm = desc.gemm
    return gemm.swapped if gemm.n <= SKINNY and gemm.n < gemm.m else gemm


def _split(tile: Tile, gemm: Gemm, device: DeviceSpec) -> Tile:
    """The tile with K in as many parts as fill the SMs once, none of them empty."""
    room = device.sms * tile.ctas // max(1, tile.launched(gemm))
    wanted = max(1, min(room, gemm.k // _LEAST_K, _MOST_SPLITS))
    return replace(tile, splits=max(1, -(-gemm.k // replace(tile, splits=wanted).k_split(gemm.k)))) if gemm.k else tile


def _way(tile: Tile, acc: ElementKind, matrix: Matrix, rows: int, cols: int, k_axis: int) -> tuple[bool, int]:
    """Whether an operand is brought in along k, and how many elements at a time: a vector or one."""
    axis, widest = nearest_axis(matrix, rows, cols), _VECTOR[acc]
    # Vectors along k pass through registers, one slab at a time: tiles that stream want more of them under way.
    streams = axis == k_axis and matrix.element is acc and tile.bm <= SKINNY
    whole = not streams and vector_width(matrix, rows, cols, axis, widest) == widest
    return axis == k_axis, widest if whole else 1


class Simt(Candidate[Any]):
    """Any element, stride, alignment and epilogue. Where K is whole, each sum in order of K, whatever the tile; where it is
    split, gemm/reduce.cu adds the parts in order."""

    variant = "simt"
    launches = ("gemm/simt.cu:simt", "gemm/reduce.cu:reduce")
    backend = BackendKind.BESPOKE

    def supports(self, desc: Any, device: DeviceSpec) -> Feasibility:
        maths = MATHS if desc.gemm.k else tuple(MathPrecision)  # a sum of nothing is 0 in any of them
        if not (admissible := admitted(desc, self.variant, maths) and countable(desc.gemm, 32)):
            return admissible
        return launchable(min(tile.launched(_oriented(desc)) for tile in TILES[accumulator(desc.gemm)]))

    def configs(self, desc: Any, device: DeviceSpec) -> Iterable[Tile]:
        gemm = _oriented(desc)
        whole = [tile for tile in TILES[accumulator(gemm)] if launchable(tile.launched(gemm))]
        return dict.fromkeys((*whole, *(_split(tile, gemm, device) for tile in whole)))

    def cost(self, desc: Any, device: DeviceSpec, config: Tile) -> Cost:
        gemm = _oriented(desc)
        ctas = max(1, config.launched(gemm))
        deepest = -(-ctas // device.sms)  # CTAs of the SM that has most
        covered = deepest >= config.ctas
        share = config.share * (1.0 if covered else _ALONE * min(1.0, deepest * config.threads / _SCHEDULED))
        flops = 2.0 * config.bm * config.bn * max(min(gemm.k, config.k_split(gemm.k)), 1) * deepest
        under_way = min(ctas, config.ctas * device.sms) * config.in_flight(gemm)
        streamed = min(_STREAMED, under_way / (device.bandwidth * _ROUND_TRIP))
        times = {
            "FMA issue": flops * device.sms / (fma_rate(accumulator(gemm), device) * share),
            "bandwidth": gemm.nbytes / (device.bandwidth * streamed),
        }
        limit = max(times, key=lambda name: times[name])
        seconds = device.overhead + _LATENCY + times[limit]
        if config.splits > 1:
            seconds += second_pass(gemm, config.splits, device, _LATENCY)
        return Cost(gemm.nbytes, gemm.flops, seconds, limit)

    def guarantee(self, desc: Any, device: DeviceSpec, config: Tile) -> PrecisionGuarantee:
        # Only strict f32 has no other variant that selection might take for another M, with another order of sums.
        lone = desc.precision is MathPrecision.F32 and config.splits == 1
        k = min(desc.gemm.k, config.k_split(desc.gemm.k))
        return guarantee_of(desc, desc.precision, k, each=ROUNDED, splits=config.splits, batch_invariant=lone)

    def lower(self, desc: Any, device: DeviceSpec, config: Tile) -> tuple[Step, ...]:
        gemm = _oriented(desc)
        acc = accumulator(gemm)
        if not gemm.k:  # nothing is read, of no type
            gemm = replace(gemm, a=replace(gemm.a, element=acc), b=replace(gemm.b, element=acc))
        epilogue, args = epilogue_type(gemm, desc.activation), epilogue_args(gemm)
        if config.splits > 1:
            epilogue, args = partial_epilogue(gemm, config.splits)
        ways = ((gemm.a, gemm.m, gemm.k, 1), (gemm.b, gemm.k, gemm.n, 0))
        loads = [_way(config, acc, matrix, rows, cols, k_axis) for matrix, rows, cols, k_axis in ways]
        shape = (config.bm, config.bn, config.bk, config.tm, config.tn, config.stages, config.ctas)
        flags = (f"{str(along_k).lower()}, {wide}" for along_k, wide in loads)
        types = f"{gemm.a.element.number}, {acc.number}"
        entry = f"simt<{types}, {', '.join(map(str, (*shape, *flags)))}, {epilogue}>"
        extents = (gemm.m, gemm.n, gemm.k, *config.count(gemm), config.splits, config.k_split(gemm.k))
        first = Launch(
            Kernel("gemm/simt.cu", entry), (config.launched(gemm), 1, 1), (config.threads, 1, 1),
            (Ptr(gemm.a.operand), Ptr(gemm.b.operand), args, walk(gemm.a), walk(gemm.b), batch_struct(gemm),
             *(np.uint32(x) for x in extents), np.int64(slab_of(gemm))),
        )  # fmt: skip
        return (first, reduce_step(desc, gemm, config.splits)) if config.splits > 1 else (first,)
