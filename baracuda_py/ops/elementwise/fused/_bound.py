"""The bound of a graph's rounding: the rows' own, carried from row to row.

Where a row has an expression in `EXPRESSIONS`, `numerics.expression` carries the errors of its arguments. Any other row's are
carried to first order by the derivatives that the row states for its gradient, taken at the ends and in the middle of what an
argument may be; a row that states none has no bound where an argument has an error.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from functools import cache, partial
from typing import Any, TypeAlias

import numpy as np

from ....numerics.expression import Expression, Function, Precision, Rounded
from ....types import ElementKind
from .._row import ROWS, Row
from ..backward.formula import expression_of
from . import oracle
from ._kinds import Step, Typed
from .rows.candidate import additions
from .rows.statistics import OWN

__all__ = ["MEASURES", "unbounded"]

Array: TypeAlias = "np.ndarray[Any, Any]"
LETTERS = ("a", "b", "c")
EXPRESSIONS: Mapping[str, str] = {
    "add": "a + b", "subtract": "a - b", "multiply": "a * b", "divide": "a / b", "pow": "a ** b", "neg": "-a", "abs": "abs(a)",
    "sign": "sign(a)", "square": "a * a", "maximum": "maximum(a, b)", "minimum": "minimum(a, b)", "relu": "maximum(a, 0)",
    "clamp": "minimum(maximum(a, b), c)", "sqrt": "sqrt(a)", "exp": "exp(a)", "log": "log(a)", "tanh": "tanh(a)",
    "sigmoid": "sigmoid(a)", "erf": "erf(a)", "less": "a < b", "less_equal": "a <= b", "greater": "a > b",
    "greater_equal": "a >= b", "equal": "a == b", "not_equal": "a != b",
}  # fmt: skip
MONOTONE = ("floor", "ceil", "trunc", "round", "step")  # without a derivative: the ends of an argument bound the result


def _bounded(row: Row) -> bool:
    """Whether errors of the row's arguments are carried."""
    if row.name in OWN:
        return True
    derived = all(argument in row.gradient for argument in row.arguments if argument not in row.integers)
    return row.name in (*EXPRESSIONS, *MONOTONE) or row.result == "given" or row.moves or derived or bool(row.formula)


def unbounded(typed: Typed) -> tuple[str, ...]:
    """The rows of the graph that have no finite bound, because they take what is rounded and state no derivative."""
    inexact, found = set[str](), dict[str, None]()
    for place, step in enumerate(typed.steps):
        row = step.row
        rounded = any(a in inexact for a in step.args)
        if rounded and not _bounded(row):
            found[row.name] = None
        computes = step.computed.type in ("float", "double") and not row.moves and row.result not in ("bool", "given")
        if rounded or (computes and (max(row.ulps) > 0 or row.formula or row.name in ("sum", "mean"))):
            inexact.add(f"t{place + 1}")
    return tuple(found)


def _rounded(desc: Any, output: str, arrays: Mapping[str, Array]) -> Rounded:
    """An output with the error of its computation."""
    values, typed = oracle.inputs_of(desc, arrays), desc.typed
    held: dict[str, Rounded] = {}
    with np.errstate(all="ignore"):
        for place, step in enumerate(typed.steps):
            args = [oracle.argument(typed, step, at, values, held) for at in range(len(step.args))]
            made = _of_statistic(desc, step, args) if step.row.name in OWN else _carried(step, args)
            held[f"t{place + 1}"] = made
    name = typed.graph.outputs[desc.outputs.index(output)]
    made = held[name] if name in held else oracle.exact(values[name])
    if typed.kind.is_float:
        return made
    return made._replace(beyond=made.beyond | (np.asarray(made.error) != 0))  # an integer or a bool that may be another


def _carried(step: Step, args: list[Rounded]) -> Rounded:
    """The result of a row, from arguments that are known within their errors."""
    row = step.row
    value = oracle.computed(step, [arg.value for arg in args])
    beyond = np.logical_or.reduce(np.broadcast_arrays(*(arg.beyond for arg in args)))
    doubtful = np.logical_or.reduce(np.broadcast_arrays(*(np.asarray(arg.error) != 0 for arg in args)))
    if step.to is not None:
        return _of_cast(step, step.to, args[0], value)
    if row.moves and step.kind.is_float:
        chosen = np.where(args[0].value, args[1].beyond, args[2].beyond) | args[0].beyond
        error = np.asarray(_of_expression("where(a, b, c)", step, args).error)
        return Rounded(value, error, chosen | (np.asarray(args[0].error) != 0) & beyond)
    computes = step.computed.type in ("float", "double")
    if computes and (text := EXPRESSIONS.get(row.name, row.formula)):
        made = _of_expression(text, step, args)
        return Rounded(value, np.asarray(made.error), made.beyond | beyond)
    if not computes or not step.kind.is_float:
        return Rounded(value, np.zeros_like(value, np.float64), beyond | doubtful)
    made = _of_expression("", step, args)
    if row.name in MONOTONE or not doubtful.any():
        return Rounded(value, np.asarray(made.error), made.beyond | beyond)
    error, unknown = _moved(row, value, args)
    return Rounded(value, made.error + error, made.beyond | beyond | unknown)


