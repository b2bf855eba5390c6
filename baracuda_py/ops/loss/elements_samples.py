"""Samples of losses of elements: every kind, reduction and layout, and the values that each loss is of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ...numerics.rounding import round_to
from ...samples.sample import Sample, layouts
from ...types import ElementKind
from ._table import TABLE

__all__ = ["backward", "forward"]

UNIT = ("bce", "bce_with_logits", "kl_div")  # whose target is from 0 to 1
SIGNS = ("soft_margin_loss", "hinge_embedding_loss", "margin_ranking_loss")  # whose target is -1 or 1
THIRD = {"gaussian_nll_loss": "var", "margin_ranking_loss": "other"}
# Defaults of functions that differ from the descriptor's, which all losses share.
DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "poisson_nll_loss": {"log_input": True, "eps": 1e-8}, "margin_ranking_loss": {"margin": 0.0},
}  # fmt: skip
OPTIONS: Mapping[str, tuple[Mapping[str, Any], ...]] = {
    "smooth_l1_loss": ({"beta": 0.3},), "huber_loss": ({"delta": 0.3},), "hinge_embedding_loss": ({"margin": 0.4},),
    "margin_ranking_loss": ({"margin": 0.4},), "gaussian_nll_loss": ({"full": True, "eps": 1e-3},),
    "poisson_nll_loss": ({"full": True}, {"log_input": False, "eps": 1e-3}),
}  # fmt: skip


def forward(name: str, fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:  # noqa: ARG001
    """Sums of every kind, one by several CTAs; each element's loss in every layout."""
    rng = np.random.default_rng(seed)

    def sample(label: str, shape: tuple[int, ...], kind: ElementKind, view: str = "C", **options: Any) -> Sample:
        x, target = rng.standard_normal(shape), rng.standard_normal(shape)
        x = 0.05 + 0.9 * rng.random(shape) if name == "bce" else -np.abs(x) if name == "kl_div" else x
        target = rng.random(shape) if name in UNIT else np.where(target > 0, 1.0, -1.0) if name in SIGNS else target
        target = np.log(target) if options.get("log_target") else target
        if name == "poisson_nll_loss":
            x, target = (
                (x if options.get("log_input", True) else np.abs(x) + 0.1),
                rng.poisson(2.0, shape).astype(float),
            )
        arrays = {"x": layouts(round_to(x, kind))[view], "target": round_to(target, kind)}
        if name in THIRD:
            third = rng.standard_normal(shape)
            arrays[THIRD[name]] = round_to(np.abs(third) + 0.2 if name == "gaussian_nll_loss" else third, kind)
        return Sample(f"{kind}{list(shape)} {view} {label}", arrays, {**DEFAULTS.get(name, {}), **options})

    for kind in (ElementKind.F32, ElementKind.BF16, ElementKind.F16, ElementKind.F64):
        yield sample("mean", (7, 33), kind)
    yield sample("sum", (5, 1300), ElementKind.F32, reduction="sum")
    for view in ("padded", "reversed", "F") if full else ("F",):
        yield sample("none", (6, 40), ElementKind.F32, view, reduction="none")
    yield sample("empty", (0, 4), ElementKind.F32)
    if name == "kl_div":
        yield sample("logs", (3, 50), ElementKind.F32, log_target=True, reduction="batchmean")
    for options in OPTIONS.get(name, ()):
        yield sample(" ".join(("options", *options)), (3, 50), ElementKind.F16, reduction="none", **options)


def backward(name: str, fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:
    """The samples of the loss, and a gradient of the result."""
    rng, made = np.random.default_rng(seed), []
    for sample in forward(name, fixed, seed, full=full):
        x = sample.operands["x"]
        shape = x.shape if sample.options.get("reduction") == "none" else ()
        grad = np.asarray(rng.standard_normal(shape)).astype(np.float64 if x.dtype == np.float64 else np.float32)
        options = {key: one for key, one in sample.options.items() if key != "full"}
        made.append(Sample(sample.label, {"grad": grad, **sample.operands}, options))
        yield made[-1]
        if name == "poisson_nll_loss" and "full" in sample.options:
            made[-1] = replace(made[-1], options=sample.options)
    for sample in made if TABLE[name].target_slope else ():
        yield replace(sample, label=f"{sample.label} target", options={**sample.options, "return_grad_target": True})
