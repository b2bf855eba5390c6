"""One PTX instruction on lanes of the emulator's engine: its operands are patterns, and its results come back as patterns."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np

from .exact_floats import SHAPES, rounded, value_of
from .small_kernels import SmallKernel, written_in_ptx

__all__ = ["bits_of", "kernel_of", "meaning", "rows", "run_on", "signed"]

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(7)

# ---- what an operand of a type is ------------------------------------------------------------------------------------

BITS = {"f16": 16, "bf16": 16, "f16x2": 32, "bf16x2": 32, "pred": 1, "tf32": 32, "e4m3x2": 16, "e5m2x2": 16}


def bits_of(kind: str) -> int:
    return BITS.get(kind) or int(kind[1:])


def signed(pattern: int, bits: int) -> int:
    return pattern - (1 << bits) if pattern >> bits - 1 else pattern


def meaning(pattern: int, kind: str) -> Any:
    """A number: an int, or a float for a floating-point type; of a packed one both, the low one first."""
    if kind.endswith("x2"):
        part = bits_of(kind) // 2
        return tuple(meaning(pattern >> part * i & (1 << part) - 1, kind[:-2]) for i in (0, 1))
    if kind in SHAPES:
        return value_of(pattern, SHAPES[kind])
    return signed(pattern, bits_of(kind)) if kind[0] == "s" else pattern


def samples(kind: str) -> list[int]:
    """Patterns at the edges, and some others. No NaN nor infinity: what becomes of those is the numerics' own matter."""
    bits = bits_of(kind)
    if kind.endswith("x2"):
        low = samples(kind[:-2])
        return [x | y << bits // 2 for x, y in zip(low, reversed(low))]
    if kind in SHAPES:
        shape = SHAPES[kind]
        numbers = [1.0, -1.5, 0.375, -3.0, 2.0, shape.top, 2.0**shape.lowest, 0.1, -7.7, 1e4, 3e-5]
        found = [pattern(rounded(Fraction(x), shape, "rn"), kind) for x in numbers]
        return [*found, 1 << bits - 1 | 3, 5]  # subnormals
    if kind == "pred":
        return [0, 1, 1, 0]
    edges = [0, 1, 2, 3, 7, 31, 33, (1 << bits - 1) - 1, 1 << bits - 1, (1 << bits) - 1, (1 << bits) - 5]
    return edges + [int(x) for x in RNG.integers(0, 1 << min(bits, 63), 6, np.uint64)]


def pattern(x: float, kind: str) -> int:
    """The bits of a number that a format holds."""
    shape = SHAPES[kind]
    sign = int(math.copysign(1, x) < 0) << shape.exponent + shape.fraction
    if x == 0:
        return sign
    m, e = math.frexp(abs(x))
    if e - 1 < shape.lowest:
        return sign | int(math.ldexp(abs(x), shape.fraction - shape.lowest))
    return sign | (e - 1 + shape.bias) << shape.fraction | int(math.ldexp(2 * m - 1, shape.fraction))


# ---- an instruction on lanes -----------------------------------------------------------------------------------------


def register(kind: str) -> str:
    return ".pred" if kind == "pred" else f".b{max(bits_of(kind), 16)}"


def kernel_of(statement: str, operands: str, results: str) -> SmallKernel:
    """The statement on %a, %b, ... of one type each, giving %x, %y, ...; a lane an element."""
    given, got = operands.split(), results.split()
    lines, moved = [".reg .b32 %i; .reg .b64 %at, %by; .reg .pred %q; .reg .b32 %t;", "mov.u32 %i, %tid.x;"], []
    for n, (name, kind) in enumerate([*zip("abcd", given), *zip("xy", got)]):
        lines.append(f".reg {register(kind)} %{name};")
        nbytes = 4 if kind == "pred" else bits_of(kind) // 8
        place = f"ld.param.u64 %at, [p{n}]; mul.wide.u32 %by, %i, {nbytes}; add.s64 %at, %at, %by;"
        if name in "xy":
            value = f"selp.u32 %t, 1, 0, %{name}; st.global.u32 [%at], %t;" if kind == "pred" else ""
            moved.append(place + (value or f"st.global.b{nbytes * 8} [%at], %{name};"))
        elif kind == "pred":
            lines.append(f"{place} ld.global.u32 %t, [%at]; setp.ne.u32 %{name}, %t, 0;")
        else:
            lines.append(f"{place} ld.global.{kind if kind[0] in 'su' else f'b{nbytes * 8}'} %{name}, [%at];")
    parameters = ", ".join(f".param .u64 p{n}" for n in range(len(given) + len(got)))
    body = "\n".join([*lines, statement, *moved, "ret;"])
    return written_in_ptx(f".visible .entry f({parameters})\n{{\n{body}\n}}\n")


def run_on(kernel: SmallKernel, columns: list[list[int]], operands: str, results: str) -> list[list[int]]:
    """The patterns that the results have for each row of the operands' patterns."""

    def array(values: list[int], kind: str) -> Array:
        return np.array(values, f"u{4 if kind == 'pred' else max(bits_of(kind) // 8, 1)}")

    count = len(columns[0])
    given = {f"p{n}": array(x, k) for n, (x, k) in enumerate(zip(columns, operands.split()))}
    out = {f"out{n}": array([0] * count, kind) for n, kind in enumerate(results.split())}
    kernel.run(1, count, **given, **out)
    return [[int(x) for x in each] for each in out.values()]


def rows(operands: str, most: int = 300) -> list[list[int]]:
    """Columns of patterns: every combination of samples, or as many as that."""
    combined = list(itertools.product(*map(samples, operands.split())))
    step = max(len(combined) // most, 1)
    return [list(column) for column in zip(*combined[::step])]
