"""Comparisons, extrema and signs of lanes of floating-point numbers (PTX ISA, Floating Point Instructions and Half Precision
Floating Point Instructions: min, max, neg, abs, copysign, testp; Comparison and Selection Instructions: setp).

Operands are stored as for `floats`. `compare` takes integers too.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .formats import FLOATS, flush, widen
from .registers import BITS, Lanes, by_elements, dtype_of, split, unsupported

__all__ = ["absolute", "compare", "copysign", "maximum", "minimum", "negate", "testp"]

Relation = Callable[[Lanes, Lanes], Lanes]

_SIGNS = {type: dtype_of(f"u{BITS[type]}").type(1 << BITS[type] - 1) for type in ("f16", "bf16", "f32", "f64")}


def _unordered(a: Lanes, b: Lanes) -> Lanes:
    return np.isnan(a) | np.isnan(b)


_INTEGER: dict[str, Relation] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "lo": np.less,
    "ls": np.less_equal,
    "hi": np.greater,
    "hs": np.greater_equal,
}
_FLOATING: dict[str, Relation] = {
    "eq": np.equal,
    "ne": lambda a, b: (a < b) | (a > b),
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "num": lambda a, b: ~_unordered(a, b),
    "nan": _unordered,
    # Comparisons that NaN makes true: the negation of the opposite comparison.
    "equ": lambda a, b: ~((a < b) | (a > b)),
    "neu": np.not_equal,
    "ltu": lambda a, b: ~(a >= b),
    "leu": lambda a, b: ~(a > b),
    "gtu": lambda a, b: ~(a <= b),
    "geu": lambda a, b: ~(a < b),
}


def compare(a: Lanes, b: Lanes, op: str, type: str, ftz: bool = False) -> Lanes:
    """The predicate of setp and set. A packed type gives two predicates along a new last axis, the low element's first."""
    if type.endswith("x2"):
        return compare(split(a, type), split(b, type), op, type[:-2], ftz)
    relations = _FLOATING if type in FLOATS else _INTEGER
    if op not in relations:
        raise unsupported(f"comparison of {type}", op, relations)
    if type not in FLOATS:
        return relations[op](a, b)
    if ftz:
        a, b = flush(a, type), flush(b, type)
    return relations[op](widen(a, type), widen(b, type))


def minimum(a: Lanes, b: Lanes, type: str, nan: bool = False, ftz: bool = False) -> Lanes:
    """min: -0 is below +0. A NaN operand is ignored, or is the result with `nan` (.NaN); a NaN result is the canonical NaN,
    except for f64."""
    return _extremum(True, a, b, type, nan, ftz)


def maximum(a: Lanes, b: Lanes, type: str, nan: bool = False, ftz: bool = False) -> Lanes:
    """max: the rules of `minimum` apply."""
    return _extremum(False, a, b, type, nan, ftz)


def _extremum(least: bool, a: Lanes, b: Lanes, type: str, nan: bool, ftz: bool) -> Lanes:
    def of_elements(x: Lanes, y: Lanes, kind: str) -> Lanes:
        if ftz:
            x, y = flush(x, kind), flush(y, kind)
        return _select(least, x, y, kind, nan)

    return by_elements(of_elements, (a, b), type)


def _select(least: bool, a: Lanes, b: Lanes, type: str, nan: bool) -> Lanes:
    if type in ("f32", "f64"):
        ufunc = (np.minimum if nan else np.fmin) if least else (np.maximum if nan else np.fmax)
        result = ufunc(a, b)
        zeros = (result == 0) & (a == b)  # NumPy returns either of two zeros
        if zeros.any():
            both = _bits(a) | _bits(b) if least else _bits(a) & _bits(b)
            result = np.where(zeros, _from_bits(both, type), result)
        missing = np.isnan(result)
        return np.where(missing, _canonical(type), result) if missing.any() else result
    # 16-bit patterns mapped to integers in the order of their values.
    x, y = _ranks(a), _ranks(b)
    first, second = np.isnan(widen(a, type)), np.isnan(widen(b, type))
    chosen = np.where((x <= y) == least, a, b)
    if nan:
        return np.where(first | second, _canonical(type), chosen)
    return np.where(first & second, _canonical(type), np.where(first, b, np.where(second, a, chosen)))


def _ranks(a: Lanes) -> Lanes:
    signed = a.view("i2")
    return np.where(signed < 0, np.int16(-1) - (signed & np.int16(0x7FFF)), signed)


def _canonical(type: str) -> Lanes:
    return _from_bits(dtype_of(f"u{BITS[type]}").type(np.iinfo(f"i{BITS[type] // 8}").max), type)


def negate(a: Lanes, type: str, ftz: bool = False) -> Lanes:
    """neg, also of signed integers: MININT stays MININT."""
    if type[0] == "s":
        return np.negative(a)
    return by_elements(lambda x, t: _from_bits(_bits(_flushed(x, t, ftz)) ^ _SIGNS[t], t), (a,), type)


def absolute(a: Lanes, type: str, ftz: bool = False) -> Lanes:
    """abs, also of signed integers: MININT stays MININT."""
    if type[0] == "s":
        return np.abs(a)
    return by_elements(lambda x, t: _from_bits(_bits(_flushed(x, t, ftz)) & ~_SIGNS[t], t), (a,), type)


def copysign(a: Lanes, b: Lanes, type: str) -> Lanes:
    """copysign: the sign of `a`, the first operand, with the magnitude of `b`."""
    return _from_bits(_bits(a) & _SIGNS[type] | _bits(b) & ~_SIGNS[type], type)


def testp(a: Lanes, op: str, type: str) -> Lanes:
    """Whether a number is finite, infinite, number, notanumber, normal or subnormal (testp)."""
    if op not in _PROPERTIES:
        raise unsupported("property of testp", op, _PROPERTIES)
    return _PROPERTIES[op](a, np.finfo(dtype_of(type)).tiny)


_PROPERTIES: dict[str, Relation] = {
    "finite": lambda a, tiny: np.isfinite(a),
    "infinite": lambda a, tiny: np.isinf(a),
    "number": lambda a, tiny: ~np.isnan(a),
    "notanumber": lambda a, tiny: np.isnan(a),
    "normal": lambda a, tiny: np.isfinite(a) & (np.abs(a) >= tiny),
    "subnormal": lambda a, tiny: (a != 0) & (np.abs(a) < tiny),
}


def _flushed(a: Lanes, type: str, ftz: bool) -> Lanes:
    return flush(a, type) if ftz else a


def _bits(a: Lanes) -> Lanes:
    return a.view(f"u{a.dtype.itemsize}")


def _from_bits(bits: Lanes, type: str) -> Lanes:
    return bits.view(dtype_of(type))
