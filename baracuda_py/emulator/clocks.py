"""What is known to have happened before what: a vector clock a warp, and the barriers by which warps learn of one another.

After Lamport ("Time, clocks, and the ordering of events", 1978) and FastTrack (Flanagan and Freund, PLDI 2009): a warp's own
component counts its releases; an access is stamped with it, and is over for another warp when that warp's component for the
first one has reached the stamp; 1 says no more than that the warp has begun. The asynchronous copies into each CTA are one
more actor.
"""

from __future__ import annotations

import numpy as np

from .lanes import Array, Lanes

__all__ = ["Clocks"]


class Clocks:
    """`of[team, member]` is a warp's vector: a component for every warp of its cluster, and one for copies into each CTA; and the
    same again of what a proxy fence stands behind, and of what a fence of the whole GPU does, which travel with the rest."""

    def __init__(self, lanes: Lanes) -> None:
        members = lanes.members
        self.actors = members + lanes.cluster
        self.of = np.zeros((lanes.teams, members, 3 * self.actors), np.int32)
        self._own = np.arange(members)
        self._floor: Array | None = None
        self.of[:, self._own, self._own] = 2
        self._fenced = np.zeros_like(self.of)  # what stands behind a fence of each warp
        self._fenced[:, self._own, self._own] = 1
        self.copied = np.zeros((lanes.teams, lanes.cluster), np.int32)  # copies that have arrived in each CTA

    def stamp(self, teams: Array, members: Array) -> Array:
        return self.of[teams, members, members]

    @property
    def stamps(self) -> Array:
        """Of every warp of the wave."""
        return self.of[:, self._own, self._own].ravel()

    @property
    def floor(self) -> Array:
        """For each team the time up to which everything is over for all of its warps, as they last learned of one another."""
        if self._floor is None:
            seen = self.of[:, :, : self.actors if self.copied.any() else len(self._own)].copy()
            seen[:, self._own, self._own] -= 1  # a warp's own may be another lane's
            self._floor = seen.min((1, 2))
        return self._floor

    def seen(self, team: int, member: int, *, proxied: bool = False) -> Array:
        """What is over for a warp, or what of it the asynchronous proxy sees too."""
        first = self.actors if proxied else 0
        return self.of[team, member, first : first + self.actors]

    def common(self, team: int, members: Array, *, proxied: bool = False) -> Array:
        """What is over for all of some warps."""
        first = self.actors if proxied else 0
        return np.asarray(self.of[team, members, first : first + self.actors].min(0))

    def published(self, team: int, member: int) -> Array:
        """What of it stands behind a fence of the whole GPU: stamps of the cluster's warps."""
        return self.of[team, member, 2 * self.actors :][: len(self._own)]

    def join(self, meet: Array) -> None:
        """The warps that `meet` marks (teams x members) have met: what each did is over for all of them."""
        top = np.where(meet[:, :, None], self.of, 0).max(1)
        self.of = np.where(meet[:, :, None], np.maximum(self.of, top[:, None, :]), self.of)
        self.of[:, self._own, self._own] += meet
        self._floor = None

    def nothing(self) -> Array:
        """A vector of a warp that has seen nothing."""
        return np.zeros(3 * self.actors, np.int32)

    def release(self, team: int, members: Array, *, relaxed: bool = False) -> Array:
        """What warps hand on with an arrival; what they do afterwards is not part of it, and of a relaxed arrival only what
        they did before a fence."""
        handed: Array = (self._fenced if relaxed else self.of)[team, members].max(0)
        self.of[team, members, members] += 1
        return handed

    def acquire(self, team: int, members: Array, handed: Array) -> None:
        self.of[team, members] = np.maximum(self.of[team, members], handed)
        self._floor = None

    def step(self, teams: Array, members: Array) -> None:
        """The lanes of warps have met: what each did is over for the others."""
        self.of[teams, members, members] += 1

    def fence(self, team: int, member: int, *, widely: bool = False) -> None:
        """A fence that releases: a relaxed arrival behind it hands on what was ahead of it; so does, where it is one of the whole
        GPU, an atomic operation."""
        if widely:
            self.of[team, member, 2 * self.actors :] = self.seen(team, member)
        self._fenced[team, member] = self.of[team, member]
        self.of[team, member, member] += 1

    def fence_proxy(self, team: int, member: int) -> None:
        """What is over for the warp may be read by the asynchronous proxy."""
        self.seen(team, member, proxied=True)[:] = self.seen(team, member)
        self.of[team, member, member] += 1

    def arrive(self, team: int, rank: int) -> int:
        """A copy into a CTA has arrived; its stamp."""
        self.copied[team, rank] += 1
        self._floor = None
        return int(self.copied[team, rank])
