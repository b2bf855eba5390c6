"""Losses of elements by other means: Python's floats, one element at a time. No oracle code."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ...gauntlet import Problem
from ..answers import given_of, near

__all__ = ["CHECKS"]

Of = Callable[[float, float, float], float]


def _softplus(x: float) -> float:
    return math.log(1 + math.exp(x)) if x < 0 else x + math.log(1 + math.exp(-x))


def _log(x: float) -> float:
    return max(math.log(x), -100) if x else -100.0


# Each loss of x, its target and its number, and the derivative by x.
LOSSES: dict[str, tuple[Of, Of]] = {
    "mse_loss": (lambda x, t, _: (x - t) ** 2, lambda x, t, _: 2 * x - 2 * t),
    "l1_loss": (lambda x, t, _: max(x, t) - min(x, t), lambda x, t, _: (x > t) - (x < t)),
    "smooth_l1_loss": (
        lambda x, t, b: (x - t) ** 2 / (2 * b) if abs(x - t) < b else abs(x - t) - b / 2,
        lambda x, t, b: min(max((x - t) / b, -1), 1),
    ),
    "huber_loss": (
        lambda x, t, b: (x - t) ** 2 / 2 if abs(x - t) < b else b * abs(x - t) - b * b / 2,
        lambda x, t, b: min(max(x - t, -b), b),
    ),
    "bce": (lambda x, t, _: -t * _log(x) - (1 - t) * _log(1 - x), lambda x, t, _: (1 - t) / (1 - x) - t / x),
    "bce_with_logits": (
        lambda x, t, _: t * _softplus(-x) + (1 - t) * _softplus(x),
        lambda x, t, _: (1 - t) / (1 + math.exp(-x)) - t / (1 + math.exp(x)),
    ),
    "kl_div": (lambda x, t, _: t * (math.log(t) - x) if t else 0.0, lambda x, t, _: -t),
    "soft_margin_loss": (lambda x, t, _: _softplus(-x * t), lambda x, t, _: -t / (1 + math.exp(x * t))),
}


def _each(problem: Problem, name: str, which: int) -> Any:
    given, desc = given_of(problem), problem.desc
    target = np.exp(given["target"]) if desc.log_target else given["target"]
    of = LOSSES[name][which]
    pairs = zip(given["x"].ravel().tolist(), target.ravel().tolist())
    return np.reshape([of(x, t, desc.beta * desc.delta) for x, t in pairs], desc.shape)


def _over(problem: Problem) -> float:
    desc = problem.desc
    return float({"mean": math.prod(desc.shape), "batchmean": desc.shape[0]}.get(desc.reduction, 1))


def _loss(name: str, problem: Problem) -> None:
    found = _each(problem, name, 0)
    if problem.desc.reduction == "none":
        near(problem, "out", found, size=np.ones(found.shape))
        return
    with np.errstate(all="ignore"):
        near(problem, "out", np.float64(math.fsum(found.ravel())) / _over(problem), size=1)


def _slope(name: str, problem: Problem) -> None:
    found, grad = _each(problem, name, 1), given_of(problem)["grad"]
    with np.errstate(all="ignore"):
        found = np.asarray(found * grad / _over(problem))
    near(problem, "grad_x", found, size=np.ones(found.shape) * np.abs(grad).max(initial=0))


CHECKS = {name: partial(_loss, name) for name in LOSSES}
CHECKS |= {f"{name}_backward": partial(_slope, name) for name in LOSSES}
