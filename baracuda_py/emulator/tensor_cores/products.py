"""Products of small matrices, as tensor cores form them (PTX ISA, mma and wgmma.mma_async: precision and rounding).

The ISA does not define the order of a product's sums, nor the precision for most types. Here the sum of all products and of the
accumulator is computed in float64 and rounded once, to nearest. (The hardware aligns the terms of a sum to the largest and
truncates them, so that its last bits may differ.) Integers are exact; sums wrap, or are clamped by .satfinite. f64 is a chain
of fused multiply-adds, each rounded to nearest, in the order of k, starting from the accumulator: the ISA requires the precision
of such operations.
"""

from __future__ import annotations

import numpy as np

from ..values.floats import fma
from ..values.formats import narrow, widen
from ..values.registers import Lanes, unsupported

__all__ = ["multiply"]

_INTEGERS = ("s8", "u8", "s4", "u4")
_ACCUMULATORS = ("f16", "f32", "f64", "s32")


def multiply(
    a: Lanes,
    b: Lanes,
    c: Lanes | None,
    types: tuple[str, str, str],
    satfinite: bool = False,
) -> Lanes:
    """D = A B + C of [n, rows, K] and, transposed, [n, columns, K] bit patterns, for the types of D (and C), A and B. C and D
    are float32, float64, int32, or f16 patterns; C = None means 0."""
    to, of_a, of_b = types
    if to not in _ACCUMULATORS:
        raise unsupported("accumulator type", to, _ACCUMULATORS)
    if to == "f64":
        return _chain(a, b, c)
    sums = _values(a, of_a) @ _values(b, of_b).swapaxes(-1, -2)
    if c is not None:
        sums += c if to == "s32" else widen(c, to)
    if to != "s32":
        return narrow(sums, to)
    if satfinite:
        limits = np.iinfo("i4")
        sums = np.clip(sums, limits.min, limits.max)
    return sums.astype("i8").astype("i4")


def _values(patterns: Lanes, type: str) -> Lanes:
    return (patterns if type in _INTEGERS else widen(patterns, type)).astype("f8")


def _chain(a: Lanes, b: Lanes, c: Lanes | None) -> Lanes:
    sums = np.zeros((*a.shape[:-1], b.shape[-2])) if c is None else c
    for k in range(a.shape[-1]):
        sums = fma(a[..., :, None, k], b[..., None, :, k], sums, "rn", "f64")
    return sums
