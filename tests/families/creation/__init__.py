"""Arrays made of numbers by other means: Python's loops, fractions. No oracle code."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from baracuda_py.types import ElementKind

from ...gauntlet import Problem
from .. import Family
from ..answers import near

__all__ = ["FAMILY"]


def _fill(problem: Problem) -> None:
    got, x = np.asarray(problem.wide["x"]), problem.slots["x"].host()
    one = np.array([problem.sample.options["value"]]).astype(x.dtype)
    assert got.shape == x.shape and got.dtype == x.dtype
    assert all(np.array([value]).tobytes() == one.tobytes() for value in got.ravel())


def _marked(got: Any, marks: list[int], columns: int) -> None:
    one, zero = np.ones(1, got.dtype)[0].tobytes(), np.zeros(1, got.dtype)[0].tobytes()
    wanted = [one if column == mark else zero for mark in marks for column in range(columns)]
    assert [x.tobytes() for x in got.ravel()] == wanted


def _eye(problem: Problem) -> None:
    got, k = np.asarray(problem.wide["x"]), problem.sample.options.get("k", 0)
    assert got.shape == problem.slots["x"].host().shape and got.dtype == problem.slots["x"].host().dtype
    _marked(got, [row + k for row in range(got.shape[0])], got.shape[1])


def _one_hot(problem: Problem) -> None:
    indices, options = problem.slots["indices"].host(), problem.sample.options
    got = np.asarray(problem.wide["out"])
    assert got.shape == (*indices.shape, options["num_classes"])
    assert got.dtype == ElementKind.of(options.get("dtype", "i64")).dtype
    _marked(got, [int(i) for i in indices.ravel()], options["num_classes"])


def _arange(problem: Problem) -> None:
    options, got = problem.sample.options, np.asarray(problem.wide["x"])
    wanted = list(
        itertools.islice(itertools.count(Fraction(options.get("start", 0)), Fraction(options.get("step", 1))), got.size)
    )
    if got.dtype.kind in "iu":
        assert got.ravel().tolist() == [int(x) for x in wanted]
    else:
        near(
            problem,
            "x",
            np.reshape([float(x) for x in wanted], got.shape),
            size=float(max(map(abs, wanted), default=0)),
        )


def _linspace(problem: Problem) -> None:
    options, shape = problem.sample.options, problem.slots["x"].host().shape
    start, stop, num = Fraction(options["start"]), Fraction(options["stop"]), int(np.prod(shape))
    parts = max(num - options.get("endpoint", True), 1)
    wanted = [float(start + (stop - start) * Fraction(i, parts)) for i in range(num)]
    near(problem, "x", np.reshape(wanted, shape), size=float(abs(start) + abs(stop)))


CHECKS: dict[str, Callable[[Problem], None]] = {
    "fill": _fill, "fill_eye": _eye, "one_hot": _one_hot, "fill_arange": _arange, "fill_linspace": _linspace,
}  # fmt: skip

FAMILY = Family(
    independent=CHECKS,
    always=("dtype", "endpoint", "k", "start", "step"),
)
