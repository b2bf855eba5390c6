"""Elementwise functions in float64 (long double for f64 results), exactly in integers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from ..types import ElementKind, PrecisionGuarantee, Ulp
from . import special

__all__ = ["binary", "guarantee", "unary"]

Array: TypeAlias = np.ndarray[Any, Any]


def neg(x: Array) -> Array:
    return np.negative(x)


def abs(x: Array) -> Array:
    return np.abs(x)


def sign(x: Array) -> Array:
    return np.sign(x)


def square(x: Array) -> Array:
    return np.multiply(x, x)


def sqrt(x: Array) -> Array:
    return np.sqrt(x)


def rsqrt(x: Array) -> Array:
    return 1 / np.sqrt(x)


def exp(x: Array) -> Array:
    return np.exp(x)


def log(x: Array) -> Array:
    return np.log(x)


def tanh(x: Array) -> Array:
    return np.tanh(x)


def sigmoid(x: Array) -> Array:
    t = np.exp(-np.abs(x))
    return np.asarray(np.where(x < 0, t, np.ones_like(t)) / (1 + t))


def erf(x: Array) -> Array:
    return special.erf(x)


def relu(x: Array) -> Array:
    return np.maximum(x, np.zeros((), np.asarray(x).dtype))


def gelu(x: Array) -> Array:
    return np.where(np.isneginf(x), -np.zeros_like(x), x * special.phi(x))


def silu(x: Array) -> Array:
    return np.where(np.isneginf(x), -np.zeros_like(x), x * sigmoid(x))


# IEEE 754 rounds these correctly: in float64 they are the oracle as they stand, and more digits would round twice.
_CORRECTLY_ROUNDED = frozenset(
    [
        "neg",
        "abs",
        "sign",
        "square",
        "sqrt",
        "relu",
        "add",
        "subtract",
        "multiply",
        "divide",
        "maximum",
        "minimum",
        "copysign",
    ]
)


def _wide(x: Array, out: ElementKind, kind: str) -> Array:
    """The type computed in: integers as they are, floats with digits to spare. Integers become floats by way of the
    result's own type, as in NumPy."""
    if out.is_integer:
        return x.astype(out.dtype)
    if x.dtype.kind in "iu":
        x = x.astype(np.float64 if out is ElementKind.F64 else np.float32)
    return x.astype(np.longdouble if out is ElementKind.F64 and kind not in _CORRECTLY_ROUNDED else np.float64)


def unary(desc: Any, x: Array) -> Array:
    """`desc.kind` of x, wide."""
    with np.errstate(all="ignore"):
        kind = desc.kind.value
        return globals()[kind](_wide(x, desc.layout("out").element, kind))  # type: ignore[no-any-return]


def binary(desc: Any, x1: Array, x2: Array) -> Array:
    """`desc.kind` of x1 and x2, wide."""
    out = desc.layout("out").element
    with np.errstate(all="ignore"):
        a, b = (_wide(x, out, desc.kind.value) for x in (x1, x2))
        if desc.kind.value == "pow" and out.is_integer:
            return _integer_pow(a, b)
        return desc.row.numpy(a, b)  # type: ignore[no-any-return]


def _integer_pow(a: Array, b: Array) -> Array:
    """Wraps like NumPy's; a negative exponent truncates a**b toward zero."""
    a, b = np.broadcast_arrays(a, b)
    positive = np.power(a, np.where(b < 0, 0, b).astype(b.dtype))
    odd = np.where(b & 1, a, np.ones_like(a))
    return np.where(
        b < 0, np.where(a == 1, 1, np.where((a == -1) if a.dtype.kind == "i" else False, odd, 0)), positive
    ).astype(a.dtype)


def guarantee(kernel: PrecisionGuarantee) -> PrecisionGuarantee:
    """What the oracle itself promises: one rounding; in f64 the C library's functions err too, as much as the kernels may."""
    if not isinstance(kernel.bound, Ulp):
        return replace(kernel, flushes_subnormals=False)
    bound = Ulp(max(kernel.bound.n, 1.0) if kernel.accumulator is ElementKind.F64 else 1.0)
    return replace(kernel, bound=bound, flushes_subnormals=False)
