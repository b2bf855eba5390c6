"""One number at a time and in integers: what a floating-point format holds, and the one rounding that an operation ends in."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import NamedTuple


class Shape(NamedTuple):
    """Of a binary format: bits of the exponent and of the fraction; whether the largest exponent is infinity's and NaN's."""

    exponent: int
    fraction: int
    ieee: bool = True

    @property
    def bias(self) -> int:
        return (1 << self.exponent - 1) - 1

    @property
    def lowest(self) -> int:
        return 1 - self.bias

    @property
    def largest(self) -> Fraction:
        top = Fraction(2) ** self.bias * (2 - Fraction(1, 1 << self.fraction))
        return top if self.ieee else Fraction(448)


SHAPES = {
    "f64": Shape(11, 52),
    "f32": Shape(8, 23),
    "tf32": Shape(8, 10),
    "bf16": Shape(8, 7),
    "f16": Shape(5, 10),
    "e5m2": Shape(5, 2),
    "e4m3": Shape(4, 3, ieee=False),
}


def value_of(bits: int, shape: Shape) -> float:
    """What a bit pattern stands for."""
    fraction = bits & (1 << shape.fraction) - 1
    exponent = bits >> shape.fraction & (1 << shape.exponent) - 1
    sign = -1.0 if bits >> shape.exponent + shape.fraction else 1.0
    if exponent == (1 << shape.exponent) - 1:
        if shape.ieee:
            return math.nan if fraction else sign * math.inf
        if fraction == (1 << shape.fraction) - 1:
            return math.nan
    if exponent == 0:
        return sign * math.ldexp(fraction, shape.lowest - shape.fraction)
    return sign * math.ldexp(fraction | 1 << shape.fraction, exponent - shape.bias - shape.fraction)


def whole(x: Fraction, rounding: str) -> int:
    """The integer that the rounding takes."""
    if rounding == "rn":
        return round(x)  # ties to even
    if rounding == "rna":
        return (1 if x > 0 else -1) * math.floor(abs(x) + Fraction(1, 2))
    return {"rz": math.trunc, "rm": math.floor, "rp": math.ceil}[rounding](x)


def rounded(x: Fraction, shape: Shape, rounding: str, negative_zero: bool = False) -> float:
    """`x` as a number of the format, or infinity; what rounds to 0 keeps its sign, an exact 0 is told."""
    if x == 0:
        return -0.0 if negative_zero else 0.0
    size = abs(x)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent -= size < Fraction(2) ** exponent
    unit = Fraction(2) ** (max(exponent, shape.lowest) - shape.fraction)
    y = whole(x / unit, rounding) * unit
    if abs(y) > shape.largest:
        outwards = rounding in ("rn", "rna") or ((rounding == "rp") == (x > 0) and rounding != "rz")
        return math.copysign(math.inf if outwards else float(shape.largest), 1 if x > 0 else -1)
    return math.copysign(float(y), 1 if x > 0 else -1)


def sign_of_zero(terms: tuple[float, ...], rounding: str) -> bool:
    """Whether an exact sum of 0 is -0: where all terms are -0, and rounding down unless all are +0."""
    negative = [math.copysign(1, t) < 0 and t == 0 for t in terms]
    positive = [math.copysign(1, t) > 0 and t == 0 for t in terms]
    return not all(positive) if rounding == "rm" else all(negative)
