"""int4 weights on the host: layouts undone and made with NumPy's reshapes, quantisation, and what products of them are."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from ....types import Componentwise, ElementKind, MathPrecision, PrecisionGuarantee
from ...gemm import oracle as gemm
from ...gemm.oracle import guarantee
from ..oracle import beyond_weights, measures_of, of_product

__all__ = [
    "MEASURES",
    "dequantize",
    "from_codes",
    "guarantee",
    "matmul",
    "quantize",
    "repack",
    "rounded_once",
    "to_codes",
    "weights",
    "zeros_from",
    "zeros_to",
]

Array: TypeAlias = np.ndarray[Any, Any]
AWQ = (0, 2, 4, 6, 1, 3, 5, 7)  # the column of each place
PLACES = 4 * np.arange(8, dtype=np.uint32)
TILE = (16, 64)  # of n and k


def _words(places: Array) -> Array:
    """u32 words of codes [..., 8], the first in the lowest bits."""
    return np.ascontiguousarray(np.bitwise_or.reduce(places.astype(np.uint32) << PLACES, axis=-1))


def _codes(words: Array) -> Array:
    return (words.view(np.uint32)[..., None] >> PLACES & 15).astype(np.uint8)


def _filled(codes: Array) -> Array:
    """Codes [K, N] with the code of nothing, 8, up to whole tiles."""
    k, n = codes.shape
    return np.pad(codes, ((0, -k % TILE[1]), (0, -n % TILE[0])), constant_values=8)


def to_codes(layout: str, shape: tuple[int, int], words: Array) -> Array:
    """Codes 0..15, [K, N], of the words of a layout."""
    k, n = shape
    if layout == "plain":
        return words & 15
    if layout == "kaio":
        return (_codes(words) ^ 8).reshape(n, k).T
    if layout == "gptq":
        return _codes(words).transpose(0, 2, 1).reshape(k, n)
    if layout == "awq":
        places = _codes(words)
        return places[..., np.argsort(AWQ)].reshape(k, n)
    strips, blocks = words.shape[:2]
    # places: element e (1), register's k half (2), register's row (2); words: chunk (2), four k's (2); lanes: g (8), t (4)
    split = _codes(words).reshape(strips, blocks, 8, 4, 2, 2, 2, 2, 2)  # strip block g t chunk four e half row
    ordered = split.transpose(1, 4, 3, 5, 7, 6, 0, 2, 8)  # block chunk t four half e, strip g row
    return ordered.reshape(blocks * TILE[1], strips * TILE[0])[:k, :n]


def from_codes(layout: str, codes: Array) -> Array:
    """The words of a layout, of codes [K, N]."""
    k, n = codes.shape
    if layout == "plain":
        return codes
    if layout == "kaio":
        return _words((codes.T ^ 8).reshape(n, k // 8, 8))
    if layout == "gptq":
        return _words(codes.reshape(k // 8, 8, n).transpose(0, 2, 1))
    if layout == "awq":
        return _words(codes.reshape(k, n // 8, 8)[..., AWQ])
    whole = _filled(codes)
    blocks, strips = whole.shape[0] // TILE[1], whole.shape[1] // TILE[0]
    split = whole.reshape(blocks, 2, 4, 2, 2, 2, strips, 8, 2)  # block chunk t four half e, strip g row
    ordered = split.transpose(6, 0, 7, 2, 1, 3, 5, 4, 8)  # strip block g t chunk four e half row
    return _words(ordered.reshape(strips, blocks, 32, 4, 8))


def zeros_from(layout: str, n: int, zeros: Array) -> Array:
    """Zero points [groups, N] of a layout's."""
    if layout in ("tiled", "plain"):
        return zeros[:, :n]
    places = _codes(zeros)
    if layout == "awq":
        places = places[..., np.argsort(AWQ)]
    return places.reshape(len(zeros), n) + np.uint8(layout == "gptq")


