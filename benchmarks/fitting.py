"""Fits the quantities of a cost model to measured times: least squares of logarithms, within bounds, half held out."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import numpy as np

from baracuda_py.ops._fitted import Fitted, trial
from baracuda_py.types import DeviceSpec

from .stats import geometric_mean
from .timings import Timing

__all__ = ["BOUND", "Fit", "fit", "held_out", "models_read", "split"]

BOUND = 2.0  # a quantity may become so many times smaller or larger
ITERATIONS = 12
STEP = 1e-4  # of a logarithm, for derivatives
LEAST_SLOPE = 1e-6  # of a logarithm of times by one of a quantity: below it, no time depends on the quantity
HUBER = 0.1  # residuals beyond it count linearly
DAMPING, MOST_DAMPING = 1e-3, 1e6
Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Error:
    """How well predictions meet times: the root mean square of their logarithm's error, and what the choice costs."""

    times: float  # 0.1: predictions are off by 10 %
    choice: float  # the time of what is predicted fastest over the fastest of these, in the mean
    count: int
    problems: int

    def __str__(self) -> str:
        choice = "" if math.isnan(self.choice) else f", choice {self.choice - 1:.1%} slower than the fastest"
        return f"times {self.times:.1%} off{choice} ({self.count} times of {self.problems} problems)"


@dataclass(frozen=True)
class Fit:
    """What a fit found. `values` are all of the model's, `fitted` the quantities that were free, and `unread` those that no
    time depends on, which stay as they were."""

    model: type[Fitted]
    start: Mapping[str, Any]
    values: Mapping[str, Any]
    fitted: tuple[str, ...]
    unread: tuple[str, ...]
    counts: tuple[str, ...]  # whole numbers, which are not fitted
    before: tuple[Error, Error]  # of the half that is fitted, and of the other
    after: tuple[Error, Error]

    @property
    def better(self) -> bool:
        """Whether times that were held out are predicted better, and no slower kernels are chosen in either half."""
        slower = any(now.choice > was.choice for was, now in zip(self.before, self.after))
        return self.after[1].times < self.before[1].times and not slower


def models_read(timings: Sequence[Timing], device: DeviceSpec) -> dict[type[Fitted], list[Timing]]:
    """The models that the predictions of these times ask, each with its times."""
    found = defaultdict[type[Fitted], list[Timing]](list)
    for timing in timings:
        with trial(device, {}) as tried:
            timing.predicted(tried.device)
        for model in tried.read:
            found[model].append(timing)
    return dict(found)


def held_out(problem: str) -> bool:
    """Whether a problem's times are left out of a fit; half of all problems are."""
    return bool(crc32(problem.encode()) & 1)


def split(timings: Sequence[Timing]) -> tuple[list[Timing], list[Timing]]:
    """The times to fit and those held out. A problem is wholly in one of the two."""
    return [t for t in timings if not held_out(t.problem)], [t for t in timings if held_out(t.problem)]


def fit(
    model: type[Fitted],
    timings: Sequence[Timing],
    device: DeviceSpec,
    *,
    bound: float = BOUND,
    iterations: int = ITERATIONS,
) -> Fit:
    """The values of a model's quantities that meet the times best, each within `bound` times of what it is."""
    start = dict(vars(model.of(device)))
    counts = tuple(name for name, value in start.items() if _is_count(value))
    places = [(name, i) for name, value in start.items() if name not in counts for i in range(_width(value))]
    seen, other = split(timings)

    def predict(logs: Array, which: Sequence[Timing]) -> Array:
        with trial(device, {model: _with(start, places, logs)}) as tried:
            return np.array([t.predicted(tried.device) for t in which])

    origin = np.zeros(len(places))
    slopes = (
        np.abs(_slopes(lambda logs: np.log(predict(logs, timings)), origin)) if timings else np.zeros((1, len(places)))
    )
    free = [n for n in range(len(places)) if slopes[:, n].max(initial=0.0) > LEAST_SLOPE]
    target = np.log([t.seconds for t in seen])
    weight = _weights(seen)

    def residuals(some: Array) -> Array:
        logs = origin.copy()
        logs[free] = some
        return np.asarray((np.log(predict(logs, seen)) - target) * weight)

    logs = origin.copy()
    if free and len(seen) > len(free):
        logs[free] = _least_squares(residuals, np.zeros(len(free)), math.log(bound), iterations)
    fitted = tuple(dict.fromkeys(places[n][0] for n in free))
    return Fit(
        model, start, _with(start, places, logs), fitted,
        tuple(name for name in start if name not in fitted and name not in counts), counts,
        *((_error(predict(at, seen), seen), _error(predict(at, other), other)) for at in (origin, logs)),
    )  # fmt: skip


