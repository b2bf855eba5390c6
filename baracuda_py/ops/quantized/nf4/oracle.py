"""NF4 on the host: the sixteen values, the map of magnitudes, quantisation, and what products of such weights are.

Values: T. Dettmers et al., "QLoRA", arXiv:2305.14314, appendix E. Map: T. Dettmers, arXiv:1511.04561, with the parameters of
bitsandbytes: a sign, 7 exponents.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from ....types import Componentwise, ElementKind, MathPrecision, PrecisionGuarantee, Term
from ...gemm import oracle as gemm
from ...gemm.oracle import guarantee
from ..oracle import beyond_weights, cost_of, measures_of, of_product

__all__ = [
    "MAP",
    "MEASURES",
    "VALUES",
    "dequantize",
    "guarantee",
    "magnitudes",
    "matmul",
    "quantize",
    "rounded_twice",
    "weights",
]

Array: TypeAlias = np.ndarray[Any, Any]
F32 = np.float32
VALUES = np.array(
    [
        -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
        -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
        0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
    ],
    F32,
)  # fmt: skip
OF_SCALE = 256  # magnitudes that share a scale
OF_SUM, LANES, WARPS = 4096, 32, 8  # magnitudes a CTA adds, and the threads that share them


def _mapped() -> Array:
    """The 256 values: 0, 1, and either sign of 10^(e - 6) (0.1 + 0.9 (j + 1/2) / 2^e) for e < 7 and j < 2^e."""
    exponents = np.repeat(np.arange(7), 2 ** np.arange(7))
    fractions = np.concatenate([np.arange(2**e) for e in range(7)])
    sizes = ((2.0 * 2**exponents + 9 * (2 * fractions + 1)) / 10.0 ** (7 - exponents) / (2.0 * 2**exponents)).astype(
        F32
    )
    return np.concatenate([-sizes[::-1], [F32(0)], sizes, [F32(1)]]).astype(F32)


MAP = _mapped()


def _nearest(values: Array, x: Array) -> Array:
    """The codes of the nearest values; of two as near the lower."""
    return np.searchsorted(F32(0.5) * (values[:-1] + values[1:]), x, side="left").astype(np.uint8)


def _normal(x: Array, most: Array) -> Array:
    """x / most as kernels form it: times the rounded inverse, both lifted where that would be beyond f32."""
    lift = np.where(most < F32(2.0**-64), F32(2.0**64), F32(1))
    with np.errstate(divide="ignore"):
        inverse = np.where(most == 0, F32(0), F32(1) / (most * lift)).astype(F32)
    return np.asarray(x * lift * inverse)


def _in_blocks(x: Array, size: int) -> Array:
    """All values in rows of `size`, the last filled up with zeros."""
    flat = x.reshape(-1)
    return np.pad(flat, (0, -len(flat) % size)).reshape(-1, size)


def quantize(desc: Any, x: Array) -> tuple[Array, ...]:
    """Codes and magnitudes, in f32, as kernels compute them; with double quantisation codes of those, scales and the offset."""
    wide = x.astype(F32)
    blocks = _in_blocks(np.where(np.isfinite(wide), wide, F32(0)), desc.block_size)
    most = np.abs(blocks).max(axis=1, initial=0)
    codes = _nearest(VALUES, _normal(blocks, most[:, None])).reshape(-1)[: x.size]
    packed = (codes[0::2] << 4 | codes[1::2]).reshape(desc.shapes["codes"])
    if not desc.double:
        return packed, most
    offset = F32(_total(most) / len(most)) if len(most) else F32(0)
    rest = _in_blocks(most - offset, OF_SCALE)
    scales = np.abs(rest).max(axis=1, initial=0)
    of_magnitudes = _nearest(MAP, _normal(rest, scales[:, None])).reshape(-1)[: len(most)]
    return packed, of_magnitudes, scales, np.asarray(offset)


def _total(x: Array) -> np.float64:
    """The sum in the order of the kernels, which is part of the result."""
    parts = _in_blocks(x.astype(np.float64), OF_SUM).reshape(-1, OF_SUM // (LANES * WARPS), LANES * WARPS)
    sums = np.array([_of_cta(part) for part in parts])
    return _of_cta(_in_blocks(sums, LANES * WARPS))


def _of_cta(x: Array) -> np.float64:
    """[turns][threads]: a thread's turns one after the other, neighbours of a warp pairwise, warps one after the other."""
    threads = np.zeros(LANES * WARPS)
    for part in x:
        threads = threads + part
    for _ in range(LANES.bit_length() - 1):
        threads = threads[0::2] + threads[1::2]
    total = np.float64(threads[0])
    for warp in threads[1:]:
        total = total + warp
    return total


