"""Codes of a byte, and products of integers, with NumPy: f32 where the kernels round in f32, integers in 64 bits."""

from __future__ import annotations

from typing import Any, TypeAlias

import ml_dtypes
import numpy as np

from ..types import ElementKind

__all__ = ["dequantise", "quantise", "quantised", "values_of"]

Array: TypeAlias = np.ndarray[Any, Any]
F32 = np.float32
ENDS = {ElementKind.I8: (-128, 127), ElementKind.U8: (0, 255)}
FP8 = ElementKind.FP8_E4M3
TINY = F32(2.0**-126)


def _grouped(desc: Any, x: Array) -> tuple[Array, tuple[int, ...]]:
    """x with a row for each scale, or all of it, and the axes that share one."""
    if desc.per == "group":
        return x.reshape(*x.shape[:-1], -1, desc.group_size), (-1,)
    if desc.per == "row":
        return x, (-1,)
    return x, tuple(range(x.ndim)) if desc.per == "tensor" else tuple(range(x.ndim - 1))


def _ranges(x: Array, axes: tuple[int, ...]) -> tuple[Array, Array]:
    """How far finite elements go down and up from 0."""
    held = np.where(np.isfinite(x), x, F32(0))
    return (-held).max(axis=axes, keepdims=True, initial=0), held.max(axis=axes, keepdims=True, initial=0)


def quantised(x: Array, kind: ElementKind, axes: tuple[int, ...], *, zero_points: bool) -> tuple[Array, Array, Array]:
    """Codes (i8, u8 or e4m3), scales and zero points of a scale for all that lies along `axes`, which are kept."""
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


def quantise(desc: Any, x: Array) -> tuple[Array, ...]:
    """codes, scales, and zeros where there are any."""
    rows, axes = _grouped(desc, x)
    zero_points = desc.has("zeros")
    codes, scales, zeros = quantised(rows, desc.codes_element, axes, zero_points=zero_points)
    shaped = codes.reshape(x.shape), scales.reshape(desc.scales_shape)
    return (*shaped, zeros.reshape(desc.scales_shape)) if zero_points else shaped


def values_of(codes: Array, scales: Array, zeros: Array | None) -> Array:
    """(code - zero) scale, rounded to f32."""
    wide = codes.astype(F32)
    with np.errstate(all="ignore"):
        return np.asarray((wide if zeros is None else wide - zeros.astype(F32)) * scales, F32)


def dequantise(desc: Any, codes: Array, scales: Array, zeros: Array | None = None) -> Array:
    """The floats; rounded to f32, and then to the result's type."""
    rows, _ = _grouped(desc, codes)
    spread = (lambda s: s[..., None]) if desc.per in ("row", "group") else (lambda s: s)
    made = values_of(rows, spread(scales), None if zeros is None else spread(zeros)).reshape(codes.shape)
    return np.asarray(made.astype(desc.element.dtype))
