"""Elements picked and found by other means: line by line, by NumPy's own modes and indices. No oracle code."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ...arena import as_bytes
from ...gauntlet import Problem
from ..answers import given_of, near

__all__ = ["CHECKS"]


def _take_along_axis(problem: Problem) -> None:
    """Line by line, by `np.take`, whose modes are NumPy's own."""
    x, indices = problem.slots["x"].host(), problem.slots["indices"].host()
    mode, axis = problem.sample.options["mode"], problem.sample.options.get("axis", -1)
    got = np.moveaxis(as_bytes(np.ascontiguousarray(problem.wide["out"])), axis, -1)
    x, indices = np.moveaxis(as_bytes(x), axis, -1), np.moveaxis(indices, axis, -1)
    bad = 0
    for line in np.ndindex(*got.shape[:-1]):
        at = tuple(0 if n == 1 else i for n, i in zip(x.shape, line))
        places = indices[tuple(0 if n == 1 else i for n, i in zip(indices.shape, line))]
        for j, place in enumerate(places.tolist()):
            if mode != "status":
                assert got[(*line, j)].tobytes() == np.take(x[at], [place], mode=mode).tobytes()
                continue
            try:
                assert got[(*line, j)].tobytes() == list(x[at])[place].tobytes()
            except IndexError:
                bad += 1
                assert got[(*line, j)].tobytes() == bytes(x.itemsize)
    if mode == "status":
        assert int(problem.wide["status"]) == (bad > 0)


def _nonzero(problem: Problem) -> None:
    x = problem.slots["x"].host()
    wanted = [list(at) for at in np.ndindex(*x.shape) if bool(x[at])]
    assert problem.wide["out"].tolist() == wanted
    assert problem.wide["count"].tolist() == [len(wanted)]


def _line(i: int, extent: int, mode: str, *, from_the_end: bool = False) -> int | None:
    """The line that an index names, by Python's own arithmetic; None if there is none."""
    if mode == "clip":
        return sorted((0, i, extent - 1))[1]
    if mode == "wrap":
        return i % extent
    return range(extent)[i] if (-extent if from_the_end else 0) <= i < extent else None


def _select(lines: str, index: str, result: str = "out") -> Callable[[Problem], None]:
    """Line by line, by slices of NumPy's arrays."""

    def check(problem: Problem) -> None:
        x, indices = problem.slots[lines].host(), problem.slots[index].host()
        options = problem.sample.options
        axis, mode = options.get("axis", 0) % x.ndim, options.get("mode", "status")
        got, x = problem.wide[result], as_bytes(np.ascontiguousarray(x))
        got = as_bytes(np.ascontiguousarray(got)).reshape(*x.shape[:axis], -1, *x.shape[axis + 1 :])
        named = [_line(i, x.shape[axis], mode) for i in indices.ravel().tolist()]
        for i, line in enumerate(named):
            own, before = got[(slice(None),) * axis + (i,)], (slice(None),) * axis
            assert own.tobytes() == (bytes(own.nbytes) if line is None else x[(*before, line)].tobytes())
        if "status" in problem.wide:
            assert int(problem.wide["status"]) == (None in named)

    return check


def _sums_of_lines(result: str, lines: str, index: str) -> Callable[[Problem], None]:
    """Line by line, summed by `math.fsum`."""

    def check(problem: Problem) -> None:
        given, options = given_of(problem), problem.sample.options
        shape, indices = given[lines].shape, given[index]
        axis, mode = options.get("axis", 0) % len(shape), options.get("mode", "status")
        rest = (*shape[:axis], *shape[axis + 1 :])
        grad = np.moveaxis(given["grad"].reshape(*shape[:axis], indices.size, *shape[axis + 1 :]), axis, 0).reshape(
            indices.size, math.prod(rest)
        )
        named = [_line(i, shape[axis], mode) for i in indices.ravel().tolist()]
        padding = options.get("padding_idx")
        wanted, size = np.zeros((2, shape[axis], grad.shape[1]))
        for line in {*named} - {None, None if padding is None else range(shape[axis])[padding]}:
            cells = grad[[i for i, one in enumerate(named) if one == line]].T.tolist()
            wanted[line], size[line] = list(map(math.fsum, cells)), [math.fsum(map(abs, cell)) for cell in cells]
        wanted, size = (np.moveaxis(a.reshape(shape[axis], *rest), 0, axis) for a in (wanted, size))
        near(problem, result, wanted, size=size)

    return check


