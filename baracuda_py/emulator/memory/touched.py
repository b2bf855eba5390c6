"""The last access to each grain of a region of global memory, and whether it is ordered before the current one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from ..threads.lanes import WARP, Array, Selection

if TYPE_CHECKING:
    from ..wave import Wave

__all__ = ["MANY", "NO_ACTOR", "PER_WARP", "SEVERAL", "Touched"]

NO_ACTOR, MANY = -1, -2  # MANY: actors of several clusters
PER_WARP = 64  # numbers of actors per warp: its lanes, and
SEVERAL = WARP  # one for several of its lanes at once

# The kinds of access that an access must be ordered with. Atomic operations need no order among themselves.
_RIVALS = {"load": ("store", "exchange"), "store": ("store", "load", "exchange"), "exchange": ("store", "load")}


class _Last:
    """The last actor at each grain and its stamp, and the other actors if several unordered warps of a cluster accessed it."""

    def __init__(self, grains: int) -> None:
        self.who, self.when = np.full(grains, NO_ACTOR, np.int32), np.zeros(grains, np.int32)
        self.crowded = np.zeros(grains, bool)
        self.crowd: dict[int, dict[int, tuple[int, int]]] = {}  # by grain and warp

    def join(self, at: Array, actors: Array, stamps: Array) -> None:
        """Adds further actors at these grains."""
        self.crowded[at] = True
        for grain, actor, stamp in set(zip(at.tolist(), actors.tolist(), stamps.tolist())):
            self.crowd.setdefault(grain, {})[actor // PER_WARP] = actor, stamp

    def clear(self, at: Array) -> None:
        for grain in np.unique(at[self.crowded[at]]).tolist():
            del self.crowd[grain]
        self.crowded[at] = False


class Touched:
    def __init__(self, nbytes: int, grain: int) -> None:
        self._grain, self._grains = grain, nbytes // grain + 1
        self._last: dict[str, _Last] = {}

    def note(
        self, wave: Wave, lanes: Selection, offsets: Array, size: int, verb: str, there: Callable[[], Array] | None = None
    ) -> tuple[Array, str] | None:  # fmt: skip
        """Notes accesses; returns which of them are unordered with a previous access, and the verb of that one. A store does not
        conflict where `there` says that memory holds the same value already."""
        actors, stamps = wave.order.actors(lanes), wave.order.stamps(lanes)
        last = self._last.setdefault(verb, _Last(self._grains))
        for step in range(0, max(size, self._grain), self._grain):
            at = (offsets + step) // self._grain
            for other in _RIVALS[verb]:
                if other in self._last and (bad := self._unordered(wave, lanes, at, self._last[other])).any():
                    if there is not None:
                        bad = bad & ~there()
                    if bad.any():
                        return bad, other
            if verb == "store":
                for each in self._last.values():
                    if each.crowd:
                        each.clear(at)
                last.who[at], last.when[at] = actors, stamps
            else:
                self._meet(wave, lanes, at, last, actors, stamps)
        return None

    @staticmethod
    def _unordered(wave: Wave, lanes: Selection, at: Array, last: _Last) -> Array:
        who = last.who[at]
        if (who == NO_ACTOR).all():
            return np.zeros(len(at), bool)
        bad = wave.order.unordered(lanes, who, last.when[at])
        if last.crowd:
            numbers = wave.lanes.numbers(lanes)
            for j in np.flatnonzero(last.crowded[at] & ~bad).tolist():
                others = np.array(list(last.crowd[int(at[j])].values()))
                bad[j] = wave.order.unordered(np.repeat(numbers[j], len(others)), others[:, 0], others[:, 1]).any()
        return bad

    @staticmethod
    def _meet(wave: Wave, lanes: Selection, at: Array, last: _Last, actors: Array, stamps: Array) -> None:
        """Accesses that need no order among themselves."""
        before, was = last.who[at], last.when[at]
        present = before != NO_ACTOR
        near = present & wave.order.same_team(before // PER_WARP, actors // PER_WARP)
        mine = before // PER_WARP == actors // PER_WARP
        if (kept := near & ~mine & wave.order.unordered(lanes, before, was)).any():
            last.join(at[kept], before[kept], was[kept])
        shared = near & mine & (was == stamps) & (before != actors)
        last.who[at] = np.where(
            present & ~near, MANY, np.where(shared, actors // PER_WARP * PER_WARP + SEVERAL, actors)
        )
        last.when[at] = stamps
        now = last.who[at]
        if not (lost := (now != actors) & (now != MANY) & ~shared).any():
            return
        winner = now // PER_WARP
        same, near = winner == actors // PER_WARP, wave.order.same_team(winner, actors // PER_WARP)
        last.who[at[lost & same]] = (winner * PER_WARP + SEVERAL)[lost & same]
        if (others := lost & ~same & near).any():
            last.join(at[others], actors[others], stamps[others])
        last.who[at[lost & ~near]] = MANY
