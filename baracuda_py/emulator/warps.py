"""Exchanges within a warp: shuffles, votes, elections, reductions (PTX ISA, Warp-level operations: shfl.sync, vote.sync,
elect.sync, redux.sync, bar.warp.sync, activemask)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..types.faults import DivergenceFault
from .lanes import WARP, Array, Selection

if TYPE_CHECKING:
    from .machine import Wave

__all__ = ["EVERYONE", "Warps"]

EVERYONE = 0xFFFFFFFF
_REDUCTIONS: dict[str, np.ufunc] = {
    "add": np.add, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
}  # fmt: skip


class Warps:
    def __init__(self, wave: Wave) -> None:
        self._wave = wave

    def whole(self, n: int, s: Selection, what: str) -> Array:
        """The lanes as rows of whole warps, all of which must be there."""
        lanes = self._wave.lanes.numbers(s)
        if len(lanes) % WARP == 0:
            rows = lanes.reshape(-1, WARP)
            if (rows[:, 0] % WARP == 0).all() and (rows[:, -1] - rows[:, 0] == WARP - 1).all():
                return rows
        raise self._wave.fault(DivergenceFault, f"{what} by a part of a warp", n, s, 0)

    def gathered(self, n: int, s: Selection, mask: Any, what: str) -> tuple[Array, Array]:
        """(the warps, which of their lanes are there): everyone whom the mask names and who has not ended."""
        wave, lanes = self._wave, self._wave.lanes
        numbers = lanes.numbers(s)
        warps, row = np.unique(lanes.warp[numbers], return_inverse=True)
        there = np.zeros((len(warps), WARP), bool)
        there[row, numbers % WARP] = True
        masks = np.zeros(len(warps), np.uint32)
        masks[row] = lanes.spread(s, mask)
        named = (masks[:, None] >> np.arange(WARP, dtype=np.uint32)) & np.uint32(1) != 0
        alive = (wave.alive & lanes.exists).reshape(-1, WARP)[warps]
        if (there & ~named).any() or (named & alive & ~there).any():
            raise wave.fault(
                DivergenceFault, f"{what}: its mask names threads that are not there, or not this one", n, s, 0
            )
        return warps, there

    def sync(self, n: int, s: Selection, mask: Any) -> None:
        self.gathered(n, s, mask, "bar.warp.sync")

    def shuffle(
        self, n: int, s: Selection, row: Array, by: Any, limits: Any, mask: Any, mode: str
    ) -> tuple[Array, Array]:
        _, there = self.gathered(n, s, mask, "shfl.sync")
        lanes = self._wave.lanes.numbers(s)
        lane = lanes % WARP
        by = np.broadcast_to(by, lanes.shape).astype(np.int64) & (WARP - 1)
        limits = np.broadcast_to(limits, lanes.shape).astype(np.int64)
        segment, clamp = limits >> 8 & (WARP - 1), limits & (WARP - 1)
        low, top = lane & segment, (lane & segment) | (clamp & ~segment)
        of = {"bfly": lane ^ by, "idx": low | (by & ~segment), "up": lane - by, "down": lane + by}[mode]
        inside = of >= top if mode == "up" else of <= top
        of = np.where(inside, of, lane)
        _, warp = np.unique(self._wave.lanes.warp[lanes], return_inverse=True)
        if not there[warp, of].all():
            raise self._wave.fault(DivergenceFault, "shfl.sync reads from a thread that is not there", n, s, 0)
        return row[lanes - lane + of], inside

    def vote(self, n: int, s: Selection, mode: str, given: Any, mask: Any) -> Array:
        _, there = self.gathered(n, s, mask, "vote.sync")
        lanes = self._wave.lanes.numbers(s)
        _, row = np.unique(self._wave.lanes.warp[lanes], return_inverse=True)
        yes = np.zeros(there.shape, bool)
        yes[row, lanes % WARP] = given
        if mode == "ballot":
            return np.asarray(_mask(yes)[row])
        some, every = np.any(yes, axis=1, keepdims=True), np.all(yes | ~there, axis=1, keepdims=True)
        answer = some if mode == "any" else every if mode == "all" else every | ~some
        return np.asarray(answer[row, 0])

    def redux(self, n: int, s: Selection, operation: str, given: Array, mask: Any) -> Array:
        self.gathered(n, s, mask, "redux.sync")
        lanes = self._wave.lanes.numbers(s)
        starts = np.flatnonzero(np.diff(self._wave.lanes.warp[lanes], prepend=-1))
        reduced = _REDUCTIONS[operation].reduceat(np.broadcast_to(given, lanes.shape), starts)
        return np.repeat(reduced, np.diff(starts, append=len(lanes)))

    def active(self, s: Selection) -> Array:
        lanes = self._wave.lanes.numbers(s)
        warps, row = np.unique(self._wave.lanes.warp[lanes], return_inverse=True)
        there = np.zeros((len(warps), WARP), bool)
        there[row, lanes % WARP] = True
        return np.asarray(_mask(there)[row])

    def elect(self, n: int, s: Selection, mask: Any) -> tuple[Array, Array]:
        """(the leader's lane, whether this is it): the lowest that is there."""
        _, there = self.gathered(n, s, mask, "elect.sync")
        lanes = self._wave.lanes.numbers(s)
        _, row = np.unique(self._wave.lanes.warp[lanes], return_inverse=True)
        leader = there.argmax(1)[row]
        return leader.astype(np.uint32), lanes % WARP == leader


def _mask(lanes: Array) -> Array:
    """A bit a lane, of each warp."""
    return np.asarray((lanes.astype(np.uint32) << np.arange(WARP, dtype=np.uint32)).sum(1, dtype=np.uint32))
