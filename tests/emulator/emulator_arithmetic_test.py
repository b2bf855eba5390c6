"""The emulator's integer opcodes, against Python's integers and the loops that the ISA writes down."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from baracuda_py.emulator.values import arithmetic, bitfields
from baracuda_py.types import UnsupportedError

RNG = np.random.default_rng(11)
DTYPES = {f"{kind}{bits}": f"{letter}{bits // 8}" for bits in (16, 32, 64) for kind, letter in ("uu", "si", "bu")}
SIGNED_OR_NOT = [t for t in DTYPES if t[0] != "b"]
Array = np.ndarray[Any, Any]


@pytest.fixture(autouse=True)
def _quiet() -> Any:
    with np.errstate(all="ignore"):
        yield


def edges(type: str) -> list[int]:
    info = np.iinfo(DTYPES[type])
    values = {
        0,
        1,
        2,
        3,
        7,
        info.max,
        info.max - 1,
        info.min,
        info.min + 1,
        info.max // 2,
        info.max // 3,
        info.max // 2 + 1,
    }
    if info.min:
        values |= {-1, -2, -3, -7, info.min // 2}
    return sorted(values)


def lanes(type: str, n: int, random: int = 300) -> list[Array]:
    """`n` operands: edges crossed (two by two), and random ones of all sizes."""
    dtype = np.dtype(DTYPES[type])
    info = np.iinfo(dtype)
    first, second = (list(x) for x in zip(*itertools.product(edges(type), repeat=2), strict=True))
    columns = [
        np.array([first, second, list(RNG.permutation(np.array(first, dtype)))][min(i, 2)], dtype) for i in range(n)
    ]
    sizes = [RNG.integers(0, info.bits, random).astype(dtype) for _ in range(n)]
    randoms = [RNG.integers(info.min, info.max, random, dtype, endpoint=True) >> size for size in sizes]
    return [np.concatenate(pair) for pair in zip(columns, randoms, strict=True)]


def wrap(x: int, type: str) -> int:
    info = np.iinfo(DTYPES[type])
    return (x - info.min) % (info.max - info.min + 1) + info.min


def check(got: Array, want: list[int], type: str) -> None:
    assert got.dtype == DTYPES[type], got.dtype
    assert got.tolist() == want


def ints(*arrays: Array) -> list[tuple[int, ...]]:
    return list(zip(*(a.tolist() for a in arrays), strict=True))


@pytest.mark.parametrize("type", SIGNED_OR_NOT)
def test_products_and_quotients(type: str) -> None:
    a, b = lanes(type, 2)
    bits = np.iinfo(DTYPES[type]).bits
    check(arithmetic.mul_hi(a, b, type), [x * y >> bits for x, y in ints(a, b)], type)

    def quotient(x: int, y: int) -> int:
        if y == 0:
            return wrap(-1, type)
        return wrap(abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1), type)

    check(arithmetic.divide(a, b, type), [quotient(x, y) for x, y in ints(a, b)], type)
    rest = [wrap(x - y * quotient(x, y), type) if y else x for x, y in ints(a, b)]
    check(arithmetic.remainder(a, b, type), rest, type)
    for y in edges(type):
        scalar = a.dtype.type(y)
        check(arithmetic.divide(a, scalar, type), [quotient(x, y) for x in a.tolist()], type)
        check(arithmetic.mul_hi(a, scalar, type), [x * y >> bits for x in a.tolist()], type)


def test_saturating_sums() -> None:
    a, b = lanes("s32", 2)

    def clamp(x: int) -> int:
        return min(max(x, -(2**31)), 2**31 - 1)

    check(arithmetic.add_sat(a, b, "s32"), [clamp(x + y) for x, y in ints(a, b)], "s32")
    check(arithmetic.sub_sat(a, b, "s32"), [clamp(x - y) for x, y in ints(a, b)], "s32")


AMOUNTS = np.array([0, 1, 5, 15, 16, 17, 31, 32, 33, 63, 64, 65, 255, 65536, 2**31, 2**32 - 1], "u4")


@pytest.mark.parametrize("type", DTYPES)
def test_shifts_are_clamped(type: str) -> None:
    (a,) = lanes(type, 1, 50)
    a, n = np.repeat(a, len(AMOUNTS)), np.tile(AMOUNTS, len(a))
    bits = np.iinfo(DTYPES[type]).bits
    if type[0] == "b":
        check(arithmetic.shift_left(a, n, bits), [x << min(k, bits) & (1 << bits) - 1 for x, k in ints(a, n)], type)
        check(arithmetic.shift_left(a, np.uint32(bits), bits), [0] * len(a), type)
    check(arithmetic.shift_right(a, n, type), [x >> min(k, bits) for x, k in ints(a, n)], type)
    assert arithmetic.shift_right(a.dtype.type(-1 if type[0] == "s" else 1), np.uint32(2**32 - 1), type) == (
        -1 if type[0] == "s" else 0
    )


def test_funnel_shifts() -> None:
    lo, hi = lanes("u32", 2, 50)
    lo, hi, n = np.repeat(lo, len(AMOUNTS)), np.repeat(hi, len(AMOUNTS)), np.tile(AMOUNTS, len(lo))
    for mode, amount in (("clamp", lambda k: min(k, 32)), ("wrap", lambda k: k & 31)):
        both = [(y << 32 | x, amount(k)) for x, y, k in ints(lo, hi, n)]
        check(arithmetic.funnel(lo, hi, n, "l", mode), [(v << k) >> 32 & 0xFFFFFFFF for v, k in both], "u32")
        check(arithmetic.funnel(lo, hi, n, "r", mode), [v >> k & 0xFFFFFFFF for v, k in both], "u32")
    assert arithmetic.funnel(np.uint32(1), np.uint32(2), np.uint32(8), "l", "wrap") == 0x200


def test_every_function_of_three_bits() -> None:
    a, b, c = lanes("u32", 3, 20)
    for lut in range(256):

        def bitwise(x: int, y: int, z: int, lut: int = lut) -> int:
            return sum((lut >> ((x >> i & 1) * 4 + (y >> i & 1) * 2 + (z >> i & 1)) & 1) << i for i in range(32))

        some = slice(lut % 7, None, 29)
        check(
            arithmetic.lop3(a[some], b[some], c[some], lut),
            [bitwise(*p) for p in ints(a[some], b[some], c[some])],
            "u32",
        )
    # The ISA's own definition: the function applied to these three constants.
    x, y, z = np.uint32(0xF0), np.uint32(0xCC), np.uint32(0xAA)
    assert arithmetic.lop3(a, b, c, int(x & y | z)).tolist() == (a & b | c).tolist()
    assert arithmetic.lop3(a, np.uint32(0xFF), np.uint32(7), 0xEA).tolist() == (a & 0xFF | 7).tolist()


@pytest.mark.parametrize("types", [("u32", "u32"), ("s32", "u32"), ("u32", "s32"), ("s32", "s32")])
def test_dot_products_of_parts(types: tuple[str, str]) -> None:
    a, b, c = lanes("u32", 3)
    result = "u32" if types == ("u32", "u32") else "s32"
    c = c.view(DTYPES[result])

    def part(x: int, i: int, type: str) -> int:
        v = x >> 8 * i & 255
        return v - 256 if type[0] == "s" and v >> 7 else v

    def dot(x: int, y: int, z: int) -> int:
        return wrap(z + sum(part(x, i, types[0]) * part(y, i, types[1]) for i in range(4)), result)

    check(arithmetic.dp4a(a, b, c, *types), [dot(*p) for p in ints(a, b, c)], result)
    assert arithmetic.dp4a(a[0], b, c[0], *types).shape == b.shape


# ---- bit fields ------------------------------------------------------------------------------------------------------

FIELDS = np.array([0, 1, 2, 8, 31, 32, 33, 63, 64, 65, 128, 255, 256, 257, 2**32 - 1], "u4")


@pytest.mark.parametrize("bits", [32, 64])
def test_counts_of_bits(bits: int) -> None:
    (a,) = lanes(f"b{bits}", 1)
    check(bitfields.popc(a), [x.bit_count() for x in a.tolist()], "u32")
    check(bitfields.clz(a), [bits - x.bit_length() for x in a.tolist()], "u32")
    check(bitfields.brev(a), [int(f"{x:0{bits}b}"[::-1], 2) for x in a.tolist()], f"b{bits}")
    for kind in "us":
        type = f"{kind}{bits}"
        b = a.view(DTYPES[type])
        top = [(x if x >= 0 else ~x).bit_length() - 1 for x in b.tolist()]
        check(bitfields.bfind(b, type), [t % 2**32 for t in top], "u32")
        check(bitfields.bfind(b, type, shiftamt=True), [bits - 1 - t if t >= 0 else 2**32 - 1 for t in top], "u32")
    assert bitfields.clz(np.uint32(1)) == 31 and bitfields.popc(np.uint64(5)) == 2


@pytest.mark.parametrize("type", ["u32", "s32", "u64", "s64"])
def test_bit_fields(type: str) -> None:
    (a,) = lanes(type, 1, 20)
    b = a[::-1].copy()
    bits = np.iinfo(DTYPES[type]).bits
    pos, length = (x.ravel() for x in np.meshgrid(FIELDS, FIELDS))
    a, b = np.resize(a, pos.size * 2), np.resize(b, pos.size * 2)
    pos, length = np.tile(pos, 2), np.tile(length, 2)

    def extracted(x: int, p: int, n: int) -> int:
        p, n = p & 255, n & 255
        sign = 0 if type[0] == "u" or n == 0 else x >> min(p + n - 1, bits - 1) & 1
        return wrap(sum((x >> p + i & 1 if i < n and p + i < bits else sign) << i for i in range(bits)), type)

    check(bitfields.bfe(a, pos, length, type), [extracted(*v) for v in ints(a, pos, length)], type)
    if type[0] == "s":
        return

    def inserted(x: int, y: int, p: int, n: int) -> int:
        p, n = p & 255, n & 255
        for i in range(n):
            if p + i < bits:
                y = y & ~(1 << p + i) | (x >> i & 1) << p + i
        return y

    check(bitfields.bfi(a, b, pos, length, bits), [inserted(*v) for v in ints(a, b, pos, length)], type)
    assert bitfields.bfi(a, b.dtype.type(0), np.uint32(8), np.uint32(8), bits).tolist() == [
        (x & 255) << 8 for x in a.tolist()
    ]


# PTX ISA, prmt: the bytes d.b3 to d.b0 that each mode takes for the values 0 to 3 of the selector.
TABLE = {
    "f4e": ("3210", "4321", "5432", "6543"),
    "b4e": ("5670", "6701", "7012", "0123"),
    "rc8": ("0000", "1111", "2222", "3333"),
    "ecl": ("3210", "3211", "3222", "3333"),
    "ecr": ("0000", "1110", "2210", "3210"),
    "rc16": ("1010", "3232", "1010", "3232"),
}


def test_permutations_of_bytes() -> None:
    a, b, c = lanes("u32", 3)

    def byte(x: int, y: int, i: int) -> int:
        return (y << 32 | x) >> 8 * i & 255

    def permuted(x: int, y: int, s: int) -> int:
        nibbles = [s >> 4 * i & 15 for i in range(4)]
        return sum(
            (byte(x, y, n & 7) if n < 8 else 255 * (byte(x, y, n & 7) >> 7)) << 8 * i for i, n in enumerate(nibbles)
        )

    check(bitfields.prmt(a, b, c), [permuted(*v) for v in ints(a, b, c)], "u32")
    for s in (0x5410, 0x7632, 0xFEDC, 0x8040, 0x3210):
        want = [permuted(x, y, s) for x, y in ints(a, b)]
        check(bitfields.prmt(a, b, np.uint32(s)), want, "u32")
        check(bitfields.prmt(a, np.uint32(0), np.uint32(s)), [permuted(x, 0, s) for x in a.tolist()], "u32")
    want = [permuted(5, 7, s) for s in c.tolist()]
    check(bitfields.prmt(np.uint32(5), np.uint32(7), c), want, "u32")
    assert bitfields.prmt(np.uint32(0x80), np.uint32(1), np.uint32(0x0488)) == 0x8001FFFF
    for mode, rows in TABLE.items():
        for s in range(4):
            want = [sum(byte(x, y, int(d)) << 8 * (3 - i) for i, d in enumerate(rows[s])) for x, y in ints(a, b)]
            check(bitfields.prmt(a, b, np.uint32(s + 4), mode), want, "u32")
            check(bitfields.prmt(a, b, np.full_like(a, s), mode), want, "u32")


@pytest.mark.parametrize(
    ("call", "names"),
    [
        (lambda: bitfields.prmt(np.uint32(1), np.uint32(1), np.uint32(1), "rc4"), "rc4"),
        (lambda: arithmetic.funnel(np.uint32(1), np.uint32(1), np.uint32(1), "l", "sat"), "sat"),
        (lambda: arithmetic.add_sat(np.int64(1), np.int64(1), "s64"), "s64"),
    ],
)
def test_what_is_not_known_is_named(call: Callable[[], Any], names: str) -> None:
    with pytest.raises(UnsupportedError, match=names):
        call()