def magnitudes(absmax: Array, scales: Array | None = None, offset: Array | None = None) -> Array:
    """f32 of each block: unchanged, or map[code] scale + offset, each operation rounded, which is what such codes mean."""
    if scales is None or offset is None:
        return absmax
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(MAP[absmax] * np.repeat(scales, OF_SCALE)[: len(absmax)] + offset.astype(F32))


def _values(codes: Array, of: Array = VALUES) -> Array:
    """The values of codes, or others that codes stand for, in float64, two a byte."""
    pairs = of[np.stack([codes >> 4, codes & 15], axis=-1)].astype(np.float64)
    return pairs.reshape(*codes.shape[:-1], 2 * codes.shape[-1])


def weights(desc: Any, codes: Array, absmax: Array, scales: Array | None = None, offset: Array | None = None) -> Array:
    """value absmax, as the codes are stored: exact in float64."""
    return _weights_of(VALUES, desc, codes, absmax, scales, offset)


def _weights_of(
    values: Array, desc: Any, codes: Array, absmax: Array, scales: Array | None = None, offset: Array | None = None
) -> Array:
    numbers = _values(codes, values)
    sizes = np.repeat(magnitudes(absmax, scales, offset).astype(np.float64), desc.block_size)[: numbers.size]
    with np.errstate(invalid="ignore"):
        return np.asarray(numbers * sizes.reshape(numbers.shape))


def dequantize(desc: Any, **packed: Array) -> Array:
    return weights(desc, **packed)


def matmul(desc: Any, x: Array, bias: Array | None = None, **packed: Array) -> Array:
    """f(x w^T + bias), wide."""
    return gemm.matmul(desc.product, a=x, b=weights(desc, **packed).T, bias=bias)


# ---- bounds -----------------------------------------------------------------------------------------------------------


def _columns(desc: Any, **packed: Array) -> Array:
    """[K, N], as bounds of products know weights."""
    return weights(desc, **packed).T


def _underflow(desc: Any, x: Array, bias: Array | None = None, **packed: Array) -> Any:
    """That of matmul, times the largest magnitude, which multiplies sums. Of those that are no finite number nothing is said."""
    with np.errstate(invalid="ignore"):
        each = np.abs(magnitudes(packed["absmax"], packed.get("scales"), packed.get("offset")))
    largest = each[np.isfinite(each)].max(initial=1)
    return of_product(gemm.MEASURES["underflow"], _columns)(desc, x, bias, **packed) * float(largest)


def _beyond(desc: Any, x: Array, bias: Array | None = None, **packed: Array) -> Any:
    """Whether sums may leave f32's range, before magnitudes multiply them or after."""
    given = {} if bias is None else {"bias": bias}
    of = gemm.MEASURES["beyond_f32"]
    before = of(desc.product, a=x, b=_values(packed["codes"]).T, **given)
    columns = _columns(desc, **packed)
    return before | of(desc.product, a=x, b=columns, **given) | ~np.isfinite(columns).all(axis=0)


def _rounded_values(desc: Any, x: Array, bias: Array | None = None, **packed: Array) -> Any:  # noqa: ARG001
    """L |sum x (value - value as x's type has it) absmax|: what rounding the sixteen values costs, neither more nor less."""
    off = VALUES - VALUES.astype(desc.layout("x").element.dtype).astype(F32)
    return cost_of(desc, x, _weights_of(off, desc, **packed).T)


MEASURES = {
    **measures_of(_columns),
    "underflow": _underflow,
    "beyond_f32": _beyond,
    "beyond_weights": beyond_weights(_beyond, _columns),
    "rounded_values": _rounded_values,
}


def rounded_twice(desc: Any) -> PrecisionGuarantee:
    """A product of two f32 numbers, rounded to f32 and then to the result's type."""
    out = desc.layout("out").element
    first = () if out is ElementKind.F32 else (Term(1.0, ElementKind.F32, "abs_result"),)
    bound = Componentwise.rounded(first, out, "Higham 2002, section 2.2", subnormal=2.0)
    return PrecisionGuarantee(MathPrecision.F32, ElementKind.F32, True, True, True, False, bound)
