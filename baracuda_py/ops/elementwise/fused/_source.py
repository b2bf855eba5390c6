"""The C++ of a graph: a functor for each row in it, the row's own, and one for each result that calls them."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from .._row import ROWS, cast_name, functor
from ._kinds import Step, Typed, register_of
from .graph import Argument, Node

__all__ = ["body", "functors", "instructions", "parts"]


def functors(typed: Typed) -> tuple[dict[str, str], tuple[str, ...]]:
    """The functor of each result by its name in C++, the rows' before the first, and the headers that they need."""
    graph, (shared, headers) = typed.graph, parts(typed)
    made: dict[str, str] = {}
    for place, output in enumerate(graph.outputs):
        name = f"Op{place or ''}"
        text = functor(name, f"fuse: {output} of {graph}", graph.names, body(typed, output))
        made[name] = text if place else shared + text
    return made, headers


def parts(typed: Typed) -> tuple[str, tuple[str, ...]]:
    """The functors of the rows in a graph, and the headers that they need."""
    ops = dict.fromkeys(node.op for node in typed.graph.nodes if node.to is None and node.op in ROWS)
    headers = ["core/dtype.cuh", *(h for node in typed.graph.nodes if node.op in ROWS for h in ROWS[node.op].headers)]
    if typed.carrier == "double" and typed.kind.bits == 16:
        headers.append("elementwise/halves.cuh")
    return "".join(_of_row(op) + "\n" for op in ops), tuple(dict.fromkeys(header for header in headers if header))


def _of_row(op: str) -> str:
    row = ROWS[op]
    return functor(f"Of_{op}", op, (*row.letters, *row.params), row.body)


def body(typed: Typed, output: str, known: Mapping[str, str] | None = None) -> str:
    """The statements that compute an output; `known` are expressions of nodes that are computed before."""
    known = known or {}
    used = typed.graph.used((output,), known)
    lines: list[str] = []
    for place, (node, step) in enumerate(zip(typed.graph.nodes, typed.steps)):
        name = f"t{place + 1}"
        if name in used:
            register = register_of(step.kind)
            of = f"convert<{register}>({known[name]})" if name in known else _computed(typed, node, step)
            lines.append(f"const {register} {name} = {of};")
    return " ".join([*lines, f"return {converted(typed, output, 'C')};"])


def _computed(typed: Typed, node: Node, step: Step) -> str:
    register = register_of(step.kind)
    if node.op == "squeeze":
        return _argument(typed, step.args[0], register)
    if node.to is not None:
        of = register_of(step.kinds[0])
        return f"convert<{register}>(math::cast<{cast_name(node.to)}>({_argument(typed, step.args[0], of)}))"
    own = step.computed
    args = ", ".join(_argument(typed, a, own.type) for a in step.args)
    return f"convert<{register}>(Of_{node.op}::apply<{own.digits}, {own.type}>({args}))"


def _argument(typed: Typed, argument: Argument, wanted: str) -> str:
    if not isinstance(argument, str):
        return _literal(argument, wanted)
    return converted(typed, argument, wanted)


def converted(typed: Typed, name: str, wanted: str) -> str:
    """A value in another type; inputs are of the carrier's."""
    held = typed.carrier if name[0] == "x" else register_of(typed.step(name).kind)
    return name if held == wanted else f"convert<{wanted}>({name})"


def _literal(value: bool | int | float, wanted: str) -> str:
    """A number as a C++ expression of a type."""
    if wanted in ("float", "double"):
        value = float(value)
        if math.isfinite(value):
            return f"{wanted}({value!r})"
        return f"{wanted}(__longlong_as_double({np.float64(value).view(np.int64)}ll))"
    if isinstance(value, float):
        value = int(value)
    if wanted == "bool":
        return "true" if value else "false"
    if value == -(1 << 63):
        return f"{wanted}(-{(1 << 63) - 1}ll - 1)"
    return f"{wanted}({int(value)}{'ull' if value >= 1 << 63 else 'll'})"


def instructions(typed: Typed) -> tuple[float, float]:
    """Instructions of an element, in f32 and for 16-bit results; a part with several uses counts once."""
    each = [step.row.instructions for step in typed.steps]
    return max(sum(n for n, _ in each), 1.0), max(sum(n for _, n in each), 1.0)
