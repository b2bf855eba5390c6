"""Shared memory of a wave's CTAs, and its shadow: what was written, what is on its way, who wrote and who read each grain last.

PTX ISA, State Spaces: Shared; Memory Consistency Model; Async proxy. An address is an offset into the CTA's own memory; those of
another CTA of the cluster have its rank, plus one, from bit 24 on (``mapa``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..types.faults import KernelFault, MisalignedFault, OutOfBoundsFault, ProxyFault, RaceFault
from .boxes import UNIT
from .lanes import Array, Selection

if TYPE_CHECKING:
    from .machine import Wave

__all__ = ["RANK_SHIFT", "SharedMemory"]

RANK_SHIFT = 24
NOTHING, WRITTEN, COMING = 0, 1, 2  # states of a byte
STALE, UNKNOWN, OTHER = (
    0xA5,
    0xFF,
    0x5A,
)  # bytes that a copy will bring; that nothing wrote; what the latter differ by in a second run


class SharedMemory:
    """`pitch` bytes a CTA, of which `size` are the kernel's."""

    def __init__(self, wave: Wave, size: int, grain: int) -> None:
        lanes = wave.lanes
        self._wave, self.size, self._grain = wave, size, grain
        self.pitch = -(-size // 16) * 16
        total = lanes.ctas * self.pitch
        self.bytes = np.full(total + 16, UNKNOWN, np.uint8)[:total]
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

    # ---- addresses --------------------------------------------------------------------------------------------------

    def locate(self, s: Selection, addresses: Any) -> tuple[Array, Array]:
        """(the CTA of the wave, the offset in its memory) that each address means."""
        lanes = self._wave.lanes
        addresses = lanes.spread(s, addresses)
        rank = (addresses >> np.uint32(RANK_SHIFT)).astype(np.int64)
        cta = lanes.cta[s]
        if rank.any():
            cta = np.where(rank > 0, cta // lanes.cluster * lanes.cluster + rank - 1, cta)
        return cta, (addresses & np.uint32((1 << RANK_SHIFT) - 1)).astype(np.int64)

    def places(self, n: int, s: Selection, addresses: Any, size: int, *, store: bool, align: int = 0) -> Array:
        """Where the accesses lie in `bytes`; OutOfBoundsFault or MisalignedFault where they may not."""
        cta, offset = self.locate(s, addresses)
        bad = offset + size > self.size
        if bad.any():
            raise self._fault(OutOfBoundsFault, n, s, bad, offset, f"{_verb(store)} of {size} bytes")
        odd = offset & ((align or size) - 1)
        if odd.any():
            raise self._fault(
                MisalignedFault, n, s, odd != 0, offset, f"{_verb(store)} of {size} bytes at an odd address"
            )
        return np.asarray(offset + cta * self.pitch)

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
        if not known and n in self._wave.varied:
            data = self.peek(n, at[:, None] + np.arange(size * len(rows)))
            for j, row in enumerate(rows):
                if row is not None:
                    row[s] = np.ascontiguousarray(data[:, j * size : (j + 1) * size]).view(dtype)[:, 0]
            return
        index, view = at >> (size.bit_length() - 1), self.views[dtype]
        for j, row in enumerate(rows):
            if row is not None:
                row[s] = view[index + j if j else index]

    def store(self, n: int, s: Selection, addresses: Any, dtype: str, values: Sequence[Any]) -> None:
        size = int(dtype[1])
        at = self.places(n, s, addresses, size * len(values), store=True)
        self._wave.counters.count_shared(self._wave.lanes.numbers(s), at, size * len(values), store=True)
        self.note_write(n, s, at, size * len(values))
        index, view = at >> (size.bit_length() - 1), self.views[dtype]
        for j, value in enumerate(values):
            view[index + j if j else index] = value
        if self.checks:
            for j, value in enumerate(values):
                if (lost := view[index + j] != value).any():
                    raise self._race(n, s, lost, at, "stores of different values to one place at once")

    def peek(self, n: int, at: Array) -> Array:
        """Bytes as instruction `n` sees them: what nothing wrote may be anything, and is something else in a second run."""
        data = self.bytes[at]
        if n in self._wave.varied:
            data = np.where(self.state[at] == NOTHING, data ^ np.uint8(OTHER), data)
        return data

    # ---- the shadow -------------------------------------------------------------------------------------------------

    def grains(self, at: Array, size: int) -> Array:
        """The grains of accesses, a column each."""
        count = max(1, size // self._grain)
        first = at // self._grain
        return first[:, None] + np.arange(count) if count > 1 else first[:, None]

    def note_read(self, n: int, s: Selection, at: Array, size: int) -> bool:
        """Raises RaceFault for what is on its way or not ordered; says whether all of it was written."""
        if not self.checks:
            return True
        state = self.state[at] if size == 1 else self.state[at[:, None] + np.arange(size)]
        known = state.all()
        if not known:
            self._wave.suspects.add(n)
        if (coming := state == COMING).any():
            where = coming if coming.ndim == 1 else coming.any(1)
            raise self._race(n, s, where, at, "load of what a copy has yet to bring")
        lanes, wave = self._wave.lanes, self._wave
        team, member, grains = lanes.team[s], lanes.member[s], self.grains(at, size)
        bad = self._unordered_writes(team, member, grains)
        if bad.any():
            raise self._race(n, s, np.any(bad, axis=1), at, "load that nothing orders with another warp's store")
        self.read[grains, member[:, None]] = wave.clocks.stamp(team, member)[:, None]
        return bool(known)

    def _unordered_writes(self, team: Array, member: Array, grains: Array) -> Array:
        writer = self.writer[grains]
        if writer.size and (writer == member[:, None]).all():
            return np.zeros(writer.shape, bool)
        seen = self._wave.clocks.of[team[:, None], member[:, None], np.maximum(writer, 0)]
        return np.asarray((writer >= 0) & (writer != member[:, None]) & (self.written[grains] > seen))

    def note_write(self, n: int, s: Selection, at: Array, size: int, *, plainly: bool = True) -> None:
        """Raises RaceFault where another warp's access is not known to be over."""
        if not self.checks:
            return
        lanes, clocks = self._wave.lanes, self._wave.clocks
        team, member, grains = lanes.team[s], lanes.member[s], self.grains(at, size)
        if (coming := self.state[at] == COMING).any():
            raise self._race(n, s, coming, at, "store over what a copy has yet to bring")
        if self._unordered_writes(team, member, grains).any():
            bad = np.any(self._unordered_writes(team, member, grains), axis=1)
            raise self._race(n, s, bad, at, "store that nothing orders with another warp's store")
        reads = self.read[grains] > clocks.of[team, member, : lanes.members][:, None, :]
        reads[np.arange(len(at)), :, member] = False
        if reads.any():
            raise self._race(n, s, np.any(reads, axis=(1, 2)), at, "store that nothing orders with another warp's load")
        self.writer[grains] = member[:, None]
        self.written[grains] = clocks.stamp(team, member)[:, None]
        self.plainly[grains] = plainly
        self._set_state(at, size, WRITTEN)

    def _set_state(self, at: Array, size: int, state: int) -> None:
        self.state[at if size == 1 else at[:, None] + np.arange(size)] = state

    def _race(self, n: int, s: Selection, bad: Array, at: Array, what: str) -> KernelFault:
        return self._fault(RaceFault, n, s, bad, at % self.pitch if self.pitch else at, what)

    # ---- what copies and matrix products do -------------------------------------------------------------------------

    def _grains_of(self, units: Array) -> Array:
        """The grains of units of 16 bytes."""
        each = UNIT // self._grain
        return (units[:, None] * each + np.arange(each)).ravel()

    def expect(self, n: int, lane: int, at: Array, units: Array) -> None:
        """A copy will write these bytes: reads of them must be over for the thread that starts it."""
        if not self.checks:
            self.bytes[at] = STALE
            return
        lanes, grains = self._wave.lanes, self._grains_of(units)
        team, member = int(lanes.team[lane]), int(lanes.member[lane])
        if int(at.flat[0]) // self.pitch // lanes.cluster == team:
            seen = self._wave.clocks.of[team, member]
            bad = (self.read[grains] > seen[: lanes.members]) & (np.arange(lanes.members) != member)
            if bad.any():
                place = int(grains[bad.any(1)][0]) * self._grain
                raise self._wave.fault(
                    RaceFault, "a copy overwrites what another warp may still read", n, np.array([lane]), 0, space="shared",
                    byte=place % self.pitch, extent=self.size,
                )  # fmt: skip
        self.bytes[at] = STALE
        self.state[at] = COMING

    def land(self, at: Array, units: Array, data: Array, actor: int, stamp: int) -> None:
        """Bytes of a copy arrive, written by `actor` (a warp of the cluster, or a copy into one of its CTAs)."""
        self.bytes[at] = data
        if self.checks:
            grains = self._grains_of(units)
            self.state[at] = WRITTEN
            self.writer[grains], self.written[grains], self.plainly[grains] = actor, stamp, False

    def units(self, units: Array) -> Array:
        """The bytes of units, a row each."""
        return np.asarray(self.bytes.reshape(-1, UNIT)[units])

    def note_async_read(self, n: int, lanes_of: Array, units: Array, what: str, *, stamped: bool = True) -> None:
        """The asynchronous proxy reads for the threads `lanes_of`, all of one CTA: written, arrived, ordered and fenced?"""
        if not self.checks or not len(units):
            return
        wave, lanes = self._wave, self._wave.lanes
        state = self.state.reshape(-1, UNIT)[units]
        lane = lanes_of[:1]
        place: dict[str, Any] = {"space": "shared", "extent": self.size}
        if (coming := state == COMING).any():
            byte = int(units[coming.any(1)][0]) * UNIT % self.pitch
            raise wave.fault(RaceFault, f"{what} reads what a copy has yet to bring", n, lane, 0, byte=byte, **place)
        if not state.all():
            wave.suspects.add(n)
        grains = self._grains_of(units)
        writer, when, plainly = self.writer[grains].astype(np.int64), self.written[grains], self.plainly[grains]
        team = int(lanes.team[lane[0]])
        for member in np.unique(lanes.member[lanes_of]):
            seen = wave.clocks.of[team, member][np.maximum(writer, 0)]
            bad = (when > seen) & (writer >= 0) & (writer != member)
            if bad.any():
                byte = int(grains[bad][0]) * self._grain % self.pitch
                text = f"{what} reads what nothing orders with another warp's store"
                raise wave.fault(RaceFault, text, n, lane, 0, byte=byte, **place)
            if stamped:
                self.read[grains, member] = wave.clocks.of[team, member, member]
        if not plainly.any():
            return
        mine = plainly & (writer >= 0) & (writer < lanes.members)
        bad = mine & (when > wave.clocks.fenced[team, np.minimum(np.maximum(writer, 0), lanes.members - 1)])
        if bad.any():
            byte = int(grains[bad][0]) * self._grain % self.pitch
            text = f"{what} reads what was stored with no fence.proxy.async behind it"
            raise wave.fault(ProxyFault, text, n, lane, 0, byte=byte, **place)


def _verb(store: bool) -> str:
    return "store" if store else "load"
