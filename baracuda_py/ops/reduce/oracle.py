"""Reductions and their gradients in float64 (long double for f64), exactly in integers, and the measures that bounds name."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from ...numerics.expression import Precision, Rounded
from ...numerics.rounding import round_to, wide
from ...types import ElementKind

__all__ = ["BACKWARD_MEASURES", "MEASURES", "PAIR_MEASURES", "backward", "pair", "reduce", "side_by_side", "statistic"]

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


def _argmin(rows: Array) -> Array:
    return _argmax(-rows if rows.dtype.kind == "f" else ~rows)


def _numbers(rows: Array) -> Array:
    """The terms, 0 for NaN."""
    return np.asarray(np.where(np.isnan(rows), 0, rows))


def _skipping(desc: Any, rows: Array) -> Array:
    """The terms that a reduction adds up."""
    return _numbers(rows) if desc.row.name in ("nansum", "nanmean") else rows


def _counted(desc: Any, rows: Array) -> Any:
    """How many these are."""
    if desc.row.name == "nanmean":
        return (rows == rows).sum(axis=-1).astype(rows.dtype)
    return rows.dtype.type(desc.extent)


def _norm_power(desc: Any, rows: Array) -> Array:
    p = rows.dtype.type(desc.p)
    return np.asarray((np.abs(rows) ** p).sum(axis=-1) ** (1 / p))


_OPS: dict[str, Callable[[Any, Array], Array]] = {
    "sum": lambda desc, rows: rows.sum(axis=-1),
    "mean": lambda desc, rows: rows.sum(axis=-1) / rows.dtype.type(desc.extent),
    "max": lambda desc, rows: rows.max(axis=-1),
    "min": lambda desc, rows: rows.min(axis=-1),
    "argmax": lambda desc, rows: _argmax(rows),
    "var": _var,
    "logsumexp": lambda desc, rows: _logsumexp(rows),
    "prod": lambda desc, rows: rows.prod(axis=-1),
    "argmin": lambda desc, rows: _argmin(rows),
    "std": lambda desc, rows: np.sqrt(_var(desc, rows)),
    "nansum": lambda desc, rows: _numbers(rows).sum(axis=-1),
    "nanmean": lambda desc, rows: _numbers(rows).sum(axis=-1) / _counted(desc, rows),
    "nanmax": lambda desc, rows: np.fmax.reduce(rows, axis=-1),
    "nanmin": lambda desc, rows: np.fmin.reduce(rows, axis=-1),
    "any": lambda desc, rows: (rows != 0).any(axis=-1),
    "all": lambda desc, rows: (rows != 0).all(axis=-1),
    "count_nonzero": lambda desc, rows: (rows != 0).sum(axis=-1),
    "norm_zero": lambda desc, rows: (rows != 0).sum(axis=-1).astype(rows.dtype),
    "norm_one": lambda desc, rows: np.abs(rows).sum(axis=-1),
    "norm_two": lambda desc, rows: np.sqrt((rows * rows).sum(axis=-1)),
    "norm_power": lambda desc, rows: _norm_power(desc, rows),
    "norm_largest": lambda desc, rows: np.abs(rows).max(axis=-1),
    "norm_smallest": lambda desc, rows: np.abs(rows).min(axis=-1),
}


def reduce(desc: Any, x: Array) -> Array:
    """`desc.name` of x over `desc.axes`, wide."""
    with np.errstate(all="ignore"):
        return np.asarray(_OPS[desc.row.name](desc, _rows(desc, x))).reshape(desc.out_shape)


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
    """Whether the terms' magnitudes, or for var, std and the norm by squares their squares, add up beyond what is computed in;
    for a product, whether a part of it may be beyond that, or below what is normal."""
    if desc.row.name == "prod":
        return _overflowing_product(desc, rows)
    if desc.row.name == "norm_power":
        return _overflowing_powers(desc, rows)
    rows = _skipping(desc, rows)
    return _overflowing_sum(desc, rows, rows * rows if desc.row.name in ("var", "std", "norm_two") else np.abs(rows))


def _overflowing_product(desc: Any, rows: Array) -> Array:
    """Whether a part of the product may be beyond what is computed in, or below what is normal."""
    exponent = 124 if desc.element is not ElementKind.F64 else 1020
    logs = np.where(np.isfinite(rows) & (rows != 0), np.log2(np.abs(rows)), 0)
    return np.asarray(np.maximum(np.maximum(logs, 0).sum(axis=-1), np.maximum(-logs, 0).sum(axis=-1)) > exponent)


def _overflowing_powers(desc: Any, rows: Array) -> Array:
    """Whether a power, their sum or its root is beyond what is computed in, or the sum is so small that powers below what is
    normal are a part of it. In logarithms to the base 2: wide types themselves do not hold every power."""
    most, digits = (124.0, 24) if desc.element is not ElementKind.F64 else (1020.0, 53)
    logs = np.where(np.isfinite(rows) & (rows != 0), np.log2(np.abs(rows)) * desc.p, -np.inf)
    total = logs.max(axis=-1, initial=-np.inf) + math.log2(max(desc.extent, 1))  # at least that of the sum
    small = logs.max(axis=-1, initial=-np.inf) < math.log2(max(desc.extent, 1)) + digits - most
    sized = np.isfinite(total)
    return np.asarray(sized & ((total > most) | small | (np.abs(total / desc.p) > most)))


def _log_powers(desc: Any, rows: Array) -> Array:
    """The result times the mean of |log |x||, weighted by the powers: how far a rounded p moves it."""
    weighted = np.abs(rows) ** rows.dtype.type(desc.p)
    logs = np.where((rows != 0) & np.isfinite(rows), np.abs(np.log(np.abs(rows))), 0)
    total = weighted.sum(axis=-1)
    moved = np.where(total > 0, (weighted * logs).sum(axis=-1) / total, 0)
    return np.asarray(_norm_power(desc, rows) * moved)


def _log_result(desc: Any, rows: Array) -> Array:
    """The result times the magnitude of its logarithm: how far a rounded 1 / p moves it."""
    y = _norm_power(desc, rows)
    return np.asarray(np.where((y > 0) & np.isfinite(y), y * np.abs(np.log(y)), 0))


def _overflowing_sum(desc: Any, rows: Array, sizes: Array) -> Array:
    """Whether the sizes of finite terms add up beyond what is computed in."""
    most = np.longdouble(2) ** (124 if desc.element is not ElementKind.F64 else 1020)
    return np.asarray(np.isfinite(rows).all(axis=-1) & (sizes.sum(axis=-1) > most))


def _spread(desc: Any, rows: Array) -> Array:
    """sqrt(v + m**2), with the correction's count."""
    mean = rows.mean(axis=-1) if desc.extent else np.zeros(rows.shape[:-1])
    return np.asarray(np.sqrt(_var(desc, rows) + mean * mean))


