"""Samples of cross entropy and its gradient: short rows, odd lengths, rows that do not fit registers, every option."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ...samples.sample import Sample, adversarial, layouts, values
from ...types import ElementKind

__all__ = ["backward", "forward"]

BF16, F16, F32, F64 = ElementKind.BF16, ElementKind.F16, ElementKind.F32, ElementKind.F64
IGNORED = 3  # one row in three, by every other sample


def forward(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:  # noqa: ARG001
    """Every kind, option and length class; labels that are ignored and, with a status, out of range; layouts; corners."""
    rng = np.random.default_rng(seed)

    def sample(
        label: str, logits: Any, kind: Any = np.int64, weight: ElementKind | None = None, **options: Any
    ) -> Sample:
        rows, classes = logits.shape[:-1], logits.shape[-1]
        labels = rng.integers(0, classes, rows).astype(kind)
        if options.get("return_status"):
            labels[..., ::4] = rng.choice([-1, classes, np.iinfo(kind).min, np.iinfo(kind).max], labels[..., ::4].shape)
        if options.get("return_lse") or "ignore_index" in options:
            labels[..., 1::IGNORED] = options.get("ignore_index", -100)
        operands = {"logits": logits, "labels": labels}
        if weight is not None:
            operands["weight"] = np.abs(values(rng, (classes,), weight)) + np.asarray(0.1, weight.dtype)
        return Sample(f"{label} {logits.dtype}{list(logits.shape)} {' '.join(options)}", operands, options)

    yield sample("resident", values(rng, (7, 130), BF16), return_lse=True)
    yield sample(
        "weighted", values(rng, (5, 33), F32), np.int32, F32, label_smoothing=0.1, z_loss=1e-2, return_lse=True
    )
    yield sample(
        "weighted", values(rng, (9, 72), F16), np.int64, F16, label_smoothing=0.25, reduction="none", z_loss=0.5
    )
    yield sample(
        "weighted", values(rng, (6, 40), F64), np.int32, F64, reduction="sum", ignore_index=2, label_smoothing=0.3
    )
    yield sample("wrong", values(rng, (9, 13), F32), np.int32, reduction="none", return_status=True, return_lse=True)
    yield sample("wrong", values(rng, (9, 13), BF16), reduction="mean", return_status=True)
    yield sample("many rows", values(rng, (1500, 5), F32), weight=F32, ignore_index=1)
    yield sample("one row", values(rng, (9,), F64), z_loss=-0.1)
    yield sample("streamed", values(rng, (2, 40_001), BF16), weight=F32, reduction="none", label_smoothing=0.1)
    for shape in ((0, 4), (4, 1)):
        for reduction in ("mean", "sum", "none") if full else ("mean",):
            yield sample("few", values(rng, shape, F32), reduction=reduction)
    yield Sample("all ignored", {"logits": values(rng, (3, 4), F32), "labels": np.full(3, -100)}, {"return_lse": True})
    for name, view in layouts(values(rng, (6, 40), F32)).items():
        given = sample(name, view, weight=F32, reduction="none", label_smoothing=0.1)
        weight = layouts(given.operands["weight"])["reversed" if name == "F" else "C"]
        labels = layouts(given.operands["labels"])["stepped" if name == "padded" else "C"]
        yield Sample(given.label, {**given.operands, "weight": weight, "labels": labels}, given.options)
    for element in (F32, BF16, F16, F64) if full else (F32, F16):
        corners = adversarial(element)
        rows = [np.where(np.isfinite(corners.astype(np.float64)), corners, np.asarray(1, element.dtype))]
        rows += [np.where(np.arange(len(corners)) % 3 == 0, np.asarray(x, element.dtype), corners[1]) for x in _ENDS]
        rows += [np.full(len(corners), -np.inf, element.dtype)]
        yield sample("corners", np.stack(rows), reduction="none", return_lse=True)
    yield sample(
        "odd", values(rng, (3, 2051), BF16), reduction="none", label_smoothing=0.1, z_loss=1e-2, return_lse=True
    )
    yield sample("odd", values(rng, (3, 2049), F32), np.int32, return_status=True, label_smoothing=0.2)
    given = sample("stepped", values(rng, (5, 33), F32), weight=F32, label_smoothing=0.1)
    steps = {name: layouts(given.operands[name])["stepped"] for name in ("labels", "weight")}
    yield Sample(given.label, {**given.operands, **steps}, given.options)


_ENDS = (-np.inf, np.inf, np.nan)


def backward(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:  # noqa: ARG001
    """The samples of the forward op with its lse, and a gradient of the result."""
    rng = np.random.default_rng(seed)
    for sample in forward(None, seed, full=full):
        logits, options = sample.operands["logits"], {k: v for k, v in sample.options.items() if k != "return_lse"}
        computed = np.float64 if logits.dtype == np.float64 else np.float32
        with np.errstate(all="ignore"):
            x = logits.astype(np.float64)
            most = x.max(axis=-1, keepdims=True)
            lse = (most + np.log(np.exp(x - most).sum(axis=-1, keepdims=True)))[..., 0].astype(computed)
        shape = logits.shape[:-1] if options.get("reduction") == "none" else ()
        grad = np.asarray(rng.standard_normal(shape)).astype(computed)
        yield Sample(sample.label, {"grad": grad, **sample.operands, "lse": lse}, options)
