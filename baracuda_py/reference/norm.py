"""Norms and their gradients in float64 (long double for f64), and the measures that their bounds name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from ..types import ElementKind, PrecisionGuarantee, Ulp
from .rounding import round_to

__all__ = ["MEASURES", "guarantee", "norm"]

Array: TypeAlias = np.ndarray[Any, Any]


def _wide(desc: Any, x: Array) -> Array:
    return np.asarray(x).astype(np.longdouble if desc.element is ElementKind.F64 else np.float64)


def _axes(desc: Any) -> tuple[int, ...]:
    return tuple(range(len(desc.shape) - desc.rank, len(desc.shape)))


def _mean(desc: Any, x: Array) -> Array:
    """Along rows, whose axes stay as extents of 1; NaN of no columns."""
    return np.asarray(x.sum(axis=_axes(desc), keepdims=True) / np.asarray(desc.length, x.dtype))


def _added(desc: Any, x: Array, residual: Array | None) -> Array:
    """h: the sum that is normalised, as it is stored."""
    if residual is None:
        return _wide(desc, x)
    return _wide(desc, round_to(np.asarray(x).astype(np.float64) + np.asarray(residual).astype(np.float64), desc.element))


def _statistics(desc: Any, h: Array) -> tuple[Array, Array]:
    mean = _mean(desc, h) if desc.centered else np.zeros_like(h[..., :0].sum(axis=-1, keepdims=True)) * 0
    deviation = h - mean if desc.centered else h
    return mean, np.asarray(1 / np.sqrt(_mean(desc, deviation * deviation) + h.dtype.type(desc.eps)))


def norm(desc: Any, x: Array, residual: Array | None = None, weight: Array | None = None, bias: Array | None = None) -> Any:
    """Every written operand, in order."""
    with np.errstate(all="ignore"):
        h = _added(desc, x, residual)
        mean, rstd = _statistics(desc, h)
        y = (h - mean) * rstd if desc.centered else h * rstd
        y = y if weight is None else y * _wide(desc, weight)
        results = {
            "out": y if bias is None else y + _wide(desc, bias),
            "residual_out": h,
            "mean": mean.reshape(desc.row_shape) if desc.centered else mean,
            "rstd": rstd.reshape(desc.row_shape),
        }
    return tuple(results[operand.name] for operand in desc.operands if operand.written)


def guarantee(kernel: PrecisionGuarantee) -> PrecisionGuarantee:
    """What the oracle itself promises: one rounding."""
    return replace(kernel, bound=Ulp(1.0))


# ---- measures ------------------------------------------------------------------------------------------------------


def _measure(of: Callable[..., Array]) -> Callable[..., Array]:
    """A measure of h, its mean, rstd and |weight|, in terms of the operands."""

    def measured(
        desc: Any, x: Array, residual: Array | None = None, weight: Array | None = None, bias: Array | None = None,  # noqa: ARG001
        **_: Array,
    ) -> Array:  # fmt: skip
        with np.errstate(all="ignore"):
            h = _added(desc, x, residual)
            mean, rstd = _statistics(desc, h)
            scale = np.ones((), h.dtype) if weight is None else np.abs(_wide(desc, weight))
            return np.asarray(of(desc, h, mean, rstd, scale), np.float64)

    return measured


def _scaled(desc: Any, h: Array, mean: Array, rstd: Array, scale: Array) -> Array:
    """|n weight|."""
    return np.abs(h - mean if desc.centered else h) * rstd * scale


def _mean_scaled(desc: Any, h: Array, mean: Array, rstd: Array, scale: Array) -> Array:  # noqa: ARG001
    """mean|h| rstd |weight|."""
    return _mean(desc, np.abs(h)) * rstd * scale + 0 * h


def _mean_squared_scaled(desc: Any, h: Array, mean: Array, rstd: Array, scale: Array) -> Array:
    """(mean|h| rstd)**2 |n weight|."""
    return (_mean(desc, np.abs(h)) * rstd) ** 2 * _scaled(desc, h, mean, rstd, scale)


def _overflowing(desc: Any, h: Array, mean: Array, rstd: Array, scale: Array) -> Array:  # noqa: ARG001
    """Whether the sum of squares along the row is beyond what is computed in."""
    most = 2.0**126 if desc.element is not ElementKind.F64 else np.longdouble(2) ** 1022
    total = (h * h).sum(axis=_axes(desc), keepdims=True)
    return np.asarray((total > most) & np.isfinite(h).all(axis=_axes(desc), keepdims=True) & (h == h))


def _smallest_normal(desc: Any, **_: Array) -> Array:
    import ml_dtypes

    return np.asarray(float(ml_dtypes.finfo(desc.element.dtype).smallest_normal))


MEASURES: dict[str, Callable[..., Array]] = {
    "scaled": _measure(_scaled),
    "mean_scaled": _measure(_mean_scaled),
    "mean_squared_scaled": _measure(_mean_squared_scaled),
    "overflowing": _measure(_overflowing),
    "smallest_normal": _smallest_normal,
}
