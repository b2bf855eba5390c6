"""Norms and their gradients in float64 (long double for f64), and the measures that their bounds name."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from ...numerics.guarantee import widely
from ...numerics.rounding import round_to, wide
from ...types import ElementKind, PrecisionGuarantee

__all__ = ["BACKWARD_MEASURES", "MEASURES", "backward", "guarantee", "norm", "normalized"]

Array: TypeAlias = np.ndarray[Any, Any]


def _axes(desc: Any) -> tuple[int, ...]:
    return tuple(range(len(desc.shape) - desc.rank, len(desc.shape)))


def _mean(desc: Any, x: Array) -> Array:
    """Along rows, whose axes stay as extents of 1; NaN of no columns."""
    return np.asarray(x.sum(axis=_axes(desc), keepdims=True) / np.asarray(desc.length, x.dtype))


def _added(desc: Any, x: Array, residual: Array | None) -> Array:
    """h: the sum that is normalised, as it is stored."""
    if residual is None:
        return wide(x, desc.element)
    return wide(
        round_to(np.asarray(x).astype(np.float64) + np.asarray(residual).astype(np.float64), desc.element), desc.element
    )


def _statistics(desc: Any, h: Array) -> tuple[Array, Array]:
    mean = _mean(desc, h) if desc.centered else np.zeros((), h.dtype)
    deviation = h - mean if desc.centered else h
    return mean, np.asarray(1 / np.sqrt(_mean(desc, deviation * deviation) + h.dtype.type(desc.eps)))


def normalized(
    desc: Any, x: Array, residual: Array | None = None, weight: Array | None = None, bias: Array | None = None
) -> dict[str, Array]:
    """All that a norm computes, by the name of the output."""
    with np.errstate(all="ignore"):
        h = _added(desc, x, residual)
        mean, rstd = _statistics(desc, h)
        y = (h - mean) * rstd if desc.centered else h * rstd
        y = y if weight is None else y * wide(weight, desc.element)
        return {
            "out": y if bias is None else y + wide(bias, desc.element),
            "residual_out": h,
            "mean": mean.reshape(desc.row_shape) if desc.centered else mean,
            "rstd": rstd.reshape(desc.row_shape),
        }


def norm(desc: Any, **given: Array) -> Any:
    """Every written operand, in order."""
    results = normalized(desc, **given)
    return tuple(results[operand.name] for operand in desc.operands if operand.written)


def _terms(
    desc: Any, grad: Array, x: Array, weight: Array | None, mean: Array | None, rstd: Array
) -> tuple[Array, ...]:
    """grad, n, g = grad weight and rstd, wide."""
    column = (*desc.row_shape, *(1,) * desc.rank)
    r = wide(rstd, desc.element).reshape(column)
    n = (wide(x, desc.element) - (0 if mean is None else wide(mean, desc.element).reshape(column))) * r
    raw = wide(grad, desc.element)
    return raw, n, raw if weight is None else raw * wide(weight, desc.element), r


def backward(
    desc: Any, grad: Array, x: Array, weight: Array | None = None, mean: Array | None = None, *, rstd: Array
) -> Any:
    """Every written operand, in order."""
    with np.errstate(all="ignore"):
        raw, n, g, r = _terms(desc, grad, x, weight, mean, rstd)
        plain = _mean(desc, g) if desc.centered else 0
        rows = tuple(range(len(desc.row_shape)))
        results = {
            "grad_x": r * (g - plain - n * _mean(desc, g * n)),
            "grad_weight": np.asarray((raw * n).sum(axis=rows)),
            "grad_bias": np.asarray(raw.sum(axis=rows)),
        }
    return tuple(results[operand.name] for operand in desc.operands if operand.written)


def guarantee(desc: Any, kernel: PrecisionGuarantee) -> PrecisionGuarantee:
    """What the oracle itself promises of each output."""
    return widely(kernel, desc, max(desc.length, math.prod(desc.row_shape)))


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
            scale = np.ones((), h.dtype) if weight is None else np.abs(wide(weight, desc.element))
            return np.asarray(of(desc, h, mean, rstd, scale), np.float64)

    return measured


def _scaled(desc: Any, h: Array, mean: Array, rstd: Array, scale: Array) -> Array:
    """|n weight|."""
    return np.asarray(np.abs(h - mean if desc.centered else h) * rstd * scale)


def _mean_scaled(desc: Any, h: Array, mean: Array, rstd: Array, scale: Array) -> Array:  # noqa: ARG001
    """mean|h| rstd |weight|."""
    return np.asarray(_mean(desc, np.abs(h)) * rstd * scale + 0 * h)


def _mean_squared_scaled(desc: Any, h: Array, mean: Array, rstd: Array, scale: Array) -> Array:
    """(mean|h| rstd)**2 |n weight|."""
    return np.asarray((_mean(desc, np.abs(h)) * rstd) ** 2 * _scaled(desc, h, mean, rstd, scale))


def _lost(desc: Any, h: Array, mean: Array, rstd: Array, scale: Array) -> Array:  # noqa: ARG001
    """What steps lose whose results are less than the smallest normal number, which is the unit."""
    return np.asarray((1 + scale * (1 + rstd) + 0 * h) * _least(desc))


def _out_of_range(desc: Any, h: Array, mean: Array, rstd: Array, scale: Array) -> Array:  # noqa: ARG001
    """Whether the row's squares add up beyond what is computed in, or their mean and eps to less than normal numbers."""
    total = (h * h).sum(axis=_axes(desc), keepdims=True)
    return np.asarray((_beyond(desc, total) | _beyond(desc, 4 * rstd * rstd * np.isfinite(total))) & (h == h))


