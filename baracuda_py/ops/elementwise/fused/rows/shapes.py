"""The shapes of a graph's values, and which axes its statistics reduce."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from .....tensor.axes import broadcast_shapes
from .....types import InvalidProblemError, UnsupportedError
from ..graph import Graph
from .statistics import OWN

__all__ = ["Shapes", "shapes_of"]

Ints: TypeAlias = tuple[int, ...]


class Shapes(NamedTuple):
    """The shapes of a graph's values by name, and how many of the last axes its statistics reduce, 0 where it has none."""

    of: Mapping[str, Ints]
    axes: int


def shapes_of(graph: Graph, inputs: Mapping[str, Ints | None], whole: Ints) -> Shapes:
    """The shapes of the values of a graph on such inputs, None for numbers; `whole` is the common shape."""
    found = {name: shape or () for name, shape in inputs.items()}
    axes = 0
    for place, node in enumerate(graph.nodes):
        given = [found[a] for a in node.args if isinstance(a, str) and a in found]
        if node.op in OWN:
            (shape,), asked = given, node.args[1]
            count = len(shape) if asked == 0 else asked
            assert isinstance(count, int)
            if node.op != "squeeze":
                _check_statistic(node.op, shape, count, axes, whole)
                axes = count
            given = [shape[: len(shape) - count] + (1,) * (count if node.op != "squeeze" else 0)]
        found[f"t{place + 1}"] = broadcast_shapes(*given)
    return Shapes(found, axes)


def _check_statistic(op: str, shape: Ints, count: int, axes: int, whole: Ints) -> None:
    if not 1 <= count <= len(shape) or shape[-count:] != whole[-count:]:
        raise InvalidProblemError(
            f"fuse: {op} over the last {count} axes takes a value of shape {shape}, and the common shape is {whole}",
            "reduce what has the last axes of the common shape; anything else before or after the call",
        )
    if axes and count != axes:
        raise UnsupportedError(
            f"fuse: one statistic reduces the last {axes} axes, and {op} the last {count}", "fuse one function for each"
        )
    if op in ("max", "min") and not math.prod(shape[-count:]):
        raise InvalidProblemError(f"fuse: {op} of rows of shape {shape[-count:]}", "reduce over at least one element")
