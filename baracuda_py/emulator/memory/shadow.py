"""The state of shared memory: which bytes were written or will be by a copy, and the last writer and the readers of each grain.

PTX ISA, Memory Consistency Model; Async proxy. Accesses are ordered by the vector clocks of clocks.py. Accesses that are over for
all warps are tested first, because most are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from ...types.faults import BarrierFault, KernelFault, ProxyFault, RaceFault
from ..threads.lanes import Array, Selection
from .boxes import UNIT
from .loads import NO_LANE, Loads, grains_of

if TYPE_CHECKING:
    from ..wave import Shared, Wave

__all__ = ["COMING", "NOTHING", "Shadow"]

BARRIER = 8  # bytes of an mbarrier
NOTHING, WRITTEN, COMING, HELD = range(4)  # states of a byte; COMING by a copy, HELD by an mbarrier
ALL_WRITTEN = {size: int.from_bytes(bytes([WRITTEN] * size), "little") for size in (1, 2, 4, 8)}
WIDEST = 32  # bytes of an access
UNWRITTEN = -1 << 8  # no writer, not by the generic proxy


class Shadow:
    """`wrote` has the last writer of each grain: a warp of the cluster, or (numbered after the warps) a copy into one of its
    CTAs; the lane; and whether it was the generic proxy. `written` has the stamp."""

    def __init__(self, wave: Wave, memory: Shared, total: int, grain: int) -> None:
        self._wave, self._memory, self.grain = wave, memory, grain
        self.on = wave.checks and bool(total)
        if self.on:
            grains = -(-total // WIDEST) * WIDEST // grain
            self.state = np.zeros(grains * grain, np.uint8)
            self._wrote = np.full(grains, UNWRITTEN, np.int32)
            self._written = np.zeros(grains, np.int32)
            self._loads = Loads(wave.clocks, grains, wave.lanes.members)
            self._exchanged: Array | None = None  # the stamp of each warp's last atomic operation

    # ---- places -----------------------------------------------------------------------------------------------------

    def _rows(self, at: Array, size: int) -> tuple[Array, int]:
        """(rows, grains per row) of accesses that begin at multiples of their size."""
        width = max(1, size // self.grain)
        return at // (width * self.grain), width

    def unit_grains(self, units: Array) -> Array:
        """The grains of units of 16 bytes."""
        return grains_of(units, UNIT // self.grain).ravel()

    def _states(self, at: Array, size: int) -> Array:
        """The states of accesses' bytes, several packed in one number."""
        step = min(size, 8)
        words = self.state.view(f"u{step}")
        return np.asarray(words[at // step] if size <= 8 else words.reshape(-1, size // 8)[at // size])

    def _states_of_bytes(self, at: Array, size: int) -> Array:
        return np.asarray(self.state[at[:, None] + np.arange(size)])

    def set(self, at: Array, size: int, state: int) -> None:
        step = min(size, 8)
        words, value = self.state.view(f"u{step}"), ALL_WRITTEN[step] * state
        if size <= 8:
            words[at // step] = value
        else:
            words.reshape(-1, size // 8)[at // size] = value

    # ---- ordering with previous accesses ----------------------------------------------------------------------------

    def _over(self, team: Array, rows: Array, width: int, *, loads: bool) -> bool:
        """Whether all stores, and with `loads` all loads, are over for all warps."""
        if self._exchanged is not None:
            return False
        floor = self._wave.clocks.floor[team].min(initial=0 if not len(team) else np.iinfo(np.int32).max)
        planes = (self._written, self._loads.latest) if loads else (self._written,)
        return all(plane.reshape(-1, width)[rows].max(initial=0) <= floor for plane in planes)

    def _stored_beside(self, member: Array, grains: Array, stamp: Array, lane: Array) -> Array:
        """Where another lane of the same warp stored since the warp last synchronised."""
        wrote = self._wrote[grains]
        by = wrote >> 1 & NO_LANE
        return np.asarray(
            (wrote >> 8 == member[:, None]) & (self._written[grains] == stamp) & (by != lane) & (by != NO_LANE)
        )

    def _read_beside(self, member: Array, grains: Array, stamp: Array, lane: Array) -> Array:
        """Where another lane of the same warp loaded since the warp last synchronised."""
        by = self._loads.by[grains, member[:, None]]
        return np.asarray((self._loads.when[grains, member[:, None]] == stamp) & (by != lane) & (by != NO_LANE))

    def _unordered_stores(self, team: Array, member: Array, grains: Array) -> Array:
        writer = self._wrote[grains] >> 8
        seen = self._wave.clocks.of[team[:, None], member[:, None], np.maximum(writer, 0)]
        return np.asarray((writer != member[:, None]) & (self._written[grains] > seen))

    def _unordered_in(self, plane: Array, team: Array, member: Array, grains: Array) -> Array:
        """Where another warp's stamp, in a plane with one stamp per warp, is not known to be over."""
        late = plane[grains] > self._wave.clocks.of[team, member, : self._wave.lanes.members][:, None, :]
        late[np.arange(len(grains)), :, member] = False
        return np.asarray(late.any(2))

    def _unordered_writes(self, team: Array, member: Array, grains: Array) -> Array:
        bad = self._unordered_stores(team, member, grains)
        return bad if self._exchanged is None else bad | self._unordered_in(self._exchanged, team, member, grains)

    # ---- accesses of the generic proxy ------------------------------------------------------------------------------

    def note_read(self, n: int, s: Selection, at: Array, size: int) -> bool:
        """Raises RaceFault for bytes of a pending copy or an unordered store; returns whether all bytes were written."""
        if not self.on:
            return True
        states = self._states(at, size)
        known = bool((states == ALL_WRITTEN[states.itemsize]).all())
        if not known:
            state = self._states_of_bytes(at, size)
            self._refuse_taken(n, s, at, state, "load")
            self._suspect(n, s, at, state)
        wave, lanes = self._wave, self._wave.lanes
        team, member, (rows, width), stamps = lanes.team[s], lanes.member[s], self._rows(at, size), wave.order.stamps(s)
        if not self._over(team, rows, width, loads=False):
            grains = grains_of(rows, width)
            for bad, other in (
                (self._unordered_writes(team, member, grains), "warp's"),
                (self._stored_beside(member, grains, stamps[:, None], lanes.lane[s][:, None]), "thread's"),
            ):
                if bad.any():
                    what = f"load that nothing orders with another {other} store"
                    raise self._race(n, s, np.any(bad, axis=1), at, what)
        self._loads.note(rows, width, member, stamps, lanes.lane[s])
        return known

    def note_write(
        self, n: int, s: Selection, at: Array, size: int, there: Callable[[], Array] | None = None, *, plainly: bool = True
    ) -> None:  # fmt: skip
        """Raises RaceFault where another warp's access is not known to be over. A store does not conflict where `there` says that
        memory holds the same value already."""
        if not self.on:
            return
        states = self._states(at, size)
        if (states & ~states.dtype.type(ALL_WRITTEN[states.itemsize])).any():
            self._refuse_taken(n, s, at, self._states_of_bytes(at, size), "store")
        lanes = self._wave.lanes
        team, member, lane = lanes.team[s], lanes.member[s], lanes.lane[s]
        (rows, width), stamps = self._rows(at, size), self._wave.order.stamps(s)
        if not self._over(team, rows, width, loads=True):
            places = member, grains_of(rows, width), stamps[:, None], lane[:, None]
            for of, other in (
                (self._unordered_writes(team, *places[:2]), "warp's"), (self._stored_beside(*places), "thread's"),
            ):  # fmt: skip
                bad = np.any(of, axis=1)
                if bad.any() and (there is None or (bad := bad & ~there()).any()):
                    raise self._race(n, s, bad, at, f"store that nothing orders with another {other} store")
            for of, other in (
                (self._unordered_in(self._loads.when, team, *places[:2]), "warp's"), (self._read_beside(*places), "thread's"),
            ):  # fmt: skip
                if of.any():
                    raise self._race(
                        n, s, np.any(of, axis=1), at, f"store that nothing orders with another {other} load"
                    )
        self._store(rows, width, member, lane, stamps, plainly)
        self.set(at, size, WRITTEN)

    def _store(self, rows: Array, width: int, member: Array, lane: Array, stamps: Array, plainly: bool) -> None:
        wrote = member.astype(np.int32) << 8 | lane.astype(np.int32) << 1 | plainly
        self._wrote.reshape(-1, width)[rows], self._written.reshape(-1, width)[rows] = wrote[:, None], stamps[:, None]

    def note_arrival(self, lanes_of: Array, at: Array, size: int) -> None:
        """Bytes that these lanes have copied have arrived."""
        if self.on:
            lanes, (rows, width) = self._wave.lanes, self._rows(at, size)
            stamps = self._wave.order.stamps(lanes_of)
            self._store(rows, width, lanes.member[lanes_of], lanes.lane[lanes_of], stamps, False)
            self.set(at, size, WRITTEN)

    def note_exchange(self, n: int, s: Selection, at: Array, size: int) -> None:
        """Atomic operations are ordered among themselves, and as loads and stores with all others."""
        if not self.on:
            return
        state, wave = self._states_of_bytes(at, size), self._wave
        self._refuse_taken(n, s, at, state, "exchange")
        team, member, grains, stamps = (
            wave.lanes.team[s],
            wave.lanes.member[s],
            grains_of(*self._rows(at, size)),
            wave.order.stamps(s),
        )
        lane = member, grains, stamps[:, None], wave.lanes.lane[s][:, None]
        for bad, other in (
            (self._unordered_stores(team, member, grains), "warp's store"),
            (self._unordered_in(self._loads.when, team, member, grains), "warp's load"),
            (self._stored_beside(*lane), "thread's store"),
            (self._read_beside(*lane), "thread's load"),
        ):
            if bad.any():
                text = f"exchange that nothing orders with another {other}"
                raise self._race(n, s, np.any(bad, axis=1), at, text)
        if self._exchanged is None:
            self._exchanged = np.zeros_like(self._loads.when)
        self._exchanged[grains, member[:, None]] = stamps[:, None]
        if not state.all():
            self._suspect(n, s, at, state)
            places, memory = at[:, None] + np.arange(size), self._memory
            memory.bytes[places] = memory.peek(n, places)
        self.set(at, size, WRITTEN)

    # ---- mbarriers --------------------------------------------------------------------------------------------------

    def take(self, n: int, lanes: Array, cta: int, offset: int, *, back: bool = False) -> None:
        """Eight bytes become an mbarrier, or with `back` ordinary memory again."""
        if not self.on:
            return
        at = np.array([offset + cta * self._memory.pitch])
        if (self._states_of_bytes(at, BARRIER) == HELD).all():
            self.set(at, BARRIER, WRITTEN)
        self.note_write(n, lanes[:1], at, BARRIER, plainly=False)
        if not back:
            self.set(at, BARRIER, HELD)

    def note_use(self, n: int, lanes_of: Array, cta: int, offset: int, *, stamped: bool) -> None:
        """RaceFault where threads use an mbarrier whose initialisation is not known to be over. The use by a copy is not
        `stamped`: it is over when the bytes have arrived."""
        if not self.on:
            return
        lanes = self._wave.lanes
        at, member = np.array([offset + cta * self._memory.pitch]), _distinct(lanes.member[lanes_of])
        team, (rows, width) = np.repeat(lanes.team[lanes_of[:1]], len(member)), self._rows(at, BARRIER)
        if (bad := self._unordered_writes(team, member, grains_of(rows, width))).any():
            what = "an mbarrier whose initialisation nothing orders with this"
            late = member[np.any(bad, axis=1)]
            raise self._race(n, lanes_of, np.isin(lanes.member[lanes_of], late), np.repeat(at, len(lanes_of)), what)
        if stamped:
            self._loads.note(rows, width, member, self._wave.clocks.stamp(team, member))

    # ---- copies and matrix products ---------------------------------------------------------------------------------

    def expect(self, n: int, lane: int, at: Array, grains: Array, what: str, *, proxied: bool) -> None:
        """A copy will write these bytes: other accesses to them must be over for the thread that starts the copy, and fenced if
        the asynchronous proxy makes the copy."""
        if not self.on:
            return
        lanes, clocks = self._wave.lanes, self._wave.clocks
        team, member = int(lanes.team[lane]), int(lanes.member[lane])
        first = grains * self.grain

        def race(bad: Array, text: str, kind: type[KernelFault] = RaceFault) -> KernelFault:
            return self._at(kind, n, np.array([lane]), int(first[bad][0]), f"{what} {text}")

        taken: Array = self.state[first] >= COMING
        if taken.any():
            raise race(taken, "over bytes of another copy that has not arrived, or over an mbarrier")
        known = clocks.seen(team, member)[: lanes.members].copy()
        known[member] = np.iinfo(np.int32).max
        if (self._loads.latest[grains] > known.min()).any():
            bad = np.asarray((self._loads.when[grains] > known).any(1))
            if bad.any():
                raise race(bad, "overwrites what another warp may still read")
        wrote, written = self._wrote[grains], self._written[grains]
        writer = wrote >> 8
        stored = (writer >= 0) & (writer < lanes.members)
        if (bad := np.asarray(stored & (writer != member) & (written > clocks.seen(team, member)[writer]))).any():
            raise race(bad, "overwrites what nothing orders with another warp's store")
        seen = clocks.seen(team, member, proxied=True)[writer]
        if proxied and (bad := np.asarray(stored & (wrote & 1 != 0) & (written > seen))).any():
            raise race(bad, "overwrites what was stored with no fence.proxy.async behind it", ProxyFault)
        self.state[at] = COMING

    def land(self, at: Array, grains: Array, actor: int, stamp: int) -> None:
        """Bytes of a copy have arrived, written by `actor` (a warp of the cluster, or a copy into one of its CTAs)."""
        if self.on:
            self.state[at] = WRITTEN
            self._wrote[grains], self._written[grains] = actor << 8 | NO_LANE << 1, stamp

    def note_async_read(self, n: int, lanes_of: Array, units: Array, what: str, *, stamped: bool = True) -> None:
        """The asynchronous proxy reads for the threads `lanes_of` of one CTA: bytes must be written, arrived, ordered, fenced."""
        if not self.on or not len(units):
            return
        wave, lanes, width = self._wave, self._wave.lanes, UNIT // self.grain

        def fault(bad: Array, text: str, kind: type[KernelFault] = RaceFault) -> KernelFault:
            byte = int(grains_of(units, width)[bad][0]) * self.grain
            return self._at(kind, n, lanes_of[:1], byte, f"{what} reads {text}")

        if (self.state.view(np.uint64).reshape(-1, 2)[units] != ALL_WRITTEN[8]).any():
            state = self.state.reshape(-1, UNIT)[units]
            if (state >= COMING).any():
                raise fault(state[:, :: self.grain] >= COMING, "bytes of a copy that has not arrived, or an mbarrier")
            self._suspect(n, np.repeat(lanes_of[:1], len(units)), units * UNIT, state)
        wrote, written = (plane.reshape(-1, width)[units] for plane in (self._wrote, self._written))
        writer, plain = wrote >> 8, wrote & 1 != 0
        team, members = int(lanes.team[lanes_of[0]]), _distinct(lanes.member[lanes_of])
        if (bad := written > wave.clocks.common(team, members)[writer]).any():
            raise fault(bad, "what nothing orders with another warp's store")
        if plain.any() and (bad := plain & (written > wave.clocks.common(team, members, proxied=True)[writer])).any():
            raise fault(bad, "what was stored with no fence.proxy.async behind it", ProxyFault)
        if stamped:
            self._loads.note(units, width, members, wave.clocks.of[team, members, members])

    # ---- the end of a CTA -------------------------------------------------------------------------------------------

    def let_go(self, n: int, s: Selection) -> None:
        """The last threads of CTAs end: accesses of other CTAs of the cluster to their memory must be over."""
        lanes, clocks, memory = self._wave.lanes, self._wave.clocks, self._memory
        if not self.on or lanes.cluster == 1:
            return
        numbers = lanes.numbers(s)
        for cta, first in zip(*np.unique(lanes.cta[numbers], return_index=True)):
            team, rank = divmod(int(cta), lanes.cluster)
            own = slice(rank * lanes.warps, (rank + 1) * lanes.warps)
            mine = slice(cta * memory.pitch // self.grain, (cta + 1) * memory.pitch // self.grain)
            seen = clocks.of[team, own, : lanes.members].max(0)
            late = self._loads.when[mine] > seen
            if self._exchanged is not None:
                late |= self._exchanged[mine] > seen
            writer = np.clip(self._wrote[mine] >> 8, 0, lanes.members - 1)
            stored = (self._wrote[mine] >> 8 == writer) & (self._written[mine] > seen[writer])
            late[np.arange(len(writer)), writer] |= stored
            late[:, own] = False
            if (bad := late.any(1)).any():
                what = "a CTA ends before others of its cluster are known to be done with its memory"
                byte = int(np.flatnonzero(bad)[0]) * self.grain
                raise self._at(RaceFault, n, numbers[first : first + 1], byte, what)

    # ---- faults -----------------------------------------------------------------------------------------------------

    def _at(self, kind: type[KernelFault], n: int, lanes: Array, byte: int, what: str) -> KernelFault:
        memory = self._memory
        return self._wave.fault(kind, what, n, lanes, 0, space="shared", byte=byte % memory.pitch, extent=memory.size)

    def _suspect(self, n: int, s: Selection, at: Array, state: Array) -> None:
        bad, memory = np.any(state == NOTHING, axis=1), self._memory
        self._wave.suspect(n, s, bad, at % memory.pitch, "nothing had written", space="shared", extent=memory.size)

    def _refuse_taken(self, n: int, s: Selection, at: Array, state: Array, verb: str) -> None:
        """RaceFault or BarrierFault for an access to bytes of a pending copy or of an mbarrier."""
        if (coming := state == COMING).any():
            raise self._race(n, s, np.any(coming, axis=1), at, f"{verb} of bytes of a copy that has not arrived")
        if (held := state == HELD).any():
            bad = np.any(held, axis=1)
            raise self._memory.fault(BarrierFault, n, s, bad, at % self._memory.pitch, f"{verb} of an mbarrier's bytes")

    def _race(self, n: int, s: Selection, bad: Array, at: Array, what: str) -> KernelFault:
        return self._memory.fault(RaceFault, n, s, bad, at % self._memory.pitch, what)


def _distinct(members: Array) -> Array:
    """The distinct warps of lanes in order."""
    first = np.ones(len(members), bool)
    np.not_equal(members[1:], members[:-1], out=first[1:])
    return np.asarray(members[first])
