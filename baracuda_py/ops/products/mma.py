"""Tiles of products by mma.sync, how their operands are loaded, and the rate that they reach: for every op on tensor cores."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...plan.grammar import Config, term
from ...types import ArchSku, DeviceSpec, MathPrecision
from .._fitted import Fitted
from .gemm import Gemm, Matrix

__all__ = ["NARROW", "Side", "Tile", "mma_rate", "side_of"]

# What f64 reaches of the bf16 rate, by the datasheets.
F64_SHARE = {ArchSku.SM80: 1 / 16, ArchSku.SM90A: 1 / 15, ArchSku.SM100A: 1 / 60}
F64_SHARE_ELSEWHERE = 1 / 128


class Costs(Fitted, table="gemm.mma_sync"):
    mma_sync_rate_ratio: float


@dataclass(frozen=True)
class Tile(Config):
    """A CTA's tile and a warp's. `share` is the part of mma.sync's rate that warps of this shape reach for long K. The formulas
    also take a Tile whose fields are arrays, one entry per configuration."""

    m: int = term("rows of the result a CTA computes", leads=True)
    n: int = term("columns of the result a CTA computes", leads=True)
    k_bytes: int = term("bytes of K that a stage holds of each row")
    warp: tuple[int, int] = term("rows x columns of the result that a warp sums")
    stages: int = term("blocks of K in the pipeline of shared memory")
    split_k: int = term("parts of K that are summed apart and then added", default=1)
    share: float = term("of mma.sync's rate", default=1.0, hidden=True)

    @property
    def threads(self) -> int:
        return self.m // self.warp[0] * (self.n // self.warp[1]) * 32

    @property
    def shared_bytes(self) -> int:
        return self.stages * (self.m + self.n) * self.k_bytes

    def k_split(self, gemm: Gemm) -> int:
        """Elements of K per split: all of K, or whole K tiles."""
        return gemm.k if self.split_k == 1 else -(-self.k_tiles(gemm) // self.split_k) * self.k_bytes // gemm.a.itemsize

    def k_tiles(self, gemm: Gemm) -> int:
        return -(-gemm.k * gemm.a.itemsize // self.k_bytes)


NARROW = (  # 16-bit types and tf32
    Tile(128, 256, 128, (64, 64), 4, share=0.97),
    Tile(128, 256, 128, (64, 64), 3, share=0.96),
    Tile(256, 128, 128, (64, 64), 4, share=0.97),
    Tile(128, 256, 64, (64, 64), 4, share=0.93),
    Tile(128, 128, 128, (64, 64), 3, share=0.92),
    Tile(128, 128, 64, (64, 64), 5, share=0.92),
    Tile(128, 128, 64, (64, 32), 4, share=0.85),
    Tile(64, 128, 128, (32, 64), 4, share=0.8),
    Tile(64, 64, 128, (32, 32), 4, share=0.65),
    Tile(64, 64, 64, (32, 32), 5, share=0.6),
)


@dataclass(frozen=True)
class Side:
    """How an operand is loaded: whether its pieces run along K, and their bytes (one element where strides are arbitrary)."""

    k_major: bool
    nbytes: int

    def vectors(self, extent: int, k_bytes: int) -> int:
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
        # The stride of an axis of extent 1 is never stepped.
        free = replace(matrix, row=matrix.row if rows > 1 else 1 - axis, col=matrix.col if cols > 1 else axis)
        if (free.row, free.col)[axis] != 1:
            continue
        width = next((w for w in (16, 8, 4) if w > matrix.itemsize and free.aligned(w, along=axis)), matrix.itemsize)
        if width > found.nbytes:
            found = Side(axis == k_axis, width)
    return found


def mma_rate(device: DeviceSpec, math: MathPrecision) -> float:
    """mma.sync's FLOP/s."""
    tensor = device.rate("bf16")
    if math is MathPrecision.F64:
        return tensor * F64_SHARE.get(device.tier, F64_SHARE_ELSEWHERE)
    return tensor * Costs.of(device).mma_sync_rate_ratio * (0.5 if math is MathPrecision.TF32 else 1.0)
