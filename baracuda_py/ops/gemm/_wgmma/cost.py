"""The cost model of wgmma's tiles: SM cycles per block of K, per tile and per launch, beside the time that memory takes.

`Menu` holds what does not depend on M, N and the batch; `Menu.table` prices it for a product.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache, cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np

from ....types import DeviceSpec
from ..._fitted import Fitted
from ..._launch import overlapped_overhead
from ...products.gemm import Gemm
from ...products.scales import BLOCK
from ...products.table import Array, Table, larger, smaller
from .tile import (
    LEAST_BLOCKS,
    LEAST_STAGES,
    MENU,
    PARTS,
    STEP,
    Tile,
    Traits,
    clusters_at_once,
    last_waves_of,
    pipeline_of,
    split_last_waves,
)  # fmt: skip
from .tma import K_BLOCK

__all__ = ["Menu", "floor_of", "menu_of"]

LEAST_WAVES = 2  # fewest whole waves before a last wave with its own launch
ROUNDING = 1e-9  # relative: a bound may exceed the bounded price by rounding
LIMITS = ("tensor cores", "shared memory", "L2")


class Costs(Fitted, table="gemm.wgmma"):
    tensor_core_time_ratio: float
    shared_bytes_per_cycle: float
    l2_bytes_per_cycle: float
    ping_pong_epilogue_cycles: float
    cooperative_epilogue_cycles: float
    epilogue_cycles_per_element: float
    warp_store_time_ratio: float
    cluster_bytes_per_cycle: float
    drain_bytes_per_cycle: float
    start_cycles: float
    cluster_start_cycles: float
    overlap_ratio: float
    bandwidth_efficiency: float
    throttle_ratio: float
    throttle_onset_s: float


class Sizes(NamedTuple):
    """The terms of tiles that their costs depend on: an array per term."""

    bm: Array
    bn: Array
    cluster: Array
    split_k: Array
    ctas_per_sm: Array
    ping_pong: Array


@cache
def _sizes() -> Sizes:
    """Of the whole menu, [kind][tile]: first the tiles unchanged, then their last waves in as many parts as `PARTS` says."""
    kinds = list(zip(*((tile, *last_waves_of(tile)) for tile in MENU)))
    return Sizes(*(np.array([[getattr(tile, term) for tile in tiles] for tiles in kinds]) for term in Sizes._fields))


@lru_cache(maxsize=64)
def _at_once(device: DeviceSpec) -> Array:
    """Clusters that run at once, of the menu's tiles and their last waves."""
    kinds = zip(*((tile, *last_waves_of(tile)) for tile in MENU))
    return np.array([[clusters_at_once(device, tile) for tile in tiles] for tiles in kinds], float)


