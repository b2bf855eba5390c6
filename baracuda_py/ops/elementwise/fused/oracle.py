"""A graph in float64 (long double for f64): each row's oracle, one after another; integers exactly."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np

from ....numerics.expression import Rounded
from ....numerics.rounding import round_to
from ....types import ElementKind
from .. import oracle

__all__ = ["argument", "called", "cast_to", "computed", "evaluate", "exact", "inputs_of"]

Array: TypeAlias = "np.ndarray[Any, Any]"


def evaluate(desc: Any, **arrays: Array) -> Any:
    """The outputs of a problem, of the common shape."""
    values = inputs_of(desc, arrays)
    typed, held = desc.typed, dict[str, Rounded]()
    with np.errstate(all="ignore"):
        for place, step in enumerate(typed.steps):
            args = [argument(typed, step, at, values, held) for at in range(len(step.args))]
            held[f"t{place + 1}"] = exact(computed(step, [arg.value for arg in args]))
    found = [held[name].value if name in held else values[name] for name in typed.graph.outputs]
    shapes = map(desc.shape_of, desc.outputs)
    shaped = tuple(np.broadcast_to(np.asarray(x), shape).copy() for x, shape in zip(found, shapes))
    return shaped if len(shaped) > 1 else shaped[0]


def inputs_of(desc: Any, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """The inputs by name: floats wide, integers unchanged, numbers as given."""
    numbers = dict(zip(desc.numbered, desc.numbers or ()))
    found = {name: arrays[name] if name in arrays else np.asarray(numbers[name]) for name in desc.inputs}
    with np.errstate(invalid="ignore"):  # signalling NaNs
        return {name: x if x.dtype.kind in "iub" else x.astype(_widest(desc.typed)) for name, x in found.items()}


def _widest(typed: Any) -> type[np.floating[Any]]:
    wide = typed.carrier == "double" or any(step.computed.type == "double" for step in typed.steps)
    return np.longdouble if wide else np.float64


def exact(value: Any) -> Rounded:
    value = np.asarray(value)
    return Rounded(value, np.zeros_like(value, np.float64), np.bool_(False))


def argument(typed: Any, step: Any, place: int, values: Mapping[str, Array], held: Mapping[str, Rounded]) -> Rounded:
    """An argument of a node in the type that its row computes in; a number is rounded to that."""
    wanted, given = step.computed.type, step.args[place]
    if isinstance(given, str) and given in held:
        found = held[given]
    else:
        found = exact(values[given] if isinstance(given, str) else given)
    kind = step.kinds[place]
    if wanted not in ("float", "double") or kind is ElementKind.BOOL:
        integer = found.value.dtype.kind in "iu" and kind.is_integer
        return found._replace(value=found.value.astype(kind.dtype)) if integer else found
    computed = np.float32 if wanted == "float" else np.float64
    value = found.value
    if value.dtype.kind in "iub":  # as the kernel converts it
        value = value.astype(computed)
    value = value.astype(_widest(typed))
    named = isinstance(given, str) and (given not in values or typed.weak[int(given[1:]) - 1] is None)
    error = found.error if named else np.abs(value - value.astype(computed)).astype(np.float64)
    return found._replace(value=value, error=np.where(np.isfinite(error), error, 0.0))


def computed(step: Any, args: list[Array]) -> Array:
    """The result of a row."""
    if step.to is not None:
        return cast_to(args[0], step.kinds[0], step.to)
    made = _native(step, args) if step.row.native else called(step.row, *args)
    return made if step.kind.is_float or step.kind is ElementKind.BOOL else made.astype(step.kind.dtype)


def _native(step: Any, args: list[Array]) -> Array:
    """Of a row that is exact in the type computed in."""
    kind = step.kind
    if step.row.result == "bool":
        kind = ElementKind.F64 if step.computed.type == "double" else ElementKind.F32
    count = len(step.row.arguments)
    return oracle.native(step.row, kind, args[:count], args[count:])


def called(row: Any, *args: Array) -> Array:
    """A row's oracle, of its arguments and params."""
    count = len(row.arguments)
    return np.asarray(row.oracle(*args[:count], **dict(zip(row.params, args[count:]))))


def cast_to(x: Array, of: ElementKind, to: ElementKind) -> Array:
    """A cast, which does round: floats stay wide."""
    if to is ElementKind.BOOL or (of.is_float and to.is_integer):
        return oracle.cast(x.astype(np.float64) if of.is_float else x, to)
    if to.is_integer:
        return x.astype(to.dtype)
    if x.dtype.kind in "iub":
        return np.asarray(oracle.cast(x, to)).astype(np.float64)
    narrower = to.digits < of.digits or to.bits < of.bits or (of.bits == to.bits and of is not to)
    if not narrower and of is not to:
        return x
    return round_to(x.astype(np.float64), to).astype(x.dtype)  # NumPy rounds long double to f16 by way of f32
