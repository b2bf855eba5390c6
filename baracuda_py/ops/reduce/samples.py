"""Samples of the reductions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np

from ...samples.sample import Sample, adversarial, layouts, values
from ...types import ElementKind

__all__ = ["backward", "reduce"]

Array: TypeAlias = np.ndarray[Any, Any]
FLOATS = (ElementKind.BF16, ElementKind.F32, ElementKind.F16, ElementKind.F64)
INTEGERS = (ElementKind.I32, ElementKind.U8, ElementKind.I64, ElementKind.U64)
TAKES_INTEGERS = ("sum", "max", "min", "argmax")
SHAPES = ((1, 1), (3, 5), (2, 130), (5, 1024), (0, 8), (2, 3, 72), (1, 4104), (7, 33), (40, 3))


def reduce(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:
    """Rows and columns of every length class and dtype, sets of axes, layouts, ties, corners, long rows in chunks."""
    rng = np.random.default_rng(seed)
    name = dict(fixed or {}).get("name", "sum")
    axes: tuple[Any, ...] = (0, 1, -1, None) if name == "argmax" else ((0, 2), 1, (1, 2), None)
    for element in (*FLOATS, *(INTEGERS if name in TAKES_INTEGERS else ())):
        for shape in SHAPES if full or element is ElementKind.BF16 else SHAPES[2:4]:
            yield Sample(f"{element}{list(shape)} rows", {"x": values(rng, shape, element)}, {"axis": -1})
            if shape[0]:
                yield Sample(f"{element}{list(shape)} columns", {"x": values(rng, shape, element)}, {"axis": 0})
        for axis in axes:
            options = {"axis": axis, "keepdims": True}
            yield Sample(f"{element} axes {axis}", {"x": values(rng, (6, 17, 40), element)}, options)
        corners = adversarial(element)
        rows = [
            corners,
            corners[::-1],
            np.full(len(corners), corners[-2]),
            np.where(np.isfinite(corners.astype(float)), corners, 0),
        ]
        yield Sample(f"{element} corners", {"x": np.stack(rows).astype(element.dtype)}, {"axis": 1})
        if element.is_float:
            infinite = np.array([[np.inf, 0, 2], [np.inf, 1, -np.inf], [-np.inf, 3, 3], [-np.inf, -np.inf, -np.inf]])
            yield Sample(f"{element} infinities", {"x": infinite.astype(element.dtype)}, {"axis": 1})
        for view_name, view in layouts(values(rng, (6, 40), element)).items():
            yield Sample(f"{element} {view_name}", {"x": view}, {"axis": int(view_name in ("padded", "stepped"))})
            yield Sample(f"{element} {view_name}, all", {"x": view}, {"axis": None})
    ties = rng.integers(-2, 3, (9, 300)).astype(np.float32)
    yield Sample("f32 ties", {"x": ties}, {"axis": 1})
    yield Sample("f32 ties down", {"x": ties}, {"axis": 0})
    yield Sample("f32 far from zero", {"x": values(rng, (3, 5000), ElementKind.F32) + np.float32(1000)}, {"axis": 1})
    yield Sample("bf16 long row", {"x": values(rng, (100_003,), ElementKind.BF16)}, {"axis": 0})
    yield Sample("f32 long rows", {"x": values(rng, (40, 33_000), ElementKind.F32)[:, 1:]}, {"axis": 1})
    yield Sample("bf16 long columns", {"x": values(rng, (1100, 70), ElementKind.BF16)}, {"axis": 0})
    if name not in ("max", "min", "argmax"):
        yield Sample("f32 nothing", {"x": values(rng, (4, 0), ElementKind.F32)}, {"axis": 1})
    if name == "var":
        yield Sample("f32 corrected", {"x": values(rng, (4, 50), ElementKind.F32)}, {"axis": 1, "correction": 1})
        yield Sample("f32 corrected away", {"x": values(rng, (4, 1), ElementKind.F32)}, {"axis": 1, "correction": 1})


def backward(
    forward: str,
    result: Callable[[Array, dict[str, Any]], Array],
    takes_result: bool,
    fixed: Any,  # noqa: ARG001
    seed: int = 0,
    *,
    full: bool = False,
) -> Iterator[Sample]:
    """Those of `forward` in floats, with a gradient of the result; without `full` the long ones, and a third of the others.
    `result` computes the forward result of a sample."""
    rng = np.random.default_rng(seed + 5)
    for place, sample in enumerate(reduce({"name": forward}, seed, full=full)):
        x, options = sample.operands["x"], dict(sample.options)
        element = ElementKind.of(x.dtype)
        if not element.is_float or not (full or "long" in sample.label or "ties" in sample.label or place % 3 == 0):
            continue
        y = result(x, options)
        operands = {"grad": values(rng, y.shape, element), "x": x}
        yield Sample(sample.label, operands | ({"y": y} if takes_result else {}), options)
