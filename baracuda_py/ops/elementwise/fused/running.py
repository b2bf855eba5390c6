"""Calls of graphs on arrays and numbers, and sums of gradients along axes that were broadcast."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from .... import functional
from ....plan.registry import Op, get_op
from .graph import Graph
from .plan import INPUTS, OUTPUTS, FusedDescriptor, FusedPlan, outputs_of

__all__ = ["OP", "run", "summed_to"]


def run(
    outs: Mapping[str, Any], inputs: Sequence[Any], describe: Callable[[], Any], options: Any, how: Mapping[str, Any]
) -> Any:
    """Runs the kernel of a graph. `inputs` are x1, x2, ...; numbers among them are given at run time."""
    named = {f"x{place + 1}": x for place, x in enumerate(inputs)}
    values = {name: x for name, x in named.items() if type(x) in (int, float)}
    operands = {**outs, **{name: x for name, x in named.items() if name not in values}}
    try:
        return functional.call(FusedPlan, operands, describe, options=options, values=values, **how)
    except OverflowError:  # a number that the kind as which it is used does not hold
        describe()
        raise


def summed_to(x: Any, shape: Sequence[int], how: Mapping[str, Any]) -> Any:
    """A gradient of the common shape as that of an argument, which was broadcast from `shape`."""
    if tuple(x.shape) == tuple(shape):
        return x
    lead = len(x.shape) - len(shape)
    axes = (*range(lead), *(lead + a for a, n in enumerate(shape) if n != x.shape[lead + a]))
    return get_op("sum").function(x, axis=axes, **how).reshape(tuple(shape))


def run_graph(graph: str, **given: Any) -> Any:
    """Runs a graph, given as a text: what a framework's bridge calls of a fused function."""
    inputs = [given.pop(name) for name in INPUTS if given.get(name) is not None]
    names = outputs_of(len(Graph.parse(graph, len(inputs)).outputs))
    outs = {name: given.pop(name, None) for name in names}
    how = {name: given.pop(name, None) for name in ("stream", "pref", "device")}
    types = tuple(type(x) if type(x) in (int, float) else None for x in inputs)
    out = tuple(outs.values()) if any(x is not None for x in outs.values()) else None
    return run(outs, inputs, partial(FusedDescriptor.of, graph, *inputs, out=out), (graph, types), how)


def _signature() -> inspect.Signature:
    kinds = inspect.Parameter
    parameters = [kinds("graph", kinds.POSITIONAL_OR_KEYWORD, annotation="str")]
    parameters += [kinds(n, kinds.POSITIONAL_OR_KEYWORD, default=None, annotation="Any") for n in INPUTS]
    optional = (*OUTPUTS, "stream", "pref", "device")
    parameters += [kinds(n, kinds.KEYWORD_ONLY, default=None, annotation="Any") for n in optional]
    return inspect.Signature(parameters, return_annotation="Any")


run_graph.__signature__ = _signature()  # type: ignore[attr-defined]
OP = Op("fuse", FusedPlan, run_graph, lambda *_: iter(()))  # of every graph; it is no public op
