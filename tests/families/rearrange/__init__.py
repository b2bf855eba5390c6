"""Elements at other places by other means: lists of Python's own for each axis. No oracle code."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import baracuda_py as bp

from ...gauntlet import Problem
from .. import Family, NoMeaning
from ..answers import given_of, near

__all__ = ["FAMILY"]

Array = np.ndarray[Any, Any]
Places = Sequence[int | None]  # along one axis: of each element of the result, its index in x; None for a constant


def _several(value: Any) -> list[int]:
    return [value] if isinstance(value, int) else list(value)


def _bytes(x: Array) -> Array:
    """Each element's bytes, along a new last axis."""
    flat = np.ascontiguousarray(x).reshape(-1)
    return flat.view(np.uint8).reshape(*np.shape(x), flat.dtype.itemsize)


def _same(problem: Problem, places: Sequence[Places], x: Array | None = None, constant: bytes | None = None) -> None:
    """Whether each element of the result has the bytes of x at these places."""
    source, got = _bytes(problem.slots["x"].host() if x is None else x), _bytes(problem.wide["out"])
    wanted = np.zeros((*map(len, places), source.shape[-1]), np.uint8)
    if constant is not None:
        wanted[...] = np.frombuffer(constant, np.uint8)
    to = [[i for i, place in enumerate(axis) if place is not None] for axis in places]
    of = [[place for place in axis if place is not None] for axis in places]
    wanted[np.ix_(*to, range(source.shape[-1]))] = source[np.ix_(*of, range(source.shape[-1]))]
    assert np.array_equal(got, wanted)


def _roll(problem: Problem) -> None:
    x, options = problem.slots["x"].host(), problem.sample.options
    sign = -1 if problem.op.name == "roll_backward" else 1
    shifts = [sign * by for by in _several(options["shift"])]
    flat = options.get("axis") is None
    shape = (x.size,) if flat else x.shape
    axes = [0] if flat else [axis % x.ndim for axis in _several(options["axis"])]
    places = [list(range(n)) for n in shape]
    for axis, by in zip(axes, shifts * len(axes) if len(shifts) == 1 else shifts):
        for _ in range(abs(by) % max(shape[axis], 1)):
            places[axis] = [places[axis][-1], *places[axis][:-1]] if by > 0 else [*places[axis][1:], places[axis][0]]
    if flat:
        assert [v.tobytes() for v in np.asarray(problem.wide["out"]).ravel()] == [
            x.ravel()[at].tobytes() for at in places[0]
        ]
    else:
        _same(problem, places)


def _flip(problem: Problem) -> None:
    x, axis = problem.slots["x"].host(), problem.sample.options.get("axis")
    along = range(x.ndim) if axis is None else [a % x.ndim for a in _several(axis)]
    _same(problem, [list(range(n))[:: -1 if a in along else 1] for a, n in enumerate(x.shape)])


def _tile(problem: Problem) -> None:
    x, reps = problem.slots["x"].host(), _several(problem.sample.options["reps"])
    rank = max(x.ndim, len(reps))
    shape, counts = [1] * (rank - x.ndim) + list(x.shape), [1] * (rank - len(reps)) + reps
    _same(problem, [list(range(n)) * count for n, count in zip(shape, counts)], x.reshape(shape))


def _repeat(problem: Problem) -> None:
    x, options = problem.slots["x"].host(), problem.sample.options
    axis, repeats = options.get("axis"), options["repeats"]
    x = x.ravel() if axis is None else x
    along = (axis or 0) % x.ndim
    _same(
        problem, [[i for i in range(n) for _ in range(repeats if a == along else 1)] for a, n in enumerate(x.shape)], x
    )


def _continued(n: int, before: int, after: int, mode: str) -> Places:
    """Place by place, by walking."""
    if mode == "constant":
        return [i if 0 <= i < n else None for i in range(-before, n + after)]
    if mode in ("edge", "replicate"):
        return [sorted((0, i, n - 1))[1] for i in range(-before, n + after)]
    once = list(range(n))
    cycle = {"reflect": once + once[-2:0:-1], "symmetric": once + once[::-1]}.get(mode, once)
    return [cycle[i % len(cycle)] for i in range(-before, n + after)]


def _pad_sums(problem: Problem, places: Sequence[Places]) -> None:
    """Element by element: the terms of the gradient whose place holds it, summed exactly."""
    x = given_of(problem)["x"]
    terms: dict[tuple[Any, ...], list[Any]] = {}
    for at in np.ndindex(x.shape):
        terms.setdefault(tuple(axis[i] for axis, i in zip(places, at)), []).append(x[at])
    made, size = np.zeros_like(problem.wide["out"], x.dtype), np.zeros_like(problem.wide["out"], x.dtype)
    assert len(terms) == made.size
    with np.errstate(all="ignore"):
        for at, each in terms.items():
            made[at], size[at] = sum(each, 0 * x.dtype.type(0)), sum(map(abs, each))
    near(problem, "out", made, float(max(map(len, terms.values()), default=1)), size)


