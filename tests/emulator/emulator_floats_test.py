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

from baracuda_py.emulator.values import approximations, comparisons, floats
from baracuda_py.types import UnsupportedError
from tests.emulator.exact_floats import SHAPES, rounded, sign_of_zero, values_of

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


def crossed(type: str, operands: int, n: int = 4000) -> list[np.ndarray[Any, Any]]:
    """Edges crossed, and random operands of both kinds."""
    grid = [np.array(x) for x in zip(*itertools.product(edges(type), repeat=operands), strict=True)]
    return [np.concatenate([g, randoms(type, n), randoms(type, n, near=True)]) for g in grid]


def same(got: np.ndarray[Any, Any], want: list[float], type: str) -> None:
    assert got.dtype == DTYPES[type]
    values = np.array(values_of(got, type))
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
            return math.nan if x[0] == x[1] == 0 or (math.isinf(x[0]) and math.isinf(x[1])) else sign * math.inf
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
    # The edges, thinned out; and sums that cancel to the rounding of the product, or are by it halfway between numbers.
    grid = list(itertools.product(edges(type), repeat=3))[::11]
    a, b, c = ([np.array(x)] for x in zip(*grid, strict=True))
    for near in (False, True):
        x, y, z = (randoms(type, 4000, near) for _ in range(3))
        a, b, c = [*a, x, x], [*b, y, y], [*c, z, comparisons.negate(floats.mul(x, y, "rn", type), type)]
    return [np.concatenate(v) for v in (a, b, c)]


@pytest.mark.parametrize("type", ["f32", "f64"])
@pytest.mark.parametrize("name", OPERANDS)
def test_a_result_is_rounded_once_in_each_direction(name: str, type: str) -> None:
    operands = operands_of(name, type)
    values = [exact(name, x) for x in zip(*(values_of(x, type) for x in operands), strict=True)]
    for rounding in ROUNDINGS:
        same(FUNCTIONS[name](*operands, rounding, type), [once(v, type, rounding) for v in values], type)


def test_a_subnormal_sum_is_not_rounded_to_a_float64_first() -> None:
    """Next to halfway between subnormal numbers, by less than a float64 of the sum's size holds."""
    for near in (1 - 2.0**-23, 1 + 2.0**-22):
        a, b = np.float32(2.0**-75 * (1 + 2.0**-23)), np.float32(2.0**-75 * near)
        c = np.arange(2**9, 2**9 + 4, dtype="u4").view("f4")
        c = np.concatenate([c, -c])
        operands = np.broadcast_arrays(a, b, c)
        for rounding in ROUNDINGS:
            want = [once(exact("fma", x), "f32", rounding) for x in zip(*(v.tolist() for v in operands), strict=True)]
            same(floats.fma(a, b, c, rounding, "f32"), want, "f32")


@pytest.mark.parametrize("type", ["f16", "bf16"])
@pytest.mark.parametrize("name", ["add", "sub", "mul", "fma"])
def test_a_16_bit_result_is_rounded_once(name: str, type: str) -> None:
    operands = operands_of(name, type)
    values = [exact(name, x) for x in zip(*(values_of(x, type) for x in operands), strict=True)]
    want = [once(v, type, "rn") for v in values]
    got = FUNCTIONS[name](*operands, "rn", type)
    same(got, want, type)
    even = len(got) // 2 * 2
    pairs = [x[:even].view("u4") for x in operands]
    assert (FUNCTIONS[name](*pairs, "rn", f"{type}x2").view("u2") == got[:even]).all()


def test_a_pair_of_f32_takes_any_rounding() -> None:
    a, b, c = [randoms("f32", 400, near=True) for _ in range(3)]
    for rounding in ROUNDINGS:
        got = floats.fma(*(x.view("u8") for x in (a, b, c)), rounding, "f32x2")
        assert (got.view("u4") == floats.fma(a, b, c, rounding, "f32").view("u4")).all()


