"""Blocks of GGUF formats: decoded by the table of types/gguf.py, dequantised and multiplied; and made from floats.

Dequantized weights are f32, rounded as the `gguf` package rounds: d times a sub-block's integer, that times the code, then the
minimum taken off, each to f32.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from .....types import Activation, ElementKind, MathPrecision, PrecisionGuarantee, Ulp
from .....types.gguf import BOOKS, Block, Float, GgufFormat, Plane, SixBits
from ....gemm import oracle as gemm
from .quantize import quantized

__all__ = ["MEASURES", "Parts", "dequantize", "dequantized", "guarantee", "matmul", "parts_of", "product_guarantee"]

Array: TypeAlias = np.ndarray[Any, Any]
F32 = np.float32


class Parts(NamedTuple):
    """A row's weights as ``scale * value - least``, each of the row's length; `value` is the code less what is taken off, and
    `size` the most that the code and what is taken off come to."""

    scale: Array
    value: Array
    least: Array
    size: Array


def _number(blocks: Array, of: Float) -> Array:
    """A float of each block, f32, [..., 1]."""
    if of.kind == "e8m0":
        e = blocks[..., of.at : of.at + 1].astype(np.uint32)
        return np.where(e < 2, np.uint32(0x00200000) << e, (e - 1) << 23).astype(np.uint32).view(F32)
    kind: Any = np.float16 if of.kind == "f16" else np.float32
    found = np.ascontiguousarray(blocks[..., of.at : of.at + np.dtype(kind).itemsize]).view(kind)
    return np.asarray(found.astype(F32))


def _fields(blocks: Array, planes: tuple[Plane, ...], count: int) -> Array:
    """The planes' fields put together, [..., count]."""
    found, shift = np.zeros((*blocks.shape[:-1], count), np.int32), 0
    for plane in planes:
        at, low = np.array(list(plane.places(count))).T
        found |= (blocks[..., at].astype(np.int32) >> low & (1 << plane.bits) - 1) << shift
        shift += plane.bits
    return found


def _integers(blocks: Array, block: Block) -> tuple[Array, Array | None]:
    """Each sub-block's integer, and that of its minimum, [..., subs]."""
    if isinstance(block.scales, SixBits):
        s = blocks[..., block.scales.at : block.scales.at + 12].astype(np.int32)
        low, high, last = s[..., :8] & 63, s[..., :8] >> 6 << 4, s[..., 8:]
        ends = np.concatenate([last & 15, last >> 4], axis=-1) | high
        return tuple(np.concatenate([low[..., p], ends[..., p]], axis=-1) for p in (slice(4), slice(4, 8)))  # type: ignore[return-value]
    both = _fields(blocks, block.scales, block.subs * (1 + block.has_minima)) - block.scales_less
    if block.scales_signed:
        both = both.astype(np.uint8).view(np.int8).astype(np.int32)
    return both[..., : block.subs], both[..., block.subs :] if block.has_minima else None


