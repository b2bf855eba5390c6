"""What wgmma's tiles cost: cycles of an SM that a block of K, a tile and a launch take, beside the time that memory takes.

`Menu` holds all that follows from a product's traits, whatever its M, N and batch; `Menu.table` prices it for some.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from ...types import DeviceSpec
from .._launch import overlapped_overhead
from ._problem import Gemm
from ._scales import BLOCK
from ._table import Array, Table, across
from ._tma import K_BLOCK
from ._wgmma_tile import LEAST_STAGES, MENU, PARTS, STEP, Tile, Traits, clusters_at_once, pipeline_of, split_last_waves

__all__ = ["Menu", "floor_of", "menu_of"]

# Fitted to sweeps of an H200. Cycles, and bytes a cycle:
CORES = 1.03  # of the tensor cores' own time
SHARED_RATE, L2_RATE = 162.0, 55.0
CYCLES_PER_OUTSIDE_ROW = 10.4  # a row of a box that lies outside the operand
PING_PONG, TOGETHER = 185.0, 383.0  # what finishing a tile takes, where consumers take turns or share it
PER_ELEMENT, RAGGED = 0.034, 2.65  # of a shared tile of two-byte results, and where it leaves by warps
SENT_RATE = 29.3  # of partial sums within a cluster
DRAIN_RATE = 23.7  # the last tile's result
START, START_PAIR = 307.0, 300.0
HIDDEN = 0.7  # of the lesser of computing and moving
BANDWIDTH = 1.25  # times a copy's: reads alone are faster, and small operands stay in L2
THROTTLE, BEFORE = 0.12, 60e-6  # how much slower power makes what takes much longer than so many seconds
LEAST_WAVES = 2  # before a last one of its own
LAUNCHES = np.array(((1,), (2,)))  # of a tile, and with a last wave of its own
LIMITS = ("tensor cores", "shared memory", "L2")


class Rates(NamedTuple):
    """What tiles cost whatever the problem's extents, an array a term."""

    height: Array  # rows of the result a cluster
    columns: Array
    ctas: Array  # a tile
    ctas_per_sm: Array
    blocks: Array  # of K that a CTA multiplies
    cores: Array  # cycles a block of K
    shared: Array
    l2: Array
    outside: Array  # rows of B that a CTA of a cluster brings; 0 where there is no cluster
    finish: Array  # cycles a tile, besides
    sent: Array
    last: Array  # and a launch
    start: Array

    @staticmethod
    def of(tile: Tile, traits: Traits) -> Rates:
        area = tile.bm * tile.bn
        staged = (tile.bm + tile.bn) * K_BLOCK
        read = tile.bm // 64 * (K_BLOCK // STEP) * (64 + tile.bn) * STEP  # every instruction reads its operands
        leaving = PER_ELEMENT * traits.out_itemsize / 2 * (RAGGED if traits.leave.endswith("WARPS") else 1.0)
        return Rates(
            height=tile.bm * tile.cluster,
            columns=tile.bn,
            ctas=tile.cluster * tile.split_k,
            ctas_per_sm=tile.ctas_per_sm,
            blocks=traits.k_blocks / tile.split_k,
            cores=area / 32 * CORES,
            shared=(staged + read) / SHARED_RATE,
            l2=(tile.bm + tile.bn / tile.cluster) * K_BLOCK / L2_RATE,
            outside=tile.bn // tile.cluster if tile.cluster > 1 else 0,
            finish=PING_PONG if tile.ping_pong else TOGETHER + area * leaving,
            sent=area * 4 * (tile.split_k - 1) / tile.split_k / SENT_RATE,
            last=area * traits.out_itemsize / tile.split_k / DRAIN_RATE,
            start=START + START_PAIR * (tile.cluster - 1),
        )

    def tiles(self, m: Array, n: Array, batches: float) -> Array:
        """Tiles, those of a cluster counted as one; in floating point, in which they do not overflow."""
        return across(m, self.height) * across(n, self.columns) * batches

    def l2_for(self, n: Array) -> Array:
        """Cycles a block of K takes L2, rows of B outside the operand counted."""
        outside = np.minimum(np.maximum(self.columns - n, 0.0), self.outside)
        return self.l2 + outside * CYCLES_PER_OUTSIDE_ROW

    def each(self, n: Array, tiles: Array, sms: int) -> Array:
        """Cycles a tile: every block of K takes the slowest resource some, and finishing some more."""
        beside = np.minimum(self.ctas_per_sm, across(tiles * self.ctas, float(sms)))
        slowest = np.maximum(np.maximum(self.cores, self.shared), self.l2_for(n))
        return self.blocks * slowest * beside + self.finish + self.sent


