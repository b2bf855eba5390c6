"""Named barriers, mbarriers, and the barrier of a cluster. Each describes its waiting threads for the message of a deadlock.

PTX ISA, Parallel Synchronization and Communication Instructions: bar, barrier; mbarrier; barrier.cluster.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ...types.faults import BarrierFault, KernelFault, ProxyFault
from ..threads.lanes import WARP, Array, Selection, pairs_of

if TYPE_CHECKING:
    from ..wave import Wave

__all__ = ["ClusterBarrier", "MBarriers", "NamedBarriers"]

NAMED = 16
MOST = (1 << 20) - 1  # arrivals that an mbarrier counts
IMPATIENCE = 0.2  # the probability that a wait with a time limit gives up


@dataclass
class _Meeting:
    """The threads that have arrived at a named barrier, and those among them that wait."""

    expected: int
    counted: bool  # whether the instruction gives a number of threads; otherwise all threads of the CTA count
    released: Array  # the clocks that the arrived threads have released
    arrived: int = 0
    waiting: list[Array] = field(default_factory=list)


class NamedBarriers:
    """``bar.sync`` and ``bar.arrive``: barriers by CTA and number."""

    def __init__(self, wave: Wave) -> None:
        self._wave = wave
        self._open: dict[tuple[int, int], _Meeting] = {}

    def meet_all(self) -> None:
        """Every warp of the wave has arrived at barrier 0."""
        lanes = self._wave.lanes
        self._wave.counters.barriers += lanes.warps * lanes.ctas
        for rank in range(lanes.cluster if self._wave.checks else 0):  # each CTA of a cluster separately
            meet = np.zeros((lanes.teams, lanes.cluster, lanes.warps), bool)
            meet[:, rank] = True
            self._wave.clocks.join(meet.reshape(lanes.teams, lanes.members))

    def come(self, n: int, s: Selection, number: Any, threads: Any, *, sync: bool) -> None:
        wave, lanes = self._wave, self._wave.lanes
        numbers = lanes.numbers(s)
        wave.counters.barriers += len(numbers) // WARP
        number, threads = lanes.spread(s, number), None if threads is None else lanes.spread(s, threads)
        ctas = lanes.cta[numbers]
        for cta, barrier in pairs_of(ctas, number):
            mine = (ctas == cta) & (number == barrier)
            here = numbers[mine]
            if barrier >= NAMED:
                raise wave.fault(BarrierFault, f"barrier {barrier}: there are {NAMED}", n, here, 0)
            counted = sorted(set(map(int, threads[mine]))) if threads is not None else []
            if len(counted) > 1 or any(c % WARP or not c for c in counted):
                what = f"barrier {barrier} of {counted} threads: a multiple of {WARP}, the same for all"
                raise wave.fault(BarrierFault, what, n, here, 0)
            expected = counted[0] if counted else int((wave.alive & (lanes.cta == cta)).sum())
            key = cta, barrier
            meeting = self._open.setdefault(key, _Meeting(expected, bool(counted), wave.clocks.nothing()))
            if not counted and not meeting.counted:
                meeting.expected = expected  # some threads may have ended since
            if meeting.expected != expected:
                what = f"barrier {barrier} counts {expected} threads here and {meeting.expected} elsewhere"
                raise wave.fault(BarrierFault, what, n, here, 0)
            meeting.arrived += len(here) if not counted else len(np.unique(lanes.warp[here])) * WARP
            if wave.checks:
                released = wave.clocks.release(cta // lanes.cluster, np.unique(lanes.member[here]))
                meeting.released = np.maximum(meeting.released, released)
            if sync:
                wave.block(here, partial("barrier {}".format, barrier))
                meeting.waiting.append(here)
            if meeting.arrived > meeting.expected:
                what = f"{meeting.arrived} threads at barrier {barrier}, which counts {meeting.expected}"
                raise wave.fault(BarrierFault, what, n, here, 0)
            if meeting.arrived == meeting.expected:
                self._part(key, meeting)

    def _part(self, key: tuple[int, int], meeting: _Meeting) -> None:
        lanes = self._wave.lanes
        for waiting in meeting.waiting:
            self._wave.unblock(waiting)
            if self._wave.checks:
                self._wave.clocks.acquire(key[0] // lanes.cluster, np.unique(lanes.member[waiting]), meeting.released)
        del self._open[key]

    def threads_ended(self) -> None:
        """Opens barriers that wait only for threads that have ended (where no number of threads is given)."""
        lanes = self._wave.lanes
        for key, meeting in list(self._open.items()):
            alive = int((self._wave.alive & (lanes.cta == key[0])).sum())
            if not meeting.counted and meeting.arrived == alive < meeting.expected:
                self._part(key, meeting)


@dataclass
class _MBarrier:
    count: int
    pending: int
    released: Array  # the clocks that the arrivals of this phase have released
    done: Array  # the clocks released when the last phase ended
    maker: int  # the warp of the cluster that initialised it
    fenced: bool = False  # whether a fence made the initialisation visible to copies
    expected: int = 0  # bytes
    phase: int = 0
    waiting: list[Array] = field(default_factory=list)

    def describe(self, offset: int) -> str:
        short = f"phase {self.phase}, {self.pending} arrivals and {self.expected} bytes short"
        return f"the mbarrier at shared memory+{offset}, {short}"


class MBarriers:
    """Barriers in shared memory that count arrivals and bytes; a wait is for the phase of a parity to end."""

    def __init__(self, wave: Wave) -> None:
        self._wave = wave
        self._known: dict[tuple[int, int], _MBarrier] = {}

    def _each(self, s: Selection, addresses: Any, *others: Any) -> Any:
        """(lanes of one barrier, its key, the other operands of these lanes)."""
        wave, lanes = self._wave, self._wave.lanes
        cta, offset = wave.shared.locate(s, addresses)
        numbers = lanes.numbers(s)
        spread = [lanes.spread(s, x) for x in others]
        if len(numbers) == 1 or ((offset == offset[0]).all() and (cta == cta[0]).all()):
            yield numbers, (int(cta[0]), int(offset[0])), *spread
            return
        for key in pairs_of(cta, offset):
            mine = (cta == key[0]) & (offset == key[1])
            yield numbers[mine], key, *(x[mine] for x in spread)

    def _wrong(self, what: str, n: int, lanes: Array, key: tuple[int, int]) -> KernelFault:
        return self._wave.fault(BarrierFault, what, n, lanes, 0, space="shared", byte=key[1])

    def _of(self, n: int, lanes: Array, key: tuple[int, int], *, copied: bool = False) -> _MBarrier:
        if key not in self._known:
            raise self._wrong("an mbarrier that is not initialised", n, lanes, key)
        self._wave.shared.reach(n, lanes, *(np.full(len(lanes), part) for part in key))
        self._wave.shared.shadow.note_use(n, lanes, *key, stamped=not copied)
        return self._known[key]

    def init(self, n: int, s: Selection, addresses: Any, counts: Any) -> None:
        for lanes, key, count in self._each(s, addresses, counts):
            if key[1] % 8 or key[1] + 8 > self._wave.shared.size:
                raise self._wrong("an mbarrier at no multiple of 8 bytes in shared memory", n, lanes, key)
            if not 0 < count[0] <= MOST:
                raise self._wrong(f"an mbarrier that counts {count[0]} arrivals, of 1 to {MOST}", n, lanes, key)
            if key in self._known or len(lanes) > 1:
                raise self._wrong("an mbarrier initialised twice with no mbarrier.inval between", n, lanes, key)
            released, done = self._wave.clocks.nothing(), self._wave.clocks.nothing()
            self._known[key] = _MBarrier(
                int(count[0]), int(count[0]), released, done, int(self._wave.lanes.member[lanes[0]])
            )
            self._wave.shared.shadow.take(n, lanes, *key)

    def invalidate(self, n: int, s: Selection, addresses: Any) -> None:
        for lanes, key in self._each(s, addresses):
            self._of(n, lanes, key)
            del self._known[key]
            self._wave.shared.shadow.take(n, lanes, *key, back=True)

    def arrive(self, n: int, s: Selection, addresses: Any, counts: Any, expected: Any, relaxed: bool) -> None:
        """Adds the announced bytes, then the arrivals. Threads arrive at once or, if they are more than a phase needs, one after
        the other, which may end several phases; one thread must not arrive more often than its phase has arrivals left."""
        for lanes, key, count, nbytes in self._each(s, addresses, counts, 0 if expected is None else expected):
            barrier = self._of(n, lanes, key)
            at_once = int(count.sum()) <= barrier.pending
            for part in [slice(None)] if at_once else [slice(j, j + 1) for j in range(len(lanes))]:
                self._arrive(n, lanes[part], key, barrier, int(count[part].sum()), int(nbytes[part].sum()), relaxed)

    def _arrive(
        self, n: int, lanes: Array, key: tuple[int, int], barrier: _MBarrier, count: int, nbytes: int, relaxed: bool
    ) -> None:  # fmt: skip
        wave = self._wave
        barrier.expected += nbytes
        if count > barrier.pending:
            raise self._wrong(f"more arrivals than the {barrier.count} that an mbarrier counts", n, lanes, key)
        barrier.pending -= count
        if wave.checks and count:
            members = np.unique(wave.lanes.member[lanes])
            released = wave.clocks.release(key[0] // wave.lanes.cluster, members, relaxed=relaxed)
            barrier.released = np.maximum(barrier.released, released)
        self._turn(barrier)

    def fence(self, s: Selection) -> None:
        """Barriers that these threads initialised become visible to copies (fence.mbarrier_init, fence.proxy.async)."""
        lanes = self._wave.lanes
        makers = set(zip(lanes.team[s].tolist(), lanes.member[s].tolist()))
        for (cta, _), barrier in self._known.items():
            barrier.fenced |= (cta // lanes.cluster, barrier.maker) in makers

    def rings(self, n: int, lane: int, key: tuple[int, int]) -> None:
        """A copy will count its bytes on this barrier."""
        lanes = np.array([lane])
        if not self._of(n, lanes, key, copied=True).fenced and self._wave.checks:
            what = "a copy counts on an mbarrier with no fence between its initialisation and this"
            raise self._wave.fault(ProxyFault, what, n, lanes, 0, space="shared", byte=key[1])

    def complete(self, n: int, lane: int, key: tuple[int, int], nbytes: int, actor: int, stamp: int) -> None:
        """Bytes of a copy have arrived."""
        if key not in self._known:
            raise self._wrong("a copy rings an mbarrier that is no more", n, np.array([lane]), key)
        barrier = self._known[key]
        barrier.expected -= nbytes
        if self._wave.checks:
            barrier.released[actor] = max(int(barrier.released[actor]), stamp)
        self._turn(barrier)

    def _turn(self, barrier: _MBarrier) -> None:
        if barrier.pending or barrier.expected:
            return
        barrier.phase += 1
        barrier.pending = barrier.count
        barrier.done = barrier.released.copy()
        for waiting in barrier.waiting:
            self._wave.unblock(waiting)
        barrier.waiting.clear()

    def wait(self, n: int, s: Selection, addresses: Any, parities: Any, row: Array | None) -> None:
        """Blocks until the phase is over; in random order it sometimes returns false earlier, as a time limit would."""
        wave = self._wave
        for lanes, key, parity in self._each(s, addresses, parities):
            barrier = self._of(n, lanes, key)
            over = (barrier.phase & 1) != (parity & 1)
            through, stays = lanes[over], lanes[~over]
            gives_up = row is not None and wave.options.order == "random" and wave.rng.random() < IMPATIENCE
            if row is not None:
                row[lanes] = over if gives_up else True
            if len(through) and wave.checks:
                wave.clocks.acquire(
                    int(wave.lanes.team[through[0]]), np.unique(wave.lanes.member[through]), barrier.done
                )
            if len(stays) and not gives_up:
                wave.block(stays, partial(barrier.describe, key[1]))
                barrier.waiting.append(stays)


class ClusterBarrier:
    """``barrier.cluster``: it waits for all threads of the cluster that have not ended."""

    def __init__(self, wave: Wave) -> None:
        self._wave, lanes = wave, wave.lanes
        self._arrived = np.zeros(lanes.count, bool)
        self._due = np.zeros(lanes.count, bool)  # threads that have arrived and not waited since
        self._phase = np.zeros(lanes.teams, np.int64)
        self._wanted = np.zeros(lanes.count, np.int64)
        self._waiting: list[Array] = []
        self._released = [wave.clocks.nothing() for _ in range(lanes.teams)]  # clocks that arrivals released
        self._done = list(self._released)  # the same when the last phase ended

    def arrive(self, n: int, s: Selection, relaxed: bool) -> None:
        wave, lanes = self._wave, self._wave.lanes
        if self._due[s].any():
            raise wave.fault(BarrierFault, "a second arrival at the cluster's barrier without a wait", n, s, 0)
        self._arrived[s] = self._due[s] = True
        self._wanted[s] = self._phase[lanes.team[s]] + 1
        for team, members in self._by_team(s) if wave.checks else ():
            self._released[team] = np.maximum(self._released[team], wave.clocks.release(team, members, relaxed=relaxed))
        self.look()

    def _by_team(self, s: Selection) -> list[tuple[int, Array]]:
        team, member = self._wave.lanes.team[s], self._wave.lanes.member[s]
        return [(int(each), np.unique(member[team == each])) for each in np.unique(team)]

    def look(self) -> None:
        """Opens the barrier of each cluster all of whose threads have arrived or ended."""
        wave, lanes = self._wave, self._wave.lanes
        if not self._arrived.any():
            return
        for team in np.unique(lanes.team[self._arrived]):
            mine = lanes.team == team
            if not (self._arrived | ~wave.alive)[mine].all():
                continue
            self._phase[team] += 1
            self._arrived[mine] = False
            self._done[team] = self._released[team]
            for waiting in self._waiting:
                wave.unblock(waiting[lanes.team[waiting] == team])
            self._waiting = [w[lanes.team[w] != team] for w in self._waiting if (lanes.team[w] != team).any()]

    def wait(self, n: int, s: Selection) -> None:
        wave = self._wave
        numbers = wave.lanes.numbers(s)
        if not self._due[numbers].all():
            j = int(np.flatnonzero(~self._due[numbers])[0])
            raise wave.fault(BarrierFault, "a wait at the cluster's barrier without an arrival", n, s, j)
        early = self._phase[wave.lanes.team[numbers]] < self._wanted[numbers]
        if early.any():
            wave.block(numbers[early], lambda: "the cluster's barrier")
            self._waiting.append(numbers[early])
        self._due[numbers[~early]] = False
        for team, members in self._by_team(numbers[~early]) if wave.checks else ():
            wave.clocks.acquire(team, members, self._done[team])
