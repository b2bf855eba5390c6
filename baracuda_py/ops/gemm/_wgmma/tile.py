"""wgmma's tiles: the menu, their shared memory, how many run at once, and the order in which they are computed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

from ....plan.grammar import Config, term
from ....types import DeviceSpec
from ...products.gemm import Gemm
from .tma import K_BLOCK, epilogue_store_of, staged_bytes, view_of

__all__ = [
    "LEAST_BLOCKS",
    "LEAST_STAGES",
    "MENU",
    "PARTS",
    "STEP",
    "Tile",
    "Traits",
    "clusters_at_once",
    "group_m_of",
    "k_blocks_of",
    "last_waves_of",
    "pipeline_of",
    "split_last_waves",
    "swapped_ab",
    "tiles_of",
    "traits_of",
]  # fmt: skip

STEP = 32  # bytes of K per instruction
SHARED, RESERVED = 232448, 1024  # most bytes of shared memory per CTA, and bytes that the system reserves per CTA
SLACK = 512  # bytes for barriers
MOST_STAGES, LEAST_STAGES = 16, 2  # at least two: a stage is released only when the next one is being multiplied
LEAST_BLOCKS = 4  # of K in each of the parts that are summed separately
PARTS = (8, 4, 2)  # into which K may be split in the last wave, the most first


@dataclass(frozen=True)
class Tile(Config):
    """BM x BN of the result, computed by one or two consumer warpgroups, each in blocks of 64 rows."""

    bm: int = term("rows of the result a CTA computes", leads=True)
    bn: int = term("columns of the result a CTA computes", leads=True)
    cluster: int = term("CTAs, one above the other, that share what they load of B", default=1)
    split_k: int = term("parts of K that are summed apart and then added", default=1)
    ctas_per_sm: int = term("CTAs that an SM holds at once", default=1)
    split_last_wave: int = term("parts of K for the tiles of the last wave, in a launch of their own", default=1)
    ping_pong: bool = term(
        "two consumer warpgroups take tiles in turn: one computes while the other stores", default=False
    )
    transposed: bool = term("the transposed product is computed: tiles of the result's transpose", default=False)

    @property
    def consumers(self) -> int:
        """Warpgroups that multiply."""
        return 2 if self.ping_pong else min(2, self.bm // 64)

    @property
    def rows(self) -> int:
        """Blocks of 64 rows a consumer."""
        return self.bm // 64 if self.ping_pong else max(1, self.bm // 128)

    @property
    def of_last_wave(self) -> Tile:
        """The tile of the same size that the last wave uses, with K split over `split_last_wave` CTAs."""
        return replace(self, cluster=1, split_k=self.split_last_wave, split_last_wave=1, ping_pong=False)


SHAPES = (
    Tile(128, 128, ping_pong=True), Tile(64, 256, ping_pong=True),
    *(Tile(128, bn) for bn in (256, 224, 192, 160, 128, 96, 64)), Tile(256, 128),
    *(Tile(64, bn) for bn in (256, 192, 128, 64, 32, 16)),
)  # fmt: skip
TILES = tuple(replace(t, cluster=c) for t in SHAPES for c in (1, 2))
SPLITS = tuple(
    replace(t, split_k=k)
    for t in (*(Tile(128, bn) for bn in (128, 64, 32)), *(Tile(256, bn) for bn in (128, 64, 32)), Tile(64, 64))
    for k in (2, 4, 8)
    if t.bn // k >= 16  # columns that each CTA finishes
)  # fmt: skip
# For problems where one tile per SM would leave SMs idle, or, with few tokens, so that the next kernel can start beside this one.
SHORT = (
    Tile(64, 32, split_k=2, ctas_per_sm=3), Tile(64, 64, split_k=2, ctas_per_sm=2),
    *(Tile(64, bn, cluster=c, ctas_per_sm=2) for bn in (16, 32) for c in (1, 2)),
)  # fmt: skip
MENU = tuple(replace(t, transposed=s) for t in (*SHORT, *TILES, *SPLITS) for s in (False, True))


class Traits(NamedTuple):
    """The properties of a product, M, N and batch aside, that decide which tiles serve it and what they cost."""

    itemsize: int
    out_itemsize: int
    k_blocks: int
    b_mn_major: bool
    store: str
    blocked: bool


def traits_of(gemm: Gemm, *, transposed: bool = False) -> Traits:
    """The traits of a product that wgmma takes, or of its transpose."""
    m, n, b, out = gemm.m, gemm.n, gemm.b.mT, gemm.out
    if transposed:
        m, n, b, out = n, m, gemm.a, out.mT
    view = view_of(b, n, gemm.k)
    assert view is not None
    return Traits(
        gemm.a.itemsize, out.itemsize, k_blocks_of(gemm), view.mn_major, epilogue_store_of(out, m, n), gemm.blocked
    )


def swapped_ab(desc: Any, tile: Tile) -> Gemm:
    """The product that the tile computes: the problem's, or the transposed one."""
    gemm: Gemm = desc.gemm
    return gemm.swapped if tile.transposed else gemm