class Rates(NamedTuple):
    """What tiles cost, independent of the problem's extents: an array per term."""

    height: Array  # rows of the result per cluster
    columns: Array
    ctas: Array  # per tile
    ctas_per_sm: Array
    blocks: Array  # blocks of K that a CTA multiplies
    cores: Array  # cycles per block of K
    shared: Array
    l2: Array
    finish: Array  # further cycles per tile
    sent: Array
    last: Array  # further cycles per launch
    start: Array

    @staticmethod
    def of(tile: Sizes, k_blocks: Array, out_itemsize: Array, by_warps: Array, costs: Costs) -> Rates:
        """`by_warps`: whether warps store the result, not TMA and not each thread."""
        area = tile.bm * tile.bn
        staged = (tile.bm + tile.bn) * K_BLOCK
        read = tile.bm // 64 * (K_BLOCK // STEP) * (64 + tile.bn) * STEP  # every instruction reads its operands
        stored = np.where(by_warps, costs.warp_store_time_ratio, 1.0)
        leaving = costs.epilogue_cycles_per_element * out_itemsize / 2 * stored
        return Rates(
            height=tile.bm * tile.cluster,
            columns=tile.bn,
            ctas=tile.cluster * tile.split_k,
            ctas_per_sm=tile.ctas_per_sm,
            blocks=k_blocks / tile.split_k,
            cores=area / 32 * costs.tensor_core_time_ratio,
            shared=(staged + read) / costs.shared_bytes_per_cycle,
            l2=(tile.bm + tile.bn / tile.cluster) * K_BLOCK / costs.l2_bytes_per_cycle,
            finish=np.where(
                tile.ping_pong, costs.ping_pong_epilogue_cycles, costs.cooperative_epilogue_cycles + area * leaving
            ),
            sent=area * 4 * (tile.split_k - 1) / tile.split_k / costs.cluster_bytes_per_cycle,
            last=area * out_itemsize / tile.split_k / costs.drain_bytes_per_cycle,
            start=costs.start_cycles + costs.cluster_start_cycles * (tile.cluster - 1),
        )

    def multiplying(self) -> Array:
        """Cycles that a tile's blocks of K take on the slowest resource."""
        return self.blocks * np.maximum(np.maximum(self.cores, self.shared), self.l2)

    def each(self, multiplying: Array, tiles: Array, sms: int) -> Array:
        """Cycles a tile, of as many as there are: what its blocks of K take beside those of other CTAs, and finishing."""
        beside = np.minimum(self.ctas_per_sm, np.ceil(tiles * self.ctas / sms))
        return multiplying * beside + self.finish + self.sent


