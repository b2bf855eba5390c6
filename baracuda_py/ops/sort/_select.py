"""select_rows and split_rows: rows of any length, by a CTA each, or by several and then one (kernels/sort/topk.cu)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...plan.candidate import Candidate, Cost, Feasibility, no
from ...plan.grammar import Config, term
from ...runtime.steps import Kernel, Launch, Ptr, Scratch, Step
from ...types import DeviceSpec, PrecisionGuarantee
from .._fitted import Fitted
from ._rows import MOST_ROWS, SortedRows, guarantee, servable

__all__ = ["FIRST_K", "SelectRows", "SplitRows"]

THREADS = 512
PER_SM = 2  # CTAs, as registers and shared memory allow
POOL = 32 << 10  # bytes of shared memory, for counts and then for entries
DIGIT = 11  # bits
STEPPED = 4  # elements of a vector that is read element by element
LEAST_PART = 8192  # elements: less is not worth a CTA of its own
WHOLE, PART, LISTED = 0, 1, 2
FIRST_K = "End::FIRST_K"


class Costs(Fitted, table="rows.select"):
    sample_s: float
    listed_element_s: float
    pass_s: float
    counted_element_s: float
    gathered_element_s: float
    bandwidth_efficiency: float


@dataclass(frozen=True)
class Sample:
    """What of a row gives the bound that its k greatest should reach: `vectors` a thread, of which each thread takes the
    greatest element; `rank` threads reach the bound. No vectors: there is no such bound, or k is too large for one."""

    vectors: int = 0
    rank: int = 0
    reach: float = 0.0  # elements of the row that should reach the bound

    @staticmethod
    def of(n: int, k: int, vector: int, depth: int, most: int) -> Sample:
        """Of rows of `n` elements, read in vectors of so many, `depth` a thread at most; `most` elements can be listed.

        As many of the k greatest as are in the sample follow Poisson's law, and more than mean + 4 sqrt(mean) + 3 of them are
        a case in 100,000 where elements are independent. It is a matter of time alone: where fewer than k elements reach the
        bound, the row is searched.
        """
        best, least = Sample(), math.inf
        for vectors in range(1, depth + 1) if 0 < k < most else ():
            share = min(THREADS * vectors * vector / n, 1.0)
            mean = k * share
            rank = min(k, math.ceil(mean + 4 * math.sqrt(mean) + 3))
            if rank > 3 * THREADS // 4:
                continue
            # Threads that reach it, from elements that do: the rest have none of these, by Poisson's law again
            reach = -math.log1p(-rank / THREADS) * THREADS / share
            fits = min(reach * (1 + 4 / math.sqrt(rank)), n) <= most
            work = reach + n * share / 32  # what is listed is sorted, what is sampled is compared
            if fits and work < least:
                best, least = Sample(vectors, rank, reach), work
        return best


@dataclass(frozen=True)
class Search:
    """What select_rows looks through in one launch: `n` elements or listed places of a row, in `parts` of `part`."""

    role: int
    n: int
    parts: int
    part: int
    listed: int = 0

    def aligned(self, rows: SortedRows) -> bool:
        """Whether it is read in vectors of 16 bytes."""
        return rows.vector and self.role != LISTED and self.part * rows.size % 16 == 0

    @property
    def length(self) -> int:
        """Elements or listed places that a CTA looks through."""
        return self.part if self.role == PART else self.n

    def end_of(self, desc: Any) -> str:
        """Which of the k are its results; a part lists all of them."""
        return FIRST_K if self.role == PART else str(desc.end)

    def sample(self, rows: SortedRows, k: int) -> Sample:
        vector = 16 // rows.size if self.aligned(rows) else STEPPED
        depth = 2 if self.role == LISTED or vector * rows.size > 16 else 4
        return Sample.of(self.length, k, vector, depth, POOL // rows.entry)

    def seconds(self, rows: SortedRows, desc: Any, device: DeviceSpec) -> float:
        """Of as many waves of CTAs as there are: a CTA reads its share once, or in every pass of a search."""
        sample, resident_ctas = self.sample(rows, desc.k), PER_SM * device.sms
        sorted_k = desc.k if self.end_of(desc) == FIRST_K else 0
        costs = Costs.of(device)
        streamed = self.length * rows.size * resident_ctas / (costs.bandwidth_efficiency * device.bandwidth)
        read = self.length * costs.gathered_element_s if self.role == LISTED else streamed
        if sample.vectors:
            one = read + costs.sample_s + min(sample.reach, self.length) * costs.listed_element_s
        else:
            passes = -(-8 * rows.size // DIGIT) + 1
            one = (
                passes * (max(read, self.length * costs.counted_element_s) + costs.pass_s)
                + sorted_k * costs.listed_element_s
            )
        return one * -(-rows.count * self.parts // resident_ctas)

    def launch(self, desc: Any, rows: SortedRows, places: Scratch | None) -> Launch:
        end = self.end_of(desc)
        needs_runs = self.role != PART and end == FIRST_K and desc.sorted and desc.k * rows.entry > POOL
        runs = Scratch.named("runs", 2 * rows.count * desc.k * rows.entry) if needs_runs else np.uint64(0)
        sample = self.sample(rows, desc.k)
        args = (
            Ptr("values"), Ptr("indices"), Ptr("x"), places or np.uint64(0), runs, np.uint32(self.n), np.uint32(desc.k),
            np.uint32(self.parts), np.uint32(self.part), np.uint32(self.listed), np.uint32(sample.vectors),
            np.uint32(sample.rank), np.uint32(not desc.sorted), rows.flip, rows.packed,
        )  # fmt: skip
        taken = (
            f"{desc.element.number}, {rows.index}, {rows.axes}, {self.role}, {str(self.aligned(rows)).lower()}, {end}"
        )
        grid = (rows.count * self.parts, 1, 1)
        return Launch(Kernel("sort/topk.cu", f"select_rows<{taken}>"), grid, (THREADS, 1, 1), args)


class SelectRows(Candidate[Any]):
    """A CTA a row."""

    variant = "select_rows"
    launches = ("sort/topk.cu:select_rows",)

    def supports(self, desc: Any, device: DeviceSpec) -> Feasibility:
        return servable(desc)

    def guarantee(self, desc: Any, device: DeviceSpec, config: Any) -> PrecisionGuarantee:
        return guarantee(desc)

    def cost(self, desc: Any, device: DeviceSpec, config: Any) -> Cost:
        rows = SortedRows.of(desc)
        return Cost(desc.nbytes, 0, device.overhead + _whole(rows).seconds(rows, desc, device))

    def lower(self, desc: Any, device: DeviceSpec, config: Any) -> tuple[Step, ...]:
        rows = SortedRows.of(desc)
        return (_whole(rows).launch(desc, rows, None),)


def _whole(rows: SortedRows) -> Search:
    return Search(WHOLE, rows.n, 1, (rows.n + 15) // 16 * 16)


@dataclass(frozen=True)
class Parts(Config):
    """How a row is shared out."""

    parts: int = term("CTAs of a row, each of which looks through a part of it")


class SplitRows(Candidate[Any]):
    """Several CTAs a row, each of which lists the k of its part; then one that looks through what they listed."""

    variant = "split_rows"
    launches = ("sort/topk.cu:select_rows",)

    def supports(self, desc: Any, device: DeviceSpec) -> Feasibility:
        n = desc.shape[desc.axis]
        if n < 2 * max(2 * desc.k, LEAST_PART):
            return no(f"rows have {n} elements: parts of {max(2 * desc.k, LEAST_PART)} for k={desc.k} would not be two")
        return servable(desc)

    def configs(self, desc: Any, device: DeviceSpec) -> Iterable[Parts]:
        rows = SortedRows.of(desc)
        most = max(2, rows.n // max(2 * desc.k, LEAST_PART))
        filled = PER_SM * device.sms // max(rows.count, 1)
        wanted = (min(max(filled // fewer, 2), most) for fewer in (1, 2, 4, 8))
        return [Parts(count) for count in dict.fromkeys(wanted) if rows.count * count <= MOST_ROWS]

    def guarantee(self, desc: Any, device: DeviceSpec, config: Any) -> PrecisionGuarantee:
        return guarantee(desc)

    def cost(self, desc: Any, device: DeviceSpec, config: Parts) -> Cost:
        rows = SortedRows.of(desc)
        seconds = sum(
            device.overhead + each.seconds(rows, desc, device) for each in _parted(rows, desc.k, config.parts)
        )
        return Cost(desc.nbytes, 0, seconds)

    def lower(self, desc: Any, device: DeviceSpec, config: Parts) -> tuple[Step, ...]:
        rows = SortedRows.of(desc)
        first, then = _parted(rows, desc.k, config.parts)
        places = Scratch.named("places", rows.count * then.n * 4)
        return first.launch(desc, rows, places), then.launch(desc, rows, places)


def _parted(rows: SortedRows, k: int, parts: int) -> tuple[Search, Search]:
    """Of a row in so many parts, and of what they list."""
    part = (-(-rows.n // parts) + 15) // 16 * 16  # whole vectors
    parts = -(-rows.n // part)
    listed = (parts - 1) * min(k, part) + min(k, rows.n - (parts - 1) * part)
    return Search(PART, rows.n, parts, part, listed), Search(LISTED, listed, 1, listed, listed)
