"""cvt on lanes: between integers, floating-point formats, and packed ones (PTX ISA, Data Movement and Conversion Instructions:
cvt), each rounded once.

Operands and results are arrays of the register's dtype, or 0-d: 16-bit and narrower floats, and packed ones, are bit patterns.
Call these under ``np.errstate(all="ignore")``.
"""

from __future__ import annotations

import numpy as np

from .floats import clamp, stepped, two_sum
from .formats import FLOATS, flush, narrow, odd, round_to_integer, widen
from .registers import BITS, Lanes, dtype_of, join, split

__all__ = ["convert", "pack", "tf32"]


def convert(
    a: Lanes,
    to: str,
    of: str,
    rounding: str = "",
    sat: bool = False,
    ftz: bool = False,
    relu: bool = False,
    satfinite: bool = False,
) -> Lanes:
    """cvt{.rounding}.to.of. Packed types go to packed ones; two f32 to a packed one by `pack`, f32 to tf32 by `tf32`.

    From float to integer, the rounded value is clamped to the integer's range. NaN gives 0, except from f64 or to 64 bits:
    there it gives 1 << (width - 1).
    """
    if to.endswith("x2"):
        elements = convert(split(a, of), to[:-2], of[:-2], rounding, sat, ftz, relu, satfinite)
        return join(elements, to)
    dtype_of(to)  # raises for an unknown type
    a = np.asarray(a)
    if of not in FLOATS:
        a = a.astype(dtype_of(of), copy=False)
        return clamp(_from_integer(a, to, rounding), sat) if to in FLOATS else _between_integers(a, to, sat)
    if ftz and of == "f32":
        a = flush(a, of)
    x = widen(a, of)
    if to not in FLOATS:
        return _to_integer(x, to, of, rounding)
    if rounding.endswith("i"):
        x, rounding = round_to_integer(x, rounding), "rn"
    result = narrow(clamp(x, sat, relu), to, rounding or "rn", satfinite)
    return flush(result, to) if ftz and to == "f32" else result


def _between_integers(a: Lanes, to: str, sat: bool) -> Lanes:
    if sat:
        own, other = np.iinfo(a.dtype), np.iinfo(dtype_of(to))
        a = np.clip(a, max(own.min, other.min), min(own.max, other.max))
    return a.astype(dtype_of(to))


def _from_integer(a: Lanes, to: str, rounding: str) -> Lanes:
    rounding = rounding or "rn"
    if a.dtype.itemsize < 8:
        return narrow(a.astype("f8"), to, rounding)
    upper, lower = a >> a.dtype.type(32), a & a.dtype.type(0xFFFFFFFF)
    s, e = two_sum(upper.astype("f8") * 2.0**32, lower.astype("f8"))
    if to == "f64":
        return s if rounding == "rn" else stepped(s, e, rounding)
    return narrow(odd(s, e), to, rounding)


def _to_integer(x: Lanes, to: str, of: str, rounding: str) -> Lanes:
    y = round_to_integer(x, rounding)
    limits = np.iinfo(dtype_of(to))
    above, below = y >= float(limits.max + 1), y < limits.min
    missing = np.isnan(y)
    integer = np.where(above | below | missing, y.dtype.type(0), y).astype(dtype_of(to))
    integer = np.where(above, limits.max, np.where(below, limits.min, integer)).astype(dtype_of(to), copy=False)
    if of == "f64" or BITS[to] == 64:
        integer = np.where(missing, limits.min or limits.max // 2 + 1, integer)
    return integer.astype(dtype_of(to), copy=False)


def pack(hi: Lanes, lo: Lanes, to: str, rounding: str = "rn", relu: bool = False, satfinite: bool = False) -> Lanes:
    """cvt.to.f32 of two values into a packed type: the first operand becomes the upper element."""
    element = to[:-2]
    upper, lower = (narrow(clamp(x, relu=relu), element, rounding, satfinite) for x in (hi, lo))
    register = dtype_of(to)
    return upper.astype(register) << register.type(BITS[to] // 2) | lower


def tf32(a: Lanes, rounding: str, relu: bool = False, satfinite: bool = False) -> Lanes:
    """cvt.rounding.tf32.f32: the bits of an f32 whose lower 13 bits, undefined in the ISA, are 0."""
    return narrow(clamp(a, relu=relu), "tf32", rounding, satfinite)
