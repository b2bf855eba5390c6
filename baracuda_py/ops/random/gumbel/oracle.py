"""gumbel_softmax and its gradient in float64 (long double for f64), and the measures of their bounds."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ....numerics.rounding import wide
from ....types import ElementKind
from .. import oracle as plain

__all__ = ["BACKWARD_MEASURES", "MEASURES", "backward", "forward"]

Array: TypeAlias = np.ndarray[Any, Any]


class _Scores(NamedTuple):
    """Along the last axis: z = (x + g) / tau, its error in roundings, softmax(z), and how far z is from the largest."""

    z: Array
    off: Array
    p: Array
    shifts: Array


def _along(desc: Any, x: Array) -> Array:
    return np.moveaxis(np.atleast_1d(x), desc.axis, -1)


def _back(desc: Any, rows: Array) -> Array:
    return np.asarray(np.moveaxis(rows, -1, desc.axis).reshape(desc.shape))


def _scores(desc: Any, x: Array, position: Array | None) -> _Scores:
    numbers = {"seed": desc.seed, "offset": desc.offset, "subsequence": desc.subsequence, "bits": desc.bits}
    standard = SimpleNamespace(**numbers, loc=0.0, scale=1.0)
    noise = plain.fill_gumbel(standard, np.empty(np.shape(x), np.uint8), position)
    held = wide(x, desc.element)
    tau, noise = held.dtype.type(desc.tau), noise.astype(held.dtype)
    with np.errstate(all="ignore"):
        z = _along(desc, (held + noise) / tau)
        off = _along(desc, (8 * (1 + np.abs(noise)) + 3 * np.abs(held + noise)) / tau)
        most = z.max(axis=-1, keepdims=True, initial=-np.inf)
        shifted = z - most
        terms = np.exp(shifted)
        p = terms / terms.sum(axis=-1, keepdims=True)
        return _Scores(z, off, p, np.where(p > 0, np.abs(np.where(p > 0, shifted, 0)), 0))


def forward(desc: Any, x: Array, position: Array | None = None) -> Array:
    """The result, wide."""
    scores = _scores(desc, x, position)
    if not desc.hard or not scores.z.size:
        return _back(desc, scores.p)
    hard = np.zeros_like(scores.p)
    np.put_along_axis(hard, np.argmax(np.where(np.isnan(scores.z), -np.inf, scores.z), -1)[..., None], 1, -1)
    return _back(desc, np.where(np.isnan(scores.p), np.nan, hard))


def backward(desc: Any, grad: Array, x: Array, position: Array | None = None) -> Array:
    """The gradient of x, wide."""
    p, g = _scores(desc, x, position).p, _along(desc, wide(grad, desc.element))
    with np.errstate(all="ignore"):
        return _back(desc, p * (g - (p * g).sum(axis=-1, keepdims=True)) / p.dtype.type(desc.tau))


# ---- measures ----------------------------------------------------------------------------------------------------------


def _unit(desc: Any) -> float:
    return (ElementKind.F64 if desc.element is ElementKind.F64 else ElementKind.F32).unit_roundoff


def _factors(desc: Any, scores: _Scores) -> tuple[Array, Array]:
    """By what factor a term exp(z) may be off, less 1; and their mean."""
    off = np.where(scores.p > 0, np.expm1(np.minimum(_unit(desc) * np.where(scores.p > 0, scores.off, 0), 50.0)), 0)
    return off, (scores.p * off).sum(axis=-1, keepdims=True)


def _vague(desc: Any, scores: _Scores) -> Array:
    """Rows of which a score may overflow, or whose scores' rounding decides the result."""
    off, mean = _factors(desc, scores)
    large = np.isfinite(scores.z) & (scores.off > (np.longdouble(2) ** 1020 if desc.bits == 64 else 2.0**120))
    return np.asarray((large | (off > 0.25)).any(axis=-1, keepdims=True) | (mean > 0.25))


