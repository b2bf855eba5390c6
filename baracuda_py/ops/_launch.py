"""What candidates share when they lower: index types, structs passed by value, grids. Mirrors kernels/include/core/index.cuh."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np

from ..runtime.overlap import supports_pdl
from ..runtime.steps import Packed
from ..tensor.axes import alignment_of, merge_axes
from ..types import DeviceSpec

__all__ = [
    "THREADS",
    "append_shape",
    "divisor",
    "grid_of",
    "index_scalar",
    "index_type",
    "overlapped_overhead",
    "pack_dims",
    "words_of",
]

THREADS = 256
WORD = 16  # bytes of the widest access
_INT32_LIMIT = 1 << 31


def index_type(count: int) -> str:
    """The C++ index type for `count` items."""
    return "u32" if count < _INT32_LIMIT - THREADS * 64 else "u64"


def index_scalar(value: int, index: str) -> np.generic:
    return np.uint32(value) if index == "u32" else np.uint64(value)


def divisor(value: int, index: str) -> Packed:
    """Divisor32 or Divisor64."""
    return Packed(_divisor(value, index), 4 if index == "u32" else 8)


def _divisor(value: int, index: str) -> bytes:
    if index == "u64":
        return struct.pack("<QQ", value, 0)
    if value <= 1:
        return struct.pack("<IIII", 1, 0, 0, 0)
    log2 = (value - 1).bit_length()
    return struct.pack("<IIII", value, -(-(1 << (31 + log2)) // value), log2 - 1, 0)


def pack_dims(extents: Sequence[int], strides: Sequence[Sequence[int]], index: str) -> Packed:
    """Dims<index, len(extents), len(strides)>: strides in bytes (or whatever unit the kernel steps by)."""
    data = b"".join(_divisor(e, index) for e in extents or (1,))
    for one in strides:
        data += struct.pack(f"<{max(len(one), 1)}q", *(one or (0,)))
    return Packed(data, 8)


def grid_of(items: int, per_cta: int) -> tuple[int, int, int]:
    return (max(1, -(-items // per_cta)), 1, 1)


def words_of(
    shape: Sequence[int],
    strides: Sequence[Sequence[int]],
    size: int,
    align: int,
    steps: Sequence[int],
    beside: Sequence[Sequence[int]] = (),
) -> tuple[tuple[int, ...], tuple[tuple[int, ...], ...], int]:
    """Elements of `size` bytes, walked by operands with `strides` in bytes, as words: extents, strides and bytes a word.

    A word is the widest power of two up to 16 bytes that divides a contiguous run of elements, or one element, every stride,
    the further `steps`, and `align`, which the addresses are multiples of: less than an element where they are between two.
    Operands `beside` these have one value for all bytes of an element; their strides come last.
    """
    count = len(strides)
    extents, merged = merge_axes((*shape, size), [*((*one, 1) for one in strides), *((*one, 0) for one in beside)])
    if not extents or any(operand[-1] != 1 for operand in merged[:count]):  # bytes that are not contiguous
        return extents, merged, 1
    run = extents[-1]
    outer = (*steps, *(step for operand in merged[:count] for step in operand[:-1]))
    word = min(align, WORD, *(alignment_of(abs(v)) for v in (run, *outer)))
    if run == word == size:  # one element, one word
        return extents[:-1], tuple(operand[:-1] for operand in merged), word
    return (*extents[:-1], run // word), tuple((*operand[:-1], word * operand[-1]) for operand in merged), word


def overlapped_overhead(device: DeviceSpec) -> float:
    """Seconds that an overlapped launch costs a CUDA graph: it sets itself up while the kernel before it ends."""
    return device.overhead / 2 if supports_pdl(device.arch) else device.overhead


def append_shape(count: int, device: DeviceSpec) -> tuple[int, int]:
    """Threads a CTA and words a thread for kernels/shape_layout/append.cu: small CTAs on many SMs while latency is all."""
    return (128, 1) if count < device.sms * 128 * 8 else (256, 1)
