"""Asynchronous copies: cp.async, tensor copies (TMA) in both directions, st.async; each arrives as late or as early as it may.

PTX ISA, Asynchronous copy: cp.async; cp.async.bulk.tensor; st.async; Tensors: Tiled mode, Swizzling modes. Until it has arrived
the destination of a copy holds other bytes, and reading it is a fault.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ...runtime.steps import TensorMap
from ...types.faults import BarrierFault, MisalignedFault, OutOfBoundsFault, RaceFault
from ..threads.lanes import Array, Selection, pairs_of
from .boxes import ITEMSIZE, UNIT, Box, box_of, bytes_of
from .global_memory import EARLY
from .maps import map_at
from .shadow import COMING
from .shared import STALE

if TYPE_CHECKING:
    from ..wave import Wave

__all__ = ["Copies"]

TENSOR_ALIGN = 128


@dataclass
class _Pending:
    """The bytes of cp.async that have not arrived, one row per thread, with the group of each."""

    lanes: Array
    at: Array
    data: Array
    groups: Array


@dataclass(eq=False)
class _Store:
    """A tensor store that a thread has issued: the positions in shared memory of the bytes that are inside the tensor, one row
    of the box each, their values when the store was issued, and its group, once it is committed."""

    n: int
    lane: int
    box: Box
    source: Array
    was: Array
    align: int
    group: int = -1


@dataclass(eq=False)
class _Flight:
    """A copy into shared memory that has not arrived; `land` writes its bytes."""

    n: int
    lane: int
    land: Callable[[], None]


class Copies:
    def __init__(self, wave: Wave) -> None:
        self._wave = wave
        self._pending: list[_Pending] = []
        self._group = np.zeros(wave.lanes.count, np.int64)
        self._flying: list[_Flight] = []
        self._stores: list[_Store] = []
        self._bulk_group = np.zeros(wave.lanes.count, np.int64)

    # ---- cp.async ---------------------------------------------------------------------------------------------------

    def start(self, n: int, s: Selection, to: Any, of: Any, size: int, take: Any) -> None:
        """Copies `take` bytes and fills the rest with zeros; they have arrived when the thread has waited for their group."""
        wave, lanes = self._wave, self._wave.lanes
        at = wave.shared.places(n, s, to, size, store=True)
        numbers = lanes.numbers(s)
        take, of = np.broadcast_to(take, numbers.shape), lanes.spread(s, of)
        if (more := take > size).any():
            what = f"a copy of {int(take[more][0])} bytes of {size}"
            raise wave.fault(OutOfBoundsFault, what, n, s, int(np.flatnonzero(more)[0]), space="shared")
        wave.counters.count_shared(numbers, at, size, store=True)
        data = np.zeros((len(numbers), size), np.uint8)
        for wanted in np.unique(take[take > 0]).tolist():
            mine = np.flatnonzero(take == wanted)
            data[mine, :wanted] = wave.memory.read_bytes(wave, n, numbers[mine], of[mine], wanted, align=size)
        shadow = wave.shared.shadow
        shadow.note_write(n, s, at, size, plainly=False)
        if shadow.on:
            shadow.set(at, size, COMING)
        wave.shared.bytes[at[:, None] + np.arange(size)] = STALE
        self._pending.append(_Pending(numbers, at, data, self._group[numbers]))

    def commit(self, s: Selection) -> None:
        self._group[s] += 1

    def wait(self, s: Selection, left: int) -> None:
        """Delivers all but the last `left` groups of each thread."""
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
        shared, at, size = self._wave.shared, p.at[over], p.data.shape[1]
        shared.bytes[at[:, None] + np.arange(size)] = p.data[over]
        shared.shadow.note_arrival(p.lanes[over], at, size)

    # ---- tensor copies ----------------------------------------------------------------------------------------------

    def load(self, n: int, s: Selection, to: Any, tensors: Any, point: tuple[Any, ...], bell: Any, mask: Any) -> None:
        """Copies a box of a tensor into shared memory, of every CTA in `mask` if there is one; an mbarrier counts the bytes."""
        wave, lanes = self._wave, self._wave.lanes
        cta_of, offset_of = wave.shared.locate(s, to)
        bell_cta, bell_of = wave.shared.locate(s, bell)
        tensors, masks = lanes.spread(s, tensors), None if mask is None else lanes.spread(s, mask)
        points = [lanes.spread(s, x) for x in point]
        self._refuse_early(n, s, "load")
        for j, lane in enumerate(lanes.numbers(s)):
            tensor, address = map_at(wave, n, s, j, int(tensors[j]))
            box = box_of(tensor, address, tuple(int(x[j]) for x in points))
            at, units = self._bytes_of(n, s, j, tensor, int(offset_of[j]))
            ctas = [int(cta_of[j])]
            if masks is not None:
                first, mask = ctas[0] // lanes.cluster * lanes.cluster, int(masks[j])
                ctas = [first + r for r in range(lanes.cluster) if mask >> r & 1]
                if mask >> lanes.cluster:
                    what = f"a copy to CTAs {mask:#b} of a cluster of {lanes.cluster}"
                    raise wave.fault(OutOfBoundsFault, what, n, s, j, space="shared")
            elif bell_cta[j] != ctas[0]:
                raise wave.fault(BarrierFault, "a copy into one CTA that rings an mbarrier of another", n, s, j)
            for cta in ctas:
                wave.mbarriers.rings(n, int(lane), (cta, int(bell_of[j])))
                grains = wave.shared.shadow.unit_grains(units + cta * (wave.shared.pitch // UNIT))
                wave.shared.expect(n, int(lane), at + cta * wave.shared.pitch, grains, "a tensor copy", proxied=True)
            land = self._landing(n, int(lane), box, at, units, ctas, int(bell_of[j]), ITEMSIZE[tensor.dtype])
            self._fly(_Flight(n, int(lane), land))

    def _refuse_early(self, n: int, s: Selection, verb: str) -> None:
        """Refuses a copy that is issued before the wait for the previous launch, whenever the copy arrives."""
        if self._wave.order.early(s):
            raise self._wave.fault(RaceFault, EARLY.format(verb), n, s, 0, space="global")

    def _bytes_of(self, n: int, s: Selection, j: int, tensor: TensorMap, offset: int) -> tuple[Array, Array]:
        """The positions of a box's bytes in a CTA's memory, and their units."""
        wave, size = self._wave, ITEMSIZE[tensor.dtype]
        nbytes = int(np.prod(tensor.box, dtype=np.int64)) * size
        place: dict[str, Any] = {"space": "shared", "byte": offset, "extent": wave.shared.size}
        if offset % TENSOR_ALIGN:
            raise wave.fault(MisalignedFault, f"a tensor copy at no multiple of {TENSOR_ALIGN} bytes", n, s, j, **place)
        if not 0 <= offset <= wave.shared.size - nbytes:
            raise wave.fault(OutOfBoundsFault, f"a tensor copy of {nbytes} bytes", n, s, j, **place)
        return bytes_of(tensor.box, size, tensor.swizzle, offset)

    def _landing(
        self, n: int, lane: int, box: Box, at: Array, units: Array, ctas: list[int], bell: int, align: int
    ) -> Callable[[], None]:
        wave, lanes = self._wave, self._wave.lanes

        def land() -> None:
            data = np.zeros(at.shape, np.uint8)
            if box.inside.any():
                who, of = np.full(int(box.inside.sum()), lane), box.addresses[box.inside].astype(np.uint64)
                data[box.inside, box.first : box.last] = wave.memory.read_bytes(
                    wave, n, who, of, box.last - box.first, align
                )
            for cta in ctas:
                team, rank = divmod(cta, lanes.cluster)
                actor, stamp = lanes.members + rank, wave.clocks.arrive(team, rank)
                pitch = wave.shared.pitch
                grains = wave.shared.shadow.unit_grains(units + cta * (pitch // UNIT))
                wave.shared.land(at + cta * pitch, grains, data, actor, stamp)
                wave.mbarriers.complete(n, lane, (cta, bell), data.size, actor, stamp)

        return land

    def store(self, n: int, s: Selection, tensors: Any, point: tuple[Any, ...], of: Any) -> None:
        """Copies shared memory to a box of a tensor, when the thread commits the store or later."""
        wave, lanes = self._wave, self._wave.lanes
        tensors, (cta_of, offset_of) = lanes.spread(s, tensors), wave.shared.locate(s, of)
        points = [lanes.spread(s, x) for x in point]
        self._refuse_early(n, s, "store")
        for j, lane in enumerate(lanes.numbers(s)):
            tensor, address = map_at(wave, n, s, j, int(tensors[j]))
            box = box_of(tensor, address, tuple(int(x[j]) for x in points))
            at, _ = self._bytes_of(n, s, j, tensor, int(offset_of[j]))
            inside = at[box.inside, box.first : box.last] + int(cta_of[j]) * wave.shared.pitch
            wave.shared.shadow.note_async_read(n, np.array([lane]), np.unique(inside // UNIT), "a tensor store")
            self._stores.append(_Store(n, int(lane), box, inside, wave.shared.bytes[inside], ITEMSIZE[tensor.dtype]))

    def commit_bulk(self, s: Selection) -> None:
        """The stores that each thread has issued since its last group form its next group."""
        lanes = self._wave.lanes.numbers(s)
        for asked in [x for x in self._stores if x.group < 0 and x.lane in lanes]:
            asked.group = int(self._bulk_group[asked.lane])
            if not self._later():
                self._finish(asked)
        self._bulk_group[s] += 1

    def wait_bulk(self, s: Selection, left: int) -> None:
        """Completes all but the last `left` groups of each thread."""
        lanes = self._wave.lanes.numbers(s)
        for asked in [x for x in self._stores if x.lane in lanes and 0 <= x.group < self._bulk_group[x.lane] - left]:
            self._finish(asked)

    def _finish(self, asked: _Store) -> None:
        self._stores.remove(asked)
        wave, box = self._wave, asked.box
        if not asked.source.size:
            return
        if (changed := (wave.shared.bytes[asked.source] != asked.was).any(1)).any():
            raise wave.fault(
                RaceFault, "shared memory changed under a tensor store on its way", asked.n, np.array([asked.lane]), 0,
                space="shared", byte=int(asked.source[changed][0, 0]) % wave.shared.pitch, extent=wave.shared.size,
            )  # fmt: skip
        data, size = wave.shared.peek(asked.n, asked.source), box.last - box.first
        to, who = box.addresses[box.inside].astype(np.uint64), np.full(len(data), asked.lane)
        for chosen, region, offsets in wave.memory.find(wave, asked.n, who, to, size, store=True, align=asked.align):
            mine = slice(None) if chosen is None else chosen
            at, row = offsets[:, None] + np.arange(size), data[mine]

            def there(at: Array = at, row: Array = row, held: Array = region.bytes) -> Array:
                return np.asarray((held[at] == row).all(1))

            wave.memory.note_write(wave, asked.n, who[mine], region, offsets, size, there)
            region.bytes[at] = row
            wave.counters.count_global(who[mine], region, offsets, size, store=True)

    # ---- st.async ---------------------------------------------------------------------------------------------------

    def store_remote(self, n: int, s: Selection, to: Any, dtype: str, values: tuple[Any, ...], bell: Any) -> None:
        """Stores registers into the shared memory of a CTA of the cluster, whose mbarrier counts the bytes."""
        wave, lanes = self._wave, self._wave.lanes
        size = int(dtype[1]) * len(values)
        at = wave.shared.places(n, s, to, size, store=True)
        numbers = lanes.numbers(s)
        data = (
            np.stack([np.ascontiguousarray(lanes.spread(s, v)) for v in values], 1)
            .view(np.uint8)
            .reshape(len(numbers), size)
        )
        bell_cta, bell_offset = wave.shared.locate(s, bell)
        places = at[:, None] + np.arange(size)
        for bell_at in pairs_of(bell_cta, bell_offset):
            mine = (bell_cta == bell_at[0]) & (bell_offset == bell_at[1])
            lane = int(numbers[mine][0])
            where, grains, sent = places[mine], np.unique(places[mine] // wave.shared.shadow.grain), data[mine]
            wave.mbarriers.rings(n, lane, bell_at)
            wave.shared.expect(n, lane, where, grains, "st.async", proxied=False)
            team, rank = divmod(bell_at[0], lanes.cluster)

            def land(where: Array = where, grains: Array = grains, sent: Array = sent, lane: int = lane,
                     bell_at: tuple[int, int] = bell_at, team: int = team, rank: int = rank) -> None:  # fmt: skip
                actor, stamp = lanes.members + rank, wave.clocks.arrive(team, rank)
                wave.shared.land(where, grains, sent, actor, stamp)
                wave.mbarriers.complete(n, lane, bell_at, sent.size, actor, stamp)

            self._fly(_Flight(n, lane, land))

    # ---- when copies arrive -----------------------------------------------------------------------------------------

    def _later(self) -> bool:
        copies = self._wave.options.copies
        return copies == "late" or (copies == "random" and bool(self._wave.rng.random() < 0.5))

    def _fly(self, copy: _Flight) -> None:
        if self._later():
            self._flying.append(copy)
        else:
            copy.land()

    def deliver(self) -> bool:
        """Delivers one pending copy, any of them, or one per cluster, so that the clusters keep in step; False if there is
        none."""
        if not self._flying:
            return False
        drawn = int(self._wave.rng.integers(len(self._flying)))
        if self._wave.options.order == "random":
            self._flying.pop(drawn).land()
            return True
        by_team: dict[int, list[_Flight]] = {}
        for copy in self._flying:
            by_team.setdefault(int(self._wave.lanes.team[copy.lane]), []).append(copy)
        arriving = [copies[drawn % len(copies)] for copies in by_team.values()]
        self._flying = [copy for copy in self._flying if copy not in arriving]
        for copy in arriving:
            copy.land()
        return True

    def finish(self) -> None:
        """All threads have ended: a copy that is still pending is a fault, for another CTA may own the memory when it arrives
        (cp.async.bulk.wait_group)."""
        if self._stores:
            what, late = "a CTA ends before a tensor store has read its shared memory", self._stores[0]
            raise self._wave.fault(RaceFault, what, late.n, np.array([late.lane]), 0, space="shared")
        if self._flying:
            what, copy = "a CTA ends before a copy into its shared memory has arrived", self._flying[0]
            raise self._wave.fault(RaceFault, what, copy.n, np.array([copy.lane]), 0, space="shared")
