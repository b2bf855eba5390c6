"""Samples of sparsemax, entmax15 and their gradients."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ....samples.sample import Sample, layouts, values
from ....types import ElementKind

__all__ = ["sparse", "sparse_backward"]

BF16, F16, F32, F64 = ElementKind.BF16, ElementKind.F16, ElementKind.F32, ElementKind.F64
SHAPES = ((7, 33), (2, 130), (2, 3, 72), (3, 1024), (1, 1), (0, 8), (3, 0), (1, 8200))


def sparse(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:  # noqa: ARG001
    """Rows of every length class and dtype, supports of one element and of all, every axis, layouts, corners."""
    rng = np.random.default_rng(seed)
    for element in (BF16, F32, F16, F64):
        for shape in SHAPES if full or element is BF16 else SHAPES[:2]:
            yield Sample(f"{element}{list(shape)}", {"x": values(rng, shape, element)})
        near = np.stack([values(rng, (300,), F64, scale) for scale in (0.0, 1e-3, 1e-2, 0.1)]).astype(element.dtype)
        yield Sample(f"{element} near one another", {"x": near})
        for axis in (0, 1):
            yield Sample(f"{element} axis {axis}", {"x": values(rng, (6, 19, 10), element)}, {"axis": axis})
    for name, view in layouts(values(rng, (6, 40), F32)).items():
        yield Sample(f"f32 {name}", {"x": view})
    corners = values(rng, (5, 40), F32)
    corners[0, 3], corners[1, 5], corners[2, :], corners[3, ::2] = np.nan, np.inf, -np.inf, -np.inf
    corners[4, :2] = 3e38, -3e38
    yield Sample("f32 corners", {"x": corners})
    yield Sample("f32 far from zero", {"x": values(rng, (4, 500), F32) + np.float32(1e3)})
    steps = 2.0 - 2.0 ** np.arange(0, 64) / 2.0**64  # supports that shrink by little in each step
    yield Sample("f64 geometric", {"x": np.stack([steps, steps * 1e-3])})
    yield Sample("bf16 streamed", {"x": values(rng, (2, 40000), BF16)})
    yield Sample("f32 0-d", {"x": values(rng, (), F32)})


def sparse_backward(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:  # noqa: ARG001
    """Rows of every length class, of which most results are 0, layouts."""
    rng = np.random.default_rng(seed)

    def operands(shape: tuple[int, ...], element: ElementKind, view: str = "C") -> dict[str, Any]:
        p = np.maximum(values(rng, shape, F64), 0)
        y = (p / np.maximum(p.sum(axis=-1, keepdims=True) if shape else p, 1e-9)).astype(element.dtype)
        return {"grad": layouts(values(rng, shape, element))[view], "y": layouts(y)[view]}

    for element in (BF16, F32, F16, F64):
        for shape in SHAPES if full or element is BF16 else SHAPES[:2]:
            yield Sample(f"{element}{list(shape)}", operands(shape, element))
        yield Sample(f"{element} axis 0", operands((6, 19, 10), element), {"axis": 0})
    for view in ("padded", "stepped", "reversed", "F"):
        yield Sample(f"f32 {view}", operands((6, 40), F32, view))
    zeros = operands((3, 40), F32)
    zeros["y"][1] = 0
    yield Sample("f32 a row of zeros", zeros)
    yield Sample("bf16 streamed", operands((2, 40000), BF16))
