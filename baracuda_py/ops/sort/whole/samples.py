"""Samples of rows in order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ....samples.sample import Sample, adversarial, layouts, values
from ....types import ElementKind

__all__ = ["KEYS", "sort"]

KEYS = (
    ElementKind.F32, ElementKind.BF16, ElementKind.F16, ElementKind.F64, ElementKind.I32, ElementKind.U8, ElementKind.I64,
    ElementKind.I8, ElementKind.I16, ElementKind.U16, ElementKind.U32, ElementKind.U64,
)  # fmt: skip


def sort(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:  # noqa: ARG001
    """Every kind, both orders, ties, corners, rows from one element to several tiles, any axis and layout."""
    rng = np.random.default_rng(seed)

    def sample(x: Any, **options: Any) -> Sample:
        said = " ".join(f"{name} {value}" for name, value in options.items())
        return Sample(f"{x.dtype}{list(x.shape)} {said}", {"x": x}, options)

    for i, element in enumerate(KEYS):
        x = adversarial(element)
        corners = np.stack([x[rng.permutation(np.arange(3 * len(x)) % len(x))] for _ in range(3)])
        for descending in (False, True):
            yield sample(corners, descending=descending)
        yield sample(values(rng, (2, 1500), element), descending=bool(i % 2))
        few = rng.integers(0, 3, (1, 2100)).astype(element.dtype)  # nearly all of them tie
        yield sample(few, descending=bool((i + 1) % 2), index_dtype=(ElementKind.I32, ElementKind.I64)[i % 2])
    for shape in ((1,), (4, 1), (3, 0), (0, 5), (70, 64), (2, 1025)):
        yield sample(values(rng, shape, ElementKind.F32))
    for element in (ElementKind.BF16, ElementKind.F32, ElementKind.F64) if full else ():
        yield sample(values(rng, (2, 4097), element))
        yield sample(values(rng, (1, 20_011), element), descending=True)
    yield sample(values(rng, (3, 70), ElementKind.F32), stable=False)
    for axis in (0, 1, -1):
        yield sample(values(rng, (6, 9, 5), ElementKind.F32), axis=axis)
    yield sample(values(rng, (2500, 3), ElementKind.BF16), axis=0, index_dtype=ElementKind.I32)
    for name, view in layouts(values(rng, (3, 1200), ElementKind.F16)).items():
        yield Sample(f"f16 {name}", {"x": view}, {})
    yield sample(np.full((2, 1100), np.nan, np.float32))
    yield sample(np.broadcast_to(values(rng, (1, 1300), ElementKind.F16), (3, 1300)))
