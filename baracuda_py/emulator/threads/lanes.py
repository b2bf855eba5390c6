"""The lanes of a wave: the threads of some CTAs, one column each, and the position of each thread in the grid."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

__all__ = ["FULL_MASK", "SPECIALS", "WARP", "Array", "Lanes", "Selection", "pairs_of"]

Array: TypeAlias = np.ndarray[Any, Any]
Selection: TypeAlias = "slice | Array"  # lanes: a contiguous range, or their numbers in order
WARP = 32
FULL_MASK = 0xFFFF_FFFF  # a mask of all lanes of a warp


class Lanes:
    """The threads of `ctas` CTAs from CTA `first` on. CTAs are padded to whole warps with lanes that never run.

    `member` counts the warps of a cluster, `team` the clusters of the wave.
    """

    def __init__(
        self, first: int, ctas: int, grid: tuple[int, int, int], block: tuple[int, int, int], cluster: int
    ) -> None:
        self.first, self.ctas, self.grid, self.block, self.cluster = first, ctas, grid, block, cluster
        self.threads = block[0] * block[1] * block[2]
        self.warps = -(-self.threads // WARP)
        self.width = self.warps * WARP
        self.count = ctas * self.width
        self.teams, self.members = ctas // cluster, cluster * self.warps
        lane = np.arange(self.count)
        self.cta = lane // self.width
        self.thread = (lane % self.width).astype(np.uint32)
        self.warp = lane // WARP  # in the wave
        self.lane = (lane % WARP).astype(np.int8)  # in the warp
        self.team = self.cta // cluster
        self.member = self.warp - self.team * self.members
        self.exists = self.thread < self.threads

    def bundle(self, threads: int) -> Array:
        """The warp of each lane, or its warpgroup, numbered over the wave."""
        return (
            self.warp if threads == WARP else self.cta * -(-self.width // threads) + self.thread // np.uint32(threads)
        )

    @property
    def all_lanes(self) -> slice:
        return slice(0, self.count)

    def specials(self) -> dict[str, Array]:
        """Special registers (PTX ISA, Special Registers) by their names."""
        bx, by, _ = self.block
        gx, gy, gz = self.grid
        cta = (self.cta + self.first).astype(np.uint32)
        rank = cta % np.uint32(self.cluster)
        u = np.uint32
        lane = self.thread % u(WARP)
        named = {
            "tid.x": self.thread % u(bx), "tid.y": self.thread // u(bx) % u(by), "tid.z": self.thread // u(bx * by),
            "ctaid.x": cta % u(gx), "ctaid.y": cta // u(gx) % u(gy), "ctaid.z": cta // u(gx * gy), "laneid": lane,
            "warpid": self.thread // u(WARP), "cluster_ctarank": rank, "cluster_ctaid.x": rank,
            "clusterid.x": cta // u(self.cluster), "lanemask_eq": u(1) << lane, "lanemask_lt": (u(1) << lane) - u(1),
            "lanemask_le": (u(2) << lane) - u(1),
        }  # fmt: skip
        named["lanemask_gt"], named["lanemask_ge"] = ~named["lanemask_le"], ~named["lanemask_lt"]
        constants = {
            "ntid.x": bx, "ntid.y": by, "ntid.z": self.block[2], "nctaid.x": gx, "nctaid.y": gy, "nctaid.z": gz,
            "cluster_nctarank": self.cluster, "cluster_nctaid.x": self.cluster,
        }  # fmt: skip
        return named | {name: np.full(self.count, value, u) for name, value in constants.items()}

    # ---- selections -------------------------------------------------------------------------------------------------

    @staticmethod
    def count_of(s: Selection) -> int:
        return s.stop - s.start if isinstance(s, slice) else len(s)

    @staticmethod
    def numbers(s: Selection) -> Array:
        return np.arange(s.start, s.stop) if isinstance(s, slice) else s

    @staticmethod
    def narrowed(s: Selection, test: Array) -> Selection | None:
        """The lanes of a selection for which `test` is true; None if it is true for none."""
        if np.ndim(test) == 0:
            return s if test else None
        if test.all():
            return s
        found = np.flatnonzero(test)
        if not len(found):
            return None
        return found + s.start if isinstance(s, slice) else s[found]

    @staticmethod
    def compact(numbers: Array) -> Selection:
        """Lane numbers as a slice, if they are contiguous."""
        first, last = int(numbers[0]), int(numbers[-1])
        return slice(first, last + 1) if last - first + 1 == len(numbers) else numbers

    def spread(self, s: Selection, x: Any) -> Array:
        """One value per lane, from an operand that may be one value for all."""
        return np.broadcast_to(x, (self.count_of(s),)) if np.ndim(x) == 0 else x


SPECIALS = frozenset(Lanes(0, 1, (1, 1, 1), (1, 1, 1), 1).specials())


def pairs_of(first: Array, second: Array) -> list[tuple[int, int]]:
    """The distinct pairs of numbers below 2**32, in order."""
    pairs = np.unique(first.astype(np.uint64) << np.uint64(32) | second.astype(np.uint64))
    return [divmod(pair, 1 << 32) for pair in pairs.tolist()]
