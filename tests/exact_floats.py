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
    def top(self) -> float:
        """The largest finite number; e4m3 has some of infinity's exponent."""
        return math.ldexp(2 - 2.0**-self.fraction, self.bias) if self.ieee else 448.0


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


def rounded(x: Fraction, shape: Shape, rounding: str, negative_zero: bool = False) -> float:
    """`x` as a number of the format, or infinity; what rounds to 0 keeps its sign, an exact 0 is told."""
    if x == 0:
        return -0.0 if negative_zero else 0.0
    over, under = abs(x.numerator), x.denominator
    exponent = over.bit_length() - under.bit_length()
    exponent -= (over << max(-exponent, 0)) < (under << max(exponent, 0))
    unit = max(exponent, shape.lowest) - shape.fraction
    whole, rest = divmod(over << max(-unit, 0), under << max(unit, 0))
    half = (2 * rest > under << max(unit, 0)) - (2 * rest < under << max(unit, 0))
    whole += {
        "rn": half > 0 or (half == 0 and whole % 2 == 1),
        "rna": half >= 0,
        "rz": False,
        "rm": rest > 0 and x < 0,
        "rp": rest > 0 and x > 0,
    }[rounding]
    beyond = whole.bit_length() + unit > 1024 or math.ldexp(whole, unit) > shape.top
    if not beyond:
        return math.ldexp(whole, unit) * (1 if x > 0 else -1)
    outwards = rounding in ("rn", "rna") or (rounding != "rz" and (rounding == "rp") == (x > 0))
    return (math.inf if outwards else shape.top) * (1 if x > 0 else -1)


def sign_of_zero(terms: tuple[float, ...], rounding: str) -> bool:
    """Whether an exact sum of 0 is -0: where all terms are -0, and rounding down unless all are +0."""
    negative = [math.copysign(1, t) < 0 and t == 0 for t in terms]
    positive = [math.copysign(1, t) > 0 and t == 0 for t in terms]
    return not all(positive) if rounding == "rm" else all(negative)
