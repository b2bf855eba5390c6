"""Codes of a byte, and products of integers, with NumPy: f32 where the kernels round in f32, integers in 64 bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np

from ....numerics.special import phi
from ....types import Activation, Componentwise, ElementKind, MathPrecision, PrecisionGuarantee, Term
from ...gemm.oracle import ACTIVATIONS

__all__ = ["MEASURES", "dequantize", "guarantee", "matmul", "quantize", "quantized"]

Array: TypeAlias = np.ndarray[Any, Any]
F32 = np.float32
ENDS = {ElementKind.I8: (-128, 127), ElementKind.U8: (0, 255)}
FP8 = ElementKind.FP8_E4M3
TINY = F32(2.0**-126)


def _grouped(desc: Any, x: Array) -> tuple[Array, tuple[int, ...]]:
    """x with a row for each scale, or all of it, and the axes that share one."""
    if desc.per == "group":
        return x.reshape(*x.shape[:-1], x.shape[-1] // desc.group_size, desc.group_size), (-1,)
    if desc.per == "row":
        return x, (-1,)
    return x, tuple(range(x.ndim)) if desc.per == "tensor" else tuple(range(x.ndim - 1))


def _ranges(x: Array, axes: tuple[int, ...]) -> tuple[Array, Array]:
    """How far finite elements go down and up from 0."""
    held = np.where(np.isfinite(x), x, F32(0))
    return (-held).max(axis=axes, keepdims=True, initial=0), held.max(axis=axes, keepdims=True, initial=0)


def quantized(x: Array, kind: ElementKind, axes: tuple[int, ...], *, zero_points: bool) -> tuple[Array, Array, Array]:
    """Codes (i8, u8 or e4m3), scales and zero points of a scale for all along `axes`, which are kept."""
    x = x.astype(F32)
    down, up = _ranges(x, axes)
    with np.errstate(all="ignore"):
        if kind is FP8:
            least, most, furthest = -448, 448, np.maximum(down, up)
        else:
            least, most = ENDS[kind]
            furthest = np.maximum(down, up) if zero_points or kind is ElementKind.I8 else up
            least = least if zero_points else -most if kind is ElementKind.I8 else 0
        step = down / F32(most - least) + up / F32(most - least) if zero_points else furthest / F32(most)
        scales = np.where(furthest > 0, np.maximum(step, TINY), F32(1)).astype(F32)
        inverse = F32(1) / scales
        zeros = np.minimum(least + np.rint(down * inverse), most) if zero_points else np.zeros_like(scales)
        scaled = x * inverse
    if kind is FP8:
        codes = np.clip(scaled, -448, 448).astype(ml_dtypes.float8_e4m3fn)
        codes[np.isnan(scaled)] = np.uint8(0x7F).view(ml_dtypes.float8_e4m3fn)
    else:
        whole = np.rint(np.clip(np.nan_to_num(scaled, nan=0.0, posinf=1024, neginf=-1024), -1024, 1024))
        codes = np.clip(whole + zeros, least, most).astype(kind.dtype)
    return codes, scales, zeros.astype(kind.dtype)


def quantize(desc: Any, x: Array) -> tuple[Array, ...]:
    """codes, scales, and zeros where there are any."""
    rows, axes = _grouped(desc, x)
    zero_points = desc.has("zeros")
    codes, scales, zeros = quantized(rows, desc.codes_element, axes, zero_points=zero_points)
    shaped = codes.reshape(x.shape), scales.reshape(desc.scales_shape)
    return (*shaped, zeros.reshape(desc.scales_shape)) if zero_points else shaped


def _values_of(codes: Array, scales: Array, zeros: Array | None) -> Array:
    """(code - zero) scale, rounded to f32."""
    wide = codes.astype(F32)
    with np.errstate(all="ignore"):
        return np.asarray((wide if zeros is None else wide - zeros.astype(F32)) * scales, F32)


def dequantize(desc: Any, codes: Array, scales: Array, zeros: Array | None = None) -> Array:
    """The floats; rounded to f32, and then to the result's type."""
    rows, _ = _grouped(desc, codes)
    if desc.per in ("row", "group"):
        scales, zeros = scales[..., None], None if zeros is None else zeros[..., None]
    made = _values_of(rows, scales, zeros).reshape(codes.shape)
    return np.asarray(made.astype(desc.element.dtype))


# ---- products ----------------------------------------------------------------------------------------------------------