def _pad(problem: Problem) -> None:
    x, options = problem.slots["x"].host(), problem.sample.options
    sign, mode = -1 if problem.op.name == "pad_backward" else 1, options.get("mode", "constant")
    width = np.broadcast_to(np.asarray(options["pad_width"], int).reshape(-1, 2) if np.ndim(options["pad_width"]) else
                            np.full((1, 2), options["pad_width"]), (x.ndim, 2))  # fmt: skip
    if sign < 0 and mode != "constant":
        _pad_sums(problem, [_continued(n - int(a + b), int(a), int(b), mode) for n, (a, b) in zip(x.shape, width)])
        return
    places = [_continued(n, sign * int(a), sign * int(b), mode) for n, (a, b) in zip(x.shape, width)]
    _same(problem, places, constant=np.array([options.get("constant_values", 0)]).astype(x.dtype).tobytes())


def _diag(problem: Problem) -> None:
    x, k = problem.slots["x"].host(), problem.sample.options.get("k", 0)
    got, source = _bytes(problem.wide["out"]), _bytes(x)
    assert got.shape[0] == got.shape[1] == x.size + abs(k)
    for row, column in np.ndindex(got.shape[:2]):
        held = source[row + min(k, 0)] if column - row == k else np.zeros_like(got[0, 0])
        assert np.array_equal(got[row, column], held)


def _triangle(problem: Problem) -> None:
    x, k = problem.slots["x"].host(), problem.sample.options.get("k", 0)
    got, source = _bytes(problem.wide["out"]), _bytes(x)
    for row in range(x.shape[-2]):
        for column in range(x.shape[-1]):
            stays = column >= row + k if problem.op.name == "triu" else column <= row + k
            one = got[..., row, column, :]
            assert np.array_equal(one, source[..., row, column, :] if stays else np.zeros_like(one))


def _join(problem: Problem) -> None:
    pieces = [slot.host() for name, slot in problem.slots.items() if name != "out"]
    got, axis = np.asarray(problem.wide["out"]), problem.sample.options.get("axis", 0)
    if problem.sample.options.get("stacked"):
        parts = [got[(slice(None),) * (axis % got.ndim) + (i,)] for i in range(got.shape[axis])]
    else:
        ends = [sum(x.shape[axis] for x in pieces[: i + 1]) for i in range(len(pieces))]
        at = (slice(None),) * (axis % got.ndim)
        parts = [got[(*at, slice(end - x.shape[axis], end))] for x, end in zip(pieces, ends)]
        assert got.shape[axis] == ends[-1]
    assert [np.ascontiguousarray(part).tobytes() for part in parts] == [
        np.ascontiguousarray(x).tobytes() for x in pieces
    ]
    assert math.prod(got.shape) == sum(x.size for x in pieces)


def _of_copies(problem: Problem) -> None:
    """Element by element: those of the gradient whose index, by the forward op's rule, is that of x."""
    given, options = given_of(problem), problem.sample.options
    grad, x = given["grad"], given["x"]
    if problem.op.name == "tile_backward":
        shape = (1,) * (grad.ndim - x.ndim) + x.shape
        indices = (tuple(i % max(n, 1) for i, n in zip(at, shape)) for at in np.ndindex(grad.shape))
    else:
        axis, repeats = options.get("axis"), options["repeats"]
        shape = (x.size,) if axis is None else x.shape
        along = (axis or 0) % len(shape)
        indices = (tuple(i // repeats if a == along else i for a, i in enumerate(at)) for at in np.ndindex(grad.shape))
    terms: dict[tuple[int, ...], list[Any]] = {at: [] for at in np.ndindex(shape)}
    for at, term in zip(indices, grad.ravel()):
        terms[at].append(term)
    with np.errstate(all="ignore"):
        made = np.array([sum(each, 0 * x.dtype.type(0)) for each in terms.values()], x.dtype).reshape(x.shape)
        size = np.array([sum(map(abs, each)) for each in terms.values()], x.dtype).reshape(x.shape)
    near(problem, "grad_x", made, 36.0, size)


CHECKS: dict[str, Callable[[Problem], None]] = {
    "roll": _roll, "roll_backward": _roll, "flip": _flip, "tile": _tile, "repeat_interleave": _repeat, "pad": _pad,
    "pad_backward": _pad, "triu": _triangle, "tril": _triangle, "diag": _diag, "join": _join,
    "tile_backward": _of_copies, "repeat_interleave_backward": _of_copies,
}  # fmt: skip

FAMILY = Family(
    independent=CHECKS,
    always=("axis", "k", "mode", "stacked", "grad_x", *(f"x{i}" for i in range(1, 16))),
    also={
        "join": ("bf16 transposed", "f32 stepped, stacked"),
        "pad_backward": ("bf16[5, 46] {'pad_width': ((2, 1), (9, 17)), 'mode': 'edge'}",),
        "repeat_interleave_backward": (
            "f32 grad stepped, without axis",
            "bf16[3, 64] repeats=3 axis=0",
            "f32 many copies",
        ),
        "tile_backward": ("f32 many copies", "complex128[3, 1] reps=(1, 70)"),
    },
    no_meaning=(
        NoMeaning(
            "pad", ((np.zeros(3), 1), {"mode": "edge", "constant_values": 2}), bp.InvalidProblemError, "no meaning"
        ),
    ),
    cases={
        "numpy_test.py::test_rearrange_random_calls_match_numpy": 0,
        "views_test.py::test_rot90_equals_numpy_in_one_launch": ("-1-cpu", "0-cpu", "1-cpu", "2-cpu", "1-ptx"),
        "rearrange_test.py::test_concatenate_takes_any_number_of_arrays": ("1-cpu", "1-ptx", "16-cpu", "40-cpu"),
    },
)
