"""One number at a time and in integers: what a floating-point format holds, and the one rounding that an operation ends in."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, cached_property
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Shape:
    """Of a binary format: bits of the exponent and of the fraction; whether the largest exponent is infinity's and NaN's."""

    exponent: int
    fraction: int
    ieee: bool = True

    @cached_property
    def bias(self) -> int:
        return (1 << self.exponent - 1) - 1

    @cached_property
    def lowest(self) -> int:
        return 1 - self.bias

    @cached_property
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


@cache
def _every(shape: Shape) -> np.ndarray[Any, Any]:
    """What all the patterns of a format stand for, in their order."""
    return np.array([value_of(bits, shape) for bits in range(2 << shape.exponent + shape.fraction)])


def values_of(x: np.ndarray[Any, Any], kind: str) -> list[float]:
    """What an array's elements stand for: numbers of f32 and f64, patterns of the others."""
    if kind in ("f32", "f64"):
        return [float(v) for v in x]
    shape = SHAPES[kind]
    few = shape.exponent + shape.fraction < 16
    return _every(shape)[x].tolist() if few else [value_of(int(v), shape) for v in x]


def rounded(x: Fraction, shape: Shape, rounding: str, negative_zero: bool = False) -> float:
    """`x` as a number of the format, or infinity; what rounds to 0 keeps its sign, an exact 0 is reported."""
    if not x.numerator:
        return -0.0 if negative_zero else 0.0
    over, under, sign = abs(x.numerator), x.denominator, 1 if x.numerator > 0 else -1
    exponent = over.bit_length() - under.bit_length()
    exponent -= (over << max(-exponent, 0)) < (under << max(exponent, 0))
    unit = max(exponent, shape.lowest) - shape.fraction
    if unit < 0:
        over <<= -unit
    else:
        under <<= unit
    whole, rest = divmod(over, under)
    if rounding == "rn":
        whole += 2 * rest > under or (2 * rest == under and whole % 2 == 1)
    elif rounding == "rna":
        whole += 2 * rest >= under
    elif rest and rounding == ("rp" if sign > 0 else "rm"):
        whole += 1
    beyond = whole.bit_length() + unit > 1024 or math.ldexp(whole, unit) > shape.top
    if not beyond:
        return math.ldexp(whole, unit) * sign
    outwards = rounding in ("rn", "rna") or (rounding != "rz" and (rounding == "rp") == (sign > 0))
    return (math.inf if outwards else shape.top) * sign


def sign_of_zero(terms: tuple[float, ...], rounding: str) -> bool:
    """Whether an exact sum of 0 is -0: where all terms are -0, and rounding down unless all are +0."""
    negative = [math.copysign(1, t) < 0 and t == 0 for t in terms]
    positive = [math.copysign(1, t) > 0 and t == 0 for t in terms]
    return not all(positive) if rounding == "rm" else all(negative)
