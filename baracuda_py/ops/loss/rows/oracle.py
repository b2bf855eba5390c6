"""Losses of rows and their gradients in float64 (long double for f64), and the measures that their bounds name.

The errors of what is added up along a row, of its sum, and of what becomes of the sums are carried from one to the next, each
exact value at hand (`numerics.expression`). A sum of n terms errs by its depth times sum|terms|, whatever its order (Higham,
section 4.2).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from ....numerics.expression import Precision, Rounded
from ....numerics.rounding import wide, wide_dtype

__all__ = ["MEASURES", "evaluate"]

Array: TypeAlias = np.ndarray[Any, Any]


def _numbers(desc: Any) -> dict[str, Any]:
    """What the kernel takes as numbers of the type that it computes in."""
    with np.errstate(all="ignore"):
        made = wide_dtype(desc.element)
        held = {name: made(getattr(desc, name)) for name in ("margin", "eps")}
        return held | {"scale": made(1) / made(desc.divisor), "width": made(desc.shape[-1])}


def _wrong(desc: Any, target: Array) -> Array:
    labels = np.asarray(target, np.int64).reshape(-1, 1)
    return np.asarray((labels < 0) | (labels >= desc.shape[-1]))


def _values(desc: Any, arrays: dict[str, Array]) -> dict[str, Array]:
    """What the expressions name, wide, with an axis of rows and one of columns."""
    columns = (-1, desc.shape[-1])
    found = {name: np.asarray(x) for name, x in _numbers(desc).items()}
    found |= {name: wide(arrays[name], desc.element).reshape(columns) for name in desc.columns}
    if "grad" in arrays:
        found["grad"] = wide(arrays["grad"], desc.element).reshape(-1, 1)
    if desc.row.target == "number":
        found["target"] = wide(arrays["target"], desc.element).reshape(-1, 1)
    if desc.labelled:
        labels, wrong = np.asarray(arrays["target"], np.int64).reshape(-1, 1), _wrong(desc, arrays["target"])
        label, x = np.where(wrong, 0, labels), found[desc.columns[0]]
        weights = wide(arrays.get("weight", np.ones(desc.shape[-1])), desc.element)
        found["own"] = np.where(wrong, 0, np.take_along_axis(x, label, 1))
        found["weight"] = np.where(wrong, np.nan, weights[label])
        found["here"] = (np.arange(desc.shape[-1]) == labels).astype(x.dtype)
    return found


def _reduced(desc: Any, x: Array) -> Array:
    """Of each row, or of each column in a gradient, as the result has it."""
    if desc.gradient:
        return np.array(np.broadcast_to(x, (desc.count, desc.shape[-1]))).reshape(desc.shape)
    rows = np.array(np.broadcast_to(x, (desc.count, 1)))
    if desc.reduction == "none":
        return rows.reshape(desc.row_shape)
    with np.errstate(all="ignore"):
        return np.asarray(rows.sum() / np.asarray(desc.divisor, rows.dtype))


def evaluate(desc: Any, **arrays: Array) -> Any:
    """The losses, or their sum, or the gradients; and the status: in the order of outputs."""
    with np.errstate(all="ignore"):
        values = _values(desc, arrays)
        values |= {name: _along(desc, one.evaluate(values)) for name, one in desc.sums.items()}
        found = {name: _reduced(desc, one.evaluate(values)) for name, one in desc.expressions.items()}
    if desc.labelled:
        found["status"] = np.asarray(_wrong(desc, arrays["target"]).any(), np.int32)
    written = tuple(found[operand.name] for operand in desc.operands if operand.written)
    return written if len(written) > 1 else written[0]


def _along(desc: Any, terms: Array) -> Array:
    """The sums along rows."""
    return np.asarray(np.broadcast_to(terms, (desc.count, desc.shape[-1])).sum(axis=1, keepdims=True))


# ---- measures ------------------------------------------------------------------------------------------------------


def _summed(desc: Any, terms: Rounded, precision: Precision) -> Rounded:
    """A sum along each row, with what its terms and its additions err by."""
    total, size = _along(desc, terms.value), _along(desc, terms.size)
    error = _along(desc, terms.error) + (desc.depth + 1) * float(precision.computed.unit_roundoff) * size
    left = np.isfinite(total) & ~(size <= precision.largest / 2)
    return Rounded(total, np.where(np.isfinite(total), error, 0), (_along(desc, terms.beyond) > 0) | left)


def _measure(of: Callable[[Any, Rounded], Array]) -> Callable[..., Array]:
    """A measure of the exact value of a result, its error, and whether a part of it overflows."""

    def measured(desc: Any, *, output: str, **arrays: Array) -> Array:
        within, precision, values = Precision.of(desc.computed), Precision.of(desc.result), _values(desc, arrays)
        rounded = precision.computed.dtype.type
        with np.errstate(all="ignore"):
            errors = {n: np.abs(values[n] - values[n].dtype.type(rounded(values[n]))) for n in _numbers(desc)}
            sums = {n: _summed(desc, one.rounded(values, within, errors), within) for n, one in desc.sums.items()}
            values, errors = (
                values | {n: one.value for n, one in sums.items()},
                errors | {n: one.error for n, one in sums.items()},
            )
            found = desc.expressions[output].rounded(values, precision, errors)
            beyond = found.beyond
            for one in sums.values():
                beyond = beyond | one.beyond
            return of(desc, found._replace(beyond=beyond))

    return measured


def _unit(desc: Any) -> float:
    return float(Precision.of(desc.result).computed.unit_roundoff)


def _overflowing(desc: Any, one: Rounded) -> Array:
    """Whether a part leaves the range of what is computed in, or the sum of the losses does."""
    if desc.gradient or desc.reduction == "none":
        return _reduced(desc, one.beyond)
    found, total = np.broadcast_to(one.beyond, (desc.count, 1)), np.broadcast_to(one.size, (desc.count, 1)).sum()
    return np.asarray(found.any() | (np.isfinite(total) & (total > Precision.of(desc.result).largest / 2)))


MEASURES: dict[str, Callable[..., Array]] = {
    "propagated": _measure(lambda desc, one: _reduced(desc, one.error / _unit(desc))),
    "losses": _measure(lambda desc, one: _reduced(desc, one.size)),
    "overflowing": _measure(_overflowing),
}
