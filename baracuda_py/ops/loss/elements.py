"""Losses of elements and their gradients in float64 (long double for f64), and the measures that their bounds name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from ...numerics.expression import Precision, Rounded
from ...numerics.rounding import wide, wide_dtype

__all__ = ["MEASURES", "evaluate"]

Array: TypeAlias = np.ndarray[Any, Any]


NUMBERS = ("beta", "delta", "margin", "eps")


def _values(desc: Any, arrays: dict[str, Array]) -> dict[str, Array]:
    """What the expressions name, wide."""
    made = wide_dtype(desc.element)
    with np.errstate(all="ignore"):
        numbers = {name: made(getattr(desc, name)) for name in NUMBERS} | {"scale": made(1) / made(desc.divisor)}
    held = {name: np.asarray(x, made) for name, x in numbers.items()}
    return held | {name: wide(x, desc.element) for name, x in arrays.items()}


def _reduced(desc: Any, x: Array) -> Array:
    if desc.gradient or desc.reduction == "none":
        return np.array(np.broadcast_to(x, desc.shape))
    with np.errstate(all="ignore"):
        return np.asarray(np.broadcast_to(x, desc.shape).sum() / np.asarray(desc.divisor, x.dtype))


def evaluate(desc: Any, **arrays: Array) -> Any:
    """The losses, or their sum; the gradients, in the order of outputs."""
    with np.errstate(all="ignore"):
        values = _values(desc, arrays)
        found = {name: _reduced(desc, one.evaluate(values)) for name, one in desc.expressions.items()}
    written = tuple(found[operand.name] for operand in desc.operands if operand.written)
    return written if len(written) > 1 else written[0]


def _measure(of: Callable[[Any, Rounded], Array]) -> Callable[..., Array]:
    """A measure of the exact value of an expression, its error, and whether a part of it overflows."""

    def measured(desc: Any, *, output: str, **arrays: Array) -> Array:
        precision, values = Precision.of(desc.result), _values(desc, arrays)
        computed = precision.computed.dtype.type
        with np.errstate(all="ignore"):
            errors = {n: np.abs(values[n] - values[n].dtype.type(computed(values[n]))) for n in (*NUMBERS, "scale")}
            return of(desc, desc.expressions[output].rounded(values, precision, errors))

    return measured


def _unit(desc: Any) -> float:
    return float(Precision.of(desc.result).computed.unit_roundoff)


def _overflowing(desc: Any, one: Rounded) -> Array:
    """Whether a part leaves the range of what is computed in, or the sum of the losses does."""
    found = np.broadcast_to(one.beyond, desc.shape)
    if desc.gradient or desc.reduction == "none":
        return found
    total = np.broadcast_to(one.size, desc.shape).sum()
    return np.asarray(found.any() | (np.isfinite(total) & (total > Precision.of(desc.result).largest / 2)))


MEASURES: dict[str, Callable[..., Array]] = {
    "propagated": _measure(lambda desc, one: _reduced(desc, one.error / _unit(desc))),
    "losses": _measure(lambda desc, one: _reduced(desc, one.size)),
    "overflowing": _measure(_overflowing),
}
