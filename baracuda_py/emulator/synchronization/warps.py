"""Exchanges within a warp: shuffles, votes, elections, reductions (PTX ISA, Warp-level operations: shfl.sync, vote.sync,
elect.sync, redux.sync, bar.warp.sync, activemask)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...types.faults import DivergenceFault
from ..threads.lanes import WARP, Array, Selection

if TYPE_CHECKING:
    from ..wave import Wave

__all__ = ["Warps"]

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

    def missing(self, numbers: Array, masks: Array) -> Array:
        """Which of some lanes cannot go on, because a thread of their mask has not arrived."""
        _, lacks, row = self._groups(numbers, masks)
        return np.asarray(np.any(lacks, axis=1)[row])

    def _groups(self, numbers: Array, masks: Array) -> tuple[Array, Array, Array]:
        """(which lanes have arrived, which lanes of the mask have not, for each group of a warp's lanes with the same mask; the
        group of each lane)."""
        wave, warps = self._wave, self._wave.lanes.warp[numbers]
        groups, row = np.unique(warps.astype(np.int64) << 32 | masks, return_inverse=True)
        there = np.zeros((len(groups), WARP), bool)
        there[row, numbers % WARP] = True
        named = np.asarray((groups[:, None] >> np.arange(WARP)) & 1 != 0)
        return there, named & ~there & wave.alive.reshape(-1, WARP)[groups >> 32], row

    def gathered(self, n: int, s: Selection, mask: Any, what: str) -> tuple[Array, Array]:
        """(the lanes of each group with the same mask, the group of each lane): all lanes of the mask that have not ended must
        have arrived."""
        numbers = self._wave.lanes.numbers(s)
        masks = self._wave.lanes.spread(s, mask)
        there, lacks, row = self._groups(numbers, masks)
        bad = np.any(lacks, axis=1)[row] | (masks >> (numbers % WARP).astype(np.uint32) & np.uint32(1) == 0)
        if bad.any():
            text = f"{what}: its mask names threads that are not there, or not this one"
            raise self._wave.fault(DivergenceFault, text, n, s, int(np.flatnonzero(bad)[0]))
        return there, row

    def sync(self, n: int, s: Selection, mask: Any) -> None:
        self.gathered(n, s, mask, "bar.warp.sync")
        lanes = self._wave.lanes
        first = np.unique(lanes.warp[s]) * WARP
        self._wave.clocks.step(lanes.team[first], lanes.member[first])

    def shuffle(
        self, n: int, s: Selection, row: Array, by: Any, limits: Any, mask: Any, mode: str
    ) -> tuple[Array, Array]:
        there, group = self.gathered(n, s, mask, "shfl.sync")
        lanes = self._wave.lanes.numbers(s)
        lane = lanes % WARP
        by = np.broadcast_to(by, lanes.shape).astype(np.int64) & (WARP - 1)
        limits = np.broadcast_to(limits, lanes.shape).astype(np.int64)
        segment, clamp = limits >> 8 & (WARP - 1), limits & (WARP - 1)
        low, top = lane & segment, (lane & segment) | (clamp & ~segment)
        of = {"bfly": lane ^ by, "idx": low | (by & ~segment), "up": lane - by, "down": lane + by}[mode]
        inside = of >= top if mode == "up" else of <= top
        of = np.where(inside, of, lane)
        if (absent := ~there[group, of]).any():
            text = "shfl.sync reads from a thread that is not there"
            raise self._wave.fault(DivergenceFault, text, n, s, int(np.flatnonzero(absent)[0]))
        return row[lanes - lane + of], inside

    def vote(self, n: int, s: Selection, mode: str, given: Any, mask: Any) -> Array:
        there, row = self.gathered(n, s, mask, "vote.sync")
        yes = np.zeros(there.shape, bool)
        yes[row, self._wave.lanes.numbers(s) % WARP] = given
        if mode == "ballot":
            return np.asarray(_mask(yes)[row])
        some, every = np.any(yes, axis=1), np.all(yes | ~there, axis=1)
        answer = some if mode == "any" else every if mode == "all" else every | ~some
        return np.asarray(answer[row])

    def redux(self, n: int, s: Selection, operation: str, given: Array, mask: Any) -> Array:
        _, row = self.gathered(n, s, mask, "redux.sync")
        order = np.argsort(row, kind="stable")
        starts = np.flatnonzero(np.diff(row[order], prepend=-1))
        return np.asarray(_REDUCTIONS[operation].reduceat(np.broadcast_to(given, row.shape)[order], starts)[row])

    def elect(self, n: int, s: Selection, mask: Any) -> tuple[Array, Array]:
        """(the leader's lane, whether each lane is the leader): the lowest lane that is active."""
        there, row = self.gathered(n, s, mask, "elect.sync")
        leader = there.argmax(1)[row]
        return leader.astype(np.uint32), self._wave.lanes.numbers(s) % WARP == leader

    def active(self, s: Selection) -> Array:
        lanes = self._wave.lanes.numbers(s)
        warps, row = np.unique(self._wave.lanes.warp[lanes], return_inverse=True)
        there = np.zeros((len(warps), WARP), bool)
        there[row, lanes % WARP] = True
        return np.asarray(_mask(there)[row])


def _mask(lanes: Array) -> Array:
    """The mask of each warp's lanes, one bit per lane."""
    return np.asarray((lanes.astype(np.uint32) << np.arange(WARP, dtype=np.uint32)).sum(1, dtype=np.uint32))
