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


def _ahead(problem: Problem, x: Any, wide: Any, edge: float, reverse: bool) -> tuple[Any, Any]:
    """x and results in the direction of the scan; of an exclusive one, without the last term, and without the first result, which
    must be `edge`."""
    axis = problem.sample.options.get("axis", -1)
    assert wide.shape == x.shape
    if reverse:
        x, wide = np.flip(x, axis), np.flip(wide, axis)
    if problem.sample.options.get("exclusive") and x.size:
        assert (np.take(wide, 0, axis) == edge).all()
        x, wide = (np.delete(a, place, axis) for a, place in ((x, -1), (wide, 0)))
    return x, wide


def _cumsum(problem: Problem) -> None:
    reverse = bool(problem.sample.options.get("reverse"))
    _sums(problem, *_ahead(problem, problem.slots["x"].host(), np.asarray(problem.wide["out"]), 0, reverse))


def _cumsum_backward(problem: Problem) -> None:
    reverse = not problem.sample.options.get("reverse")
    _sums(problem, *_ahead(problem, problem.slots["grad"].host(), np.asarray(problem.wide["grad_x"]), 0, reverse))


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


def _running(of: Callable[[list[Any]], Any], edge: float = 0) -> Callable[[Problem], None]:
    """By `of` all terms up to a place, of some places."""

    def check(problem: Problem) -> None:
        options = problem.sample.options
        axis, x, wide = options.get("axis", -1), problem.slots["x"].host(), np.asarray(problem.wide["out"])
        x, wide = _ahead(problem, x, wide, edge, bool(options.get("reverse")))
        if not x.size:
            return
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


def _gradient(
    of: Callable[[list[float], list[float], list[float], int], tuple[float, float]],
) -> Callable[[Problem], None]:
    """By `of` a line's grad, x and y, and a place: the gradient there, and the size of its terms."""

    def check(problem: Problem) -> None:
        options, wide = problem.sample.options, np.asarray(problem.wide["grad_x"])
        axis = options.get("axis", -1)
        arrays = [np.asarray(problem.slots[name].host()) for name in ("grad", "x", "y")]
        assert wide.shape == arrays[1].shape
        if not wide.size:
            return
        ahead = [np.flip(a, axis) if options.get("reverse") else a for a in (*arrays, wide)]
        grad, x, y, made = (np.moveaxis(a, axis, -1).reshape(-1, a.shape[axis]) for a in ahead)
        if options.get("exclusive"):  # the last element has no part in any result
            assert (made[:, -1] == 0).all()
            grad, x, y, made = grad[:, 1:], x[:, :-1], y[:, 1:], made[:, :-1]
        for i in _places(len(x), 4):
            line = [[float(v) for v in a[i]] for a in (grad, x, y)]
            for j in _places(len(line[0]), PLACES):
                wanted, size = of(*line, j)
                got = float(made[i, j])
                assert got == wanted or (got != got and wanted != wanted) or abs(got - wanted) <= 2.0**-36 * size

    return check


def _added(terms: list[float]) -> tuple[float, float]:
    finite = all(map(math.isfinite, terms))
    return (math.fsum(terms), math.fsum(map(abs, terms))) if finite else (sum(terms), math.inf)


def _of_product(grad: list[float], x: list[float], y: list[float], i: int) -> tuple[float, float]:
    factor, terms = y[i - 1] if i else 1.0, []
    for j in range(i, len(x)):
        factor *= x[j] if j > i else 1.0
        terms.append(grad[j] * factor)
    return _added(terms)


def _of_extremum(grad: list[float], x: list[float], y: list[float], i: int) -> tuple[float, float]:
    """What torch's indices say: the last place up to each one that holds the extremum, or NaN."""
    nan, terms, own = any(v != v for v in x[: i + 1]), [], x[i]
    if (nan and own == own) or (not nan and own != y[i]):
        return 0.0, 0.0
    for j in range(i, len(x)):
        if j > i and (x[j] != x[j] or (own == own and x[j] == y[j])):
            break
        terms.append(grad[j])
    return _added(terms)


def _of_logarithm(grad: list[float], x: list[float], y: list[float], i: int) -> tuple[float, float]:
    if x[i] == y[i] == -math.inf or x[i] != x[i] or y[i] != y[i]:
        return math.nan, 0.0
    return _added([g * math.exp(x[i] - v) for g, v in zip(grad[i:], y[i:])])


CHECKS: dict[str, Callable[[Problem], None]] = {
    "cumsum": _cumsum,
    "cumsum_backward": _cumsum_backward,
    "cumprod": _running(math.prod, 1),
    "cummax": _running(_extremum(max)),
    "cummin": _running(_extremum(min)),
    "logcumsumexp": _running(_logsumexp, -math.inf),
    "cumprod_backward": _gradient(_of_product),
    "cummax_backward": _gradient(_of_extremum),
    "cummin_backward": _gradient(_of_extremum),
    "logcumsumexp_backward": _gradient(_of_logarithm),
}