def zeros_to(layout: str, zeros: Array) -> Array:
    groups, n = zeros.shape
    if layout == "plain":
        return zeros
    if layout == "tiled":
        return np.pad(zeros, ((0, 0), (0, -n % TILE[0])), constant_values=8)
    places = (zeros - np.uint8(layout == "gptq") & 15).reshape(groups, n // 8, 8)
    return _words(places[..., AWQ] if layout == "awq" else places)


def _spread(desc: Any, x: Array, groups: Array) -> Array:
    """A group's number for each k."""
    return np.asarray(x[:, : desc.weight_shape[1]][groups])


def _parts(desc: Any, codes: Array, scales: Array, zeros: Array | None, order: Array | None) -> tuple[Array, Array]:
    """Integers (code - zero) and scales, both [K, N] in float64, in the order of the activations."""
    k, n = desc.weight_shape
    layout = str(desc.packing)
    groups = np.arange(k) // desc.group_size
    if layout == "gptq" and order is not None:
        groups = np.clip(order, 0, len(scales) - 1)
    numbers = to_codes(layout, desc.weight_shape, codes).astype(np.float64)
    points = np.full((len(scales), n), 8.0) if zeros is None else zeros_from(layout, n, zeros).astype(np.float64)
    numbers = numbers - _spread(desc, points, groups)
    factors = _spread(desc, scales.astype(np.float64), groups)
    if layout == "tiled" and order is not None:
        back = np.zeros(k, int)
        back[np.clip(order, 0, k - 1)] = np.arange(k)
        numbers, factors = numbers[back], factors[back]
    return numbers, factors


def weights(desc: Any, codes: Array, scales: Array, zeros: Array | None = None, order: Array | None = None) -> Array:
    """(code - zero) scale, [K, N]: exact in float64."""
    numbers, factors = _parts(desc, codes, scales, zeros, order)
    with np.errstate(invalid="ignore"):  # 0 times an infinite scale
        return np.asarray(numbers * factors)


def dequantize(desc: Any, **packed: Array) -> Array:
    return weights(desc, **packed)


def matmul(desc: Any, x: Array, bias: Array | None = None, **packed: Array) -> Array:
    """f(x w + bias), wide."""
    return gemm.matmul(desc.product, a=x, b=weights(desc, **packed), bias=bias)


def repack(
    desc: Any, codes: Array, scales: Array, zeros: Array | None = None, gather: Array | None = None
) -> tuple[Array, ...]:
    """The same weight in the layout `desc.to`: words, scales and, where there are, zero points."""
    n = desc.weight_shape[1]
    numbers = to_codes(str(desc.packing), desc.weight_shape, codes)
    if gather is not None:
        numbers = numbers[np.clip(gather, 0, len(numbers) - 1)]
    wide = desc.to_shapes["scales"][1]
    factors = np.zeros((len(scales), wide), scales.dtype)
    factors[:, :n] = scales[:, :n]
    made = (from_codes(str(desc.to), numbers), factors)
    return made if zeros is None else (*made, zeros_to(str(desc.to), zeros_from(str(desc.packing), n, zeros)))


def quantize(desc: Any, w: Array) -> tuple[Array, ...]:
    """Words in layout "tiled", scales and, where asked for, zero points: in f32, as kernels compute it."""
    k, n = desc.weight_shape
    kind = desc.layout("scales").element.dtype
    x = w.astype(np.float32)
    parts = x.reshape(k // desc.group_size, desc.group_size, n)
    low, high = np.minimum(parts.min(1), 0), np.maximum(parts.max(1), 0)
    with np.errstate(over="ignore"):
        spans = (high - low) / np.float32(15) if desc.has("zeros") else np.maximum(high, -low) / np.float32(7)
    import ml_dtypes

    scales = np.minimum(spans, np.float32(ml_dtypes.finfo(kind).max)).astype(kind)
    scales = np.where(scales.astype(np.float32) == 0, np.ones(1, kind), scales).astype(kind)
    factors = scales.astype(np.float32)
    with np.errstate(over="ignore"):
        points = np.full_like(low, 8)
        if desc.has("zeros"):
            points = np.clip(np.rint(-low / factors), desc.least_zero, 15)
        codes = np.clip(np.rint(parts / factors[:, None]) + points[:, None], 0, 15).astype(np.uint8)
    wide = np.zeros((len(scales), desc.columns), kind)
    wide[:, :n] = scales
    made = (from_codes("tiled", codes.reshape(k, n)), wide)
    return (*made, zeros_to("tiled", points.astype(np.uint8))) if desc.has("zeros") else made


# ---- bounds -----------------------------------------------------------------------------------------------------------


def _underflow(desc: Any, x: Array, bias: Array | None = None, **packed: Array) -> Any:
    """That of matmul, times a column's largest scale, which multiplies sums."""
    scales = np.abs(packed["scales"].astype(np.float64)[:, : desc.weight_shape[1]])
    return of_product(gemm.MEASURES["underflow"], weights)(desc, x, bias, **packed) * np.maximum(1, scales.max(0))


def _beyond(desc: Any, x: Array, bias: Array | None = None, **packed: Array) -> Any:
    """Whether sums may leave f32's range, before scales multiply them or after; an infinite scale times 0 is a weight's alone."""
    given = {} if bias is None else {"bias": bias}
    numbers, factors = _parts(desc, **{"zeros": None, "order": None, **packed})  # type: ignore[arg-type]
    of = gemm.MEASURES["beyond_f32"]
    with np.errstate(invalid="ignore"):
        wide = numbers * factors
    return of(desc.product, a=x, b=numbers, **given) | of(desc.product, a=x, b=wide, **given) | np.isinf(factors).any(0)


MEASURES = {
    **measures_of(weights),
    "underflow": _underflow,
    "beyond_f32": _beyond,
    "beyond_weights": beyond_weights(_beyond, weights),
}


def rounded_once(desc: Any) -> PrecisionGuarantee:
    """One rounding of an exact weight."""
    out = desc.layout("out").element
    bound = Componentwise.rounded((), out, "Higham 2002, section 2.2")
    return PrecisionGuarantee(MathPrecision.F32, ElementKind.F32, True, True, True, False, bound)