def _spread_mean(desc: Any, rows: Array) -> Array:
    """The mean magnitude, as it moves a deviation of the correction's count."""
    lost = math.sqrt(max(desc.extent, 1) / max(desc.extent - desc.correction, 1))
    return np.asarray(np.abs(rows).sum(axis=-1) / max(desc.extent, 1) * lost)


def _lost_squares(desc: Any, rows: Array) -> Array:
    """The root of what squares lose that are no normal numbers, one each in a norm, in roundoffs."""
    computed = ElementKind.F64 if desc.element is ElementKind.F64 else ElementKind.F32
    terms = desc.extent if desc.row.name == "norm_two" else max(desc.extent, 1) / max(desc.extent - desc.correction, 1)
    lost = math.sqrt(computed.smallest_normal) * math.sqrt(terms / computed.unit_roundoff)
    return np.full(rows.shape[:-1], lost)


MEASURES: dict[str, Callable[..., Array]] = {
    "abs_sum": _measure(lambda desc, rows: np.abs(_skipping(desc, rows)).sum(axis=-1)),
    "abs_mean": _measure(
        lambda desc, rows: np.abs(_skipping(desc, rows)).sum(axis=-1) / np.maximum(_counted(desc, rows), 1)
    ),
    "conditioned": _measure(_conditioned),
    "squared_mean": _measure(lambda desc, rows: (np.abs(rows).sum(axis=-1) / max(desc.extent, 1)) ** 2),
    "expected_shift": _measure(_expected_shift),
    "log_sum": _measure(lambda desc, rows: np.log(_shift(rows)[2])),
    "spread": _measure(_spread),
    "spread_mean": _measure(_spread_mean),
    "lost_squares": _measure(_lost_squares),
    "log_powers": _measure(_log_powers),
    "log_result": _measure(_log_result),
    "magnitude": lambda desc, x: np.abs(reduce(desc, x)).astype(np.float64),
    "one": lambda desc, x: np.ones(()),
    "overflowing": _measure(_overflowing),
}


