"""Fused functions that JAX traces: the primitive of their graph, differentiable by the kernels of its gradients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from ...ops.elementwise.fused.function import Call as FusedCall
from ...ops.elementwise.fused.function import Fused
from ...ops.elementwise.fused.gradient import GradientGraph
from ...ops.elementwise.fused.running import OP, summed_to
from ...tensor.dispatch import describing
from ...types import OperandTypeError
from .call import Call, signature_of
from .primitive import bind

__all__ = ["called"]


def called(fused: Fused, call: FusedCall, out: Any, how: Mapping[str, Any]) -> Any:
    """What a fused function returns of tracers."""
    if out is not None:
        raise OperandTypeError("fuse: out was passed, and arrays of JAX are immutable", "leave out= out")
    arrays = tuple(jnp.asarray(x) if of is None else x for x, of in zip(call.inputs, call.types))
    shells = (jax.ShapeDtypeStruct(x.shape, x.dtype) if of is None else x for x, of in zip(arrays, call.types))
    token = describing.set(True)
    try:
        graph = str(fused.describe(call := call._replace(inputs=tuple(shells)), None).graph)
    finally:
        describing.reset(token)
    places = [place for place, of in enumerate(call.types) if of is None]
    names = [f"x{place + 1}" for place in places]
    numbers = {f"x{place + 1}": x for place, x in enumerate(call.inputs) if place not in places}

    def forward(*arrays: Any) -> tuple[Any, ...]:
        return tuple(_run(graph, {**numbers, **dict(zip(names, arrays))}, how))

    def backward(arrays: tuple[Any, ...], cotangents: tuple[Any, ...]) -> tuple[Any, ...]:
        token = describing.set(True)
        try:
            parts = fused.gradient_graphs(call, None)
        finally:
            describing.reset(token)
        whole = parts[0].whole(cotangents) if parts else ()
        grads = {f"grad{place + 1 if len(whole) > 1 else ''}": grad for place, grad in enumerate(whole)}
        held, found = {**numbers, **dict(zip(names, arrays)), **grads}, dict[str, Any]()
        for part in parts:
            for whose, grad in zip(part.outputs, _run_part(part, held, how)):
                found |= {name: summed_to(grad, held[name].shape, how) for name in whose}
        return tuple(found.get(name) for name in names)

    function = jax.custom_vjp(forward)
    function.defvjp(lambda *arrays: (forward(*arrays), arrays), backward)
    results = function(*(arrays[place] for place in places))
    return results if len(results) > 1 else results[0]


def _run_part(part: GradientGraph, held: Mapping[str, Any], how: Mapping[str, Any]) -> Any:
    return _run(str(part.graph), {f"x{place + 1}": held[name] for place, name in enumerate(part.inputs)}, how)


def _run(graph: str, inputs: Mapping[str, Any], how: Mapping[str, Any]) -> Any:
    given = {name: x for name, x in how.items() if x is not None}
    call, arrays = Call.of(signature_of(OP.name), {"graph": graph, **inputs, **given})
    return bind(call, arrays)
