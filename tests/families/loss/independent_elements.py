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

Of = Callable[..., float]


def _softplus(x: float) -> float:
    return math.log(1 + math.exp(x)) if x < 0 else x + math.log(1 + math.exp(-x))


def _log(x: float) -> float:
    return max(math.log(x), -100) if x else -100.0


# Each loss of x, its target and its number, and the derivatives: by x, by a third operand, by the target if there is one.
LOSSES: dict[str, tuple[Of, ...]] = {
    "mse_loss": (lambda x, t, _: (x - t) ** 2, lambda x, t, _: 2 * x - 2 * t, lambda x, t, _: 2 * t - 2 * x),
    "l1_loss": (
        lambda x, t, _: max(x, t) - min(x, t),
        lambda x, t, _: (x > t) - (x < t),
        lambda x, t, _: (t > x) - (t < x),
    ),
    "smooth_l1_loss": (
        lambda x, t, b: (x - t) ** 2 / (2 * b) if abs(x - t) < b else abs(x - t) - b / 2,
        lambda x, t, b: min(max((x - t) / b, -1), 1),
        lambda x, t, b: min(max((t - x) / b, -1), 1),
    ),
    "huber_loss": (
        lambda x, t, b: (x - t) ** 2 / 2 if abs(x - t) < b else b * abs(x - t) - b * b / 2,
        lambda x, t, b: min(max(x - t, -b), b),
        lambda x, t, b: min(max(t - x, -b), b),
    ),
    "bce": (
        lambda x, t, _: -t * _log(x) - (1 - t) * _log(1 - x),
        lambda x, t, _: (1 - t) / (1 - x) - t / x,
        lambda x, t, _: _log(1 - x) - _log(x),
    ),
    "bce_with_logits": (
        lambda x, t, _: t * _softplus(-x) + (1 - t) * _softplus(x),
        lambda x, t, _: (1 - t) / (1 + math.exp(-x)) - t / (1 + math.exp(x)),
        lambda x, t, _: _softplus(-x) - _softplus(x),
    ),
    "kl_div": (
        lambda x, t, _: t * (math.log(t) - x) if t else 0.0,
        lambda x, t, _: -t,
        lambda x, t, _: math.log(t) - x + 1 if t else -math.inf,
    ),
    "soft_margin_loss": (lambda x, t, _: _softplus(-x * t), lambda x, t, _: -t / (1 + math.exp(x * t))),
    "hinge_embedding_loss": (
        lambda x, t, m: x if t == 1 else max(m - x, 0),
        lambda x, t, m: 1.0 if t == 1 else -1.0 if x <= m else 0.0,
    ),
    "poisson_nll_loss": (
        lambda x, t, e: x - t * math.log(x + e),
        lambda x, t, e: (x + e - t) / (x + e),
        lambda x, t, e: -math.log(x + e),
    ),
    "gaussian_nll_loss": (
        lambda x, t, e, v: (math.log(max(v, e)) + (t - x) ** 2 / max(v, e)) / 2,
        lambda x, t, e, v: (x - t) / max(v, e),
        lambda x, t, e, v: (max(v, e) - (t - x) ** 2) / (2 * max(v, e) ** 2),
        lambda x, t, e, v: (t - x) / max(v, e),
    ),
    "margin_ranking_loss": (
        lambda x, t, m, o: max(t * (o - x) + m, 0),
        lambda x, t, m, o: -t if t * (o - x) + m >= 0 else 0.0,
        lambda x, t, m, o: t if t * (o - x) + m >= 0 else 0.0,
        lambda x, t, m, o: o - x if t * (o - x) + m >= 0 else 0.0,
    ),
}
NUMBERS = {"smooth_l1_loss": "beta", "huber_loss": "delta", "hinge_embedding_loss": "margin", "poisson_nll_loss": "eps",
           "gaussian_nll_loss": "eps", "margin_ranking_loss": "margin"}  # fmt: skip


def _stirling(t: float) -> float:
    """The leading terms of log(t!)."""
    return t * math.log(t) - t + math.log(2 * math.pi * t) / 2 if t > 1 else 0.0


# The loss of Poisson's distribution and its derivatives, where x is the logarithm of the mean.
OF_LOGARITHM: tuple[Of, ...] = (
    lambda x, t, _: math.exp(x) - t * x,
    lambda x, t, _: math.exp(x) - t,
    lambda x, t, _: -x,
)


def _stirling_slope(t: float) -> float:
    return math.log(t) + 1 / (2 * t) if t > 1 else 0.0


def _each(problem: Problem, name: str, which: int) -> Any:
    given, desc = given_of(problem), problem.desc
    target = np.exp(given["target"]) if desc.log_target else given["target"]
    of = OF_LOGARITHM[which] if desc.log_input else LOSSES[name][which]
    arrays = [given["x"], target, *(given[third] for third in ("other", "var") if third in given)]
    number = getattr(desc, NUMBERS.get(name, "beta"))
    found = [of(x, t, number, *more) for x, t, *more in zip(*(one.ravel().tolist() for one in arrays))]
    if desc.full and which != 1:
        poisson = name.startswith("poisson")
        added = (_stirling if which == 0 else _stirling_slope) if poisson else lambda _: math.log(2 * math.pi) / 2
        found = [one + added(t) for one, t in zip(found, target.ravel().tolist())]
    if desc.log_target and which == 2:
        found = [one * t for one, t in zip(found, target.ravel().tolist())]
    return np.reshape(found, desc.shape)


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
    grad, outputs = given_of(problem)["grad"], [o.name for o in problem.desc.operands if o.written]
    for which, output in enumerate(outputs, 1):
        with np.errstate(all="ignore"):
            found = np.asarray(_each(problem, name, which) * grad / _over(problem))
        near(problem, output, found, size=np.ones(found.shape) * np.abs(grad).max(initial=0))


CHECKS = {name: partial(_loss, name) for name in LOSSES}
CHECKS |= {f"{name}_backward": partial(_slope, name) for name in LOSSES}
