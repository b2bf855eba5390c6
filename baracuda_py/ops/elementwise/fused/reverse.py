"""Differentiation of a graph in reverse mode: the gradients of its inputs, as values of a graph that is built."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ....numerics.expression import EVALUATED, PI, parse
from ....numerics.expression import Node as Part
from ....tensor.axes import broadcast_shapes
from ....types import ElementKind, UnsupportedError
from .._row import ROWS
from ._kinds import Input, Step, Typed, register_of
from .rows.statistics import OWN, REDUCERS
from .trace import Builder, Traced

__all__ = ["Problem", "Reverse"]

Ints: TypeAlias = tuple[int, ...]
ROW_OF = {
    "+": "add", "-": "subtract", "*": "multiply", "/": "divide", "<": "less", "<=": "less_equal", ">": "greater",
    ">=": "greater_equal", "==": "equal", "!=": "not_equal",
}  # fmt: skip
OF_BOOLS: Mapping[str, Callable[[Any, Any], Any]] = {  # as arguments of where
    "&": lambda a, b: (a, b, False),
    "|": lambda a, b: (a, True, b),
}
# What changes nothing on the left and on the right of an operator.
NEUTRAL: Mapping[str, tuple[float | None, float]] = {"+": (0, 0), "*": (1, 1), "/": (None, 1), "-": (None, 0)}
WITHOUT = {"phi": lambda part: _phi(part.args[0])}  # functions of expressions that are no rows


class Problem(NamedTuple):
    """The shapes of a function's inputs and results, where there are statistics of rows: of the last `axes` of `whole`, the
    common shape."""

    inputs: tuple[Ints, ...]
    results: tuple[Ints, ...]
    whole: Ints
    axes: int

    @property
    def given(self) -> tuple[Ints, ...]:
        """The shapes of the inputs and of the gradients of results, which have all axes."""
        rows = (self.single if shape != self.whole else shape for shape in self.results)
        return (*self.inputs, *rows)

    @property
    def single(self) -> Ints:
        """The shape of what a row has once."""
        return (*self.whole[: -self.axes], *(1,) * self.axes)

    @property
    def length(self) -> int:
        return math.prod(self.whole[-self.axes :])

    def is_single(self, shape: Ints) -> bool:
        return all(n == 1 for n in shape[-self.axes :])


class Reverse:
    """One pass over a graph from its results to its inputs."""

    def __init__(
        self, typed: Typed, inputs: tuple[Input, ...], wanted: frozenset[str], problem: Problem | None
    ) -> None:
        graph = typed.graph
        self.typed, self.wanted, self.problem = typed, wanted, problem
        self.builder = Builder((*inputs, *(typed.kind for _ in graph.outputs)))
        self._shapes = dict(
            zip((f"x{i + 1}" for i in range(len(self.builder.typing.inputs))), problem.given if problem else ())
        )
        self.values: dict[str, Traced] = {name: self.builder.input(place) for place, name in enumerate(graph.names)}
        self.adjoints: dict[str, Traced] = {}
        self.reached = set(wanted)  # what depends on a wanted input by floats
        for place, (node, step) in enumerate(zip(graph.nodes, typed.steps)):
            args: list[Any] = [self.values.get(a, a) if isinstance(a, str) else a for a in node.args]
            self.values[f"t{place + 1}"] = args[0] if node.op == "squeeze" else self._add(node.op, args, node.to)
            if step.kind.is_float and self.reached.intersection(a for a in node.args if isinstance(a, str)):
                self.reached.add(f"t{place + 1}")
        for place, output in enumerate(graph.outputs):
            self._collect(output, self.builder.input(graph.inputs + place))

    def run(self) -> dict[str, Traced]:
        """The gradients by input, each of its input's kind."""
        for place in reversed(range(len(self.typed.steps))):
            name = f"t{place + 1}"
            if name in self.adjoints:
                self._backward(name, self.typed.steps[place])
        made: dict[str, Traced] = {}
        for name in self.typed.graph.names:
            grad = self.adjoints.get(name)
            if name in self.wanted and grad is not None:
                if self.problem and not self._fits(grad, self.values[name]):
                    grad = self._spread(grad)
                made[name] = self._as(grad, self.typed.inputs[int(name[1:]) - 1])
        return made

    # ---- shapes, where there are statistics of rows -----------------------------------------------------------------

    def shape_of(self, x: Traced) -> Ints:
        """The shape of a value; () where there are no statistics."""
        return self._shapes.get(self.builder.name_of(x), ())

    def _add(self, op: str, args: Sequence[Any], to: ElementKind | None = None) -> Traced:
        made = self.builder.add(op, args, to)
        if self.problem:
            shape = broadcast_shapes(*(self.shape_of(x) for x in args if isinstance(x, Traced)))
            axes = self.problem.axes
            self._shapes[self.builder.name_of(made)] = (*shape[:-axes], *(1,) * axes) if op in REDUCERS else shape
        return made

    def _fits(self, grad: Traced, x: Traced) -> bool:
        """Whether a gradient of x has a shape that a kernel writes: the common one, or that of what x's rows have once."""
        assert self.problem is not None
        alone = self.shape_of(x) != self.problem.whole and self.problem.is_single(self.shape_of(x))
        return self.shape_of(grad) == (self.problem.single if alone else self.problem.whole)

    def _spread(self, grad: Traced) -> Traced:
        """A gradient that stands for all elements of a row as one of each element: of the shape of a value that has them."""
        assert self.problem is not None
        if self.shape_of(grad) == self.problem.whole:
            return grad
        whole = next(x for x in self.values.values() if self.shape_of(x) == self.problem.whole)
        return self._add("where", [self._add("equal", [whole, whole]), grad, grad])

    def _collect(self, name: str, grad: Traced, consumer: Traced | None = None) -> None:
        """Adds to a gradient. What elements of rows pass to a value that their row has once is summed."""
        if name not in self.reached:
            return
        if self.problem and consumer is not None and self.problem.length > 1:
            alone, each = self.problem.is_single(self.shape_of(self.values[name])), self.shape_of(consumer)
            if alone and not self.problem.is_single(each):
                if self.problem.is_single(self.shape_of(grad)):
                    grad = self._operation("*", [grad, float(self.problem.length)])
                else:
                    grad = self._add("sum", [self._spread(grad), self.problem.axes])
        self.adjoints[name] = self._operation("+", [self.adjoints[name], grad]) if name in self.adjoints else grad

    def _statistic(self, op: str, given: str, out: Traced, grad: Traced) -> None:
        """Adds to the gradient of what a statistic is of. Equal extrema share it."""
        assert self.problem is not None
        if op == "mean":
            grad = self._operation("*", [grad, 1 / self.problem.length if self.problem.length else 0.0])
        elif op in ("max", "min"):
            hit = self._add("equal", [self.values[given], out])
            wide = register_of(self.builder.kind_of(out)) == "double"
            count = self._add("cast", [hit], ElementKind.F64 if wide else ElementKind.F32)
            ties = self._add("sum", [count, self.problem.axes])
            grad = self._add("where", [hit, self._operation("/", [grad, ties]), 0])
        self._collect(given, grad)

    def _as(self, grad: Traced, kind: ElementKind) -> Traced:
        return grad if self.builder.kind_of(grad) is kind else self._add("cast", [grad], kind)

    def _backward(self, name: str, step: Step) -> None:
        """Adds to the gradients of a row's arguments."""
        row, grad = step.row, self.adjoints[name]
        args = self.typed.graph.nodes[int(name[1:]) - 1].args
        named = zip((*row.arguments, *row.params), args)
        held: dict[str, Any] = {n: self.values.get(a, a) if isinstance(a, str) else a for n, a in named}
        held |= {"grad": grad, "out": self.values[name]}
        for argument, given, kind in zip(row.arguments, args, step.kinds):
            if not isinstance(given, str) or given not in self.reached or argument in row.mask or not kind.is_float:
                continue
            if row.name in OWN:
                if row.name == "squeeze":
                    self._collect(given, grad)
                else:
                    self._statistic(row.name, given, self.values[name], grad)
            elif step.to is not None:  # rounds, and lets the gradient through
                wide = register_of(self.builder.kind_of(grad)) == "double"
                passed = self._as(grad, kind) if wide and register_of(kind) == "float" else grad
                self._collect(given, passed, self.values[name])
            elif argument not in row.gradient:
                raise UnsupportedError(
                    f"fuse: {row.name} has no gradient with respect to {argument}",
                    f"pass the result of {row.name} as an argument that requires none",
                )
            else:
                self._collect(given, self._written(parse(row.gradient[argument]), held), self.values[name])

    def _written(self, part: Part, held: Mapping[str, Any]) -> Any:
        """An expression as rows; parts of numbers alone are computed here."""
        if part.op == "name":
            return held[str(part.value)]
        if part.op == "number":
            return float(PI) if part.value == "pi" else part.value
        if part.op in WITHOUT:
            return self._written(WITHOUT[part.op](part), held)
        return self._operation(part.op, [self._written(arg, held) for arg in part.args])

    def _operation(self, op: str, args: Sequence[Any]) -> Any:
        if not any(isinstance(x, (Traced, str)) for x in args):
            made = np.asarray(_function(op)(*(np.longdouble(x) for x in args)))
            return bool(made) if made.dtype == np.bool_ else float(made)
        if op in NEUTRAL:
            for one, other, neutral in zip(args, args[::-1], NEUTRAL[op]):
                if neutral is not None and not isinstance(one, Traced) and one == neutral:
                    return other
        if op in OF_BOOLS:
            return self._add("where", OF_BOOLS[op](*args))
        return self._add(ROW_OF.get(op, op), args)


def _function(op: str) -> Any:
    """What computes an operation on numbers."""
    if op in EVALUATED:
        return EVALUATED[op]
    return np.divide if op == "/" else ROWS[op].oracle


def _phi(x: Part) -> Part:
    """The normal distribution's function: half of erfc(-x / sqrt(2)), which loses no digits where it is small."""
    scaled = Part("*", (x, Part("number", (), float(-np.sqrt(np.longdouble(0.5))))))
    return Part("*", (Part("number", (), 0.5), Part("erfc", (scaled,))))