def _sums_of_places(problem: Problem) -> None:
    """Element by element, summed by `math.fsum`."""
    given, options = given_of(problem), problem.sample.options
    grad, x, indices = given["grad"], given["x"], given["indices"]
    axis, mode = options.get("axis", -1) % x.ndim, options.get("mode", "status")
    found: dict[tuple[int, ...], list[float]] = {}
    for at in np.ndindex(*grad.shape):
        line = _line(
            int(indices[tuple(i % n for i, n in zip(at, indices.shape))]), x.shape[axis], mode, from_the_end=True
        )
        if line is not None:
            place = tuple(line if a == axis else i % x.shape[a] for a, i in enumerate(at))
            found.setdefault(place, []).append(float(grad[at]))
    wanted, size = np.zeros((2, *x.shape))
    for place, cells in found.items():
        wanted[place], size[place] = math.fsum(cells), math.fsum(map(abs, cells))
    near(problem, "grad_x", wanted, size=size)


def _sent(axis_by_default: int, index: str, *, lines: bool) -> Callable[[Problem], None]:
    """Element by element, in order, by Python's own `max`, `min` and `math.fsum`."""

    def check(problem: Problem) -> None:
        options, op = problem.sample.options, problem.desc.op
        x, src, indices = (problem.slots[name].host() for name in ("x", "src", index))
        axis, mode = options.get("axis", axis_by_default) % x.ndim, options.get("mode", "status")
        by = {"index_add": "add", "index_copy": "set"}.get(op) or options.get("reduce", "set")
        found: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
        bad = False
        for at in np.ndindex(*src.shape):
            line = _line(int(indices[at[axis : axis + indices.ndim] if lines else at]), x.shape[axis], mode)
            bad |= line is None
            if line is not None:
                place = (*at[:axis], line, *at[axis + (indices.ndim if lines else 1) :])
                found.setdefault(place, []).append(at)
        if "status" in problem.wide:
            assert int(problem.wide["status"]) == bad
        if by == "set":
            wanted = x.copy()
            for place, several in found.items():
                wanted[place] = src[several[-1]]
            assert np.array_equal(as_bytes(wanted), as_bytes(np.ascontiguousarray(problem.wide["out"])))
            return
        sums, size = x.astype(np.float64), np.abs(x.astype(np.float64))
        for place, several in found.items():
            if x.dtype.kind in "iu":  # Python's own whole numbers, wrapped
                numbers = [int(x[place]), *(int(src[at]) for at in several)]
                exact = {"add": sum, "prod": math.prod, "max": max, "min": min}[by](numbers)
                wrapped = exact % (1 << 8 * x.itemsize)
                assert int(problem.wide["out"][place]) % (1 << 8 * x.itemsize) == wrapped, place
                continue
            cells = [float(x[place]), *(float(src[at]) for at in several)]
            terms = len(cells) if by == "mean" else 1
            size[place] = math.fsum(map(abs, cells)) / terms if by in ("add", "mean") else 0
            sums[place] = math.fsum(cells) / terms if by in ("add", "mean") else _chosen(cells, by)
        if x.dtype.kind not in "iu":
            near(problem, "out", sums, size=size)

    return check


