"""The matrix opcodes of a warp (PTX ISA, Warp Level Matrix Multiply-Accumulate Instructions: mma, ldmatrix, stmatrix).
wgmma is in `warpgroup`.

A register of a warp's lanes is a row [warps, 32]. Multiplicands of mma are uint32 patterns, or float64 for f64; accumulators are
float32 (f32), float64 (f64), int32 (s32), or uint32 patterns of two values (f16).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..values.registers import Lanes, unsupported
from .fragments import accumulators, left, of_accumulators, right
from .products import multiply

__all__ = ["ldmatrix", "mma", "stmatrix"]

_BYTES = ("m8n8k16", "m16n8k16", "m16n8k32")
_NIBBLES = ("m8n8k32", "m16n8k32", "m16n8k64")
_SHAPES = {
    "f16": ("m16n8k8", "m16n8k16"),
    "bf16": ("m16n8k8", "m16n8k16"),
    "tf32": ("m16n8k4", "m16n8k8"),
    "e4m3": ("m16n8k16", "m16n8k32"),
    "e5m2": ("m16n8k16", "m16n8k32"),
    "f64": ("m8n8k4", "m16n8k4", "m16n8k8", "m16n8k16"),
    "s8": _BYTES,
    "u8": _BYTES,
    "s4": _NIBBLES,
    "u4": _NIBBLES,
}


def mma(
    shape: str,
    types: tuple[str, str, str, str],
    a: Sequence[Lanes],
    b: Sequence[Lanes],
    c: Sequence[Lanes],
    satfinite: bool = False,
) -> list[Lanes]:
    """mma.sync.aligned.{shape}.row.col.{types}: the registers of D from the registers of A, B and C; `types` are those of D, A,
    B and C, in the instruction's order. `products` says how results are rounded."""
    to, of_a, of_b, of_c = types
    if of_a not in _SHAPES:
        raise unsupported("multiplicand of mma", of_a, _SHAPES)
    if shape not in _SHAPES[of_a]:
        raise unsupported(f"shape of mma of {of_a}", shape, _SHAPES[of_a])
    if of_c != to:
        raise unsupported(f"accumulator of mma into {to}", of_c, (to,))
    rows = int(shape[1 : shape.index("n")])
    product = multiply(left(a, rows, of_a), right(b, of_b), accumulators(c, rows, to), (to, of_a, of_b), satfinite)
    return of_accumulators(product, to)


def ldmatrix(rows: Lanes, transposed: bool) -> list[Lanes]:
    """ldmatrix.m8n8.x{n}.b16 of n matrices' rows of 16 bytes, [warps, n, 8, elements of 16 bytes]: one uint32 row per
    matrix."""
    matrices = np.ascontiguousarray(rows).view("u2")
    if transposed:
        matrices = np.ascontiguousarray(matrices.swapaxes(2, 3))
    words = matrices.view("u4").reshape(*matrices.shape[:2], 32)
    return list(words.swapaxes(0, 1))


def stmatrix(registers: Sequence[Lanes], transposed: bool) -> Lanes:
    """stmatrix.m8n8.x{n}.b16 of n uint32 rows: the rows of n matrices, [warps, n, 8, 4 words]."""
    words = np.ascontiguousarray(np.stack(registers, 1)).reshape(len(registers[0]), len(registers), 8, 4)
    if not transposed:
        return words
    return np.ascontiguousarray(words.view("u2").swapaxes(2, 3)).view("u4")
