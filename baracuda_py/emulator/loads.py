"""When each warp loaded each grain of shared memory last, and which of its lanes did.

Loads are many and seldom asked for: they are kept as they come, and brought to their planes when somebody asks. Those that are
over for everybody by then never are.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from .clocks import Clocks
from .lanes import Array
from .touched import SEVERAL

__all__ = ["NOBODY", "Loads", "grains_of"]

NOBODY = 127  # in the place of a lane
MANY = 1 << 22  # lanes' loads that are kept


class _Noted(NamedTuple):
    """Loads of rows of `width` grains, a lane each, or, of the asynchronous proxy, for all of some warps."""

    rows: Array
    width: int
    members: Array
    stamps: Array
    lanes: Array | None
    last: int  # the greatest stamp


class Loads:
    """`latest` has for each grain a time that no load of it is behind."""

    def __init__(self, clocks: Clocks, grains: int, members: int) -> None:
        self._clocks = clocks
        self.latest = np.zeros(grains, np.int32)
        self._when = np.zeros((grains, members), np.int32)
        self._by = np.full((grains, members), NOBODY, np.int8)  # a lane, or SEVERAL
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
        """The stamp of each grain's last load by each warp, where it may not be over."""
        self._settle()
        return self._when

    @property
    def by(self) -> Array:
        """And its lane."""
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
                if members[-1] - members[0] == len(members) - 1:  # side by side, which is faster as a slice
                    places = grains.reshape(-1), slice(members[0], members[-1] + 1)
                self._when[places], self._by[places] = stamps, NOBODY
                continue
            member, stamp, lane = members[:, None], stamps[:, None], lanes[:, None]
            again = (self._when[grains, member] == stamp) & (self._by[grains, member] != lane)
            self._when[grains, member], self._by[grains, member] = stamp, np.where(again, SEVERAL, lane)
            shared = self._by[grains, member] != lane
            self._by[grains[shared], np.broadcast_to(member, grains.shape)[shared]] = SEVERAL
        self._noted.clear()
        self._count = 0


def grains_of(rows: Array, width: int) -> Array:
    """The grains of rows, a column each."""
    return rows[:, None] * width + np.arange(width) if width > 1 else rows[:, None]
