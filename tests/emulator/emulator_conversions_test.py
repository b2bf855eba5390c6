"""The emulator's cvt, against integers and fractions rounded once, and ml_dtypes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from baracuda_py.emulator.values.conversions import convert, pack, tf32
from baracuda_py.types import UnsupportedError
from tests.emulator.exact_floats import SHAPES, rounded, values_of

RNG = np.random.default_rng(7)
INTEGERS = {f"{kind}{bits}": f"{letter}{bits // 8}" for bits in (8, 16, 32, 64) for kind, letter in ("uu", "si")}
FLOATS = {"f16": "u2", "bf16": "u2", "f32": "f4", "f64": "f8"}
ROUNDINGS = ("rn", "rz", "rm", "rp")
Array = np.ndarray[Any, Any]


@pytest.fixture(autouse=True)
def _quiet() -> Any:
    with np.errstate(all="ignore"):
        yield


def integers(type: str) -> Array:
    """Around every power of two, halfway between floats there, and random ones."""
    info = np.iinfo(INTEGERS[type])
    values = {0, 1, info.min, info.max, info.max - 1}
    for e in range(64):
        for digits in (8, 11, 24, 53):
            half = 1 << max(e - digits, 0)
            values |= {s * ((1 << e) + k * half + d) for s in (1, -1) for k in (0, 1, 3) for d in (-1, 0, 1)}
    values |= {int(x) >> RNG.integers(0, 64) for x in RNG.integers(-(2**63), 2**63, 500)}
    return np.array(sorted(v for v in values if info.min <= v <= info.max), INTEGERS[type])


def numbers(type: str) -> Array:
    """All 16-bit patterns; of the others edges, ties of every narrower format, halves, integers' limits, and random ones."""
    if type in ("f16", "bf16"):
        return np.arange(1 << 16, dtype="u2")
    values = [
        0.0,
        2.0**-149,
        2.0**-150,
        2.0**-126,
        2.0**-1074,
        1e300,
        3.4028235677973366e38,
        65520.0,
        65519.999,
        math.inf,
    ]
    values += [n + h for n in range(6) for h in (0.0, 0.25, 0.5, 0.75)]
    for bits in (7, 8, 15, 16, 31, 32, 63, 64):
        values += [2.0**bits + d for d in (-1.0, -0.75, -0.5, -0.25, 0.0, 0.5, 1.0)]
        values += [np.nextafter(2.0**bits, 0), float(np.nextafter(np.float32(2.0**bits), np.float32(0)))]
    for shape in SHAPES.values():
        for e in (shape.lowest - shape.fraction, shape.lowest, 0, shape.bias):
            ulp = math.ldexp(1.0, max(e, shape.lowest) - shape.fraction)
            values += [
                math.ldexp(1.0, e) + ulp * k for k in (0.25, 0.5, 0.5 + 2.0**-12, 0.75, 1.0, 1.5, 1.5 - 2.0**-12)
            ]
    width = {"f32": 4, "f64": 8}[type]
    random = RNG.integers(0, 256, 2000 * width, dtype="u1").view(FLOATS[type])
    middling = np.ldexp(RNG.standard_normal(2000), RNG.integers(-20, 70, 2000))
    every = np.concatenate([np.array(values), middling, [math.nan]]).astype(FLOATS[type])
    return np.concatenate([every, -every, random])


def agree(got: Array, want: list[float], type: str) -> None:
    """Values, signs of zeros, and the canonical NaN of what is not f32 or f64."""
    values, wanted = np.array(values_of(got, type)), np.array(want)
    equal = (values == wanted) & (np.signbit(values) == np.signbit(wanted)) | np.isnan(values) & np.isnan(wanted)
    assert equal.all(), [(int(i), values[i], wanted[i]) for i in np.flatnonzero(~equal)[:5]]
    canonical = {"f16": 0x7FFF, "bf16": 0x7FFF, "tf32": 0x7FFFFFFF, "e4m3": 0x7F, "e5m2": 0x7F}
    if type in canonical:
        assert (got[np.isnan(wanted)] == canonical[type]).all()


@cache
def _rounded(x: float, type: str, rounding: str) -> float:
    """Tests of several modifiers round the same numbers."""
    return rounded(Fraction(x), SHAPES[type], rounding)


def narrowed(x: float, type: str, rounding: str, satfinite: bool = False, relu: bool = False) -> float:
    shape = SHAPES[type]
    if relu and x <= 0:
        return 0.0
    if math.isnan(x) or x == 0:
        return x
    y = x if math.isinf(x) else _rounded(x, type, rounding)
    if math.isinf(y) and (satfinite or not shape.ieee):
        return math.copysign(shape.top, y) if satfinite else math.nan
    return y


