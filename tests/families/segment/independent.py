"""Segments reduced row by row, by Python's `max`, `min` and `math.fsum`. No oracle code."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np

from ...gauntlet import Problem
from ..answers import given_of, near

__all__ = ["CHECKS"]


def _bounds(offsets: Sequence[int], rows: int) -> list[range]:
    """The rows of each segment; none of any, where offsets are refused."""
    ordered = list(offsets) == sorted(offsets) and offsets[0] >= 0 and offsets[-1] <= rows
    return [range(a, b) if ordered else range(0) for a, b in itertools.pairwise(offsets)]


def _reduced(by: str, cells: list[float]) -> float:
    if by in ("sum", "mean"):
        return math.fsum(cells) / (len(cells) if by == "mean" and cells else 1) if not _endless(cells) else sum(cells)
    if any(map(math.isnan, cells)):
        return math.nan
    return max(cells, default=-math.inf) if by == "max" else min(cells, default=math.inf)


def _endless(cells: list[float]) -> bool:
    return not all(map(math.isfinite, cells))


def _forward(by: str) -> Callable[[Problem], None]:
    def check(problem: Problem) -> None:
        given = given_of(problem)
        x, offsets = given["x"], given["offsets"].tolist()
        rows = x.reshape(len(x), -1) if x.size else np.zeros((len(x), math.prod(x.shape[1:])))
        segments = _bounds(offsets, len(x))
        wanted, size = np.zeros((2, len(segments), rows.shape[1]))
        for s, own in enumerate(segments):
            for c in range(rows.shape[1]):
                cells = [float(rows[i, c]) for i in own]
                wanted[s, c] = _reduced(by, cells)
                size[s, c] = sum(map(abs, cells)) if by in ("sum", "mean") and not _endless(cells) else 0
        shape = (len(segments), *x.shape[1:])
        near(problem, "out", wanted.reshape(shape), size=size.reshape(shape))
        if "status" in problem.wide:
            assert int(problem.wide["status"]) == (any(map(len, segments)) != (offsets[-1] != offsets[0]))

    return check


def _backward(by: str) -> Callable[[Problem], None]:
    def check(problem: Problem) -> None:
        given = given_of(problem)
        x, grad, offsets = given["x"], given["grad"], given["offsets"].tolist()
        wanted = np.zeros(x.shape)
        for s, own in enumerate(_bounds(offsets, len(x))):
            for c in np.ndindex(*x.shape[1:]):
                alike = [True] * len(own)
                if by in ("max", "min"):
                    y = given["y"][(s, *c)]
                    alike = [bool(x[(k, *c)] == y or math.isnan(x[(k, *c)])) for k in own]
                ties = 1 if by == "sum" else sum(alike)
                for i, counts in zip(own, alike):
                    wanted[(i, *c)] = grad[(s, *c)] / ties if counts else 0
        near(problem, "grad_x", wanted)

    return check


CHECKS: dict[str, Callable[[Problem], None]] = {
    **{f"segment_{by}": _forward(by) for by in ("sum", "mean", "max", "min")},
    **{f"segment_{by}_backward": _backward(by) for by in ("sum", "mean", "max", "min")},
}
