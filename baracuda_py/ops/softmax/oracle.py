"""Softmax, its logarithm and their gradients in float64 (long double for f64), and the measures that their bounds name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from ...numerics.rounding import wide
from ...types import ElementKind

__all__ = ["BACKWARD_MEASURES", "MEASURES", "backward", "softmax"]

Array: TypeAlias = np.ndarray[Any, Any]


def _sum(desc: Any, x: Array) -> Array:
    return np.asarray(x.sum(axis=desc.axis, keepdims=True)) if desc.shape else x


def _shift(desc: Any, x: Array) -> tuple[Array, Array]:
    """x - max(x), and the sum of its exponentials."""
    shift = _from_most(desc, x)
    return shift, _sum(desc, np.exp(shift))


def _from_most(desc: Any, x: Array) -> Array:
    terms = wide(x, desc.element)
    return np.asarray(terms - (terms.max(axis=desc.axis, keepdims=True, initial=-np.inf) if desc.shape else terms))


def _log_sum(desc: Any, shift: Array) -> Array:
    """log(sum(exp(shift))), of which one term is 1: log1p of the others, which may be far below 1."""
    if not desc.shape or not shift.shape[desc.axis]:
        return np.log(_sum(desc, np.exp(shift)))
    at = np.expand_dims(shift.argmax(axis=desc.axis), desc.axis)
    terms, most = np.exp(shift), np.take_along_axis(shift, at, desc.axis)
    np.put_along_axis(terms, at, 0, desc.axis)
    return np.asarray(np.log1p(_sum(desc, terms)) + most)  # which is 0, or NaN


def softmax(desc: Any, x: Array) -> Array:
    """`desc.name` of x, wide."""
    with np.errstate(all="ignore"):
        shift = _from_most(desc, x)
        return np.asarray(shift - _log_sum(desc, shift) if desc.log else np.exp(shift) / _sum(desc, np.exp(shift)))


def backward(desc: Any, grad: Array, y: Array) -> Array:
    """The gradient of x, wide."""
    with np.errstate(all="ignore"):
        g, p = wide(grad, desc.element), wide(y, desc.element)
        return np.asarray(g - np.exp(p) * _sum(desc, g) if desc.log else p * (g - _sum(desc, g * p)))


# ---- measures ------------------------------------------------------------------------------------------------------


def _measure(of: Callable[..., Array]) -> Callable[..., Array]:
    """A measure of the shift t, the sum of exponentials and E, in terms of x."""

    def measured(desc: Any, x: Array) -> Array:
        with np.errstate(all="ignore"):
            shift, total = _shift(desc, x)
            p = np.exp(shift) / total
            expected = _sum(desc, np.where(p > 0, p * np.abs(shift), 0))
            return np.asarray(of(np.where(p > 0, np.abs(shift), 0), np.abs(shift), p, expected, total), np.float64)

    return measured


MEASURES: dict[str, Callable[..., Array]] = {
    "shift": _measure(lambda near, t, p, expected, total: t),
    "shifted": _measure(lambda near, t, p, expected, total: near * p),
    "expected_shift": _measure(lambda near, t, p, expected, total: expected + 0 * p),
    "expected": _measure(lambda near, t, p, expected, total: expected * p),
    "log_sum": _measure(lambda near, t, p, expected, total: np.log(total) + 0 * p),
    "one": lambda desc, x: np.ones(()),
}


def _backward_measure(of: Callable[..., Array]) -> Callable[..., Array]:
    """A measure of |grad|, y, and of sums along the axis, in terms of the operands."""

    def measured(desc: Any, grad: Array, y: Array) -> Array:
        with np.errstate(all="ignore"):
            g, p = wide(grad, desc.element), wide(y, desc.element)
            return np.asarray(of(np.abs(g), p, _sum(desc, np.abs(g)), _sum(desc, np.abs(g * p))), np.float64)

    return measured


def _overflowing(desc: Any, grad: Array, y: Array) -> Array:
    """Whether the terms of the row's sum add up beyond what is computed in,
    or their sum is infinite where a root of exp(y)."""
    double = desc.element is ElementKind.F64
    with np.errstate(all="ignore"):
        g, p = wide(grad, desc.element), wide(y, desc.element)
        total = _sum(desc, np.abs(g if desc.log else g * p))
        beyond = np.isfinite(total) & (total > (np.longdouble(2) ** 1020 if double else 2.0**124))
        vanished = desc.log & np.isinf(total) & (p < 2 * np.log(np.finfo(np.float64 if double else np.float32).tiny))
        return np.asarray(beyond | vanished)


BACKWARD_MEASURES: dict[str, Callable[..., Array]] = {
    "overflowing": _overflowing,
    "y_sum": _backward_measure(lambda g, y, plain, weighted: np.abs(y) * weighted),
    "y_grad": _backward_measure(lambda g, y, plain, weighted: np.abs(y) * g),
    "exp_sum": _backward_measure(lambda g, y, plain, weighted: np.exp(y) * plain),
    "exp_shift_sum": _backward_measure(lambda g, y, plain, weighted: np.exp(y) * np.abs(y) * plain),
}
