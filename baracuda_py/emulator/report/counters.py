"""Counts of a run: instructions by family and by line of CUDA, sectors of global and wavefronts of shared memory.

A warp's access to global memory moves sectors of 32 bytes; the ideal is the bytes that the warp requests. Shared memory serves
32 banks of 4 bytes at once, a half-warp at a time for 8 bytes per thread and a quarter for 16 (CUDA C++ Programming Guide,
Shared Memory): each of these is a wavefront, and the ideal has no bank conflicts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np

from ..threads.lanes import WARP, Array, Selection

__all__ = ["Counters"]

SECTOR, BANKS, BANK = 32, 32, 4


class Counters:
    """`accesses` maps a kind of access to (warp instructions, units moved, least units that would suffice)."""

    def __init__(self, *, accesses: bool) -> None:
        self._on = accesses
        self.instructions: Counter[str] = Counter()
        self.lines: Counter[str] = Counter()
        self.turns: Counter[str] = Counter()
        self.accesses: dict[str, list[int]] = {}
        self.barriers = 0

    def count_global(self, lanes: Selection, region: Any, offsets: Array, size: int, *, store: bool) -> None:
        if not self._on or region.own:
            return
        numbers = np.arange(lanes.start, lanes.stop) if isinstance(lanes, slice) else lanes
        warps = numbers // WARP
        asked = np.unique(np.stack([np.repeat(warps, size), (offsets[:, None] + np.arange(size)).ravel()]), axis=1)
        sectors = np.unique(np.stack([asked[0], asked[1] // SECTOR]), axis=1).shape[1]
        of_warp = np.unique(asked[0], return_counts=True)[1]
        ideal = int((-(-of_warp // SECTOR)).sum())
        self._add(f"{'store' if store else 'load'} {region.name}", len(of_warp), sectors, ideal)

    def count_shared(self, lanes: Array, at: Array, size: int, *, store: bool) -> None:
        if self._on:
            turns, waves = wavefronts(lanes, at, size)
            self._add(f"{'store' if store else 'load'} shared", len(np.unique(lanes // WARP)), waves, turns)

    def _add(self, what: str, *units: int) -> None:
        row = self.accesses.setdefault(what, [0, 0, 0])
        for i, unit in enumerate(units):
            row[i] += unit

    def count_block(self, span: Iterable[Any], threads: int) -> None:
        for instruction in span:
            self.instructions[instruction.opcode[0]] += threads
            if instruction.source:
                self.lines[instruction.source] += threads


def wavefronts(lanes: Array, at: Array, size: int) -> tuple[int, int]:
    """(the fewest wavefronts that accesses of `size` bytes need, the wavefronts that they take), summed over the warps."""
    served = WARP * BANK // max(size, BANK)  # threads per wavefront
    turn = lanes // min(served, WARP)
    words = max(size // BANK, 1)
    word = (at[:, None] // BANK + np.arange(words)).ravel()
    of = np.repeat(turn, words)
    pairs = np.unique(np.stack([of, word]), axis=1)
    _, index = np.unique(pairs[0], return_inverse=True)
    load = np.bincount(index * BANKS + pairs[1] % BANKS, minlength=(int(index.max()) + 1) * BANKS).reshape(-1, BANKS)
    return len(load), int(load.max(1).sum())
