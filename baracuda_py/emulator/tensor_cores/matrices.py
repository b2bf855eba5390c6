"""Matrix instructions: fragments by ldmatrix and stmatrix, products of warps, and of warpgroups on shared memory.

PTX ISA, Warp-level Matrix Instructions: mma.sync, ldmatrix, stmatrix; Asynchronous Warpgroup-level Matrix Instructions: wgmma.
A warpgroup's product is computed when it is issued. The operands that it read must be unchanged when it is waited for, and the
accesses to them ordered before it. Until then its accumulators hold a marker, which no thread may overwrite.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from ...types.faults import DivergenceFault, RaceFault
from ..memory.boxes import UNIT
from ..threads.lanes import WARP, Array, Selection
from . import tensor_core, warpgroup
from .wgmma_registers import GROUP, WgmmaRegisters

if TYPE_CHECKING:
    from ..wave import Wave

__all__ = ["Matrices"]

ROW = 16  # bytes of a row of an 8 x 8 matrix of halves
ITEMSIZE = {"bf16": 2, "f16": 2, "tf32": 4, "e4m3": 1, "e5m2": 1, "s8": 1, "u8": 1}


IN_FLIGHT = np.uint32(0x7FBADBAD)  # the accumulators' value until the product is delivered: NaN, as f32


@dataclass(eq=False)
class _Product:
    """A pending product of one warpgroup: its lanes, its commit group, the bytes and registers that it reads, and the
    accumulators with their results, one row each."""

    n: int
    lanes: Array
    group: int
    reads: tuple[tuple[Array, Array], ...]  # (positions, the bytes read there)
    registers: tuple[tuple[Array, Array], ...]  # (a row, its values when read)
    rows: tuple[Array, ...]
    sums: Array


class Matrices:
    def __init__(self, wave: Wave) -> None:
        self._wave = wave
        self._flying: list[_Product] = []
        self._group = np.zeros(wave.lanes.count, np.int64)
        self._last: dict[tuple[int, int], _Product] = {}  # the last product into some accumulators of a warpgroup
        self.wgmma_registers = WgmmaRegisters(wave)

    # ---- a warp -----------------------------------------------------------------------------------------------------

    def _row_lanes(self, n: int, s: Selection, count: int, what: str) -> tuple[Array, Array]:
        """(the warps' lanes, the lanes whose addresses are used, eight per matrix)."""
        warps = self._wave.warps.whole(n, s, what)
        return warps, warps[:, : 8 * count].ravel()

    def load(self, n: int, s: Selection, addresses: Any, transposed: bool, rows: tuple[Array, ...]) -> None:
        wave = self._wave
        warps, users = self._row_lanes(n, s, len(rows), "ldmatrix")
        chosen = wave.lanes.spread(s, addresses).reshape(-1, WARP)[:, : 8 * len(rows)].ravel()
        at = wave.shared.places(n, users, chosen, ROW, store=False)
        wave.shared.shadow.note_read(n, users, at, ROW)
        self._count(users, at, store=False)
        data = wave.shared.peek(n, at[:, None] + np.arange(ROW)).reshape(len(warps), len(rows), 8, ROW)
        for row, fragment in zip(rows, tensor_core.ldmatrix(data, transposed)):
            row[s] = fragment.ravel()

    def store(self, n: int, s: Selection, addresses: Any, transposed: bool, rows: tuple[Array, ...]) -> None:
        wave = self._wave
        warps, users = self._row_lanes(n, s, len(rows), "stmatrix")
        chosen = wave.lanes.spread(s, addresses).reshape(-1, WARP)[:, : 8 * len(rows)].ravel()
        at = wave.shared.places(n, users, chosen, ROW, store=True)
        wave.shared.shadow.note_write(n, users, at, ROW)
        self._count(users, at, store=True)
        data = tensor_core.stmatrix(
            [np.ascontiguousarray(row[s]).reshape(len(warps), WARP) for row in rows], transposed
        )
        wave.shared.bytes[at[:, None] + np.arange(ROW)] = np.ascontiguousarray(data).view(np.uint8).reshape(-1, ROW)

    def _count(self, users: Array, at: Array, *, store: bool) -> None:
        """Each matrix is one wavefront at best: eight rows of 16 bytes."""
        self._wave.counters.count_shared(np.arange(len(users)), at, ROW, store=store)

    def multiply(
        self,
        n: int,
        s: Selection,
        shape: str,
        kinds: tuple[str, str, str, str],
        d: Any,
        a: Any,
        b: Any,
        c: Any,
        saturate: bool = False,
    ) -> None:
        warps = self._wave.warps.whole(n, s, "mma.sync")

        def fragments(rows: tuple[Array, ...]) -> list[Array]:
            return [np.ascontiguousarray(row[s]).reshape(len(warps), WARP) for row in rows]

        results = tensor_core.mma(shape, kinds, fragments(a), fragments(b), fragments(c), satfinite=saturate)
        for row, result in zip(d, results):
            row[s] = result.ravel()

    # ---- a warpgroup ------------------------------------------------------------------------------------------------

    def _groups(self, n: int, s: Selection, what: str) -> Array:
        lanes = self._wave.lanes.numbers(s)
        if len(lanes) % GROUP == 0:
            groups = lanes.reshape(-1, GROUP)
            first = self._wave.lanes.thread[groups[:, 0]] % GROUP == 0
            if first.all() and (groups[:, -1] - groups[:, 0] == GROUP - 1).all():
                return groups
        raise self._wave.fault(DivergenceFault, f"{what} by a part of a warpgroup", n, s, 0)

    def fence(self, n: int, s: Selection) -> None:
        """The warpgroups' registers are passed to the products that follow."""
        self._groups(n, s, "wgmma.fence")
        self.wgmma_registers.fence(s)

    def group_multiply(
        self, n: int, s: Selection, shape: str, kinds: tuple[str, str, str], d: tuple[Array, ...], a: Any, b: Any, scale: Any,
        signs: tuple[int, int], majors: tuple[int, int],
    ) -> None:  # fmt: skip
        wave = self._wave
        groups = self._groups(n, s, "wgmma")
        if wave.checks:
            self.wgmma_registers.multiply(n, s)
        columns, depth = (int(x) for x in re.fullmatch(r"m64n(\d+)k(\d+)", shape).groups())  # type: ignore[union-attr]
        ctas = wave.lanes.cta[groups[:, 0]]

        def of_group(x: Any) -> Array:
            return np.broadcast_to(x, (groups.size,)).reshape(groups.shape)[:, 0]

        right, at_b = self._operand(n, groups, ctas, of_group(b), columns, depth, kinds[2], bool(majors[1]))
        if isinstance(a, tuple):
            fragments = [np.ascontiguousarray(row[s]).reshape(groups.shape) for row in a]
            left, at_a = warpgroup.register_tile(fragments, kinds[1]), None
        else:
            left, at_a = self._operand(n, groups, ctas, of_group(a), 64, depth, kinds[1], bool(majors[0]))
        old = np.stack([row[s].reshape(groups.shape) for row in d])
        keys = [(int(lanes[0]), id(d[0])) for lanes in groups]
        for g, key in enumerate(keys):
            if key in self._last:
                old[:, g] = self._last[key].sums
        sums = np.stack(warpgroup.accumulate(left, right, list(old), of_group(scale), *signs, kinds))
        for row in d:
            row.view(np.uint32)[s] = IN_FLIGHT
        for g, (lanes, key) in enumerate(zip(groups, keys)):
            reads = tuple((at[g], wave.shared.units(at[g])) for at in (at_a, at_b) if at is not None)
            registers = tuple((row, row[lanes]) for row in a) if isinstance(a, tuple) else ()
            product = _Product(n, lanes, int(self._group[lanes[0]]), reads, registers, d, sums[:, g])
            self._last[key] = product
            self._flying.append(product)

    def _operand(
        self, n: int, groups: Array, ctas: Array, descriptors: Array, rows: int, depth: int, kind: str, transposed: bool
    ) -> tuple[Array, list[Array]]:
        """(elements [groups, rows, depth] as bits, the units of shared memory of each group) of an operand in shared memory."""
        shared, size = self._wave.shared, ITEMSIZE[kind]
        elements = np.empty((len(groups), rows, depth), f"u{size}")
        units_of = []
        for g, (lanes, cta, descriptor) in enumerate(zip(groups, ctas, descriptors)):
            places, units, last = _tile(int(descriptor), rows, depth, size, transposed)
            if last > shared.size:
                shared.places(n, lanes[:1], np.uint32(min(last, (1 << 24) - 1)), size, store=False)
            units = units + int(cta) * (shared.pitch // UNIT)
            shared.shadow.note_async_read(n, lanes, units, "wgmma", stamped=False)
            data = shared.peek(n, places + int(cta) * shared.pitch)
            elements[g] = np.ascontiguousarray(data).view(f"u{size}")[..., 0]
            units_of.append(units)
        return elements, units_of

    def commit(self, s: Selection) -> None:
        self._group[s] += 1

    def wait(self, n: int, s: Selection, left: int) -> None:
        wave = self._wave
        waits = np.zeros(wave.lanes.count, bool)
        waits[s] = True
        over = [
            p for p in self._flying if waits[p.lanes].all() and p.group < self._group[p.lanes[0]] - left
        ]  # fmt: skip
        self._flying = [p for p in self._flying if p not in over]
        for product in over:
            for at, was in product.reads:
                if (changed := wave.shared.units(at) != was).any():
                    raise wave.fault(
                        RaceFault, "shared memory changed under a wgmma on its way", product.n, product.lanes, 0,
                        space="shared", byte=int(at[changed.any(1)][0]) * UNIT % wave.shared.pitch,
                    )  # fmt: skip
                wave.shared.shadow.note_async_read(product.n, product.lanes, at, "wgmma")
            for row, was in product.registers:
                self._unchanged(product, row, was)
        self._deliver([p for p in over if self._last.get((int(p.lanes[0]), id(p.rows[0]))) is p])

    def _deliver(self, products: list[_Product]) -> None:
        """Writes the accumulators of products that no other pending product adds to."""
        for rows in {id(p.rows[0]): p.rows for p in products}.values():
            mine = [p for p in products if p.rows[0] is rows[0]]
            lanes, sums = np.concatenate([p.lanes for p in mine]), np.concatenate([p.sums for p in mine], 1)
            for row, values in zip(rows, sums):
                if (row.view(np.uint32)[lanes] != IN_FLIGHT).any():
                    for product in mine:
                        self._unchanged(product, row.view(np.uint32), IN_FLIGHT)
                row[lanes] = values
            for product in mine:
                del self._last[int(product.lanes[0]), id(rows[0])]
                self.wgmma_registers.over(product.n, product.lanes)

    def finish(self) -> None:
        """All threads have ended."""
        if self._flying and self._wave.checks:
            left = self._flying[0]
            what = "threads end before a wgmma of theirs is waited for"
            raise self._wave.fault(RaceFault, what, left.n, left.lanes, 0)

    def _unchanged(self, product: _Product, row: Array, was: Any) -> None:
        if (bad := row[product.lanes] != was).any():
            text = "a register of a wgmma changed while it was on its way"
            raise self._wave.fault(RaceFault, text, product.n, product.lanes, int(np.flatnonzero(bad)[0]))


@lru_cache(maxsize=4096)
def _tile(descriptor: int, rows: int, depth: int, size: int, transposed: bool) -> tuple[Array, Array, int]:
    """(bytes [rows, depth, size] of a tile in a CTA's memory, their units, where they end)."""
    addresses = warpgroup.tile_addresses(np.array([descriptor], np.uint64), rows, depth, size, transposed)[0].astype(
        np.int64
    )
    return addresses[..., None] + np.arange(size), np.unique(addresses // UNIT), int(addresses.max()) + size