def pair(desc: Any, x: Array) -> tuple[Array, ...]:
    """Both results of a reduction that has two."""
    return tuple(reduce(desc.alone(output), x) for output in desc.results)


def side_by_side(desc: Any, x: Array) -> Array:
    """Both results in one element, rounded."""
    parts = [round_to(each, desc.element) for each in pair(desc, x)]
    return np.asarray(np.ascontiguousarray(np.stack(parts, axis=-1)).view(desc.layout("out").element.dtype)[..., 0])


def _overflowing_alone(output: str) -> Callable[..., Array]:
    return lambda desc, x: MEASURES["overflowing"](desc.alone(output), x)


PAIR_MEASURES: dict[str, Callable[..., Array]] = {
    **{name: MEASURES[name] for name in ("conditioned", "squared_mean")},
    "abs_mean": lambda desc, x: MEASURES["abs_mean"](desc.alone("mean"), x),
    "overflowing_var": _overflowing_alone("var"),
    "overflowing_mean": _overflowing_alone("mean"),
}


# ---- gradients -----------------------------------------------------------------------------------------------------


def _kept(desc: Any, x: Array) -> Array:
    """One value per row, with extents of 1 along the reduced axes."""
    return np.asarray(x).reshape([1 if a in desc.along else n for a, n in enumerate(desc.shape)])


def _number(desc: Any, name: str) -> Any:
    """A number in the expression, exactly or in long double."""
    count = np.longdouble(max(desc.extent - desc.correction, 0))
    if name == "power":
        return np.longdouble(desc.p) - 1
    return 2 / count if name == "scale" else np.longdouble(desc.extent)


_STATISTICS: dict[str, Callable[[Any, Array], Array]] = {
    "mean": _OPS["mean"],
    "max_ties": lambda desc, rows: (rows == rows.max(axis=-1, keepdims=True)).sum(axis=-1),
    "min_ties": lambda desc, rows: (rows == rows.min(axis=-1, keepdims=True)).sum(axis=-1),
    "nanmax_ties": lambda desc, rows: (rows == np.fmax.reduce(rows, axis=-1, keepdims=True)).sum(axis=-1),
    "nanmin_ties": lambda desc, rows: (rows == np.fmin.reduce(rows, axis=-1, keepdims=True)).sum(axis=-1),
    "largest_ties": lambda desc, rows: (np.abs(rows) == np.abs(rows).max(axis=-1, keepdims=True)).sum(axis=-1),
    "smallest_ties": lambda desc, rows: (np.abs(rows) == np.abs(rows).min(axis=-1, keepdims=True)).sum(axis=-1),
    "valid": lambda desc, rows: (rows == rows).sum(axis=-1),
    "other_factors": lambda desc, rows: _other_factors(rows),
}


