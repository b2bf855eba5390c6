"""Samples of the gradients of what picks by index: few and many lines per index, runs that cross chunks, and layouts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ....samples.sample import Sample, layouts, values
from ....types import ElementKind

__all__ = [
    "embedding_backward",
    "index_copy_backward",
    "index_select_backward",
    "scatter_backward",
    "take_along_axis_backward",
]

KINDS = (ElementKind.F32, ElementKind.BF16, ElementKind.F16, ElementKind.F64)
LINES = (  # x, index, axis, how many of x's lines are named
    ((9, 64), (50,), 0, 9),
    ((7, 33), (2, 90), 0, 2),
    ((3, 11, 24), (70,), 1, 3),
    ((5, 6), (7, 1), -1, 6),
    ((4, 3, 2), (), 1, 3),
    ((600,), (400,), 0, 600),
    ((4, 6), (0,), 1, 6),
)


def index_select_backward(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:  # noqa: ARG001
    """Every kind, both kinds of index, every mode, any axis, and layouts."""
    rng = np.random.default_rng(seed)

    def picked(shape: tuple[int, ...], taken: tuple[int, ...], axis: int) -> tuple[int, ...]:
        axis %= len(shape)
        return *shape[:axis], *taken, *shape[axis + 1 :]

    for i, (shape, taken, axis, named) in enumerate(LINES):
        for element in KINDS if full or not i else (KINDS[i % len(KINDS)],):
            mode = ("status", "clip", "wrap")[i % 3]
            low, high = (0, named) if mode == "status" else (-named, 2 * named)
            operands = {
                "grad": values(rng, picked(shape, taken, axis), element),
                "index": rng.integers(low, high, taken, (np.int64, np.int32)[i % 2]), "x": values(rng, shape, element),
            }  # fmt: skip
            yield Sample(
                f"{element}{list(shape)}{list(taken)} axis {axis} {mode}", operands, {"axis": axis, "mode": mode}
            )
    x, index = values(rng, (9, 16), ElementKind.F32), rng.integers(0, 9, (12, 8))
    grad = values(rng, (12, 8, 16), ElementKind.F32)
    for name, view in layouts(grad).items():
        yield Sample(f"grad {name}", {"grad": view, "index": index, "x": x}, {})
    for name, view in layouts(index).items():
        yield Sample(f"index {name}", {"grad": grad, "index": view, "x": x}, {})
    yield Sample("x transposed", {"grad": grad, "index": index, "x": np.zeros((16, 9), np.float32).T}, {})


def embedding_backward(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:  # noqa: ARG001
    """Uniform ids and equal ones, more than one tile of the sort, two and three digits, a row for padding."""
    rng = np.random.default_rng(seed)
    for i, (shape, ids) in enumerate(
        (((50, 64), (3, 40)), ((11, 33), (400,)), ((300, 8), (2, 3, 5)), ((4, 520), (90,)))
    ):
        for element in KINDS if full or not i else (KINDS[i],):
            given = rng.integers(0, shape[0], ids, (np.int64, np.int32)[i % 2])
            operands = {
                "grad": values(rng, (*ids, shape[1]), element), "ids": given, "weight": values(rng, shape, element),
            }  # fmt: skip
            yield Sample(f"{element}{list(shape)}{list(ids)}", operands, {})
    weight = values(rng, (300, 4), ElementKind.F32)
    cases: tuple[tuple[str, Any, dict[str, Any]], ...] = (
        ("equal ids", np.full(700, 7), {}),
        ("equal ids of padding", np.full(70, 7), {"padding_idx": 7}),
        ("padding counted from the end", rng.integers(290, 300, 100), {"padding_idx": -1}),
        ("ids clipped", rng.integers(-300, 600, 100), {"mode": "clip"}),
        ("several tiles", np.minimum(rng.zipf(1.3, 4500), 300) - 1, {}),
        ("no ids", np.zeros((0,), np.int64), {}),
    )
    for label, taken, options in cases:
        grad = values(rng, (*taken.shape, 4), ElementKind.F32)
        yield Sample(label, {"grad": grad, "ids": taken, "weight": weight}, options)
    wide = {"grad": values(rng, (40, 2), ElementKind.F32), "weight": np.zeros((70_000, 2), np.float32)}
    yield Sample("three digits", {**wide, "ids": rng.integers(0, 70_000, 40)}, {})


PLACES = (  # x, indices, axis
    ((7, 33), (7, 5), 1),
    ((33, 7), (40, 7), 0),
    ((23,), (200,), -1),
    ((5, 1, 9), (1, 6, 4), -1),
    ((3, 8, 5), (3, 1, 5), 1),
    ((4, 6), (0, 6), 0),
    ((2, 3, 2, 3, 4), (2, 1, 2, 3, 6), 4),
)


def take_along_axis_backward(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:  # noqa: ARG001
    """Every kind, both kinds of index, every mode, axes that broadcast, layouts, and indices out of range."""
    rng = np.random.default_rng(seed)
    for i, (shape, taken, axis) in enumerate(PLACES):
        for element in KINDS if full or not i else (KINDS[i % len(KINDS)],):
            mode, n = ("status", "clip", "wrap")[i % 3], shape[axis]
            axis %= len(shape)
            picked = [max(a, b) if 0 not in (a, b) else 0 for a, b in zip(shape, taken)]
            picked[axis] = taken[axis]
            operands = {
                "grad": values(rng, tuple(picked), element),
                "indices": rng.integers(-n - 2, n + 2, taken, (np.int64, np.int32)[i % 2]),
                "x": values(rng, shape, element),
            }  # fmt: skip
            yield Sample(
                f"{element}{list(shape)}{list(taken)} axis {axis} {mode}", operands, {"axis": axis, "mode": mode}
            )
    grad, x = values(rng, (6, 24), ElementKind.F32), values(rng, (6, 40), ElementKind.F32)
    indices = rng.integers(-40, 40, (6, 24))
    yield Sample("in range", {"grad": grad, "indices": indices, "x": x}, {"mode": "status"})
    for name, view in layouts(grad).items():
        yield Sample(f"grad {name}", {"grad": view, "indices": indices, "x": x}, {})
    for name, view in layouts(indices).items():
        yield Sample(f"indices {name}", {"grad": grad, "indices": view, "x": x}, {})


READING = ("max", "min", "prod")  # reductions whose gradients read elements
SENT = (  # grad, indices, axis
    ((7, 33), (7, 50), 1),
    ((33, 7), (40, 5), 0),
    ((23,), (200,), -1),
    ((3, 8, 5), (2, 11, 5), 1),
    ((4, 6), (0, 6), 0),
    ((2, 3, 2, 3, 4), (2, 1, 2, 3, 6), 4),
)


def index_copy_backward(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:  # noqa: ARG001
    """Every kind, both kinds of index, every mode, any axis, equal indices, indices out of range, and layouts."""
    rng = np.random.default_rng(seed)
    for i, (shape, taken, axis, _) in enumerate(LINES):
        for element in KINDS if full or not i else (KINDS[i % len(KINDS)],):
            mode = ("status", "clip", "wrap")[i % 3]
            index = rng.integers(-shape[axis], 2 * shape[axis], taken, (np.int64, np.int32)[i % 2])
            operands = {"grad": values(rng, shape, element), "index": index}
            label = f"{element}{list(shape)}{list(taken)} axis {axis} {mode}"
            yield Sample(label, operands, {"axis": axis, "mode": mode})
    grad, index = values(rng, (9, 16), ElementKind.F32), rng.integers(0, 9, (4, 2))
    for name, view in layouts(grad).items():
        yield Sample(f"grad {name}", {"grad": view, "index": index}, {})
    for name, view in layouts(index).items():
        yield Sample(f"index {name}", {"grad": grad, "index": view}, {})
    ends = np.array([3, -1, 8, 9, 3, 2**63 - 1, -(2**63), 0])
    yield Sample("ends of i64", {"grad": grad, "index": ends}, {})
    yield Sample("no places", {"grad": grad[:0], "index": ends}, {})


def _sparse(rng: np.random.Generator, shape: tuple[int, ...], kind: ElementKind) -> Any:
    """Elements of few values, so that there are ties, products stay in range, and some are 0."""
    return rng.choice(
        [-1.5, -1.0, -1.0, 0.75, 1.0, 1.0, 1.25, 0.0], shape, p=[0.1] * 3 + [0.2, 0.2, 0.15, 0.1, 0.05]
    ).astype(kind.dtype)


def scatter_backward(result: Callable[..., Any], fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:  # noqa: ARG001
    """Every reduction and kind, both kinds of index, every mode, shorter axes, layouts, places out of range; for reductions that
    read the operands of the forward call and its `result`, ties, zeros, NaN and infinities."""
    rng = np.random.default_rng(seed)

    def sample(label: str, grad: Any, indices: Any, reduce: str, x: Any = None, src: Any = None, **how: Any) -> Sample:
        operands, options = {"grad": grad, "indices": indices}, {**how, "reduce": reduce}
        if reduce in READING:
            kind = ElementKind.of(grad.dtype)
            x = _sparse(rng, grad.shape, kind) if x is None else x
            src = _sparse(rng, indices.shape, kind) if src is None else src
            operands |= {"x": x, "src": src, "y": result(x, indices, src, **options)}
        return Sample(f"{label}, {reduce}", operands, options)

    for i, (shape, taken, axis) in enumerate(SENT):
        for j, reduce in enumerate(("set", "add", "mean", *READING)):
            for element in KINDS if full else (KINDS[(i + j) % len(KINDS)],):
                mode, n = ("status", "clip", "wrap")[(i + j) % 3], shape[axis]
                indices = rng.integers(-n, 2 * n, taken, (np.int64, np.int32)[i % 2])
                label = f"{element}{list(shape)}{list(taken)} axis {axis} {mode}"
                yield sample(label, values(rng, shape, element), indices, reduce, axis=axis, mode=mode)
    grad, indices = values(rng, (6, 40), ElementKind.F32), rng.integers(0, 40, (5, 24))
    for reduce in ("set", "add", "max"):
        for name, view in layouts(grad).items():
            yield sample(f"grad {name}", view, indices, reduce)
        for name, view in layouts(indices).items():
            yield sample(f"indices {name}", grad, view, reduce)
        yield sample("no places", grad[:, :0], indices, reduce)
    x, src = values(rng, (6, 40), ElementKind.F32), values(rng, (5, 24), ElementKind.F32)
    for reduce in ("max", "prod"):
        for name, view in layouts(x).items():
            if view.shape == x.shape:
                yield sample(f"x {name}", grad, indices, reduce, view, src)
        for name, view in layouts(src).items():
            if view.shape == src.shape:
                yield sample(f"src {name}", grad, indices, reduce, x, view)
    x, src = _sparse(rng, (6, 40), ElementKind.F32), _sparse(rng, (5, 24), ElementKind.F32)
    src[2, 3:9] = np.nan, np.inf, -np.inf, -0.0, 0.0, np.nan
    for reduce in READING:
        yield sample("NaN and infinities", grad, indices % 7, reduce, x, src)
    grad, indices = values(rng, (2, 3), ElementKind.F32), rng.integers(0, 2, (2, 700))
    x, src = (rng.choice([-1.0, 1.0, 0.8, 1.25], shape).astype(np.float32) for shape in (grad.shape, indices.shape))
    x[1, 0], src[0, 99] = 0, 0
    for reduce in ("mean", *READING):
        yield sample("long runs", grad, indices, reduce, x, src)
