"""Samples of segments of rows: none, one and many, empty ones, longer ones than a piece, and offsets that are refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ...samples.sample import Sample, layouts, values
from ...types import ElementKind

__all__ = ["backward", "offsets", "reduce", "softmax_backward"]

KINDS = (ElementKind.F32, ElementKind.BF16, ElementKind.F16, ElementKind.F64)
SHAPES = (  # x, segments
    ((40, 64), 9),
    ((37, 33), 50),
    ((300,), 12),
    ((23, 3, 8), 4),
    ((90, 5), 1),
    ((7, 260), 7),
    ((1,), 1),
    ((0, 5), 3),
    ((5, 0), 2),
    ((6, 4), 0),
)


def reduce(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:
    """Every kind, both kinds of offset and two modes, layouts, NaN, rows of no segment, and refused offsets."""
    rng = np.random.default_rng(seed)
    drawn = _factors if fixed.get("name", "").startswith("segment_prod") else values
    for i, (shape, segments) in enumerate(SHAPES):
        for element in KINDS if full or not i else (KINDS[i % len(KINDS)],):
            offsets = _offsets(rng, shape[0], segments, (np.int64, np.int32)[i % 2])
            mode = ("drop", "status")[i % 2]
            operands = {"x": drawn(rng, shape, element), "offsets": offsets}
            yield Sample(f"{element}{list(shape)} segments {segments} {mode}", operands, {"mode": mode})
    lengths: tuple[tuple[str, tuple[int, ...], list[int]], ...] = (
        ("one segment", (700, 20), [0, 700]),
        ("long and short ones", (1300, 3), [0, 0, 257, 257, 258, 514, 514, 1026, 1290, 1300, 1300]),
        ("long ones beside rows of none", (1100, 2), [200, 700, 1000]),
        ("more pieces than shares", (4400, 17), [3, 4400]),
        ("pieces exactly", (768, 9), [0, 256, 768]),
    )
    for i, (label, shape, given) in enumerate(lengths):
        yield Sample(label, {"x": drawn(rng, shape, KINDS[i % len(KINDS)]), "offsets": np.array(given)}, {})
    x, offsets = drawn(rng, (30, 12), ElementKind.F32), np.array([0, 4, 4, 5, 29])
    for name, view in layouts(x).items():
        yield Sample(f"x {name}", {"x": view, "offsets": np.array([0, len(view) // 2, len(view)])}, {})
    tied = rng.integers(-2, 3, (30, 12)).astype(np.float32)
    tied[3, :4], tied[7], tied[9, :] = (np.nan, np.inf, -np.inf, -0.0), np.nan, -np.inf
    yield Sample("ties, NaN and infinities", {"x": tied, "offsets": np.array([0, 7, 8, 9, 10, 30])}, {})
    for label, refused in (("decreasing", [0, 9, 8, 30]), ("beyond", [0, 9, 31]), ("negative", [-1, 9, 30])):
        yield Sample(f"offsets {label}", {"x": x, "offsets": np.array(refused)}, {"mode": "status"})
    yield Sample("in order", {"x": x, "offsets": offsets}, {"mode": "status"})


def _factors(rng: np.random.Generator, shape: tuple[int, ...], element: ElementKind) -> Any:
    """Of products that stay in range: about 1, and a few zeros."""
    made = rng.choice([-1, 1], shape) * 2.0 ** rng.uniform(-0.2, 0.2, shape)
    return np.where(rng.random(shape) < 0.002, 0, made).astype(element.dtype)


def _offsets(rng: np.random.Generator, rows: int, segments: int, dtype: Any) -> Any:
    """Sorted, of all rows, with empty segments where there are many."""
    inner = np.sort(rng.integers(0, rows + 1, max(segments - 1, 0)))
    return np.array([0, *inner, rows][: segments + 1], dtype)


def backward(
    result: Callable[[Any, Any], Any] | None, fixed: Any, seed: int = 0, *, full: bool = False
) -> Iterator[Sample]:
    """The samples of the reduction with a gradient, and where it is read its result; layouts of the gradient."""
    rng = np.random.default_rng(seed + 1)
    for sample in reduce(fixed, seed, full=full):
        x, offsets = sample.operands["x"], sample.operands["offsets"]
        grad = values(rng, (offsets.size - 1, *x.shape[1:]), ElementKind.of(x.dtype))
        yield Sample(sample.label, _with_result(result, {"grad": grad, "x": x, "offsets": offsets}), sample.options)
    x, offsets = values(rng, (30, 12), ElementKind.F32), np.array([0, 4, 4, 5, 28, 29])
    grad = values(rng, (5, 12), ElementKind.F32)
    for name, view in layouts(grad).items():
        if view.shape == grad.shape:
            yield Sample(f"grad {name}", _with_result(result, {"grad": view, "x": x, "offsets": offsets}), {})
    equal = np.broadcast_to(np.float32(1), (5, 12))
    yield Sample("equal grads", _with_result(result, {"grad": equal, "x": x, "offsets": offsets}), {})


def _with_result(result: Callable[[Any, Any], Any] | None, operands: dict[str, Any]) -> dict[str, Any]:
    return operands if result is None else {**operands, "y": result(operands["x"], operands["offsets"])}


def offsets(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:  # noqa: ARG001
    """None, one and many ids of both kinds, segments without rows, and ids of no segment."""
    rng = np.random.default_rng(seed)
    for i, (rows, segments) in enumerate(((300, 40), (40, 300), (1, 1), (0, 3), (5, 0), (2000, 7))):
        ids = np.sort(rng.integers(0, max(segments, 1), rows)).astype((np.int64, np.int32)[i % 2])
        yield Sample(f"{ids.dtype} rows {rows}, segments {segments}", {"ids": ids}, {"segments": segments})
    beyond = np.array([-5, -1, -1, 0, 2, 2, 7, 2**40])
    yield Sample("ids of no segment", {"ids": beyond}, {"segments": 5})


def softmax_backward(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:
    """The samples of the softmax with shares of segments, whose sums need not be 1, and gradients; layouts of both."""
    rng = np.random.default_rng(seed + 2)
    for sample in reduce(fixed, seed, full=full):
        x, offsets = sample.operands["x"], sample.operands["offsets"]
        kind = ElementKind.of(x.dtype)
        y = np.abs(values(rng, x.shape, kind)).astype(x.dtype)
        if x.size < 10_000 and not sample.label.startswith(("x ", "ties")):
            yield Sample(sample.label, {"grad": values(rng, x.shape, kind), "y": y, "offsets": offsets}, sample.options)
    held, offsets = values(rng, (30, 12), ElementKind.F32), np.array([0, 4, 4, 5, 28, 29])
    for name, view in layouts(held).items():
        if view.shape == held.shape:
            yield Sample(f"grad {name}", {"grad": view, "y": np.abs(held), "offsets": offsets}, {})
            yield Sample(f"y {name}", {"grad": held, "y": view, "offsets": offsets}, {})
