"""The emulator's floating-point opcodes, against fractions rounded once, on edge values crossed and on random ones."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest

from baracuda_py.emulator import approximations, comparisons, floats
from baracuda_py.types import UnsupportedError
from tests.exact_floats import SHAPES, rounded, sign_of_zero, value_of

RNG = np.random.default_rng(20240719)
ROUNDINGS = ("rn", "rz", "rm", "rp")
DTYPES = {"f32": "f4", "f64": "f8", "f16": "u2", "bf16": "u2"}
BITS = {"f32": 32, "f64": 64, "f16": 16, "bf16": 16}


@pytest.fixture(autouse=True)
def _quiet() -> Any:
    with np.errstate(all="ignore"):
        yield


def edges(type: str) -> np.ndarray[Any, Any]:
    """Patterns of zeros, subnormal, normal, odd and largest numbers, infinity and NaN, of both signs."""
    shape = SHAPES[type]
    one, step = shape.bias << shape.fraction, 1 << shape.fraction
    top = ((1 << shape.exponent) - 1) << shape.fraction
    positive = [
        0,
        1,
        3,
        step - 1,
        step,
        step + 1,
        one - 1,
        one,
        one + 1,
        one + step // 2,
        one + step,
        top - 1,
        top,
        top + 5,
    ]
    sign = 1 << shape.exponent + shape.fraction
    return np.array([p | s for s in (0, sign) for p in positive], f"u{BITS[type] // 8}").view(DTYPES[type])


def randoms(type: str, n: int, near: bool = False) -> np.ndarray[Any, Any]:
    """Random patterns; `near` ones have exponents that make ties and cancellations likely, and few bits."""
    width = BITS[type]
    bits = RNG.integers(0, 1 << width, n, dtype="u8")
    if near:
        shape = SHAPES[type]
        keep = RNG.integers(0, shape.fraction + 1, n).astype("u8")
        fraction = bits & np.uint64((1 << shape.fraction) - 1) & ~((np.uint64(1) << keep) - np.uint64(1))
        spread = min(shape.fraction + 2, shape.bias - 2)
        exponent = RNG.integers(shape.bias - spread, shape.bias + spread, n).astype("u8")
        sign = (bits >> np.uint64(width - 1)) << np.uint64(width - 1)
        bits = sign | exponent << np.uint64(shape.fraction) | fraction
    return bits.astype(f"u{width // 8}").view(DTYPES[type])


def crossed(type: str, operands: int, n: int = 800) -> list[np.ndarray[Any, Any]]:
    """Edges crossed, and random operands of both kinds."""
    grid = [np.array(x) for x in zip(*itertools.product(edges(type), repeat=operands), strict=True)]
    return [np.concatenate([g, randoms(type, n), randoms(type, n, near=True)]) for g in grid]


def floats_of(x: np.ndarray[Any, Any], type: str) -> list[float]:
    if type in ("f32", "f64"):
        return [float(v) for v in x]
    return [value_of(int(v), SHAPES[type]) for v in x]


def same(got: np.ndarray[Any, Any], want: list[float], type: str) -> None:
    assert got.dtype == DTYPES[type]
    values = np.array(floats_of(got, type))
    wanted = np.array(want)
    equal = (values == wanted) & (np.signbit(values) == np.signbit(wanted)) | np.isnan(values) & np.isnan(wanted)
    where = np.flatnonzero(~equal)[:5]
    assert equal.all(), [(int(i), values[i].hex(), wanted[i].hex()) for i in where]
    if type in ("f16", "bf16"):
        assert (got[np.isnan(wanted)] == 0x7FFF).all()


Exact = float | tuple[Fraction, tuple[float, ...]]


def exact(name: str, x: tuple[float, ...]) -> Exact:
    """What is not to be rounded, by IEEE 754's rules, or a fraction and the terms whose sum it is."""
    if any(map(math.isnan, x)):
        return math.nan
    if name == "sub":
        return exact("add", (x[0], -x[1]))
    if name in ("add", "fma"):
        terms = x if name == "add" else (_product(x[0], x[1]), x[2])
        infinite = {t for t in terms if not math.isfinite(t)}
        if infinite:
            return math.nan if len(infinite) == 2 or terms[0] != terms[0] else infinite.pop()
        fractions = [Fraction(v) for v in x]
        return (fractions[0] + fractions[1] if name == "add" else fractions[0] * fractions[1] + fractions[2]), terms
    if name == "mul":
        product = _product(x[0], x[1])
        return product if not math.isfinite(product) or 0 in x else (Fraction(x[0]) * Fraction(x[1]), ())
    if name == "div":
        sign = math.copysign(1, x[0]) * math.copysign(1, x[1])
        if x[1] == 0 or math.isinf(x[0]):
            return math.nan if x[0] == x[1] == 0 or math.isinf(x[0]) and math.isinf(x[1]) else sign * math.inf
        return sign * 0.0 if x[0] == 0 or math.isinf(x[1]) else (Fraction(x[0]) / Fraction(x[1]), ())
    assert name == "sqrt"
    if x[0] == 0 or x[0] == math.inf:
        return x[0]
    return math.nan if x[0] < 0 else (_root(Fraction(x[0])), ())


def once(value: Exact, type: str, rounding: str) -> float:
    """That, rounded to the type."""
    if isinstance(value, float):
        return value
    return rounded(value[0], SHAPES[type], rounding, bool(value[1]) and sign_of_zero(value[1], rounding))


def _product(a: float, b: float) -> float:
    """Infinite only where an operand is, 0 only where one is."""
    if math.isinf(a) or math.isinf(b):
        return math.nan if 0 in (a, b) else math.copysign(math.inf, math.copysign(1, a) * math.copysign(1, b))
    return math.copysign(0.0 if 0 in (a, b) else 1.0, math.copysign(1, a) * math.copysign(1, b))


def _root(x: Fraction) -> Fraction:
    """Of hundreds of bits, the last one 1 where the root is longer."""
    scale = 1 << 800
    whole = math.isqrt(x.numerator * scale * scale // x.denominator)
    return Fraction(2 * whole + (whole * whole * x.denominator != x.numerator * scale * scale), 2 * scale)


OPERANDS = {"add": 2, "sub": 2, "mul": 2, "div": 2, "sqrt": 1, "fma": 3}
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "add": floats.add,
    "sub": floats.sub,
    "mul": floats.mul,
    "div": floats.divide,
    "sqrt": floats.sqrt,
    "fma": floats.fma,
}


def operands_of(name: str, type: str) -> list[np.ndarray[Any, Any]]:
    if name != "fma":
        return crossed(type, OPERANDS[name])
    # The edges, thinned out; and sums that cancel to the rounding of the product, or lie by it halfway between numbers.
    grid = list(itertools.product(edges(type), repeat=3))[::11]
    a, b, c = ([np.array(x)] for x in zip(*grid, strict=True))
    for near in (False, True):
        x, y, z = (randoms(type, 400, near) for _ in range(3))
        a, b, c = [*a, x, x], [*b, y, y], [*c, z, comparisons.negate(floats.mul(x, y, "rn", type), type)]
    return [np.concatenate(v) for v in (a, b, c)]


@pytest.mark.parametrize("type", ["f32", "f64"])
@pytest.mark.parametrize("name", OPERANDS)
def test_a_result_is_rounded_once_in_each_direction(name: str, type: str) -> None:
    operands = operands_of(name, type)
    values = [exact(name, x) for x in zip(*(floats_of(x, type) for x in operands), strict=True)]
    for rounding in ROUNDINGS:
        same(FUNCTIONS[name](*operands, rounding, type), [once(v, type, rounding) for v in values], type)
