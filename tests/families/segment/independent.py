"""Segments and bags reduced row by row, by Python's `max`, `min` and `math.fsum`. No oracle code."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np

from ...gauntlet import Problem
from ..answers import given_of, near

__all__ = ["CHECKS"]


def _bounds(offsets: Sequence[int], rows: int) -> list[range]:
    """The rows of each segment; none of any, where offsets are refused."""
    ordered = list(offsets) == sorted(offsets) and offsets[0] >= 0 and offsets[-1] <= rows
    return [range(a, b) if ordered else range(0) for a, b in itertools.pairwise(offsets)]


def _reduced(by: str, cells: list[float]) -> float:
    if by in ("sum", "mean"):
        return math.fsum(cells) / (len(cells) if by == "mean" and cells else 1) if not _endless(cells) else sum(cells)
    if any(map(math.isnan, cells)):
        return math.nan
    if by == "prod":
        return math.prod(cells)
    if by == "logsumexp":
        most = max(cells, default=-math.inf)
        return most if math.isinf(most) else most + math.log(math.fsum(math.exp(x - most) for x in cells))
    return max(cells, default=-math.inf) if by == "max" else min(cells, default=math.inf)


def _endless(cells: list[float]) -> bool:
    return not all(map(math.isfinite, cells))


def _forward(by: str) -> Callable[[Problem], None]:
    def check(problem: Problem) -> None:
        given = given_of(problem)
        x, offsets = given["x"], given["offsets"].tolist()
        rows = x.reshape(len(x), -1) if x.size else np.zeros((len(x), math.prod(x.shape[1:])))
        segments = _bounds(offsets, len(x))
        wanted, size = np.zeros((2, len(segments), rows.shape[1]))
        for s, own in enumerate(segments):
            for c in range(rows.shape[1]):
                cells = [float(rows[i, c]) for i in own]
                wanted[s, c] = _reduced(by, cells)
                size[s, c] = (
                    sum(map(abs, cells)) if by in ("sum", "mean") and not _endless(cells) else by == "logsumexp"
                )
        shape = (len(segments), *x.shape[1:])
        near(problem, "out", wanted.reshape(shape), size=size.reshape(shape))
        if "status" in problem.wide:
            assert int(problem.wide["status"]) == (any(map(len, segments)) != (offsets[-1] != offsets[0]))

    return check


def _backward(by: str) -> Callable[[Problem], None]:
    def check(problem: Problem) -> None:
        given = given_of(problem)
        x, grad, offsets = given["x"], given["grad"], given["offsets"].tolist()
        wanted = np.zeros(x.shape)
        for s, own in enumerate(_bounds(offsets, len(x))):
            for c in np.ndindex(*x.shape[1:]):
                alike = [True] * len(own)
                if by in ("max", "min"):
                    y = given["y"][(s, *c)]
                    alike = [bool(x[(k, *c)] == y or math.isnan(x[(k, *c)])) for k in own]
                ties = 1 if by == "sum" else sum(alike)
                for i, counts in zip(own, alike):
                    wanted[(i, *c)] = grad[(s, *c)] / ties if counts else 0
        near(problem, "grad_x", wanted)

    return check


def _prod_backward(problem: Problem) -> None:
    """Products of the others, one by one; of segments with infinities or NaN, as torch: result / x."""
    given = given_of(problem)
    x, grad = given["x"], given["grad"]
    wanted = np.zeros(x.shape)
    for s, own in enumerate(_bounds(given["offsets"].tolist(), len(x))):
        for c in np.ndindex(*x.shape[1:]):
            cells = [float(x[(i, *c)]) for i in own]
            nothing = cells.count(0) > 1 and not _endless(cells)
            for k, i in enumerate(own):
                direct = not _endless(cells) or (cells[k] == 0 and cells.count(0) == 1)
                others = math.prod(cells[:k] + cells[k + 1 :]) if direct and not nothing else 0.0
                if not direct:
                    others = math.prod(cells) / (cells[k] or 1)
                wanted[(i, *c)] = grad[(s, *c)] * others
    near(problem, "grad_x", wanted, size=np.abs(wanted))


def _logsumexp_backward(problem: Problem) -> None:
    given = given_of(problem)
    x, y, grad = given["x"], given["y"], given["grad"]
    wanted = np.zeros(x.shape)
    for s, own in enumerate(_bounds(given["offsets"].tolist(), len(x))):
        for i, *c in ((i, *c) for i in own for c in np.ndindex(*x.shape[1:])):
            at, most = float(x[(i, *c)]), float(y[(s, *c)])
            wanted[(i, *c)] = grad[(s, *c)] * np.exp(at - (0 if most == -math.inf else most))
    near(problem, "grad_x", wanted)


def _softmax(problem: Problem) -> None:
    given = given_of(problem)
    x, wanted = given["x"], np.zeros(given["x"].shape)
    segments = _bounds(given["offsets"].tolist(), len(x))
    for own, c in ((own, c) for own in segments for c in np.ndindex(*x.shape[1:])):
        cells = [float(x[(i, *c)]) for i in own]
        most = max(cells, default=0.0)
        terms = (
            [math.nan] * len(cells)
            if any(map(math.isnan, cells)) or math.isinf(most)
            else [math.exp(x - most) for x in cells]
        )
        for i, term in zip(own, terms):
            wanted[(i, *c)] = term / math.fsum(terms)
    near(problem, "out", wanted)
    if "status" in problem.wide:
        assert int(problem.wide["status"]) == (any(map(len, segments)) != (given["offsets"][-1] != given["offsets"][0]))


def _softmax_backward(problem: Problem) -> None:
    given = given_of(problem)
    y, grad = given["y"], given["grad"]
    wanted, size = np.zeros((2, *y.shape))
    for own, c in ((own, c) for own in _bounds(given["offsets"].tolist(), len(y)) for c in np.ndindex(*y.shape[1:])):
        products = [float(y[(i, *c)] * grad[(i, *c)]) for i in own]
        for i in own:
            wanted[(i, *c)] = y[(i, *c)] * (grad[(i, *c)] - math.fsum(products))
            size[(i, *c)] = abs(y[(i, *c)]) * (abs(grad[(i, *c)]) + math.fsum(map(abs, products)))
    near(problem, "grad_x", wanted, size=size)


def _bags(problem: Problem) -> list[tuple[int, list[tuple[int, float, int]]]]:
    """Of each bag, the entries that count: their position, weight and row."""
    given, options = given_of(problem), problem.sample.options
    ids, n = given["input"], len(given["weight"])
    padding = options.get("padding_idx")
    padding = None if padding is None else padding % n
    flat, weights = ids.reshape(-1).tolist(), given.get("per_sample_weights", np.ones(ids.shape)).reshape(-1).tolist()
    if "offsets" in given:
        bounds = [*given["offsets"].tolist(), *([] if options.get("include_last_offset") else [ids.size])]
    else:
        bounds = list(range(0, ids.size + 1, ids.shape[1]))
    return [
        (s, [(i, weights[i], flat[i]) for i in own if 0 <= flat[i] < n and flat[i] != padding])
        for s, own in enumerate(_bounds(bounds, ids.size))
    ]


def _bag(problem: Problem) -> None:
    weight, by, bags = given_of(problem)["weight"], problem.sample.options.get("reduce", "mean"), _bags(problem)
    wanted, size = np.zeros((2, len(bags), weight.shape[1]))
    for s, entries in bags:
        for c in range(weight.shape[1]) if entries else ():
            cells = [float(weight[row, c]) * scale for _, scale, row in entries]
            wanted[s, c] = _reduced(by, cells)
            size[s, c] = sum(map(abs, cells)) if by != "max" and not _endless(cells) else 0
    near(problem, "out", wanted, size=size)


def _bag_backward(problem: Problem) -> None:
    given, by = given_of(problem), problem.sample.options.get("reduce", "mean")
    weight, grad = given["weight"], given["grad"]
    wanted, size = np.zeros((2, *weight.shape))
    products, sizes = np.zeros((2, given["input"].size))
    for s, entries in _bags(problem):
        for c in range(weight.shape[1]) if entries else ():
            cells = [float(weight[row, c]) for _, _, row in entries]
            most = _reduced("max", cells)
            tied = [by != "max" or x == most or math.isnan(x) for x in cells]
            for (i, scale, row), counts in zip(entries, tied):
                part = grad[s, c] * scale / (1 if by == "sum" else sum(tied)) if counts else 0
                wanted[row, c] += part
                size[row, c] += abs(part)
                products[i] += weight[row, c] * grad[s, c]
                sizes[i] += abs(weight[row, c] * grad[s, c])
    near(problem, "grad_weight", wanted, size=size)
    if "per_sample_weights" in given:
        shape = given["input"].shape
        near(problem, "grad_per_sample_weights", products.reshape(shape), size=sizes.reshape(shape))


def _offsets(problem: Problem) -> None:
    ids, segments = given_of(problem)["ids"].tolist(), problem.sample.options["segments"]
    assert problem.wide["out"].tolist() == [sum(own < s for own in ids) for s in range(segments + 1)]


CHECKS: dict[str, Callable[[Problem], None]] = {
    **{f"segment_{by}": _forward(by) for by in ("sum", "mean", "max", "min", "prod", "logsumexp")},
    **{f"segment_{by}_backward": _backward(by) for by in ("sum", "mean", "max", "min")},
    "segment_prod_backward": _prod_backward,
    "segment_logsumexp_backward": _logsumexp_backward,
    "segment_softmax": _softmax,
    "segment_softmax_backward": _softmax_backward,
    "segment_offsets": _offsets,
    "embedding_bag": _bag,
    "embedding_bag_backward": _bag_backward,
}
