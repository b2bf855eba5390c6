"""Global memory: the bytes that a kernel may access, and the last thread that accessed each.

An access is checked against the elements of the operand that contains its address: an access to a gap of a strided view or to
bytes outside an operand, a store to a read-only operand, and a misaligned address are faults (PTX ISA, State Spaces: Global;
Addresses as Operands).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...types import UnsupportedError
from ...types.faults import KernelFault, MisalignedFault, OutOfBoundsFault, RaceFault, ReadOnlyFault
from ..threads.lanes import Array, Selection
from ..unknown import Variation
from .touched import Touched

if TYPE_CHECKING:
    from ..wave import Wave

__all__ = ["EARLY", "GlobalMemory", "Region", "fill"]

_ALIGN = 256  # so that a typed view of a region is aligned as its addresses are
_SIZES = (1, 2, 4, 8)
EARLY = "{} before griddepcontrol.wait, while the launch ahead may still run"
BESIDE = 1 << 31  # bytes before and after a region within which an access is attributed to the region that it misses


class Region:
    """An interval of addresses with a copy of its bytes, which were read from `home` on the host.

    `elements` marks the bytes that belong to an element and `stored` the bytes that a kernel may write, None meaning all;
    `known` marks the bytes that have been written, None meaning all.
    """

    def __init__(
        self, name: str, address: int, data: Array, *, elements: Array | None = None, stored: Array | None = None,
        writable: bool = True, known: bool = True, home: int = 0,
    ) -> None:  # fmt: skip
        self.name, self.home = name, home
        self.writable = writable and (stored is None or bool(stored.any()))
        self.head = address % _ALIGN
        self.low = address - self.head
        self.nbytes = self.head + len(data)
        raw = np.zeros(self.nbytes + 2 * _ALIGN, np.uint8)
        at = -raw.ctypes.data % _ALIGN
        self.bytes = raw[at : at + -(-self.nbytes // 16) * 16]
        self.bytes[self.head : self.nbytes] = data
        self.views = {f"{kind}{size}": self.bytes.view(f"{kind}{size}") for kind in "ui" for size in _SIZES}
        self._elements = None if elements is None or elements.all() else _Marks(elements)
        self._stored = None if stored is None or not self.writable or stored.all() else _Marks(stored)
        self.gapped, self.keeps = self._elements is not None, self._stored is not None or not self.writable
        self.known: Array | None = None if known else np.zeros(len(self.bytes), bool)
        self.shadow: Touched | None = None

    @property
    def address(self) -> int:
        return self.low + self.head

    @property
    def extent(self) -> int:
        return self.nbytes - self.head

    @property
    def own(self) -> bool:
        """Whether it holds the kernel's parameters or a constant, and no operand."""
        return self.name.startswith(".")

    @property
    def variable(self) -> bool:
        """Whether it is a variable of the kernel's module."""
        return self.own and self.name != ".parameters"

    @property
    def data(self) -> Array:
        return self.bytes[self.head : self.nbytes]

    @property
    def stored(self) -> Any:
        """The bytes that a kernel may write, as an index of `data`."""
        return slice(0 if self.writable else self.extent, None) if self._stored is None else self._stored.marks

    def beside(self, offsets: Array, size: int) -> Array:
        """Which of the accesses reach beyond the interval."""
        return np.asarray((offsets < self.head) | (offsets + size > self.nbytes))

    def outside(self, offsets: Array, size: int) -> Array:
        """Which of the accesses at these offsets touch a byte that belongs to no element."""
        bad = self.beside(offsets, size)
        return bad if self._elements is None else bad | self._elements.lack(np.where(bad, 0, offsets - self.head), size)

    def kept(self, offsets: Array, size: int) -> Array:
        """Which of the accesses, all inside, touch a byte that is read-only."""
        if self._stored is None:
            return np.full(offsets.shape, not self.writable)
        return self._stored.lack(offsets - self.head, size)

    def doubtful(self, offsets: Array, size: int) -> Array:
        """Which of the accesses, all inside, touch a byte that is unwritten or in a gap: its value must not matter."""
        bad = np.zeros(offsets.shape, bool)
        if self._elements is not None:
            bad |= self._elements.lack(offsets - self.head, size)
        if self.known is not None:
            bad |= ~self.known[offsets[:, None] + np.arange(size)].all(1)
        return bad

    def peek(self, variation: Variation, n: int, offsets: Array, size: int) -> Array:
        """The bytes of accesses, one row each, as instruction `n` sees them."""
        places = offsets[:, None] + np.arange(size)
        data = self.bytes[places]
        if n in variation and self.known is not None:
            data = np.where(self.known[places], data, variation.other(data, places))
        if n in variation and self._elements is not None:
            data = np.where(self._elements.marks[places - self.head], data, variation.other(data, places))
        return np.asarray(data)


def fill(rows: Sequence[Array | None], lanes: Selection, data: Array, dtype: str) -> None:
    """Rows of registers from the bytes that each lane loads."""
    size = int(dtype[1])
    for j, row in enumerate(rows):
        if row is not None:
            row[lanes] = np.ascontiguousarray(data[:, j * size : (j + 1) * size]).view(dtype)[:, 0]


