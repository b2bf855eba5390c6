"""Losses of rows by other means: Python's floats, one row at a time, gradients from the slopes of distances. No oracle code."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ...gauntlet import Problem
from ..answers import given_of, near

__all__ = ["CHECKS"]

Row = list[float]
Of = Callable[[Any, dict[str, Any]], tuple[float, list[Row]]]  # the loss of a row, and its derivatives by each input


def _cosine(desc: Any, row: dict[str, Any]) -> tuple[float, list[Row]]:
    (a, b), target = (row["x1"], row["x2"]), row["target"]
    one, other = (math.sqrt(math.fsum(v * v for v in x) + 1e-12) for x in (a, b))
    cosine = math.fsum(x * y for x, y in zip(a, b)) / one / other
    loss = {1.0: 1 - cosine, -1.0: max(cosine - desc.margin, 0.0)}.get(target, 0.0)
    sign = -1.0 if target == 1 else float(target == -1 and cosine >= desc.margin)
    slopes = [
        [y / other - cosine * x / one for x, y in zip(a, b)],
        [x / one - cosine * y / other for x, y in zip(a, b)],
    ]
    return loss, [[sign * v / size for v in slope] for slope, size in zip(slopes, (one, other))]


def _distance(a: Row, b: Row, p: float, eps: float) -> tuple[float, Row]:
    """The p-norm of a - b + eps, and its derivative by a."""
    difference = [x - y + eps for x, y in zip(a, b)]
    size = math.fsum(abs(v) ** p for v in difference) ** (1 / p)
    return size, [math.copysign((abs(v) / size) ** (p - 1), v) if v and size else 0.0 for v in difference]


def _triplet(desc: Any, row: dict[str, Any]) -> tuple[float, list[Row]]:
    anchor, positive, negative = (row[name] for name in ("anchor", "positive", "negative"))
    (near_size, near_slope), (far_size, far_slope) = (
        _distance(anchor, other, desc.p, desc.eps) for other in (positive, negative)
    )
    far = [[-v for v in far_slope], [0.0] * len(anchor), far_slope]
    if desc.swap and (across := _distance(positive, negative, desc.p, desc.eps))[0] < far_size:
        far_size, slope = across
        far = [[0.0] * len(anchor), [-v for v in slope], slope]
    excess = desc.margin + near_size - far_size
    close = [near_slope, [-v for v in near_slope], [0.0] * len(anchor)]
    live = float(excess >= 0)
    return max(excess, 0.0), [[live * (x + y) for x, y in zip(one, other)] for one, other in zip(close, far)]


def _multi_margin(desc: Any, row: dict[str, Any]) -> tuple[float, list[Row]]:
    x, label = row["x"], row["target"]
    if not 0 <= label < len(x):
        return math.nan, [[math.nan] * len(x)]
    over = [0.0 if i == label else max(desc.margin - x[label] + v, 0.0) for i, v in enumerate(x)]
    share = row["weight"][label] / len(x) if "weight" in row else 1 / len(x)
    slope = [share * (1.0 if desc.p == 1 else 2 * v) if v > 0 else 0.0 for v in over]
    slope[label] = -math.fsum(slope)
    return share * math.fsum(v**desc.p for v in over), [slope]


def _soft_margin(desc: Any, row: dict[str, Any]) -> tuple[float, list[Row]]:  # noqa: ARG001
    x, target = row["x"], row["target"]
    weight = row.get("weight", [1.0] * len(x))
    chance = [(1 / (1 + math.exp(-v)), 1 / (1 + math.exp(v))) for v in x]
    each = [-w * (t * math.log(p) + (1 - t) * math.log(q)) for w, t, (p, q) in zip(weight, target, chance)]
    slope = [w * ((1 - t) * p - t * q) / len(x) for w, t, (p, q) in zip(weight, target, chance)]
    of_target = [w * (math.log(q) - math.log(p)) / len(x) for w, (p, q) in zip(weight, chance)]
    return math.fsum(each) / len(x), [slope, of_target]


LOSSES: dict[str, Of] = {
    "cosine_embedding_loss": _cosine,
    "triplet_margin_loss": _triplet,
    "multi_margin_loss": _multi_margin,
    "multilabel_soft_margin_loss": _soft_margin,
}


def _rows(problem: Problem, of: Of) -> list[tuple[float, list[Row]]]:
    given, desc = given_of(problem), problem.desc
    found, width, weight = [], desc.shape[-1], given.pop("weight", None)
    given.pop("grad", None)
    each = {n: x.reshape(-1, width) if x.shape == desc.shape else x.reshape(-1) for n, x in given.items()}
    for i in range(math.prod(desc.shape[:-1])):
        row = {n: x[i].tolist() for n, x in each.items()}
        found.append(of(desc, row if weight is None else {**row, "weight": weight.tolist()}))
    if desc.op.startswith("multi_margin") and desc.has("status"):
        near(problem, "status", int(any(math.isnan(loss) for loss, _ in found)))
    return found


def _loss(name: str, problem: Problem) -> None:
    desc, losses = problem.desc, [loss for loss, _ in _rows(problem, LOSSES[name])]
    with np.errstate(all="ignore"):
        over = np.float64(len(losses) if desc.reduction == "mean" else 1)
        found = np.reshape(losses, desc.shape[:-1]) if desc.reduction == "none" else math.fsum(losses) / over
    near(problem, "out", found, size=1)


def _slope(name: str, problem: Problem) -> None:
    desc, rows = problem.desc, _rows(problem, LOSSES[name])
    over = max(len(rows), 1) if desc.reduction == "mean" else 1
    grads = np.broadcast_to(given_of(problem)["grad"], desc.shape[:-1]).reshape(-1, 1) / over
    for which, output in enumerate(o.name for o in desc.operands if o.written and o.name != "status"):
        slopes = np.reshape([slopes[which] for _, slopes in rows], (-1, desc.shape[-1]))
        near(problem, output, (grads * slopes).reshape(desc.shape), size=1)


CHECKS = {name: partial(_loss, name) for name in LOSSES}
CHECKS |= {f"{name}_backward": partial(_slope, name) for name in LOSSES}