@pytest.mark.parametrize("type", ["f32", "f16"])
def test_ftz_takes_and_gives_zeros_for_subnormal_numbers(type: str) -> None:
    a, b, c = operands_of("fma", type)
    tiny = 2.0 ** SHAPES[type].lowest

    def flushed(x: float) -> float:
        return math.copysign(0.0, x) if abs(x) < tiny else x

    lanes = [[flushed(v) for v in values_of(x, type)] for x in (a, b, c)]
    for name, operands in (("fma", (a, b, c)), ("mul", (a, b)), ("add", (a, b))):
        want = [flushed(once(exact(name, x), type, "rn")) for x in zip(*lanes[: len(operands)], strict=True)]
        same(FUNCTIONS[name](*operands, "rn", type, ftz=True), want, type)


@pytest.mark.parametrize("type", ["f32", "f16"])
def test_sat_clamps_to_the_unit_interval_and_nan_to_zero(type: str) -> None:
    a, b = crossed(type, 2)
    sums = [once(exact("add", x), type, "rn") for x in zip(values_of(a, type), values_of(b, type), strict=True)]
    same(floats.add(a, b, "rn", type, sat=True), [min(x, 1.0) if x > 0 else 0.0 for x in sums], type)


@pytest.mark.parametrize("type", ["f16", "bf16"])
def test_relu_clamps_to_zero_and_keeps_nan(type: str) -> None:
    a, b, c = operands_of("fma", type)
    lanes = zip(*(values_of(x, type) for x in (a, b, c)), strict=True)
    want = [once(exact("fma", x), type, "rn") for x in lanes]
    same(floats.fma(a, b, c, "rn", type, relu=True), [0.0 if x <= 0 else x for x in want], type)


def test_operands_that_all_lanes_share_are_scalars() -> None:
    a = randoms("f32", 100)
    for x in (np.float32(1 / 3), np.array(1 / 3, "f4")):
        full = np.full_like(a, x)
        for rounding in ROUNDINGS:
            got = floats.fma(a, x, np.float32(-7), rounding, "f32")
            assert np.array_equal(got, floats.fma(a, full, np.full_like(a, -7), rounding, "f32"), equal_nan=True)
        assert floats.fma(x, x, x, "rn", "f32") == once(exact("fma", (float(x),) * 3), "f32", "rn")
    half = np.uint16(0x3555)
    assert floats.fma(half, half, half, "rn", "f16") == floats.fma(*[np.array([half])] * 3, "rn", "f16")[0]
    pair = np.uint32(0x3C003555)
    assert floats.add(pair, np.array([pair, pair]), "rn", "f16x2").tolist() == [0x40003955] * 2


def test_a_reciprocal_is_a_quotient_of_one() -> None:
    for type in ("f32", "f64"):
        a = np.concatenate([edges(type), randoms(type, 500)])
        for rounding in ROUNDINGS:
            want = [once(exact("div", (1.0, x)), type, rounding) for x in values_of(a, type)]
            same(floats.rcp(a, rounding, type), want, type)


def test_approximate_division_follows_the_tables() -> None:
    def divide(a: float, b: float) -> float:
        return float(floats.divide(np.float32(a), np.float32(b), "approx", "f32"))

    assert divide(3, 2) == 1.5
    assert divide(-3, 2.0**127) == 0 and np.signbit(np.float32(divide(-3, 2.0**127)))
    assert math.isnan(divide(math.inf, 2.0**127)) and divide(math.inf, 2.0**126) == math.inf
    assert float(floats.divide(np.float32(3), np.float32(2.0**127), "full", "f32")) == 3 * 2.0**-127
    assert floats.rcp(np.float32(1e-40), "approx", "f32", ftz=True) == math.inf
    assert floats.rcp(np.float32(2.0**127), "approx", "f32", ftz=True) == 0


