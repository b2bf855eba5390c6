"""Running sums by other means: Python's integers, and `math.fsum`, which rounds the exact sum once. No oracle code."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ...gauntlet import Problem

__all__ = ["CHECKS"]

LINES, PLACES = 12, 12  # that are checked of a sample, evenly over it: a sum of its own each


def _places(n: int, most: int) -> list[int]:
    return sorted({int(i) for i in np.linspace(0, n - 1, min(n, most))}) if n else []


def _cumsum(problem: Problem) -> None:
    _sums(problem, problem.slots["x"].host(), np.asarray(problem.wide["out"]))


def _cumsum_backward(problem: Problem) -> None:
    axis = problem.sample.options.get("axis", -1)
    grad, wide = problem.slots["grad"].host(), np.asarray(problem.wide["grad_x"])
    _sums(problem, np.flip(grad, axis), np.flip(wide, axis))


def _sums(problem: Problem, x: np.ndarray[Any, Any], wide: np.ndarray[Any, Any]) -> None:
    """Whether `wide` are the running sums of x along the problem's axis."""
    assert wide.shape == x.shape
    if not x.size:
        return
    axis = problem.sample.options.get("axis", -1)
    rows = np.moveaxis(x, axis, -1).reshape(-1, x.shape[axis])
    sums = np.moveaxis(wide, axis, -1).reshape(-1, x.shape[axis])
    for i in _places(len(rows), LINES):
        for j in _places(rows.shape[1], PLACES):
            terms = rows[i, : j + 1].tolist() if x.dtype.kind in "iu" else [float(v) for v in rows[i, : j + 1]]
            if x.dtype.kind in "iu":
                assert int(sums[i, j]) % (1 << 64) == sum(terms) % (1 << 64)
            elif any(math.isnan(v) for v in terms) or {math.inf, -math.inf} <= set(terms):
                assert math.isnan(sums[i, j])
            elif not all(map(math.isfinite, terms)):
                assert sums[i, j] == next(v for v in terms if math.isinf(v))
            elif max(map(abs, terms)) < 1e300:  # beyond, an exact sum may not be a number of 64 bits
                size = math.fsum(map(abs, terms))
                assert abs(float(sums[i, j]) - math.fsum(terms)) <= size * 2.0**-38


def _running(of: Callable[[list[Any]], Any]) -> Callable[[Problem], None]:
    """By `of` all terms up to a place, of some places."""

    def check(problem: Problem) -> None:
        options = problem.sample.options
        axis, x, wide = options.get("axis", -1), problem.slots["x"].host(), np.asarray(problem.wide["out"])
        assert wide.shape == x.shape
        if options.get("reverse"):
            x, wide = np.flip(x, axis), np.flip(wide, axis)
        whole = x.dtype.kind in "iu"
        rows, made = (np.moveaxis(a, axis, -1).reshape(-1, x.shape[axis]) for a in (x, wide))
        for i in _places(len(rows), LINES):
            for j in _places(rows.shape[1], PLACES):
                got, wanted = made[i, j], of([int(v) if whole else float(v) for v in rows[i, : j + 1]])
                if whole:
                    assert (int(got) - wanted) % (1 << 64) == 0
                else:
                    assert (
                        got == wanted
                        or abs(got - wanted) <= 2.0**-36 * max(abs(wanted), 2.0**-1000)
                        or (math.isnan(got) and math.isnan(wanted))
                    )

    return check


def _extremum(of: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
    return lambda terms: math.nan if any(v != v for v in terms) else of(terms)


def _logsumexp(terms: list[float]) -> float:
    most = _extremum(max)(terms)
    return most if not math.isfinite(most) else most + math.log(math.fsum(math.exp(v - most) for v in terms))


CHECKS: dict[str, Callable[[Problem], None]] = {
    "cumsum": _cumsum,
    "cumsum_backward": _cumsum_backward,
    "cumprod": _running(math.prod),
    "cummax": _running(_extremum(max)),
    "cummin": _running(_extremum(min)),
    "logcumsumexp": _running(_logsumexp),
}
