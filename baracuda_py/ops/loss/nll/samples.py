"""Samples of the negative log-likelihood: every kind and reduction; labels that are ignored or out of range; layouts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ....samples.sample import Sample, layouts, values
from ....types import ElementKind

__all__ = ["backward", "forward"]

BF16, F16, F32, F64 = ElementKind.BF16, ElementKind.F16, ElementKind.F32, ElementKind.F64


def forward(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:  # noqa: ARG001
    """Few rows of each kind, with weights and without."""
    rng = np.random.default_rng(seed)

    def sample(label: str, shape: tuple[int, ...], kind: ElementKind, view: str = "C", **options: Any) -> Sample:
        labels: Any = np.asarray(rng.integers(0, shape[-1], shape[:-1])).astype(np.int32 if kind is F32 else np.int64)
        if options.get("return_status"):
            labels[1::4] = rng.choice([-1, shape[-1], 2**31 - 1], labels[1::4].shape)
        if labels.ndim:
            labels[2::3] = options.get("ignore_index", -100)
        x = -np.abs(values(rng, shape, kind))
        operands: dict[str, Any] = {"x": layouts(x)[view], "labels": labels}
        if view not in ("C", "F"):
            operands["labels"] = layouts(labels)[view]
        if label == "weighted":
            weight = (0.1 + rng.random(shape[-1])).astype((kind if kind is F16 else F32).dtype)
            operands["weight"] = layouts(weight)["reversed" if view == "F" else "C"]
        return Sample(f"{label} {kind}{list(shape)} {view} {' '.join(options)}", operands, options)

    yield sample("mean", (7, 33), BF16)
    yield sample("weighted", (300, 5), F32)
    yield sample("weighted", (6, 9), F16, "F", reduction="none")
    yield sample("sum", (5, 12), F64, reduction="sum", ignore_index=3)
    for view in ("padded", "reversed", "stepped") if full else ("stepped",):
        yield sample("none", (9, 8), F32, view, reduction="none", return_status=True)
    yield sample("one row", (9,), F32)
    yield sample("no rows", (0, 4), F32)
    yield sample("every label counts", (2, 5), F32)


def backward(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:  # noqa: ARG001
    """The samples of the loss, and a gradient of the result."""
    rng = np.random.default_rng(seed)
    for sample in forward(None, seed, full=full):
        x = sample.operands["x"]
        shape = x.shape[:-1] if sample.options.get("reduction") == "none" else ()
        grad = np.asarray(rng.standard_normal(shape)).astype(np.float64 if x.dtype == np.float64 else np.float32)
        yield Sample(sample.label, {"grad": grad, **sample.operands}, sample.options)
