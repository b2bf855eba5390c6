"""The time and the lane of each warp's last load of each grain of shared memory.

Loads are frequent and seldom looked up: they are appended to a list, and applied to the planes at a look-up. Loads that are over
for all warps by then are dropped.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..threads.clocks import Clocks
from ..threads.lanes import Array
from .touched import SEVERAL

__all__ = ["NO_LANE", "Loads", "grains_of"]

NO_LANE = 127  # instead of a lane: no load
MANY = 1 << 22  # the most loads, counted per lane, in the list


class _Noted(NamedTuple):
    """Loads of rows of `width` grains, one lane each, or, by the asynchronous proxy, on behalf of all lanes of some warps."""

    rows: Array
    width: int
    members: Array
    stamps: Array
    lanes: Array | None
    last: int  # the greatest stamp


class Loads:
    """`latest` has for each grain an upper bound of the times of its loads."""

    def __init__(self, clocks: Clocks, grains: int, members: int) -> None:
        self._clocks = clocks
        self.latest = np.zeros(grains, np.int32)
        self._when = np.zeros((grains, members), np.int32)
        self._by = np.full((grains, members), NO_LANE, np.int8)  # a lane, or SEVERAL
        self._noted: list[_Noted] = []
        self._count = 0  # of their lanes

    def note(self, rows: Array, width: int, members: Array, stamps: Array, lanes: Array | None = None) -> None:
        last, latest = int(stamps.max(initial=0)), self.latest.reshape(-1, width)
        latest[rows] = np.maximum(latest[rows], last)
        self._noted.append(_Noted(rows, width, members, stamps, lanes, last))
        self._count += len(rows)
        if self._count > MANY:
            self._settle()

    @property
    def when(self) -> Array:
        """The stamp of each grain's last load by each warp, if the load may not be over."""
        self._settle()
        return self._when

    @property
    def by(self) -> Array:
        """The lane of each grain's last load by each warp."""
        self._settle()
        return self._by

    def _settle(self) -> None:
        floor = int(self._clocks.floor.min())
        for rows, width, members, stamps, lanes, last in self._noted:
            if last <= floor:
                continue
            grains = grains_of(rows, width)
            if lanes is None:
                places: Any = grains.reshape(-1, 1), members
                if members[-1] - members[0] == len(members) - 1:  # contiguous: a slice is faster
                    places = grains.reshape(-1), slice(members[0], members[-1] + 1)
                self._when[places], self._by[places] = stamps, NO_LANE
                continue
            member, stamp, lane = members[:, None], stamps[:, None], lanes[:, None]
            again = (self._when[grains, member] == stamp) & (self._by[grains, member] != lane)
            self._when[grains, member], self._by[grains, member] = stamp, np.where(again, SEVERAL, lane)
            shared = self._by[grains, member] != lane
            self._by[grains[shared], np.broadcast_to(member, grains.shape)[shared]] = SEVERAL
        self._noted.clear()
        self._count = 0


def grains_of(rows: Array, width: int) -> Array:
    """The grains of rows, one column each."""
    return rows[:, None] * width + np.arange(width) if width > 1 else rows[:, None]
