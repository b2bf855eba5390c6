"""Samples of quantized norms and gates: rows of every length class, both schemes, layouts, rows of zeros and of NaN."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ....samples.sample import Sample, layouts, values
from ....types import ElementKind

__all__ = ["gate", "norm"]

BF16, F16, F32 = ElementKind.BF16, ElementKind.F16, ElementKind.F32
SHAPES = ((2, 130), (5, 1024), (3, 5), (1, 1), (0, 8), (3, 0), (2, 3, 72), (1, 4104), (7, 33))
GROUPED = (((3, 128), 128), ((5, 256), 32), ((2, 2, 192), 64), ((1, 4224), 128))


def _marked(x: Any) -> Any:
    """With a row of zeros and one that holds what is not finite."""
    if x.ndim == 2 and min(x.shape) > 3:
        x[1] = 0
        x[2, :3] = np.nan, np.inf, -np.inf
    return x


def _cases(full: bool) -> Iterator[tuple[ElementKind, tuple[int, ...], dict[str, Any]]]:
    for element in (BF16, F32, F16):
        for shape in SHAPES if full or element is BF16 else SHAPES[:3]:
            yield element, shape, {}
        for shape, size in GROUPED if full or element is BF16 else GROUPED[:2]:
            yield element, shape, {"per": "group", "group_size": size}


def _label(element: ElementKind, shape: tuple[int, ...], scheme: dict[str, Any]) -> str:
    return f"{element}{list(shape)} {scheme.get('group_size', 'row')}"


def norm(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:
    rng = np.random.default_rng(seed)
    centered = dict(fixed or {}).get("name", "").startswith("layer")

    def weights(columns: int, element: ElementKind) -> dict[str, Any]:
        made = {"weight": values(rng, (columns,), element)}
        return made | {"bias": values(rng, (columns,), element)} if centered else made

    for element, shape, scheme in _cases(full):
        x = _marked(values(rng, shape, element))
        yield Sample(_label(element, shape, scheme), {"x": x, **weights(shape[-1], element)}, scheme)
    x, residual = values(rng, (3, 256), BF16), values(rng, (3, 256), BF16)
    for scheme in ({}, {"per": "group", "group_size": 128}):
        given = {"x": x, "residual": residual, "residual_out": np.zeros_like(x)}
        yield Sample(f"bf16 residual {scheme.get('group_size', 'row')}", {**given, **weights(256, F32)}, scheme)
    for name, view in layouts(values(rng, (6, 64), F32)).items():
        yield Sample(f"f32 {name}", {"x": view}, {"eps": 1e-3})
        yield Sample(f"f32 {name} grouped", {"x": view}, {"per": "group", "group_size": 32})
    two = {"x": values(rng, (3, 4, 40), F16), "weight": values(rng, (4, 40), F16)}
    yield Sample("f16 two axes", two)
    yield Sample("bf16 streamed", {"x": values(rng, (2, 40000), BF16)})
    yield Sample("f32 streamed groups", {"x": values(rng, (2, 16512), F32)}, {"per": "group", "group_size": 128})
    wide = {"x": values(rng, (2, 33000), BF16), "residual": values(rng, (2, 33000), BF16)}
    yield Sample("bf16 streamed residual", {**wide, **weights(33000, BF16)})


def gate(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:  # noqa: ARG001
    rng = np.random.default_rng(seed)
    for element, shape, scheme in _cases(full):
        x, y = _marked(values(rng, shape, element)), values(rng, shape, element)
        yield Sample(_label(element, shape, scheme), {"x": x, "y": y}, scheme)
    for name, view in layouts(values(rng, (6, 64), F32, 20.0)).items():
        y = values(rng, (6, 64), F32)
        yield Sample(f"f32 {name}", {"x": view, "y": y})
        yield Sample(f"f32 {name} grouped", {"x": view, "y": y}, {"per": "group", "group_size": 32})
    yield Sample("bf16 streamed", {"x": values(rng, (2, 20000), BF16), "y": values(rng, (2, 20000), BF16)})
    grouped = {name: values(rng, (2, 16512), F32) for name in "xy"}
    yield Sample("f32 streamed groups", grouped, {"per": "group", "group_size": 128})
