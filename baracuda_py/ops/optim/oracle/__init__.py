"""Steps of optimizers in float64 (long double for f64), and what the kernel may lose on the way, which their bounds name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

from ....numerics.rounding import wide_dtype
from ....types import ElementKind
from .adafactor import ADAFACTOR_MEASURES, adafactor_update
from .blockwise import BlockwiseParts, numbers
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
    "numbers",
    "rmsprop",
    "sgd",
    "update",
]

Array: TypeAlias = np.ndarray[Any, Any]
U = ElementKind.F32.unit_roundoff


def update(desc: Any, **given: Array) -> tuple[Array, ...]:
    """Every written operand, in order."""
    with np.errstate(all="ignore"):
        parts = _parts(desc, given)
        return parts.results(desc.rule.oracle(parts))


def _parts(desc: Any, given: Mapping[str, Array]) -> Parts:
    return (BlockwiseParts if desc.rule.blockwise else Parts)(desc, given)


def _measure(of: Callable[[Any, Step, str], Any]) -> Callable[..., Array]:
    """A measure of what a step updates of an output; it is 0 elsewhere, and where the step is skipped."""

    def measured(desc: Any, output: str, **given: Array) -> Array:
        with np.errstate(all="ignore"):
            parts, nothing = _parts(desc, given), np.zeros(np.size(given[output]), wide_dtype(desc.element))
            if parts.skipped:
                return nothing.reshape(np.shape(given[output]))
            return parts.placed(output, of(parts, desc.rule.oracle(parts), output), nothing)

    return measured


MEASURES: dict[str, Callable[..., Array]] = {
    "lost": _measure(lambda _, step, output: step.lost["param" if output == "master" else output]),
    "correction": _measure(lambda _, step, __: step.correction),
    "beyond": _measure(lambda _, step, __: step.beyond),
    "requantized": _measure(lambda parts, step, output: parts.requantized(step, output)[0] / U),
    "near_the_end": _measure(lambda parts, step, output: parts.requantized(step, output)[1]),
}
