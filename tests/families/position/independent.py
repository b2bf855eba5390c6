"""Rotary embedding by other means: complex numbers of mpmath, pair by pair, at places over the sample. No oracle code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np

from ...gauntlet import Problem

__all__ = ["CHECKS"]

PAIRS = 60  # of an operand that are checked, evenly over it


def _places(rows: tuple[int, ...], pairs: int) -> list[tuple[int, ...]]:
    """Rows and pairs, by a step that no extent is likely to divide."""
    count = int(np.prod(rows)) * pairs
    return [np.unravel_index(i * 7919 % count, (*rows, pairs)) for i in range(min(count, PAIRS))] if count else []


def _named(problem: Problem, row: tuple[int, ...]) -> dict[str, int]:
    """The row's index along each axis of the layout, those that the array lacks left out."""
    layout = problem.sample.options.get("layout", "BHSD")[:-1]
    return dict(zip(layout[len(layout) - len(row) :], map(int, row)))


def _turn(problem: Problem, at: dict[str, int], pair: int) -> Any:
    """The factor by which a pair's complex number is multiplied; None outside of the tables."""
    slots, options = problem.slots, problem.sample.options
    token = at.get("S", at.get("T", 0))
    if "positions" in slots:
        positions = slots["positions"].host()
        position = int(positions[at["B"], token] if positions.ndim == 2 else positions[token])
    else:
        position = token
    position += options.get("offset", 0)
    scale = mpmath.mpf(options.get("attention_factor", 1.0))
    if "inv_freq" in slots:
        angle = mpmath.mpf(position) * mpmath.mpf(float(slots["inv_freq"].host()[pair]))
        return scale * mpmath.exp(1j * angle)
    cos, sin = slots["cos"].host(), slots["sin"].host()
    if not 0 <= position < len(cos):
        return None
    return scale * mpmath.mpc(float(cos[position, pair]), float(sin[position, pair]))


def _columns(problem: Problem, pair: int, pairs: int) -> tuple[int, int]:
    return (2 * pair, 2 * pair + 1) if problem.sample.options.get("style") == "interleaved" else (pair, pair + pairs)


def _check(problem: Problem, read: str, written: str, *, conjugate: bool) -> None:
    slots = problem.slots
    x, wide = slots[read].host(), np.asarray(problem.wide[written])
    pairs = len(slots["inv_freq"].host()) if "inv_freq" in slots else slots["cos"].host().shape[1]
    assert wide.shape == x.shape
    assert np.array_equal(wide[..., 2 * pairs :], x[..., 2 * pairs :].astype(wide.dtype), equal_nan=True)
    for *row, pair in _places(x.shape[:-1], pairs):
        at = tuple(map(int, row))
        first, second = _columns(problem, int(pair), pairs)
        a, b = float(x[(*at, first)]), float(x[(*at, second)])
        if not (np.isfinite(a) and np.isfinite(b)):
            continue
        with mpmath.workdps(50):
            turn = _turn(problem, _named(problem, at), int(pair))
            wanted = mpmath.mpc(0) if turn is None else mpmath.mpc(a, b) * (turn.conjugate() if conjugate else turn)
            near = 2.0**-48 * (abs(a) + abs(b)) + 1e-300
            for found, part in ((wide[(*at, first)], wanted.real), (wide[(*at, second)], wanted.imag)):
                assert abs(mpmath.mpf(float(found)) - part) <= near, (at, int(pair), found, part)


def _status(problem: Problem) -> None:
    if "status" not in problem.slots:
        return
    rows, offset = len(problem.slots["cos"].host()), problem.sample.options.get("offset", 0)
    status = np.asarray(problem.wide["status"])
    positions = problem.slots["positions"].host() if "positions" in problem.slots else np.arange(len(status))
    assert status.shape == positions.shape
    assert status.ravel().tolist() == [int(not 0 <= int(p) + offset < rows) for p in positions.ravel()]


def _rope(problem: Problem) -> None:
    _check(problem, "x", "out", conjugate=False)
    if "k" in problem.slots:
        _check(problem, "k", "k_out", conjugate=False)
    _status(problem)


def _rope_backward(problem: Problem) -> None:
    _check(problem, "grad", "grad_x", conjugate=True)
    if "k_grad" in problem.slots:
        _check(problem, "k_grad", "grad_k", conjugate=True)
    _status(problem)


CHECKS: dict[str, Callable[[Problem], None]] = {"rope": _rope, "rope_backward": _rope_backward}
