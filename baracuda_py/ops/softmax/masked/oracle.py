"""Softmax of scaled and masked rows, and its gradient, in float64 (long double for f64), and the measures of their bounds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from ....numerics.rounding import wide
from ....types import ElementKind
from .. import oracle as plain

__all__ = ["BACKWARD_MEASURES", "MEASURES", "backward", "softmax"]

Array: TypeAlias = np.ndarray[Any, Any]


def _double(desc: Any) -> bool:
    return desc.element is ElementKind.F64


def _scale(desc: Any) -> Any:
    """As kernels take it."""
    return wide(np.asarray(desc.scale, np.float64 if _double(desc) else np.float32), desc.element)


def _visible(desc: Any, mask: Array | None) -> Array:
    """Where a score takes part."""
    seen = np.ones(desc.shape, bool)
    if mask is not None and mask.dtype == bool:
        seen = seen & mask
    if desc.causal:
        queries, keys = (np.arange(n, dtype=np.int64) for n in desc.shape[-2:])
        seen = seen & (keys <= queries[:, None] + int(desc.offset))
    return seen


def _added(desc: Any, mask: Array | None) -> Array:
    return np.zeros((), wide(np.zeros(()), desc.element).dtype) if mask is None or mask.dtype == bool else wide(
        mask, desc.element
    )  # fmt: skip


def _scores(desc: Any, x: Array, mask: Array | None) -> Array:
    scores = wide(x, desc.element) * _scale(desc) + _added(desc, mask)
    return np.where(_visible(desc, mask), scores, -np.inf)


def _shifted(scores: Array) -> Array:
    most = scores.max(axis=-1, keepdims=True, initial=-np.inf)
    return np.asarray(scores - np.where(np.isneginf(most), 0, most))


def _probabilities(shifted: Array) -> Array:
    terms = np.exp(shifted)
    total = terms.sum(axis=-1, keepdims=True)
    return np.asarray(terms / np.where(total == 0, 1, total))


def softmax(desc: Any, x: Array, mask: Array | None = None) -> Array:
    """The result, wide; rows without a finite score are 0."""
    with np.errstate(all="ignore"):
        return _probabilities(_shifted(_scores(desc, x, mask)))


def backward(desc: Any, grad: Array, y: Array) -> Array:
    """The gradient of x, wide."""
    with np.errstate(all="ignore"):
        return np.asarray(_scale(desc) * plain.backward(desc, grad, y))


# ---- measures ----------------------------------------------------------------------------------------------------------


def _unit(desc: Any) -> float:
    return (ElementKind.F64 if _double(desc) else ElementKind.F32).unit_roundoff


def _score_errors(desc: Any, x: Array, mask: Array | None, p: Array) -> tuple[Array, Array]:
    """By what factor a term exp(t) may be off because t = scale x + mask is rounded, less 1; and their mean under p."""
    size = 2 * np.abs(wide(x, desc.element) * _scale(desc)) + np.abs(_added(desc, mask))
    off = np.where(p > 0, np.expm1(_unit(desc) * np.where(p > 0, size, 0)), 0)
    return off, (p * off).sum(axis=-1, keepdims=True)


def _measure(of: Callable[[Any, Array, Array, Array, Array], Array]) -> Callable[..., Array]:
    """A measure of the shift, the probabilities and the factors of scores' errors."""

    def measured(desc: Any, x: Array, mask: Array | None = None) -> Array:
        with np.errstate(all="ignore"):
            shifted = _shifted(_scores(desc, x, mask))
            p = _probabilities(shifted)
            near = np.where(p > 0, np.abs(np.where(p > 0, shifted, 0)), 0)
            return np.asarray(of(desc, near, p, *_score_errors(desc, x, mask, p)), np.float64)

    return measured


def _undetermined(desc: Any, x: Array, mask: Array | None = None) -> Array:
    """Rows of which a score may overflow, or scores are so large that their rounding decides the result."""
    with np.errstate(all="ignore"):
        size = np.abs(wide(x, desc.element) * _scale(desc)) + np.abs(
            np.where(np.isfinite(_added(desc, mask)), _added(desc, mask), 0)
        )
        large = np.isfinite(size) & (size > (np.longdouble(2) ** 1020 if _double(desc) else 2.0**124))
        p = softmax(desc, x, mask)
        off, mean = _score_errors(desc, x, mask, p)
        vague = (mean > 0.25) | (off > 0.25).any(axis=-1, keepdims=True)
        return np.asarray(
            (large & _visible(desc, mask)).any(axis=-1, keepdims=True) | vague | np.zeros(desc.shape, bool)
        )


MEASURES: dict[str, Callable[..., Array]] = {
    "shifted": _measure(lambda desc, near, p, off, mean: near * p),
    "expected": _measure(lambda desc, near, p, off, mean: (p * near).sum(axis=-1, keepdims=True) * p),
    "score_error": _measure(lambda desc, near, p, off, mean: p * (off + mean) / (1 - mean) / _unit(desc)),
    "undetermined": _undetermined,
}


def _scaled(measure: Callable[..., Array]) -> Callable[..., Array]:
    """A measure of the gradient of softmax, times |scale|."""

    def measured(desc: Any, grad: Array, y: Array) -> Array:
        return np.asarray(np.abs(_scale(desc)) * measure(desc, grad, y), np.float64)

    return measured


def _smallest(desc: Any) -> Any:
    """The smallest normal number of what is computed in."""
    return np.longdouble(2) ** -1022 if _double(desc) else 2.0**-126


def _overflowing(desc: Any, grad: Array, y: Array) -> Array:
    """Whether something on the way is beyond what is computed in."""
    with np.errstate(all="ignore"):
        g, p = np.abs(wide(grad, desc.element)), np.abs(wide(y, desc.element))
        total = ((g * p).sum(axis=-1, keepdims=True) + g) * np.maximum(1, p) * np.maximum(1, np.abs(_scale(desc)))
        return np.asarray(np.isfinite(total) & (total > (np.longdouble(2) ** 1020 if _double(desc) else 2.0**124)))


BACKWARD_MEASURES: dict[str, Callable[..., Array]] = {
    **{name: _scaled(plain.BACKWARD_MEASURES[name]) for name in ("y_sum", "y_grad")},
    "scaled_one_smallest": lambda desc, grad, y: (
        (1 + np.abs(_scale(desc))) * np.maximum(1, np.abs(wide(y, desc.element))) * _smallest(desc)
    ),
    "overflowing": _overflowing,
}