def _other_factors(rows: Array) -> Array:
    zero = rows == 0
    nothing = (rows - rows).sum(axis=-1)  # NaN where a term is not finite
    return np.asarray(np.where(zero.sum(axis=-1) > 1, nothing, np.where(zero, 1, rows).prod(axis=-1)))


def statistic(desc: Any, x: Array) -> Array:
    """`desc.name` of the rows of x, wide, which gradients are made of."""
    with np.errstate(all="ignore"):
        return np.asarray(_STATISTICS[desc.name](desc, _rows(desc, x))).reshape(desc.out_shape)


def _named(desc: Any, operands: dict[str, Array]) -> dict[str, Array]:
    """What the names in the expression stand for, wide."""
    found = {desc.called.get(name, name): wide(operands[name], desc.element) for name in desc.read}
    kind = np.longdouble if desc.element is ElementKind.F64 else np.float64
    found |= {called: statistic(of, operands["x"]).astype(kind) for called, of in desc.statistics().items()}
    found = {name: x if name == "x" else _kept(desc, x) for name, x in found.items()}
    return found | {name: np.asarray(_number(desc, name), kind) for name in desc.own.numbers}


def backward(desc: Any, **operands: Array) -> Array:
    """The gradient of x, wide."""
    with np.errstate(all="ignore"):
        return np.broadcast_to(desc.formula.evaluate(_named(desc, operands)), desc.shape).copy()


def _rounded(desc: Any, operands: dict[str, Array]) -> Rounded:
    """The gradient with its error as a kernel computes it, of an exact mean."""
    precision, named, errors = Precision.of(desc.element), _named(desc, operands), {}
    dtype = precision.computed.dtype.type
    for name, number in desc.numbers.items():
        errors[name] = np.abs(_number(desc, name) - dtype(number))
    for name in desc.own.statistics:
        if name not in ("mean", "others"):  # a count
            errors[name] = np.abs(named[name] - named[name].astype(dtype))
    return desc.formula.rounded(named, precision, errors)  # type: ignore[no-any-return]


def _propagated(desc: Any, **operands: Array) -> Array:
    """In roundoffs of the type computed in."""
    unit = Precision.of(desc.element).computed.unit_roundoff
    return np.broadcast_to(_rounded(desc, operands).error / unit, desc.shape)


def _moved_mean(desc: Any, **operands: Array) -> Array:
    """What an error of the mean of |x| is multiplied by, times that."""
    with np.errstate(all="ignore"):
        named = _named(desc, operands)
        size = np.abs(_rows(desc, operands["x"])).sum(axis=-1) / max(desc.extent, 1)
        factor = np.abs(named["grad"] * named["scale"])
        if "y" in named:  # std's
            factor = np.where(named["y"] == 0, 0, factor / (2 * np.abs(named["y"])))
        return np.broadcast_to(factor * _kept(desc, size), desc.shape)


def _moved_factors(desc: Any, **operands: Array) -> Array:
    """What an error of the product of the other factors is multiplied by, times that: where x is 0."""
    with np.errstate(all="ignore"):
        named = _named(desc, operands)
        moved = np.abs(named["grad"] * named["others"])
        return np.broadcast_to(np.where(named["x"] == 0, moved, 0), desc.shape)


def _overflowing_parts(desc: Any, **operands: Array) -> Array:
    """Whether an intermediate result may leave the range of the type computed in."""
    beyond = np.broadcast_to(_rounded(desc, operands).beyond, desc.shape)
    with np.errstate(all="ignore"):
        rows = _rows(desc, operands["x"])
        if "others" in desc.own.statistics:
            return beyond | _kept(desc, _overflowing_product(desc, rows))
        if "mean" not in desc.own.statistics:
            return beyond
        return beyond | _kept(desc, _overflowing_sum(desc, rows, np.abs(rows)))


BACKWARD_MEASURES: dict[str, Callable[..., Array]] = {
    "propagated": _propagated,
    "moved_factors": _moved_factors,
    "moved_mean": _moved_mean,
    "overflowing_parts": _overflowing_parts,
}