def _is_count(value: Any) -> bool:
    return all(isinstance(v, int) for v in (value if isinstance(value, tuple) else (value,)))


def _width(value: Any) -> int:
    return len(value) if isinstance(value, tuple) else 1


def _with(start: Mapping[str, Any], places: Sequence[tuple[str, int]], logs: Array) -> dict[str, Any]:
    """The values with each place's multiplied by the exponential of its entry of `logs`."""
    values = dict(start)
    for (name, i), log in zip(places, logs):
        if log:
            held = values[name]
            values[name] = (
                (*held[:i], held[i] * math.exp(log), *held[i + 1 :])
                if isinstance(held, tuple)
                else held * math.exp(log)
            )
    return values


def _weights(timings: Sequence[Timing]) -> Array:
    """The fastest time of a problem over each: what is far from being chosen counts less."""
    best: dict[str, float] = {}
    for t in timings:
        best[t.problem] = min(t.seconds, best.get(t.problem, math.inf))
    return np.array([best[t.problem] / t.seconds for t in timings])


def _slopes(of: Callable[[Array], Array], at: Array) -> Array:
    base = of(at)
    columns = []
    for n in range(len(at)):
        near = at.copy()
        near[n] += STEP
        columns.append((of(near) - base) / STEP)
    return np.stack(columns, axis=1) if columns else np.zeros((len(base), 0))


def _loss(residuals: Array) -> float:
    """Huber's: square near 0, linear beyond, so that a few outliers do not decide."""
    size = np.abs(residuals)
    return float(np.where(size < HUBER, size**2, 2 * HUBER * size - HUBER**2).sum())


def _least_squares(residuals: Callable[[Array], Array], at: Array, limit: float, iterations: int) -> Array:
    """The Levenberg-Marquardt method with Huber's weights; no entry leaves [-limit, limit]."""
    damping, now = DAMPING, residuals(at)
    for _ in range(iterations):
        slopes = _slopes(residuals, at)
        weight = np.minimum(1.0, HUBER / np.maximum(np.abs(now), 1e-12))[:, None]
        normal, down = slopes.T @ (weight * slopes), slopes.T @ (weight[:, 0] * now)
        before = _loss(now)
        while damping < MOST_DAMPING:
            step = np.linalg.solve(normal + damping * (np.diag(np.diag(normal)) + 1e-9 * np.eye(len(at))), -down)
            new = np.clip(at + step, -limit, limit)
            fresh = residuals(new)
            if _loss(fresh) < before:
                break
            damping *= 4.0
        else:
            return at
        at, now, damping = new, fresh, damping / 4.0
        if before - _loss(now) < 1e-6 * before or _loss(now) < 1e-16:
            break
    return at


def _error(predicted: Array, timings: Sequence[Timing]) -> Error:
    if not timings:
        return Error(math.nan, math.nan, 0, 0)
    problems = defaultdict[str, list[tuple[float, float]]](list)
    for t, seconds in zip(timings, predicted):
        problems[t.problem].append((float(seconds), t.seconds))
    choices = [min(of)[1] / min(seconds for _, seconds in of) for of in problems.values() if len(of) > 1]
    logs = np.log(predicted) - np.log([t.seconds for t in timings])
    return Error(float(np.sqrt((logs**2).mean())), geometric_mean(choices), len(timings), len(problems))
