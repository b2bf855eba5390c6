"""Reductions in float64 (long double for f64), exactly in integers, and the measures that their bounds name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from ...numerics.rounding import wide
from ...types import ElementKind

__all__ = ["MEASURES", "reduce"]

Array: TypeAlias = np.ndarray[Any, Any]


def _rows(desc: Any, x: Array) -> Array:
    """x with the terms of a result along the last axis, in C order of the reduced axes, wide."""
    x = np.asarray(x)
    kept = [a for a in range(x.ndim) if a not in desc.along]
    rows = x.transpose([*kept, *desc.along]).reshape([x.shape[a] for a in kept] + [desc.extent])
    return wide(rows, desc.element)


def _shift(rows: Array) -> tuple[Array, Array, Array]:
    """The maximum, the terms less that (and less 0 where it is -inf), and the sum of their exponentials."""
    most = rows.max(axis=-1, keepdims=True, initial=-np.inf)
    shift = rows - np.where(np.isneginf(most), 0, most)
    return most[..., 0], shift, np.exp(shift).sum(axis=-1)


def _argmax(rows: Array) -> Array:
    if rows.dtype.kind != "f":
        return np.asarray(np.argmax(rows, axis=-1))
    nan = np.isnan(rows)
    return np.asarray(
        np.where(nan.any(axis=-1), np.argmax(nan, axis=-1), np.argmax(np.where(nan, -np.inf, rows), axis=-1))
    )


def _var(desc: Any, rows: Array) -> Array:
    n = rows.dtype.type(desc.extent)
    deviation = rows - rows.sum(axis=-1, keepdims=True) / n
    return np.asarray((deviation * deviation).sum(axis=-1) / rows.dtype.type(max(desc.extent - desc.correction, 0)))


def _logsumexp(rows: Array) -> Array:
    most, shift, _ = _shift(rows)
    if not rows.shape[-1]:
        return np.asarray(np.full(most.shape, -np.inf, most.dtype))
    at, terms = np.expand_dims(shift.argmax(axis=-1), -1), np.exp(shift)
    first = np.take_along_axis(terms, at, -1)[..., 0]  # 1, but in a row of -inf alone, or one with NaN
    np.put_along_axis(terms, at, 0, -1)
    return np.asarray(np.where(np.isposinf(most), most, most + np.log1p(terms.sum(axis=-1) + (first - 1))))


_OPS: dict[str, Callable[[Any, Array], Array]] = {
    "sum": lambda desc, rows: rows.sum(axis=-1),
    "mean": lambda desc, rows: rows.sum(axis=-1) / rows.dtype.type(desc.extent),
    "max": lambda desc, rows: rows.max(axis=-1),
    "min": lambda desc, rows: rows.min(axis=-1),
    "argmax": lambda desc, rows: _argmax(rows),
    "var": _var,
    "logsumexp": lambda desc, rows: _logsumexp(rows),
}


def reduce(desc: Any, x: Array) -> Array:
    """`desc.name` of x over `desc.axes`, wide."""
    with np.errstate(all="ignore"):
        return np.asarray(_OPS[desc.name](desc, _rows(desc, x))).reshape(desc.out_shape)


# ---- measures ------------------------------------------------------------------------------------------------------


def _measure(of: Callable[[Any, Array], Array]) -> Callable[..., Array]:
    def measured(desc: Any, x: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.asarray(of(desc, _rows(desc, x)), np.float64).reshape(desc.out_shape)

    return measured


def _conditioned(desc: Any, rows: Array) -> Array:
    """v sqrt(1 + m**2 / v), with the correction's count."""
    var = _var(desc, rows)
    mean = rows.mean(axis=-1) if desc.extent else np.zeros(rows.shape[:-1])
    return np.asarray(np.sqrt(var * var + mean * mean * var))


def _expected_shift(desc: Any, rows: Array) -> Array:  # noqa: ARG001
    _, shift, total = _shift(rows)
    p = np.exp(shift) / total[..., None]
    return np.asarray(np.where(p > 0, p * np.abs(shift), 0).sum(axis=-1))


def _overflowing(desc: Any, rows: Array) -> Array:
    """Whether the terms' magnitudes, or for var their squares, add up beyond what is computed in."""
    most = 2.0**124 if desc.element is not ElementKind.F64 else np.longdouble(2) ** 1020
    sizes = rows * rows if desc.name == "var" else np.abs(rows)
    return np.asarray(np.isfinite(rows).all(axis=-1) & (sizes.sum(axis=-1) > most))


MEASURES: dict[str, Callable[..., Array]] = {
    "abs_sum": _measure(lambda desc, rows: np.abs(rows).sum(axis=-1)),
    "abs_mean": _measure(lambda desc, rows: np.abs(rows).sum(axis=-1) / max(desc.extent, 1)),
    "conditioned": _measure(_conditioned),
    "squared_mean": _measure(lambda desc, rows: (np.abs(rows).sum(axis=-1) / max(desc.extent, 1)) ** 2),
    "expected_shift": _measure(_expected_shift),
    "log_sum": _measure(lambda desc, rows: np.log(_shift(rows)[2])),
    "one": lambda desc, x: np.ones(()),
    "overflowing": _measure(_overflowing),
}
