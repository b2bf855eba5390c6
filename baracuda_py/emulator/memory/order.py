"""Ordering beyond a warp: lanes and clusters numbered over the whole launch, fences, the wait for the previous launch.

PTX ISA, Memory Consistency Model; Parallel Synchronization and Communication Instructions: membar/fence, griddepcontrol.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..threads.lanes import WARP, Array, Selection
from .touched import MANY, NO_ACTOR, PER_WARP

if TYPE_CHECKING:
    from ..wave import Wave

__all__ = ["Order"]


class Order:
    def __init__(self, wave: Wave) -> None:
        self._wave, self._lanes = wave, wave.lanes
        lanes, waits = wave.lanes, wave.launched.pdl and wave.checks
        self._waited = np.zeros(lanes.count, bool) if waits else None
        self._waits = np.zeros((lanes.teams, lanes.members), np.int32)  # when each warp waited for the previous launch

    def fence(self, s: Selection, of: str) -> None:
        wave = self._wave
        if of in ("proxy", "mbarrier_init"):
            wave.mbarriers.fence(s)
        if wave.checks and (of != "cta" or self._lanes.cluster == 1):  # a fence of one CTA orders no other CTA
            for warp in np.unique(self._lanes.warp[s]):
                team, member = int(self._lanes.team[warp * WARP]), int(self._lanes.member[warp * WARP])
                if of == "proxy":
                    wave.clocks.fence_proxy(team, member)
                    continue
                wave.clocks.fence(team, member, widely=of in ("gpu", "gl", "sys"))
                if of in ("gpu", "gl", "sys"):
                    wave.launched.grid_order.fence(self.cluster_number(team))

    def wait_for_launch(self, s: Selection) -> None:
        if self._waited is not None:
            self._waited[s] = True
            self._waits[self._lanes.team[s], self._lanes.member[s]] = self.stamps(s)
            if self._waited[self._lanes.exists].all():
                self._waited = None

    def early(self, s: Selection) -> bool:
        """Whether a lane of a launch with `pdl` is ordered after no wait for the previous launch, its own or another lane's."""
        if self._waited is None or self._waited[s].all():
            return False
        late = self._lanes.numbers(s)[~self._waited[s]]
        team, member = self._lanes.team[late], self._lanes.member[late]
        waits, members = self._waits[team], np.arange(self._lanes.members)
        over = self._wave.clocks.of[team, member, : self._lanes.members] >= waits + (members == member[:, None])
        return not bool(np.all(np.any((waits > 0) & over, axis=1)))

    def cluster_number(self, team: int) -> int:
        """The number of a cluster in the whole launch."""
        return team + self._lanes.first // self._lanes.cluster

    def actors(self, s: Selection) -> Array:
        """The numbers of lanes in the whole launch."""
        warps = self._lanes.warp[s] + self._lanes.first * self._lanes.warps
        return (warps * PER_WARP + self._lanes.thread[s] % WARP).astype(np.int32)

    def stamps(self, s: Selection) -> Array:
        return self._wave.clocks.stamps[self._lanes.warp[s]]

    def same_team(self, before: Array, warps: Array) -> Array:
        """Whether warps of the launch belong to the clusters of the acting warps."""
        members = self._lanes.members
        return np.asarray((before >= 0) & (before // members == warps // members))

    def unordered(self, s: Selection, actors: Array, stamps: Array) -> Array:
        """Whether accesses of `actors`, lanes of the launch, at `stamps` are unordered with each lane. Accesses of its own warp
        are over once the warp has synchronised."""
        lanes, mine = self._lanes, self.actors(s)
        warps, members = actors // PER_WARP, lanes.members
        same = (actors >= 0) & self.same_team(warps, mine // PER_WARP)
        own = warps == mine // PER_WARP
        seen = self._wave.clocks.of[lanes.team[s], lanes.member[s], np.where(same, warps % members, 0)]
        bad = same & (actors != mine) & (stamps + own > seen) | (actors == MANY)
        for j in np.flatnonzero((actors > NO_ACTOR) & ~same).tolist():
            other, member = divmod(int(warps[j]), members)
            cluster = int(mine[j]) // PER_WARP // members
            bad[j] = not self._wave.launched.grid_order.knows(cluster, other, member, int(stamps[j]))
        return np.asarray(bad)