def parts_of(block: Block, rows: Array) -> Parts:
    """The parts of rows of blocks, u8 [..., bytes], each [..., weights]."""
    blocks = np.ascontiguousarray(rows).reshape(*rows.shape[:-1], rows.shape[-1] // block.nbytes, block.nbytes)
    code = _fields(blocks, block.planes, block.weights)
    value = code - block.less
    if block.signed:
        value = code.astype(np.uint8).view(np.int8).astype(np.int32)
    if block.book:
        value = np.array(BOOKS[block.book])[code]
    scale, least = _number(blocks, block.d), np.zeros((*blocks.shape[:-1], 1), F32)
    with np.errstate(all="ignore"):
        if block.scales:
            integer, minimum = _integers(blocks, block)
            scale = scale * integer.astype(F32)
            if block.least is not None and minimum is not None:
                least = _number(blocks, block.least) * minimum.astype(F32)
        elif block.least is not None:
            least = -_number(blocks, block.least)
    size = np.abs(value) if block.signed or block.book else code + block.less
    each = [np.repeat(x, block.weights // x.shape[-1], axis=-1) for x in (scale, value, least, size)]
    columns = blocks.shape[-2] * block.weights
    return Parts(*(x.reshape(*rows.shape[:-1], columns) for x in each))


def dequantized(block: Block, rows: Array) -> Array:
    """The weights of rows of blocks, u8 [..., bytes], as f32 [..., weights]."""
    x = parts_of(block, rows)
    with np.errstate(all="ignore"):
        scaled = x.scale * x.value.astype(F32)
        return np.asarray(scaled if block.least is None else scaled - x.least, F32)


# ---- dequantize_gguf ------------------------------------------------------------------------------------------------------


def dequantize(desc: Any, blocks: Array) -> Array:
    """The weights in `desc.element`, as float64."""
    weights = dequantized(desc.format.block, blocks.reshape(-1, desc.format.block.nbytes))
    with np.errstate(all="ignore"):
        rounded = weights.astype(desc.layout("out").element.dtype)
    return np.asarray(rounded.reshape(desc.out_shape), np.float64)


def guarantee(desc: Any) -> PrecisionGuarantee:  # noqa: ARG001
    """Every number is the package's own; of a NaN the bits are open."""
    return PrecisionGuarantee.fixed_order(MathPrecision.EXACT, ElementKind.F32, Ulp(0.0))


# ---- matmul_gguf ----------------------------------------------------------------------------------------------------------


def _rows(x: Array) -> Array:
    return x.reshape(math.prod(x.shape[:-1]), x.shape[-1])


def _shaped(desc: Any, product: Array) -> Array:
    return product.reshape(desc.out_shape)


def _wide(x: Array) -> Array:
    return np.asarray(x, np.float64)


def matmul(desc: Any, x: Array, w: Array) -> Array:
    """x times the transposed weights, in float64."""
    with np.errstate(all="ignore"):
        return _shaped(desc, _wide(_rows(x)) @ _weights(desc, w).T)


def _weights(desc: Any, w: Array) -> Array:
    """The weights, [N, K] in float64, where nothing is rounded but scales."""
    parts = parts_of(desc.format.block, w)
    with np.errstate(all="ignore"):
        return np.asarray(_wide(parts.scale) * parts.value - _wide(parts.least))


def product_guarantee(desc: Any) -> PrecisionGuarantee:  # noqa: ARG001
    """What NumPy promises of `matmul`: float64 throughout, rounded once."""
    return PrecisionGuarantee.fixed_order(MathPrecision.F64, ElementKind.F64, Ulp(1.0))


def _sizes(desc: Any, w: Array) -> Array:
    """|scale| (code and what is taken off) + |least|: what is multiplied with |x| on the way, [N, K]. Unsigned codes are
    multiplied with bf16 as 128 more."""
    block = desc.format.block
    parts = parts_of(block, w)
    more = 256 if desc.x_element is ElementKind.BF16 and not (desc.rounds or block.signed or block.book) else 0
    sizes: Array = np.abs(_wide(parts.scale)) * (parts.size + more) + np.abs(_wide(parts.least))
    return sizes


def _finite(x: Array) -> Array:
    return np.where(np.isfinite(x), x, 0)


def _abs_products(desc: Any, x: Array, w: Array) -> Array:
    """sum |x| (|scale| (code + less) + |least|); x or, where it is larger, what it is rounded to."""
    rows = np.abs(_wide(_rows(x)))
    with np.errstate(all="ignore"):
        rows = np.maximum(rows, np.abs(staged(x))) if desc.rounds else rows
        return _shaped(desc, _finite(rows @ _sizes(desc, w).T))


def staged(x: Array) -> Array:
    """x as Q8_1 has it, [M, K] in float64: rounded to d * q, 32 neighbours sharing d."""
    rows, block = _rows(x), GgufFormat.Q8_1.block
    parts = parts_of(block, quantized(block, rows.astype(F32)))
    with np.errstate(all="ignore"):
        return _wide(parts.scale) * parts.value


def _rounded(desc: Any, x: Array, w: Array) -> Array:
    """|sum (x - x as Q8_1 has it) weight|: what rounding activations costs, neither more nor less."""
    with np.errstate(all="ignore"):
        return _shaped(desc, _finite(np.abs((_wide(_rows(x)) - staged(x)) @ _weights(desc, w).T)))


def _underflow(desc: Any, x: Array, w: Array) -> Array:
    """2**-126 sum (1 + |scale|)(1 + (code + less) |x|): in units of f32's roundoff, half the smallest number, times all that a
    product that is rounded there may still be multiplied with."""
    parts = parts_of(desc.format.block, w)
    with np.errstate(all="ignore"):
        factor, rows = 1 + np.abs(_wide(parts.scale)), np.abs(_wide(_rows(x)))
        found = factor.sum(axis=-1) + rows @ (factor * parts.size).T
        return _shaped(desc, _finite(found) * 2.0**-126)


def _beyond(desc: Any, x: Array, w: Array) -> Array:
    """Where an operand is not finite, or sums may leave f32 on the way."""
    with np.errstate(all="ignore"):
        most = np.abs(_wide(_rows(x))) @ (1 + _sizes(desc, w)).T
        rounded = np.abs(_wide(_rows(x))).max(axis=-1, initial=0)[:, None] > 127 * 65504.0 if desc.rounds else False
        return _shaped(desc, ~(most * 2.0 < np.finfo(F32).max) | rounded)


@dataclass(frozen=True)
class _Product:
    """The product of x with weights rounded to its type, as ops/gemm/oracle.py asks for it."""

    problem: Any
    a_element: ElementKind
    activation: Activation = Activation.IDENTITY
    alpha: float = 1.0
    beta: float = 1.0

    def layout(self, name: str) -> Any:
        return self.problem.layout(name)


def _weights_in(element: ElementKind, desc: Any, w: Array) -> Array:
    with np.errstate(all="ignore"):
        return dequantized(desc.format.block, w).astype(element.dtype)


def _of_product(name: str) -> Callable[..., Array]:
    """A measure of ops/gemm/oracle.py, of x and the rounded weights."""

    def measured(desc: Any, x: Array, w: Array) -> Array:
        element = ElementKind.of(x.dtype)
        found = gemm.MEASURES[name](_Product(desc, element), a=x, b=_weights_in(element, desc, w).T)
        return np.asarray(found)

    return measured


def _rounded_weights(desc: Any, x: Array, w: Array) -> Array:
    """|sum x (weight - weight as x's type has it)|: what rounding weights costs, neither more nor less."""
    with np.errstate(all="ignore"):
        off = _weights(desc, w) - _wide(_weights_in(ElementKind.of(x.dtype), desc, w))
        return _shaped(desc, _finite(np.abs(_wide(_rows(x)) @ off.T)))


def _beyond_product(desc: Any, x: Array, w: Array) -> Array:
    """Where an operand is not finite or becomes infinite as x's type, or sums may leave f32 on the way."""
    weights, rows = _wide(_weights_in(ElementKind.of(x.dtype), desc, w)), _wide(_rows(x))
    lost: Any = (~np.isfinite(rows)).any(axis=-1, keepdims=True) | (~np.isfinite(weights)).any(axis=-1)
    return np.asarray(_shaped(desc, lost) | _of_product("beyond_f32")(desc, x, w), bool)


def _unrounded(measure: Callable[..., Array]) -> Callable[..., Array]:
    """The measure where activations are multiplied unrounded, although they may be rounded."""
    return lambda desc, **arrays: measure(replace(desc, math=None), **arrays)


MEASURES: dict[str, Callable[..., Any]] = {
    "abs_products": _abs_products,
    "unrounded_abs_products": _unrounded(_abs_products),
    "unrounded_beyond": _unrounded(_beyond),
    "rounded_activations": _rounded,
    "underflow": _underflow,
    "beyond": _beyond,
    "rounded_weights": _rounded_weights,
    "beyond_product": _beyond_product,
}
MEASURES |= {
    f"product_{name}": _of_product(name)
    for name in ("abs_matmul", "abs_epilogue", "partial_sums", "root_products", "like_signs", "underflow")
}