def _of_statistic(desc: Any, step: Step, args: list[Rounded]) -> Rounded:
    """A statistic of rows. A term of a sum goes through `additions` at most (Higham, section 4.2), and an extremum is one of the
    terms, within the largest of their errors."""
    arg, over = args[0], partial(oracle.called, step.row)
    error, size = np.broadcast_to(arg.error, arg.value.shape), np.abs(arg.value)
    value, axes, beyond = over(arg.value, args[1].value), args[1].value, np.broadcast_to(arg.beyond, arg.value.shape)
    if step.row.name == "squeeze":
        return Rounded(value, over(error, axes), over(beyond, axes))
    spread = partial(oracle.called, OWN["max"])
    beyond = spread(beyond.astype(np.float64), axes) > 0
    if step.row.name in ("max", "min"):
        return Rounded(value, spread(error, axes), beyond)
    kind = ElementKind.F64 if step.computed.type == "double" else ElementKind.F32
    count, total = (
        additions(desc) + (step.row.name == "mean"),
        np.sum(size + error, axis=_axes(arg, axes), keepdims=True),
    )
    grown = 1.01 * count * kind.unit_roundoff * over((size + error).astype(np.float64), axes)
    lost = np.where(np.isfinite(value), over(error, axes) + grown, 0.0)
    return Rounded(value, lost, beyond | (np.isfinite(value) & (total > Precision(kind, kind).largest)))


def _axes(arg: Rounded, axes: Any) -> tuple[int, ...]:
    return tuple(range(-(int(axes) or arg.value.ndim), 0))


def _of_expression(text: str, step: Step, args: list[Rounded]) -> Rounded:
    """What `numerics.expression` makes of one row: of its expression, or of the row as a function."""
    made = expression_of(text) if text else _function(step.row.name)
    letters = (*LETTERS[: len(step.row.arguments)], *step.row.params)
    names = letters if text else tuple(f"a{place}" for place in range(len(args)))
    kind = ElementKind.F64 if step.computed.type == "double" else ElementKind.F32
    precision = Precision(kind, step.kind if step.kind.is_float else kind)
    values = {name: np.asarray(arg.value) for name, arg in zip(names, args)}
    return made.rounded(values, precision, {name: np.asarray(arg.error) for name, arg in zip(names, args)})


@cache
def _function(op: str) -> Expression:
    """A row as a function of its arguments and params."""
    row = ROWS[op]
    names = [f"a{place}" for place in range(len(row.arguments) + len(row.params))]
    of = partial(oracle.called, row)
    return Expression.of(f"{op}({', '.join(names)})", {op: Function("", of, *row.ulps)})


def _moved(row: Row, value: Array, args: list[Rounded]) -> tuple[Array, Array]:
    """The errors of the arguments times the derivatives, the largest at the corners and in the middle; and where an argument with
    an error has no derivative. Those of params are in the row's own corners."""
    names = (*row.arguments, *row.params)
    total, unknown = np.zeros_like(value, np.float64), np.zeros_like(value, np.bool_)
    for name, arg in zip(row.arguments, args):
        doubtful = np.asarray(arg.error) != 0
        if name not in row.gradient:
            unknown = unknown | doubtful
        elif doubtful.any():
            steepest: Array = np.zeros_like(value, np.float64)
            for signs in itertools.product((-1, 0, 1), repeat=len(args)):
                at = {n: np.asarray(x.value + s * x.error) for n, x, s in zip(names, args, signs)}
                at |= {"out": oracle.called(row, *at.values()), "grad": np.ones_like(value)}
                found = expression_of(row.gradient[name]).evaluate(at)
                steepest = np.fmax(steepest, np.abs(found).astype(np.float64))
            total = total + np.where(doubtful, steepest * arg.error, 0.0)
    return total, unknown


def _of_cast(step: Step, to: ElementKind, arg: Rounded, value: Array) -> Rounded:
    """A cast is monotone, and rounds by itself: its error is what the ends of the argument make of it."""
    of = step.kinds[0]
    if of is ElementKind.BOOL:
        return Rounded(value, np.zeros_like(value, np.float64), arg.beyond | (np.asarray(arg.error) != 0))
    if not np.any(arg.error):
        return Rounded(value, np.zeros_like(value, np.float64), arg.beyond)
    low, high = (oracle.cast_to(np.asarray(arg.value + sign * arg.error), of, to) for sign in (-1, 1))
    if not step.kind.is_float:
        moved = (low != value) | (high != value)
        return Rounded(value, np.zeros_like(value, np.float64), arg.beyond | moved)
    error = np.fmax(np.abs(low - value), np.abs(high - value)).astype(np.float64)
    left = np.isfinite(value) & ~np.isfinite(error)
    return Rounded(value, np.where(value == low, np.where(value == high, 0.0, error), error), arg.beyond | left)


def _error(desc: Any, output: str, **arrays: Array) -> Array:
    """In roundoffs of the type computed in."""
    return np.broadcast_to(_rounded(desc, output, arrays).error / desc.accumulator.unit_roundoff, desc.shape_of(output))


def _beyond(desc: Any, output: str, **arrays: Array) -> Array:
    return np.broadcast_to(_rounded(desc, output, arrays).beyond, desc.shape_of(output))


# Of each output: the propagated error; and whether an intermediate result may leave the range of the type computed in, an integer
# or a bool may come out otherwise, or (the name where that is so) a row without a bound takes what is rounded.
MEASURES: dict[str, Any] = {"propagated": _error, "intermediate_overflows": _beyond, "parts_without_a_bound": _beyond}
