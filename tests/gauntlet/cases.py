"""The tests of an op, one a sample: which are taken, what they are called, and their data, made where it is used.

Test functions say ``@every_sample("cpu", "cuda", count=24)`` and take a `case`; conftest.py has them run once a case.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, TypeVar

import pytest

from baracuda_py.plan import Op, all_ops, get_op
from baracuda_py.samples import Sample
from baracuda_py.samples.sample import labels_of, meant

from .parts import WHOLE, Part
from .problem import Problem

__all__ = ["PER_VARIANT", "SAMPLES", "Case", "cases", "every_sample", "few_of", "samples_of", "spread", "spread_by_op"]

SAMPLES = 24  # an op, unless all are asked for
FEW = 5  # of them in the bounded suite
PER_VARIANT = 4  # samples of which every variant is emulated
T = TypeVar("T")


def spread(items: Sequence[T], count: int) -> list[T]:
    """`count` of the items, evenly over the list, the first and the last among them; of one the first."""
    if len(items) <= count or count < 2:
        return list(items[:count])
    return [items[round(i * (len(items) - 1) / (count - 1))] for i in range(count)]


def spread_by_op(items: Sequence[T], count: int, op: str) -> list[T]:
    """`count` of the items, evenly over the list, from one on that differs by op: of ops that share a template each sample is
    some op's, and an op's choice is the same whichever others there are."""
    count, first = min(count, len(items)), zlib.crc32(op.encode())
    return [items[i] for i in sorted((first + i * len(items) // count) % len(items) for i in range(count))]


def samples_of(op: Op, *, everything: bool = False, count: int = SAMPLES) -> list[Sample]:
    """The op's samples: all of them, or a deterministic spread."""
    samples = _made(op.name, everything)
    return list(samples) if everything else spread(samples, count)


@dataclass(frozen=True)
class Case:
    """One sample of an op on one back end, for a test that takes `count` of the op's: a name, without the data.

    Samples have no address but their place in what `op.samples` yields, and cost milliseconds an op: they are made again where a
    test runs, by each process that does.
    """

    op: str
    backend: str
    index: int
    label: str
    count: int
    full: bool = False
    part: Part = WHOLE

    @property
    def sample(self) -> Sample:
        return _made(self.op, self.full)[self.index]

    @property
    def problem(self) -> Problem:
        return Problem(get_op(self.op), self.sample, self.backend)

    @property
    def siblings(self) -> list[Case]:
        """The cases of the same test and op, this one among them."""
        return cases(self.op, self.backend, self.count, full=self.full, parts=self.part.count)


def _made(op: str, full: bool) -> tuple[Sample, ...]:
    """An op's samples: those of a run of some are held, 2 MB an op, those of a run of all while its op is tested."""
    return _every(op) if full else _some(op)


@lru_cache(maxsize=2)
def _every(op: str) -> tuple[Sample, ...]:
    return tuple(get_op(op).samples(get_op(op).fixed, 0, full=True))


@cache
def _some(op: str) -> tuple[Sample, ...]:
    return tuple(get_op(op).samples(get_op(op).fixed, 0, full=False))


@lru_cache(maxsize=1024)
def _labels(op: str, full: bool) -> tuple[str, ...]:
    return tuple(labels_of(_made(op, full)))


@lru_cache(maxsize=8192)
def _picked(op: str, full: bool, count: int, sample: str) -> tuple[int, ...]:
    """The places of an op's samples. What few are taken are among those of a test that takes `SAMPLES`: kernels are fewer."""
    labels = _labels(op, full)
    if sample:
        return tuple(meant(labels, sample))
    return tuple(range(len(labels)) if full else spread(spread(range(len(labels)), max(count, SAMPLES)), count))


def cases(
    op: str,
    backend: str,
    count: int = SAMPLES,
    *,
    full: bool = False,
    sample: str = "",
    parts: int = 1,
    also: Sequence[str] = (),
) -> list[Case]:
    """The op's cases on one back end: `count` over its samples and those that are called as `also` says, all with `full`, or
    those whose label `sample` means; each in so many parts."""
    labels, shares = _labels(op, full), [Part(i, parts) for i in range(parts)]
    picked = {*_picked(op, full, count, sample), *(i for i, label in enumerate(labels) if label in also)}
    return [
        Case(op, backend, i, f"{labels[i]}, {part}" if parts > 1 else labels[i], count, full, part)
        for i in sorted(picked)
        for part in shares
    ]


def every_sample(
    *backends: str,
    count: int = SAMPLES,
    bounded: int | Mapping[str, int] = FEW,
    turns: bool = False,
    also: Mapping[str, Sequence[str]] | None = None,
    ops: Sequence[str] = (),
    parts: Mapping[str, int] | None = None,
) -> Callable[[Any], Any]:
    """A test that runs for samples of every op (or of `ops`) on each of the back ends: ids say which if there are several. Where
    no device is needed, the bounded suite takes `bounded` of them, by op where they differ, other ones of each op if it `turns`;
    and those whose labels `also` has for an op. Of the ops in `parts` each case is run in so many."""
    taken = tuple(ops) or tuple(all_ops())
    by_op = bounded if isinstance(bounded, Mapping) else dict.fromkeys(taken, bounded)
    few = {"bounded": {op: min(by_op[op], count) for op in taken}, "turns": turns, "also": also or {}}
    given = {"backends": backends, "count": count, "ops": taken, "parts": parts or {}}
    return pytest.mark.every_sample(**given, **few)


def few_of(marker: pytest.Mark, op: str, backend: str) -> list[Case]:
    """The op's cases that the bounded suite takes of a test of `every_sample`; `also` is for what does not turn."""
    said, count = marker.kwargs, marker.kwargs["bounded"][op]
    if said["turns"]:
        return spread_by_op(cases(op, backend, said["count"]), count, op)
    return cases(op, backend, count, also=said["also"].get(op, ()))
