"""How kernels sum, in NumPy: tensor cores' alignment and truncation (M. Fasi, N. J. Higham, M. Mikaitis and S. Pranesh, PeerJ CS
7:e330, 2021; of fp8 on Hopper DeepSeek-V3, arXiv:2412.19437, section 3.3.2), and f32 or f64 additions in order of K."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from baracuda_py.types import ElementKind, MathPrecision

__all__ = ["MODES", "Mode", "summed", "whole"]

Array = np.ndarray[Any, Any]


class Mode(NamedTuple):
    """A way to multiply: what operands are, products an instruction adds, bits it keeps below the largest, K a promotion."""

    math: MathPrecision
    kind: ElementKind
    at_once: int
    bits: int
    promoted: int = 0

    def __str__(self) -> str:
        return f"{self.math}x{self.at_once}"

    @property
    def out(self) -> ElementKind:
        return ElementKind.F64 if self.kind is ElementKind.F64 else ElementKind.F32


MODES = (
    Mode(MathPrecision.F32, ElementKind.F32, 0, 24),
    Mode(MathPrecision.F64, ElementKind.F64, 0, 53),
    Mode(MathPrecision.BF16, ElementKind.BF16, 16, 23),
    Mode(MathPrecision.BF16, ElementKind.BF16, 8, 23),  # of sm_80
    Mode(MathPrecision.F16, ElementKind.F16, 16, 23),
    Mode(MathPrecision.TF32, ElementKind.F32, 8, 23),
    Mode(MathPrecision.TF32, ElementKind.F32, 4, 23),  # of sm_80
    Mode(MathPrecision.FP8, ElementKind.FP8_E4M3, 32, 13, 128),
    Mode(MathPrecision.FP8_FAST, ElementKind.FP8_E4M3, 32, 13),
)


def whole(rng: np.random.Generator, shape: tuple[int, ...], kind: ElementKind, math: MathPrecision) -> Array:
    """Small integers without zeros: every product and every sum is exact in any order, and each one missing shows. 14 bits hold
    sums of +-1 alone."""
    most = 1 if math is MathPrecision.FP8_FAST else 3
    return rng.choice([x for x in range(-most, most + 1) if x], shape).astype(kind.dtype)


def summed(mode: Mode, a: Array, b: Array) -> Array:
    """A B as the mode's accumulators hold it."""
    if mode.math is MathPrecision.TF32:
        a, b = _tf32(a), _tf32(b)
    x, y = a.astype(np.float64), b.astype(np.float64)
    if not mode.at_once:
        return _in_order(x, y, mode.out)
    total, acc = np.zeros((len(x), y.shape[1])), np.zeros((len(x), y.shape[1]))
    for start in range(0, x.shape[1], mode.at_once):
        products = x[:, start : start + mode.at_once, None] * y[None, start : start + mode.at_once]
        ulp = _ulp(np.maximum(np.abs(products).max(1), np.abs(acc)), mode.bits)
        acc = _cut(acc, ulp) + _cut(products, ulp[:, None]).sum(1)
        acc = _cut(acc, _ulp(np.abs(acc), 23))
        if mode.promoted and (start + mode.at_once) % mode.promoted == 0:
            total, acc = (total + acc).astype(np.float32).astype(np.float64), np.zeros_like(acc)
    return np.asarray((total + acc).astype(np.float32))


def _in_order(x: Array, y: Array, out: ElementKind) -> Array:
    acc = np.zeros((len(x), y.shape[1]), out.dtype)
    for k in range(x.shape[1]):
        acc = (acc + x[:, k : k + 1] * y[k : k + 1]).astype(out.dtype)
    return acc


def _tf32(x: Array) -> Array:
    """The nearest TF32."""
    bits = x.astype(np.float32).view(np.uint32)
    return ((bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32)


def _ulp(top: Array, bits: int) -> Array:
    return np.ldexp(1.0, np.frexp(np.maximum(top, 1e-300))[1] - 1 - bits)


def _cut(x: Array, ulp: Array) -> Array:
    return np.trunc(x / ulp) * ulp
