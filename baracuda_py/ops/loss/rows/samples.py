"""Samples of losses of rows: kinds, reductions, rows that do not fit registers, layouts, options, labels out of range."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ....numerics.rounding import round_to
from ....samples.sample import Sample, layouts
from ....types import ElementKind

__all__ = ["backward", "forward"]

BF16, F16, F32, F64 = ElementKind.BF16, ElementKind.F16, ElementKind.F32, ElementKind.F64
INPUTS = {"cosine_embedding_loss": ("x1", "x2"), "triplet_margin_loss": ("anchor", "positive", "negative")}
# Of each loss: what a call may ask for besides its reduction.
OPTIONS: Mapping[str, tuple[Mapping[str, Any], ...]] = {
    "cosine_embedding_loss": ({"margin": 0.2},),
    "triplet_margin_loss": (
        {"swap": True, "margin": 0.5}, {"p": 1.0, "eps": 1e-3}, {"p": 3.0, "swap": True}, {"p": 1.0, "swap": True},
    ),
    "multi_margin_loss": ({"p": 2.0, "margin": 0.5}, {"weight": True}, {"return_status": True, "reduction": "none"}),
    "multilabel_soft_margin_loss": ({"weight": True},),
}  # fmt: skip


def forward(name: str, fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:  # noqa: ARG001
    """Sums of every kind; losses of rows in every layout; every option."""
    rng = np.random.default_rng(seed)

    def sample(label: str, shape: tuple[int, ...], kind: ElementKind, view: str = "C", **given: Any) -> Sample:
        options = {key: one for key, one in given.items() if key != "weight"}
        inputs = INPUTS.get(name, ("x",))
        operands: dict[str, Any] = {one: layouts(round_to(rng.standard_normal(shape), kind))[view] for one in inputs}
        if name == "cosine_embedding_loss":
            operands["target"] = round_to(np.asarray(rng.choice([1.0, -1.0, -1.0, 0.0], shape[:-1])), kind)
        if name == "multi_margin_loss":
            labels: Any = np.asarray(rng.integers(0, shape[-1], shape[:-1])).astype(
                np.int32 if kind is F16 else np.int64
            )
            if options.get("return_status"):
                labels[1::3] = rng.choice([-1, shape[-1], 2**31 - 1], labels[1::3].shape)
            operands["target"] = layouts(labels)[view] if view not in ("C", "F") else labels
        if name == "multilabel_soft_margin_loss":
            operands["target"] = round_to(rng.random(shape), kind)
        if given.get("weight"):
            operands["weight"] = round_to(0.1 + rng.random(shape[-1]), kind)
        return Sample(f"{label} {kind}{list(shape)} {view}", operands, options)

    for kind in (F32, BF16, F16, F64):
        yield sample("mean", (7, 33), kind)
    yield sample("sum", (600, 8), F32, reduction="sum")
    for view in ("padded", "reversed", "stepped", "F") if full else ("stepped", "F"):
        yield sample("none", (6, 40), F32, view, reduction="none")
    yield sample("vectors", (3, 520), BF16)
    yield sample("streamed", (2, 40_001), F16, reduction="sum")
    yield sample("one row", (9,), F32)
    yield sample("no rows", (0, 4), F32)
    for options in OPTIONS[name]:
        yield sample(" ".join(map(str, options)), (5, 24), F32, **options)


def backward(name: str, fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:
    """The samples of the loss, and a gradient of the result."""
    rng = np.random.default_rng(seed)
    for sample in forward(name, fixed, seed, full=full):
        x = next(iter(sample.operands.values()))
        shape = x.shape[:-1] if sample.options.get("reduction") == "none" else ()
        grad = np.asarray(rng.standard_normal(shape)).astype(np.float64 if x.dtype == np.float64 else np.float32)
        made = Sample(sample.label, {"grad": grad, **sample.operands}, sample.options)
        yield made
        if name == "multilabel_soft_margin_loss":
            yield replace(made, label=f"{made.label} target", options={**made.options, "return_grad_target": True})
