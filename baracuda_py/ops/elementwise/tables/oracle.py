"""The functions of these rows that NumPy does not have, in the types that the families' oracle computes in."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

__all__ = [
    "affine", "cube", "frac", "hardshrink", "hardsigmoid", "hardswish", "hardtanh", "leaky_relu", "reciprocal", "relu6",
    "round", "signbit", "softshrink", "step", "threshold",
]  # fmt: skip

Array: TypeAlias = np.ndarray[Any, Any]


# ---- numbers ---------------------------------------------------------------------------------------------------------


def reciprocal(x: Array) -> Array:
    return np.asarray(1 / x)


def cube(x: Array) -> Array:
    return np.asarray(x * x * x)


def frac(x: Array) -> Array:
    return np.asarray(x - np.trunc(x))


def round(x: Array) -> Array:
    return np.rint(x) if x.dtype.kind == "f" else x


def signbit(x: Array) -> Array:
    return np.asarray(np.signbit(x) & (x == x)) if x.dtype.kind == "f" else np.asarray(x < 0)


def product_and_sum(a: Array, b: Array, c: Array) -> Array:
    """a * b + c, in long doubles with the rounding of both operations put back: what is lost is of second order."""
    a, b, c = (np.asarray(x, np.longdouble) for x in (a, b, c))
    product = a * b
    high, low = zip(*(_halves(x) for x in (a, b)))
    lost = low[0] * low[1] - (((product - high[0] * high[1]) - low[0] * high[1]) - high[0] * low[1])
    total = product + c
    beside = total - product
    lost += (product - (total - beside)) + (c - beside)
    return np.where(np.isfinite(lost), total + lost, total)


def _halves(x: Array) -> tuple[Array, Array]:
    """x as the sum of two numbers of half its digits (Dekker)."""
    scaled = x * np.longdouble(2**32 + 1)
    high = scaled - (scaled - x)
    return high, x - high


# ---- activations -----------------------------------------------------------------------------------------------------


def relu6(x: Array) -> Array:
    return np.clip(x, 0, 6)


def hardtanh(x: Array, min_val: float, max_val: float) -> Array:
    return np.minimum(np.maximum(x, min_val), max_val)


def hardsigmoid(x: Array) -> Array:
    return np.clip(x + 3, 0, 6) / 6  # type: ignore[no-any-return]


def hardswish(x: Array) -> Array:
    return np.where(x <= -3, -np.zeros_like(x), x * hardsigmoid(x))


def hardshrink(x: Array, lambd: float) -> Array:
    return np.where((x >= -lambd) & (x <= lambd), np.zeros_like(x), x)


def softshrink(x: Array, lambd: float) -> Array:
    return np.where(x > lambd, x - lambd, np.where(x < -lambd, x + lambd, 0 * np.where(np.isnan(x), x, 0)))


def threshold(x: Array, threshold: float, value: float) -> Array:
    return np.where(x <= threshold, value, x)


def leaky_relu(x: Array, negative_slope: float) -> Array:
    return np.where(x > 0, x, negative_slope * x)


def step(x: Array) -> Array:
    return np.heaviside(x, np.zeros_like(x))


def affine(x: Array, scale: float, shift: float) -> Array:
    return product_and_sum(np.asarray(scale), x, np.asarray(shift))
