"""Samples of linear cross entropy: every kind, reduction and option; labels that are ignored or out of range; layouts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ....samples.sample import Sample, layouts, values
from ....types import ElementKind

__all__ = ["backward", "forward"]

BF16, F16, F32, F64 = ElementKind.BF16, ElementKind.F16, ElementKind.F32, ElementKind.F64


def forward(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:  # noqa: ARG001
    """Few rows of each kind, with gradients and without."""
    rng = np.random.default_rng(seed)

    def sample(label: str, n: int, h: int, v: int, kind: ElementKind, *, view: str = "C", **options: Any) -> Sample:
        labels: Any = rng.integers(0, v, n).astype(np.int32 if kind is F32 else np.int64)
        if options.get("return_status"):
            labels[1::4] = rng.choice([-1, v, 2**31 - 1], labels[1::4].shape)
        labels[2::3] = options.get("ignore_index", -100)
        operands = {
            "hidden": layouts(values(rng, (n, h), kind, 1.0))[view],
            "weight": layouts(values(rng, (v, h), kind, 0.5))[view], "labels": layouts(labels)["C" if view == "F" else view],
        }  # fmt: skip
        return Sample(f"{label} {kind}[{n}, {h}, {v}] {view} {' '.join(options)}", operands, options)

    yield sample("loss", 7, 24, 33, BF16, return_lse=True)
    yield sample("gradients", 40, 64, 72, BF16, return_gradients=True, return_lse=True)
    yield sample("each", 6, 16, 40, F16, reduction="none", ignore_index=3, return_gradients=True)
    yield sample(
        "sum",
        5,
        9,
        13,
        F32,
        reduction="sum",
        label_smoothing=0.1,
        z_loss=1e-2,
        return_gradients=True,
        return_status=True,
    )
    yield sample("mean", 4, 6, 9, F64, view="F", label_smoothing=0.3, return_gradients=True)
    for view in ("padded", "stepped", "reversed") if full else ("reversed",):
        yield sample("views", 9, 16, 24, F32, view=view, return_gradients=True)
    yield sample("wrong", 9, 8, 13, BF16, reduction="none", return_status=True)
    yield sample("no rows", 0, 8, 5, F32, return_gradients=True)


def backward(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:  # noqa: ARG001
    """The samples of the forward op with its lse, and a gradient of the result."""
    rng = np.random.default_rng(seed)
    for sample in forward(None, seed, full=full):
        hidden, weight = sample.operands["hidden"], sample.operands["weight"]
        computed = np.float64 if hidden.dtype == np.float64 else np.float32
        x = hidden.astype(np.float64) @ weight.astype(np.float64).T
        lse = np.log(np.exp(x).sum(axis=1)).astype(computed)
        shape = hidden.shape[:1] if sample.options.get("reduction") == "none" else ()
        grad = np.asarray(rng.standard_normal(shape)).astype(computed)
        options = {n: x for n, x in sample.options.items() if n not in ("return_lse", "return_gradients")}
        yield Sample(sample.label, {"grad": grad, **sample.operands, "lse": lse}, options)
