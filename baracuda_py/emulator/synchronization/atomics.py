"""Atomic operations, one lane after the other (PTX ISA, Parallel Synchronization and Communication Instructions: atom, red)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...types.faults import OutOfBoundsFault
from ..threads.lanes import Array, Selection
from ..values.formats import flush
from ..values.registers import DTYPES

if TYPE_CHECKING:
    from ..wave import Wave

__all__ = ["OPERATIONS", "Atomics"]

OPERATIONS = {"add", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec"}


class Atomics:
    """Atomic operations of a warp's lanes. Kernels may not rely on the order of the lanes; random order draws it."""

    def __init__(self, wave: Wave) -> None:
        self._wave = wave

    def apply(
        self, n: int, s: Selection, space: str, name: str, kind: str, addresses: Any, values: tuple[Any, ...]
    ) -> Array:
        """Each lane's old value."""
        wave, lanes = self._wave, self._wave.lanes
        count, dtype = lanes.count_of(s), DTYPES[kind]
        given = [np.broadcast_to(v, (count,)) for v in values]
        old = np.empty(count, dtype)
        parts = wave.generic.windows(s, addresses) if space == "generic" else [(s, None, space, addresses)]
        for part, places, window, address in parts:
            mine = [v if places is None else v[places] for v in given]
            each = np.empty(lanes.count_of(part), dtype)
            if window == "shared":
                self._shared(n, part, name, address, mine, each)
            elif window == "global":
                self._global(n, part, name, address, mine, each)
            else:
                raise wave.fault(OutOfBoundsFault, "an atomic operation on local memory", n, part, 0, space="local")
            old[slice(None) if places is None else places] = each
        return old

    def apply_vector(self, n: int, s: Selection, name: str, kind: str, addresses: Any, values: tuple[Any, ...]) -> None:
        """Adjacent elements of global memory, aligned as one access; each is an operation of its own."""
        size = np.dtype(DTYPES[kind]).itemsize
        list(self._wave.memory.find(self._wave, n, s, addresses, size * len(values), store=True))
        for i, value in enumerate(values):
            self.apply(n, s, "global", name, kind, addresses + i * size, (value,))

    def _shared(self, n: int, s: Selection, name: str, addresses: Any, given: list[Array], old: Array) -> None:
        shared = self._wave.shared
        at = shared.places(n, s, np.asarray(addresses).astype(np.uint32), old.itemsize, store=True)
        shared.shadow.note_exchange(n, s, at, old.itemsize)
        self._each(shared.bytes, at, name, given, old)

    def _global(self, n: int, s: Selection, name: str, addresses: Any, given: list[Array], old: Array) -> None:
        wave = self._wave
        for places, region, offsets in wave.memory.find(wave, n, s, addresses, old.itemsize, store=True):
            mine = slice(None) if places is None else places
            lanes = s if places is None else wave.lanes.numbers(s)[places]
            wave.memory.note_exchange(wave, n, lanes, region, offsets, old.itemsize)
            if wave.checks:
                self._meet(lanes, region.name, offsets, asks=wave.launched.code.instructions[n].opcode[0] == "atom")
            part = np.empty(len(offsets), old.dtype)
            flushed = name == "add" and old.dtype == np.float32  # in global memory, and not in shared
            self._each(region.bytes, offsets, "add.ftz" if flushed else name, [v[mine] for v in given], part)
            old[mine] = part

    def _meet(self, s: Selection, region: str, offsets: Array, *, asks: bool) -> None:
        """Records the release of an atomic operation for other CTAs; one that returns the old value also acquires theirs."""
        wave, lanes = self._wave, self._wave.lanes
        for warp, offset in set(zip(lanes.warp[s].tolist(), offsets.tolist())):
            team, member = divmod(warp, lanes.members)
            fenced = wave.clocks.published(team, member)
            wave.launched.grid_order.meet((region, offset), wave.order.cluster_number(team), fenced, asks=asks)

    def _each(self, memory: Array, places: Array, name: str, values: list[Array], old: Array) -> None:
        """Lanes that access the same address act one after the other, lanes of different addresses at once."""
        view = memory[: len(memory) // old.itemsize * old.itemsize].view(old.dtype)
        index = places // old.itemsize
        order = np.arange(len(index))
        if self._wave.options.order != "lockstep":
            order = self._wave.rng.permutation(order)
        for lanes in _turns(index, order):
            at = index[lanes]
            old[lanes] = before = view[at]
            view[at] = _after(name, before, *(v[lanes] for v in values))


def _turns(index: Array, order: Array) -> list[Array]:
    """The lanes in groups: the first lane of every address, then the second lane of every address, and so on in `order`."""
    by_place = order[np.argsort(index[order], kind="stable")]
    sorted_index = index[by_place]
    first = np.flatnonzero(np.diff(sorted_index, prepend=-1))  # of each place
    if len(first) == len(index):
        return [order]
    turn = np.arange(len(index)) - np.repeat(first, np.diff(first, append=len(index)))
    by_turn = by_place[np.argsort(turn, kind="stable")]
    return np.split(by_turn, np.cumsum(np.bincount(turn))[:-1])


def _after(name: str, old: Array, value: Array, other: Any = None) -> Any:
    match name:
        case "add":
            return old + value
        case "add.ftz":
            return flush(flush(old, "f32") + flush(value, "f32"), "f32")
        case "min":
            return np.minimum(old, value)
        case "max":
            return np.maximum(old, value)
        case "and":
            return old & value
        case "or":
            return old | value
        case "xor":
            return old ^ value
        case "exch":
            return value
        case "cas":
            return np.where(old == value, other, old)
        case "inc":
            return np.where(old < value, old + old.dtype.type(1), old.dtype.type(0))
        case _:  # dec
            return np.where((old == 0) | (old > value), value, old - old.dtype.type(1))
