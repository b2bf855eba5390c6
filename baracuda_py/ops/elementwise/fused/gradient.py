"""The gradient of a graph in reverse mode: another graph, of the function's inputs and of the gradients of its results.

Each row's own gradient expression is written as rows. What the expressions take, results included, is computed again from the
inputs, so that nothing else is kept between both directions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from ....numerics.expression import EVALUATED, PI, parse
from ....numerics.expression import Node as Part
from ....tensor import intake
from ....types import ElementKind, InvalidProblemError, UnsupportedError
from .._row import ROWS
from ._kinds import Input, Step, Typed, register_of
from .graph import MAX_INPUTS, MAX_OUTPUTS, Graph
from .plan import FusedDescriptor
from .trace import Builder, Traced

__all__ = ["GradientGraph", "gradients"]

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


class GradientGraph(NamedTuple):
    """A graph of gradients, which one kernel computes. `inputs` say what its x1, x2, ... are: the function's own, ``x1``, or the
    gradients of its results, ``grad``, or ``grad1``, ``grad2``, ...; `outputs` name for each of its results the function's inputs
    whose gradient it is."""

    graph: Graph
    inputs: tuple[str, ...]
    outputs: tuple[tuple[str, ...], ...]

    def describe(self, desc: FusedDescriptor, grads: Sequence[Any] = ()) -> FusedDescriptor:
        """The descriptor of the gradients of a problem. `grads` are those of its results, dense arrays where there are none."""
        names = grads_of(desc)
        held = {name: intake(x, what=f"fuse: {name}") for name, x in zip(names, grads)}
        for name, x in held.items():
            if (x.shape, x.element) != (desc.out_shape, desc.typed.kind):
                raise InvalidProblemError(
                    f"fuse: {name} is {x.element} of shape {x.shape}, and its result {desc.typed.kind} of {desc.out_shape}",
                    "pass a gradient of the result's kind and shape",
                )
        own = {name: place for place, name in enumerate(desc.inputs)}

        def each(field: str, of_grads: Mapping[str, Any]) -> tuple[Any, ...]:
            given = getattr(desc, field)
            return tuple(of_grads[n] if n in names else given[own[n]] if given else None for n in self.inputs)

        numbers = dict(zip(desc.numbered, desc.numbers or ()))
        return FusedDescriptor(
            str(self.graph),
            each("shapes", dict.fromkeys(names, desc.out_shape)),
            each("elements", dict.fromkeys(names, desc.typed.kind)),
            strides=each("strides", {name: held[name].strides if held else None for name in names}),
            aligns=each("aligns", {name: held[name].align if held else None for name in names}),
            numbers=tuple(numbers[name] for name in self.inputs if name in numbers) or None,
        )


def grads_of(desc: FusedDescriptor) -> tuple[str, ...]:
    """What the gradients of a problem's results are called."""
    return tuple(output.replace("out", "grad") for output in desc.outputs)


@lru_cache(maxsize=1024)
def gradients(
    typed: Typed, inputs: tuple[Input, ...], wanted: tuple[str, ...] | None = None
) -> tuple[GradientGraph, ...]:
    """The gradients of a graph's results with respect to its inputs of floats (those of them that are `wanted`), a graph for each
    kind. An input on whose value no result depends but by bools and integers has none."""
    if not typed.kind.is_float:
        raise UnsupportedError(f"fuse: the results are of {typed.kind}, which has no gradient", "return floats")
    floats = [n for n, of in zip(typed.graph.names, inputs) if isinstance(of, ElementKind) and of.is_float]
    reverse = _Reverse(typed, inputs, frozenset(floats if wanted is None else [n for n in floats if n in wanted]))
    found = reverse.run()
    kinds: dict[
        ElementKind, dict[str, list[str]]
    ] = {}  # the inputs of each gradient, by its kind and name in the graph
    for name, grad in found.items():
        same = kinds.setdefault(reverse.builder.kind_of(grad), {})
        same.setdefault(reverse.builder.name_of(grad), []).append(name)
    parts: list[GradientGraph] = []
    for same in kinds.values():
        names = list(same.values())
        for first in range(0, len(names), MAX_OUTPUTS):
            group = tuple(tuple(each) for each in names[first : first + MAX_OUTPUTS])
            parts.append(_graph_of(typed.graph, reverse.builder.graph([found[each[0]] for each in group]), group))
    return tuple(parts)


def _graph_of(graph: Graph, whole: Graph, outputs: tuple[tuple[str, ...], ...]) -> GradientGraph:
    """The graph of these gradients of another one, with the inputs that it uses."""
    results = len(graph.outputs)
    called = (*graph.names, *(f"grad{place + 1 if results > 1 else ''}" for place in range(results)))
    used, kept = whole.compact()
    if used.inputs > MAX_INPUTS:
        raise UnsupportedError(
            f"fuse: the gradient takes {used.inputs} inputs, those of the function and {results} gradients of results",
            f"{MAX_INPUTS} at most: split the function",
        )
    return GradientGraph(used, tuple(called[place] for place in kept), outputs)


class _Reverse:
    """One pass over a graph from its results to its inputs."""

    def __init__(self, typed: Typed, inputs: tuple[Input, ...], wanted: frozenset[str]) -> None:
        graph = typed.graph
        self.typed, self.wanted = typed, wanted
        self.builder = Builder((*inputs, *(typed.kind for _ in graph.outputs)))
        self.values: dict[str, Traced] = {name: self.builder.input(place) for place, name in enumerate(graph.names)}
        self.adjoints: dict[str, Traced] = {}
        self.reached = set(wanted)  # what depends on a wanted input by floats
        for place, (node, step) in enumerate(zip(graph.nodes, typed.steps)):
            args = [self.values.get(a, a) if isinstance(a, str) else a for a in node.args]
            self.values[f"t{place + 1}"] = self.builder.add(node.op, args, node.to)
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
                made[name] = self._as(grad, self.typed.inputs[int(name[1:]) - 1])
        return made

    def _collect(self, name: str, grad: Traced) -> None:
        if name in self.reached:
            self.adjoints[name] = self._operation("+", [self.adjoints[name], grad]) if name in self.adjoints else grad

    def _as(self, grad: Traced, kind: ElementKind) -> Traced:
        return grad if self.builder.kind_of(grad) is kind else self.builder.add("cast", [grad], kind)

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
            if step.to is not None:  # rounds, and lets the gradient through
                wide = register_of(self.builder.kind_of(grad)) == "double"
                self._collect(given, self._as(grad, kind) if wide and register_of(kind) == "float" else grad)
            elif argument not in row.gradient:
                raise UnsupportedError(
                    f"fuse: {row.name} has no gradient with respect to {argument}",
                    f"pass the result of {row.name} as an argument that requires none",
                )
            else:
                self._collect(given, self._written(parse(row.gradient[argument]), held))

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
            return self.builder.add("where", OF_BOOLS[op](*args))
        return self.builder.add(ROW_OF.get(op, op), args)


def _function(op: str) -> Any:
    """What computes an operation on numbers."""
    if op in EVALUATED:
        return EVALUATED[op]
    return np.divide if op == "/" else ROWS[op].oracle


def _phi(x: Part) -> Part:
    """The normal distribution's function: half of erfc(-x / sqrt(2)), which loses no digits where it is small."""
    scaled = Part("*", (x, Part("number", (), float(-np.sqrt(np.longdouble(0.5))))))
    return Part("*", (Part("number", (), 0.5), Part("erfc", (scaled,))))
