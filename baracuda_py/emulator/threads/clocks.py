"""The happens-before relation: one vector clock per warp, and the synchronisation that joins the clocks of warps.

After Lamport ("Time, clocks, and the ordering of events", 1978) and FastTrack (Flanagan and Freund, PLDI 2009): a warp's own
component counts its releases, and an access is stamped with that count. The access is over for another warp when the other
warp's component for the first warp has reached the stamp; a component of 1 means only that the warp has begun. The asynchronous
copies into each CTA are one more actor.
"""

from __future__ import annotations

import numpy as np

from .lanes import Array, Lanes

__all__ = ["Clocks"]


class Clocks:
    """`of[team, member]` is a warp's vector: one component for every warp of its cluster, and one for the copies into each CTA.
    The vector holds two further copies of these: accesses before a proxy fence, and accesses before a fence of the whole GPU."""

    def __init__(self, lanes: Lanes) -> None:
        members = lanes.members
        self.actors = members + lanes.cluster
        self.of = np.zeros((lanes.teams, members, 3 * self.actors), np.int32)
        self._own = np.arange(members)
        self._floor: Array | None = None
        self.of[:, self._own, self._own] = 2
        self._fenced = np.zeros_like(self.of)  # each warp's clock at its last fence
        self._fenced[:, self._own, self._own] = 1
        self.copied = np.zeros((lanes.teams, lanes.cluster), np.int32)  # copies that have arrived in each CTA

    def stamp(self, teams: Array, members: Array) -> Array:
        return self.of[teams, members, members]

    @property
    def stamps(self) -> Array:
        """The stamp of every warp of the wave."""
        return self.of[:, self._own, self._own].ravel()

    @property
    def floor(self) -> Array:
        """For each team, the time up to which all accesses are over for all of its warps, as of their last synchronisation."""
        if self._floor is None:
            seen = self.of[:, :, : self.actors if self.copied.any() else len(self._own)].copy()
            seen[:, self._own, self._own] -= 1  # a warp's latest access may be another lane's
            self._floor = seen.min((1, 2))
        return self._floor

    def seen(self, team: int, member: int, *, proxied: bool = False) -> Array:
        """The clock up to which accesses are over for a warp, or with `proxied` for the asynchronous proxy too."""
        first = self.actors if proxied else 0
        return self.of[team, member, first : first + self.actors]

    def common(self, team: int, members: Array, *, proxied: bool = False) -> Array:
        """The clock up to which accesses are over for all of some warps."""
        first = self.actors if proxied else 0
        return np.asarray(self.of[team, members, first : first + self.actors].min(0))

    def published(self, team: int, member: int) -> Array:
        """The stamps of the cluster's warps that a fence of the whole GPU has published."""
        return self.of[team, member, 2 * self.actors :][: len(self._own)]

    def join(self, meet: Array) -> None:
        """The warps that `meet` marks (teams x members) have synchronised: the accesses of each are over for all of them."""
        top = np.where(meet[:, :, None], self.of, 0).max(1)
        self.of = np.where(meet[:, :, None], np.maximum(self.of, top[:, None, :]), self.of)
        self.of[:, self._own, self._own] += meet
        self._floor = None

    def nothing(self) -> Array:
        """The vector of a warp that has acquired nothing."""
        return np.zeros(3 * self.actors, np.int32)

    def release(self, team: int, members: Array, *, relaxed: bool = False) -> Array:
        """The clock that warps release with an arrival. Later accesses are not part of it; a relaxed arrival releases only
        accesses before a fence."""
        released: Array = (self._fenced if relaxed else self.of)[team, members].max(0)
        self.of[team, members, members] += 1
        return released

    def acquire(self, team: int, members: Array, released: Array) -> None:
        self.of[team, members] = np.maximum(self.of[team, members], released)
        self._floor = None

    def step(self, teams: Array, members: Array) -> None:
        """The lanes of warps have synchronised: the accesses of each are over for the others."""
        self.of[teams, members, members] += 1

    def fence(self, team: int, member: int, *, widely: bool = False) -> None:
        """A releasing fence: a later relaxed arrival releases the accesses before the fence. After a fence of the whole GPU
        (`widely`), so does an atomic operation."""
        if widely:
            self.of[team, member, 2 * self.actors :] = self.seen(team, member)
        self._fenced[team, member] = self.of[team, member]
        self.of[team, member, member] += 1

    def fence_proxy(self, team: int, member: int) -> None:
        """Accesses that are over for the warp become visible to the asynchronous proxy."""
        self.seen(team, member, proxied=True)[:] = self.seen(team, member)
        self.of[team, member, member] += 1

    def arrive(self, team: int, rank: int) -> int:
        """Counts a copy that has arrived in a CTA, and returns its stamp."""
        self.copied[team, rank] += 1
        self._floor = None
        return int(self.copied[team, rank])
