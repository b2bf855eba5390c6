"""Functions that NumPy lacks: erf, erfc and Phi in double precision, the inverse of erf, lgamma and digamma in long doubles. The
tests compare them with mpmath."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache
from typing import Any, TypeAlias

import numpy as np

__all__ = ["digamma", "erf", "erfc", "erfinv", "lgamma", "phi"]

Array: TypeAlias = np.ndarray[Any, Any]

# The C library's, an element at a time: half an ulp or so, and the oracle need not be fast.
_erf = np.frompyfunc(math.erf, 1, 1)
_erfc = np.frompyfunc(math.erfc, 1, 1)


def erf(x: Array) -> Array:
    return np.asarray(_erf(x), dtype=np.float64)


def erfc(x: Array) -> Array:
    return np.asarray(_erfc(x), dtype=np.float64)


def phi(x: Array) -> Array:
    """The standard normal distribution function, accurate in both tails: erfc amplifies the rounding of x / sqrt(2) by
    2 x**2, so that rounding is carried along and put back by erfc's derivative."""
    wide = np.asarray(x, dtype=np.longdouble)
    exact = -wide / np.sqrt(np.longdouble(2))
    near = exact.astype(np.float64)
    with np.errstate(all="ignore"):
        rest = np.where(np.isfinite(near), exact - near, 0)
        slope = np.exp(-(near.astype(np.longdouble) ** 2)) * (2 / np.sqrt(np.longdouble(np.pi)))
        return 0.5 * (erfc(near) - rest * slope)  # type: ignore[no-any-return]


# ---- in long doubles, as results of the type given -------------------------------------------------------------------

PI = np.longdouble("3.14159265358979323846264338327950288")
EULER = np.longdouble("0.577215664901532860606512090082402431")
# B(2 k), k = 1 to 8: Stirling's series from SHIFT on is then within 1e-20.
BERNOULLI = [Fraction(*x) for x in ((1, 6), (-1, 30), (1, 42), (-1, 30), (5, 66), (-691, 2730), (7, 6), (-3617, 510))]
SHIFT = 24


def _long(x: Fraction) -> Any:
    return np.longdouble(x.numerator) / np.longdouble(x.denominator)


def lgamma(x: Array) -> Array:
    """ln |Gamma(x)|. Around the zeros at 1 and 2 by a power series, which keeps all digits."""
    with np.errstate(all="ignore"):
        wide = np.asarray(x, np.longdouble)
        fraction = wide - np.rint(wide)
        y = _lgamma_positive(np.where(wide < 0, 1 - wide, wide))
        y = np.where(wide < 0, np.log(PI / np.abs(np.sin(PI * fraction))) - y, y)
        pole = ((fraction == 0) & (wide <= 0)) | np.isinf(wide)
        return np.where(np.isnan(wide), wide, np.where(pole, np.inf, y)).astype(np.asarray(x).dtype)


def _lgamma_positive(x: Array) -> Array:
    """Gamma(x) = Gamma(1 + x) / x below 1/2; the series from 1/2 to 5/2; Stirling's above."""
    small = x < 0.5
    at = np.where(small, 1 + x, x)
    one, two = np.where(np.abs(at - 1) <= 0.5, at - 1, 0), np.where(np.abs(at - 2) <= 0.5, at - 2, 0)
    y = np.where(at < 1.5, _series(one) - np.log1p(one), _series(two))
    large, logs = np.where(at > 2.5, at, 3), np.zeros_like(at)
    for _ in range(SHIFT):
        less = large < SHIFT
        logs = logs + np.where(less, np.log(large), 0)
        large = np.where(less, large + 1, large)
    tail = sum(_long(b / (2 * k * (2 * k - 1))) * large ** (1 - 2 * k) for k, b in enumerate(BERNOULLI, 1))
    stirling = (large - 0.5) * np.log(large) - large + np.log(2 * PI) / 2 + tail - logs
    return np.where(at > 2.5, np.where(np.isinf(at), at, stirling), y) - np.where(small, np.log(x), 0)


