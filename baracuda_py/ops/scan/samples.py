"""Samples of running sums."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ...samples.sample import Sample, adversarial, layouts, strided_like, values
from ...types import ElementKind

__all__ = ["backward", "cumsum", "running"]

FLOATS = (ElementKind.BF16, ElementKind.F32, ElementKind.F16, ElementKind.F64)
INTEGERS = (ElementKind.I32, ElementKind.U8, ElementKind.I64, ElementKind.U64)
SHAPES = ((1, 1), (3, 5), (2, 130), (5, 1024), (0, 8), (2, 3, 72), (1, 9000), (7, 33), (40, 3))


def cumsum(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:  # noqa: ARG001
    """Rows and columns of every length class and dtype, every axis, layouts, corners, long rows and columns in chunks."""
    rng = np.random.default_rng(seed)
    for element in (*FLOATS, *INTEGERS):
        for shape in SHAPES if full or element is ElementKind.BF16 else SHAPES[2:4]:
            yield Sample(f"{element}{list(shape)} rows", {"x": values(rng, shape, element)}, {"axis": -1})
            yield Sample(f"{element}{list(shape)} columns", {"x": values(rng, shape, element)}, {"axis": 0})
        for axis in (0, 1, 2):
            yield Sample(f"{element} axis {axis}", {"x": values(rng, (6, 17, 40), element)}, {"axis": axis})
        corners = adversarial(element)
        finite = np.where(np.isfinite(corners.astype(float)), corners, 0)
        rows = np.stack([corners, corners[::-1], np.full(len(corners), corners[-2]), finite])
        yield Sample(f"{element} corners", {"x": rows.astype(element.dtype)}, {"axis": 1})
        for view_name, view in layouts(values(rng, (6, 40), element)).items():
            for axis in (0, 1):
                yield Sample(f"{element} {view_name}, axis {axis}", {"x": view}, {"axis": axis})
    yield Sample("f32 far from zero", {"x": values(rng, (3, 5000), ElementKind.F32) + np.float32(1000)})
    yield Sample("bf16 long row", {"x": values(rng, (100_003,), ElementKind.BF16)}, {"axis": 0})
    yield Sample("f32 long rows", {"x": values(rng, (3, 33_001), ElementKind.F32)[:, 1:]})
    yield Sample("i32 long row", {"x": values(rng, (40_000,), ElementKind.I32)})
    yield Sample("bf16 long columns", {"x": values(rng, (1100, 72), ElementKind.BF16)}, {"axis": 0})
    yield Sample("f64 long columns", {"x": values(rng, (2, 1030, 5), ElementKind.F64)}, {"axis": 1})
    yield Sample("f32 nothing", {"x": values(rng, (4, 0), ElementKind.F32)})


def backward(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:
    """Those of cumsum in floats, whose x is the gradient: without `full` the long ones, and a third of the others."""
    for place, sample in enumerate(cumsum(fixed, seed, full=full)):
        x = sample.operands["x"]
        if ElementKind.of(x.dtype).is_float and (full or "long" in sample.label or place % 3 == 0):
            yield Sample(sample.label, {"grad": x}, sample.options)


def running(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:
    """Those of cumsum, every third from the end on; factors of magnitudes about 1, and odd integers, that few products leave the
    range or are 0."""
    rng = np.random.default_rng(seed + 11)
    name = dict(fixed or {}).get("name", "cumprod")
    for place, sample in enumerate(cumsum(fixed, seed, full=full)):
        x = sample.operands["x"]
        if name == "logcumsumexp" and x.dtype.kind in "iu":
            continue
        if name == "cumprod" and x.dtype.kind in "iu":
            x = strided_like(x | x.dtype.type(1), x)
        elif name == "cumprod" and "corners" not in sample.label:
            near = np.sign(rng.standard_normal(x.shape)) * np.exp(rng.standard_normal(x.shape) / 512)
            x = strided_like(near.astype(x.dtype), x)
        yield Sample(sample.label, {"x": x}, {**sample.options, "reverse": place % 3 == 2})
    infinite = np.array(
        [[np.inf, 0, 2], [0, np.inf, -np.inf], [-np.inf, 3, 3], [-np.inf, -np.inf, -np.inf]], np.float32
    )
    yield Sample("f32 infinities", {"x": infinite}, {"axis": 1})
    yield Sample("f32 infinities down", {"x": infinite.T.copy()}, {"axis": 0})
