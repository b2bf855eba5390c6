"""Graphs of elementwise rows: what a traced function computes, as a value and as a text.

The text is a list of assignments, ``t1 = exp(x1); t2 = multiply(t1, 0.5); return t2``. Inputs are x1, x2, ..., results of rows
are t1, t2, ...; other arguments are Python numbers, ``inf``, ``nan``, and ``lowest`` and ``highest`` for an argument that was
left out. A cast has the kind as its second argument: ``cast(t1, f16)``. Statistics of rows have the number of last axes that they
reduce, 0 for all: ``mean(t1, 1)``; these stay as extents of 1, until ``squeeze(t2, 1)`` drops them of a result.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Container, Iterable
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from ....types import BaracudaError, ElementKind, InvalidProblemError
from ....types.errors import shown
from .rows.statistics import row_named

__all__ = ["ENDS", "MAX_INPUTS", "MAX_OUTPUTS", "Argument", "Graph", "Node"]

Argument: TypeAlias = "str | bool | int | float"  # a name, one of ENDS, or a number
ENDS = ("lowest", "highest")  # what stands for an argument that was left out
MAX_INPUTS, MAX_OUTPUTS, MAX_NODES = 16, 8, 256
NAME = re.compile(r"[xt][1-9][0-9]{0,3}", re.ASCII)


class Node(NamedTuple):
    """The result of a row; `to` is the kind that a cast gives. `args` are the row's arguments, then its params. Nodes are equal
    where their texts are: 0.0 and -0.0 are different arguments, and so are 1, 1.0 and True."""

    op: str
    args: tuple[Argument, ...]
    to: ElementKind | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Node) and str(self) == str(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(str(self))

    def __str__(self) -> str:
        return f"{self.op}({', '.join([*map(_written, self.args), *([str(self.to)] if self.to else [])])})"


class Graph(NamedTuple):
    """`nodes` are t1, t2, ..., each computed from earlier ones and from x1 ... x<inputs>."""

    inputs: int
    nodes: tuple[Node, ...]
    outputs: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"x{place + 1}" for place in range(self.inputs))

    def node(self, name: str) -> Node:
        return self.nodes[int(name[1:]) - 1]

    def __str__(self) -> str:
        lines = [f"t{place + 1} = {node}" for place, node in enumerate(self.nodes)]
        return "; ".join([*lines, f"return {', '.join(self.outputs)}"])

    def used(self, outputs: Iterable[str], known: Container[str] = ()) -> frozenset[str]:
        """The inputs and nodes on which outputs depend, these included; what nodes that are `known` depend on is left out."""
        found, waiting = set[str](), list(outputs)
        while waiting:
            name = waiting.pop()
            if name not in found:
                found.add(name)
                inner = name[0] == "t" and name not in known
                waiting += [a for a in self.node(name).args if _is_name(a)] if inner else []  # type: ignore[misc]
        return frozenset(found)

    def pruned(self) -> Graph:
        """The same without nodes on which no output depends."""
        kept, renamed, nodes = self.used(self.outputs), dict[Argument, str](), list[Node]()
        for place, node in enumerate(self.nodes):
            if f"t{place + 1}" in kept:
                nodes.append(node._replace(args=tuple(renamed.get(a, a) if _is_name(a) else a for a in node.args)))
                renamed[f"t{place + 1}"] = f"t{len(nodes)}"
        return Graph(self.inputs, tuple(nodes), tuple(renamed.get(name, name) for name in self.outputs))

    def dropped(self, output: str) -> int:
        """The axes that an output has lost by a statistic."""
        node = self.node(output) if output[0] == "t" else None
        return int(node.args[1]) if node is not None and node.op == "squeeze" else 0

    def compact(self) -> tuple[Graph, tuple[int, ...]]:
        """The same without inputs on which no output depends, and the places of those that are left."""
        used = self.used(self.outputs)
        kept = tuple(place for place, name in enumerate(self.names) if name in used)
        renamed: dict[Argument, str] = {f"x{old + 1}": f"x{new + 1}" for new, old in enumerate(kept)}
        nodes = tuple(node._replace(args=tuple(renamed.get(a, a) for a in node.args)) for node in self.nodes)
        return Graph(len(kept), nodes, tuple(renamed.get(name, name) for name in self.outputs)), kept

    @staticmethod
    def parse(text: object, inputs: int) -> Graph:
        """The graph of a text; InvalidProblemError where it is none."""
        if not isinstance(text, str):
            raise InvalidProblemError(f"fuse: graph={shown(text)} is no text", "give what str(graph) gives")
        return _parsed(text, inputs)


def _is_name(argument: Argument) -> bool:
    return isinstance(argument, str) and argument not in ENDS


def _written(argument: Argument) -> str:
    return argument if isinstance(argument, str) else repr(argument)


@lru_cache(maxsize=1024)
def _parsed(text: str, inputs: int) -> Graph:
    *lines, last = text.split("; ")
    nodes: list[Node] = []
    known = {f"x{place + 1}" for place in range(inputs)}
    try:
        if not 1 <= inputs <= MAX_INPUTS or len(lines) > MAX_NODES:
            raise ValueError(f"{inputs} inputs and {len(lines)} steps")
        for line in lines:
            target, _, call = line.partition(" = ")
            if target != f"t{len(nodes) + 1}":
                raise ValueError(line)
            nodes.append(_node(call, known))
            known.add(target)
        outputs = tuple(last.removeprefix("return ").split(", "))
        if not last.startswith("return ") or not known.issuperset(outputs) or len(outputs) > MAX_OUTPUTS:
            raise ValueError(last)
    except (ValueError, SyntaxError, RecursionError, BaracudaError) as error:
        raise InvalidProblemError(
            f"fuse: graph={shown(text)} is no graph of elementwise ops ({error!s:.80})", "give what str(graph) gives"
        ) from None
    made = Graph(inputs, tuple(nodes), outputs)
    if str(made) != text:
        raise InvalidProblemError(f"fuse: graph={shown(text)} is not as {made!s:.200} is written", "give the latter")
    return made


def _node(call: str, known: set[str]) -> Node:
    tree = ast.parse(call, mode="eval").body
    if not isinstance(tree, ast.Call) or not isinstance(tree.func, ast.Name) or tree.keywords:
        raise ValueError(call)
    args, to = list(tree.args), None
    if tree.func.id == "cast":
        kind = args.pop()
        to = ElementKind.of(ast.unparse(kind))
    row = row_named(tree.func.id)
    if row is None or len(args) != len(row.arguments) + len(row.params):
        raise ValueError(f"there is no {call}")
    return Node(tree.func.id, tuple(_argument(arg, known) for arg in args), to)


def _argument(tree: ast.expr, known: set[str]) -> Argument:
    match tree:
        case ast.Name(id="inf"):
            return math.inf
        case ast.Name(id="nan"):
            return math.nan
        case ast.Name(id=name) if name in known or name in ENDS:
            return name
        case ast.Constant(value=bool() | int() | float() as number):
            return number
        case ast.UnaryOp(op=ast.USub(), operand=inner) if not isinstance(found := _argument(inner, known), str):
            return -found
    raise ValueError(ast.unparse(tree))
