"""Opcodes through real PTX on the emulator's engine: that each reaches its meaning with its operands, types and modifiers in
place, against integers, fractions and the ISA's own words."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from baracuda_py.emulator.ptx.grammar import known

from .exact_floats import SHAPES, rounded, value_of
from .ptx_lanes import bits_of, kernel_of, meaning, rows, run_on, signed

INTEGERS = ("s16", "u16", "s32", "u32", "s64", "u64")
Oracle = Callable[..., Any]
Row = tuple[str, str, str, Oracle]


def wrapped(value: int, kind: str) -> int:
    return (
        signed(value & (1 << bits_of(kind)) - 1, bits_of(kind)) if kind[0] == "s" else value & (1 << bits_of(kind)) - 1
    )


def clamped(value: int, bits: int) -> int:
    return max(-(1 << bits - 1), min((1 << bits - 1) - 1, value))


def over(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def integers() -> Iterator[Row]:
    for t in INTEGERS:
        bits = int(t[1:])
        yield f"add.{t} %x, %a, %b;", f"{t} {t}", t, lambda a, b: a + b
        yield f"sub.{t} %x, %a, %b;", f"{t} {t}", t, lambda a, b: a - b
        yield f"mul.lo.{t} %x, %a, %b;", f"{t} {t}", t, lambda a, b: a * b
        yield f"mul.hi.{t} %x, %a, %b;", f"{t} {t}", t, lambda a, b, bits=bits: a * b >> bits
        yield f"mad.lo.{t} %x, %a, %b, %c;", f"{t} {t} {t}", t, lambda a, b, c: a * b + c
        yield f"mad.hi.{t} %x, %a, %b, %c;", f"{t} {t} {t}", t, lambda a, b, c, bits=bits: (a * b >> bits) + c
        yield f"div.{t} %x, %a, %b;", f"{t} {t}", t, lambda a, b: over(a, b) if b else None
        yield f"rem.{t} %x, %a, %b;", f"{t} {t}", t, lambda a, b: a - b * over(a, b) if b else None
        yield f"min.{t} %x, %a, %b;", f"{t} {t}", t, min
        yield f"max.{t} %x, %a, %b;", f"{t} {t}", t, max
        if bits < 64:
            wide = f"{t[0]}{2 * bits}"
            yield f"mul.wide.{t} %x, %a, %b;", f"{t} {t}", wide, lambda a, b: a * b
            yield f"mad.wide.{t} %x, %a, %b, %c;", f"{t} {t} {wide}", wide, lambda a, b, c: a * b + c
        if t[0] == "s":
            yield f"neg.{t} %x, %a;", t, t, lambda a: -a
            yield f"abs.{t} %x, %a;", t, t, abs
    two = "s32 s32"
    yield "add.sat.s32 %x, %a, %b;", two, "s32", lambda a, b: clamped(a + b, 32)
    yield "sub.sat.s32 %x, %a, %b;", two, "s32", lambda a, b: clamped(a - b, 32)
    yield "min.relu.s32 %x, %a, %b;", two, "s32", lambda a, b: max(min(a, b), 0)
    yield "max.relu.s32 %x, %a, %b;", two, "s32", lambda a, b: max(a, b, 0)
    for a_kind, b_kind in itertools.product(("u32", "s32"), repeat=2):
        result = "s32" if "s32" in (a_kind, b_kind) else "u32"

        def dot(a: int, b: int, c: int, kinds: tuple[str, str] = (a_kind, b_kind)) -> int:
            parts = [[signed(x >> 8 * i & 255, 8) if k == "s32" else x >> 8 * i & 255 for i in range(4)]
                     for x, k in zip((a, b), kinds)]  # fmt: skip
            return c + sum(x * y for x, y in zip(*parts))

        yield f"dp4a.{a_kind}.{b_kind} %x, %a, %b, %c;", f"{a_kind} {b_kind} {result}", result, dot


def bit_by_bit() -> Iterator[Row]:
    for bits in (16, 32, 64):
        t, full = f"b{bits}", (1 << bits) - 1
        yield f"and.{t} %x, %a, %b;", f"{t} {t}", t, lambda a, b: a & b
        yield f"or.{t} %x, %a, %b;", f"{t} {t}", t, lambda a, b: a | b
        yield f"xor.{t} %x, %a, %b;", f"{t} {t}", t, lambda a, b: a ^ b
        yield f"not.{t} %x, %a;", t, t, lambda a, full=full: a ^ full
        yield f"shl.{t} %x, %a, %b;", f"{t} u32", t, lambda a, b, n=bits: a << b if b < n else 0
        for kind in (f"u{bits}", f"s{bits}", t):
            yield f"shr.{kind} %x, %a, %b;", f"{kind} u32", kind, lambda a, b, n=bits: a >> min(b, n)
        yield f"shl.{t} %x, %a, 3;", t, t, lambda a: a << 3
        yield f"shr.s{bits} %x, %a, 3;", f"s{bits}", f"s{bits}", lambda a: a >> 3
    for bits in (32, 64):
        t = f"b{bits}"
        yield f"popc.{t} %x, %a;", t, "u32", lambda a: a.bit_count()
        yield f"clz.{t} %x, %a;", t, "u32", lambda a, n=bits: n - a.bit_length()
        yield f"brev.{t} %x, %a;", t, t, lambda a, n=bits: int(f"{a:0{n}b}"[::-1], 2)
        yield f"bfind.u{bits} %x, %a;", f"u{bits}", "u32", lambda a: a.bit_length() - 1
        yield f"bfind.s{bits} %x, %a;", f"s{bits}", "u32", lambda a: (a if a >= 0 else ~a).bit_length() - 1
        yield (f"bfind.shiftamt.u{bits} %x, %a;", f"u{bits}", "u32",
               lambda a, n=bits: n - a.bit_length() if a else -1)  # fmt: skip
        for kind in (f"u{bits}", f"s{bits}"):
            yield (
                f"bfe.{kind} %x, %a, %b, %c;",
                f"{kind} u32 u32",
                kind,
                lambda a, b, c, n=bits, k=kind: field(a, b, c, n, k),
            )
        yield f"bfi.{t} %x, %a, %b, %c, %d;", f"{t} {t} u32 u32", t, lambda a, b, c, d, n=bits: inserted(a, b, c, d, n)
    for lut in (0xC0, 0x96, 0xE8, 0x1D):

        def chosen(a: int, b: int, c: int, lut: int = lut) -> int:
            return sum((lut >> ((a >> i & 1) << 2 | (b >> i & 1) << 1 | c >> i & 1) & 1) << i for i in range(32))

        yield f"lop3.b32 %x, %a, %b, %c, {lut};", "b32 b32 b32", "b32", chosen
    for way, mode in itertools.product("lr", ("wrap", "clamp")):

        def funnel(a: int, b: int, c: int, way: str = way, mode: str = mode) -> int:
            n, whole = c & 31 if mode == "wrap" else min(c, 32), b << 32 | a
            return whole >> 32 - n if way == "l" else whole >> n

        yield f"shf.{way}.{mode}.b32 %x, %a, %b, %c;", "b32 b32 u32", "b32", funnel

    def permuted(a: int, b: int, c: int) -> int:
        parts = [(b << 32 | a) >> 8 * (c >> 4 * i & 7) & 255 for i in range(4)]
        parts = [(255 if x >> 7 else 0) if c >> 4 * i + 3 & 1 else x for i, x in enumerate(parts)]
        return sum(x << 8 * i for i, x in enumerate(parts))

    yield "prmt.b32 %x, %a, %b, %c;", "b32 b32 b32", "b32", permuted
    modes = {"f4e": lambda i, c: i + c, "b4e": lambda i, c: c - i, "rc8": lambda _, c: c, "ecl": max, "ecr": min,
             "rc16": lambda i, c: (i & 1) + 2 * (c & 1)}  # fmt: skip
    for mode, of in modes.items():

        def by_mode(a: int, b: int, c: int, of: Any = of) -> int:
            return sum(((b << 32 | a) >> 8 * (of(i, c & 3) & 7) & 255) << 8 * i for i in range(4))

        yield f"prmt.b32.{mode} %x, %a, %b, %c;", "b32 b32 b32", "b32", by_mode


def field(a: int, at: int, length: int, bits: int, kind: str) -> int:
    at, length, whole = at & 255, length & 255, a & (1 << bits) - 1
    if not length:
        return 0
    if kind[0] == "u":
        return (whole & (1 << bits) - 1) >> at & (1 << length) - 1
    sign = whole >> min(at + length - 1, bits - 1) & 1
    found = whole >> at & (1 << length) - 1
    kept = max(min(length, bits - at), 0)
    return found | (-1 << kept if sign else 0)


def inserted(a: int, b: int, at: int, length: int, bits: int) -> int:
    at, length = at & 255, length & 255
    mask = (1 << length) - 1 << at & (1 << bits) - 1
    return b & ~mask | a << at & mask


SIGNS: dict[str, Oracle] = {
    "eq": lambda a, b: a == b, "ne": lambda a, b: a != b, "lt": lambda a, b: a < b, "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b, "lo": lambda a, b: a < b, "ls": lambda a, b: a <= b,
    "hi": lambda a, b: a > b, "hs": lambda a, b: a >= b,
}  # fmt: skip
LOGIC: dict[str, Oracle] = {"and": lambda a, b: a & b, "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b}


def predicates() -> Iterator[Row]:
    for t, (name, sign) in itertools.product(
        (*INTEGERS, "b16", "b32", "b64", "f32", "f64", "f16", "bf16"), SIGNS.items()
    ):
        if known(f"setp.{name}.{t}", 3):
            yield f"setp.{name}.{t} %x, %a, %b;", f"{t} {t}", "pred", sign
    for name, logic in LOGIC.items():
        yield f"{name}.pred %x, %a, %b;", "pred pred", "pred", logic
        yield f"setp.lt.{name}.s32 %x, %a, %b, %c;", "s32 s32 pred", "pred", lambda a, b, c, f=logic: f(a < b, bool(c))
        yield (f"setp.lt.{name}.f32 %x|%y, %a, %b, !%c;", "f32 f32 pred", "pred pred",
               lambda a, b, c, f=logic: (f(a < b, not c), f(not a < b, not c)))  # fmt: skip
    yield "setp.ge.u32 %x|%y, %a, %b;", "u32 u32", "pred pred", lambda a, b: (a >= b, a < b)
    yield "not.pred %x, %a;", "pred", "pred", lambda a: not a
    yield "mov.pred %x, %a;", "pred", "pred", bool
    for t in ("b16", "u32", "s64", "f32", "f64"):
        yield f"selp.{t} %x, %a, %b, %c;", f"{t} {t} pred", t, lambda a, b, c: a if c else b
    yield "selp.b32 %x, %a, 77, !%b;", "b32 pred", "b32", lambda a, p: 77 if p else a
    yield (
        "@%b mov.u32 %a, 5; @!%b add.u32 %a, %a, 1; mov.u32 %x, %a;",
        "u32 pred",
        "u32",
        lambda a, p: 5 if p else a + 1,
    )


def moves() -> Iterator[Row]:
    for t in ("b16", "u16", "b32", "s32", "f32", "b64", "u64", "f64"):
        yield f"mov.{t} %x, %a;", t, t, lambda a: a
    yield "mov.b32 %x, {%a, %b};", "b16 b16", "b32", lambda a, b: b << 16 | a
    yield "mov.b64 %x, {%a, %b};", "b32 b32", "b64", lambda a, b: b << 32 | a
    yield "mov.b64 %x, {%a, %b, %c, %d};", "b16 b16 b16 b16", "b64", lambda a, b, c, d: d << 48 | c << 32 | b << 16 | a
    yield "mov.b32 {%x, %y}, %a;", "b32", "b16 b16", lambda a: (a & 0xFFFF, a >> 16)
    yield "mov.b64 {%x, %y}, %a;", "b64", "b32 b32", lambda a: (a & 0xFFFFFFFF, a >> 32)
    yield "mov.b64 {_, %x, %y, _}, %a;", "b64", "b16 b16", lambda a: (a >> 16 & 0xFFFF, a >> 32 & 0xFFFF)
    yield "mov.b32 {_, %x}, %a;", "b32", "b16", lambda a: a >> 16
    yield "mov.f32 %x, 0fC0490FDB;", "u32", "f32", lambda _: value_of(0xC0490FDB, SHAPES["f32"])
    yield "mov.f64 %x, 0d400921FB54442D18;", "u32", "f64", lambda _: math.pi
    yield "mov.s32 %x, -7;", "u32", "s32", lambda _: -7
    yield "mov.u64 %x, 0xFFFFFFFFFF;", "u32", "u64", lambda _: 0xFFFFFFFFFF
    yield "{ .reg .b32 %a; mov.u32 %a, 9; { .reg .b32 %a; mov.u32 %a, 8; } mov.u32 %x, %a; }", "u32", "u32", lambda _: 9
    yield "add.u32 %x, %a, 3U;", "u32", "u32", lambda a: a + 3


def conversions() -> Iterator[Row]:
    integers = [f"{sign}{bits}" for sign in "su" for bits in (8, 16, 32, 64)]
    for to, of in itertools.product(integers, repeat=2):
        held = f"{to[0]}{max(int(to[1:]), 16)}"
        yield f"cvt.{to}.{of} %x, %a;", of, held, lambda a, to=to: wrapped(a, to)
    yield "cvt.sat.u8.s32 %x, %a;", "s32", "u16", lambda a: max(0, min(a, 255))
    yield "cvt.sat.s16.u32 %x, %a;", "u32", "s16", lambda a: min(a, 32767)
    for to, of, way in itertools.product(("f32", "f64", "f16"), ("s32", "u64", "s8"), ("rn", "rz", "rp")):
        yield f"cvt.{way}.{to}.{of} %x, %a;", of, to, lambda a, to=to, way=way: rounded(Fraction(a), SHAPES[to], way)
    for of, (way, f) in itertools.product(("f32", "f64", "f16"), WAYS.items()):
        yield f"cvt.{way}.s32.{of} %x, %a;", of, "s32", lambda a, f=f: clamped(f(Fraction(a)), 32)
        yield (
            f"cvt.{way}.{of}.{of} %x, %a;",
            of,
            of,
            lambda a, f=f, of=of: rounded(Fraction(f(Fraction(a))), SHAPES[of], "rn"),
        )
    for to, of in (("f64", "f32"), ("f32", "f16"), ("f32", "bf16")):
        yield f"cvt.{to}.{of} %x, %a;", of, to, lambda a: a
    for to, of, way in (
        ("f32", "f64", "rn"),
        ("f32", "f64", "rm"),
        ("f16", "f32", "rn"),
        ("f16", "f32", "rz"),
        ("bf16", "f32", "rn"),
    ):
        yield f"cvt.{way}.{to}.{of} %x, %a;", of, to, lambda a, to=to, way=way: rounded(Fraction(a), SHAPES[to], way)
    yield "cvt.sat.f32.f32 %x, %a;", "f32", "f32", lambda a: max(0.0, min(a, 1.0))
    yield "cvt.rna.tf32.f32 %x, %a;", "f32", "f32", lambda a: rounded(Fraction(a), SHAPES["tf32"], "rna")
    for to in ("f16", "bf16"):
        for way in ("rn", "rz"):
            yield (f"cvt.{way}.{to}x2.f32 %x, %a, %b;", "f32 f32", f"{to}x2",
                   lambda a, b, to=to, way=way: tuple(rounded(Fraction(x), SHAPES[to], way) for x in (b, a)))  # fmt: skip
        yield (f"cvt.rn.relu.{to}x2.f32 %x, %a, %b;", "f32 f32", f"{to}x2",
               lambda a, b, to=to: tuple(rounded(max(Fraction(x), Fraction(0)), SHAPES[to], "rn") for x in (b, a)))  # fmt: skip
    for to in ("e4m3", "e5m2"):

        def narrow(x: float, to: str = to) -> float:
            top = SHAPES[to].top
            return max(-top, min(top, rounded(Fraction(x), SHAPES[to], "rn")))

        yield (f"cvt.rn.satfinite.{to}x2.f32 %x, %a, %b;", "f32 f32", f"{to}x2",
               lambda a, b, f=narrow: (f(b), f(a)))  # fmt: skip


def half_even(x: Fraction) -> int:
    return round(x)


WAYS: dict[str, Callable[[Fraction], int]] = {"rni": half_even, "rzi": math.trunc, "rmi": math.floor, "rpi": math.ceil}


def flushed(x: Any, kind: str) -> Any:
    return type(x)(0) if abs(x) < Fraction(2) ** SHAPES[kind].lowest else x


def real(f: Oracle, kind: str, way: str = "rn", *, ftz: bool = False, sat: bool = False) -> Oracle:
    """The exact result rounded once; of packed operands, of each element."""
    if kind.endswith("x2"):
        one = real(f, kind[:-2], way, ftz=ftz, sat=sat)
        return lambda *given: tuple(one(*x) for x in zip(*given))

    def oracle(*given: float) -> Any:
        exact = [Fraction(x) for x in given]
        exact = [flushed(x, kind) for x in exact] if ftz else exact
        result = f(*exact)
        if result is None:
            return None
        result = rounded(result, SHAPES[kind], way)
        if ftz:
            result = flushed(result, kind)
        return max(0.0, min(result, 1.0)) if sat else result

    return oracle


def floats() -> Iterator[Row]:
    sums: dict[str, Oracle] = {"add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b}
    for name, f in sums.items():
        for t in ("f32", "f64", "f16", "bf16", "f16x2", "bf16x2"):
            yield f"{name}.{t} %x, %a, %b;", f"{t} {t}", t, real(f, t)
        for t, way in itertools.product(("f32", "f64"), ("rn", "rz", "rm", "rp")):
            yield f"{name}.{way}.{t} %x, %a, %b;", f"{t} {t}", t, real(f, t, way)
        yield f"{name}.ftz.f32 %x, %a, %b;", "f32 f32", "f32", real(f, "f32", ftz=True)
        yield f"{name}.rz.ftz.sat.f32 %x, %a, %b;", "f32 f32", "f32", real(f, "f32", "rz", ftz=True, sat=True)
    for t in ("f32", "f64", "f16", "bf16", "f16x2"):
        yield f"fma.rn.{t} %x, %a, %b, %c;", f"{t} {t} {t}", t, real(lambda a, b, c: a * b + c, t)
    yield "fma.rm.f32 %x, %a, %b, %c;", "f32 f32 f32", "f32", real(lambda a, b, c: a * b + c, "f32", "rm")
    yield (
        "fma.rn.relu.f16 %x, %a, %b, %c;",
        "f16 f16 f16",
        "f16",
        real(lambda a, b, c: max(a * b + c, Fraction(0)), "f16"),
    )
    yield "mad.rz.f64 %x, %a, %b, %c;", "f64 f64 f64", "f64", real(lambda a, b, c: a * b + c, "f64", "rz")
    for t, way in itertools.product(("f32", "f64"), ("rn", "rp")):
        yield f"div.{way}.{t} %x, %a, %b;", f"{t} {t}", t, real(lambda a, b: a / b, t, way)
        yield f"rcp.{way}.{t} %x, %a;", t, t, real(lambda a: 1 / a, t, way)
    for t in ("f32", "f64", "f16", "bf16x2"):
        yield f"neg.{t} %x, %a;", t, t, real(lambda a: -a, t)
        yield f"abs.{t} %x, %a;", t, t, real(abs, t)
        yield f"min.{t} %x, %a, %b;", f"{t} {t}", t, real(min, t)
        yield f"max.NaN.{t} %x, %a, %b;", f"{t} {t}", t, real(max, t)
    for t in ("f32", "f64"):  # the sign is the first operand's, the rest the second's
        yield f"copysign.{t} %x, %a, %b;", f"{t} {t}", t, lambda a, b: math.copysign(b, a)
        yield f"testp.subnormal.{t} %x, %a;", t, "pred", lambda a, t=t: a != flushed(a, t)
    yield "min.ftz.f32 %x, %a, %b;", "f32 f32", "f32", real(min, "f32", ftz=True)


TABLES = {f.__name__: f for f in (integers, bit_by_bit, predicates, moves, conversions, floats)}


@pytest.mark.parametrize("table", TABLES)
def test_an_instruction_computes_what_the_isa_says(table: str) -> None:
    for statement, operands, results, oracle in TABLES[table]():
        columns, kinds = rows(operands), operands.split()
        got = run_on(kernel_of(statement, operands, results), columns, operands, results)
        for i, patterns in enumerate(zip(*columns)):
            wanted = oracle(*(meaning(p, k) for p, k in zip(patterns, kinds)))
            if wanted is None:
                continue
            for kind, value, column in zip(results.split(), wanted if len(got) > 1 else [wanted], got):
                expected = wrapped(value, kind) if isinstance(value, int) and kind != "pred" else value
                assert meaning(column[i], kind) == expected, f"{statement} of {[hex(p) for p in patterns]}"


def root(x: float) -> float:
    return math.sqrt(abs(x))


APPROXIMATE: dict[str, Oracle] = {
    "ex2.approx.f32": math.exp2, "ex2.approx.ftz.f32": math.exp2, "ex2.approx.f16x2": math.exp2, "sin.approx.f32": math.sin,
    "cos.approx.f32": math.cos, "tanh.approx.f32": math.tanh, "lg2.approx.f32": lambda x: math.log2(abs(x)),
    "rcp.approx.ftz.f32": lambda x: 1 / x, "rcp.approx.ftz.f64": lambda x: 1 / x, "sqrt.approx.f32": root, "sqrt.rn.f32": root,
    "sqrt.rn.f64": root, "rsqrt.approx.f32": lambda x: 1 / root(x), "rsqrt.approx.f64": lambda x: 1 / root(x),
}  # fmt: skip
QUOTIENTS = ("div.approx.f32", "div.full.f32", "div.full.ftz.f32")


@pytest.mark.parametrize("opcode", [*APPROXIMATE, *QUOTIENTS])
def test_an_approximation_is_near(opcode: str) -> None:
    kind = opcode.rpartition(".")[2]
    numbers = [0.5, 1.0, 2.0, 3.5, -0.75, 1.25, 0.1, 6.0]
    size = {"f32": 4, "f64": 8, "f16x2": 2}[kind]
    x = np.array(numbers, f"f{size}").repeat(2 if kind == "f16x2" else 1)
    of = np.abs(x) if any(name in opcode for name in ("lg2", "sqrt")) else x
    held = [int(p) for p in of.view(f"u{bits_of(kind) // 8}")]
    two = opcode in QUOTIENTS
    operands = f"{kind} {kind}" if two else kind
    columns = [held, held[::-1]] if two else [held]
    got = run_on(kernel_of(f"{opcode} %x, %a{', %b' if two else ''};", operands, kind), columns, operands, kind)
    result = np.array(got[0], f"u{bits_of(kind) // 8}").view(f"f{size}").astype("f8")
    wide = of.astype("f8")
    wanted = wide / wide[::-1] if two else np.array([APPROXIMATE[opcode](v) for v in wide])
    assert np.allclose(result, wanted, rtol={4: 1e-6, 8: 1e-6, 2: 2e-3}[size], atol=0)