def test_f64_approximations_with_ftz_have_only_an_upper_word() -> None:
    a = np.concatenate([edges("f64"), np.abs(randoms("f64", 500))])
    low = np.uint64(0xFFFFFFFF)
    for got, function in (
        (floats.rcp(a, "approx", "f64", ftz=True), lambda x: 1 / x),
        (approximations.rsqrt(a, "f64", ftz=True), lambda x: mpmath.sqrt(1 / x)),
    ):
        assert not (got[np.isfinite(got)].view("u8") & low).any()
        for x, y in zip(a, got, strict=True):
            if np.isnan(x) or (x < 0 and abs(x) >= 2.0**-1022 and function(mpmath.mpf(4)) == 0.5 and math.isnan(y)):
                assert math.isnan(y)
            elif abs(x) < 2.0**-1022:
                assert y == math.copysign(math.inf, x)
            elif np.isinf(x):
                assert y == 0
            else:
                wanted = function(mpmath.mpf(float(x)))
                assert abs(wanted - float(y)) <= abs(wanted) * 2.0**-19 or abs(wanted) < 2.0**-1021
    upper = approximations.rsqrt(np.array([4.0 + 2.0**-40]), "f64", ftz=True)
    assert upper == 0.5


# ---- extrema, signs, comparisons -------------------------------------------------------------------------------------


@pytest.mark.parametrize("type", DTYPES)
@pytest.mark.parametrize("nan", [False, True])
@pytest.mark.parametrize("name", ["minimum", "maximum"])
def test_extrema_order_zeros_and_miss_nan(name: str, nan: bool, type: str) -> None:
    a, b = crossed(type, 2, 500)
    pick = min if name == "minimum" else max

    def want(x: float, y: float) -> float:
        if math.isnan(x) or math.isnan(y):
            return math.nan if nan or math.isnan(x) == math.isnan(y) else y if math.isnan(x) else x
        return pick((x, y), key=lambda v: (v, math.copysign(1, v)))

    wanted = [want(x, y) for x, y in zip(values_of(a, type), values_of(b, type), strict=True)]
    got = getattr(comparisons, name)(a, b, type, nan=nan)
    same(got, wanted, type)
    if type == "f32":
        assert (got.view("u4")[np.isnan(wanted)] == 0x7FFFFFFF).all()
    if type in ("f16", "bf16"):
        even = len(a) // 2 * 2
        packed = getattr(comparisons, name)(a[:even].view("u4"), b[:even].view("u4"), f"{type}x2", nan=nan)
        assert (packed.view("u2") == got[:even]).all()


@pytest.mark.parametrize("type", DTYPES)
def test_signs_are_bits(type: str) -> None:
    a, b = crossed(type, 2, 100)
    width = BITS[type]
    sign = 1 << width - 1
    x, y = ([int(v) for v in z.view(f"u{width // 8}")] for z in (a, b))

    def bits(z: np.ndarray[Any, Any]) -> list[int]:
        return [int(v) for v in z.view(f"u{width // 8}")]

    assert bits(comparisons.negate(a, type)) == [v ^ sign for v in x]
    assert bits(comparisons.absolute(a, type)) == [v & ~sign for v in x]
    assert bits(comparisons.copysign(a, b, type)) == [v & sign | w & ~sign for v, w in zip(x, y, strict=True)]


def test_signs_of_integers_wrap() -> None:
    for dtype in ("i2", "i4", "i8"):
        a = np.array([np.iinfo(dtype).min, -5, 0, 7], dtype)
        type = f"s{a.itemsize * 8}"
        assert comparisons.negate(a, type).tolist() == [a[0], 5, 0, -7]
        assert comparisons.absolute(a, type).tolist() == [a[0], 5, 0, 7]


def test_a_packed_sign_is_that_of_each_element() -> None:
    assert comparisons.negate(np.uint32(0x3C00BC00), "f16x2") == 0xBC003C00
    assert comparisons.absolute(np.array([0xBF80BF80], "u4"), "bf16x2") == 0x3F803F80


RELATIONS: dict[str, Callable[[float, float], bool]] = {
    "eq": lambda x, y: x == y,
    "ne": lambda x, y: x != y,
    "lt": lambda x, y: x < y,
    "le": lambda x, y: x <= y,
    "gt": lambda x, y: x > y,
    "ge": lambda x, y: x >= y,
}


