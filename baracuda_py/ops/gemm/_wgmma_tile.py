"""wgmma's tiles: their menu, what they take of shared memory, how many run at once, and the last wave's."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ...types import DeviceSpec
from ._problem import Gemm
from ._tma import SLAB, staged_bytes, view_of

__all__ = [
    "LEAST_STAGES", "MENU", "STEP", "Tile", "band_of", "clusters_at_once", "oriented", "ring_of", "slabs_of", "tail_of",
    "tiles_of",
]  # fmt: skip

STEP = 32  # bytes of K an instruction
SHARED, RESERVED = 232448, 1024  # bytes a CTA may have, and those that it takes besides
SLACK = 512  # barriers
MOST_STAGES, LEAST_STAGES = 16, 2  # a stage is released one behind
LEAST_WAVES = 2  # before a last one of its own


@dataclass(frozen=True)
class Tile:
    """BM x BN of the result, `rows` blocks of 64 a consumer. `cluster` CTAs, one above the other, share B, or `split` CTAs
    share a tile and each sums its part of K. `resident`: CTAs an SM. `tail`: into how many parts K is split for the tiles of
    the last wave, a launch of their own. `swapped`: of the transposed product."""

    bm: int
    bn: int
    rows: int = 1
    consumers: int = 2
    cluster: int = 1
    split: int = 1
    resident: int = 1
    tail: int = 1
    swapped: bool = False

    @property
    def sharers(self) -> int:
        return self.bm // (64 * self.rows)

    @property
    def by_turns(self) -> bool:
        """Whether the consumers take tiles in turn."""
        return self.sharers < self.consumers

    @property
    def of_tail(self) -> Tile:
        """The tile, as large, of which `tail` CTAs each sum a part."""
        rows, consumers = max(1, self.bm // 128), min(2, self.bm // 64)
        return replace(self, rows=rows, consumers=consumers, cluster=1, split=self.tail, tail=1)

    def __str__(self) -> str:
        marks = (
            ("p", self.by_turns),
            (f"c{self.cluster}", self.cluster > 1),
            (f"k{self.split}", self.split > 1),
            (f"r{self.resident}", self.resident > 1),
            (f"+k{self.tail}", self.tail > 1),
            ("T", self.swapped),
        )
        return f"{self.bm}x{self.bn}" + "".join(mark for mark, on in marks if on)


SHAPES = (
    Tile(128, 128, 2), Tile(64, 256),
    *(Tile(128, bn) for bn in (256, 224, 192, 160, 128, 96, 64)), Tile(256, 128, 2),
    *(Tile(64, bn, 1, 1) for bn in (256, 192, 128, 64, 32, 16)),
)  # fmt: skip
TILES = tuple(replace(t, cluster=c) for t in SHAPES for c in (1, 2))
SPLITS = tuple(
    replace(t, split=k)
    for t in (*(Tile(128, bn) for bn in (128, 64, 32)), *(Tile(256, bn, 2) for bn in (128, 64, 32)), Tile(64, 64, 1, 1))
    for k in (2, 4, 8)
    if t.bn // k >= 16  # columns that each of them finishes
)  # fmt: skip
# Where a tile an SM would leave some SMs idle, or, for few tokens, where the next kernel gets ready beside this one.
SHORT = (
    Tile(64, 32, 1, 1, split=2, resident=3), Tile(64, 64, 1, 1, split=2, resident=2),
    *(Tile(64, bn, 1, 1, cluster=c, resident=2) for bn in (16, 32) for c in (1, 2)),
)  # fmt: skip
MENU = tuple(replace(t, swapped=s) for t in (*SHORT, *TILES, *SPLITS) for s in (False, True))


def oriented(desc: Any, tile: Tile) -> Gemm:
    """The product that the tile computes: the problem's, or the transposed one."""
    gemm: Gemm = desc.gemm
    return gemm.swapped if tile.swapped else gemm


def slabs_of(gemm: Gemm) -> int:
    """Stages' worth of K."""
    return -(-gemm.k * gemm.a.itemsize // SLAB)


def tiles_of(gemm: Gemm, tile: Tile) -> int:
    """Tiles, those of a cluster counted as one."""
    return -(-gemm.m // (tile.bm * tile.cluster)) * -(-gemm.n // tile.bn) * gemm.batches


def clusters_at_once(device: DeviceSpec, tile: Tile) -> int:
    """Clusters that run at once. Those of four and more leave SMs of some GPCs idle: about one in seven on an H200."""
    together = tile.cluster * tile.split
    return (device.sms if together <= 2 else device.sms * 6 // 7) * tile.resident // together


def ring_of(gemm: Gemm, tile: Tile) -> tuple[int, int]:
    """Stages, and the bytes of shared memory in all."""
    b = view_of(gemm.b.mT, gemm.n, gemm.k)
    assert b is not None
    stage = (tile.bm + (-(-tile.bn // 64) * 64 if b.mn_major else tile.bn)) * SLAB
    scales = tile.bm * 4 if gemm.blocked else 0  # a stage's: sums.cuh's STAGED
    staged = tile.consumers * staged_bytes(gemm, tile.bn // tile.split)
    room = ((SHARED + RESERVED) // tile.resident - RESERVED) // 128 * 128 - SLACK
    if tile.split == 1:
        stages = min(MOST_STAGES, (room - staged) // (stage + scales))
        return stages, stages * (stage + scales) + staged + SLACK
    afterwards = tile.bm * tile.bn * 4 * (tile.split - 1) // tile.split + staged
    stages = min(MOST_STAGES, room // (stage + scales)) if afterwards + MOST_STAGES * scales <= room else 0
    return stages, max(stages * stage, afterwards) + stages * scales + SLACK


def tail_of(gemm: Gemm, tile: Tile, device: DeviceSpec) -> int:
    """Into how many parts K can be split for the tiles of the last wave, so that all SMs work on them; 0 where it does not pay
    to try."""
    whole, rest = divmod(tiles_of(gemm, tile), clusters_at_once(device, tile))
    if tile.split > 1 or whole < LEAST_WAVES or not rest:
        return 0
    most = 32 if tile.bm == 64 else 96  # columns of a second share of the sums that there are registers for
    for parts in (8, 4, 2):
        if tile.bn % (parts * 16) or tile.bn // parts > most or slabs_of(gemm) < 4 * parts:
            continue
        split = replace(tile, tail=parts).of_tail
        if rest * tile.cluster <= clusters_at_once(device, split) and ring_of(gemm, split)[0] >= LEAST_STAGES:
            return parts
    return 0


def band_of(rows: int, cols: int, tile: Tile, device: DeviceSpec) -> int:
    """Rows of tiles a band: what the tiles in flight together read of A and B is least."""
    flying = clusters_at_once(device, tile)
    height = tile.bm * tile.cluster
    return min(range(1, min(rows, 32) + 1), key=lambda band: band * height + min(cols, -(-flying // band)) * tile.bn)
