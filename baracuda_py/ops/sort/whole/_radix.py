"""Rows of any length, sorted digit by digit through scratch: `radix` (kernels/sort/radix.cu)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....plan.candidate import Candidate, Cost, Feasibility, no
from ....plan.grammar import Config, term
from ....runtime.steps import Arg, Kernel, Launch, Ptr, Scratch, Step
from ....types import DeviceSpec
from .._rows import SortedRows, servable
from ._digits import DIGIT_INSTRUCTIONS, RADIX, RADIX_BITS, counters, passes
from ._in_shared import kinds_of, results_of

__all__ = ["RadixSort"]

FILE, SCAN = "sort/radix.cu", "indexing/sorted_keys.cu"
THREADS, SCAN_THREADS = 256, 256
ITEMS, WIDE_ITEMS = (4, 16), (4, 8)  # elements per thread; of 64 bits, which take twice the registers
MOST_SUMMED_TILES = 32  # of a row, whose histograms each CTA adds up itself
MOST_COUNTS = 1 << 31  # which are CTAs too
INDEX_BYTES, COUNT_BYTES, WIDE_BYTES = 4, 4, 8
COUNT_INSTRUCTIONS = 12  # of an element
MOVE_INSTRUCTIONS = DIGIT_INSTRUCTIONS + 25  # of an element: its rank, through shared memory, and its place
CTAS_PER_SM = 4


@dataclass(frozen=True)
class Tiles(Config):
    """How rows are shared out."""

    items: int = term("elements per thread")

    @property
    def tile(self) -> int:
        return THREADS * self.items


class RadixSort(Candidate[Any]):
    """Per digit: histograms of tiles, their sums, and every element to its place."""

    variant = "radix"
    launches = (f"{FILE}:count_digits", f"{SCAN}:scan_counts", f"{FILE}:move_elements")

    def supports(self, desc: Any, device: DeviceSpec) -> Feasibility:
        rows = SortedRows.of(desc)
        counts = _counts(rows, _tiles(rows)[-1])
        if counts >= MOST_COUNTS:
            return no(f"x has {counts} counts of tiles and digits; {MOST_COUNTS} at most")
        return servable(desc)

    def configs(self, desc: Any, device: DeviceSpec) -> Iterable[Tiles]:
        rows = SortedRows.of(desc)
        return [config for config in _tiles(rows) if _counts(rows, config) < MOST_COUNTS]

    def cost(self, desc: Any, device: DeviceSpec, config: Tiles) -> Cost:
        """Counting reads keys; moving reads and writes keys and indices, those of x and of the results where first and last."""
        pairs = _Passes(desc, config)
        rows, tiles = pairs.rows, pairs.rows.count * pairs.tiles
        padded, moved = tiles * config.tile, rows.count * rows.n * (rows.size + INDEX_BYTES)
        nbytes = desc.nbytes + pairs.passes * rows.count * rows.n * rows.size + 2 * (pairs.passes - 1) * moved
        counted = tiles * RADIX * COUNT_BYTES * pairs.passes * 2
        instructions = pairs.passes * (padded * (COUNT_INSTRUCTIONS + MOVE_INSTRUCTIONS) + tiles * counters(THREADS))
        filled = min(1.0, max(tiles, 1) / (CTAS_PER_SM * device.sms))
        one = Cost.streaming(device, nbytes + counted, instructions=instructions / filled, efficiency=filled)
        launches = pairs.passes * (3 if pairs.scanned else 2)
        return Cost(desc.nbytes, 0, one.seconds + (launches - 1) * device.overhead, one.limit)

    def lower(self, desc: Any, device: DeviceSpec, config: Tiles) -> tuple[Step, ...]:
        return _Passes(desc, config).steps()


def _tiles(rows: SortedRows) -> tuple[Tiles, ...]:
    return tuple(map(Tiles, WIDE_ITEMS if rows.size == WIDE_BYTES else ITEMS))


def _counts(rows: SortedRows, config: Tiles) -> int:
    return rows.count * -(-rows.n // config.tile) * RADIX


class _Passes:
    """The launches of one problem."""

    def __init__(self, desc: Any, config: Tiles) -> None:
        self.desc, self.config, self.rows = desc, config, SortedRows.of(desc)
        self.tiles = -(-self.rows.n // config.tile)
        self.scanned = self.tiles > MOST_SUMMED_TILES
        self.passes = passes(desc)

    def steps(self) -> tuple[Step, ...]:
        rows, lines = self.rows, self.rows.count
        counts = Scratch.named("counts", COUNT_BYTES * RADIX * lines * self.tiles)
        totals = Scratch.named("totals", COUNT_BYTES * RADIX * lines) if self.scanned else np.uint64(0)
        steps: list[Step] = []
        for i in range(self.passes):
            first, last = i == 0, i == self.passes - 1
            source = Ptr("x") if first else self._moved("words", i)
            indices = np.uint64(0) if first else self._moved("indices", i)
            to = results_of(self.desc) if last else (self._moved("words", i + 1), self._moved("indices", i + 1))
            digit = (np.uint32(rows.n), np.uint32(self.tiles), np.uint32(i * RADIX_BITS), rows.flip, rows.packed)
            flags = f"{_cuda(first)}, {_cuda(self.scanned)}"
            kinds = f"{self.desc.element.number}, {rows.index}, {rows.axes}, {self.config.items}, {flags}"
            steps.append(self._launch(f"count_digits<{kinds}>", counts, source, *digit))
            if self.scanned:
                kernel = Kernel(SCAN, f"scan_counts<{SCAN_THREADS}>")
                args = (counts, totals, np.uint32(self.tiles))
                steps.append(Launch(kernel, (RADIX * lines, 1, 1), (SCAN_THREADS, 1, 1), args))
            flags = f"{_cuda(first)}, {_cuda(last)}, {_cuda(self.scanned)}, {_cuda(last and self.desc.has_values)}"
            kinds = f"{kinds_of(self.desc, rows)}, {self.config.items}, {flags}"
            shared = self.config.tile * (rows.size + INDEX_BYTES) + COUNT_BYTES * counters(THREADS)
            move = f"move_elements<{kinds}>"
            steps.append(self._launch(move, *to, source, indices, counts, totals, *digit, shared_bytes=shared))
        return tuple(steps)

    def _moved(self, what: str, before: int) -> Scratch:
        """One of two buffers in turn."""
        size = self.rows.size if what == "words" else INDEX_BYTES
        return Scratch.named(f"{what} {before % 2}", self.rows.count * self.rows.n * size)

    def _launch(self, entry: str, *args: Arg, shared_bytes: int = 0) -> Launch:
        grid = (self.rows.count * self.tiles, 1, 1)
        return Launch(Kernel(FILE, entry), grid, (THREADS, 1, 1), args, shared_bytes=shared_bytes)


def _cuda(flag: bool) -> str:
    return str(flag).lower()
