"""wgmma: operand tiles in shared memory and products of a warpgroup (PTX ISA, Asynchronous Warpgroup Level Matrix Instructions:
Shared Memory Matrix Layout, Strides, Matrix Descriptor Format, wgmma.mma_async).

A register of a warpgroup's lanes is a row [warpgroups, 128]; a warpgroup's operands are [warpgroups, rows, K] bit patterns, with
B transposed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ...types import UnsupportedError
from ..values.registers import BITS, Lanes, dtype_of, unsupported
from .fragments import accumulators, left, of_accumulators
from .products import multiply

__all__ = ["Descriptor", "accumulate", "descriptor", "register_tile", "tile_addresses"]

_SWIZZLES = np.array([0, 128, 64, 32])  # bytes of a row, by the upper two bits of a descriptor
_TYPES = ("f16", "bf16", "tf32", "e4m3", "e5m2", "s8", "u8")


class Descriptor(NamedTuple):
    """The fields of matrix descriptors, addresses and offsets in bytes, as int64."""

    start: Lanes
    leading: Lanes  # leading dimension byte offset
    stride: Lanes  # stride dimension byte offset
    base_offset: Lanes
    swizzle: Lanes  # bytes of a swizzled row: 128, 64, 32, or 0 for none


def descriptor(desc: Lanes) -> Descriptor:
    """Decodes 64-bit matrix descriptors."""
    bits = np.asarray(desc).astype("u8")

    def field(first: int, width: int) -> Lanes:
        return (bits >> np.uint64(first) & np.uint64((1 << width) - 1)).astype("i8")

    return Descriptor(
        start=field(0, 14) << 4,
        leading=field(16, 14) << 4,
        stride=field(32, 14) << 4,
        base_offset=field(49, 3),
        swizzle=_SWIZZLES[field(62, 2)],
    )


def tile_addresses(desc: Lanes, rows: int, k_elements: int, itemsize: int, transposed: bool) -> Lanes:
    """The shared-memory addresses of the elements of an operand's tile, [warpgroups, rows, K], from descriptors [warpgroups],
    for `rows` of M or N. `transposed` tiles are MN-major (imm-trans), which only 16-bit types may be.

    A tile consists of pieces of 8 rows; a row has 16 bytes, or the swizzle's bytes in swizzled tiles. K-major: a row is one index
    of M or N and runs along k; the stride leads to the next 8 of M or N, and without a swizzle the leading offset leads to the
    next 16 bytes of k. MN-major: a row is one k and runs along M or N; with a swizzle the stride leads to the next 8 of k and the
    leading offset to the next piece along M or N, without a swizzle it is the other way round. A swizzle permutes the 16-byte
    units of a row: it flips the bits of an address from bit 4 on that are set from bit 7 on.
    """
    fields = descriptor(np.atleast_1d(desc))
    if fields.base_offset.any():
        raise UnsupportedError(
            f"the emulator knows no matrix base offset {int(fields.base_offset.max())} in a wgmma descriptor",
            "begin the tile where its swizzle's pattern does, at a multiple of 8 of its rows",
        )
    if transposed and itemsize != 2:
        raise unsupported("MN-major wgmma operand of", f"{itemsize}-byte elements", ("2-byte elements",))
    start, leading, stride, swizzle = (
        x[:, None, None] for x in (fields.start, fields.leading, fields.stride, fields.swizzle)
    )
    mn, k = np.arange(rows)[:, None], np.arange(k_elements)
    along, across = (mn, k) if transposed else (k, mn)  # of a row of the tile
    width = np.where(swizzle, swizzle, 16)
    row, column = along * itemsize // width, along * itemsize % width
    swapped = transposed & (swizzle == 0)
    next_eight, next_piece = np.where(swapped, leading, stride), np.where(swapped, stride, leading)
    address = start + across % 8 * width + across // 8 * next_eight + row * next_piece + column
    units = np.where(swizzle, swizzle // 16 - 1, 0)
    return address ^ ((address >> 7 & units) << 4)


def register_tile(registers: Sequence[Lanes], type: str) -> Lanes:
    """A of a warpgroup, from the four uint32 registers of a lane that hold it."""
    warps = [x.reshape(-1, 32) for x in registers]
    tile = left(warps, 16, type)
    return tile.reshape(-1, 64, tile.shape[-1])


def accumulate(
    a: Lanes,
    b: Lanes,
    d_rows: Sequence[Lanes],
    scale_d: Lanes,
    scale_a: int,
    scale_b: int,
    types: tuple[str, str, str],
) -> list[Lanes]:
    """wgmma.mma_async: the new rows of D, for the patterns of A [warpgroups, 64, K] and B [warpgroups, N, K], and the types of
    D, A and B. Where `scale_d` [warpgroups] is false the old D counts as 0, also if it is NaN; `scale_a` and `scale_b` are 1
    or -1. Rows are float32 (f32), int32 (s32), or uint32 patterns of two (f16). `products` says how results are rounded."""
    to, of_a, of_b = types
    for type in (of_a, of_b):
        if type not in _TYPES:
            raise unsupported("multiplicand of wgmma", type, _TYPES)
    groups = len(a)
    a, b = a.view(dtype_of(of_a)), b.view(dtype_of(of_b))
    warps = [x.reshape(-1, 32) for x in d_rows]
    old = accumulators(warps, 16, to).reshape(groups, 64, -1)
    old = np.where(np.reshape(scale_d, (-1, 1, 1)), old, old.dtype.type(0))
    if scale_a * scale_b < 0:
        a = a ^ dtype_of(of_a).type(1 << BITS[of_a] - 1)
    product = multiply(a, b, old, types)
    new = of_accumulators(product.reshape(groups * 4, 16, -1), to)
    return [x.reshape(groups, 128) for x in new]
