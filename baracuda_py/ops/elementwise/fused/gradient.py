"""The gradient of a graph in reverse mode: another graph, of the function's inputs and of the gradients of its results.

Each row's own gradient expression is written as rows. What the expressions take, results included, is computed again from the
inputs, so that nothing else is kept between both directions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from ....tensor import intake
from ....types import ElementKind, InvalidProblemError, UnsupportedError
from ._kinds import Input, Typed
from .graph import MAX_INPUTS, MAX_OUTPUTS, Graph
from .plan import FusedDescriptor
from .reverse import Problem, Reverse
from .rows.statistics import REDUCERS
from .trace import Traced

__all__ = ["GradientGraph", "gradients"]


class GradientGraph(NamedTuple):
    """A graph of gradients, which one kernel computes. `inputs` say what its x1, x2, ... are: the function's own, ``x1``, or the
    gradients of its results, ``grad``, or ``grad1``, ``grad2``, ...; `outputs` name for each of its results the function's inputs
    whose gradient it is. `dropped` are the axes that each result of the function has lost by a statistic."""

    graph: Graph
    inputs: tuple[str, ...]
    outputs: tuple[tuple[str, ...], ...]
    dropped: tuple[int, ...]

    def whole(self, grads: Sequence[Any]) -> tuple[Any, ...]:
        """The gradients of results with the axes that those have lost, of extent 1."""
        return tuple(x[(..., *(None,) * axes)] if axes else x for x, axes in zip(grads, self.dropped))

    def describe(self, desc: FusedDescriptor, grads: Sequence[Any] = ()) -> FusedDescriptor:
        """The descriptor of the gradients of a problem. `grads` are those of its results, `whole`; dense arrays where there are
        none."""
        names = grads_of(desc)
        held = {name: intake(x, what=f"fuse: {name}") for name, x in zip(names, grads)}
        results = (desc.shape_of(output) for output in desc.outputs)
        shapes = {name: (*shape, *(1,) * axes) for name, shape, axes in zip(names, results, self.dropped)}
        for name, x in held.items():
            if (x.shape, x.element) != (shapes[name], desc.typed.kind):
                raise InvalidProblemError(
                    f"fuse: {name} is {x.element} of shape {x.shape}, and its result {desc.typed.kind} of {shapes[name]}",
                    "pass a gradient of the result's kind and shape",
                )
        own = {name: place for place, name in enumerate(desc.inputs)}

        def each(field: str, of_grads: Mapping[str, Any]) -> tuple[Any, ...]:
            given = getattr(desc, field)
            return tuple(of_grads[n] if n in names else given[own[n]] if given else None for n in self.inputs)

        numbers = dict(zip(desc.numbered, desc.numbers or ()))
        return FusedDescriptor(
            str(self.graph),
            each("shapes", shapes),
            each("elements", dict.fromkeys(names, desc.typed.kind)),
            strides=each("strides", {name: held[name].strides if held else None for name in names}),
            aligns=each("aligns", {name: held[name].align if held else None for name in names}),
            numbers=tuple(numbers[name] for name in self.inputs if name in numbers) or None,
        )


def grads_of(desc: FusedDescriptor) -> tuple[str, ...]:
    """What the gradients of a problem's results are called."""
    return tuple(output.replace("out", "grad") for output in desc.outputs)


def gradients(
    desc: FusedDescriptor, inputs: tuple[Input, ...], wanted: tuple[str, ...] | None = None
) -> tuple[GradientGraph, ...]:
    """The gradients of a problem's results with respect to its inputs of floats (those of them that are `wanted`), a graph for
    each kind. An input on whose value no result depends but by bools and integers has none."""
    shapes = None
    if desc.shapes_of_values.axes:
        results = tuple(map(desc.shape_of, desc.outputs))
        shapes = Problem(
            tuple(shape or () for shape in desc.shapes), results, desc.out_shape, desc.shapes_of_values.axes
        )
    return _gradients(desc.typed, inputs, wanted, shapes)


@lru_cache(maxsize=1024)
def _gradients(
    typed: Typed, inputs: tuple[Input, ...], wanted: tuple[str, ...] | None, shapes: Problem | None
) -> tuple[GradientGraph, ...]:
    if not typed.kind.is_float:
        raise UnsupportedError(f"fuse: the results are of {typed.kind}, which has no gradient", "return floats")
    floats = [n for n, of in zip(typed.graph.names, inputs) if isinstance(of, ElementKind) and of.is_float]
    reverse = Reverse(
        typed, inputs, frozenset(floats if wanted is None else [n for n in floats if n in wanted]), shapes
    )
    found = reverse.run()
    parts: list[GradientGraph] = []
    for names in _groups(reverse, found):
        outputs = [found[each[0]] for each in names]
        parts.append(_graph_of(typed.graph, reverse.builder.graph(outputs), names))
    return tuple(parts)


def _groups(reverse: Reverse, found: Mapping[str, Traced]) -> Iterator[tuple[tuple[str, ...], ...]]:
    """The inputs whose gradients one kernel computes, those of one gradient together: of one kind, and of one shape unless there
    are statistics of rows among what they take."""
    kinds: dict[ElementKind, dict[str, list[str]]] = {}
    for name, grad in found.items():
        same = kinds.setdefault(reverse.builder.kind_of(grad), {})
        same.setdefault(reverse.builder.name_of(grad), []).append(name)
    for same in kinds.values():
        whole = reverse.builder.graph([found[names[0]] for names in same.values()])
        alike: dict[Any, list[tuple[str, ...]]] = {}
        for names in same.values():
            shape = None if any(node.op in REDUCERS for node in whole.nodes) else reverse.shape_of(found[names[0]])
            alike.setdefault(shape, []).append(tuple(names))
        for each in alike.values():
            yield from (tuple(each[i : i + MAX_OUTPUTS]) for i in range(0, len(each), MAX_OUTPUTS))


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
    return GradientGraph(
        used, tuple(called[place] for place in kept), outputs, tuple(map(graph.dropped, graph.outputs))
    )
