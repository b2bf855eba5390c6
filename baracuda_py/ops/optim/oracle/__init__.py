"""Steps of optimizers in float64 (long double for f64), and what the kernel may lose on the way, which their bounds name."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from ....numerics.rounding import wide_dtype
from .adafactor import ADAFACTOR_MEASURES, adafactor_update
from .moments import adagrad, adam, rmsprop
from .muon import MUON_MEASURES, muon_update
from .normed import lamb, lars
from .norms import NORM_MEASURES, gradient_clip, gradient_norm
from .parts import Parts, Step
from .signs import lion, sgd

__all__ = [
    "ADAFACTOR_MEASURES",
    "MEASURES",
    "MUON_MEASURES",
    "NORM_MEASURES",
    "Parts",
    "Step",
    "adafactor_update",
    "adagrad",
    "adam",
    "gradient_clip",
    "gradient_norm",
    "lamb",
    "lars",
    "lion",
    "muon_update",
    "rmsprop",
    "sgd",
    "update",
]

Array: TypeAlias = np.ndarray[Any, Any]


def update(desc: Any, **given: Array) -> tuple[Array, ...]:
    """Every written operand, in order."""
    with np.errstate(all="ignore"):
        parts = Parts(desc, given)
        return parts.results(desc.rule.oracle(parts))


def _measure(of: Callable[[Step, str], Any]) -> Callable[..., Array]:
    """A measure of the elements that a step updates; it is 0 elsewhere, and where the step is skipped."""

    def measured(desc: Any, output: str, **given: Array) -> Array:
        with np.errstate(all="ignore"):
            parts, nothing = Parts(desc, given), np.zeros(math.prod(desc.shape), wide_dtype(desc.element))
            if parts.skipped:
                return nothing.reshape(desc.shape)
            return parts.placed(output, of(desc.rule.oracle(parts), output), nothing)

    return measured


MEASURES: dict[str, Callable[..., Array]] = {
    "lost": _measure(lambda step, output: step.lost["param" if output == "master" else output]),
    "correction": _measure(lambda step, _: step.correction),
    "beyond": _measure(lambda step, _: step.beyond),
}
