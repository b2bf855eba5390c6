"""Samples of softmax and its gradient."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ...samples.sample import Sample, adversarial, layouts, values
from ...types import ElementKind

__all__ = ["softmax", "softmax_backward"]

FLOATS = (ElementKind.BF16, ElementKind.F32, ElementKind.F16, ElementKind.F64)
SHAPES = ((1, 1), (3, 5), (2, 130), (5, 1024), (0, 8), (3, 0), (2, 3, 72), (1, 8200), (7, 33))


def softmax(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:  # noqa: ARG001
    """Rows of every length class and dtype, every axis, layouts, corners and what overflows."""
    rng = np.random.default_rng(seed)
    for element in FLOATS:
        for shape in SHAPES if full or element is ElementKind.BF16 else SHAPES[2:4]:
            yield Sample(f"{element}{list(shape)}", {"x": values(rng, shape, element)})
        corners = adversarial(element)
        finite = corners[np.isfinite(corners.astype(np.float64))]
        rows = [finite, np.where(np.isnan(finite), 0, finite)[::-1], -np.abs(finite)]
        yield Sample(f"{element} corners", {"x": np.stack(rows)})
        rows = [np.full(len(corners), x, element.dtype) for x in (-np.inf, np.inf, np.nan)]
        rows += [
            np.where(np.arange(len(corners)) % 3 == 0, np.asarray(-np.inf, element.dtype), row) for row in rows[1:]
        ]
        rows += [
            np.where(np.arange(len(corners)) % 3 == 0, np.asarray(-np.inf, element.dtype), np.ones(1, element.dtype))
        ]
        yield Sample(f"{element} infinities", {"x": np.stack(rows)})
        for axis in range(3):
            yield Sample(f"{element} axis {axis}", {"x": values(rng, (6, 67, 40), element)}, {"axis": axis})
        for name, view in layouts(values(rng, (6, 40), element)).items():
            yield Sample(f"{element} {name}", {"x": view}, {"axis": 0 if name == "padded" else -1})
    yield Sample("f32 spread", {"x": values(rng, (4, 500), ElementKind.F32, 60.0)})
    yield Sample("f32 far from zero", {"x": values(rng, (4, 500), ElementKind.F32) + np.float32(1e6)})
    yield Sample("bf16 streamed", {"x": values(rng, (2, 40000), ElementKind.BF16)})
    yield Sample("bf16 odd rows, streamed", {"x": values(rng, (2, 20001), ElementKind.BF16)})
    yield Sample("f32 columns, long", {"x": values(rng, (1500, 34), ElementKind.F32)}, {"axis": 0})
    yield Sample("f32 0-d", {"x": values(rng, (), ElementKind.F32)})


def softmax_backward(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:
    """Rows of every length class and dtype, every axis, layouts."""
    rng = np.random.default_rng(seed)
    log = "log" in dict(fixed or {}).get("name", "")

    def operands(shape: tuple[int, ...], element: ElementKind, view: str = "C") -> dict[str, Any]:
        x = values(rng, shape, ElementKind.F64)
        p = np.exp(x - x.max(axis=-1, initial=-9, keepdims=True)) if shape else np.exp(x)
        y = (np.log(p) if log else p).astype(element.dtype)
        return {"grad": layouts(values(rng, shape, element))[view], "y": layouts(y)[view]}

    for element in FLOATS:
        for shape in SHAPES if full or element is ElementKind.BF16 else SHAPES[2:4]:
            yield Sample(f"{element}{list(shape)}", operands(shape, element))
        for axis in range(3):
            yield Sample(f"{element} axis {axis}", operands((6, 67, 40), element), {"axis": axis})
        for view in ("padded", "stepped", "reversed", "F"):
            yield Sample(f"{element} {view}", operands((6, 40), element, view))
    yield Sample("bf16 streamed", operands((2, 40000), ElementKind.BF16))
    yield Sample("f32 odd rows, streamed", operands((2, 20001), ElementKind.F32))
