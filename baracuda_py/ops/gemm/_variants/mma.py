"""Variants on mma.sync, for every tensor-core arch: `tc_async` (a cp.async pipeline) and `tc` (synchronous).

Where tiles are few, `tc_async` splits K and kernels/gemm/reduce.cu adds the parts.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property, lru_cache
from typing import Any, ClassVar

import numpy as np

from ....plan.candidate import Feasibility
from ....runtime.steps import Arg, Kernel, Launch, Ptr, Step
from ....types import ArchSku, DeviceSpec, MathPrecision, PrecisionGuarantee
from ..._fitted import Fitted
from ..._launch import overlapped_overhead
from ...products.checks import MOST_CTAS, WARPGROUP_MATHS, admitted, countable, launchable, takes_any_m
from ...products.epilogue import accumulator, batch_struct, epilogue_args, epilogue_type, packed_strides
from ...products.gemm import Gemm
from ...products.guarantee import ROUNDED, TRUNCATED, guarantee_of
from ...products.mma import NARROW, Side, Tile, mma_rate, side_of
from ...products.split import partial_epilogue, partial_size, parts_latency, reduce_step, second_pass
from ...products.table import Table, Tabled, across, longest, spread

__all__ = ["Tc", "TcAsync"]

SERVED = (
    MathPrecision.TF32,
    MathPrecision.F16,
    MathPrecision.BF16,
    MathPrecision.F64,
)  # TF32 is what to ask for instead
MOST_VECTORS = 32  # loads of a thread per K tile: each is at least one instruction
FEW_VECTORS = 16  # the limit where accumulators take 128 registers

MOST_SPLITS, LEAST_TILES = 32, 4  # most parts of K, and fewest K tiles in a part


class Costs(Fitted, table="gemm.mma"):
    l2_bytes_per_cycle: float
    bandwidth_efficiency: float
    first_tile_latency_s: float
    instructions_per_load: float


WIDE = (  # f64
    Tile(128, 128, 128, (64, 32), 4, share=0.95),
    Tile(128, 128, 128, (64, 32), 3, share=0.94),
    Tile(128, 64, 128, (64, 32), 4, share=0.94),
    Tile(64, 128, 128, (32, 64), 4, share=0.94),
    Tile(64, 128, 128, (32, 32), 4, share=0.92),
    Tile(64, 64, 128, (32, 32), 4, share=0.9),
)
SYNCHRONOUS = (Tile(128, 128, 64, (64, 32), 1, share=0.19), Tile(64, 64, 64, (32, 32), 1, share=0.13))
SYNCHRONOUS_WIDE = (Tile(64, 64, 128, (32, 32), 1, share=0.2),)


def sides(gemm: Gemm) -> tuple[Side, Side]:
    return side_of(gemm.a, (gemm.m, gemm.k), 1), side_of(gemm.b, (gemm.k, gemm.n), 0)


def group_m_of(gemm: Gemm, config: Tile, device: DeviceSpec) -> int:
    """Rows of tiles per group, walked column by column, so that the tiles in flight touch the fewest rows and columns."""
    rows = -(-gemm.m // config.m)
    heights = [h for h in (1, 2, 4, 8, 16, 32) if h <= rows]
    return min(heights, key=lambda h: h * config.m + -(-device.sms // h) * config.n)


def tiles_of(gemm: Gemm, config: Tile) -> int:
    """Tiles of the result, counted once per part of K."""
    return config.split_k * gemm.batches * -(-gemm.m // config.m) * -(-gemm.n // config.n)


class Menu:
    """The tiles that fit shared memory and whose operands, loaded in `ways`, need no more pieces per thread than the limit. Where
    K may be split, each is listed twice: with K whole, and split."""

    def __init__(
        self, every: tuple[Tile, ...], a: Side, b: Side, itemsize: int, acc_bits: int, shared_bytes: int, splits: bool
    ) -> None:
        def vectors(tile: Tile) -> int:
            return a.vectors(tile.m, tile.k_bytes) + b.vectors(tile.n, tile.k_bytes)

        def most(tile: Tile) -> int:  # pieces that leave registers for a warp tile's accumulators
            return MOST_VECTORS if tile.warp[0] * tile.warp[1] * acc_bits <= 2**16 else FEW_VECTORS

        self.tiles = [t for t in every if t.shared_bytes <= shared_bytes and vectors(t) <= most(t) * t.threads]
        self.vectors = np.array([vectors(t) for t in self.tiles] * (1 + splits))
        self.columns: Any = spread(self.tiles * (1 + splits)) if self.tiles else None
        self.threads = np.array([t.threads for t in self.tiles] * (1 + splits))

    def table(self, desc: Any, device: DeviceSpec) -> Table[Tile]:
        """The menu priced: the busiest SM's time, one tile's prologue and epilogue, and the second pass where K is split."""
        gemm, tile, costs = desc.gemm, self.columns, Costs.of(device)
        if not self.tiles:
            return Table(np.array(()), self.tiles.__getitem__, str)
        size, whole = gemm.a.itemsize, len(self.tiles)
        down, over = across(float(gemm.m), tile.m), across(float(gemm.n), tile.n)
        tiles = gemm.batches * down * over  # in floating point, so that they do not overflow
        fits = tiles <= MOST_CTAS
        splits = np.ones_like(tiles)
        k_tiles = tile.k_tiles(gemm) * splits
        idle = device.sms // tiles[whole:] if gemm.m * gemm.n * gemm.batches else np.zeros_like(tiles[whole:])
        wanted = np.minimum(np.minimum(idle, k_tiles[whole:] // LEAST_TILES), MOST_SPLITS)
        splits[whole:] = across(k_tiles[whole:], np.maximum(1, across(k_tiles[whole:], np.maximum(1, wanted))))
        fits[whole:] &= wanted > 1
        rounds = across(splits * tiles, float(device.sms))
        k_tiles = np.maximum(1, across(k_tiles, np.maximum(1, splits)))
        clock_sms = device.rate("issue") / 128  # clocks per second, summed over all SMs
        flops = 2 * tile.m * tile.n * k_tiles * tile.k_bytes // size
        loaded = (tile.m + tile.n) * k_tiles * tile.k_bytes
        few = np.maximum(0.5, np.minimum(1.0, self.threads / 256))  # too few warps to fill the tensor cores
        alone = np.where(rounds == 1, few, 1.0)
        limits = {
            "tensor cores": rounds * device.sms * flops / (mma_rate(device, desc.precision) * tile.share * alone),
            "L2": rounds * device.sms * loaded / (costs.l2_bytes_per_cycle * clock_sms),
            "instruction issue": rounds
            * device.sms
            * self.vectors
            * k_tiles
            * costs.instructions_per_load
            / device.rate("issue"),
            "bandwidth": gemm.nbytes / (device.bandwidth * costs.bandwidth_efficiency),
        }
        longer, limit = longest(limits)
        # The result is written.
        stored = tile.m * tile.n * accumulator(gemm).bits // 8
        edges = costs.first_tile_latency_s + stored / costs.l2_bytes_per_cycle * device.sms / clock_sms
        seconds = overlapped_overhead(device) + longer + edges
        seconds = seconds + second_pass(gemm, splits, device, parts_latency(splits, device))
        return Table(
            np.where(fits, seconds, np.inf),
            lambda place: replace(self.tiles[place % whole], split_k=int(splits[place])),
            limit,
        )


@lru_cache(maxsize=256)
def menu_of(
    every: tuple[Tile, ...], a: Side, b: Side, itemsize: int, acc_bits: int, shared_bytes: int, splits: bool
) -> Menu:
    return Menu(every, a, b, itemsize, acc_bits, shared_bytes, splits)


@lru_cache(maxsize=64)
def _table(menu: Menu, desc: Any, device: DeviceSpec) -> Table[Tile]:
    return menu.table(desc, device)


class _Mma(Tabled):
    """A tile a CTA, products by mma.sync: any extents, strides and alignment."""

    menu: ClassVar[tuple[Tile, ...]]
    wide_menu: ClassVar[tuple[Tile, ...]]
    splits: ClassVar[bool]

    def supports(self, desc: Any, device: DeviceSpec) -> Feasibility:
        if not (admissible := admitted(desc, self.variant, SERVED) and countable(desc.gemm, 31)):
            return admissible
        return launchable(min((tiles_of(desc.gemm, tile) for tile in self._menu(desc, device).tiles), default=0))

    def table(self, desc: Any, device: DeviceSpec) -> Table[Tile]:
        return _table(self._menu(desc, device), desc, device)

    def floor(self, desc: Any, device: DeviceSpec) -> float:
        gemm, share = desc.gemm, self._shares[desc.precision is MathPrecision.F64]
        costs = Costs.of(device)
        rate = mma_rate(device, desc.precision) * share
        limit = max(gemm.flops / rate, gemm.nbytes / (device.bandwidth * costs.bandwidth_efficiency))
        return float(overlapped_overhead(device) + costs.first_tile_latency_s + limit)

    @cached_property
    def _shares(self) -> tuple[float, float]:
        """The largest share of mma.sync's rate that a tile of each menu reaches."""
        return max(tile.share for tile in self.menu), max(tile.share for tile in self.wide_menu)

    def _menu(self, desc: Any, device: DeviceSpec) -> Menu:
        every = self.wide_menu if desc.precision is MathPrecision.F64 else self.menu
        gemm: Gemm = desc.gemm
        return menu_of(
            every, *self._sides(gemm), gemm.a.itemsize, accumulator(gemm).bits, device.shared_bytes, self.splits
        )

    def _sides(self, gemm: Gemm) -> tuple[Side, Side]:
        return sides(gemm)

    def guarantee(self, desc: Any, device: DeviceSpec, config: Tile) -> PrecisionGuarantee:
        # Every tile sums a result's products in the same order, mma by mma, and a K tail's zeros leave a sum as it is: no
        # result depends on M or the batch.
        each = ROUNDED if desc.precision is MathPrecision.F64 else TRUNCATED
        # Only one variant per device (or two with equal sums) may promise this, because selection depends on M as well.
        elsewhere = device.tier is ArchSku.SM90A and desc.precision in WARPGROUP_MATHS and takes_any_m(desc.gemm)
        lone = self.variant == "tc_async" and not elsewhere and config.split_k == 1
        return guarantee_of(
            desc, desc.precision, config.k_split(desc.gemm), each=each, splits=config.split_k, batch_invariant=lone
        )


