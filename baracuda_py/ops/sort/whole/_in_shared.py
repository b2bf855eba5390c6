"""Rows that are sorted in shared memory, x read once: `sort_short` and `sort_row` (kernels/sort/sort.cu)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....plan.candidate import Candidate, Cost, Feasibility, no
from ....plan.grammar import Config, term
from ....runtime.steps import Kernel, Launch, Ptr, Step
from ....types import DeviceSpec
from ..._launch import THREADS, grid_of, index_scalar
from .._rows import SortedRows, servable
from ._digits import DIGIT_INSTRUCTIONS, counters, passes

__all__ = ["RowInShared", "ShortRows", "kinds_of", "results_of"]

FILE = "sort/sort.cu"
TILES = 1024, 2048  # entries of a CTA that sorts short rows
PAIR_INSTRUCTIONS = 14  # of a thread and pair of entries, in a step of the network
MOVED_INSTRUCTIONS = 20  # of an element and pass: through shared memory and back
PLACE_BYTES, COUNT_BYTES = 2, 4
WIDE_BYTES = 8  # of an element, of which a thread holds eight in registers
SPARE_BYTES = 4 << 10  # not for keys: the CTA's sums, and some of L1, through which values are read
ITEMS = ((256, 4), (256, 8), (512, 8), (1024, 8), (1024, 16))  # threads of a CTA, elements per thread


def kinds_of(desc: Any, rows: SortedRows) -> str:
    """The kernels' first template arguments: the element's type, the index's, that of the number of rows, and their axes."""
    return f"{desc.element.number}, {desc.index_dtype.number}, {rows.index}, {rows.axes}"


def results_of(desc: Any) -> tuple[Ptr | np.generic, Ptr]:
    """Where values and indices are written."""
    return Ptr("values") if desc.has_values else np.uint64(0), Ptr(desc.results[1])


class ShortRows(Candidate[Any]):
    """Several rows per CTA, by a bitonic network."""

    variant = "short_rows"
    launches = (f"{FILE}:sort_short",)

    def supports(self, desc: Any, device: DeviceSpec) -> Feasibility:
        n = desc.shape[desc.axis]
        return no(f"rows have {n} elements; a CTA sorts at most {TILES[-1]}") if n > TILES[-1] else servable(desc)

    def cost(self, desc: Any, device: DeviceSpec, config: Any) -> Cost:
        rows = SortedRows.of(desc)
        length = _length(rows.n)
        steps = length.bit_length() * (length.bit_length() - 1) / 2
        return Cost.streaming(device, desc.nbytes, instructions=rows.count * length / 2 * steps * PAIR_INSTRUCTIONS)

    def lower(self, desc: Any, device: DeviceSpec, config: Any) -> tuple[Step, ...]:
        rows = SortedRows.of(desc)
        length = _length(rows.n)
        tile = next(t for t in TILES if length <= t)
        args = (
            *results_of(desc), Ptr("x"), index_scalar(rows.count, rows.index), np.uint32(rows.n), np.uint32(length), rows.flip,
            rows.packed,
        )  # fmt: skip
        kernel = Kernel(FILE, f"sort_short<{kinds_of(desc, rows)}, {tile}, {str(desc.has_values).lower()}>")
        return (Launch(kernel, grid_of(rows.count, tile // length), (THREADS, 1, 1), args),)


@dataclass(frozen=True)
class Held(Config):
    """How a row is held."""

    threads: int = term("threads per row")
    items: int = term("elements per thread")

    @property
    def tile(self) -> int:
        return self.threads * self.items

    def shared_bytes(self, size: int) -> int:
        """Of elements of so many bytes."""
        return self.tile * (size + PLACE_BYTES) + COUNT_BYTES * counters(self.threads)


class RowInShared(Candidate[Any]):
    """One CTA per row, by digits."""

    variant = "row"
    launches = (f"{FILE}:sort_row",)

    def supports(self, desc: Any, device: DeviceSpec) -> Feasibility:
        n, most = desc.shape[desc.axis], self._held(desc, device)[-1].tile
        return no(f"rows have {n} elements; a CTA holds at most {most}") if n > most else servable(desc)

    def configs(self, desc: Any, device: DeviceSpec) -> Iterable[Held]:
        """The smallest that holds a row."""
        return [next(config for config in self._held(desc, device) if desc.shape[desc.axis] <= config.tile)]

    def cost(self, desc: Any, device: DeviceSpec, config: Held) -> Cost:
        rows = SortedRows.of(desc)
        one = DIGIT_INSTRUCTIONS + MOVED_INSTRUCTIONS
        issued = rows.count * passes(desc) * (config.tile * one + counters(config.threads))
        return Cost.streaming(device, desc.nbytes, instructions=issued)

    def lower(self, desc: Any, device: DeviceSpec, config: Held) -> tuple[Step, ...]:
        rows = SortedRows.of(desc)
        taken = f"{kinds_of(desc, rows)}, {config.threads}, {config.items}, {str(desc.has_values).lower()}"
        args = (*results_of(desc), Ptr("x"), np.uint32(rows.n), rows.flip, rows.packed)
        kernel, nbytes = Kernel(FILE, f"sort_row<{taken}>"), config.shared_bytes(rows.size)
        return (Launch(kernel, (rows.count, 1, 1), (config.threads, 1, 1), args, shared_bytes=nbytes),)

    @staticmethod
    def _held(desc: Any, device: DeviceSpec) -> list[Held]:
        """What the device's shared memory has capacity for, the smallest first."""
        size, most = desc.element.bits // 8, device.shared_bytes - SPARE_BYTES
        held = [Held(*one) for one in ITEMS if one != ITEMS[-1] or size < WIDE_BYTES]
        return [one for one in held if one.shared_bytes(size) <= most]


def _length(n: int) -> int:
    """The next power of two."""
    return 1 << max(n - 1, 0).bit_length()
