"""Samples of what sends lines and elements to places by index."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ....samples.sample import Sample, layouts, values
from ....types import ElementKind

__all__ = ["index_add", "index_copy", "scatter"]

SUMMED = (
    ElementKind.F32, ElementKind.BF16, ElementKind.I32, ElementKind.F16, ElementKind.U8, ElementKind.F64, ElementKind.I64,
    ElementKind.I16, ElementKind.I8, ElementKind.U32,
)  # fmt: skip
FLOATS = (ElementKind.F32, ElementKind.BF16, ElementKind.F16, ElementKind.F64)
MOVED = (ElementKind.U8, ElementKind.F32, ElementKind.COMPLEX128, ElementKind.BF16, ElementKind.I64, ElementKind.BOOL)
LINES = (  # x, index, axis
    ((9, 64), (50,), 0),
    ((7, 33), (2, 90), 0),
    ((3, 11, 24), (7,), 1),
    ((5, 6), (7, 1), -1),
    ((4, 3, 2), (), 1),
    ((600,), (400,), 0),
    ((4, 6), (0,), 1),
)
MODES = ("status", "clip", "wrap")


def index_add(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:  # noqa: ARG001
    """Floats and whole numbers."""
    yield from _lines(SUMMED, seed, full=full)


def index_copy(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:  # noqa: ARG001
    """Every width."""
    yield from _lines(MOVED, seed, full=full)


def _lines(kinds: tuple[ElementKind, ...], seed: int, *, full: bool) -> Iterator[Sample]:
    """Both kinds of index, every mode, any axis, equal indices, indices out of range, and layouts."""
    rng = np.random.default_rng(seed)
    for i, (shape, taken, axis) in enumerate(LINES):
        for element in kinds if full or not i else (kinds[i % len(kinds)],):
            mode, n = MODES[i % 3], shape[axis]
            at = axis % len(shape)
            low, high = (0, n) if mode == "status" else (-n, 2 * n)
            operands = {
                "x": values(rng, shape, element), "index": rng.integers(low, high, taken, (np.int64, np.int32)[i % 2]),
                "src": values(rng, (*shape[:at], *taken, *shape[at + 1 :]), element),
            }  # fmt: skip
            yield Sample(
                f"{element}{list(shape)}{list(taken)} axis {axis} {mode}", operands, {"axis": axis, "mode": mode}
            )
    x, src = values(rng, (9, 16), kinds[1]), values(rng, (12, 8, 16), kinds[1])
    index = rng.integers(0, 9, (12, 8))
    for name, view in layouts(x).items():
        yield Sample(f"x {name}", {"x": view, "index": index, "src": src}, {})
    for name, view in layouts(src).items():
        yield Sample(f"src {name}", {"x": x, "index": index, "src": view}, {})
    ends = {"x": x, "index": np.array([3, -1, 8, 9, 3, 2**63 - 1, -(2**63), 0]), "src": src[0]}
    yield Sample("ends of i64", ends, {})
    yield Sample("in range", {"x": x, "index": index, "src": src}, {})
    none = {"x": x, "index": np.zeros((0,), np.int32), "src": src[0, :0]}
    yield Sample("no lines", none, {})


PLACES = (  # x, indices, axis
    ((7, 33), (7, 50), 1),
    ((33, 7), (40, 5), 0),
    ((23,), (200,), -1),
    ((3, 8, 5), (2, 11, 5), 1),
    ((4, 6), (0, 6), 0),
    ((2, 3, 2, 3, 4), (2, 1, 2, 3, 6), 4),
)


def scatter(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:  # noqa: ARG001
    """Every reduction and kind, both kinds of index, every mode, shorter axes, layouts, NaN, and places out of range."""
    rng = np.random.default_rng(seed)
    for i, (shape, taken, axis) in enumerate(PLACES):
        for j, reduce in enumerate(("set", "add", "max", "min", "prod", "mean")):
            kinds = {"set": MOVED, "mean": FLOATS}.get(reduce, SUMMED)
            for element in kinds if full else (kinds[(i + j) % len(kinds)],):
                mode, n = MODES[(i + j) % 3], shape[axis]
                low, high = (0, n) if mode == "status" else (-n, 2 * n)
                operands = {
                    "x": values(rng, shape, element), "src": values(rng, taken, element),
                    "indices": rng.integers(low, high, taken, (np.int64, np.int32)[i % 2]),
                }  # fmt: skip
                label = f"{element}{list(shape)}{list(taken)} axis {axis} {mode} {reduce}"
                yield Sample(label, operands, {"axis": axis, "mode": mode, "reduce": reduce})
    x, src, indices = (
        values(rng, (6, 40), ElementKind.F32),
        values(rng, (6, 24), ElementKind.F32),
        rng.integers(0, 40, (6, 24)),
    )
    for name, view in layouts(src).items():
        yield Sample(f"src {name}", {"x": x, "indices": indices, "src": view}, {"reduce": "add"})
    for name, view in layouts(indices).items():
        yield Sample(f"indices {name}", {"x": x, "indices": view, "src": src}, {})
    holes = src.copy()
    holes[2, 3:9] = np.nan, np.inf, -np.inf, -0.0, 0.0, np.nan
    for reduce in ("max", "min", "set", "prod"):
        yield Sample(
            f"NaN and infinities, {reduce}", {"x": x, "indices": indices % 7, "src": holes}, {"reduce": reduce}
        )
    beyond = {"x": x, "indices": rng.integers(-9, 50, (6, 24)), "src": src}
    yield Sample("places out of range", beyond, {"reduce": "add"})