# ---- integers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("of", INTEGERS)
def test_between_integers_bits_are_kept_or_the_value_clamped(of: str) -> None:
    a = integers(of)
    for to, dtype in INTEGERS.items():
        info = np.iinfo(dtype)
        got = convert(a, to, of)
        assert got.dtype == dtype
        span = info.max - info.min + 1
        assert got.tolist() == [(int(x) - info.min) % span + info.min for x in a]
        assert convert(a, to, of, sat=True).tolist() == [min(max(int(x), info.min), info.max) for x in a]


def test_a_wider_register_is_read_by_its_low_bits() -> None:
    assert convert(np.array([0x12FF], "u2"), "s32", "s8").tolist() == [-1]
    assert convert(np.array([0x12FF], "u2"), "u32", "u8").tolist() == [255]


@pytest.mark.parametrize("to", FLOATS)
@pytest.mark.parametrize("of", INTEGERS)
def test_an_integer_is_rounded_once(of: str, to: str) -> None:
    a = integers(of)
    for rounding in ROUNDINGS:
        got = convert(a, to, of, rounding)
        assert got.dtype == FLOATS[to]
        agree(got, [rounded(Fraction(int(x)), SHAPES[to], rounding) for x in a], to)


@pytest.mark.parametrize("to", INTEGERS)
@pytest.mark.parametrize("of", FLOATS)
def test_a_float_becomes_the_clamped_integer(of: str, to: str) -> None:
    a = numbers(of)
    if of in ("f16", "bf16"):
        a = a[:: 3 if to == "s32" else 17]
    values = values_of(a, of)
    info = np.iinfo(INTEGERS[to])
    low, high = info.min, info.max
    missing = 0 if of != "f64" and info.bits < 64 else low if low else 1 << info.bits - 1
    for rounding, whole in (("rni", round), ("rzi", math.trunc), ("rmi", math.floor), ("rpi", math.ceil)):

        def want(x: float, whole: Callable[[float], int] = whole) -> int:
            if math.isnan(x):
                return missing
            if math.isinf(x):
                return high if x > 0 else low
            return min(max(whole(x), low), high)

        got = convert(a, to, of, rounding)
        assert got.dtype == INTEGERS[to]
        assert got.tolist() == [want(x) for x in values]


def test_ftz_takes_a_subnormal_for_zero_before_it_rounds_up() -> None:
    tiny = np.array([1e-40], "f4")
    assert convert(tiny, "s32", "f32", "rpi") == 1
    assert convert(tiny, "s32", "f32", "rpi", ftz=True) == 0


# ---- floats ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("to", FLOATS)
@pytest.mark.parametrize("of", FLOATS)
def test_a_float_is_rounded_once(of: str, to: str) -> None:
    a = numbers(of)
    values = values_of(a, of)
    widths = list(SHAPES)
    if (widths.index(to) < widths.index(of) and (of, to) not in (("f16", "bf16"), ("bf16", "f16"))) or of == to:
        agree(convert(a, to, of), values, to)
        return
    for rounding in ROUNDINGS:
        some = slice(0, None, 11 if rounding != "rn" and of in ("f16", "bf16") else 1)
        agree(convert(a, to, of, rounding)[some], [narrowed(x, to, rounding) for x in values[some]], to)


@pytest.mark.parametrize("type", FLOATS)
def test_a_float_is_rounded_to_an_integer_that_is_a_float(type: str) -> None:
    a = numbers(type)
    for rounding, whole in (("rni", round), ("rzi", math.trunc), ("rmi", math.floor), ("rpi", math.ceil)):
        want = [math.copysign(whole(x), x) if math.isfinite(x) else x for x in values_of(a, type)]
        agree(convert(a, type, type, rounding), want, type)


def test_sat_clamps_a_converted_float() -> None:
    a = numbers("f32")
    want = [min(float(x), 1.0) if x > 0 else 0.0 for x in a]
    agree(convert(a, "f32", "f32", sat=True), want, "f32")
    agree(convert(a, "f16", "f32", "rn", sat=True), [narrowed(x, "f16", "rn") for x in want], "f16")


def test_ftz_flushes_what_is_f32() -> None:
    tiny = 2.0**-126
    a = numbers("f64")
    want = [narrowed(float(x), "f32", "rn") for x in a]
    agree(convert(a, "f32", "f64", "rn", ftz=True), [x * 0.0 if abs(x) < tiny else x for x in want], "f32")
    b = numbers("f32")
    agree(convert(b, "f64", "f32", ftz=True), [float(x) * 0.0 if abs(x) < tiny else float(x) for x in b], "f64")


