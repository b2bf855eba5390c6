"""Shared memory of a wave's CTAs (PTX ISA, State Spaces: Shared).

An address is an offset into the CTA's own memory. An address in another CTA of the cluster has that CTA's rank, plus one, from
bit 24 on (``mapa``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...types.faults import KernelFault, MisalignedFault, OutOfBoundsFault, RaceFault
from ..threads.lanes import Array, Selection
from ..unknown import FRESH
from .boxes import UNIT
from .global_memory import fill
from .shadow import NOTHING, Shadow

if TYPE_CHECKING:
    from ..wave import Wave

__all__ = ["RANK_SHIFT", "SharedMemory"]

RANK_SHIFT = 24
STALE = 0xA5  # the value of bytes until a pending copy arrives


class SharedMemory:
    """`pitch` bytes per CTA, of which the kernel has `size`."""

    def __init__(self, wave: Wave, size: int, grain: int) -> None:
        lanes = wave.lanes
        self._wave, self.size = wave, size
        self.pitch = -(-size // 16) * 16
        total = lanes.ctas * self.pitch
        self.bytes = np.full(total + 16, FRESH, np.uint8)[:total]
        self.views = {f"{kind}{n}": self.bytes.view(f"{kind}{n}") for kind in "ui" for n in (1, 2, 4, 8)}
        self.shadow = Shadow(wave, self, total, grain)

    # ---- addresses --------------------------------------------------------------------------------------------------

    def locate(self, s: Selection, addresses: Any) -> tuple[Array, Array]:
        """(the CTA of the wave, the offset in its memory) of each address."""
        lanes = self._wave.lanes
        addresses = lanes.spread(s, addresses).view(np.int32).astype(np.int64)
        rank, cta = addresses >> RANK_SHIFT, lanes.cta[s]
        if not rank.any():
            return cta, addresses
        other = (rank > 0) & (rank <= lanes.cluster)  # another rank is no CTA's: the offset stays out of bounds
        cta = np.where(other, cta // lanes.cluster * lanes.cluster + rank - 1, cta)
        return cta, np.where(other, addresses & (1 << RANK_SHIFT) - 1, addresses)

    def places(self, n: int, s: Selection, addresses: Any, size: int, *, store: bool, align: int = 0) -> Array:
        """The positions of accesses in `bytes`; OutOfBoundsFault or MisalignedFault for an invalid address."""
        cta, offset = self.locate(s, addresses)
        bad = (offset < 0) | (offset + size > self.size)
        if bad.any():
            raise self.fault(OutOfBoundsFault, n, s, bad, offset, f"{_verb(store)} of {size} bytes")
        odd = offset & ((align or size) - 1)
        if odd.any():
            raise self.fault(
                MisalignedFault, n, s, odd != 0, offset, f"{_verb(store)} of {size} bytes at an odd address"
            )
        self.reach(n, s, cta, offset)
        return np.asarray(offset + cta * self.pitch)

    def reach(self, n: int, s: Selection, cta: Array, offset: Array) -> None:
        """RaceFault where lanes touch the memory of a CTA that is not known to have begun, or that has ended (PTX ISA, State
        Spaces: Shared)."""
        wave, lanes = self._wave, self._wave.lanes
        if not self.shadow.on or lanes.cluster == 1 or (away := cta != lanes.cta[s]).sum() == 0:
            return
        seen = wave.clocks.of[lanes.team[s], lanes.member[s], : lanes.members]
        begun = np.any(seen.reshape(-1, lanes.cluster, lanes.warps) > 0, axis=2)
        if (bad := away & ~begun[np.arange(len(cta)), cta % lanes.cluster]).any():
            raise self.fault(RaceFault, n, s, bad, offset, "an access to a CTA that may not have begun")
        if (bad := away & ~np.any(wave.alive.reshape(lanes.ctas, -1), axis=1)[cta]).any():
            raise self.fault(RaceFault, n, s, bad, offset, "an access to a CTA that has ended")

    def fault(self, kind: type[KernelFault], n: int, s: Selection, bad: Array, offset: Array, what: str) -> KernelFault:
        j = int(np.flatnonzero(bad)[0])
        return self._wave.fault(kind, what, n, s, j, space="shared", byte=int(offset[j]), extent=self.size)

    # ---- accesses of the generic proxy ------------------------------------------------------------------------------

    def load(self, n: int, s: Selection, addresses: Any, dtype: str, rows: Sequence[Array | None]) -> None:
        size = int(dtype[1])
        at = self.places(n, s, addresses, size * len(rows), store=False)
        self._wave.counters.count_shared(self._wave.lanes.numbers(s), at, size * len(rows), store=False)
        known = self.shadow.note_read(n, s, at, size * len(rows))
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

        self.shadow.note_write(n, s, at, size * len(values), there)
        for j, value in enumerate(values):
            view[index + j if j else index] = value
        if self.shadow.on:
            for j, value in enumerate(values):
                if (lost := view[index + j] != value).any():
                    raise self.fault(
                        RaceFault, n, s, lost, at % self.pitch, "stores of different values to one place at once"
                    )

    def peek(self, n: int, at: Array) -> Array:
        """Bytes as instruction `n` sees them: unwritten bytes have any value, and another one in a second run."""
        data = self.bytes[at]
        if n in self._wave.variation:
            data = np.where(self.shadow.state[at] == NOTHING, self._wave.variation.other(data, at), data)
        return data

    # ---- copies and matrix products ---------------------------------------------------------------------------------

    def expect(self, n: int, lane: int, at: Array, grains: Array, what: str, *, proxied: bool) -> None:
        """A copy will write these bytes."""
        self.shadow.expect(n, lane, at, grains, what, proxied=proxied)
        self.bytes[at] = STALE

    def land(self, at: Array, grains: Array, data: Array, actor: int, stamp: int) -> None:
        """Bytes of a copy arrive."""
        self.bytes[at] = data
        self.shadow.land(at, grains, actor, stamp)

    def units(self, units: Array) -> Array:
        """The bytes of units, one row each."""
        return np.asarray(self.bytes.reshape(-1, UNIT)[units])


def _verb(store: bool) -> str:
    return "store" if store else "load"
