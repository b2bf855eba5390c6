"""The activations of kernels/include/math in NumPy, step by step in f32, its polynomials read from there; instructions that
approximate are off by as much as they may be (PTX ISA, "ex2", "rcp"; CUDA C++ Programming Guide, table of maximum errors)."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import numpy as np

from baracuda_py.numerics.special import phi
from baracuda_py.runtime.compile.sources import kernels_dir

__all__ = ["activated"]

Array = np.ndarray[Any, Any]
F = np.float32
LOG2E, LN2 = F(1.4426950408889634), F(0.6931471805599453)
EX2, RCP = 2.0**-22, 2.0**-23  # relative errors of ex2.approx and rcp.approx
EXPF, EXP, NORMCDF = 2 * 2.0**-23, 2.0**-52, 5 * 2.0**-52
BF16, F16 = 8, 11  # significand digits


@cache
def _polynomials() -> tuple[tuple[float, ...], ...]:
    """Of G in upper_tail: for bf16, f16 and f32 results."""
    text = (kernels_dir() / "include/math/upper_tail.cuh").read_text(encoding="utf-8")
    found = re.findall(r"polynomial\([tu], \{([^}]*)\}\)", text)
    assert len(found) == 3, "upper_tail has another form: write it here anew"
    return tuple(tuple(float(x.strip().rstrip("f")) for x in one.split(",")) for one in found)


def _off(exact: Array, relative: float) -> Array:
    """f32 of `exact`, off by up to `relative` one way or the other."""
    sign = np.random.default_rng(exact.size).choice((-1.0, 1.0), exact.shape)
    with np.errstate(over="ignore"):
        return np.asarray((exact.astype(np.float64) * (1 + relative * sign)).astype(F))


def _fma(a: Array, b: Any, c: Any) -> Array:
    return np.asarray((a.astype(np.float64) * np.asarray(b, np.float64) + np.asarray(c, np.float64)).astype(F))


def _polynomial(x: Array, coefficients: tuple[float, ...]) -> Array:
    y = np.full_like(x, F(coefficients[-1]))
    for coefficient in coefficients[-2::-1]:
        y = _fma(y, x, F(coefficient))
    return y


def _ex2(x: Array) -> Array:
    return _off(np.exp2(x.astype(np.float64)), EX2)


def _rcp(x: Array) -> Array:
    return _off(1 / x.astype(np.float64), RCP)


def _upper_tail(x: Array, digits: int) -> Array:
    """Phi(-x) for 0 <= x."""
    half = F(-0.5) * LOG2E
    s = x * x
    p = s * half
    narrow, middle, wide = _polynomials()
    if digits <= BF16:
        u = _rcp(_fma(x, F(0.25), 1.0))
        return np.asarray(u * _polynomial(u, narrow) * _ex2(p))
    t = _rcp(_fma(x, F(0.3), 1.0))
    if digits <= F16:
        return np.asarray(t * _polynomial(t, middle) * _ex2(p))
    low = _fma(_fma(x, x, -s), half, _fma(s, F(-9.6298e-09), _fma(s, half, -p)))
    t = t * (F(2) - _fma(x, F(0.3), 1.0) * t)
    power = _ex2(p)
    return np.asarray(t * _polynomial(t, wide) * _fma(power, low * LN2, power))


def _sigmoid(x: Array, digits: int) -> Array:
    if digits <= F16:
        return _rcp(F(1) + _ex2(x * -LOG2E))
    t = _off(np.exp(-np.abs(x).astype(np.float64)), EXPF)
    return np.asarray(np.where(x < 0, t, F(1)) / (F(1) + t))


def _double(activation: str, x: Array) -> Array:
    """f64 by CUDA's own functions, as far off as they may be."""

    def off(exact: Array, relative: float) -> Array:
        sign = np.random.default_rng(x.size).choice((-1.0, 1.0), x.shape)
        return np.asarray(exact.astype(np.longdouble) * (1 + np.longdouble(relative) * sign)).astype(np.float64)

    if activation == "gelu":
        return np.asarray(x * off(phi(x), NORMCDF))
    u = x if activation == "silu" else x * (1.5957691216057308 + 0.071354816272600248 * x * x)
    t = off(np.exp(-np.abs(u.astype(np.longdouble))), EXP)
    return np.asarray(x * (np.where(u < 0, t, 1.0) / (1.0 + t)))


def activated(activation: str, x: Array, digits: int) -> Array:
    """epilogue.cuh's activate<...> of f32 (f64) sums for results of so many significand digits."""
    if activation in ("identity", "relu"):
        return np.asarray(x if activation == "identity" else np.maximum(x, 0))
    if x.dtype == np.float64:
        return _double(activation, x)
    if activation == "gelu":
        capped = np.minimum(np.abs(x), F(20))
        return np.asarray(_fma(-capped, _upper_tail(capped, digits), np.maximum(x, F(0))))
    u = x if activation == "silu" else x * (F(1.5957691216057308) + F(0.071354816272600248) * x * x)
    return np.asarray(x * _sigmoid(u, digits))
