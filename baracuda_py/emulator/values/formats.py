"""Binary floating-point formats: the values of bit patterns, and rounding to a format, once (PTX ISA, Fundamental Types;
Alternate Floating-Point Data Formats).

A value that no float64 holds is rounded in two steps with the result of one: `odd` gives the float64 whose last bit says that
it is inexact, and `narrow` rounds that to a format of fewer digits. (S. Boldo and G. Melquiond, "Emulation of a FMA and
correctly rounded sums: proved algorithms using rounding to odd", 2008.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import ml_dtypes
import numpy as np

from .registers import Lanes, dtype_of, unsupported

__all__ = ["FLOATS", "ROUNDINGS", "flush", "narrow", "odd", "round_to_integer", "widen"]


class Format(NamedTuple):
    digits: int  # of the significand, the hidden one included
    lowest: int  # exponent of the smallest normal number
    largest: float


FLOATS = {
    "f64": Format(53, -1022, float(np.finfo("f8").max)),
    "f32": Format(24, -126, float(np.finfo("f4").max)),
    "tf32": Format(11, -126, (2 - 2.0**-10) * 2.0**127),
    "bf16": Format(8, -126, (2 - 2.0**-7) * 2.0**127),
    "f16": Format(11, -14, 65504.0),
    "e5m2": Format(3, -14, 57344.0),
    "e4m3": Format(4, -6, 448.0),
}

# The integer for each direction of rounding: for numbers in units in the last place, or for cvt to an integer.
ROUNDINGS: dict[str, Callable[[Lanes], Lanes]] = {
    "rn": np.rint,
    "rz": np.trunc,
    "rm": np.floor,
    "rp": np.ceil,
    # Only cvt.rna.tf32.f32 uses it: an f32 has a spare digit for the half.
    "rna": lambda x: np.trunc(x + np.copysign(0.5, x)),
}

_E4M3 = np.arange(256, dtype="u1").view(ml_dtypes.float8_e4m3fn).astype("f4")
_DROPPED = {"bf16": 16, "tf32": 13}  # low bits of an f32 that the type lacks
_CANONICAL_NAN = {"tf32": 0x7FFFFFFF, "bf16": 0x7FFF, "f16": 0x7FFF, "e5m2": 0x7F, "e4m3": 0x7F}


def widen(a: Lanes, type: str) -> Lanes:
    """The values of a register of this type, as float64 (f64) or float32, which holds every other type."""
    match type:
        case "f32" | "f64":
            return a
        case "f16":
            return a.view("f2").astype("f4")
        case "bf16":
            return (a.astype("u4") << np.uint32(16)).view("f4")
        case "tf32":
            return (a & np.uint32(0xFFFFE000)).view("f4")
        case "e5m2":
            return (a.astype("u2") << np.uint16(8)).view("f2").astype("f4")
        case "e4m3":
            return _E4M3[a]
    raise unsupported("floating-point type", type, FLOATS)


def narrow(x: Lanes, type: str, rounding: str = "rn", satfinite: bool = False) -> Lanes:
    """The register of this type that holds float32 or float64 values, rounded. `satfinite` replaces values beyond the finite
    numbers, infinities too, by the largest finite one; NaN becomes the canonical NaN, except for f32 and f64."""
    if type not in FLOATS:
        raise unsupported("floating-point type", type, FLOATS)
    if rounding not in ROUNDINGS:
        raise unsupported("rounding", rounding, ROUNDINGS)
    if type == "f64":
        return x.astype("f8")
    if rounding == "rn" and not satfinite:
        if type == "f32":
            return x.astype("f4")
        if type == "f16":
            return np.where(np.isnan(x), np.uint16(0x7FFF), x.astype("f2").view("u2"))
    if type in _DROPPED and rounding in ("rn", "rna") and x.dtype == np.float32 and not satfinite:
        return _nearest_upper(x, type, rounding)
    return _pattern(_rounded(x.astype("f8"), FLOATS[type], rounding, satfinite), type)


def _nearest_upper(x: Lanes, type: str, rounding: str) -> Lanes:
    # The upper bits of a float32: adding half of the last kept bit, or a bit less for ties to even, carries into that bit.
    dropped = _DROPPED[type]
    bits = x.view("u4")
    half = np.uint32(1 << dropped - 1)
    carried = bits + (
        half if rounding == "rna" else (bits >> np.uint32(dropped) & np.uint32(1)) + (half - np.uint32(1))
    )
    kept = carried >> np.uint32(16) if type == "bf16" else carried & np.uint32(0x100000000 - (1 << dropped))
    dtype = dtype_of(type)
    return np.where(np.isnan(x), dtype.type(_CANONICAL_NAN[type]), kept.astype(dtype, copy=False))


def _rounded(x: Lanes, to: Format, rounding: str, satfinite: bool) -> Lanes:
    # The unit in the last place is a power of two given by the exponent, so that scaling is exact and only one step rounds.
    exponent = np.maximum((x.view("i8") >> 52 & 0x7FF) - 1023, to.lowest)
    unit = (exponent + (1023 + 1 - to.digits) << 52).view("f8")
    y = ROUNDINGS[rounding](x / unit) * unit
    beyond = np.abs(y) > to.largest
    if not beyond.any():
        return y
    towards = {"rz": np.zeros_like(beyond), "rm": y < 0, "rp": y > 0}.get(rounding, np.ones_like(beyond))
    limit = np.where((towards | np.isinf(x)) & (not satfinite), np.inf, to.largest)
    return np.where(beyond, np.copysign(limit, x), y)


def _pattern(y: Lanes, type: str) -> Lanes:
    # The bits of values that the type represents exactly.
    match type:
        case "f32":
            return y.astype("f4")
        case "f16":
            bits = y.astype("f2").view("u2")
        case "e5m2":
            bits = (y.astype("f2").view("u2") >> np.uint16(8)).astype("u1")
        case "bf16":
            bits = (y.astype("f4").view("u4") >> np.uint32(16)).astype("u2")
        case "tf32":
            bits = y.astype("f4").view("u4")
        case _:
            bits = y.astype(ml_dtypes.float8_e4m3fn).view("u1")
    return np.where(np.isnan(y), dtype_of(type).type(_CANONICAL_NAN[type]), bits)


def odd(s: Lanes, e: Lanes) -> Lanes:
    """An exact sum rounded to odd; `s` is the nearest float64 to it. The result is `s` where `e` is 0, otherwise the one of the
    two neighbours of the exact sum whose last bit is 1."""
    bits = s.view("i8")
    inexact = (e != 0) & np.isfinite(e) & (bits & 1 == 0)
    return np.where(inexact, bits + np.where((e > 0) == (s > 0), 1, -1), bits).view("f8")


def flush(a: Lanes, type: str) -> Lanes:
    """.ftz: subnormal numbers of the type become zeros of their sign."""
    if type == "f32":
        tiny = np.abs(a) < np.float32(2.0**-126)
        return np.where(tiny, np.copysign(np.float32(0), a), a) if tiny.any() else a
    exponent, sign = {"f16": (0x7C00, 0x8000), "bf16": (0x7F80, 0x8000)}[type]
    return np.where(a & np.uint16(exponent), a, a & np.uint16(sign))


def round_to_integer(x: Lanes, rounding: str) -> Lanes:
    """The integer nearest to float values in the direction of .rni, .rzi, .rmi or .rpi, as a float."""
    if rounding not in ("rni", "rzi", "rmi", "rpi"):
        raise unsupported("rounding to an integer", rounding, ("rni", "rzi", "rmi", "rpi"))
    return ROUNDINGS[rounding[:2]](x)
