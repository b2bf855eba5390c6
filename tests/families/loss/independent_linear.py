"""Linear cross entropy by other means: each logit and each gradient by `math.fsum`, one row at a time. No oracle code."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...gauntlet import Problem
from ..answers import given_of, near

__all__ = ["CHECKS"]


def _dot(a: list[float], b: list[float]) -> float:
    return math.fsum(x * y for x, y in zip(a, b))


def _all(problem: Problem) -> None:
    desc, given = problem.desc, given_of(problem)
    hidden, weight, labels = (given[name].tolist() for name in ("hidden", "weight", "labels"))
    s, z, classes = desc.label_smoothing, desc.z_loss, len(weight)
    logits = [[_dot(h, w) for w in weight] for h in hidden]
    totals = [max(row) + math.log(math.fsum(math.exp(x - max(row)) for x in row)) for row in logits]
    counts = [y != desc.ignore_index for y in labels]
    wrong = [c and not 0 <= y < classes for y, c in zip(labels, counts)]
    q = [[(1 - s) * (j == y) + s / classes for j in range(classes)] for y in labels]
    over = float(sum(counts)) if desc.reduction == "mean" else 1.0
    losses = [
        math.nan if bad else (_dot(share, [lse - x for x in row]) + z * lse * lse if count else 0.0)
        for row, lse, share, count, bad in zip(logits, totals, q, counts, wrong)
    ]
    if "out" in desc.slot_of:
        with np.errstate(all="ignore"):
            out = losses if desc.reduction == "none" else np.float64(math.fsum(losses)) / over
        near(problem, "out", np.asarray(out), size=np.ones(desc.out_shape))
        if desc.has("lse"):
            near(problem, "lse", np.asarray(totals))
    if desc.has("status"):
        near(problem, "status", int(any(wrong)))
    if not desc.gradients:
        return
    grads = np.broadcast_to(given.get("grad", 1.0), len(labels)).tolist()
    held = given["lse"].tolist() if "lse" in given else totals
    if any(wrong) and desc.reduction == "mean":
        over = math.nan
    pulled: list[Any] = []
    for row, lse, share, count, bad, g in zip(logits, held, q, counts, wrong, grads):
        factor = math.nan if bad else 1 + 2 * z * lse
        pulled.append([g / over * (math.exp(x - lse) * factor - t) if count else 0.0 for x, t in zip(row, share)])
    matrix = np.asarray(pulled).reshape(len(labels), classes)
    size = max(1.0, float(np.abs(given.get("grad", 1.0)).max(initial=0)))
    columns = given["weight"].T.tolist(), given["hidden"].T.tolist()
    grad_hidden = [[_dot(row, column) for column in columns[0]] for row in matrix.tolist()]
    grad_weight = [[_dot(row, column) for column in columns[1]] for row in matrix.T.tolist()]
    for name, found in (("grad_hidden", grad_hidden), ("grad_weight", grad_weight)):
        wanted = np.reshape(np.asarray(found, np.float64), desc.layout(name).shape)
        near(problem, name, wanted, size=np.full(wanted.shape, size))


CHECKS = dict.fromkeys(("linear_cross_entropy", "linear_cross_entropy_backward"), _all)
