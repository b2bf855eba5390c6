"""Floats as blocks of GGUF formats, all in f32, so that a kernel gives the same bytes.

Q4_0 to Q8_0 are as the `gguf` package has them, but for what is not finite: it has no code, and counts as 0. Q4_K and Q6_K, which
the package does not make, round each sub-block by its own extremes: Q4_K from the least (0 at most) to the largest in 15 steps,
Q6_K from the largest magnitude, which becomes -32; scales of sub-blocks are rounded to 63 and 128 parts of the largest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from .....types import ElementKind, PrecisionGuarantee
from .....types.gguf import BLOCKS, Block, Plane

__all__ = ["QUANTIZED", "guarantee", "quantize", "quantized"]

Array: TypeAlias = np.ndarray[Any, Any]
F32 = np.float32


def _inverse(d: Array) -> Array:
    """1 / d, 0 for 0."""
    with np.errstate(all="ignore"):
        return np.asarray(np.where(d == 0, F32(0), F32(1) / d), F32)


def _extreme(x: Array) -> Array:
    """The value of the largest magnitude, the first of those, [..., 1]."""
    at = np.abs(x).argmax(axis=-1, keepdims=True)
    found: Array = np.take_along_axis(x, at, axis=-1)
    return found


def _held(x: Array, low: int, high: int) -> Array:
    held: Array = np.clip(np.nan_to_num(x, nan=0.0), low, high)
    return held.astype(np.int32)


def _put(blocks: Array, planes: tuple[Plane, ...], codes: Array) -> None:
    """Codes into their planes."""
    codes = codes.astype(np.uint8)
    shift = 0
    for plane in planes:
        for code, (at, low) in enumerate(plane.places(codes.shape[-1])):
            blocks[..., at] |= (codes[..., code] >> shift & (1 << plane.bits) - 1) << low
        shift += plane.bits


def _put_f16(blocks: Array, at: int, x: Array) -> Array:
    """Stores [..., 1] as f16, and returns what was stored as f32."""
    with np.errstate(all="ignore"):
        half = x.astype(np.float16)
    blocks[..., at : at + 2] = np.ascontiguousarray(half).view(np.uint8)
    return np.asarray(half.astype(F32))


def _symmetric(block: Block, x: Array, blocks: Array) -> None:
    """Q4_0 and Q5_0: the extreme becomes -8 or -16. The sum is exact before it is cut off: float64 holds it."""
    d = np.asarray(_extreme(x) / F32(-block.less), F32)
    cut = np.trunc(x.astype(np.float64) * _inverse(d).astype(np.float64) + (block.less + 0.5))
    _put_f16(blocks, 0, d)
    _put(blocks, block.planes, _held(cut, 0, 2 * block.less - 1))


def _affine(block: Block, x: Array, blocks: Array) -> None:
    """Q4_1 and Q5_1: from the least to the largest."""
    most = 2 ** sum(plane.bits for plane in block.planes) - 1
    low = x.min(axis=-1, keepdims=True) + F32(0)
    d = np.asarray(np.abs(x.max(axis=-1, keepdims=True) - low) / F32(most), F32)
    cut = np.trunc((x - low) * _inverse(d) + F32(0.5))
    _put_f16(blocks, 0, d)
    _put_f16(blocks, 2, low)
    _put(blocks, block.planes, _held(cut, 0, most))


def _bytes(block: Block, x: Array, blocks: Array) -> None:
    """Q8_0 and Q8_1: halves are rounded away from 0. Q8_1 also holds d times the sum of its codes."""
    d = np.asarray(np.abs(x).max(axis=-1, keepdims=True) / F32(127), F32)
    scaled = x * _inverse(d)
    size = np.abs(scaled)
    whole = np.floor(size)
    codes = _held(np.copysign(whole + (size - whole >= 0.5), scaled), -127, 127)
    _put_f16(blocks, 0, d)
    if block.name == "Q8_1":
        _put_f16(blocks, 2, np.asarray(d * codes.sum(axis=-1, keepdims=True).astype(F32), F32))
    _put(blocks, block.planes, codes.astype(np.int8).view(np.uint8))


def _q4_k(block: Block, x: Array, blocks: Array) -> None:
    subs = x.reshape(*x.shape[:-1], 8, 32)
    low = np.minimum(subs.min(axis=-1), F32(0))
    wanted = np.asarray(np.abs(subs.max(axis=-1) - low) / F32(15), F32), F32(0) - low
    made, integers = [], []
    for at, each in zip((0, 2), wanted):
        most = each.max(axis=-1, keepdims=True)
        integer = _held(np.rint(each * (F32(63) * _inverse(most))), 0, 63)
        d = _put_f16(blocks, at, np.asarray(most / F32(63), F32))
        made.append((d * integer.astype(F32))[..., None])
        integers.append(integer)
    first, last = (np.concatenate([n[..., p] for n in integers], axis=-1) for p in (slice(4), slice(4, 8)))
    blocks[..., 4:12] = first | last >> 4 << 6
    blocks[..., 12:16] = last[..., :4] & 15 | (last[..., 4:] & 15) << 4
    scale, least = made
    codes = np.where(scale > 0, np.rint((subs + least) / np.where(scale > 0, scale, F32(1))), 0)
    _put(blocks, block.planes, _held(codes, 0, 15).reshape(x.shape))


def _q6_k(block: Block, x: Array, blocks: Array) -> None:
    subs = x.reshape(*x.shape[:-1], 16, 16)
    wanted = np.asarray(_extreme(subs)[..., 0] / F32(-32), F32)
    extreme = _extreme(wanted)
    integer = _held(np.rint(wanted * (F32(-128) * _inverse(extreme))), -128, 127)
    d = _put_f16(blocks, 208, np.asarray(extreme / F32(-128), F32))
    blocks[..., 192:208] = integer.astype(np.int8).view(np.uint8)
    scale = (d * integer.astype(F32))[..., None]
    codes = np.where(scale != 0, np.rint(subs / np.where(scale != 0, scale, F32(1))), 0)
    _put(blocks, block.planes, (_held(codes, -32, 31) + 32).reshape(x.shape))


_MAKERS: dict[str, Callable[[Block, Array, Array], None]] = {
    "Q4_0": _symmetric, "Q4_1": _affine, "Q5_0": _symmetric, "Q5_1": _affine, "Q8_0": _bytes, "Q8_1": _bytes, "Q4_K": _q4_k,
    "Q6_K": _q6_k,
}  # fmt: skip
QUANTIZED = tuple(kind for kind, block in BLOCKS.items() if block.name in _MAKERS)


def quantized(block: Block, x: Array) -> Array:
    """Rows of f32, [..., K], as blocks, u8 [..., bytes]; zeros stand behind a row's end."""
    columns, count = x.shape[-1], -(-x.shape[-1] // block.weights)
    rows = np.zeros((*x.shape[:-1], count * block.weights), F32)
    rows[..., :columns] = np.where(np.isfinite(x), x, F32(0))
    blocks = np.zeros((*x.shape[:-1], count, block.nbytes), np.uint8)
    with np.errstate(all="ignore"):
        if blocks.size:
            _MAKERS[block.name](block, rows.reshape(*blocks.shape[:-1], block.weights), blocks)
    return blocks.reshape(*x.shape[:-1], count * block.nbytes)


def quantize(desc: Any, x: Array) -> Array:
    """What `quantize_gguf` writes."""
    return quantized(desc.format.block, x.astype(F32))


def guarantee(desc: Any) -> PrecisionGuarantee:  # noqa: ARG001
    return PrecisionGuarantee.exact(ElementKind.U8)