class Menu:
    """The tiles that products of some traits may be computed with on a device, and what follows from traits and device.

    In pairs: a tile, and the same tile with a split last wave, in as many parts as fill that wave.
    """

    def __init__(self, plain: Traits, transposed: Traits, promoted: bool, device: DeviceSpec) -> None:
        self.costs = costs = Costs.of(device)
        found, waves = _serving(plain._replace(k_blocks=0), transposed._replace(k_blocks=0), promoted)
        of_menu = _sizes()
        own = TRANSPOSED[found]  # 0 or 1, by the product that a tile computes
        k_blocks, out_itemsize, by_warps = np.array(
            [(traits.k_blocks, traits.out_itemsize, traits.store.startswith("WARP")) for traits in (plain, transposed)]
        ).T
        split = of_menu.split_k[0, found]
        long = (split == 1) | (k_blocks[own] >= LEAST_BLOCKS * split)
        found, waves, own = found[long], waves[:, long], own[long]
        k_blocks, out_itemsize, by_warps = k_blocks[own], out_itemsize[own], by_warps[own] > 0
        sizes = Sizes(*(term[:, found] for term in of_menu))
        whole = Sizes(*(term[0] for term in sizes))
        self.tiles: list[Tile] = [MENU[i] for i in found]
        self.own = np.array((own, 1 - own))  # which of M and N (0 or 1) a tile's rows and columns run along
        # A cluster's CTAs each have rows of their own, and load columns of B.
        self.more_than = np.where(whole.cluster > 1, (whole.bm, whole.bn // whole.cluster), -1).astype(float)
        self.enough = self.more_than.max(initial=0.0)  # more than that is more than any tile asks for
        at_once = _at_once(device)[:, found]
        self.most_tiles = np.where(whole.split_k > 1, at_once[0], np.inf)  # K is split only where tiles are few
        self.at_once = np.maximum(at_once[0], 1.0)  # of a GPU with fewer SMs than the cluster has CTAs none
        self.clusters = whole.cluster.astype(float)
        rates = np.empty((len(Rates._fields), *sizes.bm.shape))
        for term, values in zip(rates, Rates.of(sizes, k_blocks, out_itemsize, by_warps, costs)):
            term[...] = values
        self.rates, self.last_rates = Rates(*rates[:, 0]), rates[:, 1:]
        # The last wave's room, [parts][tile]; 0 where there is no such tile.
        parted = waves & (k_blocks >= LEAST_BLOCKS * sizes.split_k[1:])
        self.slots = np.where(parted, at_once[1:], 0.0)
        self.steps = np.array((self.rates.height, self.rates.columns))
        self.multiplying = self.rates.multiplying()
        self.clock = device.rate("issue") / (device.sms * 128)
        self.most_slots = self.slots.max(axis=0)
        last = Rates(*self.last_rates)
        self.last_multiplying = last.multiplying()
        least = self.last_multiplying + last.finish + last.sent + last.last + last.start
        self.least_last = np.where(self.slots > 0, least, np.inf).min(axis=0)  # cycles of any last wave of its own
        # Cycles saved that make up for one more launch: a cycle fewer saves 1 + throttle_ratio times its own time at most.
        self.relaunch = overlapped_overhead(device) * self.clock / (1 + costs.throttle_ratio)
        self.bandwidth = device.bandwidth * costs.bandwidth_efficiency
        self.sms, self.launch = device.sms, overlapped_overhead(device)

    def table(self, gemm: Gemm) -> Table[Tile]:
        """The menu priced for the product, which is given untransposed."""
        return Priced(self, gemm)


class Priced(Table[Tile]):
    """The menu priced for one product: whole tiles at once, and with a last wave of their own as far as is asked for."""

    def __init__(self, menu: Menu, gemm: Gemm) -> None:
        self.menu, rates = menu, menu.rates
        self.parts: dict[int, int] = {}  # of tiles that were priced with a last wave of their own, as a place in PARTS
        self.batches = float(gemm.batches)
        self.memory = gemm.nbytes / menu.bandwidth
        self.extents = np.array((gemm.m, gemm.n), float)[menu.own]
        down, over = np.ceil(self.extents / menu.steps)  # a third of the time of whole division
        tiles = down * over * self.batches  # those of a cluster counted as one; in floating point they do not overflow
        self.fits = tiles <= menu.most_tiles
        if min(gemm.m, gemm.n) <= menu.enough:
            more = self.extents > menu.more_than
            self.fits &= more[0] & more[1]
        whole = np.floor(tiles / menu.at_once)
        self.rest = tiles - whole * menu.at_once
        begun = self.rest > 0
        each = rates.each(menu.multiplying, tiles, menu.sms)
        self.cycles = (whole + begun) * each + rates.last + rates.start
        self.before = whole * each + rates.last + rates.start  # cycles until a last wave of its own
        self.parted = self.fits & begun & (whole >= LEAST_WAVES) & (self.rest * menu.clusters <= menu.most_slots)

    def _compute(self, cycles: Any) -> Any:
        """Seconds of computing, slowed by what power allows."""
        compute, costs = cycles / self.menu.clock, self.menu.costs
        return compute * (1 + costs.throttle_ratio * compute / (compute + costs.throttle_onset_s))

    def _seconds(self, cycles: Any, launches: int) -> Any:
        """Of one tile or an array of them. They grow with the cycles, so that what takes least takes the fewest."""
        compute = self._compute(cycles)
        both = larger(compute, self.memory) + (1 - self.menu.costs.overlap_ratio) * smaller(compute, self.memory)
        return both + self.menu.launch * launches

    def _with_last_wave(self, tiles: Array) -> Array:
        """Cycles of tiles with a last wave of their own, whose K is in the most parts that run at once with all their CTAs."""
        menu = self.menu
        roomy = (self.rest * menu.clusters)[tiles] <= menu.slots[:, tiles]
        at = roomy.argmax(axis=0)
        self.parts.update(zip(tiles.tolist(), at.tolist()))
        split = Rates(*menu.last_rates[:, at, tiles])
        m, n = self.extents[:, tiles]
        counted = np.ceil(m / split.height) * np.ceil(n / split.columns) * self.batches
        last = split.each(menu.last_multiplying[at, tiles], counted, menu.sms) + split.last + split.start
        return self.before[tiles] + last

    @cached_property
    def seconds(self) -> Array:
        """In pairs: a tile, and the same with a last wave of its own."""
        tiles = self.parted.nonzero()[0]
        seconds = np.full(len(self), np.inf)
        seconds[0::2] = np.where(self.fits, self._seconds(self.cycles, 1), np.inf)
        seconds[2 * tiles + 1] = self._seconds(self._with_last_wave(tiles), 2)
        return seconds

    def __len__(self) -> int:
        return 2 * len(self.fits)

    def least(self) -> tuple[int, float]:
        """A last wave of its own is priced only where the least that it may take leaves less than the best tile as it is."""
        fitting = np.where(self.fits, self.cycles, np.inf)
        first = int(fitting.argmin())
        cycles = float(fitting[first])
        if cycles == math.inf:
            return 0, math.inf
        found = self._seconds(cycles, 1), 2 * first
        most = cycles * (1 + ROUNDING) - self.menu.relaunch
        within = (self.parted & (self.before + self.menu.least_last < most)).nonzero()[0]
        if len(within):
            with_last_wave = self._with_last_wave(within)
            best = int(with_last_wave.argmin())
            found = min(found, (self._seconds(float(with_last_wave[best]), 2), 2 * int(within[best]) + 1))
        return found[1], found[0]

    def config(self, place: int) -> Tile:
        tile = self.menu.tiles[place // 2]
        if place % 2 == 0:
            return tile
        return replace(tile, split_last_wave=PARTS[self.parts[place // 2]])

    def limit(self, place: int) -> str:
        i, rates = place // 2, self.menu.rates
        if self.memory > self._compute(self._with_last_wave(np.array([i]))[0] if place % 2 else self.cycles[i]):
            return "bandwidth"
        each = [float(x[i]) for x in (rates.cores, rates.shared, rates.l2)]
        return LIMITS[each.index(max(each))]


def _fits(tile: Tile, traits: Traits, promoted: bool) -> bool:
    """Whether the tile serves products of these traits, for any M and N and enough blocks of K."""
    if promoted and (tile.rows > 1 or tile.bn > 128):
        return False  # promoted sums need a second set of accumulators
    if traits.blocked and (tile.transposed or BLOCK % tile.bn):
        return False
    if tile.cluster > 1:
        widest = tile.bn == 256 or (tile.bm, tile.bn) == (256, 128)
        if widest and (tile.transposed or traits.itemsize == 1):
            return False  # the widest tiles have no registers left for column stores, or for fp8
        parts = tile.bn // 64 if traits.b_mn_major else tile.bn // 8  # parts of B that the CTAs of a cluster can share
        if parts % tile.cluster or (traits.b_mn_major and tile.bn % 64):
            return False
    return pipeline_of(traits, tile)[0] >= LEAST_STAGES


TRANSPOSED = np.array([tile.transposed for tile in MENU], int)


@lru_cache(maxsize=64)
def _serving(plain: Traits, transposed: Traits, promoted: bool) -> tuple[Array, Array]:
    """The places in the menu of the tiles that serve products of these traits where K is long enough, and whether each may have
    a last wave of its own, [parts][tile]."""
    of_tile = [transposed if tile.transposed else plain for tile in MENU]
    found = [i for i, tile in enumerate(MENU) if _fits(tile, of_tile[i], promoted)]
    waves = np.array([split_last_waves(of_tile[i], MENU[i]) for i in found], bool)
    return np.array(found, int), waves.reshape(-1, len(PARTS)).T


@lru_cache(maxsize=256)
def menu_of(plain: Traits, transposed: Traits, promoted: bool, device: DeviceSpec) -> Menu:
    """The menu of products of these traits; `transposed` are those of the transposed product."""
    return Menu(plain, transposed, promoted, device)


def floor_of(gemm: Gemm, device: DeviceSpec) -> float:
    """A lower bound in seconds for every tile: the time that memory takes."""
    return overlapped_overhead(device) + gemm.nbytes / (device.bandwidth * Costs.of(device).bandwidth_efficiency)
