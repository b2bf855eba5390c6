"""The arrays of a paged cache: pages of all layers, their scales, and the tables that kernels read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..ops.cache.copy_pages import copy_pages
from ..types import ElementKind
from .memory import Memory
from .sequence import PagedSequence
from .spec import KVCacheSpec

__all__ = ["PagedArrays"]

I32, F32 = ElementKind.I32, ElementKind.F32


class PagedArrays:
    """`pages` pages in every layer, and tables for `rows` sequences of `columns` pages each."""

    def __init__(self, spec: KVCacheSpec, pages: int, rows: int, columns: int, memory: Memory) -> None:
        self.spec, self.memory = spec, memory
        lead = (spec.layers, pages)
        self.pages = {part: memory.zeros((*lead, *spec.page_shape(part)), spec.kind) for part in ("k", "v")}
        self.scales: dict[str, Any] = {}
        if spec.scaling == "token":
            self.scales = {part: memory.zeros((*lead, *spec.page_shape(part)[:2]), F32) for part in ("k", "v")}
        elif spec.scaling == "head":
            self.scales = {part: memory.zeros((spec.layers, spec.kv_heads), F32) for part in ("k", "v")}
            for scale in self.scales.values():
                scale[...] = 1
        self.table = memory.zeros((rows, columns), I32)
        self.counts = memory.zeros((3, rows + 1), I32)  # before, after, and the start of each sequence's new tokens
        self.status = memory.zeros((spec.layers, rows), I32)
        memory.settle()
        self._table = np.zeros((rows, columns), np.int32)
        self._staged: list[tuple[int, int]] = [(-1, -1)] * rows  # (sequence, version) of each row

    def of_layer(self, layer: int) -> dict[str, Any]:
        """The operands of `paged_kv_append` that belong to a layer."""
        typed, kind = self.memory.typed, self.spec.kind
        named = {f"{part}_pages": typed(x[layer], kind) for part, x in self.pages.items()}
        written = "scales" if self.spec.scaling == "token" else "scale"
        return named | {f"{part}_{written}": x[layer] for part, x in self.scales.items()}

    def copy(self, pairs: Sequence[tuple[int, int]], stream: Any) -> None:
        """Queues the copies (from, to) of pages, with their keys, values and scales, of all layers, in one launch."""
        if not pairs:
            return
        ids = [self.memory.fresh(np.array(column, np.int32), stream) for column in zip(*pairs)]
        written = self.spec.scaling == "token"
        scales = {f"{part}_scales": x for part, x in self.scales.items()} if written else {}
        copy_pages(self.pages["k"], self.pages["v"], *ids, **scales, stream=stream, device=self.memory.device)

    def stage(self, sequences: Sequence[PagedSequence], stream: Any) -> None:
        """Queues the writes of the tables, without unchanged rows of the page table."""
        rows, _ = self._table.shape
        counts = np.zeros((3, rows + 1), np.int32)
        counts[0, : len(sequences)] = [sequence.written for sequence in sequences]
        counts[1, : len(sequences)] = [sequence.length for sequence in sequences]
        counts[2, 1:] = np.cumsum(counts[1, :-1] - counts[0, :-1])
        changed = []
        for row, sequence in enumerate(sequences):
            key = (sequence.number, sequence.version)
            if self._staged[row] != key:
                self._table[row, : len(sequence.pages)] = sequence.pages
                self._staged[row] = (-1, -1)
                changed.append((row, key))
        if changed:
            first, end = changed[0][0], changed[-1][0] + 1
            self.memory.write(self.table[first:end], self._table[first:end], stream)
        self.memory.write(self.counts, counts, stream)
        for row, key in changed:  # once the copies are queued
            self._staged[row] = key
