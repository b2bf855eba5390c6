"""Gradients of traced calls (`interop.gradient`), with JAX's own operators: a `jax.custom_vjp` around the op's primitive."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero

from ..gradient import differentiable_outputs, gradients_of, needed_for_gradient, recorded_arguments
from ..signature import Signature
from .call import Call, problem_of, shape_of, signature_of
from .primitive import bind
from .sharding import as_varying

__all__ = ["recorded"]

Invoke = Callable[[str, dict[str, Any]], Any]  # calls an op by its name, with the arguments of its function


def _derivative(function: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda grad, z: jax.vjp(function, z)[1](grad)[0]


class _Jax:
    activations: Mapping[str, Callable[[Any, Any], Any]] = {
        "relu": lambda grad, z: jnp.where(z > 0, grad, 0),
        "gelu": _derivative(partial(jax.nn.gelu, approximate=False)),
        "gelu_tanh": _derivative(partial(jax.nn.gelu, approximate=True)),
        "silu": _derivative(jax.nn.silu),
    }

    def signature_of(self, name: str) -> Signature:
        return signature_of(name)

    def is_array(self, x: Any) -> bool:
        return isinstance(x, jax.Array)

    def is_half(self, x: Any) -> bool:
        return x.dtype in (jnp.float16, jnp.bfloat16)

    def cast(self, x: Any, dtype: Any) -> Any:
        return x.astype(dtype)

    def expand(self, x: Any, shape: tuple[Any, ...]) -> Any:
        return jnp.broadcast_to(x, shape)

    def sum_to(self, x: Any, shape: tuple[Any, ...]) -> Any:
        lead = x.ndim - len(shape)
        axes = (*range(lead), *(lead + i for i, n in enumerate(shape) if n == 1 and x.shape[lead + i] != 1))
        return x.sum(axes).reshape(shape)

    def broadcast_shapes(self, a: Any, b: Any) -> tuple[Any, ...]:
        return tuple(jnp.broadcast_shapes(a, b))

    def constant(self, name: str) -> str:
        return f"jax.lax.stop_gradient({name})"


_JAX = _Jax()


@jax.tree_util.register_static
@dataclass(frozen=True)
class _Needs:
    """The arguments whose gradients are wanted, which are static between both directions."""

    names: frozenset[str]


def recorded(call: Call, arrays: tuple[Any, ...], invoke: Invoke) -> dict[str, Any]:
    """The results of a call by name, differentiable if its op has a gradient."""
    names, arrays = problem_of(call, tuple(map(shape_of, arrays))).written, as_varying(arrays)
    if call.signature.op.gradient is None or call.signature.written:
        return dict(zip(names, bind(call, arrays)))
    try:
        return dict(zip(names, _with_gradient(call, names, invoke)(*arrays)))
    except NotImplementedError:
        # Outside of jax.jit, jax.shard_map takes no rule of a gradient with symbolic zeros. It needs none: JAX differentiates
        # above it, or inside it, and both see the rule before.
        return dict(zip(names, bind(call, arrays)))


def _with_gradient(call: Call, names: tuple[str, ...], invoke: Invoke) -> Any:
    signature = call.signature

    def forward(*primals: Any) -> Any:
        given = {**call.options, **call.how, **dict(zip(call.arrays, (p.value for p in primals)))}
        whole, arrays = Call.of(signature, recorded_arguments(signature, given))
        made = dict(zip(problem_of(whole, tuple(map(shape_of, arrays))).written, bind(whole, arrays)))
        held = {**dict(zip(whole.arrays, arrays)), **made}
        saved = {name: held[name] for name in needed_for_gradient(signature) if held.get(name) is not None}
        needs = _Needs(frozenset(name for name, p in zip(call.arrays, primals) if p.perturbed))
        return tuple(made[name] for name in names), (needs, saved)

    def backward(residuals: Any, cotangents: tuple[Any, ...]) -> Any:
        needs, saved = residuals
        flows = differentiable_outputs(signature)
        grads = {name: _materialized(g, name in flows) for name, g in zip(names, cotangents)}
        held = {name: x for name, x in {**call.options, **call.how, **saved}.items() if x is not None}
        found = gradients_of(_JAX, signature, held, grads, needs.names, invoke)
        return tuple(found.get(name) for name in call.arrays)

    function = jax.custom_vjp(lambda *arrays: tuple(bind(call, arrays)))
    function.defvjp(forward, backward, symbolic_zeros=True)
    return function


def _materialized(grad: Any, flows: bool) -> Any:
    if isinstance(grad, SymbolicZero):
        return jnp.zeros(grad.shape, grad.dtype) if flows and jnp.issubdtype(grad.dtype, jnp.inexact) else None
    return grad
