"""Samples of the CTC loss: kinds, reductions, lengths of every sort, repeated labels, no alignment, what is out of range."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ....numerics.rounding import round_to
from ....samples.sample import Sample, layouts
from ....types import ElementKind

__all__ = ["backward", "forward"]

BF16, F16, F32, F64 = ElementKind.BF16, ElementKind.F16, ElementKind.F32, ElementKind.F64


def forward(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:  # noqa: ARG001
    """Sums of every kind; losses in every layout."""
    rng = np.random.default_rng(seed)

    def sample(
        label: str, shape: tuple[int, int, int], most: int, kind: ElementKind, view: str = "C", **options: Any
    ) -> Sample:
        steps, count, classes = shape
        x = 2 * rng.standard_normal(shape)
        x -= np.log(np.exp(x).sum(-1, keepdims=True))
        index: Any = np.int32 if kind is F16 else np.int64
        targets: Any = rng.integers(min(1, classes - 1), classes, (count, most)).astype(index)
        inputs = rng.integers(steps // 2, steps + 1, count).astype(index)
        sizes = rng.integers(0, min(most, steps // 4) + 1, count).astype(index)
        if count:
            inputs[0], sizes[0] = steps, min(most, steps)
        if label == "wrong":
            inputs[1], sizes[2], targets[3, 0], sizes[3] = steps + 1, -1, classes, 1
        if label == "impossible":
            inputs[1:3], sizes[1:3], targets[1] = 3, [2, 4], targets[1, 0]
        operands: dict[str, Any] = {"log_probs": layouts(round_to(x, kind))[view], "targets": layouts(targets)[view]}
        lengths = {"input_lengths": inputs, "target_lengths": sizes}
        operands |= {name: layouts(one)[view] if view != "F" else one for name, one in lengths.items()}
        return Sample(f"{label} {kind}{list(shape)} {most} {view} {' '.join(options)}", operands, options)

    for kind in (F32, BF16, F16, F64):
        yield sample("mean", (14, 3, 6), 4, kind)
    yield sample("sum", (30, 4, 5), 9, F32, reduction="sum", blank=2)
    for view in ("padded", "reversed", "stepped", "F") if full else ("stepped", "F"):
        yield sample("none", (12, 3, 9), 5, F32, view, reduction="none")
    yield sample("impossible", (12, 4, 5), 4, F32, reduction="none")
    yield sample("impossible", (12, 4, 5), 4, F32, zero_infinity=True)
    yield sample("wrong", (10, 5, 7), 3, F32, reduction="none", return_status=True)
    yield sample("two labels", (40, 2, 3), 15, F32)
    yield sample("no labels", (6, 2, 4), 0, F32)
    yield sample("states in memory", (6, 2, 4), 1030, F32, reduction="none")
    yield sample("no steps", (0, 2, 4), 2, F32, reduction="none")
    yield sample("no sequences", (5, 0, 4), 2, F32)


def backward(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:
    """The samples of the loss, and a gradient of the result."""
    rng = np.random.default_rng(seed)
    for sample in forward(fixed, seed, full=full):
        x = sample.operands["log_probs"]
        shape = x.shape[1:2] if sample.options.get("reduction") == "none" else ()
        grad = np.asarray(rng.standard_normal(shape)).astype(np.float64 if x.dtype == np.float64 else np.float32)
        yield Sample(sample.label, {"grad": grad, **sample.operands}, sample.options)
