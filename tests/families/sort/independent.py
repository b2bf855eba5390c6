"""Elements in order, by rank and by place by other means: Python's own sort. No oracle code."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable

import numpy as np

from baracuda_py.types import ElementKind

from ...arena import as_bytes
from ...gauntlet import Problem

__all__ = ["CHECKS"]


def _topk(problem: Problem) -> None:
    """Python's own sort, of (is NaN, number, -place)."""
    options, x = problem.sample.options, problem.slots["x"].host()
    axis, largest, k = options.get("axis", -1), options.get("largest", True), options["k"]
    rows, values, indices = (np.moveaxis(a, axis, -1) for a in (x, problem.wide["values"], problem.wide["indices"]))
    for at in np.ndindex(*rows.shape[:-1]):
        numbers = [float(v) if problem.desc.element.is_float else int(v) for v in rows[at]]
        keys = [(v != v, 0 if v != v else v) for v in numbers]
        order = sorted(range(len(keys)), key=keys.__getitem__, reverse=largest)  # stable, reversed too
        first = order[:k] if options.get("sorted", True) else sorted(order[:k])
        assert indices[at].tolist() == first
        assert (
            as_bytes(np.ascontiguousarray(values[at])).tolist()
            == as_bytes(np.ascontiguousarray(rows[at]))[first].tolist()
        )


def _ordered(problem: Problem) -> None:
    """Python's own sort, of (is NaN, number), which keeps the order of equal elements, reversed too."""
    options, x = problem.sample.options, problem.slots["x"].host()
    axis, descending = options.get("axis", -1), options.get("descending", False)
    whole = "values" in problem.wide
    places = problem.wide["indices" if whole else "out"]
    rows, found = np.moveaxis(x, axis, -1), np.moveaxis(places, axis, -1)
    assert places.dtype == options.get("index_dtype", ElementKind.I64).dtype
    for at in np.ndindex(*rows.shape[:-1]):
        numbers = [float(v) if problem.desc.element.is_float else int(v) for v in rows[at]]
        keys = [(v != v, 0 if v != v else v) for v in numbers]
        order = sorted(range(len(keys)), key=keys.__getitem__, reverse=descending)
        assert found[at].tolist() == order
        if whole:
            values = np.ascontiguousarray(np.moveaxis(problem.wide["values"], axis, -1)[at])
            assert as_bytes(values).tolist() == as_bytes(np.ascontiguousarray(rows[at]))[order].tolist()


def _searchsorted(problem: Problem) -> None:
    """Elements of the row that come before the value, counted one by one."""
    sequence, given, places = (
        problem.slots["sorted_sequence"].host(),
        problem.slots["values"].host(),
        problem.wide["out"],
    )
    right = problem.sample.options.get("right", False)
    kind = float if problem.desc.element.is_float else int
    for at in np.ndindex(*given.shape):
        row = sequence[at[:-1]] if sequence.ndim > 1 else sequence
        value, numbers = kind(given[at]), [kind(one) for one in row]
        before = [one < value or (one == one and value != value) for one in numbers]
        equal = [one == value or (one != one and value != value) for one in numbers]
        assert places[at] == sum(before) + (sum(equal) if right else 0)


def _ranked(problem: Problem) -> None:
    """Python's own sort, of (is NaN, number); of a row with NaN the first of these is the median."""
    options, x = problem.sample.options, problem.slots["x"].host()
    axis, kept = options.get("axis", -1), options.get("keepdims", False)
    rows, found = np.moveaxis(x, axis, -1), []
    for name in ("values", "indices"):
        assert problem.wide[name].ndim == x.ndim - (not kept)
        found.append(np.moveaxis(problem.wide[name], axis, -1) if kept else problem.wide[name][..., None])
    values, places = found
    for at in np.ndindex(*rows.shape[:-1]):
        numbers = [float(v) if problem.desc.element.is_float else int(v) for v in rows[at]]
        keys = [(v != v, 0 if v != v else v) for v in numbers]
        rank = options["k"] - 1 if "k" in options else (len(keys) - 1) // 2
        place = sorted(range(len(keys)), key=keys.__getitem__)[rank]
        if "k" not in options and (True, 0) in keys:
            place = keys.index((True, 0))
        assert places[at].tolist() == [place]
        assert (
            as_bytes(np.ascontiguousarray(values[at])).tobytes()
            == as_bytes(rows[at][place : place + 1].copy()).tobytes()
        )


