"""Losses of rows of logits by other means: Python's floats, `math.fsum` and the definition of each row. No oracle code."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...gauntlet import Problem
from ..answers import given_of, near

__all__ = ["CHECKS"]


def _exp(x: float) -> float:
    return math.nan if math.isnan(x) else math.inf if x > 709 else math.exp(x)


def _lse(row: list[float]) -> float:
    most = max(row)
    if any(map(math.isnan, row)) or most == math.inf:
        return math.nan
    return most if most == -math.inf else most + math.log(math.fsum(_exp(x - most) for x in row))


def _rows(problem: Problem) -> tuple[Any, ...]:
    """Rows of logits, labels, weights, and of each label whether it counts, and whether it is a class."""
    given, desc = given_of(problem), problem.desc
    rows = given["logits"].reshape(-1, desc.shape[-1]).tolist()
    labels = given["labels"].reshape(-1).tolist()
    weights = given.get("weight", np.ones(desc.shape[-1])).tolist()
    counts = [label != desc.ignore_index for label in labels]
    fits = [0 <= label < desc.shape[-1] for label in labels]
    own = [(weights[y] if fit else math.nan) if c else 0.0 for y, c, fit in zip(labels, counts, fits)]
    return rows, labels, weights, counts, own


def _status(problem: Problem, counts: list[bool], own: list[float]) -> None:
    if problem.desc.has("status"):
        near(problem, "status", int(any(c and math.isnan(w) for c, w in zip(counts, own))))


def _forward(problem: Problem) -> None:
    desc, (rows, labels, weights, counts, own) = problem.desc, _rows(problem)
    s, totals, losses, sizes = desc.label_smoothing, [_lse(row) for row in rows], [], []
    for row, total, y, c, w in zip(rows, totals, labels, counts, own):
        terms = [(1 - s) * w * (total - row[y])] if w == w and c else [w]
        if s and c:
            terms += [s / len(row) * v * (total - x) for v, x in zip(weights, row)]
        terms += [desc.z_loss * total * total] if c else []
        losses.append(sum(terms) if not all(map(math.isfinite, terms)) else math.fsum(terms))
        sizes.append(sum(map(abs, terms)) + abs(total) if c else 0.0)
    shape = desc.row_shape
    if desc.reduction == "none":
        near(problem, "out", np.reshape(losses, shape), size=np.reshape(sizes, shape))
    else:
        over = np.float64(math.fsum(own) if desc.reduction == "mean" else 1.0)
        with np.errstate(all="ignore"):
            near(problem, "out", math.fsum(losses) / over, size=math.fsum(sizes) / over)
    if desc.has("lse"):
        near(problem, "lse", np.reshape(totals, shape), size=np.ones(shape))
    _status(problem, counts, own)


def _backward(problem: Problem) -> None:
    desc, (rows, labels, weights, counts, own) = problem.desc, _rows(problem)
    given, s = given_of(problem), desc.label_smoothing
    grads = np.broadcast_to(given["grad"], desc.row_shape).reshape(-1).tolist()
    over = math.fsum(own) if desc.reduction == "mean" else 1.0
    every, found = math.fsum(weights), []
    for row, total, y, c, w, g in zip(rows, given["lse"].reshape(-1).tolist(), labels, counts, own, grads):
        if not c:
            found.append([0.0] * len(row))
            continue
        factor = (1 - s) * w + s / len(row) * every + 2 * desc.z_loss * total
        target = [(1 - s) * w * (i == y) + s / len(row) * v for i, v in enumerate(weights)]
        found.append([g / over * (_exp(x - total) * factor - t) for x, t in zip(row, target)])
    wanted = np.reshape(found, desc.shape)
    near(problem, "grad_logits", wanted, size=np.ones(desc.shape) * np.abs(np.nan_to_num(given["grad"])).max(initial=1))
    _status(problem, counts, own)


CHECKS = {"cross_entropy": _forward, "cross_entropy_backward": _backward}
