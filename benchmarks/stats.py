"""The arithmetic of a figure: medians, paired ratios, alternation. Pure functions."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Iterable, Sequence
from statistics import median
from typing import NamedTuple, TypeVar

__all__ = [
    "Paired",
    "alternated",
    "geometric_mean",
    "interval",
    "median",
    "paired",
    "paired_ratio",
    "repeats_for",
    "rotation",
    "slug",
]

T = TypeVar("T")


def paired_ratio(ours: Sequence[float], other: Sequence[float]) -> float:
    """The median of the per-round ratios ours / other: what drifts over the run drops out."""
    return median(a / b for a, b in zip(ours, other, strict=True))


class Paired(NamedTuple):
    """The per-round ratios ours / other: their median, (largest - smallest) / median, and the median's interval."""

    ratio: float
    spread: float
    interval: tuple[float, float]


def paired(ours: Sequence[float], other: Sequence[float]) -> Paired:
    """What the rounds of two contenders say of each other."""
    ratios = [a / b for a, b in zip(ours, other, strict=True)]
    middle = median(ratios)
    return Paired(middle, (max(ratios) - min(ratios)) / middle, interval(ratios))


def interval(values: Sequence[float], confidence: float = 0.95, resamples: int = 2000) -> tuple[float, float]:
    """Where the median is with that confidence: the bootstrap's percentiles, the same ones for the same values."""
    rng = random.Random(0)
    medians = sorted(median(rng.choices(values, k=len(values))) for _ in range(resamples))
    tail = int((1 - confidence) / 2 * resamples)
    return medians[tail], medians[-1 - tail]


def geometric_mean(values: Iterable[float]) -> float:
    """The geometric mean of positive values; NaN of none."""
    logs = [math.log(v) for v in values]
    return math.exp(sum(logs) / len(logs)) if logs else math.nan


def alternated(names: Sequence[T], round_index: int) -> list[T]:
    """The order of one round: forwards in even rounds, backwards in odd ones (ABBA)."""
    return list(names) if round_index % 2 == 0 else list(reversed(names))


def rotation(set_bytes: int, cold_bytes: int, most: int = 64) -> int:
    """How many operand sets of `set_bytes` make `cold_bytes`: at least 2, at most `most`."""
    return max(2, min(most, -(-cold_bytes // max(set_bytes, 1))))


def repeats_for(replay_us: float, burst_us: float) -> int:
    """How many replays make a burst: as near to `burst_us` as whole replays come, at least 1."""
    return max(1, round(burst_us / replay_us))


def slug(name: str) -> str:
    """A file name for a GPU: ``"NVIDIA H200" -> "nvidia-h200"``."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
