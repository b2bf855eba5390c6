"""Integer opcodes on lanes (PTX ISA, Integer Arithmetic Instructions; Logic and Shift Instructions).

Operands are arrays of the register's dtype, or 0-d values that all lanes share; they broadcast. Results wrap as registers do.
Call them under ``np.errstate(all="ignore")``. Bit fields and permutations are in `bitfields`.
"""

from __future__ import annotations

import numpy as np

from .registers import BITS, Lanes, dtype_of, unsupported

__all__ = [
    "add_sat",
    "divide",
    "dp4a",
    "funnel",
    "lop3",
    "mul_hi",
    "remainder",
    "shift_left",
    "shift_right",
    "sub_sat",
]

_LOW = np.uint64(0xFFFFFFFF)
_32 = np.uint64(32)


def mul_hi(a: Lanes, b: Lanes, type: str) -> Lanes:
    """The upper half of the full product (mul.hi)."""
    if type in ("u64", "s64"):
        return _mul_hi_64(a, b, type)
    wide = np.dtype(f"{dtype_of(type).kind}{BITS[type] // 4}")
    product = np.multiply(a, b, dtype=wide)
    return (product >> wide.type(BITS[type])).astype(dtype_of(type))


def _mul_hi_64(a: Lanes, b: Lanes, type: str) -> Lanes:
    # Products of 32-bit limbs; for each negative operand of a signed product, the upper half is less by the other operand.
    x, y = a.view("u8"), b.view("u8")
    x0, x1, y0, y1 = x & _LOW, x >> _32, y & _LOW, y >> _32
    middle = x1 * y0 + (x0 * y0 >> _32)
    high = x1 * y1 + (middle >> _32) + ((x0 * y1 + (middle & _LOW)) >> _32)
    if type == "s64":
        high = high - np.where(a < 0, y, np.uint64(0)) - np.where(b < 0, x, np.uint64(0))
    return high.view(dtype_of(type))


def add_sat(a: Lanes, b: Lanes, type: str) -> Lanes:
    """add.sat.s32: the sum clamped to MININT .. MAXINT."""
    return _clamp(np.add(a, b, dtype="i8"), type)


def sub_sat(a: Lanes, b: Lanes, type: str) -> Lanes:
    """sub.sat.s32: the difference clamped to MININT .. MAXINT."""
    return _clamp(np.subtract(a, b, dtype="i8"), type)


def _clamp(x: Lanes, type: str) -> Lanes:
    if type != "s32":
        raise unsupported("saturating type", type, ("s32",))
    limits = np.iinfo("i4")
    return np.clip(x, limits.min, limits.max).astype("i4")


def divide(a: Lanes, b: Lanes, type: str) -> Lanes:
    """div: truncated, as in C. A division by zero, undefined in the ISA, gives all ones; MININT / -1 gives MININT."""
    quotient = np.floor_divide(a - np.fmod(a, b) if type[0] == "s" else a, b)
    return _where_zero(b, dtype_of(type).type(-1 if type[0] == "s" else np.iinfo(dtype_of(type)).max), quotient)


def remainder(a: Lanes, b: Lanes, type: str) -> Lanes:
    """rem: with the dividend's sign, as in C. A division by zero, undefined in the ISA, gives the dividend."""
    return _where_zero(b, a, np.fmod(a, b) if type[0] == "s" else np.remainder(a, b))


def _where_zero(divisor: Lanes, value: Lanes, otherwise: Lanes) -> Lanes:
    zero = divisor == 0
    return np.where(zero, value, otherwise) if zero.any() else otherwise


def shift_left(a: Lanes, n: Lanes, bits: int) -> Lanes:
    """shl: amounts of `bits` and more give 0."""
    return np.left_shift(a, np.minimum(n, np.uint32(bits)).astype(a.dtype))


def shift_right(a: Lanes, n: Lanes, type: str) -> Lanes:
    """shr: fills with the sign of a signed type; amounts beyond the register's bits are those bits."""
    return np.right_shift(a, np.minimum(n, np.uint32(BITS[type])).astype(a.dtype))


def funnel(lo: Lanes, hi: Lanes, n: Lanes, direction: str, mode: str) -> Lanes:
    """shf.l or shf.r of the 64 bits hi:lo: the upper half after a shift to the left, the lower half after one to the right.
    Amounts are clamped to 32, or taken modulo 32 (.wrap)."""
    if mode not in ("clamp", "wrap"):
        raise unsupported("mode of shf", mode, ("clamp", "wrap"))
    amount = (n & np.uint32(31) if mode == "wrap" else np.minimum(n, np.uint32(32))).astype("u8")
    both = hi.astype("u8") << _32 | lo
    return ((both << amount) >> _32 if direction == "l" else both >> amount).astype("u4")


def lop3(a: Lanes, b: Lanes, c: Lanes, lut: int) -> Lanes:
    """Any function of three bits: bit 4 a + 2 b + c of `lut` is its value."""
    lut = int(lut)
    if lut.bit_count() > 4:
        return ~lop3(a, b, c, ~lut & 0xFF)
    terms = [(a if i & 4 else ~a) & (b if i & 2 else ~b) & (c if i & 1 else ~c) for i in range(8) if lut >> i & 1]
    return np.bitwise_or.reduce(np.broadcast_arrays(*terms)) if terms else (a & b & c) * np.uint32(0)


def dp4a(a: Lanes, b: Lanes, c: Lanes, atype: str, btype: str) -> Lanes:
    """c plus the products of the four bytes of `a` and `b`, each read as signed or unsigned."""
    return _dot(_parts(a, atype, 8), _parts(b, btype, 8), c)


def _parts(x: Lanes, type: str, bits: int) -> Lanes:
    return np.ascontiguousarray(x.reshape(*x.shape, 1)).view(dtype_of(f"{type[0]}{bits}"))


def _dot(x: Lanes, y: Lanes, c: Lanes) -> Lanes:
    return (np.multiply(x, y, dtype="i8").sum(-1) + c).astype(c.dtype)
