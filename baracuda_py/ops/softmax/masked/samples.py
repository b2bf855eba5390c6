"""Samples of softmax of scaled and masked rows, and of its gradient."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ....samples.sample import Sample, layouts, values
from ....types import ElementKind

__all__ = ["masked_softmax", "masked_softmax_backward"]

BF16, F16, F32, F64 = ElementKind.BF16, ElementKind.F16, ElementKind.F32, ElementKind.F64
SHAPES = ((2, 130), (2, 3, 72), (5, 1024), (1, 1), (0, 8), (3, 0), (1, 8200), (7, 33))


def masked_softmax(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:  # noqa: ARG001
    """Masks of every kind and shape that broadcasts, causal rows with offsets, rows that see nothing, layouts."""
    rng = np.random.default_rng(seed)

    def seen(shape: tuple[int, ...]) -> Any:
        return rng.random(shape) < 0.7

    for element in (BF16, F32, F16, F64):
        for shape in SHAPES if full or element is BF16 else SHAPES[:2]:
            x = values(rng, shape, element)
            yield Sample(f"{element}{list(shape)} bool", {"x": x, "mask": seen(shape)}, {"scale": 0.125})
        x = values(rng, (2, 3, 6, 40), element)
        for offset in (0, 34, -2):
            yield Sample(f"{element} causal {offset}", {"x": x}, {"causal": True, "offset": offset, "scale": 0.5})
        added = np.where(seen((6, 40)), values(rng, (6, 40), F32), -np.inf).astype(element.dtype)
        yield Sample(f"{element} added", {"x": x, "mask": added}, {"causal": True, "offset": 20})
        nothing = seen((2, 1, 6, 40))
        nothing[0, 0, 1] = False
        yield Sample(f"{element} nothing seen", {"x": x, "mask": nothing}, {"scale": -2.0})
        broadcast = values(rng, (3, 1, 1), F64 if element is F64 else F32)
        yield Sample(f"{element} one per head", {"x": x, "mask": broadcast})
        for name, view in layouts(values(rng, (6, 40), element)).items():
            yield Sample(f"{element} {name}", {"x": view, "mask": seen((40,))}, {"causal": True, "offset": 30})
    corners = values(rng, (4, 40), F32)
    corners[0, 3], corners[1, 5], corners[2, :] = np.nan, np.inf, -np.inf
    hidden = np.ones((4, 40), bool)
    hidden[0, 3] = False
    yield Sample("f32 corners", {"x": corners, "mask": hidden})
    yield Sample("f32 far from zero", {"x": values(rng, (4, 500), F32) + np.float32(1e3)}, {"scale": 3.0})
    long = {"x": values(rng, (2, 40000), BF16), "mask": seen((40000,))}
    yield Sample("bf16 streamed", long, {"causal": True, "offset": 30000})
    yield Sample("f32 odd rows, streamed", {"x": values(rng, (2, 20001), F32), "mask": values(rng, (2, 20001), F32)})


def masked_softmax_backward(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:  # noqa: ARG001
    """Rows of every length class, zeros among the results, layouts."""
    rng = np.random.default_rng(seed)

    def operands(shape: tuple[int, ...], element: ElementKind, view: str = "C") -> dict[str, Any]:
        p = np.exp(values(rng, shape, F64)) * (rng.random(shape) < 0.7)
        y = (p / np.maximum(p.sum(axis=-1, keepdims=True), 1e-9)).astype(element.dtype)
        return {"grad": layouts(values(rng, shape, element))[view], "y": layouts(y)[view]}

    for element in (BF16, F32, F16, F64):
        for shape in SHAPES if full or element is BF16 else SHAPES[:2]:
            yield Sample(f"{element}{list(shape)}", operands(shape, element), {"scale": 0.125})
        for view in ("padded", "stepped", "reversed", "F"):
            yield Sample(f"{element} {view}", operands((6, 40), element, view), {"scale": -3.0})
    yield Sample("bf16 streamed", operands((2, 40000), BF16))
    yield Sample("f32 odd rows, streamed", operands((2, 20001), F32), {"scale": 0.3})