def _sent_back(axis_by_default: int, index: str, *, lines: bool) -> Callable[[Problem], None]:
    """Element by element, in order: a later index takes a place from an earlier one, where places are set."""

    def check(problem: Problem) -> None:
        options, grad, indices = problem.sample.options, problem.slots["grad"].host(), problem.slots[index].host()
        axis, mode = options.get("axis", axis_by_default) % grad.ndim, options.get("mode", "status")
        sets = options.get("reduce", "set") == "set"
        wanted, rest = np.zeros(problem.wide["grad_src"].shape, grad.dtype), grad.copy()
        holder: dict[tuple[int, ...], tuple[int, ...]] = {}
        for at in np.ndindex(*wanted.shape):
            line = _line(int(indices[at[axis : axis + indices.ndim] if lines else at]), grad.shape[axis], mode)
            if line is None:
                continue
            place = (*at[:axis], line, *at[axis + (indices.ndim if lines else 1) :])
            if sets:
                wanted[holder.get(place, at)], rest[place] = 0, 0
            holder[place], wanted[at] = at, grad[place]
        for name, right in (("grad_src", wanted), ("grad_x", rest)):
            assert np.array_equal(as_bytes(right), as_bytes(np.ascontiguousarray(problem.wide[name])))

    return check


def _parts(by: str, cells: list[float], y: float) -> list[tuple[float, float]]:
    """What the gradient of a place's result is multiplied by for each of its elements, and the size of its terms."""
    if by == "mean":
        return [(1 / len(cells), 0)] * len(cells)
    if by == "prod":
        others = [math.prod(cells[:i] + cells[i + 1 :]) for i in range(len(cells))]
        if not all(map(math.isfinite, cells)):  # as torch: y / x
            others = [y / x if x else part if cells.count(0) == 1 else y for x, part in zip(cells, others)]
        return [(part, abs(part)) for part in others]
    tied = [x == y or math.isnan(x) for x in cells]
    return [(counts / sum(tied), 0) for counts in tied]


def _reduced_back(problem: Problem) -> None:
    """Element by element: products of the others of a place, and counts, in Python's own numbers."""
    given, options = given_of(problem), problem.sample.options
    grad, indices, by = given["grad"], given["indices"], options["reduce"]
    axis, mode = options.get("axis", -1) % grad.ndim, options.get("mode", "status")
    x, src = (given.get(name, np.zeros(like.shape)) for name, like in (("x", grad), ("src", indices)))
    found: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
    for at in np.ndindex(*indices.shape):
        line = _line(int(indices[at]), grad.shape[axis], mode)
        if line is not None:
            found.setdefault((*at[:axis], line, *at[axis + 1 :]), []).append(at)
    (own, own_size), (sent, sent_size) = np.zeros((2, *grad.shape)), np.zeros((2, *indices.shape))
    for place in np.ndindex(*grad.shape):
        several = found.get(place, [])
        y = float(given["y"][place]) if "y" in given else 0.0
        parts = _parts(by, [float(x[place]), *(float(src[at]) for at in several)], y)
        parts = [(grad[place] * part, abs(grad[place]) * size) for part, size in parts]
        own[place], own_size[place] = parts[0]
        for at, (part, size) in zip(several, parts[1:]):
            sent[at], sent_size[at] = part, size
    near(problem, "grad_x", own, size=own_size)
    near(problem, "grad_src", sent, size=sent_size)


def _scatter_backward(problem: Problem) -> None:
    moved = problem.sample.options.get("reduce", "set") in ("set", "add")
    (_sent_back(-1, "indices", lines=False) if moved else _reduced_back)(problem)


def _chosen(cells: list[float], by: str) -> float:
    return math.nan if any(map(math.isnan, cells)) else {"max": max, "min": min, "prod": math.prod}[by](cells)


CHECKS: dict[str, Callable[[Problem], None]] = {
    "take_along_axis": _take_along_axis, "nonzero": _nonzero, "index_select": _select("x", "index"),
    "embedding": _select("weight", "ids"), "index_add_backward": _select("grad", "index", "grad_src"),
    "index_select_backward": _sums_of_lines("grad_x", "x", "index"),
    "embedding_backward": _sums_of_lines("grad_weight", "weight", "ids"), "take_along_axis_backward": _sums_of_places,
    "index_add": _sent(0, "index", lines=True), "index_copy": _sent(0, "index", lines=True),
    "scatter": _sent(-1, "indices", lines=False), "index_copy_backward": _sent_back(0, "index", lines=True),
    "scatter_backward": _scatter_backward,
}  # fmt: skip
