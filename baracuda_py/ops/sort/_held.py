"""held_rows: rows of at most 8,192 elements, each held in the registers of one warp or one CTA (kernels/sort/short.cu)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...plan.candidate import Candidate, Cost, Feasibility, no
from ...plan.grammar import Config, term
from ...runtime.steps import Kernel, Launch, Ptr, Step
from ...types import DeviceSpec, PrecisionGuarantee
from .._launch import grid_of, index_scalar
from .._rows import share
from ._rows import WORD, SortedRows, guarantee, servable

__all__ = ["HeldRows"]

LONGEST_HELD = 8192  # elements
MOST_BITS = 32  # of an element: the networks of wider entries take half a minute to compile
WARP, WARP_ROWS = 32, 4  # threads of a warp; rows of a CTA whose warps have one row each
CTA_LANES, CTA_MAXIMA = (128, 256), 256
HELD_PER_THREAD = {4: 40, 8: 32}  # elements, by the bytes of an entry
K_PER_MAXIMUM = 0.625  # of larger k, more elements than the list has room for would reach the bound
ELEMENT_INSTRUCTIONS = {4: 11, 8: 18}  # key, maximum, count and list, by the bytes of an entry
GREATEST_INSTRUCTIONS = {4: 6, 8: 10}  # key and maximum alone
STAGE_INSTRUCTIONS = {4: 4, 8: 8}  # of a thread and entry, in a stage of the sorting network


@dataclass(frozen=True)
class Held(Config):
    """How a row is held."""

    vector: int = term("elements per access")
    items: int = term("vectors per thread")
    lanes: int = term("threads per row")
    keep: int = term("maxima that each thread hands to the search of the bound; none where k = 1")

    @property
    def threads(self) -> int:
        return max(self.lanes, WARP * WARP_ROWS)

    @property
    def rows(self) -> int:
        """Rows per CTA."""
        return self.threads // self.lanes

    def instructions(self, rows: SortedRows) -> float:
        """Thread instructions per row."""
        compact = compact_entry(rows)
        elements = self.lanes * self.items * self.vector
        if not self.keep:
            return elements * GREATEST_INSTRUCTIONS[compact]
        listed = elements * ELEMENT_INSTRUCTIONS[compact]
        entries = self.keep * self.lanes
        stages = entries.bit_length() * (entries.bit_length() - 1) / 2
        return listed + 2 * entries * stages * STAGE_INSTRUCTIONS[compact]


class HeldRows(Candidate[Any]):
    """A row in the registers of a warp, or of a CTA; the k-th of its threads' maxima bounds what is sorted."""

    variant = "held_rows"
    launches = ("sort/short.cu:held_rows",)

    def supports(self, desc: Any, device: DeviceSpec) -> Feasibility:
        n, most = desc.shape[desc.axis], int(CTA_MAXIMA * K_PER_MAXIMUM)
        if desc.element.bits > MOST_BITS:
            return no(
                f"{desc.element} has {desc.element.bits} bits; entries are compared in registers for at most {MOST_BITS}"
            )
        if n > LONGEST_HELD:
            return no(f"rows have {n} elements; a CTA holds at most {LONGEST_HELD}")
        if not 0 < desc.k <= most:
            return no(f"k={desc.k}; the list of what reaches the bound has room for k from 1 to {most}")
        return servable(desc)

    def configs(self, desc: Any, device: DeviceSpec) -> Iterable[Held]:
        return _configs(SortedRows.of(desc), desc.k)

    def guarantee(self, desc: Any, device: DeviceSpec, config: Held) -> PrecisionGuarantee:
        return guarantee(desc)

    def cost(self, desc: Any, device: DeviceSpec, config: Held) -> Cost:
        rows = SortedRows.of(desc)
        return Cost.streaming(device, desc.nbytes, instructions=rows.count * config.instructions(rows))

    def lower(self, desc: Any, device: DeviceSpec, config: Held) -> tuple[Step, ...]:
        rows = SortedRows.of(desc)
        entry = (
            f"held_rows<{desc.element.number}, {rows.index}, {rows.axes}, {config.vector}, {config.items}, {config.lanes}, "
            f"{config.keep}>"
        )
        args = (
            Ptr("values"), Ptr("indices"), Ptr("x"), index_scalar(rows.count, rows.index), np.uint32(rows.n),
            np.uint32(desc.k), np.uint32(not desc.sorted), rows.flip, rows.packed,
        )  # fmt: skip
        grid = grid_of(rows.count, config.rows)
        return (Launch(Kernel("sort/short.cu", entry), grid, (config.threads, 1, 1), args),)


def compact_entry(rows: SortedRows) -> int:
    """Bytes of a key with its place in a short row."""
    return max(2 * rows.size, 4)


def _configs(rows: SortedRows, k: int) -> Iterator[Held]:
    """For a warp per row and for the smallest CTA per row, where those hold it: of as few maxima as k needs, and of all that a
    CTA has room for."""
    most = HELD_PER_THREAD[compact_entry(rows)]
    vector, items = _vectors(rows, WARP)
    keep = _keep(k, WARP)
    if vector * items <= most and keep <= 4:
        if k == 1:
            yield Held(vector, items, WARP, 0)
        yield Held(vector, items, WARP, keep)
    for lanes in CTA_LANES:
        vector, items = _vectors(rows, lanes)
        if vector * items <= most:
            if k == 1:
                yield Held(vector, items, lanes, 0)
            for keep in dict.fromkeys((_keep(k, lanes), CTA_MAXIMA // lanes)):
                yield Held(vector, items, lanes, keep)
            return


def _keep(k: int, lanes: int) -> int:
    """The fewest maxima of a thread of so many that k needs."""
    return share(math.ceil(k / (K_PER_MAXIMUM * lanes)))


def _vectors(rows: SortedRows, lanes: int) -> tuple[int, int]:
    """Elements per access, and accesses per thread: the fewest elements per thread, then the widest access."""
    best = (1, -(-rows.n // lanes))
    vector = 2
    while vector * rows.size <= min(rows.align, WORD) and rows.n % vector == 0:
        items = -(-rows.n // (lanes * vector))
        if vector * items <= best[0] * best[1]:
            best = (vector, items)
        vector *= 2
    return best
