"""Shared memory of a wave's CTAs, and its shadow: what was written, what is on its way, who wrote and who read each grain last.

PTX ISA, State Spaces: Shared; Memory Consistency Model; Async proxy. An address is an offset into the CTA's own memory; those of
another CTA of the cluster have its rank, plus one, from bit 24 on (``mapa``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..types.faults import BarrierFault, KernelFault, MisalignedFault, OutOfBoundsFault, ProxyFault, RaceFault
from .boxes import UNIT
from .lanes import Array, Selection
from .memory import fill
from .touched import NOBODY, SEVERAL
from .unknown import FRESH

if TYPE_CHECKING:
    from .machine import Wave

__all__ = ["RANK_SHIFT", "SharedMemory"]

RANK_SHIFT = 24
BARRIER = 8  # bytes of an mbarrier
NOTHING, WRITTEN, COMING, HELD = range(4)  # states of a byte; COMING by a copy, HELD by an mbarrier
STALE = 0xA5  # bytes that a copy will bring


class SharedMemory:
    """`pitch` bytes a CTA, of which `size` are the kernel's."""

    def __init__(self, wave: Wave, size: int, grain: int) -> None:
        lanes = wave.lanes
        self._wave, self.size, self.grain = wave, size, grain
        self.pitch = -(-size // 16) * 16
        total = lanes.ctas * self.pitch
        self.bytes = np.full(total + 16, FRESH, np.uint8)[:total]
        self.views = {f"{kind}{n}": self.bytes.view(f"{kind}{n}") for kind in "ui" for n in (1, 2, 4, 8)}
        self.checks = wave.checks and bool(size)
        if self.checks:
            grains = total // grain + UNIT
            self.state = np.zeros(total, np.uint8)
            self.writer = np.full(
                grains, -1, np.int16
            )  # a warp of the cluster, or behind these a copy into one of its CTAs
            self.written = np.zeros(grains, np.int32)
            self.plainly = np.zeros(grains, bool)  # written by the generic proxy
            self.read = np.zeros((grains, lanes.members), np.int32)
            self.by = np.full(grains, NOBODY, np.int8)  # the lane of the last store
            self.read_by = np.full((grains, lanes.members), NOBODY, np.int8)  # of each warp's last load, or SEVERAL
            self.exchanged: Array | None = None  # when each warp's last atomic operation was, once there is one

    # ---- addresses --------------------------------------------------------------------------------------------------

    def locate(self, s: Selection, addresses: Any) -> tuple[Array, Array]:
        """(the CTA of the wave, the offset in its memory) that each address means."""
        lanes = self._wave.lanes
        addresses = lanes.spread(s, addresses).view(np.int32).astype(np.int64)
        rank, cta = addresses >> RANK_SHIFT, lanes.cta[s]
        if not rank.any():
            return cta, addresses
        other = (rank > 0) & (rank <= lanes.cluster)  # any other rank is nobody's: the offset is as far out
        cta = np.where(other, cta // lanes.cluster * lanes.cluster + rank - 1, cta)
        return cta, np.where(other, addresses & (1 << RANK_SHIFT) - 1, addresses)

    def places(self, n: int, s: Selection, addresses: Any, size: int, *, store: bool, align: int = 0) -> Array:
        """Where the accesses lie in `bytes`; OutOfBoundsFault or MisalignedFault where they may not."""
        cta, offset = self.locate(s, addresses)
        bad = (offset < 0) | (offset + size > self.size)
        if bad.any():
            raise self._fault(OutOfBoundsFault, n, s, bad, offset, f"{_verb(store)} of {size} bytes")
        odd = offset & ((align or size) - 1)
        if odd.any():
            raise self._fault(
                MisalignedFault, n, s, odd != 0, offset, f"{_verb(store)} of {size} bytes at an odd address"
            )
        self.reach(n, s, cta, offset)
        return np.asarray(offset + cta * self.pitch)

    def reach(self, n: int, s: Selection, cta: Array, offset: Array) -> None:
        """RaceFault where lanes touch the memory of a CTA that is not known to have begun, or that has ended (PTX ISA, State
        Spaces: Shared)."""
        wave, lanes = self._wave, self._wave.lanes
        if not self.checks or lanes.cluster == 1 or (away := cta != lanes.cta[s]).sum() == 0:
            return
        seen = wave.clocks.of[lanes.team[s], lanes.member[s], : lanes.members]
        begun = np.any(seen.reshape(-1, lanes.cluster, lanes.warps) > 0, axis=2)
        if (bad := away & ~begun[np.arange(len(cta)), cta % lanes.cluster]).any():
            raise self._race(n, s, bad, offset, "an access to a CTA that may not have begun")
        if (bad := away & ~np.any(wave.alive.reshape(lanes.ctas, -1), axis=1)[cta]).any():
            raise self._race(n, s, bad, offset, "an access to a CTA that has ended")

    def let_go(self, n: int, s: Selection) -> None:
        """The last threads of CTAs end: what others of the cluster did in their memory must be over."""
        lanes, clocks = self._wave.lanes, self._wave.clocks
        if not self.checks or lanes.cluster == 1:
            return
        numbers = lanes.numbers(s)
        for cta, first in zip(*np.unique(lanes.cta[numbers], return_index=True)):
            team, rank = divmod(int(cta), lanes.cluster)
            own = slice(rank * lanes.warps, (rank + 1) * lanes.warps)
            mine = slice(cta * self.pitch // self.grain, (cta + 1) * self.pitch // self.grain)
            seen = clocks.of[team, own, : lanes.members].max(0)
            late = self.read[mine] > seen
            if self.exchanged is not None:
                late |= self.exchanged[mine] > seen
            writer = np.clip(self.writer[mine], 0, lanes.members - 1)
            stored = (self.writer[mine] == writer) & (self.written[mine] > seen[writer])
            late[np.arange(len(writer)), writer] |= stored
            late[:, own] = False
            if (bad := late.any(1)).any():
                what = "a CTA ends before others of its cluster are known to be done with its memory"
                byte = int(np.flatnonzero(bad)[0]) * self.grain
                raise self._wave.fault(
                    RaceFault, what, n, numbers[first : first + 1], 0, space="shared", byte=byte, extent=self.size
                )

    def _fault(
        self, kind: type[KernelFault], n: int, s: Selection, bad: Array, offset: Array, what: str
    ) -> KernelFault:
        j = int(np.flatnonzero(bad)[0])
        return self._wave.fault(kind, what, n, s, j, space="shared", byte=int(offset[j]), extent=self.size)

    # ---- accesses of the generic proxy ------------------------------------------------------------------------------

    def load(self, n: int, s: Selection, addresses: Any, dtype: str, rows: Sequence[Array | None]) -> None:
        size = int(dtype[1])
        at = self.places(n, s, addresses, size * len(rows), store=False)
        self._wave.counters.count_shared(self._wave.lanes.numbers(s), at, size * len(rows), store=False)
        known = self.note_read(n, s, at, size * len(rows))
        if not known and n in self._wave.variation:
            fill(rows, s, self.peek(n, at[:, None] + np.arange(size * len(rows))), dtype)
            return
        index, view = at >> (size.bit_length() - 1), self.views[dtype]
        for j, row in enumerate(rows):
            if row is not None:
                row[s] = view[index + j if j else index]

    def store(self, n: int, s: Selection, addresses: Any, dtype: str, values: Sequence[Any]) -> None:
        size = int(dtype[1])
        at = self.places(n, s, addresses, size * len(values), store=True)
        self._wave.counters.count_shared(self._wave.lanes.numbers(s), at, size * len(values), store=True)
        index, view = at >> (size.bit_length() - 1), self.views[dtype]

        def there() -> Array:
            return np.asarray(np.logical_and.reduce([view[index + j] == value for j, value in enumerate(values)]))

        self.note_write(n, s, at, size * len(values), there)
        for j, value in enumerate(values):
            view[index + j if j else index] = value
        if self.checks:
            for j, value in enumerate(values):
                if (lost := view[index + j] != value).any():
                    raise self._race(n, s, lost, at, "stores of different values to one place at once")

    def peek(self, n: int, at: Array) -> Array:
        """Bytes as instruction `n` sees them: what nothing wrote may be anything, and is something else in a second run."""
        data = self.bytes[at]
        if n in self._wave.variation:
            data = np.where(self.state[at] == NOTHING, self._wave.variation.other(data, at), data)
        return data

    # ---- the shadow -------------------------------------------------------------------------------------------------

    def grains(self, at: Array, size: int) -> Array:
        """The grains of accesses, a column each."""
        count = max(1, size // self.grain)
        first = at // self.grain
        return first[:, None] + np.arange(count) if count > 1 else first[:, None]

    def note_read(self, n: int, s: Selection, at: Array, size: int) -> bool:
        """Raises RaceFault for what is on its way or not ordered; says whether all of it was written."""
        if not self.checks:
            return True
        state = self._states(at, size)
        known = state.all()
        self._refuse_taken(n, s, at, state, "load")
        if not known:
            self._suspect(n, s, at, state)
        lanes, wave = self._wave.lanes, self._wave
        team, member, grains = lanes.team[s], lanes.member[s], self.grains(at, size)
        bad = self._unordered_writes(team, member, grains)
        if bad.any():
            raise self._race(n, s, np.any(bad, axis=1), at, "load that nothing orders with another warp's store")
        stamp, lane = wave.clocks.stamp(team, member)[:, None], lanes.lane[s][:, None]
        if (bad := self._stored_beside(member, grains, stamp, lane)).any():
            raise self._race(n, s, np.any(bad, axis=1), at, "load that nothing orders with another thread's store")
        places = grains, np.broadcast_to(member[:, None], grains.shape)
        again = (self.read[places] == stamp) & (self.read_by[places] != lane)
        self.read[places], self.read_by[places] = stamp, np.where(again, SEVERAL, lane)
        if (shared := self.read_by[places] != lane).any():
            self.read_by[places[0][shared], places[1][shared]] = SEVERAL
        return bool(known)

    def _stored_beside(self, member: Array, grains: Array, stamp: Array, lane: Array) -> Array:
        """Where another lane of the same warp stored, and they have not met since."""
        by = self.by[grains]
        mine = (self.writer[grains] == member[:, None]) & (self.written[grains] == stamp)
        return np.asarray(mine & (by != lane) & (by != NOBODY))

    def _read_beside(self, member: Array, grains: Array, stamp: Array, lane: Array) -> Array:
        """Where another lane of the same warp loaded, and they have not met since."""
        by = self.read_by[grains, member[:, None]]
        return np.asarray((self.read[grains, member[:, None]] == stamp) & (by != lane) & (by != NOBODY))

    def _unordered_stores(self, team: Array, member: Array, grains: Array) -> Array:
        writer = self.writer[grains]
        if writer.size and (writer == member[:, None]).all():
            return np.zeros(writer.shape, bool)
        seen = self._wave.clocks.of[team[:, None], member[:, None], np.maximum(writer, 0)]
        return np.asarray((writer >= 0) & (writer != member[:, None]) & (self.written[grains] > seen))

    def _unordered_in(self, plane: Array, team: Array, member: Array, grains: Array) -> Array:
        """Where another warp's stamp in a plane of one a warp is not known to be over."""
        late = plane[grains] > self._wave.clocks.of[team, member, : self._wave.lanes.members][:, None, :]
        late[np.arange(len(grains)), :, member] = False
        return np.asarray(late.any(2))

    def _unordered_writes(self, team: Array, member: Array, grains: Array) -> Array:
        bad = self._unordered_stores(team, member, grains)
        return bad if self.exchanged is None else bad | self._unordered_in(self.exchanged, team, member, grains)

    def note_exchange(self, n: int, s: Selection, at: Array, size: int) -> None:
        """Atomic operations are ordered among themselves, and as loads and stores with all others."""
        if not self.checks:
            return
        state, wave = self._states(at, size), self._wave
        self._refuse_taken(n, s, at, state, "exchange")
        team, member, grains = wave.lanes.team[s], wave.lanes.member[s], self.grains(at, size)
        lane = member, grains, wave.clocks.stamp(team, member)[:, None], wave.lanes.lane[s][:, None]
        for bad, other in (
            (self._unordered_stores(team, member, grains), "warp's store"),
            (self._unordered_in(self.read, team, member, grains), "warp's load"),
            (self._stored_beside(*lane), "thread's store"),
            (self._read_beside(*lane), "thread's load"),
        ):
            if bad.any():
                text = f"exchange that nothing orders with another {other}"
                raise self._race(n, s, np.any(bad, axis=1), at, text)
        if self.exchanged is None:
            self.exchanged = np.zeros_like(self.read)
        self.exchanged[grains, member[:, None]] = wave.clocks.stamp(team, member)[:, None]
        if not state.all():
            self._suspect(n, s, at, state)
            places = at[:, None] + np.arange(size)
            self.bytes[places] = self.peek(n, places)
        self._set_state(at, size, WRITTEN)

    def note_write(
        self, n: int, s: Selection, at: Array, size: int, there: Callable[[], Array] | None = None, *, plainly: bool = True
    ) -> None:  # fmt: skip
        """Raises RaceFault where another warp's access is not known to be over. A store of what `there` says that another has
        stored already disturbs nobody."""
        if not self.checks:
            return
        lanes, clocks = self._wave.lanes, self._wave.clocks
        team, member, grains = lanes.team[s], lanes.member[s], self.grains(at, size)
        self._refuse_taken(n, s, at, self._states(at, size), "store")
        stamp, lane = clocks.stamp(team, member)[:, None], lanes.lane[s][:, None]
        for of, other in (
            (self._unordered_writes(team, member, grains), "warp's"),
            (self._stored_beside(member, grains, stamp, lane), "thread's"),
        ):
            bad = np.any(of, axis=1)
            if bad.any() and (there is None or (bad := bad & ~there()).any()):
                raise self._race(n, s, bad, at, f"store that nothing orders with another {other} store")
        for of, other in (
            (self._unordered_in(self.read, team, member, grains), "warp's"),
            (self._read_beside(member, grains, stamp, lane), "thread's"),
        ):
            if of.any():
                raise self._race(n, s, np.any(of, axis=1), at, f"store that nothing orders with another {other} load")
        self.writer[grains], self.by[grains] = member[:, None], lane
        self.written[grains], self.plainly[grains] = stamp, plainly
        self._set_state(at, size, WRITTEN)

    def _suspect(self, n: int, s: Selection, at: Array, state: Array) -> None:
        bad = np.any(state == NOTHING, axis=1)
        self._wave.suspect(n, s, bad, at % self.pitch, "nothing had written", space="shared", extent=self.size)

    def _states(self, at: Array, size: int) -> Array:
        return np.asarray(self.state[at[:, None] if size == 1 else at[:, None] + np.arange(size)])

    def _refuse_taken(self, n: int, s: Selection, at: Array, state: Array, verb: str) -> None:
        """RaceFault or BarrierFault for an access to what belongs to a copy or to an mbarrier."""
        if (coming := state == COMING).any():
            raise self._race(n, s, np.any(coming, axis=1), at, f"{verb} of what a copy has yet to bring")
        if (held := state == HELD).any():
            bad = np.any(held, axis=1)
            raise self._fault(BarrierFault, n, s, bad, at % self.pitch, f"{verb} of an mbarrier's bytes")

    def take(self, n: int, lanes: Array, cta: int, offset: int, *, back: bool = False) -> None:
        """Eight bytes become an mbarrier, or memory again."""
        if not self.checks:
            return
        at = np.array([offset + cta * self.pitch])
        if (self._states(at, BARRIER) == HELD).all():
            self._set_state(at, BARRIER, WRITTEN)
        self.note_write(n, lanes[:1], at, BARRIER, plainly=False)
        if not back:
            self._set_state(at, BARRIER, HELD)

    def note_use(self, n: int, lanes: Array, cta: int, offset: int, *, stamped: bool) -> None:
        """RaceFault where threads use an mbarrier whose initialisation is not known to be over. What a copy does with it is not
        `stamped`: it is over when its bytes have come."""
        if not self.checks:
            return
        at = np.full(len(lanes), offset + cta * self.pitch)
        team, member, grains = self._wave.lanes.team[lanes], self._wave.lanes.member[lanes], self.grains(at, BARRIER)
        if (bad := self._unordered_writes(team, member, grains)).any():
            what = "an mbarrier whose initialisation nothing orders with this"
            raise self._race(n, lanes, np.any(bad, axis=1), at, what)
        if stamped:
            self.read[grains, member[:, None]] = self._wave.clocks.stamp(team, member)[:, None]
            self.read_by[grains, member[:, None]] = NOBODY

    def _set_state(self, at: Array, size: int, state: int) -> None:
        self.state[at if size == 1 else at[:, None] + np.arange(size)] = state

    def _race(self, n: int, s: Selection, bad: Array, at: Array, what: str) -> KernelFault:
        return self._fault(RaceFault, n, s, bad, at % self.pitch if self.pitch else at, what)

    # ---- what copies and matrix products do -------------------------------------------------------------------------

    def grains_of(self, units: Array) -> Array:
        """The grains of units of 16 bytes."""
        each = UNIT // self.grain
        return (units[:, None] * each + np.arange(each)).ravel()

    def expect(self, n: int, lane: int, at: Array, grains: Array, what: str, *, proxied: bool) -> None:
        """A copy will write these bytes: what others did with them must be over for the thread that starts it, and fenced where
        the copy is the asynchronous proxy's."""
        if self.checks:
            lanes, clocks, who = self._wave.lanes, self._wave.clocks, np.array([lane])
            team, member = int(lanes.team[lane]), int(lanes.member[lane])
            first = grains * self.grain

            def race(bad: Array, text: str, kind: type[KernelFault] = RaceFault) -> KernelFault:
                place = int(first[bad][0]) % self.pitch
                return self._wave.fault(kind, f"{what} {text}", n, who, 0, space="shared", byte=place, extent=self.size)

            if (taken := self.state[first] >= COMING).any():
                raise race(taken, "over what another has yet to bring, or over an mbarrier")
            others = np.arange(lanes.members) != member
            if (bad := ((self.read[grains] > clocks.seen(team, member)[: lanes.members]) & others).any(1)).any():
                raise race(bad, "overwrites what another warp may still read")
            writer = self.writer[grains]
            stored = (writer >= 0) & (writer < lanes.members)
            if (bad := stored & (writer != member) & (self.written[grains] > clocks.seen(team, member)[writer])).any():
                raise race(bad, "overwrites what nothing orders with another warp's store")
            seen = clocks.seen(team, member, proxied=True)[writer]
            if proxied and (bad := stored & self.plainly[grains] & (self.written[grains] > seen)).any():
                raise race(bad, "overwrites what was stored with no fence.proxy.async behind it", ProxyFault)
            self.state[at] = COMING
        self.bytes[at] = STALE

    def land(self, at: Array, grains: Array, data: Array, actor: int, stamp: int) -> None:
        """Bytes of a copy arrive, written by `actor` (a warp of the cluster, or a copy into one of its CTAs)."""
        self.bytes[at] = data
        if self.checks:
            self.state[at] = WRITTEN
            self.writer[grains], self.written[grains], self.plainly[grains] = actor, stamp, False
            self.by[grains] = NOBODY

    def units(self, units: Array) -> Array:
        """The bytes of units, a row each."""
        return np.asarray(self.bytes.reshape(-1, UNIT)[units])

    def note_async_read(self, n: int, lanes_of: Array, units: Array, what: str, *, stamped: bool = True) -> None:
        """The asynchronous proxy reads for the threads `lanes_of`, all of one CTA: written, arrived, ordered and fenced?"""
        if not self.checks or not len(units):
            return
        wave, lanes, lane = self._wave, self._wave.lanes, lanes_of[:1]
        grains = self.grains_of(units)
        first = grains * self.grain

        def fault(bad: Array, text: str, kind: type[KernelFault] = RaceFault) -> KernelFault:
            byte = int(first[bad][0]) % self.pitch
            return wave.fault(kind, f"{what} reads {text}", n, lane, 0, space="shared", byte=byte, extent=self.size)

        state = self.state.reshape(-1, UNIT)[units]
        if (state >= COMING).any():
            raise fault(self.state[first] >= COMING, "what a copy has yet to bring, or an mbarrier")
        if not state.all():
            self._suspect(n, np.repeat(lane, len(units)), units * UNIT, state)
        writer, when = self.writer[grains], self.written[grains]
        plainly = self.plainly[grains] & (writer >= 0) & (writer < lanes.members)
        team = int(lanes.team[lane[0]])
        for member in np.unique(lanes.member[lanes_of]).tolist():
            if (bad := (when > wave.clocks.seen(team, member)[writer]) & (writer >= 0) & (writer != member)).any():
                raise fault(bad, "what nothing orders with another warp's store")
            if stamped:
                self.read[grains, member], self.read_by[grains, member] = wave.clocks.of[team, member, member], NOBODY
            if plainly.any() and (bad := plainly & (when > wave.clocks.seen(team, member, proxied=True)[writer])).any():
                raise fault(bad, "what was stored with no fence.proxy.async behind it", ProxyFault)


def _verb(store: bool) -> str:
    return "store" if store else "load"
