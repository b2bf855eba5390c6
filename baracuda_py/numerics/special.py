"""Functions that NumPy lacks, in double precision: erf, erfc and Phi. The tests compare them with mpmath."""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np

__all__ = ["erf", "erfc", "phi"]

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