def _types(gemm: Gemm, epilogue: str, config: Tile) -> str:
    k = config.k_bytes // gemm.a.itemsize
    return f"{gemm.a.element.number}, {epilogue}, {config.m}, {config.n}, {k}, {config.warp[0]}, {config.warp[1]}"


def _problem(gemm: Gemm, epilogue: Arg, config: Tile, device: DeviceSpec) -> tuple[Arg, ...]:
    """The arguments that every kernel of this family begins with."""
    extents = (np.uint32(n) for n in (gemm.m, gemm.n, gemm.k, group_m_of(gemm, config, device)))
    operands = (Ptr(gemm.a.operand), Ptr(gemm.b.operand), epilogue)
    return (*operands, packed_strides(gemm.a), packed_strides(gemm.b), batch_struct(gemm), *extents)


class TcAsync(_Mma):
    """A cp.async pipeline of 3 to 5 stages, for any operand layout. K is whole, or split until every SM has a tile."""

    variant = "tc_async"
    launches = ("gemm/tc_async.cu:tc_async", "gemm/reduce.cu:reduce")
    menu, wide_menu, splits = NARROW, WIDE, True

    def lower(self, desc: Any, device: DeviceSpec, config: Tile) -> tuple[Step, ...]:
        gemm: Gemm = desc.gemm
        if config.split_k == 1:
            return (_launch(gemm, epilogue_type(gemm, desc.activation), epilogue_args(gemm), device, config),)
        first = _launch(gemm, *partial_epilogue(gemm, config.split_k), device, config)
        return (first, reduce_step(desc, gemm, config.split_k))