class _Marks:
    """A set of a region's bytes."""

    def __init__(self, marks: Array) -> None:
        self.marks = marks
        self._before = np.zeros(
            len(marks) + 1, np.int32 if len(marks) < 1 << 31 else np.int64
        )  # marks before each byte
        np.cumsum(marks, out=self._before[1:])

    def lack(self, at: Array, size: int) -> Array:
        """Which of the accesses touch a byte that is not marked."""
        return np.asarray(self._before[np.minimum(at + size, len(self.marks))] - self._before[at] != size)


class GlobalMemory:
    """The regions of one launch. `grain` is the least number of bytes that the kernel writes at once."""

    def __init__(self, regions: Sequence[Region], *, grain: int = 0) -> None:
        self.regions = sorted(regions, key=lambda r: r.address)
        self._starts = np.array([max(r.address - BESIDE, 0) for r in self.regions], np.uint64)
        for region in self.regions if grain else ():
            region.shadow = Touched(len(region.bytes), grain) if region.writable else None

    def find(
        self, wave: Wave, n: int, s: Selection, addresses: Any, size: int, *, store: bool, align: int = 0
    ) -> Iterator[tuple[Any, Region, Array]]:
        """(positions in the selection or None for all, region, offsets) for each region that contains some of the addresses. The
        addresses must be multiples of `align`, or of `size` if `align` is 0."""
        wave.overflows.check(n, s)
        addresses = wave.lanes.spread(s, addresses)
        if not len(addresses):
            return
        number = self._region_of(int(addresses[0]))
        if number >= 0:
            region = self.regions[number]
            low, high = int(addresses.min()), int(addresses.max())
            if region.address <= low and high + size <= region.low + region.nbytes:
                offsets = (addresses - np.uint64(region.low)).astype(np.int64)
                self._check(wave, n, s, None, region, offsets, size, store, align or size)
                yield None, region, offsets
                return
        numbers = np.searchsorted(self._starts, addresses, side="right") - 1
        for number in np.unique(numbers):
            places = np.flatnonzero(numbers == number)
            if number < 0:
                self._nowhere(wave, n, s, int(places[0]), int(addresses[places[0]]), size, store)
            region = self.regions[number]
            if (far := addresses[places] > np.uint64(region.low + region.nbytes + BESIDE)).any():
                place = int(places[far][0])
                self._nowhere(wave, n, s, place, int(addresses[place]), size, store)
            offsets = (addresses[places] - np.uint64(region.low)).astype(np.int64)
            self._check(wave, n, s, places, region, offsets, size, store, align or size)
            yield places, region, offsets

    def _region_of(self, address: int) -> int:
        return int(np.searchsorted(self._starts, np.uint64(address), side="right")) - 1

    def _nowhere(self, wave: Wave, n: int, s: Selection, place: int, address: int, size: int, store: bool) -> None:
        raise wave.fault(
            OutOfBoundsFault, f"{'store' if store else 'load'} of {size} bytes at {address:#x}, where nothing is", n, s, place,
            space="global",
        )  # fmt: skip

    def _check(
        self,
        wave: Wave,
        n: int,
        s: Selection,
        places: Any,
        region: Region,
        offsets: Array,
        size: int,
        store: bool,
        align: int,
    ) -> None:
        verb = "store" if store else "load"

        def fault(kind: type[KernelFault], bad: Array, what: str) -> KernelFault:
            at = int(np.flatnonzero(bad)[0])
            lane = at if places is None else int(places[at])
            byte = int(offsets[at]) - region.head
            many = f" ({int(bad.sum())} threads)" if bad.sum() > 1 else ""
            return wave.fault(
                kind, f"{what}{many}", n, s, lane, operand=region.name, space="global", byte=byte,
                extent=region.extent,
            )  # fmt: skip

        if places is not None or region.gapped:
            bad = region.outside(offsets, size) if store else region.beside(offsets, size)
            if bad.any():
                raise fault(OutOfBoundsFault, bad, f"{verb} of {size} bytes that are no element's")
        if align > 1 and (offsets & (align - 1)).any():
            raise fault(MisalignedFault, offsets & (align - 1) != 0, f"{verb} of {size} bytes at an odd address")
        if store and region.variable:
            what = f"{wave.launched.kernel} stores to {region.name[1:]}, which would have to outlast the launch"
            raise UnsupportedError(f"the emulator has no variables of modules that change: {what}")
        if store and region.keeps and (bad := region.kept(offsets, size)).any():
            raise fault(ReadOnlyFault, bad, f"store of {size} bytes into a read-only operand")
        if not region.own and wave.order.early(s):
            raise fault(RaceFault, offsets >= 0, EARLY.format(verb))

    # ---- accesses ---------------------------------------------------------------------------------------------------

    def load(self, wave: Wave, n: int, s: Selection, addresses: Any, dtype: str, rows: Sequence[Array | None]) -> None:
        size = int(dtype[1])
        for places, region, offsets in self.find(wave, n, s, addresses, size * len(rows), store=False):
            lanes = s if places is None else wave.lanes.numbers(s)[places]
            self.note_read(wave, n, lanes, region, offsets, size * len(rows))
            if n in wave.variation:
                fill(rows, lanes, region.peek(wave.variation, n, offsets, size * len(rows)), dtype)
                continue
            index, view = offsets >> (size.bit_length() - 1), region.views[dtype]
            for j, row in enumerate(rows):
                if row is not None:
                    row[lanes] = view[index + j if j else index]
            wave.counters.count_global(lanes, region, offsets, size * len(rows), store=False)

    def store(self, wave: Wave, n: int, s: Selection, addresses: Any, dtype: str, values: Sequence[Any]) -> None:
        size = int(dtype[1])
        for places, region, offsets in self.find(wave, n, s, addresses, size * len(values), store=True):
            lanes = s if places is None else wave.lanes.numbers(s)[places]
            index, view = offsets >> (size.bit_length() - 1), region.views[dtype]
            mine = [value if places is None or np.ndim(value) == 0 else value[places] for value in values]

            def there(index: Array = index, view: Array = view, mine: list[Any] = mine) -> Array:
                return np.asarray(np.logical_and.reduce([view[index + j] == value for j, value in enumerate(mine)]))

            self.note_write(wave, n, lanes, region, offsets, size * len(values), there)
            for j, value in enumerate(mine):
                view[index + j if j else index] = value
            if wave.checks and not (stays := there()).all():
                raise self._race(
                    wave, n, lanes, region, offsets, ~stays, "stores of different values to one place at once"
                )
            wave.counters.count_global(lanes, region, offsets, size * len(values), store=True)

    def read_bytes(self, wave: Wave, n: int, s: Selection, addresses: Array, size: int, align: int = 0) -> Array:
        """`size` bytes from each address, a multiple of `align`."""
        data = np.zeros((len(addresses), size), np.uint8)
        for places, region, offsets in self.find(wave, n, s, addresses, size, store=False, align=align):
            lanes = s if places is None else wave.lanes.numbers(s)[places]
            self.note_read(wave, n, lanes, region, offsets, size)
            data[slice(None) if places is None else places] = region.peek(wave.variation, n, offsets, size)
            wave.counters.count_global(lanes, region, offsets, size, store=False)
        return data

    # ---- ordering of accesses ---------------------------------------------------------------------------------------

    def note_read(self, wave: Wave, n: int, lanes: Selection, region: Region, offsets: Array, size: int) -> None:
        if (region.gapped or region.known is not None) and (bad := region.doubtful(offsets, size)).any():
            self._suspect(wave, n, lanes, region, bad, offsets)
        self._note(wave, n, lanes, region, offsets, size, "load")

    @staticmethod
    def _suspect(wave: Wave, n: int, lanes: Selection, region: Region, bad: Array, offsets: Array) -> None:
        what = "is no element's" if region.known is None else "nothing had written"
        place: dict[str, Any] = {"operand": region.name, "space": "global", "extent": region.extent}
        wave.suspect(n, lanes, bad, offsets - region.head, what, **place)

    def note_write(
        self, wave: Wave, n: int, lanes: Selection, region: Region, offsets: Array, size: int, there: Callable[[], Array]
    ) -> None:  # fmt: skip
        """A store does not conflict where `there` says that memory holds the same value already."""
        if region.known is not None:
            region.known[offsets[:, None] + np.arange(size)] = True
        self._note(wave, n, lanes, region, offsets, size, "store", there)

    def note_exchange(self, wave: Wave, n: int, lanes: Selection, region: Region, offsets: Array, size: int) -> None:
        """Notes an atomic operation. In a second run, unwritten bytes are changed before the operation reads them."""
        if region.known is not None and (bad := region.doubtful(offsets, size)).any():
            self._suspect(wave, n, lanes, region, bad, offsets)
            region.bytes[offsets[:, None] + np.arange(size)] = region.peek(wave.variation, n, offsets, size)
            region.known[offsets[:, None] + np.arange(size)] = True
        self._note(wave, n, lanes, region, offsets, size, "exchange")

    def _note(
        self, wave: Wave, n: int, lanes: Selection, region: Region, offsets: Array, size: int, verb: str,
        there: Callable[[], Array] | None = None,
    ) -> None:  # fmt: skip
        """Raises RaceFault where another CTA, or an unordered warp, of this launch accessed the same bytes."""
        if region.shadow is None or not wave.checks:
            return
        if (found := region.shadow.note(wave, lanes, offsets, size, verb, there)) is not None:
            what = f"{verb} that nothing orders with another's {found[1]} in this launch"
            raise self._race(wave, n, lanes, region, offsets, found[0], what)

    @staticmethod
    def _race(
        wave: Wave, n: int, lanes: Selection, region: Region, offsets: Array, bad: Array, what: str
    ) -> KernelFault:
        j = int(np.flatnonzero(bad)[0])
        return wave.fault(
            RaceFault, what, n, lanes, j, operand=region.name, space="global", byte=int(offsets[j]) - region.head,
            extent=region.extent,
        )  # fmt: skip
