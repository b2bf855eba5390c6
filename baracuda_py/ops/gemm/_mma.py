"""Variants on mma.sync, for every tensor-core arch: `tc_async` (a cp.async pipeline) and `tc` (synchronous).

Where tiles are few, `tc_async` splits K and kernels/gemm/reduce.cu adds the parts.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from ...plan.candidate import Candidate, Cost, Feasibility
from ...runtime.steps import Arg, Kernel, Launch, Ptr, Step
from ...types import ArchSku, DeviceSpec, MathPrecision, PrecisionGuarantee
from .._launch import overlapped_overhead
from ._checks import admitted, countable, launchable
from ._epilogue import accumulator, batch_struct, epilogue_args, epilogue_type, walk
from ._guarantee import ROUNDED, TRUNCATED, guarantee_of
from ._problem import Gemm, Matrix
from ._split import partial_epilogue, reduce_step, second_pass, slab_of
from ._wgmma import MATHS as WARPGROUP_MATHS
from ._wgmma import takes_any_m

__all__ = ["Tc", "TcAsync", "TileConfig"]

SERVED = (
    MathPrecision.TF32,
    MathPrecision.F16,
    MathPrecision.BF16,
    MathPrecision.F64,
)  # TF32 is what to ask for instead
MOST_PIECES = 32  # that a thread brings in a K tile: each is an instruction or more
FEW_PIECES = 16  # where the accumulators are 128 registers

# mma.sync's share of the device's tensor rate, and what f64 reaches of its bf16 rate.
MMA_SHARE = {ArchSku.SM90A: 0.44, ArchSku.SM100A: 0.45}
F64_SHARE = {ArchSku.SM80: 1 / 16, ArchSku.SM90A: 1 / 15, ArchSku.SM100A: 1 / 60}
F64_SHARE_ELSEWHERE = 1 / 128
L2_BYTES = 22.7  # a clock and SM
STREAMED = 0.56  # of the bandwidth, where that is the limit
FILL = 2.7e-7  # seconds until the first tile has come
SECOND_PASS, SLAB = 1e-6, 6e-8  # seconds until its first values have come and after its last; four slabs come at once
PIECE = 61.5  # thread instructions that one costs
MOST_SPLITS, LEAST_TILES = 32, 4  # parts of K, and K tiles in one


@dataclass(frozen=True)
class TileConfig:
    """A CTA's tile (m, n, and the bytes of K in it), a warp's, the stages in flight, the share of mma.sync's rate that
    warps of this shape come to where K is long, and the parts that K is split in."""

    m: int
    n: int
    k_bytes: int
    warp_m: int
    warp_n: int
    stages: int
    share: float
    splits: int = 1

    @property
    def threads(self) -> int:
        return self.m // self.warp_m * (self.n // self.warp_n) * 32

    @property
    def shared_bytes(self) -> int:
        return self.stages * (self.m + self.n) * self.k_bytes

    def k_split(self, gemm: Gemm) -> int:
        """k's a split: all of K, or whole K tiles."""
        return gemm.k if self.splits == 1 else -(-self.k_tiles(gemm) // self.splits) * self.k_bytes // gemm.a.itemsize

    def k_tiles(self, gemm: Gemm) -> int:
        return -(-gemm.k * gemm.a.itemsize // self.k_bytes)

    def __str__(self) -> str:
        parts = f"s{self.splits}" if self.splits > 1 else ""
        return f"{self.m}x{self.n}x{self.k_bytes}B/{self.warp_m}x{self.warp_n}x{self.stages}{parts}"


NARROW = (  # 16-bit types and tf32
    TileConfig(128, 256, 128, 64, 64, 4, 0.97),
    TileConfig(128, 256, 128, 64, 64, 3, 0.96),
    TileConfig(256, 128, 128, 64, 64, 4, 0.97),
    TileConfig(128, 256, 64, 64, 64, 4, 0.93),
    TileConfig(128, 128, 128, 64, 64, 3, 0.92),
    TileConfig(128, 128, 64, 64, 64, 5, 0.92),
    TileConfig(128, 128, 64, 64, 32, 4, 0.85),
    TileConfig(64, 128, 128, 32, 64, 4, 0.8),
    TileConfig(64, 64, 128, 32, 32, 4, 0.65),
    TileConfig(64, 64, 64, 32, 32, 5, 0.6),
)
WIDE = (  # f64
    TileConfig(128, 128, 128, 64, 32, 4, 0.95),
    TileConfig(128, 128, 128, 64, 32, 3, 0.94),
    TileConfig(128, 64, 128, 64, 32, 4, 0.94),
    TileConfig(64, 128, 128, 32, 64, 4, 0.94),
    TileConfig(64, 128, 128, 32, 32, 4, 0.92),
    TileConfig(64, 64, 128, 32, 32, 4, 0.9),
)
SYNCHRONOUS = (TileConfig(128, 128, 64, 64, 32, 1, 0.19), TileConfig(64, 64, 64, 32, 32, 1, 0.13))
SYNCHRONOUS_WIDE = (TileConfig(64, 64, 128, 32, 32, 1, 0.2),)


@dataclass(frozen=True)
class Side:
    """How one operand is brought in: whether its pieces lie along K, and their bytes (an element's: any strides)."""

    k_major: bool
    nbytes: int

    def pieces(self, extent: int, k_bytes: int) -> int:
        return extent * k_bytes // self.nbytes

    def __str__(self) -> str:
        return f"{'true' if self.k_major else 'false'}, {self.nbytes}"


def side_of(matrix: Matrix, extents: tuple[int, int], k_axis: int) -> Side:
    """The widest pieces that `matrix`, of `extents` and with K along `k_axis`, allows; along K where both axes do."""
    rows, cols = extents
    found = Side(
        abs(matrix.col if k_axis else matrix.row) <= abs(matrix.row if k_axis else matrix.col), matrix.itemsize
    )
    for axis in (k_axis, 1 - k_axis):
        # The stride of an axis of extent 1 is never walked.
        free = replace(matrix, row=matrix.row if rows > 1 else 1 - axis, col=matrix.col if cols > 1 else axis)
        if (free.row, free.col)[axis] != 1:
            continue
        width = next((w for w in (16, 8, 4) if w > matrix.itemsize and free.aligned(w, along=axis)), matrix.itemsize)
        if width > found.nbytes:
            found = Side(axis == k_axis, width)
    return found


def sides(gemm: Gemm) -> tuple[Side, Side]:
    return side_of(gemm.a, (gemm.m, gemm.k), 1), side_of(gemm.b, (gemm.k, gemm.n), 0)


def band_of(gemm: Gemm, config: TileConfig, device: DeviceSpec) -> int:
    """The height, in tiles, of the bands that tiles run down: what is in flight at once touches the fewest rows and columns."""
    rows = -(-gemm.m // config.m)
    heights = [h for h in (1, 2, 4, 8, 16, 32) if h <= rows]
    return min(heights, key=lambda h: h * config.m + -(-device.sms // h) * config.n)


def tiles_of(gemm: Gemm, config: TileConfig) -> int:
    """Tiles of the result, those of a part of K apart."""
    return config.splits * gemm.batches * -(-gemm.m // config.m) * -(-gemm.n // config.n)


def most_pieces(gemm: Gemm, config: TileConfig) -> int:
    """How many pieces a thread may bring in a K tile, beside a warp tile's accumulators."""
    return MOST_PIECES if config.warp_m * config.warp_n * accumulator(gemm).bits <= 2**16 else FEW_PIECES


def mma_rate(device: DeviceSpec, math: MathPrecision) -> float:
    """mma.sync's FLOP/s."""
    tensor = device.rate("bf16")
    if math is MathPrecision.F64:
        return tensor * F64_SHARE.get(device.tier, F64_SHARE_ELSEWHERE)
    return tensor * MMA_SHARE.get(device.tier, 0.9) * (0.5 if math is MathPrecision.TF32 else 1.0)


class _Mma(Candidate[Any]):
    """A tile a CTA, products by mma.sync: any extents, strides and alignment."""

    menu: ClassVar[tuple[TileConfig, ...]]
    wide_menu: ClassVar[tuple[TileConfig, ...]]

    def supports(self, desc: Any, device: DeviceSpec) -> Feasibility:
        if not (admissible := admitted(desc, self.variant, SERVED) and countable(desc.gemm, 31)):
            return admissible
        return launchable(min((tiles_of(desc.gemm, c) for c in self._menu(desc, device)), default=0))

    def configs(self, desc: Any, device: DeviceSpec) -> Iterable[TileConfig]:
        return [c for c in self._menu(desc, device) if launchable(tiles_of(desc.gemm, c))]

    def _menu(self, desc: Any, device: DeviceSpec) -> list[TileConfig]:
        """The tiles that shared memory holds and whose operands come in no more pieces than a thread should bring."""
        gemm: Gemm = desc.gemm
        a, b = self._sides(gemm)
        every = self.wide_menu if desc.precision is MathPrecision.F64 else self.menu
        return [
            c
            for c in every
            if c.shared_bytes <= device.shared_bytes
            and a.pieces(c.m, c.k_bytes) + b.pieces(c.n, c.k_bytes) <= most_pieces(gemm, c) * c.threads
        ]

    def _sides(self, gemm: Gemm) -> tuple[Side, Side]:
        return sides(gemm)

    def cost(self, desc: Any, device: DeviceSpec, config: TileConfig) -> Cost:
        gemm: Gemm = desc.gemm
        return _cost(gemm, device, config, self._sides(gemm), mma_rate(device, desc.precision))

    def guarantee(self, desc: Any, device: DeviceSpec, config: TileConfig) -> PrecisionGuarantee:
        # Every tile sums a result's products in the same order, mma by mma, and a K tail's zeros leave a sum as it is: no
        # result depends on M or the batch.
        each = ROUNDED if desc.precision is MathPrecision.F64 else TRUNCATED
        # One variant a device (or two with the same sums) may promise this, for selection goes by M as well.
        elsewhere = device.tier is ArchSku.SM90A and desc.precision in WARPGROUP_MATHS and takes_any_m(desc.gemm)
        lone = self.variant == "tc_async" and not elsewhere and config.splits == 1
        return guarantee_of(
            desc, desc.precision, config.k_split(desc.gemm), each=each, splits=config.splits, batch_invariant=lone
        )


def _cost(gemm: Gemm, device: DeviceSpec, config: TileConfig, ways: tuple[Side, Side], rate: float) -> Cost:
    """The busiest SM's time, one tile's beginning and end, and where K is split the second pass."""
    size = gemm.a.itemsize
    rounds = -(-tiles_of(gemm, config) // device.sms)
    k_tiles = max(1, -(-config.k_tiles(gemm) // config.splits))
    clock_sms = device.rate("issue") / 128  # clocks a second, all SMs together
    pieces = ways[0].pieces(config.m, config.k_bytes) + ways[1].pieces(config.n, config.k_bytes)
    flops = 2 * config.m * config.n * k_tiles * config.k_bytes // size
    loaded = (config.m + config.n) * k_tiles * config.k_bytes
    alone = max(0.5, min(1.0, config.threads / 256)) if rounds == 1 else 1.0  # few warps do not fill the tensor cores
    times = {
        "tensor cores": rounds * device.sms * flops / (rate * config.share * alone),
        "L2": rounds * device.sms * loaded / (L2_BYTES * clock_sms),
        "instruction issue": rounds * device.sms * pieces * k_tiles * PIECE / device.rate("issue"),
        "bandwidth": gemm.nbytes / (device.bandwidth * STREAMED),
    }
    limit = max(times, key=lambda name: times[name])
    edges = (
        FILL + config.m * config.n * accumulator(gemm).bits // 8 / L2_BYTES * device.sms / clock_sms
    )  # the result is written
    seconds = overlapped_overhead(device) + times[limit] + edges
    if config.splits > 1:
        seconds += second_pass(gemm, config.splits, device, SECOND_PASS + config.splits * SLAB)
    return Cost(gemm.nbytes, gemm.flops, seconds, limit)


def _types(gemm: Gemm, epilogue: str, config: TileConfig) -> str:
    k = config.k_bytes // gemm.a.itemsize
    return f"{gemm.a.element.number}, {epilogue}, {config.m}, {config.n}, {k}, {config.warp_m}, {config.warp_n}"


def _problem(gemm: Gemm, epilogue: Arg, config: TileConfig, device: DeviceSpec) -> tuple[Arg, ...]:
    """The arguments that every kernel of this family begins with."""
    extents = (np.uint32(n) for n in (gemm.m, gemm.n, gemm.k, band_of(gemm, config, device)))
    operands = (Ptr(gemm.a.operand), Ptr(gemm.b.operand), epilogue)
    return (*operands, walk(gemm.a), walk(gemm.b), batch_struct(gemm), *extents)


class TcAsync(_Mma):
    """A cp.async pipeline of 3 to 5 stages; operands are multiplied as they lie. K is whole, or split until every SM has a
    tile."""

    variant = "tc_async"
    launches = ("gemm/tc_async.cu:tc_async", "gemm/reduce.cu:reduce")
    menu, wide_menu = NARROW, WIDE

    def configs(self, desc: Any, device: DeviceSpec) -> Iterable[TileConfig]:
        gemm: Gemm = desc.gemm
        found = list(super().configs(desc, device))
        for config in tuple(found):
            idle = device.sms // tiles_of(gemm, config) if gemm.m * gemm.n * gemm.batches else 0
            wanted = min(idle, config.k_tiles(gemm) // LEAST_TILES, MOST_SPLITS)
            if wanted > 1:
                each = -(-config.k_tiles(gemm) // wanted)
                found.append(replace(config, splits=-(-config.k_tiles(gemm) // each)))
        return found

    def lower(self, desc: Any, device: DeviceSpec, config: TileConfig) -> tuple[Step, ...]:
        gemm: Gemm = desc.gemm
        if config.splits == 1:
            return (_launch(gemm, epilogue_type(gemm, desc.activation), epilogue_args(gemm), device, config),)
        first = _launch(gemm, *partial_epilogue(gemm, config.splits), device, config)
        return (first, reduce_step(desc, gemm, config.splits))


def _launch(gemm: Gemm, kind: str, epilogue: Arg, device: DeviceSpec, config: TileConfig) -> Launch:
    a, b = sides(gemm)
    kernel = Kernel("gemm/tc_async.cu", f"tc_async<{_types(gemm, kind, config)}, {config.stages}, {a}, {b}>")
    parts = (np.uint32(config.splits), np.uint32(config.k_split(gemm)), np.uint64(slab_of(gemm)))
    args = (*_problem(gemm, epilogue, config, device), *parts)
    grid, block = (tiles_of(gemm, config), 1, 1), (config.threads, 1, 1)
    return Launch(kernel, grid, block, args, config.shared_bytes, overlapped=True)


class Tc(_Mma):
    """Synchronous staging through registers: 16-byte accesses, or one element at a time."""

    variant = "tc"
    launches = ("gemm/tc.cu:tc",)
    menu, wide_menu = SYNCHRONOUS, SYNCHRONOUS_WIDE

    def _sides(self, gemm: Gemm) -> tuple[Side, Side]:
        a, b = sides(gemm)
        return tuple(s if s.nbytes == 16 else Side(s.k_major, gemm.a.itemsize) for s in (a, b))  # type: ignore[return-value]

    def lower(self, desc: Any, device: DeviceSpec, config: TileConfig) -> tuple[Step, ...]:
        gemm: Gemm = desc.gemm
        a, b = self._sides(gemm)
        kernel = Kernel("gemm/tc.cu", f"tc<{_types(gemm, epilogue_type(gemm, desc.activation), config)}, {a}, {b}>")
        args = _problem(gemm, epilogue_args(gemm), config, device)
        grid, block = (tiles_of(gemm, config), 1, 1), (config.threads, 1, 1)
        return (Launch(kernel, grid, block, args, overlapped=True),)
