"""simt: the FMA kernel that takes every problem. Tiles and costs of kernels/gemm/simt.cu."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...plan.candidate import Candidate, Cost, Feasibility
from ...runtime.steps import Kernel, Launch, Ptr, Step
from ...types import ArchSku, BackendKind, DeviceSpec, ElementKind, MathPrecision, PrecisionGuarantee
from ._checks import admitted, launchable
from ._epilogue import accumulator, batch_struct, epilogue_args, epilogue_type, walk
from ._guarantee import ROUNDED, guarantee_of
from ._problem import Gemm
from ._vector import nearest_axis, vector_width

__all__ = ["MATHS", "Simt", "fma_rate"]

MATHS = (MathPrecision.F32, MathPrecision.F64, MathPrecision.F16, MathPrecision.BF16)
_VECTOR = {ElementKind.F32: 4, ElementKind.F64: 2}  # elements an access and accumulators a 16-byte word
_SLOW_F64 = (ArchSku.SM89, ArchSku.SM120)


@dataclass(frozen=True)
class Tile:
    """BM x BN of the result and BK of K a CTA, TM x TN a thread, the CTAs an SM that registers are bounded for, and the
    share of the FMA rate that a full SM reaches."""

    bm: int
    bn: int
    bk: int
    tm: int
    tn: int
    ctas: int
    share: float

    def __str__(self) -> str:
        return f"{self.bm}x{self.bn}x{self.bk}"

    @property
    def threads(self) -> int:
        return (self.bm // self.tm) * (self.bn // self.tn)

    def count(self, gemm: Gemm) -> tuple[int, int]:
        """Tiles down and across."""
        return -(-gemm.m // self.bm), -(-gemm.n // self.bn)


# Shares: FMAs among the instructions of the main loop (0.84 for 128x128), less where shared memory sets the pace.
TILES = {
    ElementKind.F32: (
        Tile(128, 128, 8, 8, 8, 2, 0.82), Tile(128, 64, 16, 8, 4, 2, 0.75), Tile(64, 64, 16, 4, 4, 3, 0.6),
        Tile(32, 32, 16, 4, 2, 4, 0.35),
    ),
    ElementKind.F64: (
        Tile(128, 64, 8, 8, 4, 1, 0.85), Tile(64, 64, 8, 4, 4, 2, 0.7), Tile(32, 32, 16, 4, 2, 3, 0.4),
    ),
}  # fmt: skip
_ALONE = 0.75  # of its share, for a single CTA that waits at its own barriers
_STREAMED = 0.7  # of the bandwidth, for tiles that wait for each slab
_LATENCY = 1.5e-6  # until the first slab is there and after the last store


def fma_rate(element: ElementKind, device: DeviceSpec) -> float:
    """FLOP/s of plain FMAs in f32 or f64."""
    if element is ElementKind.F64:
        return device.rate("f32") / (64.0 if device.tier in _SLOW_F64 else 2.0)
    return device.rate("f32")


class Simt(Candidate[Any]):
    """Any element, stride, alignment and epilogue; each sum in order of K, whatever the tile."""

    variant = "simt"
    backend = BackendKind.BESPOKE

    def supports(self, desc: Any, device: DeviceSpec) -> Feasibility:
        smallest = TILES[accumulator(desc.gemm)][-1]
        down, across = smallest.count(desc.gemm)
        return admitted(desc, self.variant, MATHS) and launchable(down * across * desc.gemm.batches)

    def configs(self, desc: Any, device: DeviceSpec) -> Iterable[Tile]:
        return TILES[accumulator(desc.gemm)]

    def cost(self, desc: Any, device: DeviceSpec, config: Tile) -> Cost:
        gemm = desc.gemm
        down, across = config.count(gemm)
        deepest = -(-down * across * gemm.batches // device.sms)  # tiles of the SM that has most
        share = config.share * (_ALONE if deepest == 1 else 1.0)
        flops = 2.0 * config.bm * config.bn * max(gemm.k, 1) * deepest
        times = {
            "FMA issue": flops * device.sms / (fma_rate(accumulator(gemm), device) * share),
            "bandwidth": gemm.nbytes / (device.bandwidth * _STREAMED),
        }
        limit = max(times, key=lambda name: times[name])
        return Cost(gemm.nbytes, gemm.flops, device.overhead + _LATENCY + times[limit], limit)

    def guarantee(self, desc: Any, device: DeviceSpec, config: Tile) -> PrecisionGuarantee:
        # Only strict f32 has no other variant that selection might take for another M, with another order of sums.
        lone = desc.precision is MathPrecision.F32
        return guarantee_of(desc, desc.precision, desc.gemm.k, each=ROUNDED, batch_invariant=lone)

    def lower(self, desc: Any, device: DeviceSpec, config: Tile) -> tuple[Step, ...]:
        gemm = desc.gemm
        acc = accumulator(gemm)
        widest = _VECTOR[acc]
        a_axis, b_axis = nearest_axis(gemm.a, gemm.m, gemm.k), nearest_axis(gemm.b, gemm.k, gemm.n)
        a_wide = vector_width(gemm.a, gemm.m, gemm.k, a_axis, widest)
        b_wide = vector_width(gemm.b, gemm.k, gemm.n, b_axis, widest)
        # Half a vector is as good as none: one instantiation fewer.
        loads = [(a_axis == 1, a_wide if a_wide == widest else 1), (b_axis == 0, b_wide if b_wide == widest else 1)]
        shape = (config.bm, config.bn, config.bk, config.tm, config.tn, config.ctas)
        flags = (f"{str(along_k).lower()}, {wide}" for along_k, wide in loads)
        types = f"{gemm.a.element.cuda}, {acc.cuda}"
        entry = f"simt<{types}, {', '.join(map(str, (*shape, *flags)))}, {epilogue_type(gemm, desc.activation)}>"
        down, across = config.count(gemm)
        extents = (np.uint32(x) for x in (gemm.m, gemm.n, gemm.k, down, across))
        return (
            Launch(
                Kernel("gemm/simt.cu", entry), (down * across * gemm.batches, 1, 1), (config.threads, 1, 1),
                (Ptr(gemm.a.operand), Ptr(gemm.b.operand), epilogue_args(gemm), walk(gemm.a), walk(gemm.b), batch_struct(gemm),
                 *extents),
            ),
        )  # fmt: skip
