"""Samples of elements that are among others: every kind, corners, layouts, none and one, and many to search."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ....samples.sample import Sample, adversarial, layouts
from ....types import ElementKind
from ..whole.samples import KEYS

__all__ = ["isin"]


def isin(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:  # noqa: ARG001
    """Elements of few values, of which some are tested."""
    rng = np.random.default_rng(seed)

    def few(shape: tuple[int, ...], kind: ElementKind, n: int = 100) -> Any:
        return rng.integers(0, n, shape).astype(kind.dtype)

    def sample(label: str, elements: Any, tested: Any, **options: Any) -> Sample:
        said = " ".join([label, f"{elements.dtype}{list(elements.shape)}{list(tested.shape)}", *options])
        return Sample(said.strip(), {"elements": elements, "test_elements": tested}, options)

    for i, kind in enumerate(KEYS):
        options: dict[str, Any] = {"invert": True} if i % 2 else {}
        yield sample("", few((7, 33), kind), few((40,), kind), **options)
        corners = adversarial(kind)
        yield sample("corners", corners, corners[:: 2 + i % 2], **options)
    for shape, tested in (((), (3,)), ((5,), ()), ((0, 3), (4,)), ((6,), (0,)), ((2, 3), (2, 0)), ((1,), (1,))):
        for options in ({}, {"invert": True}):
            yield sample("", few(shape, ElementKind.F32, 3), few(tested, ElementKind.F32, 3), **options)
    yield sample("many", few((3, 700), ElementKind.F32, 90_000), few((9001,), ElementKind.F32, 90_000))
    elements, tested = few((6, 40), ElementKind.F32), few((9, 8), ElementKind.F32)
    for name, view in layouts(elements).items():
        yield sample(f"elements {name}", view, tested)
    for name, view in layouts(tested).items():
        yield sample(f"test_elements {name}", elements, view, invert=True)
    nan = np.full(5, np.nan, np.float32)
    yield sample("NaN", np.append(nan, 1).astype(np.float32), nan)
