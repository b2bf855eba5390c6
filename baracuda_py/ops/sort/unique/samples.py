"""Samples of distinct elements."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle
from typing import Any

import numpy as np

from ....samples.sample import Sample, adversarial, layouts, values
from ....types import ElementKind
from ..whole.samples import KEYS

__all__ = ["unique", "unique_consecutive"]

WHOLE = {"return_inverse": True, "return_counts": True, "return_index": True}
ASKED: tuple[dict[str, Any], ...] = (
    WHOLE,
    {"return_inverse": True},
    {"return_counts": True, "return_index": True},
    {},
)


def unique(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:  # noqa: ARG001
    """Elements in any order."""
    yield from _distinct(np.random.default_rng(seed), full, runs=False)


def unique_consecutive(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:  # noqa: ARG001
    """Elements of which many are equal to the one before."""
    yield from _distinct(np.random.default_rng(seed), full, runs=True)


def _distinct(rng: np.random.Generator, full: bool, *, runs: bool) -> Iterator[Sample]:
    """Every kind, corners, every set of results, capacities from none to more than all, runs across tiles, any layout."""
    asked = cycle(ASKED)

    def sample(x: Any, label: str = "", /, **options: Any) -> Sample:
        said = [f"{name} {value}" for name, value in options.items() if not name.startswith("return_")]
        label = " ".join([f"{x.dtype}{list(x.shape)}", *([label] if label else []), *said])
        return Sample(label, {"x": x}, {"trim": False, **options})

    def few(shape: tuple[int, ...], dtype: Any, n: int = 9) -> Any:
        x = rng.integers(0, n, shape).astype(dtype)
        return np.sort(x, axis=-1) if runs and shape else x

    for i, element in enumerate(KEYS):
        x = few((131,), element.dtype)
        yield sample(x, size=(20, 5)[i % 2], **WHOLE)
        corners = adversarial(element)
        order = rng.permutation(np.arange(2 * len(corners)) % len(corners))
        order = np.sort(order) if runs else order
        yield sample(corners[order], equal_nan=bool(i % 2), **next(asked))
    for element, fill in ((ElementKind.F32, -0.5), (ElementKind.BF16, np.nan), (ElementKind.I64, -(2**62) - 1)):
        yield sample(few((3, 50), element.dtype), size=64, fill_value=fill, **next(asked))
    for shape in ((), (1,), (0,), (2, 0, 3), (5, 1, 7)):
        yield sample(few(shape, np.float32), **next(asked))
    nan = np.full(70, np.nan, np.float32)
    nan[10:20] = -np.nan
    for equal in (False, True):
        yield sample(nan, equal_nan=equal, size=3, **WHOLE)
    yield sample(np.array([0.0, -0.0, 1, -0.0, 0.0, 0.0], np.float16), **WHOLE)
    yield sample(few((30,), np.int32), size=0, **WHOLE)
    for name, view in layouts(few((6, 70), np.int16)).items():
        yield sample(view, name, **next(asked))
    yield sample(few((3, 4100), np.uint8, 3 if runs else 200), size=1 if runs else 30, **WHOLE)
    yield sample(np.repeat(few((3,), np.int32), 5000), "runs across tiles", **WHOLE)
    if full:
        yield sample(values(rng, (9001,), ElementKind.F64), **WHOLE)
        yield sample(np.arange(8200, dtype=np.int32)[::-1], **WHOLE)
