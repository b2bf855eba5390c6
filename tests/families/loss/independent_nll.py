"""The negative log-likelihood by other means: Python's floats, one row at a time. No oracle code."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...gauntlet import Problem
from ..answers import given_of, near

__all__ = ["CHECKS"]


def _rows(problem: Problem) -> tuple[Any, ...]:
    """Rows, labels, of each row the weight of its label, and what the result is divided by."""
    given, desc = given_of(problem), problem.desc
    classes = desc.shape[-1]
    labels = given["labels"].reshape(-1).tolist()
    weights = given["weight"].tolist() if "weight" in given else [1.0] * classes
    own = [0.0 if y == desc.ignore_index else weights[y] if 0 <= y < classes else math.nan for y in labels]
    if desc.has("status"):
        near(problem, "status", int(any(map(math.isnan, own))))
    return given, labels, own, np.float64(math.fsum(own) if desc.reduction == "mean" else 1.0)


def _forward(problem: Problem) -> None:
    desc, (given, labels, own, over) = problem.desc, _rows(problem)
    rows = given["x"].reshape(-1, desc.shape[-1]).tolist()
    losses = [w if w != w or not w else -w * row[y] for row, y, w in zip(rows, labels, own)]
    with np.errstate(all="ignore"):
        found = np.reshape(losses, desc.row_shape) if desc.reduction == "none" else math.fsum(losses) / over
    near(problem, "out", found, size=1)


def _backward(problem: Problem) -> None:
    desc, (given, labels, own, over) = problem.desc, _rows(problem)
    grads = np.broadcast_to(given["grad"], desc.row_shape).reshape(-1).tolist()
    found = [[math.nan if w != w else 0.0] * desc.shape[-1] for w in own]
    for row, y, w, g in zip(found, labels, own, grads):
        if w == w and y != desc.ignore_index:
            row[y] = -g * w / over
    near(problem, "grad_x", np.reshape(found, desc.shape), size=1)


CHECKS = {"nll_loss": _forward, "nll_loss_backward": _backward}