@pytest.mark.parametrize("type", DTYPES)
def test_comparisons_of_floats_with_and_without_nan(type: str) -> None:
    a, b = crossed(type, 2, 200)
    pairs = list(zip(values_of(a, type), values_of(b, type), strict=True))
    missing = [math.isnan(x) or math.isnan(y) for x, y in pairs]
    for op, holds in RELATIONS.items():
        ordered = [not m and holds(x, y) for (x, y), m in zip(pairs, missing, strict=True)]
        assert comparisons.compare(a, b, op, type).tolist() == ordered
        unordered = [m or holds(x, y) for (x, y), m in zip(pairs, missing, strict=True)]
        assert comparisons.compare(a, b, f"{op}u", type).tolist() == unordered
    assert comparisons.compare(a, b, "nan", type).tolist() == missing
    assert comparisons.compare(a, b, "num", type).tolist() == [not m for m in missing]


def test_comparison_flushes_operands_and_splits_pairs() -> None:
    tiny, zero = np.array([1e-40], "f4"), np.float32(-0.0)
    assert comparisons.compare(tiny, zero, "gt", "f32") and not comparisons.compare(tiny, zero, "gt", "f32", ftz=True)
    pair = comparisons.compare(np.array([0x3C000000], "u4"), np.uint32(0x00003C00), "gt", "f16x2")
    assert pair.tolist() == [[False, True]]


def test_comparisons_of_integers_have_unsigned_names() -> None:
    a, b = np.array([1, 0xFFFFFFFF, 5], "u4"), np.array([0xFFFFFFFF, 1, 5], "u4")
    for op, want in (("lo", [1, 0, 0]), ("ls", [1, 0, 1]), ("hi", [0, 1, 0]), ("hs", [0, 1, 1])):
        assert comparisons.compare(a, b, op, "u32").tolist() == [bool(w) for w in want]
    assert comparisons.compare(a.view("i4"), b.view("i4"), "lt", "s32").tolist() == [False, True, False]


@pytest.mark.parametrize("type", ["f32", "f64"])
def test_properties(type: str) -> None:
    a = edges(type)
    tiny = 2.0 ** SHAPES[type].lowest
    values = values_of(a, type)
    wanted = {
        "finite": [math.isfinite(x) for x in values],
        "infinite": [math.isinf(x) for x in values],
        "number": [not math.isnan(x) for x in values],
        "notanumber": [math.isnan(x) for x in values],
        "normal": [math.isfinite(x) and abs(x) >= tiny for x in values],
        "subnormal": [0 < abs(x) < tiny for x in values],
    }
    for op, want in wanted.items():
        assert comparisons.testp(a, op, type).tolist() == want


# ---- approximations --------------------------------------------------------------------------------------------------

APPROXIMATIONS: dict[str, Callable[[Any], Any]] = {
    "ex2": lambda x: mpmath.power(2, x),
    "lg2": lambda x: mpmath.log(x, 2),
    "sin": mpmath.sin,
    "cos": mpmath.cos,
    "tanh": mpmath.tanh,
    "rsqrt": lambda x: 1 / mpmath.sqrt(x),
}


def approximated(name: str, type: str) -> np.ndarray[Any, Any]:
    dtype = {"f16": "f2", "bf16": "f4"}.get(type, "f4")
    if name in ("lg2", "rsqrt"):
        a = np.exp2(RNG.uniform(-14, 15, 400)).astype(dtype)
    else:
        a = RNG.uniform(-12, 12, 400).astype(dtype)
    if type == "bf16":
        return (a.view("u4") >> np.uint32(16)).astype("u2")
    return a.view("u2") if type == "f16" else a