def _undetermined(desc: Any, x: Array, position: Array | None = None) -> Array:
    scores = _scores(desc, x, position)
    with np.errstate(all="ignore"):
        vague = _vague(desc, scores)
        if desc.hard and scores.z.shape[-1] > 1:
            slack = scores.z + 2 * _unit(desc) * scores.off, scores.z - 2 * _unit(desc) * scores.off
            first, sure = np.argmax(scores.z, -1)[..., None], np.max(slack[1], -1, keepdims=True)
            others = slack[0].copy()
            np.put_along_axis(others, first, -np.inf, -1)
            vague = vague | (others.max(axis=-1, keepdims=True) >= sure)
        return _back(desc, vague | np.zeros(scores.p.shape, bool))


def _measure(of: Callable[[Any, _Scores, Array, Array], Array]) -> Callable[..., Array]:
    """A measure of the scores, the factors they err by and the mean of these."""

    def measured(desc: Any, x: Array, position: Array | None = None) -> Array:
        with np.errstate(all="ignore"):
            scores = _scores(desc, x, position)
            return _back(desc, of(desc, scores, *_factors(desc, scores))).astype(np.float64)

    return measured


def _expected(p: Array, of: Array) -> Array:
    return np.asarray((p * of).sum(axis=-1, keepdims=True))


def _relative(desc: Any, off: Array, mean: Array) -> Array:
    """By how many roundings a probability is off because scores are."""
    return np.asarray((off + mean) / (1 - mean) / _unit(desc))


MEASURES: dict[str, Callable[..., Array]] = {
    "shifted": _measure(lambda desc, scores, off, mean: scores.shifts * scores.p),
    "expected": _measure(lambda desc, scores, off, mean: _expected(scores.p, scores.shifts) * scores.p),
    "score_error": _measure(lambda desc, scores, off, mean: scores.p * _relative(desc, off, mean)),
    "undetermined": _undetermined,
}


def _backward_measure(of: Callable[[Any, _Scores, Array], Array]) -> Callable[..., Array]:
    """What the gradient errs by where probabilities are off by so many roundings each (`of` the scores and |grad|)."""

    def measured(desc: Any, grad: Array, x: Array, position: Array | None = None) -> Array:
        with np.errstate(all="ignore"):
            scores, g = _scores(desc, x, position), np.abs(_along(desc, wide(grad, desc.element)))
            each, total = of(desc, scores, g), _expected(scores.p, g)
            moved = scores.p * (each * (g + total) + _expected(scores.p, each * g))
            return _back(desc, moved / desc.tau).astype(np.float64)

    return measured


def _smallest(desc: Any, grad: Array, x: Array, position: Array | None = None) -> Array:
    """The smallest normal number of what is computed in, times what multiplies it afterwards."""
    with np.errstate(all="ignore"):
        g, p = np.abs(_along(desc, wide(grad, desc.element))), _scores(desc, x, position).p
        tiny = np.longdouble(2) ** -1022 if desc.bits == 64 else 2.0**-126
        size = (1 + 1 / desc.tau) * (1 + g + _expected(p, g) + p * g.sum(axis=-1, keepdims=True))
        return _back(desc, tiny * size / _unit(desc)).astype(np.float64)


def _beyond(desc: Any, grad: Array, x: Array, position: Array | None = None) -> Array:
    """Also rows whose gradient has parts beyond what is computed in."""
    with np.errstate(all="ignore"):
        scores, g = _scores(desc, x, position), np.abs(_along(desc, wide(grad, desc.element)))
        most = np.where(np.isfinite(g), g, 0).max(axis=-1, keepdims=True, initial=0)
        large = most * (1 + 1 / desc.tau) * max(g.shape[-1], 1) > (
            np.longdouble(2) ** 1020 if desc.bits == 64 else 2.0**124
        )
        return _back(desc, _vague(desc, scores) | large | np.zeros(g.shape, bool))


BACKWARD_MEASURES: dict[str, Callable[..., Array]] = {
    "moved": _backward_measure(lambda desc, scores, g: np.ones_like(scores.p)),
    "moved_shifts": _backward_measure(lambda desc, scores, g: scores.shifts + _expected(scores.p, scores.shifts)),
    "moved_scores": _backward_measure(lambda desc, scores, g: _relative(desc, *_factors(desc, scores))),
    "moved_smallest": _smallest,
    "undetermined": _beyond,
}