def k_blocks_of(gemm: Gemm) -> int:
    """Blocks of K, one per pipeline stage."""
    return -(-gemm.k * gemm.a.itemsize // K_BLOCK)


def tiles_of(gemm: Gemm, tile: Tile) -> int:
    """Tiles of the result; a cluster counts as one."""
    return -(-gemm.m // (tile.bm * tile.cluster)) * -(-gemm.n // tile.bn) * gemm.batches


def clusters_at_once(device: DeviceSpec, tile: Tile) -> int:
    """Clusters that run at once. Clusters of four and more leave SMs of some GPCs idle: one in seven on an H200."""
    cluster_ctas = tile.cluster * tile.split_k
    return (device.sms if cluster_ctas <= 2 else device.sms * 6 // 7) * tile.ctas_per_sm // cluster_ctas


def pipeline_of(traits: Traits, tile: Tile) -> tuple[int, int]:
    """Stages, and the bytes of shared memory in all."""
    stage = (tile.bm + (-(-tile.bn // 64) * 64 if traits.b_mn_major else tile.bn)) * K_BLOCK
    scales = tile.bm * 4 if traits.blocked else 0  # bytes per stage: sums.cuh's STAGED
    staged = tile.consumers * staged_bytes(traits.store, traits.out_itemsize, tile.bn // tile.split_k)
    slots = ((SHARED + RESERVED) // tile.ctas_per_sm - RESERVED) // 128 * 128 - SLACK
    if tile.split_k == 1:
        stages = min(MOST_STAGES, (slots - staged) // (stage + scales))
        return stages, stages * (stage + scales) + staged + SLACK
    afterwards = tile.bm * tile.bn * 4 * (tile.split_k - 1) // tile.split_k + staged
    stages = min(MOST_STAGES, slots // (stage + scales)) if afterwards + MOST_STAGES * scales <= slots else 0
    return stages, max(stages * stage, afterwards) + stages * scales + SLACK


@cache
def last_waves_of(tile: Tile) -> tuple[Tile, ...]:
    """The tile's last wave, in as many parts of K as PARTS says."""
    return tuple(replace(tile, split_last_wave=parts).of_last_wave for parts in PARTS)


def split_last_waves(traits: Traits, tile: Tile) -> list[bool]:
    """Of each number in `PARTS`, whether a separate last wave may have K in so many parts, if it is long enough."""
    most = 32 if tile.bm == 64 else 96  # columns of partial sums from another CTA that fit the registers
    return [
        tile.split_k == 1
        and tile.bn % (last.split_k * 16) == 0
        and tile.bn // last.split_k <= most
        and pipeline_of(traits, last)[0] >= LEAST_STAGES
        for last in last_waves_of(tile)
    ]


def group_m_of(rows: int, cols: int, tile: Tile, device: DeviceSpec) -> int:
    """Rows of tiles per group, walked column by column, so that the tiles in flight read the least of A and B."""
    flying = clusters_at_once(device, tile)
    height = tile.bm * tile.cluster
    return min(range(1, min(rows, 32) + 1), key=lambda group: group * height + min(cols, -(-flying // group)) * tile.bn)