def _least(desc: Any) -> Any:
    """The smallest normal number of what is computed in."""
    return np.longdouble(2) ** (-1022 if desc.element is ElementKind.F64 else -126)


def _beyond(desc: Any, size: Array) -> Array:
    """Whether it is finite, and near the end of what is computed in or beyond."""
    return np.asarray(np.isfinite(size) & (size > 1 / _least(desc)))


def _backward_measure(of: Callable[..., Array]) -> Callable[..., Array]:
    """A measure of grad, n, g and rstd, in terms of the operands."""

    def measured(
        desc: Any,
        grad: Array,
        x: Array,
        weight: Array | None = None,
        mean: Array | None = None,
        *,
        rstd: Array,
        **_: Array,
    ) -> Array:
        with np.errstate(all="ignore"):
            return np.asarray(of(desc, *_terms(desc, grad, x, weight, mean, rstd)), np.float64)

    return measured


def _over_rows(desc: Any, terms: Array) -> Array:
    return np.asarray(np.abs(terms).sum(axis=tuple(range(len(desc.row_shape)))))


def _along_lost(desc: Any, raw: Array, n: Array, g: Array, r: Array) -> Array:  # noqa: ARG001
    """What is lost on the way to grad_x, as `_lost`: by each product, times what it is multiplied with."""
    means = _mean(desc, np.abs(g * n)) + np.abs(n) * (2 + _mean(desc, np.abs(g)) + _mean(desc, np.abs(n)))
    return np.asarray((1 + r * (2 + means)) * _least(desc))


def _along_overflowing(desc: Any, raw: Array, n: Array, g: Array, r: Array) -> Array:  # noqa: ARG001
    """Whether anything on the way to a row of grad_x is beyond what is computed in."""
    most = np.abs(n).max(axis=_axes(desc), keepdims=True, initial=0)
    sums = (_mean(desc, np.abs(g)) + _mean(desc, np.abs(g * n)) * (1 + most)) * desc.length
    return _beyond(desc, np.maximum(sums, most * np.maximum(1, 1 / r)) + 0 * n)


def _down_overflowing(desc: Any, raw: Array, n: Array, g: Array, r: Array) -> Array:  # noqa: ARG001
    """The same of the sums over rows."""
    return _beyond(desc, _over_rows(desc, np.abs(raw * n) + np.abs(raw) + np.abs(n) * np.maximum(1, 1 / r)))


BACKWARD_MEASURES: dict[str, Callable[..., Array]] = {
    "g_scaled": _backward_measure(lambda desc, raw, n, g, r: np.abs(g) * r),
    "plain_scaled": _backward_measure(lambda desc, raw, n, g, r: _mean(desc, np.abs(g)) * r + 0 * n),
    "along_scaled": _backward_measure(lambda desc, raw, n, g, r: np.abs(n) * r * _mean(desc, np.abs(g * n))),
    "weight_terms": _backward_measure(lambda desc, raw, n, g, r: _over_rows(desc, raw * n)),
    "bias_terms": _backward_measure(lambda desc, raw, n, g, r: _over_rows(desc, raw)),
    "lost": _backward_measure(_along_lost),
    "lost_down": _backward_measure(lambda desc, raw, n, g, r: _over_rows(desc, 1 + np.abs(raw)) * _least(desc)),
    "overflowing": _backward_measure(_along_overflowing),
    "overflowing_down": _backward_measure(_down_overflowing),
    "smallest_normal": lambda desc, **_: np.asarray(
        desc.element.smallest_normal, np.longdouble
    ),  # x's, for every output
}

MEASURES: dict[str, Callable[..., Array]] = {
    "scaled": _measure(_scaled),
    "mean_scaled": _measure(_mean_scaled),
    "mean_squared_scaled": _measure(_mean_squared_scaled),
    "mean_magnitude": _measure(lambda desc, h, mean, rstd, scale: _mean(desc, np.abs(h)).reshape(desc.row_shape)),
    "rstd_mean_squared": _measure(
        lambda desc, h, mean, rstd, scale: (_mean(desc, np.abs(h)) ** 2 * rstd**3).reshape(desc.row_shape)
    ),
    "lost": _measure(_lost),
    "out_of_range": _measure(_out_of_range),
    "row_out_of_range": _measure(lambda desc, *of: np.asarray(_out_of_range(desc, *of).any(axis=_axes(desc)))),
}
