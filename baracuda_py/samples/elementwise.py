"""Samples of the elementwise families."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..types import ElementKind
from .sample import Sample, adversarial, layouts, values

__all__ = ["binary", "unary"]

FLOATS = (ElementKind.F32, ElementKind.BF16, ElementKind.F16, ElementKind.F64)
INTEGERS = (
    ElementKind.I32,
    ElementKind.U8,
    ElementKind.I64,
    ElementKind.I8,
    ElementKind.I16,
    ElementKind.U16,
    ElementKind.U32,
    ElementKind.U64,
)
SHAPES = ((), (1,), (0,), (1023,), (7, 33), (3, 0, 5), (2, 3, 129), (64, 256), (5, 1, 4, 8))


def unary(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:  # noqa: ARG001
    """Every dtype at odd sizes, every layout, and the corners."""
    rng = np.random.default_rng(seed)
    for element in (*FLOATS, *INTEGERS):
        yield Sample(f"{element} corners", {"x": adversarial(element)})
        for shape in SHAPES if full or element in (ElementKind.F32, ElementKind.BF16) else SHAPES[3:5]:
            yield Sample(f"{element}{list(shape)}", {"x": values(rng, shape, element)})
        for name, view in layouts(values(rng, (6, 40), element)).items():
            yield Sample(f"{element} {name}", {"x": view})
    for element in (ElementKind.BF16, ElementKind.F16):  # every value there is
        codes = np.arange(1 << 16, dtype=np.uint16).view(element.dtype)
        yield Sample(f"{element} all codes", {"x": codes})
    yield Sample(
        "f32 range", {"x": (rng.standard_normal(4096) * 10.0 ** rng.uniform(-30, 30, 4096)).astype(np.float32)}
    )
    yield Sample("f32 moderate", {"x": rng.uniform(-20, 20, 20000).astype(np.float32)})
    for element in (ElementKind.F32, ElementKind.F64):  # where functions have roots, and their formulas cancel
        near = rng.integers(-1, 2, 20000) + rng.standard_normal(20000) * 2.0 ** -rng.integers(2, 24, 20000)
        yield Sample(f"{element} near -1, 0 and 1", {"x": near.astype(element.dtype)})
    broadcast = np.broadcast_to(values(rng, (1, 40), ElementKind.F32), (5, 40))
    yield Sample("f32 broadcast rows", {"x": broadcast})


PAIRS = (
    ((1023,), (1023,)),
    ((7, 33), (33,)),
    ((7, 1), (1, 33)),
    ((), (5,)),
    ((0, 3), (1, 3)),
    ((4, 8, 16), (8, 1)),
    ((64, 256), (64, 256)),
    ((3, 64), (3, 1)),
)


def binary(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:
    """Broadcasts, mixed dtypes, layouts, and every pair of corners."""
    rng = np.random.default_rng(seed)
    power = dict(fixed or {}).get("kind") == "pow"

    def pair(a: tuple[int, ...], b: tuple[int, ...], first: ElementKind, second: ElementKind) -> dict[str, Any]:
        x1, x2 = values(rng, a, first), values(rng, b, second)
        return {"x1": np.asarray(np.abs(x1)) if power and first.is_float else x1, "x2": x2}

    for element in (*FLOATS, *INTEGERS):
        corners = adversarial(element)
        yield Sample(f"{element} corners", {"x1": corners[:, None], "x2": corners[None, :]})
        for a, b in PAIRS if full or element in (ElementKind.F32, ElementKind.BF16) else PAIRS[:3]:
            yield Sample(f"{element}{list(a)}{list(b)}", pair(a, b, element, element))
        views = layouts(values(rng, (6, 40), element))
        for name, view in views.items():
            yield Sample(
                f"{element} {name}", {"x1": np.abs(view) if power and element.is_float else view, "x2": views["C"]}
            )
    for first, second in (
        (ElementKind.BF16, ElementKind.F32),
        (ElementKind.F16, ElementKind.BF16),
        (ElementKind.I32, ElementKind.F32),
        (ElementKind.I8, ElementKind.I64),
    ):
        yield Sample(f"{first} with {second}", pair((5, 31), (31,), first, second))
    for element in (ElementKind.BF16, ElementKind.F16, ElementKind.F32):
        base = np.exp(rng.uniform(-3, 3, 20000)).astype(element.dtype)
        near = base * np.asarray(1 + rng.standard_normal(20000) / 1024).astype(element.dtype)
        sign = np.where((rng.random(20000) < 0.5) & (not power), -1, 1).astype(element.dtype)
        yield Sample(f"{element} near equals", {"x1": base, "x2": near * sign})
        yield Sample(f"{element} dense", {"x1": base, "x2": rng.uniform(-8, 8, 20000).astype(element.dtype)})
        signed = np.where(rng.random(5000) < 0.5, -1, 1)
        yield Sample(
            f"{element} signed",
            {"x1": (base[:5000] * signed).astype(element.dtype), "x2": rng.integers(-6, 7, 5000).astype(element.dtype)},
        )