class Operands:
    """A product's operands in float64: `exact` are the sums of products, exact where a holds integers."""

    def __init__(
        self, desc: Any, a: Array, b: Array, bias: Array | None = None, scale_a: Array | None = None,
        scale_b: Array | None = None, zero_a: Array | None = None, zero_b: Array | None = None,
    ) -> None:  # fmt: skip
        self.desc, k, n = desc, a.shape[-1], b.shape[1]
        lead = a.shape[:-1]
        rows = a.reshape(int(np.prod(lead)), k)
        if desc.dynamic:
            rows, scale_a, _ = quantized(rows, ElementKind.I8, (-1,), zero_points=False)
        self.integers = rows.dtype.kind in "iu"
        self.a, self.b = rows.astype(np.float64), b.astype(np.float64)
        of_rows = [np.ones(()) if x is None else _line(x, (-1, 1)) for x in (scale_a, zero_a)]
        grouped = scale_b is not None and scale_b.ndim == 2 and scale_b.shape[0] > 1
        self.scale_a, self.scale_b = of_rows[0].astype(F32), np.ones((), F32)
        self.weight = self.b
        if scale_b is not None and grouped:
            self.weight = self.b * np.repeat(scale_b.astype(np.float64), k // scale_b.shape[0], axis=0)
        elif scale_b is not None:
            self.scale_b = _line(scale_b, (1, -1)).astype(F32)
        if zero_a is not None:
            self.a = self.a - of_rows[1]
        if zero_b is not None:
            self.weight = self.b - _line(zero_b, (1, -1))
        self.bias = np.zeros(()) if bias is None else _line(bias, (1, -1))
        self.shape = (*lead, n)

    def sums(self, *, absolute: bool = False) -> Array:
        with np.errstate(all="ignore"):
            return np.asarray(np.abs(self.a) @ np.abs(self.weight) if absolute else self.a @ self.weight)

    def scaled(self, *, absolute: bool = False) -> Array:
        """The sums times their scales."""
        with np.errstate(all="ignore"):
            scale = self.scale_a.astype(np.float64) * self.scale_b.astype(np.float64)
            return np.asarray(self.sums(absolute=absolute) * (np.abs(scale) if absolute else scale))

    def rounding(self) -> Array:
        """What sums are off by, where weights are rounded to a's type."""
        with np.errstate(all="ignore"):
            wide = self.weight * self.scale_b.astype(np.float64)
            off = self.a @ (wide - wide.astype(F32).astype(self.desc.a_element.dtype).astype(np.float64))
            return np.asarray(np.where(np.isfinite(off), np.abs(off), 0))

    def before(self) -> Array:
        """What the activation is taken of."""
        with np.errstate(all="ignore"):
            return np.asarray(self.scaled() + self.bias.astype(np.float64))

    def result(self, x: Array) -> Array:
        return np.asarray(x + np.zeros((self.a.shape[0], self.b.shape[1]))).reshape(self.shape)


def _line(x: Array, shape: tuple[int, ...]) -> Array:
    return x.reshape(()) if x.size == 1 else x.reshape(shape)


def matmul(desc: Any, **arrays: Array) -> Array:
    """The result, in float64; of i32 and i8 the very integers."""
    given = Operands(desc, **arrays)
    out = desc.layout("out").element
    relu = desc.activation is Activation.RELU
    if out is ElementKind.I32:
        whole = np.clip(given.sums() + given.bias, -(2**31), 2**31 - 1)
        return given.result(np.maximum(whole, 0) if relu else whole).astype(np.int32)
    if out is ElementKind.I8:
        with np.errstate(all="ignore"):
            x = given.sums().astype(F32) * (given.scale_a * given.scale_b)
            x = x + given.bias.astype(F32) if "bias" in arrays else x
        x = np.maximum(x, F32(0)) if relu else x
        codes = np.rint(np.clip(np.nan_to_num(x, nan=0.0, posinf=127, neginf=-128), -128, 127))
        return np.asarray(codes + np.zeros((given.a.shape[0], given.b.shape[1]))).reshape(given.shape).astype(np.int8)
    with np.errstate(all="ignore"):
        return given.result(ACTIVATIONS[desc.activation.value][0](given.before()))


def _measure(of: Callable[[Operands], Array], *, carried: bool = True) -> Callable[..., Array]:
    """A measure of a product; `carried` by the activation, as far as it may make it larger."""

    def measured(desc: Any, **arrays: Array) -> Array:
        given = Operands(desc, **arrays)
        with np.errstate(all="ignore"):
            return given.result(of(given)) * (ACTIVATIONS[desc.activation.value][1] if carried else 1.0)

    return measured


def _beyond(given: Operands) -> Array:
    """Whether f32 may overflow on the way: scales, sums of magnitudes, or what weights are rounded to."""
    scale = np.abs(given.scale_a.astype(np.float64) * given.scale_b.astype(np.float64))
    large = float(np.finfo(F32).max) / 2
    sizes = np.where(np.isfinite(given.a), np.abs(given.a), 0) @ np.abs(given.weight)
    over = (sizes >= large) | (scale >= large) | (sizes * scale + np.abs(given.bias.astype(np.float64)) >= large)
    if not given.integers:
        most = given.desc.a_element.largest
        over = over | (np.abs(given.weight * given.scale_b.astype(np.float64)) >= most).any(axis=0)
        over = over | np.isinf(given.a).any(axis=1, keepdims=True)  # times a weight that is rounded to 0
    return np.asarray(over, np.float64)


def _gelu_tail(given: Operands) -> Array:
    x = np.abs(given.before())
    return np.asarray(np.where(np.isfinite(x), x * phi(-x), 0))


MEASURES: dict[str, Callable[..., Any]] = {
    "abs_scaled": _measure(lambda g: np.abs(g.scaled())),
    "abs_finished": _measure(lambda g: np.abs(g.scaled()) + np.abs(g.bias.astype(np.float64))),
    "abs_products": _measure(lambda g: g.scaled(absolute=True)),
    "tiny": _measure(lambda g: (g.sums(absolute=True) + 2) * ElementKind.F32.smallest_normal),
    "rounded_weights": _measure(Operands.rounding),
    "tiny_weights": _measure(lambda g: np.abs(g.a).sum(axis=1, keepdims=True) * g.desc.a_element.smallest_normal),
    "gelu_tail": _measure(_gelu_tail, carried=False),
    "beyond": _measure(_beyond, carried=False),
}


def guarantee(desc: Any) -> PrecisionGuarantee:
    """What the oracle itself promises: float64 sums, one rounding."""
    out = desc.layout("out").element
    if not out.is_float:
        return PrecisionGuarantee.exact(out)
    terms = (
        Term(desc.a_shape[-1] + 16.0, ElementKind.F64, "abs_products"), Term(16.0, ElementKind.F64, "abs_finished"),
    )  # fmt: skip
    bound = Componentwise.rounded(terms, out, "Higham 2002, section 3.1")
    return PrecisionGuarantee.fixed_order(MathPrecision.F64, ElementKind.F64, bound)