def _launch(gemm: Gemm, kind: str, epilogue: Arg, device: DeviceSpec, config: Tile) -> Launch:
    a, b = sides(gemm)
    kernel = Kernel("gemm/tc_async.cu", f"tc_async<{_types(gemm, kind, config)}, {config.stages}, {a}, {b}>")
    parts = (np.uint32(config.split_k), np.uint32(config.k_split(gemm)), np.uint64(partial_size(gemm)))
    args = (*_problem(gemm, epilogue, config, device), *parts)
    grid, block = (tiles_of(gemm, config), 1, 1), (config.threads, 1, 1)
    return Launch(kernel, grid, block, args, config.shared_bytes, pdl=True)


class Tc(_Mma):
    """Synchronous staging through registers: 16-byte accesses, or one element at a time."""

    variant = "tc"
    launches = ("gemm/tc.cu:tc",)
    menu, wide_menu, splits = SYNCHRONOUS, SYNCHRONOUS_WIDE, False

    def _sides(self, gemm: Gemm) -> tuple[Side, Side]:
        a, b = sides(gemm)
        return tuple(s if s.nbytes == 16 else Side(s.k_major, gemm.a.itemsize) for s in (a, b))  # type: ignore[return-value]

    def lower(self, desc: Any, device: DeviceSpec, config: Tile) -> tuple[Step, ...]:
        gemm: Gemm = desc.gemm
        a, b = self._sides(gemm)
        kernel = Kernel("gemm/tc.cu", f"tc<{_types(gemm, epilogue_type(gemm, desc.activation), config)}, {a}, {b}>")
        args = _problem(gemm, epilogue_args(gemm), config, device)
        grid, block = (tiles_of(gemm, config), 1, 1), (config.threads, 1, 1)
        return (Launch(kernel, grid, block, args, pdl=True),)
