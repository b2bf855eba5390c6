"""The functions that the hardware approximates (PTX ISA, Floating Point Instructions: rsqrt, sin, cos, lg2, ex2, tanh; Half
Precision Floating Point Instructions: tanh, ex2). rcp, sqrt and div are in `floats`.

Each approximation is computed here as the value rounded to nearest: it is within every bound that the ISA gives, but its bits
differ from the hardware's. Zeros, infinities, NaN and .ftz follow the ISA's tables.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .floats import two_product, upper_word
from .formats import flush, narrow, widen
from .registers import Lanes, by_elements, unsupported

__all__ = ["cos", "ex2", "lg2", "rsqrt", "sin", "tanh"]

Function = Callable[[Lanes], Lanes]


def sin(a: Lanes, type: str, ftz: bool = False) -> Lanes:
    """sin.approx of f32."""
    return _approximate(np.sin, a, type, ftz)


def cos(a: Lanes, type: str, ftz: bool = False) -> Lanes:
    """cos.approx of f32."""
    return _approximate(np.cos, a, type, ftz)


def lg2(a: Lanes, type: str, ftz: bool = False) -> Lanes:
    """lg2.approx of f32."""
    return _approximate(np.log2, a, type, ftz)


def ex2(a: Lanes, type: str, ftz: bool = False) -> Lanes:
    """ex2.approx, of 16-bit floats and pairs of them too."""
    return _approximate(np.exp2, a, type, ftz)


def tanh(a: Lanes, type: str) -> Lanes:
    """tanh.approx, of 16-bit floats and pairs of them too."""
    return _approximate(np.tanh, a, type, False)


def rsqrt(a: Lanes, type: str, ftz: bool = False) -> Lanes:
    """rsqrt.approx; with `ftz`, the f64 form reads and writes only the upper word."""
    if type != "f64":
        return _approximate(lambda x: 1.0 / np.sqrt(x), a, type, ftz)
    return upper_word(_reciprocal_root(upper_word(a))) if ftz else _reciprocal_root(a)


def _reciprocal_root(x: Lanes) -> Lanes:
    # 1 / sqrt(x) rounds twice, to 1.4 ulps; both rounding errors correct it to half an ulp. The exponent is halved separately.
    m, exponent = np.frexp(x)
    odd = exponent & 1
    m = np.ldexp(m, odd)
    root = np.sqrt(m)
    y = 1.0 / root
    square, square_error = two_product(root, root)
    unit, unit_error = two_product(y, root)
    missing = y * (((1.0 - unit) - unit_error) - 0.5 * ((m - square) - square_error) * y * y)
    return np.ldexp(np.where(np.isfinite(missing), y + missing, y), (odd - exponent) // 2)


def _approximate(function: Function, a: Lanes, type: str, ftz: bool) -> Lanes:
    def of_elements(x: Lanes, kind: str) -> Lanes:
        if kind not in ("f32", "f16", "bf16"):
            raise unsupported("type of this approximation", kind, ("f32", "f16", "bf16"))
        wide = function(widen(flush(x, kind) if ftz else x, kind).astype("f8"))
        result = narrow(wide, kind)
        return flush(result, kind) if ftz else result

    return by_elements(of_elements, (a,), type)