@pytest.mark.parametrize(
    ("name", "type"), [(n, "f32") for n in APPROXIMATIONS] + [(n, t) for n in ("ex2", "tanh") for t in ("f16", "bf16")]
)
def test_an_approximation_is_the_value_rounded(name: str, type: str) -> None:
    a = approximated(name, type)
    got = values_of(getattr(approximations, name)(a, type), type)
    digits = SHAPES[type].fraction + 1
    with mpmath.workprec(200):
        for x, y in zip(values_of(a, type), got, strict=True):
            want = APPROXIMATIONS[name](mpmath.mpf(x))
            unit = mpmath.mpf(2) ** max(mpmath.mag(want) - digits, SHAPES[type].lowest - digits + 1)
            assert abs(y - want) <= unit * 0.5001, (name, type, x)


def test_a_packed_approximation_is_that_of_each_element() -> None:
    for name, type in itertools.product(("ex2", "tanh"), ("f16", "bf16")):
        a = approximated(name, type)
        function = getattr(approximations, name)
        assert (function(a.view("u4"), f"{type}x2").view("u2") == function(a, type)).all()
    assert approximations.ex2(np.array([0xC300], "u2"), "bf16") == 0x0020  # 2**-128
    assert approximations.ex2(np.array([0xC300], "u2"), "bf16", ftz=True) == 0


def test_approximations_at_the_edges() -> None:
    inf, nan = math.inf, math.nan
    table = {
        "ex2": [(-inf, 0), (0.0, 1), (inf, inf), (-150.0, 0), (128.0, inf), (-127.0, 2.0**-127)],
        "lg2": [(-1.0, nan), (0.0, -inf), (-0.0, -inf), (inf, inf), (8.0, 3), (2.0**-140, -140)],
        "sin": [(0.0, 0), (inf, nan)],
        "cos": [(0.0, 1), (-inf, nan)],
        "tanh": [(inf, 1), (-inf, -1), (0.0, 0)],
        "rsqrt": [(0.0, inf), (-0.0, -inf), (inf, 0), (-1.0, nan), (4.0, 0.5)],
    }
    for name, cases in table.items():
        for x, want in [*cases, (nan, nan)]:
            got = float(getattr(approximations, name)(np.array([x], "f4"), "f32")[0])
            assert got == want or (math.isnan(got) and math.isnan(want)), (name, x)
    flushed = {"ex2": [(-127.0, 0), (2.0**-140, 1)], "lg2": [(2.0**-140, -inf)], "rsqrt": [(-(2.0**-140), -inf)]}
    for name, cases in flushed.items():
        for x, want in cases:
            assert float(getattr(approximations, name)(np.array([x], "f4"), "f32", ftz=True)[0]) == want


def test_a_reciprocal_root_of_f64_is_within_an_ulp() -> None:
    a = np.concatenate([np.abs(randoms("f64", 600)), np.exp(RNG.uniform(-5, 5, 600)), [2.0**-1074, 2.0**-1022]])
    a = a[np.isfinite(a)]
    with mpmath.workprec(300):
        for x, y in zip(a, approximations.rsqrt(a, "f64"), strict=True):
            assert abs(1 / mpmath.sqrt(mpmath.mpf(float(x))) - float(y)) <= 0.501 * np.spacing(y)
    edge = approximations.rsqrt(np.array([0.0, -0.0, math.inf, -1.0, math.nan]), "f64")
    assert edge[:3].tolist() == [math.inf, -math.inf, 0] and np.isnan(edge[3:]).all()


# ---- what is not known -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "names"),
    [
        (lambda: floats.add(np.float32(1), np.float32(1), "rna", "f32"), "rna"),
        (lambda: floats.add(np.uint16(1), np.uint16(1), "rz", "f16"), "rz"),
        (lambda: floats.add(np.uint16(1), np.uint16(1), "rn", "e3m2"), "e3m2"),
        (lambda: approximations.sin(np.float64(1), "f64"), "f64"),
        (lambda: comparisons.compare(np.float32(1), np.float32(1), "lo", "f32"), "lo"),
        (lambda: comparisons.testp(np.float32(1), "odd", "f32"), "odd"),
    ],
)
def test_what_is_not_known_is_named(call: Callable[[], Any], names: str) -> None:
    with pytest.raises(UnsupportedError, match=names):
        call()
