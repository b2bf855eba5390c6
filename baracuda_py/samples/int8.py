"""Samples of codes of a byte: every scheme and type, odd extents, layouts, ranges of all sorts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..types import ElementKind
from .sample import Sample

__all__ = ["dequantise", "quantise"]

F16, BF16, F32 = ElementKind.F16, ElementKind.BF16, ElementKind.F32
I8, U8, E4M3 = ElementKind.I8, ElementKind.U8, ElementKind.FP8_E4M3


def _floats(rng: np.random.Generator, shape: tuple[int, ...], element: ElementKind) -> Any:
    """Rows of all sizes; a row of zeros, and one with what is not finite."""
    x = rng.standard_normal(shape) * np.exp2(rng.integers(-12, 8, (*shape[:-1], 1)))
    if len(shape) == 2 and min(shape) > 3:
        x[1] = 0
        x[2, :3] = np.nan, np.inf, -np.inf
    return x.astype(element.dtype)


_SCHEMES: tuple[tuple[tuple[int, ...], dict[str, Any]], ...] = (
    ((5, 40), {"per": "row"}), ((4, 2, 21), {"per": "row"}), ((3, 96), {"per": "group", "group_size": 32}),
    ((37, 24), {"per": "column"}), ((9, 13), {"per": "column"}), ((6, 64), {"per": "tensor"}), ((77,), {"per": "tensor"}),
)  # fmt: skip


def _kinds(fixed: Any) -> tuple[tuple[ElementKind, bool], ...]:
    """Codes, and whether there are zero points."""
    if "fp8" in fixed.get("name", ""):
        return ((E4M3, False),)
    return ((I8, False), (I8, True), (U8, True), (U8, False))


def quantise(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:
    rng, kinds = np.random.default_rng(seed), _kinds(dict(fixed or {}))
    for i, (shape, scheme) in enumerate(_SCHEMES):
        for j, (kind, zero_points) in enumerate(kinds if full else (kinds[i % len(kinds)],)):
            element = (F32, BF16, F16)[(i + j) % 3]
            options = scheme | {"dtype": kind.value} | ({"zero_points": True} if zero_points else {})
            yield Sample(f"{element} {list(shape)} {scheme['per']} {kind}", {"x": _floats(rng, shape, element)}, options)
    kind, zero_points = kinds[-1]
    turned = {"x": np.asfortranarray(_floats(rng, (6, 10), F32))}
    yield Sample("turned", turned, {"dtype": kind.value})
    tiny = np.full((2, 8), 2.0**-149, np.float32)
    yield Sample("subnormal", {"x": tiny}, {"dtype": kinds[0][0].value})
    huge = np.full((2, 8), 3e38, np.float32) * np.array([[1], [-1]], np.float32)
    huge[:, ::2] *= -1
    yield Sample("huge", {"x": huge}, {"dtype": kinds[0][0].value} | ({"zero_points": True} if kinds[0][0] is I8 else {}))
    yield Sample("empty", {"x": np.zeros((3, 0), np.float32)}, {"dtype": kinds[0][0].value})
    yield Sample("long", {"x": _floats(rng, (2, 9000), BF16)}, {"dtype": kinds[0][0].value})


def _scales_shape(shape: tuple[int, ...], scheme: dict[str, Any]) -> tuple[int, ...]:
    of = {"tensor": (), "row": shape[:-1], "column": shape[-1:]}
    return of[scheme["per"]] if scheme["per"] in of else (*shape[:-1], shape[-1] // scheme["group_size"])


def dequantise(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:
    rng, kinds = np.random.default_rng(seed), _kinds(dict(fixed or {}))
    for i, (shape, scheme) in enumerate(_SCHEMES):
        for j, (kind, zero_points) in enumerate(kinds if full else (kinds[i % len(kinds)],)):
            element, scales = (F32, BF16, F16)[(i + j) % 3], _scales_shape(shape, scheme)
            operands = {"codes": _codes(rng, shape, kind), "scales": rng.uniform(-2, 2, scales).astype(np.float32)}
            if zero_points:
                operands["zeros"] = _codes(rng, scales, kind)
            yield Sample(f"{kind} {list(shape)} {scheme['per']} to {element}", operands, scheme | {"dtype": element.value})
    turned = {"codes": np.asfortranarray(_codes(rng, (6, 10), kinds[0][0])), "scales": np.ones(6, np.float32)}
    yield Sample("turned", turned)


def _codes(rng: np.random.Generator, shape: tuple[int, ...], kind: ElementKind) -> Any:
    codes = rng.integers(0, 256, shape, np.uint8, endpoint=False)
    return np.asarray(codes).view(kind.dtype).reshape(shape)
