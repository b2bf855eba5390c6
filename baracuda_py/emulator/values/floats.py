"""Floating-point arithmetic on lanes, rounded once (PTX ISA, Floating Point Instructions; Half Precision Floating Point
Instructions: add, sub, mul, fma, div, rcp, sqrt). Comparisons are in `comparisons`, the other functions in `approximations`.

Operands are arrays of the register's dtype, or 0-d values that all lanes share: float32 and float64, f16 and bf16 as 16-bit
patterns, packed pairs as the pattern of their register. Call these under ``np.errstate(all="ignore")``.

NumPy's own results are IEEE 754's, rounded to nearest. All others are computed from a pair: the nearest float64 `s`, and `e` with
the sign of the remaining error. Error-free transformations give the pair (T. J. Dekker, 1971; D. E. Knuth, 1969), or fractions
where the transformations may lose bits to underflow or overflow.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from .formats import flush, narrow, odd, widen
from .registers import Lanes, by_elements, unsupported

__all__ = [
    "add",
    "clamp",
    "divide",
    "fma",
    "mul",
    "rcp",
    "sqrt",
    "stepped",
    "sub",
    "two_product",
    "two_sum",
    "upper_word",
]

Pair = tuple[Lanes, Lanes]

_SPLITTER = 2.0**27 + 1
_TINY = 2.0**-960  # the error of a product this large is a float64
_SCALE = 2.0**100
_DIRECTIONS = ("rn", "rz", "rm", "rp")


def add(a: Lanes, b: Lanes, rounding: str, type: str, ftz: bool = False, sat: bool = False) -> Lanes:
    """a + b (add); without a named rounding it is .rn, here and below."""
    return _compute("add", (a, b), rounding, type, ftz, sat)


def sub(a: Lanes, b: Lanes, rounding: str, type: str, ftz: bool = False, sat: bool = False) -> Lanes:
    """a - b (sub)."""
    return _compute("sub", (a, b), rounding, type, ftz, sat)


def mul(a: Lanes, b: Lanes, rounding: str, type: str, ftz: bool = False, sat: bool = False) -> Lanes:
    """a b (mul)."""
    return _compute("mul", (a, b), rounding, type, ftz, sat)


def fma(
    a: Lanes, b: Lanes, c: Lanes, rounding: str, type: str, ftz: bool = False, sat: bool = False, relu: bool = False
) -> Lanes:
    """a b + c, rounded once (fma, and mad of floats)."""
    return _compute("fma", (a, b, c), rounding, type, ftz, sat, relu)


def divide(a: Lanes, b: Lanes, rounding: str, type: str, ftz: bool = False) -> Lanes:
    """a / b (div). .full and .approx give the nearest quotient too, except that for .approx, as the ISA says, a divisor
    beyond 2**126 counts as infinite and makes an infinite dividend NaN."""
    if rounding == "approx":
        beyond = (np.abs(b) > np.float32(2.0**126)) & np.isfinite(b)
        a = np.where(beyond, a * np.float32(0), a)
    return _compute("div", (a, b), "rn" if rounding in ("approx", "full") else rounding, type, ftz)


def rcp(a: Lanes, rounding: str, type: str, ftz: bool = False) -> Lanes:
    """1 / a (rcp). .approx gives the nearest quotient too. rcp.approx.ftz.f64 reads and writes only the upper word; it reads
    subnormal numbers as zeros and returns zeros for them."""
    if rounding == "approx" and type == "f64":
        return upper_word(1.0 / upper_word(a))
    return divide(a.dtype.type(1), a, "rn" if rounding == "approx" else rounding, type, ftz)


def sqrt(a: Lanes, rounding: str, type: str, ftz: bool = False) -> Lanes:
    """The root (sqrt). .approx gives the nearest root too."""
    return _compute("sqrt", (a,), "rn" if rounding == "approx" else rounding, type, ftz)


def clamp(x: Lanes, sat: bool = False, relu: bool = False) -> Lanes:
    """.sat: clamps to 0 .. 1, and NaN to 0; .relu: clamps negative values to 0 and keeps NaN. Zeros become positive."""
    if sat:
        return np.where(x > 0, np.minimum(x, x.dtype.type(1)), x.dtype.type(0))
    if relu:
        return np.where(x <= 0, x.dtype.type(0), x)
    return x


def upper_word(x: Lanes) -> Lanes:
    """float64 values without their lower 32 bits, and with zeros for subnormal numbers, as .approx.ftz.f64 reads them."""
    kept = (x.view("u8") & np.uint64(0xFFFFFFFF00000000)).view("f8")
    return np.where(np.isnan(x), np.nan, np.where(np.abs(x) < 2.0**-1022, np.copysign(0.0, x), kept))


def _compute(
    name: str,
    operands: Sequence[Lanes],
    rounding: str,
    type: str,
    ftz: bool = False,
    sat: bool = False,
    relu: bool = False,
) -> Lanes:
    rounding = rounding or "rn"
    if rounding not in _DIRECTIONS:
        raise unsupported(f"rounding of {name}", rounding, _DIRECTIONS)
    opcode = _OPCODES[name]

    def of_elements(*arguments: Any) -> Lanes:
        *lanes, kind = arguments
        return _element(opcode, lanes, rounding, kind, ftz, sat, relu)

    return by_elements(of_elements, operands, type)


def _element(
    opcode: _Opcode, operands: Sequence[Lanes], rounding: str, type: str, ftz: bool, sat: bool, relu: bool
) -> Lanes:
    if ftz:
        operands = [flush(x, type) for x in operands]
    if type in ("f32", "f64"):
        result = clamp(_rounded(opcode, operands, rounding, type), sat, relu)
    elif rounding == "rn":
        wide = odd(*opcode.narrow(*(widen(x, type).astype("f8") for x in operands)))
        result = narrow(clamp(wide, sat, relu), type)
    else:
        raise unsupported(f"rounding of {type}", rounding, ("rn",))
    return flush(result, type) if ftz else result


def _rounded(opcode: _Opcode, operands: Sequence[Lanes], rounding: str, type: str) -> Lanes:
    if rounding == "rn":
        if opcode.once:
            return opcode.plain(*operands)
        return _fma_f32(*operands) if type == "f32" else _exact(opcode, operands)[0]
    if rounding == "rm" and opcode.mirror:  # an exact 0 becomes -0, as the negative of rounding up
        return -_rounded(opcode, [x * x.dtype.type(s) for x, s in zip(operands, opcode.mirror)], "rp", type)
    if type == "f64":
        return stepped(*_exact(opcode, operands), rounding)
    return narrow(odd(*opcode.narrow(*(x.astype("f8") for x in operands))), type, rounding)


def _fma_f32(a: Lanes, b: Lanes, c: Lanes) -> Lanes:
    # A float64 holds the product exactly. Rounding the sum twice equals rounding it once, unless the first rounding gives a
    # number halfway between two float32 (its last 29 bits are 100...), or one so small that a float32 has fewer digits.
    s = np.multiply(a, b, dtype="f8") + c
    bits = s.view("u8")
    doubt = (bits & np.uint64(2**29 - 1)) == np.uint64(2**28)
    doubt |= (bits << np.uint64(1)) - np.uint64(1) < np.uint64((1023 - 126 << 53) - 1)
    result = s.astype("f4")
    if doubt.any():
        x, y, z = (np.broadcast_to(v, s.shape)[doubt].astype("f8") for v in (a, b, c))
        result = np.asarray(result)
        result[doubt] = odd(*_fused_narrow(x, y, z)).astype("f4")
    return result


def _exact(opcode: _Opcode, operands: Sequence[Lanes]) -> Pair:
    """The nearest float64, and the sign of the remaining error; the sign of an overflow points back to the finite result."""
    s: Lanes
    e: Lanes
    s, e = opcode.pair(*operands)
    doubt = ~np.isfinite(e)
    if not doubt.any():
        return s, e
    s = np.where(doubt, opcode.plain(*operands), s)
    e = np.where(doubt, 0.0, e)
    operands = [np.broadcast_to(x, s.shape) for x in operands]
    doubt &= np.logical_and.reduce([np.isfinite(x) for x in operands]) & ~np.isnan(s)
    for at in map(tuple, np.argwhere(doubt)):
        assert opcode.value
        value = opcode.value(*(Fraction(float(x[at])) for x in operands))
        if value:
            s[at], e[at] = _by_fractions(value)
    return s, e


def _by_fractions(value: Fraction) -> tuple[float, float]:
    try:
        s = float(value)
    except OverflowError:
        return (np.inf, -1.0) if value > 0 else (-np.inf, 1.0)
    of, over = s.as_integer_ratio()
    beyond = value.numerator * over - of * value.denominator
    return s, float((beyond > 0) - (beyond < 0))


def stepped(s: Lanes, e: Lanes, rounding: str) -> Lanes:
    """The nearest float64 or, where `e` says that rounding moved it past the exact value, its neighbour in that direction."""
    negative = np.signbit(s)
    if rounding == "rz":
        step = np.where((e != 0) & ((e > 0) == negative), -1, 0)
    else:
        step = np.where(e > 0 if rounding == "rp" else e < 0, np.where(negative == (rounding == "rp"), -1, 1), 0)
    return (s.view("i8") + step).view("f8")


def two_sum(a: Lanes, b: Lanes) -> Pair:
    """The nearest float64 to a sum, and its error, which is not finite after an overflow."""
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


def _two_difference(a: Lanes, b: Lanes) -> Pair:
    return two_sum(a, -b)


def two_product(a: Lanes, b: Lanes) -> Pair:
    """The nearest float64 to a product, and its error, which is not finite if it may be inexact: after an overflow, or for
    a tiny product."""
    p = a * b
    (a1, a0), (b1, b0) = _halves(a), _halves(b)
    e = ((a1 * b1 - p) + a1 * b0 + a0 * b1) + a0 * b0
    tiny = np.abs(p) < _TINY
    return p, np.where(tiny & (a != 0) & (b != 0), np.nan, e) if tiny.any() else e


def _halves(a: Lanes) -> Pair:
    t = a * _SPLITTER
    high = t - (t - a)
    return high, a - high


def _fused(a: Lanes, b: Lanes, c: Lanes) -> Pair:
    # Boldo and Melquiond's fma: of three numbers whose sum is a b + c, the two smaller ones are first rounded to odd.
    p, p0 = two_product(a, b)
    t, t0 = two_sum(c, p0)
    v, v0 = two_sum(p, t)
    s, e = two_sum(v, odd(*two_sum(t0, v0)))
    return np.where(s == 0, _fused_plain(a, b, c), s), e  # a zero has the sign of one sum


def _fused_plain(a: Lanes, b: Lanes, c: Lanes) -> Lanes:
    largest = np.finfo("f8").max
    product = a * b
    finite = np.clip(product, -largest, largest)  # negligible beside an infinite c
    return np.where(np.isfinite(a) & np.isfinite(b), finite, product) + c


def _fused_narrow(a: Lanes, b: Lanes, c: Lanes) -> Pair:
    return two_sum(a * b, c)


def _product_narrow(a: Lanes, b: Lanes) -> Pair:
    p = a * b
    return p, np.zeros_like(p)


def _quotient(a: Lanes, b: Lanes) -> Pair:
    q = a / b
    p, p0 = two_product(q, b)
    rest = (a - p) - p0
    return q, np.where(b == 0, 0.0, np.where(b < 0, -rest, rest))


def _root(a: Lanes) -> Pair:
    s = np.sqrt(a)
    scale = np.where(a < 1, _SCALE, 1 / _SCALE)
    p, p0 = two_product(s * scale, s * scale)
    return s, (a * scale * scale - p) - p0


class _Opcode(NamedTuple):
    plain: Callable[..., Lanes]  # NumPy's own; right for infinities and NaN
    pair: Callable[..., Pair]  # of float64
    mirror: Sequence[int]  # signs for the operands that flip the sign of the result
    value: Callable[..., Fraction] | None  # None if the pair is always exact
    narrow: Callable[..., Pair]  # the pair, of operands with 24 digits or fewer
    once: bool = True  # whether `plain` rounds once


_OPCODES = {
    "add": _Opcode(np.add, two_sum, (-1, -1), operator.add, two_sum),
    "sub": _Opcode(np.subtract, _two_difference, (-1, -1), operator.sub, _two_difference),
    "mul": _Opcode(np.multiply, two_product, (-1, 1), operator.mul, _product_narrow),
    "fma": _Opcode(_fused_plain, _fused, (-1, 1, -1), lambda a, b, c: a * b + c, _fused_narrow, once=False),
    "div": _Opcode(np.divide, _quotient, (-1, 1), operator.truediv, _quotient),
    "sqrt": _Opcode(np.sqrt, _root, (), None, _root),
}
