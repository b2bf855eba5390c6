"""`explain`: which way each traced call of a function takes on a device, and why."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax

from ...runtime.gpu.device import device as device_in_effect
from ...runtime.gpu.device import spec_of
from .call import Call, problem_of, shape_of
from .handler import selection_of
from .ways import Way, way_of

__all__ = ["Ways", "explain"]


class Ways(tuple[Way, ...]):
    """The ways of a function's calls, in order; one line each as text."""

    __slots__ = ()

    def __str__(self) -> str:
        return "\n".join(map(str, self))


def explain(function: Callable[..., Any], *arrays: Any, device: Any = None) -> Ways:
    """The way of each call of ours in `function`, of which `arrays` are the arguments (or their shapes). `device` is as in
    ``bp.device(...)``; by default the one in effect. Nothing is computed."""
    if device is None:
        traced = jax.make_jaxpr(lambda *own: function(*own))(*arrays)
    else:
        with device_in_effect(device):
            traced = jax.make_jaxpr(lambda *own: function(*own))(*arrays)
    return Ways(_way(*found) for found in _calls(traced.jaxpr))


def _calls(jaxpr: Any) -> Iterator[tuple[Call, Any]]:
    """The calls of ours in a computation and in all those inside it, with the abstract values of their arguments."""
    for equation in jaxpr.eqns:
        if isinstance(equation.params.get("call"), Call):
            yield equation.params["call"], tuple(shape_of(x.aval) for x in equation.invars)
        for value in equation.params.values():
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                yield from _calls(inner)


def _way(call: Call, shapes: Any) -> Way:
    device = spec_of(call.how.get("device", "cpu"))
    problem = problem_of(call, shapes)
    if device.host_memory:
        return Way(call.op, "handler", f"{device} computes on the host")
    return way_of(problem, selection_of(problem, call, device))