def _placed(problem: Problem) -> None:
    """Each row's element of grad, put where its index says."""
    options = problem.sample.options
    axis, kept = options.get("axis", -1), options.get("keepdims", False)
    grad, indices = (problem.slots[name].host() for name in ("grad", "indices"))
    made = problem.wide["grad_x"]
    wanted = np.zeros(made.shape, made.dtype)
    lines = np.moveaxis(wanted, axis, -1)
    if kept:
        grad, indices = np.squeeze(grad, axis), np.squeeze(indices, axis)
    for at in np.ndindex(*lines.shape[:-1]):
        if 0 <= indices[at] < lines.shape[-1]:
            lines[at][int(indices[at])] = grad[at]
    assert as_bytes(np.ascontiguousarray(made)).tobytes() == as_bytes(wanted).tobytes()


def _counted(problem: Problem) -> None:
    """Counts of a dictionary."""
    length, x = problem.sample.options["length"], problem.slots["x"].host()
    found = Counter(map(int, x.reshape(-1)))
    assert problem.wide["out"].tolist() == [found[value] for value in range(length)]
    if "status" in problem.wide:
        assert int(problem.wide["status"]) == any(not 0 <= value < length for value in found)


def _in_intervals(problem: Problem) -> None:
    """The stated formula, in Python's floats; and numpy.histogram, of elements that are not within a few ulps of an edge."""
    options, x = problem.sample.options, problem.slots["x"].host()
    bins, low, high = options["bins"], options["low"], options["high"]
    numbers = [float(value) for value in x.reshape(-1)]
    inside = [value for value in numbers if low <= value <= high]
    places = Counter(min(math.floor((value - low) * (bins / (high - low))), bins - 1) for value in inside)
    assert problem.wide["out"].tolist() == [places[place] for place in range(bins)]
    scale, near = bins / (high - low), 0
    for value in inside:
        place = (value - low) * scale
        near += abs(place - round(place)) < 1e-9 * bins
    wanted, _ = np.histogram(np.asarray(numbers), bins, (low, high))
    assert np.abs(problem.wide["out"] - wanted).sum() <= 2 * near


def _distinct(problem: Problem) -> None:
    """Classes of equal elements, gathered in Python's own order: by value if sorted, else run by run."""
    options, x, desc = problem.sample.options, problem.slots["x"].host(), problem.desc
    flat = np.ascontiguousarray(x).reshape(-1)
    numbers = [float(v) if desc.element.is_float else int(v) for v in flat]
    keys = [(v != v, 0 if v != v else v) for v in numbers]
    order = sorted(range(len(keys)), key=keys.__getitem__) if desc.op == "unique" else list(range(len(keys)))
    classes: list[list[int]] = []
    for place in order:
        separate = keys[place][0] and not options.get("equal_nan", False)
        if classes and keys[classes[-1][0]] == keys[place] and not separate:
            classes[-1].append(place)
        else:
            classes.append([place])
    size, wide = options.get("size", flat.size), problem.wide
    kept = (classes + [classes[0]] * size if classes else [])[:size]
    rest = max(size - len(classes), 0)
    first = as_bytes(flat[[places[0] for places in kept]]).copy()
    if rest and "fill_value" in options:
        first[len(classes) :] = as_bytes(np.full(rest, options["fill_value"], flat.dtype))
    assert as_bytes(np.ascontiguousarray(wide["out"])).tolist() == first.tolist()
    assert wide["count"].tolist() == [len(classes)]
    if "inverse" in wide:
        assert wide["inverse"].shape == x.shape
        of = {place: i for i, places in enumerate(classes) for place in places}
        assert wide["inverse"].reshape(-1).tolist() == [of[place] for place in range(flat.size)]
    if "counts" in wide:
        assert wide["counts"].tolist() == [len(places) for places in classes[:size]] + [0] * rest
    if "index" in wide:
        assert wide["index"].tolist() == [places[0] for places in kept]


def _isin(problem: Problem) -> None:
    """Python's own comparison with each, one by one."""
    elements, tested = (problem.slots[name].host() for name in ("elements", "test_elements"))
    read = float if problem.desc.element.is_float else int
    others, invert = [read(x) for x in tested.ravel()], problem.sample.options.get("invert", False)
    wanted = [any(read(x) == other for other in others) != invert for x in elements.ravel()]
    assert problem.wide["out"].ravel().tolist() == wanted


CHECKS: dict[str, Callable[[Problem], None]] = {
    "argsort": _ordered, "bincount": _counted, "histogram": _in_intervals, "isin": _isin,
    "kthvalue": _ranked, "kthvalue_backward": _placed,
    "median": _ranked, "searchsorted": _searchsorted, "sort": _ordered, "topk": _topk,
    "unique": _distinct, "unique_consecutive": _distinct,
}  # fmt: skip
