"""Samples of gumbel_softmax and its gradient."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ....samples.sample import Sample, layouts, values
from ....types import ElementKind

__all__ = ["backward", "forward"]

BF16, F16, F32, F64 = ElementKind.BF16, ElementKind.F16, ElementKind.F32, ElementKind.F64
SHAPES = ((2, 3, 24), (5, 9), (1, 1), (0, 8), (3, 0), (2, 260))
FAR = (1 << 34) + 3


def _problems(full: bool) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Label, operands but grad, and options: every kind, axes other than the last, layouts, offsets inside
    blocks, positions in memory, corners, long rows."""
    rng = np.random.default_rng(12)
    for i, element in enumerate((F32, BF16, F16, F64)):
        for shape in SHAPES if full or element is F32 else SHAPES[:2]:
            options = {"tau": (1.0, 0.5, 2.0)[i % 3], "seed": 3 + i, "offset": 4 * i}
            yield f"{element}{list(shape)}", {"x": values(rng, shape, element)}, options
        yield f"{element} axis 0", {"x": values(rng, (9, 6), element)}, {"axis": 0, "seed": i, "tau": 0.75}
    for name, view in layouts(values(rng, (4, 16), F32)).items():
        yield f"f32 {name}", {"x": view}, {"seed": -3, "offset": FAR, "subsequence": 2}
    held = {"x": values(rng, (5, 24), BF16), "position": np.array([FAR], np.int64)}
    yield "bf16 position", held, {"seed": 1 << 40, "offset": 2}
    corners = values(rng, (5, 40), F32)
    corners[0, 3], corners[1, 5], corners[2, :], corners[3, ::2] = np.nan, np.inf, -np.inf, -np.inf
    corners[4, :2] = 3e38, -3e38
    yield "f32 corners", {"x": corners}, {"seed": 9}
    yield "bf16 streamed", {"x": values(rng, (1, 16_400), BF16)}, {"seed": 10, "tau": 0.9}
    yield "f32 0-d", {"x": values(rng, (), F32)}, {"seed": 11}


def forward(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:  # noqa: ARG001
    """Every third one is hard, and so are the corners and a streamed row."""
    for place, (label, operands, options) in enumerate(_problems(full)):
        hard = place % 3 == 1
        yield Sample(label, operands, {**options, "hard": True} if hard else options)
        if label in ("f32 corners", "bf16 streamed"):
            yield Sample(f"{label}, {'soft' if hard else 'hard'}", operands, {**options, "hard": not hard})


def backward(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:  # noqa: ARG001
    """Those of gumbel_softmax, with a gradient of the result."""
    rng = np.random.default_rng(seed + 13)
    for label, operands, options in _problems(full):
        x = operands["x"]
        yield Sample(label, {"grad": values(rng, x.shape, ElementKind.of(x.dtype)), **operands}, options)
