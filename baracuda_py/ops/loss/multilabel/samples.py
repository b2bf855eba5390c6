"""Samples of the multi-label margin loss: kinds, reductions, duplicates, rows of all targets or none, targets out of range."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ....numerics.rounding import round_to
from ....samples.sample import Sample, layouts
from ....types import ElementKind

__all__ = ["backward", "forward"]

BF16, F16, F32, F64 = ElementKind.BF16, ElementKind.F16, ElementKind.F32, ElementKind.F64


def targets(rng: np.random.Generator, shape: tuple[int, ...], most: int) -> np.ndarray[Any, Any]:
    """Up to `most` classes per row, of which some are given twice, then -1 and what has no meaning."""
    classes = shape[-1]
    found = rng.integers(-3, classes + 3, shape)
    for row in found.reshape(-1, classes):
        held = int(rng.integers(0, most + 1))
        row[:held] = rng.integers(0, classes, held)
        row[held : held + 1] = -1
    return found


def forward(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:  # noqa: ARG001
    """Sums of every kind; losses of rows in every layout."""
    rng = np.random.default_rng(seed)

    def sample(
        label: str, shape: tuple[int, ...], kind: ElementKind, view: str = "C", most: int = 5, **options: Any
    ) -> Sample:
        x = round_to(rng.standard_normal(shape), kind)
        target: Any = targets(rng, shape, min(most, shape[-1])).astype(np.int32 if kind is F16 else np.int64)
        if label == "all":
            target[...] = rng.permuted(np.broadcast_to(np.arange(shape[-1]), shape), axis=-1)
        if label == "wrong":
            target[1::3, 0] = rng.choice([-2, shape[-1], 2**31 - 1], target[1::3, 0].shape)
        operands = {"x": layouts(x)[view], "target": layouts(target)[view]}
        return Sample(f"{label} {kind}{list(shape)} {view} {' '.join(options)}", operands, options)

    for kind in (F32, BF16, F16, F64):
        yield sample("mean", (7, 33), kind)
    yield sample("sum", (600, 8), F32, reduction="sum")
    for view in ("padded", "reversed", "stepped", "F") if full else ("stepped", "F"):
        yield sample("none", (6, 40), F32, view, reduction="none")
    yield sample("many targets", (3, 700), F32, most=600)
    yield sample("many of few", (3, 130), F16, most=130, reduction="sum")
    yield sample("marks in memory", (2, 9_001), BF16, reduction="none")
    yield sample("all", (3, 50), F32)
    yield sample("wrong", (7, 24), F32, reduction="none", return_status=True)
    yield sample("one row", (9,), F32)
    yield sample("one class", (4, 1), F32, most=1)
    yield sample("no rows", (0, 4), F32)


def backward(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:
    """The samples of the loss, and a gradient of the result."""
    rng = np.random.default_rng(seed)
    for sample in forward(fixed, seed, full=full):
        x = sample.operands["x"]
        shape = x.shape[:-1] if sample.options.get("reduction") == "none" else ()
        grad = np.asarray(rng.standard_normal(shape)).astype(np.float64 if x.dtype == np.float64 else np.float32)
        yield Sample(sample.label, {"grad": grad, **sample.operands}, sample.options)
