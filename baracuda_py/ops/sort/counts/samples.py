"""Samples of counts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ....samples.sample import Sample, adversarial, layouts, values
from ....types import ElementKind
from ..whole.samples import KEYS

__all__ = ["bincount", "histogram"]

SHAPES = ((1,), (), (0,), (3, 0), (7, 1, 5), (4099,), (2, 20_000))


def bincount(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:  # noqa: ARG001
    """Every kind of integer, elements without a bin, one bin and more than shared memory has, any layout."""
    rng = np.random.default_rng(seed)

    def sample(x: Any, length: int, **options: Any) -> Sample:
        said = " ".join(f"{name} {value}" for name, value in options.items())
        return Sample(f"{x.dtype}{list(x.shape)} length {length} {said}", {"x": x}, {"length": length, **options})

    for i, element in enumerate(k for k in KEYS if k.is_integer and k is not ElementKind.U64):
        yield sample(adversarial(element), 130, mode=("drop", "status")[i % 2])
        few = rng.integers(0, 100, (33, 131)).astype(element.dtype)
        yield sample(few, (100, 7, 300)[i % 3], mode=("status", "drop")[i % 2])
        yield sample(
            rng.integers(-2, 100, (5, 200)).clip(-2 if element.value[0] == "i" else 0).astype(element.dtype), 64
        )
    for i, shape in enumerate(SHAPES):
        yield sample(rng.integers(0, 50, shape), (50, 13_000)[i % 2], mode=("drop", "status")[i % 2])
    yield sample(rng.integers(0, 9, 50), 0, mode="status")
    yield sample(np.full((3, 3000), 5, np.int32), 6, mode="drop")
    yield sample(rng.integers(-5, 40_000, 9001).astype(np.int32), 30_000, mode="status")
    for view in layouts(rng.integers(0, 40, (6, 70)).astype(np.int16)).values():
        yield sample(view, 40)


def histogram(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:  # noqa: ARG001
    """Every kind, elements at edges and without a bin, NaN, one bin and more than shared memory has, any layout."""
    rng = np.random.default_rng(seed)

    def sample(x: Any, bins: int, low: float = 0.0, high: float = 1.0) -> Sample:
        label = f"{x.dtype}{list(x.shape)} bins {bins} of {low} to {high}"
        return Sample(label, {"x": x}, {"bins": bins, "low": low, "high": high})

    for i, element in enumerate(KEYS):
        yield sample(adversarial(element), (7, 1, 1000)[i % 3], -3.0, 3.0)
        yield sample(rng.integers(0, 60, (33, 131)).astype(element.dtype), (10, 3, 59)[i % 3], 0.0, 59.0)
        yield sample(values(rng, (5, 200), element, 1.0), 64, -1.0, 1.5)
    for i, shape in enumerate(SHAPES):
        yield sample(values(rng, shape, ElementKind.F32), (50, 13_000)[i % 2], -4.0, 5.0)
    edges = np.linspace(0.1, 0.7, 21).astype(np.float64)
    yield sample(np.concatenate([edges, np.nextafter(edges, 0), np.nextafter(edges, 1)]), 20, 0.1, 0.7)
    yield sample(values(rng, (300,), ElementKind.F64, 1e300), 9, -8e307, 8e307)
    for view in layouts(values(rng, (6, 70), ElementKind.F16)).values():
        yield sample(view, 12, -6.0, 6.0)
