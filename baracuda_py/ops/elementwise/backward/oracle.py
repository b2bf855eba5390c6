"""Gradients of elementwise functions in float64 (long double for f64), and the measures that their bounds name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

from ....numerics.expression import Precision, Rounded
from ....types import ElementKind
from .. import oracle

__all__ = ["MEASURES", "evaluate"]

Array: TypeAlias = "np.ndarray[Any, Any]"


def _named(desc: Any, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Inputs and params by the names that expressions have for them."""
    return {**oracle.wide_inputs(desc, arrays), **oracle.params_of(desc)}


def evaluate(desc: Any, **arrays: Array) -> Any:
    """The gradients of a problem's outputs, of the common shape."""
    values, wide = _named(desc, arrays), np.longdouble if desc.kind_of("out") is ElementKind.F64 else np.float64
    found = [desc.row.formulas[name].evaluate(values) for name in desc.outputs]
    shaped = tuple(np.broadcast_to(np.asarray(x, wide), desc.out_shape).copy() for x in found)
    return shaped if len(shaped) > 1 else shaped[0]


def _rounded(desc: Any, output: str, arrays: Mapping[str, Array]) -> Rounded:
    """An output with its error as a kernel computes it, which takes the params in the type that it computes in."""
    precision = Precision.of(desc.kind_of("out"))
    params = oracle.params_of(desc)
    errors = {name: np.abs(x - np.float64(precision.computed.dtype.type(x))) for name, x in params.items()}
    return desc.row.formulas[output].rounded(_named(desc, arrays), precision, errors)  # type: ignore[no-any-return]


def _error(desc: Any, output: str, **arrays: Array) -> Array:
    """In roundoffs of the type computed in."""
    unit = Precision.of(desc.kind_of("out")).computed.unit_roundoff
    return np.broadcast_to(_rounded(desc, output, arrays).error / unit, desc.out_shape)


def _beyond(desc: Any, output: str, **arrays: Array) -> Array:
    return np.broadcast_to(_rounded(desc, output, arrays).beyond, desc.out_shape)


# Of each output: the propagated error; whether an intermediate result may leave the range of the type computed in.
MEASURES: dict[str, Callable[..., Array]] = {
    "propagated": _error,
    "intermediate_overflows": _beyond,
}
