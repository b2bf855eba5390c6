"""The functions of these rows that NumPy does not have, in the types that the families' oracle computes in."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from ....numerics import special
from ....numerics.rounding import halves

__all__ = [
    "addcdiv", "addcmul", "affine", "celu", "cube", "elu", "fake_quantize", "frac", "geglu", "geglu_tanh",
    "gelu_tanh", "hardshrink", "hardsigmoid", "hardswish", "hardtanh", "isclose", "leaky_relu", "lerp", "log_sigmoid",
    "logit", "mish", "nextafter", "quantized_straight_through", "reciprocal", "relu6", "round", "scaled_by_power", "selu",
    "signbit", "softplus", "softshrink", "softsign", "step", "tanhshrink", "threshold",
    "with_signed_zeros", "xlogy",
]  # fmt: skip

Array: TypeAlias = np.ndarray[Any, Any]
PI = np.longdouble("3.14159265358979323846264338327950288")


# ---- numbers ---------------------------------------------------------------------------------------------------------


def reciprocal(x: Array) -> Array:
    return np.asarray(1 / x)


def cube(x: Array) -> Array:
    return np.asarray(x * x * x)


def frac(x: Array) -> Array:
    return np.asarray(x - np.trunc(x))


def floor_divide(a: Array, b: Array) -> Array:
    return np.floor_divide(a, b)


def mod(a: Array, b: Array) -> Array:
    return np.mod(a, b)


def isclose(x1: Array, x2: Array, rtol: Array, atol: Array, equal_nan: Array) -> Array:
    """In the inputs' type, which rounds each operation."""
    difference = np.abs(x1 - x2)
    near = (difference <= atol + rtol * np.abs(x2)) & np.isfinite(difference)
    return np.asarray((x1 == x2) | near | ((equal_nan != 0) & np.isnan(x1) & np.isnan(x2)))


def nextafter(x1: Array, x2: Array) -> Array:
    """Of equal numbers the second, which NumPy's function of f16 does not give where they are zeros."""
    return np.where(x1 == x2, x2, np.nextafter(x1, x2))


def xlogy(x1: Array, x2: Array) -> Array:
    return np.where((x1 == 0) & (x2 == x2), np.zeros_like(x1 + x2), x1 * np.log(x2))


def scaled_by_power(x: Array, exponent: Array) -> Array:
    """x * 2**exponent: the C library rounds once. Larger exponents are beyond every type's range too, and int32 holds these."""
    return np.ldexp(x, np.clip(exponent, -40000, 40000).astype(np.int32))


def round(x: Array) -> Array:
    return np.rint(x) if x.dtype.kind == "f" else x


def signbit(x: Array) -> Array:
    return np.asarray(np.signbit(x) & (x == x)) if x.dtype.kind == "f" else np.asarray(x < 0)


def popcount(x: Array) -> Array:
    return np.bitwise_count(_unsigned(x)).astype(x.dtype)


def clz(x: Array) -> Array:
    """Bit by bit, from the first."""
    width, left = 8 * x.dtype.itemsize, _unsigned(x)
    count = np.zeros(x.shape, np.int64)
    for _ in range(width):
        count += left == 0
        left = left >> left.dtype.type(1)
    return count.astype(x.dtype)


def ctz(x: Array) -> Array:
    """How many bits there are below the last one that is 1."""
    bits = _unsigned(x)
    lowest = bits & (~bits + bits.dtype.type(1))
    return np.asarray(np.bitwise_count(lowest - bits.dtype.type(1)).astype(x.dtype))


def _unsigned(x: Array) -> Array:
    return np.asarray(x).view(f"u{x.dtype.itemsize}")


def product_and_sum(a: Array, b: Array, c: Array) -> Array:
    """a * b + c, in long doubles with the rounding of both operations put back: what is lost is of second order."""
    a, b, c = (np.asarray(x, np.longdouble) for x in (a, b, c))
    product = a * b
    high, low = zip(*(halves(x) for x in (a, b)))
    lost = low[0] * low[1] - (((product - high[0] * high[1]) - low[0] * high[1]) - high[0] * low[1])
    total = product + c
    beside = total - product
    lost = lost + (product - (total - beside)) + (c - beside)
    return np.where(np.isfinite(lost), total + lost, total)


def with_signed_zeros(fused: Any, a: Array, b: Array, c: Array) -> Array:
    """The product and sum by `fused`, with the sign that IEEE 754 gives a sum of two zeros."""
    with np.errstate(all="ignore"):
        a, b, c = (np.asarray(x, np.longdouble) for x in (a, b, c))
        total = a * b + c
    made = fused(a, b, c)
    return np.where((total == 0) & (made == 0), total, made)


def lerp(start: Array, end: Array, weight: Array) -> Array:
    """The operations of the row's formula, in its order: they cancel alike."""
    wide = end - start
    return np.asarray(np.where(np.abs(weight) < 0.5, start + weight * wide, end - wide * (1 - weight)))