@pytest.mark.parametrize("to", ["f16", "bf16"])
@pytest.mark.parametrize("rounding", ["rn", "rz"])
def test_relu_and_satfinite(to: str, rounding: str) -> None:
    a = numbers("f32")
    for relu, satfinite in itertools.product((False, True), repeat=2):
        want = [narrowed(float(x), to, rounding, satfinite, relu) for x in a]
        agree(convert(a, to, "f32", rounding, relu=relu, satfinite=satfinite), want, to)
        got = pack(a, a[::-1], f"{to}x2", rounding, relu, satfinite)
        assert got.dtype == np.uint32
        agree((got >> np.uint32(16)).astype("u2"), want, to)
        agree(got.astype("u2"), want[::-1], to)


@pytest.mark.parametrize("rounding", ["rna", "rn", "rz"])
def test_tf32_keeps_eleven_digits(rounding: str) -> None:
    a = numbers("f32")
    for relu, satfinite in itertools.product((False, True), repeat=2):
        got = tf32(a, rounding, relu, satfinite)
        assert got.dtype == np.uint32
        want = [narrowed(float(x), "tf32", rounding, satfinite, relu) for x in a]
        values = got.view("f4")
        assert np.array_equal(values, np.array(want, "f4"), equal_nan=True)
        assert (got[np.isnan(values)] == 0x7FFFFFFF).all()
        assert not (got[~np.isnan(values)] & np.uint32(0x1FFF)).any()


@pytest.mark.parametrize("type", ["e4m3", "e5m2"])
def test_eight_bit_floats(type: str) -> None:
    own = {"e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2}[type]
    every = np.arange(256, dtype="u1")
    pairs = (every[::-1].astype("u2") << np.uint16(8)) | every
    halves = convert(pairs, "f16x2", f"{type}x2", "rn")
    values = every.view(own).astype("f4")
    low, high = halves.astype("u2").view("f2"), (halves >> np.uint32(16)).astype("u2").view("f2")
    assert np.array_equal(low, values.astype("f2"), equal_nan=True)
    assert np.array_equal(high, values[::-1].astype("f2"), equal_nan=True)

    a = numbers("f32")
    for relu in (False, True):
        want = [narrowed(float(x), type, "rn", True, relu) for x in a]
        got = pack(a, a[::-1], f"{type}x2", "rn", relu, satfinite=True)
        assert got.dtype == np.uint16
        agree((got >> np.uint16(8)).astype("u1"), want, type)
        agree(got.astype("u1"), want[::-1], type)

    patterns = np.arange(1 << 16, dtype="u2")
    packed = (patterns[::-1].astype("u4") << np.uint32(16)) | patterns
    got = convert(packed, f"{type}x2", "f16x2", "rn", satfinite=True)
    want = [narrowed(x, type, "rn", True) for x in values_of(patterns, "f16")]
    agree(got.astype("u1"), want, type)
    agree((got >> np.uint16(8)).astype("u1"), want[::-1], type)


def test_patterns_agree_with_ml_dtypes() -> None:
    a = numbers("f32")
    finite = a[~np.isnan(a)]
    bf16 = finite.astype(ml_dtypes.bfloat16).view("u2")
    assert (convert(finite, "bf16", "f32", "rn") == bf16).all()
    assert (convert(finite, "f16", "f32", "rn") == finite.astype("f2").view("u2")).all()
    inside = finite[np.abs(finite) <= 448]
    assert (
        (pack(inside, inside, "e4m3x2", satfinite=True) & 255) == inside.astype(ml_dtypes.float8_e4m3fn).view("u1")
    ).all()


def test_scalars_are_converted_too() -> None:
    assert convert(np.uint64(2**64 - 1), "f32", "u64", "rz") == np.float32(2.0**64 - 2.0**40)
    assert convert(np.float32(2.5), "s32", "f32", "rni") == 2
    assert convert(np.float32(1 / 3), "bf16", "f32", "rn") == 0x3EAB
    assert pack(np.float32(1), np.array([2.0], "f4"), "f16x2").tolist() == [0x3C004000]
    assert tf32(np.float32(1 + 2.0**-11), "rna") == 0x3F802000


@pytest.mark.parametrize(
    ("call", "names"),
    [
        (lambda: convert(np.float32(1), "s32", "f32", ""), "''"),
        (lambda: convert(np.float32(1), "e2m1", "f32", "rn"), "e2m1"),
        (lambda: convert(np.float32(1), "f16", "f32", "rs"), "rs"),
        (lambda: pack(np.float32(1), np.float32(1), "ue8m0x2", "rz"), "ue8m0"),
    ],
)
def test_what_is_not_known_is_named(call: Callable[[], Any], names: str) -> None:
    with pytest.raises(UnsupportedError, match=names):
        call()
