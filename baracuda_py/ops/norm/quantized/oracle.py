"""Quantized norms and gates in float64, and how far a kernel's codes and scales may be from theirs.

A value y of the kernel is within `error` of the exact one. Its scale max|y| / M then errs by the largest error of those that
share it, divided by M, and by two roundings; y / scale errs by both. A code is the nearest to y / scale, so that the allowed
difference is that of the codes at the ends of this interval: 0 but for values near a tie.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from ....numerics.rounding import round_to, wide
from ....types import ElementKind
from ...elementwise import oracle as elementwise
from .. import oracle as norms

__all__ = ["GATE_MEASURES", "NORM_MEASURES", "depth_bound", "gate", "norm"]

Array: TypeAlias = np.ndarray[Any, Any]
Values: TypeAlias = Callable[
    ..., tuple[Array, Array, Array]
]  # of the operands: y, its error, whether there is no bound
U = ElementKind.F32.unit_roundoff
LEAST_SCALE = 2.0**-126
F32_MOST = ElementKind.F32.largest
MOST = {ElementKind.I8: 127.0, ElementKind.FP8_E4M3: 448.0}
SUMMED_PER_THREAD, JOINED = 32, 36  # additions of a term in registers, and between 1,024 threads
STREAMING_THREADS = 512


def depth_bound(length: int) -> int:
    """The most additions that a term of a row's sum goes through, in any configuration."""
    return SUMMED_PER_THREAD + JOINED + -(-length // STREAMING_THREADS)


def _units(desc: Any, x: Array) -> Array:
    """x with what shares a scale along the last axis."""
    return np.asarray(x.reshape(*desc.scales_shape, desc.group or desc.length))


def _rounded(desc: Any, t: Array) -> Array:
    """The nearest code to t, as a number; of NaN 0, or NaN of fp8."""
    most = MOST[desc.codes_element]
    if desc.codes_element is ElementKind.I8:
        rounded: Array = np.rint(np.clip(np.where(np.isnan(t), 0, t), -most, most))
        return rounded
    coded: Array = round_to(np.clip(t, -most, most), desc.codes_element).astype(np.float64)
    return coded


def _scales(desc: Any, y: Array) -> Array:
    """The exact scales, [..., 1]."""
    size = np.where(np.isfinite(y), np.abs(y), 0).max(axis=-1, keepdims=True, initial=0)
    return np.where(size > 0, np.maximum(size / MOST[desc.codes_element], LEAST_SCALE), 1.0)


def _coded(desc: Any, y: Array) -> tuple[Array, Array]:
    units = _units(desc, y)
    scales = _scales(desc, units)
    return _rounded(desc, units / scales).reshape(y.shape), scales.reshape(desc.scales_shape)


def norm(desc: Any, **given: Array) -> tuple[Array, ...]:
    """codes, scales and residual_out, as the problem has them."""
    with np.errstate(all="ignore"):
        made = norms.normalized(desc, **given)
        codes, scales = _coded(desc, np.asarray(made["out"], np.float64))
    return (codes, scales, made["residual_out"]) if "residual" in given else (codes, scales)


def gate(desc: Any, x: Array, y: Array) -> tuple[Array, ...]:
    """codes and scales of x sigmoid(x) y."""
    with np.errstate(all="ignore"):
        return _coded(desc, elementwise.silu_mul(wide(x, desc.element), wide(y, desc.element)))


# ---- measures ----------------------------------------------------------------------------------------------------------


def _norm_values(desc: Any, **given: Array) -> tuple[Array, Array, Array]:
    """The bound of the norms (`norm/_guarantee.py`) for the deepest sum of any configuration."""
    d = depth_bound(desc.length)
    coefficients = {"scaled": (d + 4) / 2 + 8.0, "lost": 4.0}
    if desc.centered:
        coefficients |= {"mean_scaled": d + 1.0, "mean_squared_scaled": (d + 1) ** 2 * U / 2}
    error = U * sum(c * norms.MEASURES[name](desc, **given) for name, c in coefficients.items())
    y = np.asarray(norms.normalized(desc, **given)["out"], np.float64)
    return y, error + U * np.abs(y), norms.MEASURES["out_of_range"](desc, **given)


def _gate_values(desc: Any, x: Array, y: Array) -> tuple[Array, Array, Array]:
    """The error of silu_mul in f32, 20 ulps, and for 16-bit operands of its shorter formula, 0.06 ulps of f16."""
    result = elementwise.silu_mul(wide(x, desc.element), wide(y, desc.element))
    relative = 40 * U + (0.0 if desc.element is ElementKind.F32 else 0.12 * ElementKind.F16.unit_roundoff)
    error = np.abs(result) * relative + ElementKind.F32.smallest_normal
    return result, error, np.zeros(result.shape, bool)


def _bounds(desc: Any, values: Values, given: dict[str, Array]) -> dict[str, Array]:
    """By output the allowed errors in units of u, and where nothing is said."""
    with np.errstate(all="ignore"):
        y, error, outside = values(desc, **given)
        y, error, outside = (_units(desc, part) for part in (y, error, outside))
        error = np.where(np.isfinite(y), np.where(np.isnan(error), np.inf, error), 0)
        size = np.where(np.isfinite(y), np.abs(y), 0).max(axis=-1, keepdims=True, initial=0)
        off = error.max(axis=-1, keepdims=True, initial=0)
        vague = ~(size + 2 * off < F32_MOST) | ((off > 0) & (size < 4 * off)) | outside.any(axis=-1, keepdims=True)
        scales = _scales(desc, y)
        relative = np.where(size > 0, off / size, 0) + 4 * U
        t, exact = y / scales, _rounded(desc, y / scales)
        away = (error / scales + np.abs(t) * relative) / (1 - relative)
        near = np.maximum(*(np.abs(_rounded(desc, t + way * away) - exact) for way in (-1, 1)))
        near = np.where(np.isfinite(near), near, 0)
        of_scale = off / MOST[desc.codes_element] + 3 * U * scales
    shape = (*desc.row_shape, *desc.normalized_shape)
    return {
        "code_error": near.reshape(shape) / U, "scale_error": of_scale.reshape(desc.scales_shape) / U,
        "vague_codes": (vague & (near == near)).reshape(shape), "vague_scales": vague.reshape(desc.scales_shape),
    }  # fmt: skip


def _measures(values: Values) -> dict[str, Callable[..., Array]]:
    def measure(name: str) -> Callable[..., Array]:
        return lambda desc, **given: _bounds(desc, values, given)[name]

    def undetermined(desc: Any, *, output: str, **given: Array) -> Array:
        """Where the norm has no bound, the values may overflow, or the largest is not well away from 0."""
        return _bounds(desc, values, given)[f"vague_{output}"]

    return {"code_error": measure("code_error"), "scale_error": measure("scale_error"), "undetermined": undetermined}


NORM_MEASURES, GATE_MEASURES = _measures(_norm_values), _measures(_gate_values)