def addcmul(x: Array, tensor1: Array, tensor2: Array, value: float) -> Array:
    return np.asarray(x + value * tensor1 * tensor2)


def addcdiv(x: Array, tensor1: Array, tensor2: Array, value: float) -> Array:
    return np.asarray(x + value * (tensor1 / tensor2))


def fake_quantize(x: Array, scale: Array, zero_point: Array, quant_min: float, quant_max: float) -> Array:
    level = np.maximum(np.minimum(np.rint(x / scale) + zero_point, quant_max), quant_min)
    return np.asarray((level - zero_point) * scale)


def quantized_straight_through(x: Array, scale: Array, zero_point: Array, quant_min: float, quant_max: float) -> Array:
    """The same without rounding: x, between the ends of what rounds to a whole number that is not clamped."""
    low, high = np.ceil(quant_min - zero_point) - 0.5, np.floor(quant_max - zero_point) + 0.5
    return np.asarray(np.maximum(np.minimum(x / scale, high), low) * scale)


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
    return with_signed_zeros(product_and_sum, np.asarray(scale), x, np.asarray(shift))


def elu(x: Array, alpha: float) -> Array:
    return np.where(x > 0, x, alpha * np.expm1(x))


def selu(x: Array) -> Array:
    alpha, scale = 1.6732632423543772, 1.0507009873554805
    return np.where(x > 0, scale * x, scale * alpha * np.expm1(x))


def celu(x: Array, alpha: float) -> Array:
    return np.where(x > 0, x, alpha * np.expm1(x / alpha))


def softsign(x: Array) -> Array:
    return np.where(np.isinf(x), np.sign(x), x / (1 + np.abs(x)))


def log_sigmoid(x: Array) -> Array:
    return np.asarray(np.minimum(x, 0) - np.log1p(np.exp(-np.abs(x))))


def logit(x: Array) -> Array:
    middle = np.abs(x - 0.5) <= 0.25
    return np.asarray(np.where(middle, 2 * np.arctanh(2 * x - 1), np.log(x / (1 - x))))


def softplus(x: Array, beta: float) -> Array:
    y = np.longdouble(beta) * x
    return np.asarray((np.maximum(y, 0) + np.log1p(np.exp(-np.abs(y)))) / np.longdouble(beta))


def mish(x: Array) -> Array:
    e = np.exp(np.minimum(x, 100))
    part = e * (e + 2)
    return np.where(np.isneginf(x), -np.zeros_like(x), x * (part / (part + 2)))


def tanhshrink(x: Array) -> Array:
    """Near zero x cosh(x) - sinh(x) as a series, all of whose terms have one sign, divided by cosh(x)."""
    near = np.abs(x) < 2
    small = np.where(near, x, 0)
    term, total = small * small * small / 3, np.zeros_like(small)
    for k in range(1, 20):
        total = total + term
        term = term * small * small * (k + 1) / (k * (2 * k + 2) * (2 * k + 3))
    return np.where(near, np.where(x == 0, x, total / np.cosh(small)), x - np.tanh(x))


def gelu_tanh(x: Array) -> Array:
    """In long doubles: exp multiplies the rounding of its argument."""
    wide = np.clip(x, -200, 200).astype(np.longdouble)
    third = np.longdouble(44715) / 1000000
    e = np.exp(-2 * np.sqrt(np.longdouble(2) / PI) * (wide + third * wide * wide * wide))
    return np.asarray(np.maximum(x, -200) / (1 + e))


# ---- gates -----------------------------------------------------------------------------------------------------------


def reglu(x: Array, y: Array) -> Array:
    return np.asarray(np.maximum(x, 0) * y)


def glu(x: Array, y: Array) -> Array:
    t = np.exp(-np.abs(y))
    return np.where(np.isinf(x) & np.isfinite(y), x, np.where(y < 0, x * t, x) / (1 + t))


def _gated(activated: Array, x: Array, y: Array) -> Array:
    """The product with an activation that is never zero of a finite x but 0, whatever underflows."""
    never_zero = np.isinf(y) & np.isfinite(x) & (x != 0)
    return np.where(never_zero, np.sign(x) * y, activated * y).astype(np.result_type(x, y))


def geglu(x: Array, y: Array) -> Array:
    """Below -8 Phi(x) by Laplace's continued fraction for the tail, in long doubles."""
    tail = -np.maximum(np.minimum(x, -8), -200).astype(np.longdouble)
    denominator = tail
    for k in range(80, 0, -1):
        denominator = tail + k / denominator
    upper = np.round(tail * 64) / 64  # its square is exact
    density = np.exp(-upper * upper / 2) * np.exp((upper - tail) * (upper + tail) / 2) / np.sqrt(2 * PI)
    below = x * (density / denominator)
    below = np.where(np.isneginf(x), -np.zeros_like(below), below)
    return _gated(np.where(x < -8, below, x * special.phi(np.maximum(x, -8))), x, y)


def geglu_tanh(x: Array, y: Array) -> Array:
    return _gated(gelu_tanh(x), x, y)
