"""Asynchronous copies: cp.async, tensor copies (TMA) both ways, st.async, each as late or as early as it may be.

PTX ISA, Asynchronous copy: cp.async; cp.async.bulk.tensor; st.async; Tensors: Tiled mode, Swizzling modes. Until it has arrived
the destination of a copy holds other bytes, and a read of it is a fault.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..runtime.steps import TensorMap
from ..types.faults import MisalignedFault, OutOfBoundsFault
from .lanes import Array, Selection
from .maps import map_at

if TYPE_CHECKING:
    from .machine import Wave

__all__ = ["Copies"]

ITEMSIZE = {"uint8": 1, "float16": 2, "bfloat16": 2, "tfloat32": 4, "float32": 4, "float64": 8}
SWIZZLED = {0: 0, 32: 1, 64: 3, 128: 7}  # the bits of an address from 7 on that are added to those from 4 on
TENSOR_ALIGN = 128


@dataclass
class _Pending:
    """Bytes on their way by cp.async, those of a thread a row, with the group of each."""

    lanes: Array
    at: Array
    data: Array
    groups: Array


@dataclass
class _Store:
    """A tensor store that a thread has asked for."""

    n: int
    lane: int
    tensor: TensorMap
    address: int
    point: tuple[int, ...]
    source: int


class Copies:
    def __init__(self, wave: Wave) -> None:
        self._wave = wave
        self._pending: list[_Pending] = []
        self._group = np.zeros(wave.lanes.count, np.int64)
        self._flying: list[Callable[[], None]] = []  # copies into shared memory that have not arrived
        self._asked: list[_Store] = []
        self._committed: list[_Store] = []

    # ---- cp.async ---------------------------------------------------------------------------------------------------

    def start(self, n: int, s: Selection, to: Any, of: Any, size: int, take: Any) -> None:
        """`take` bytes are copied and zeros follow; they are there when the thread has waited for their group."""
        wave, lanes = self._wave, self._wave.lanes
        at = wave.shared.places(n, s, to, size, store=True)
        numbers = lanes.numbers(s)
        take, of = np.broadcast_to(take, numbers.shape), lanes.spread(s, of)
        wave.counters.count_shared(numbers, at, size, store=True)
        data = np.zeros((len(numbers), size), np.uint8)
        for wanted in np.unique(take):
            if not wanted:
                continue
            mine = np.flatnonzero(take == wanted)
            step = int(wanted) if int(wanted) & (int(wanted) - 1) == 0 else 1
            for first in range(0, int(wanted), step):
                data[mine, first : first + step] = wave.memory.read_bytes(
                    wave, n, numbers[mine], of[mine] + np.uint64(first), step
                )
        wave.shared.note_write(n, s, at, size, plainly=False)
        places = at[:, None] + np.arange(size)
        wave.shared.bytes[places] = 0xA5
        if wave.shared.checks:
            wave.shared.state[places] = 2
        self._pending.append(_Pending(numbers, at, data, self._group[numbers]))

    def commit(self, s: Selection) -> None:
        self._group[s] += 1

    def wait(self, s: Selection, left: int) -> None:
        """All but the last `left` groups of each thread have arrived."""
        waits = np.zeros(self._wave.lanes.count, bool)
        waits[s] = True
        still = []
        for p in self._pending:
            over = waits[p.lanes] & (p.groups < self._group[p.lanes] - left)
            if over.any():
                self._arrive(p, over)
            if not over.all():
                still.append(_Pending(p.lanes[~over], p.at[~over], p.data[~over], p.groups[~over]))
        self._pending = still

    def _arrive(self, p: _Pending, over: Array) -> None:
        shared, wave = self._wave.shared, self._wave
        places = p.at[over][:, None] + np.arange(p.data.shape[1])
        shared.bytes[places] = p.data[over]
        if shared.checks:
            team, member = wave.lanes.team[p.lanes[over]], wave.lanes.member[p.lanes[over]]
            grains = shared.grains(p.at[over], p.data.shape[1])
            shared.state[places] = 1
            shared.writer[grains] = member[:, None]
            shared.written[grains] = wave.clocks.stamp(team, member)[:, None]
            shared.plainly[grains] = False

    # ---- tensor copies ----------------------------------------------------------------------------------------------

    def load(self, n: int, s: Selection, to: Any, tensors: Any, point: tuple[Any, ...], bell: Any, mask: Any) -> None:
        """A box of a tensor into shared memory, of every CTA in `mask` where there is one; an mbarrier there counts the bytes."""
        wave, lanes = self._wave, self._wave.lanes
        cta_of, offset_of = wave.shared.locate(s, to)
        _, bell_of = wave.shared.locate(s, bell)
        tensors, masks = lanes.spread(s, tensors), None if mask is None else lanes.spread(s, mask)
        points = [lanes.spread(s, x) for x in point]
        for j, lane in enumerate(lanes.numbers(s)):
            tensor, address = map_at(wave, n, s, j, int(tensors[j]))
            at, inside, place, size = box_of(tensor, address, tuple(int(x[j]) for x in points))
            offset, cta = int(offset_of[j]), int(cta_of[j])
            if offset % TENSOR_ALIGN:
                what = f"a tensor copy to no multiple of {TENSOR_ALIGN} bytes"
                raise wave.fault(MisalignedFault, what, n, s, j, space="shared", byte=offset)
            if offset + len(place) * size > wave.shared.size:
                place_of = {"space": "shared", "byte": offset, "extent": wave.shared.size}
                raise wave.fault(OutOfBoundsFault, f"a tensor copy of {len(place) * size} bytes", n, s, j, **place_of)
            team = cta // lanes.cluster
            ranks = (
                [cta % lanes.cluster] if masks is None else [r for r in range(lanes.cluster) if int(masks[j]) >> r & 1]
            )
            swizzled = _swizzle(offset + place, tensor.swizzle)[:, None] + np.arange(size)
            for rank in ranks:
                there = swizzled + (team * lanes.cluster + rank) * wave.shared.pitch
                wave.shared.expect(n, int(lane), there.ravel())
            bells = [(team * lanes.cluster + rank, int(bell_of[j])) for rank in ranks]
            self._fly(self._landing(n, lane, at, inside, size, swizzled, bells))

    def _landing(
        self, n: int, lane: int, at: Array, inside: Array, size: int, swizzled: Array, bells: list[tuple[int, int]]
    ) -> Callable[[], None]:
        wave, lanes = self._wave, self._wave.lanes

        def land() -> None:
            data = np.zeros((len(at), size), np.uint8)
            if inside.any():
                who = np.full(int(inside.sum()), lane)
                data[inside] = wave.memory.read_bytes(wave, n, who, at[inside].astype(np.uint64), size)
            for cta, bell in bells:
                team, rank = divmod(cta, lanes.cluster)
                actor, stamp = lanes.members + rank, wave.clocks.arrive(team, rank)
                wave.shared.land((swizzled + cta * wave.shared.pitch).ravel(), data.ravel(), actor, stamp)
                wave.mbarriers.complete((cta, bell), data.size, team, actor, stamp)

        return land

    def store(self, n: int, s: Selection, tensors: Any, point: tuple[Any, ...], of: Any) -> None:
        """Shared memory to a box of a tensor, when the thread commits it or later."""
        wave, lanes = self._wave, self._wave.lanes
        tensors, cta_of = lanes.spread(s, tensors), wave.shared.locate(s, of)
        points = [lanes.spread(s, x) for x in point]
        for j, lane in enumerate(lanes.numbers(s)):
            tensor, address = map_at(wave, n, s, j, int(tensors[j]))
            source = int(cta_of[0][j]) * wave.shared.pitch + int(cta_of[1][j])
            if int(cta_of[1][j]) % TENSOR_ALIGN:
                what = f"a tensor copy from no multiple of {TENSOR_ALIGN} bytes"
                raise wave.fault(MisalignedFault, what, n, s, j, space="shared", byte=int(cta_of[1][j]))
            asked = _Store(n, int(lane), tensor, address, tuple(int(x[j]) for x in points), source)
            self._check_source(asked)
            self._asked.append(asked)

    def commit_bulk(self, s: Selection) -> None:
        mine = set(self._wave.lanes.numbers(s).tolist())
        for asked in [a for a in self._asked if a.lane in mine]:
            self._asked.remove(asked)
            self._committed.append(asked)
            if not self._later():
                self._finish(asked)

    def wait_bulk(self, s: Selection, left: int) -> None:
        for lane in self._wave.lanes.numbers(s).tolist():
            mine = [c for c in self._committed if c.lane == lane]
            for committed in mine[: len(mine) - left]:
                self._finish(committed)

    def _source_of(self, asked: _Store) -> tuple[Array, Array, int]:
        """(bytes of shared memory, their addresses in the tensor, bytes an element) for what lies inside it."""
        at, inside, place, size = box_of(asked.tensor, asked.address, asked.point)
        pitch = self._wave.shared.pitch
        cta = asked.source // pitch
        swizzled = _swizzle(asked.source - cta * pitch + place, asked.tensor.swizzle) + cta * pitch
        return swizzled[inside][:, None] + np.arange(size), at[inside], size

    def _check_source(self, asked: _Store) -> None:
        places, _, _ = self._source_of(asked)
        self._wave.shared.note_async_read(asked.n, np.array([asked.lane]), places.ravel(), "a tensor store")

    def _finish(self, asked: _Store) -> None:
        self._committed.remove(asked)
        wave = self._wave
        places, addresses, size = self._source_of(asked)
        if not len(addresses):
            return
        data, who = wave.shared.peek(asked.n, places), np.full(len(addresses), asked.lane)
        for chosen, region, offsets in wave.memory.find(
            wave, asked.n, who, addresses.astype(np.uint64), size, store=True
        ):
            mine = slice(None) if chosen is None else chosen
            wave.memory.note_write(wave, asked.n, who[mine], region, offsets, size)
            region.bytes[offsets[:, None] + np.arange(size)] = data[mine]
            wave.counters.count_global(who[mine], region, offsets, size, store=True)

    # ---- st.async ---------------------------------------------------------------------------------------------------

    def store_remote(self, n: int, s: Selection, to: Any, dtype: str, values: tuple[Any, ...], bell: Any) -> None:
        """Registers into the shared memory of a CTA of the cluster, whose mbarrier counts the bytes."""
        wave, lanes = self._wave, self._wave.lanes
        size = int(dtype[1]) * len(values)
        at = wave.shared.places(n, s, to, size, store=True, align=int(dtype[1]))
        numbers = lanes.numbers(s)
        data = (
            np.stack([np.ascontiguousarray(lanes.spread(s, v)) for v in values], 1)
            .view(np.uint8)
            .reshape(len(numbers), size)
        )
        bell_cta, bell_offset = wave.shared.locate(s, bell)
        places = at[:, None] + np.arange(size)
        for key in np.unique(np.stack([bell_cta, bell_offset]), axis=1).T:
            mine = (bell_cta == key[0]) & (bell_offset == key[1])
            wave.shared.expect(n, int(numbers[mine][0]), places[mine].ravel())
            team, rank = divmod(int(key[0]), lanes.cluster)

            def land(key: Any = key, mine: Array = mine, team: int = team, rank: int = rank) -> None:
                actor, stamp = lanes.members + rank, wave.clocks.arrive(team, rank)
                wave.shared.land(places[mine].ravel(), data[mine].ravel(), actor, stamp)
                wave.mbarriers.complete((int(key[0]), int(key[1])), int(mine.sum()) * size, team, actor, stamp)

            self._fly(land)

    # ---- when copies arrive -----------------------------------------------------------------------------------------

    def _later(self) -> bool:
        copies = self._wave.options.copies
        return copies == "late" or (copies == "random" and bool(self._wave.rng.random() < 0.5))

    def _fly(self, land: Callable[[], None]) -> None:
        if self._later():
            self._flying.append(land)
        else:
            land()

    def deliver(self) -> bool:
        """Lets one copy arrive, any of those on their way; False where there is none."""
        if not self._flying:
            return False
        self._flying.pop(int(self._wave.rng.integers(len(self._flying))))()
        return True

    def finish(self) -> None:
        """All threads have ended: what is still on its way arrives."""
        while self.deliver():
            pass
        for committed in list(self._committed):
            self._finish(committed)


def box_of(tensor: TensorMap, address: int, point: tuple[int, ...]) -> tuple[Array, Array, Array, int]:
    """(address of each element of the box at `point`, whether it lies in the tensor, its place in shared memory, its bytes)."""
    size = ITEMSIZE[tensor.dtype]
    at, inside, place = np.zeros((), np.int64), np.ones((), bool), np.zeros((), np.int64)
    pitch = size
    for axis, (first, extent, stride, width) in enumerate(
        zip(point, tensor.shape, (size, *tensor.strides), tensor.box)
    ):
        index = np.arange(width).reshape(-1, *(1,) * axis)
        at = at + (first + index) * stride
        inside = inside & (first + index >= 0) & (first + index < extent)
        place = place + index * pitch
        pitch *= width
    return (at + address).ravel(), np.broadcast_to(inside, at.shape).ravel(), place.ravel(), size


def _swizzle(offsets: Array, mode: int) -> Array:
    swizzled: Array = offsets ^ ((offsets >> 7 & SWIZZLED[mode]) << 4)
    return swizzled
