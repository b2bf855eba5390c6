"""How the threads of a warp hold a matrix in registers (PTX ISA, Matrix Fragments for mma.mXnYkZ; Register Fragments and Shared
Memory Matrix Layouts of wgmma).

All these layouts have one form. Lane 4 g + t holds elements of row g of a block of 8 rows: for a multiplicand, the elements of
one register at position t of 4, so that a block is 4 registers wide; for an accumulator, columns 2 t and 2 t + 1 of 8. The
registers of a lane enumerate the blocks, first 8 rows down, then along the row. B is stored as A's transpose would be. The four
warps of a warpgroup hold 16 rows each.

Matrices here are [warps, rows, columns], registers a sequence of [warps, 32] in the instruction's order.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..values.registers import Lanes, dtype_of

__all__ = ["accumulators", "left", "of_accumulators", "right"]

_PACKED_NIBBLES = {"u4": "u1", "s4": "i1"}


def left(registers: Sequence[Lanes], rows: int, type: str) -> Lanes:
    """A, of 8 or 16 rows per warp, as the bit patterns of its elements; the number of registers gives K."""
    x = _elements(registers, type)
    warps, count, _, each = x.shape
    down = rows // 8
    blocks = x.reshape(warps, count // down, down, 8, 4, each).transpose(0, 2, 3, 1, 4, 5)
    return blocks.reshape(warps, rows, count // down * 4 * each)


def right(registers: Sequence[Lanes], type: str) -> Lanes:
    """The transpose of B, which has 8 columns: [warps, 8, K]."""
    return left(registers, 8, type)


def accumulators(registers: Sequence[Lanes], rows: int, type: str) -> Lanes:
    """C or D, of 8 or 16 rows per warp; f16 as bit patterns, two per register."""
    x = _elements(registers, type)
    warps, down = x.shape[0], rows // 8
    if type != "f16":  # one element per register
        x = x.reshape(warps, -1, 2, 32).swapaxes(2, 3)
    blocks = x.reshape(warps, -1, down, 8, 4, 2).transpose(0, 2, 3, 1, 4, 5)
    return blocks.reshape(warps, rows, -1)


def of_accumulators(matrix: Lanes, type: str) -> list[Lanes]:
    """The registers that `accumulators` reads."""
    warps, rows, columns = matrix.shape
    blocks = matrix.reshape(warps, rows // 8, 8, columns // 8, 4, 2).transpose(3, 1, 0, 2, 4, 5)
    if type == "f16":
        pairs = np.ascontiguousarray(blocks).view("u4").reshape(-1, warps, 32)
    else:
        pairs = blocks.reshape(-1, warps, 32, 2).transpose(0, 3, 1, 2).reshape(-1, warps, 32)
    return list(pairs)


def _elements(registers: Sequence[Lanes], type: str) -> Lanes:
    """[warps, registers, 32, elements of a register], the lowest bits first."""
    x = np.ascontiguousarray(np.stack(registers, 1))[..., None]
    if type in _PACKED_NIBBLES:
        bytes_ = x.view("u1")
        nibbles = np.stack([bytes_ << np.uint8(4), bytes_ & np.uint8(0xF0)], -1).view(_PACKED_NIBBLES[type]) >> 4
        return nibbles.reshape(*bytes_.shape[:-1], 8)
    return x.view(dtype_of(type))
