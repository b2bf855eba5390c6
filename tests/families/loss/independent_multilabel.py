"""The multi-label margin loss by other means: Python's floats, one pair of classes at a time. No oracle code."""

from __future__ import annotations

import math

import numpy as np

from ...gauntlet import Problem
from ..answers import given_of, near

__all__ = ["CHECKS"]


def _rows(problem: Problem) -> list[tuple[float, list[float]]]:
    """Of each row the loss, and its derivatives."""
    given, desc = given_of(problem), problem.desc
    classes, found = desc.shape[-1], []
    for x, labels in zip(given["x"].reshape(-1, classes).tolist(), given["target"].reshape(-1, classes).tolist()):
        own = labels[: labels.index(-1)] if -1 in labels else labels
        if not all(0 <= t < classes for t in own):
            found.append((math.nan, [math.nan] * classes))
            continue
        lost, slope = [], [0] * classes
        for i in set(range(classes)) - set(own):
            for t in own:
                if (term := 1 - x[t] + x[i]) > 0:
                    lost.append(term)
                    slope[i], slope[t] = slope[i] + 1, slope[t] - 1
        found.append((math.fsum(lost) / classes, [n / classes for n in slope]))
    if desc.has("status"):
        near(problem, "status", int(any(math.isnan(loss) for loss, _ in found)))
    return found


def _loss(problem: Problem) -> None:
    desc, losses = problem.desc, [loss for loss, _ in _rows(problem)]
    with np.errstate(all="ignore"):
        over = np.float64(len(losses) if desc.reduction == "mean" else 1)
        found = np.reshape(losses, desc.row_shape) if desc.reduction == "none" else math.fsum(losses) / over
    near(problem, "out", found, size=1)


def _slope(problem: Problem) -> None:
    desc, rows = problem.desc, _rows(problem)
    over = max(len(rows), 1) if desc.reduction == "mean" else 1
    grads = np.broadcast_to(given_of(problem)["grad"], desc.row_shape).reshape(-1, 1) / over
    slopes = np.reshape([slope for _, slope in rows], (-1, desc.shape[-1]))
    near(problem, "grad_x", (grads * slopes).reshape(desc.shape), size=1)


CHECKS = {"multilabel_margin_loss": _loss, "multilabel_margin_loss_backward": _slope}
