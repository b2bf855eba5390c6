"""What is known to have happened before what: a vector clock a warp, and the barriers by which warps learn of one another.

After Lamport ("Time, clocks, and the ordering of events", 1978) and FastTrack (Flanagan and Freund, PLDI 2009): a warp's own
component counts its releases; an access is stamped with it, and is over for another warp when that warp's component for the
first one has reached the stamp. The asynchronous copies into each CTA are one more actor.
"""

from __future__ import annotations

import numpy as np

from .lanes import Array, Lanes

__all__ = ["Clocks"]


class Clocks:
    """`of[team, member]` is a warp's vector: a component for every warp of its cluster, and one for copies into each CTA."""

    def __init__(self, lanes: Lanes) -> None:
        self._lanes, members = lanes, lanes.members
        self.of = np.zeros((lanes.teams, members, members + lanes.cluster), np.int32)
        self._own = np.arange(members)
        self.of[:, self._own, self._own] = 1
        self.fenced = np.zeros((lanes.teams, members), np.int32)  # own stamps up to which a proxy fence has been
        self.copied = np.zeros((lanes.teams, lanes.cluster), np.int32)  # copies that have arrived in each CTA

    def stamp(self, teams: Array, members: Array) -> Array:
        return self.of[teams, members, members]

    def join(self, meet: Array) -> None:
        """The warps that `meet` marks (teams x members) have met: what each did is over for all of them."""
        top = np.where(meet[:, :, None], self.of, 0).max(1)
        self.of = np.where(meet[:, :, None], np.maximum(self.of, top[:, None, :]), self.of)
        self.of[:, self._own, self._own] += meet

    def release(self, team: int, member: int) -> Array:
        """What a warp hands on with an arrival; what it does afterwards is not part of it."""
        handed: Array = self.of[team, member].copy()
        self.of[team, member, member] += 1
        return handed

    def acquire(self, team: int, members: Array, handed: Array) -> None:
        self.of[team, members] = np.maximum(self.of[team, members], handed)

    def fence(self, team: int, member: int) -> None:
        """A proxy fence: what the warp wrote so far may be read by the asynchronous proxy."""
        self.fenced[team, member] = self.of[team, member, member]
        self.of[team, member, member] += 1

    def arrive(self, team: int, rank: int) -> int:
        """A copy into a CTA has arrived; its stamp."""
        self.copied[team, rank] += 1
        return int(self.copied[team, rank])