def _series(z: Array) -> Array:
    """ln Gamma(2 + z) for |z| up to 1/2: (1 - Euler's constant) z + sum of (-z)^k (zeta(k) - 1) / k."""
    total = np.zeros_like(z)
    for k in range(48, 1, -1):
        total = (total + _zeta_less_one(k) / k) * -z
    return z * ((1 - EULER) - total)


@cache
def _zeta_less_one(k: int) -> Any:
    """The first terms, and Euler and Maclaurin's formula for the others."""
    n, terms = np.longdouble(32), [np.longdouble(i) ** -k for i in range(31, 1, -1)]
    rest, factor = n ** (1 - k) / (k - 1) + n**-k / 2, np.longdouble(k)
    for j, b in enumerate(BERNOULLI, 1):
        rest = rest + _long(b / math.factorial(2 * j)) * factor * n ** (1 - k - 2 * j)
        factor = factor * (k + 2 * j - 1) * (k + 2 * j)
    return rest + sum(terms, np.longdouble(0))


def digamma(x: Array) -> Array:
    """The derivative of ln Gamma(x): Stirling's series after steps of 1, and the reflection below 0."""
    with np.errstate(all="ignore"):
        wide = np.asarray(x, np.longdouble)
        fraction = wide - np.rint(wide)
        at, less = np.where(wide < 0, 1 - wide, wide), np.where(wide < 0, PI / np.tan(PI * fraction), 0)
        for _ in range(SHIFT):
            less = less + np.where(at < SHIFT, 1 / at, 0)
            at = np.where(at < SHIFT, at + 1, at)
        tail = sum(_long(b / (2 * k)) * at ** (-2 * k) for k, b in enumerate(BERNOULLI, 1))
        y = np.log(at) - 1 / (2 * at) - tail - less
        y = np.where((fraction == 0) & (wide <= 0), np.where(wide == 0, -1 / wide, np.nan), y)
        return np.where(np.isneginf(wide), np.nan, y).astype(np.asarray(x).dtype)


def erfinv(x: Array) -> Array:
    with np.errstate(all="ignore"):
        wide = np.asarray(x, np.longdouble)
        inside = np.abs(wide) < 1
        y = np.where(np.abs(wide) == 1, np.copysign(np.inf, wide), np.nan)
        y[inside] = np.copysign(_erfinv_below_1(np.abs(wide[inside])), wide[inside])
        return y.astype(np.asarray(x).dtype)


def _erfinv_below_1(size: Array) -> Array:
    """Newton's iteration with Halley's second term; near 1 for erfc(y) = 1 - size, which is exact."""
    log = np.log1p(-size * size)  # Winitzki's approximation, within 0.4 percent
    half = 2 / (PI * np.longdouble(0.147)) + log / 2
    y: Array = np.sqrt(np.sqrt(half * half - log / np.longdouble(0.147)) - half)
    y = np.where(size < 1e-3, size * np.sqrt(PI) / 2, y)
    for _ in range(4):
        near, step = y < 2, np.empty_like(y)
        step[near] = _erf_series(y[near]) - size[near]
        step[~near] = (1 - size[~near]) - _erfc_fraction(y[~near])
        step = step / (np.exp(-y * y) * 2 / np.sqrt(PI))
        y = y - step / (1 + y * step)
    return y


def _erf_series(y: Array) -> Array:
    """A series of positive terms, for y up to 2."""
    term = total = y
    for k in range(1, 50):
        term = term * (2 * y * y) / (2 * k + 1)
        total = total + term
    return np.asarray(np.exp(-y * y) * 2 / np.sqrt(PI) * total)


def _erfc_fraction(y: Array) -> Array:
    """Laplace's continued fraction, for y from 2 on."""
    below = y
    for k in range(150, 0, -1):
        below = y + k / (2 * below)
    return np.asarray(np.exp(-y * y) / np.sqrt(PI) / below)