class Menu:
    """The tiles that products of some traits may be computed with on a device, and what follows from traits and device.

    In pairs: a tile, and the same with the last wave's K split, of as many parts as that wave's room asks for.
    """

    def __init__(self, plain: Traits, transposed: Traits, promoted: bool, device: DeviceSpec) -> None:
        found = [
            (tile, traits)
            for tile in MENU
            for traits in (transposed if tile.transposed else plain,)
            if _fits(tile, traits, promoted)
        ]
        self.tiles = [tile for tile, _ in found]
        self.transposed = np.array([tile.transposed for tile in self.tiles])
        at_once = np.array([clusters_at_once(device, tile) for tile in self.tiles], float)
        self.at_once = np.maximum(at_once, 1.0)  # of a GPU with fewer SMs than the cluster has CTAs none
        clustered = np.array([tile.cluster > 1 for tile in self.tiles])
        # A cluster's CTAs each have rows of their own, and bring columns of B.
        self.more_than_m = np.where(clustered, [tile.bm for tile in self.tiles], -1)
        self.more_than_n = np.where(clustered, [tile.bn // tile.cluster for tile in self.tiles], -1)
        split = np.array([tile.split_k > 1 for tile in self.tiles])
        self.most_tiles = np.where(split, at_once, np.inf)  # K is split only where tiles are few
        self.clusters = np.array([tile.cluster for tile in self.tiles], float)
        self.rates = Rates(*np.array([Rates.of(tile, traits) for tile, traits in found], float).T)
        # The last wave's: [parts][tile], with room for no tile where there is no such tile.
        rooms = [split_last_waves(traits, tile, device) for tile, traits in found]
        self.room = np.array([[room.get(parts, 0) for room in rooms] for parts in PARTS], float)
        self.last_rates = np.array(
            [
                [Rates.of(replace(tile, split_last_wave=parts).of_last_wave, traits) for tile, traits in found]
                for parts in PARTS
            ],
            float,
        ).transpose(2, 0, 1)
        self.every = np.arange(len(self.tiles))

    def table(self, gemm: Gemm, device: DeviceSpec) -> Table[Tile]:
        """The menu priced for the product, given as it is untransposed."""
        batches = float(gemm.batches)
        m = np.where(self.transposed, float(gemm.n), float(gemm.m))
        n = np.where(self.transposed, float(gemm.m), float(gemm.n))
        tiles = self.rates.tiles(m, n, batches)
        fits = (m > self.more_than_m) & (n > self.more_than_n) & (tiles <= self.most_tiles)
        whole, rest = np.divmod(tiles, self.at_once)
        # The most parts whose CTAs all run at once.
        roomy = rest * self.clusters <= self.room
        at = roomy.argmax(axis=0)
        last = fits & roomy.any(axis=0) & (whole >= LEAST_WAVES) & (rest > 0)
        split = Rates(*self.last_rates[:, at, self.every])
        each, cycles = self.rates.each(n, tiles, device.sms), np.empty((2, len(self.tiles)))
        cycles[0] = (whole + (rest > 0)) * each + self.rates.last + self.rates.start
        cycles[1] = whole * each + self.rates.last + self.rates.start
        cycles[1] += split.each(n, split.tiles(m, n, batches), device.sms) + split.last + split.start
        compute = cycles / (device.rate("issue") / (device.sms * 128))
        compute *= 1 + THROTTLE * compute / (compute + BEFORE)
        memory = gemm.nbytes / (device.bandwidth * BANDWIDTH)
        seconds = np.maximum(compute, memory) + (1 - HIDDEN) * np.minimum(compute, memory)
        seconds += overlapped_overhead(device) * LAUNCHES
        seconds[0][~fits] = np.inf
        seconds[1][~last] = np.inf

        def config(place: int) -> Tile:
            tile, split = self.tiles[place // 2], place % 2
            return replace(tile, split_last_wave=PARTS[at[place // 2]]) if split else tile

        def limit(place: int) -> str:
            each = [float(x[place // 2]) for x in (self.rates.cores, self.rates.shared, self.rates.l2_for(n))]
            return "bandwidth" if memory > compute[place % 2, place // 2] else LIMITS[each.index(max(each))]

        return Table(seconds.ravel("F"), config, limit)


def _fits(tile: Tile, traits: Traits, promoted: bool) -> bool:
    """Whether products of such traits may be computed with the tile, as far as neither M nor N matters."""
    if promoted and (tile.rows > 1 or tile.bn > 128):
        return False  # the sums of two blocks of K need as many registers again, each
    if traits.blocked and (tile.transposed or BLOCK % tile.bn):
        return False
    if tile.cluster > 1:
        widest = tile.bn == 256 or (tile.bm, tile.bn) == (256, 128)
        if widest and (tile.transposed or traits.itemsize == 1):
            return False  # the widest tiles have no registers to spare: for stores by columns, or with fp8
        parts = tile.bn // 64 if traits.b_mn_major else tile.bn // 8  # of B, that the CTAs of a cluster may share out
        if parts % tile.cluster or (traits.b_mn_major and tile.bn % 64):
            return False
    if tile.split_k > 1 and traits.k_blocks < 4 * tile.split_k:
        return False
    return pipeline_of(traits, tile)[0] >= LEAST_STAGES


@lru_cache(maxsize=256)
def menu_of(plain: Traits, transposed: Traits, promoted: bool, device: DeviceSpec) -> Menu:
    """The menu of products of these traits; `transposed` are those of the transposed product."""
    return Menu(plain, transposed, promoted, device)


def floor_of(gemm: Gemm, device: DeviceSpec) -> float:
    """Seconds that no tile beats: what memory takes."""
    return overlapped_overhead(device) + gemm.nbytes / (device.bandwidth * BANDWIDTH)
