"""A JAX primitive for each op: abstract values from the descriptor's layouts, lowerings, batching, refusals of derivatives."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from ...types import OperandTypeError, UnsupportedError
from .batching import batched
from .call import Call, problem_of, shape_of
from .sharding import varying_as
from .ways import lower_for_cpu, lower_for_cuda

__all__ = ["bind", "primitive_of"]


def bind(call: Call, arrays: Sequence[Any]) -> list[Any]:
    """The results of a call, traced or, on plain arrays, computed; without JAX's x64 mode those of 64 bits become 32 wide."""
    made = primitive_of(call.op).bind(*map(jnp.asarray, arrays), call=call)
    return [jax.lax.convert_element_type(x, jax.dtypes.canonicalize_dtype(x.dtype)) for x in made]


@lru_cache(maxsize=1024)
def primitive_of(op: str) -> Any:
    """The primitive of an op."""
    made = Primitive(f"baracuda_{op}")
    made.multiple_results = True
    made.def_abstract_eval(_abstract)
    made.def_impl(lambda *arrays, call: _compiled(call)(*arrays))
    for platform, rule in (("cpu", lower_for_cpu), ("cuda", lower_for_cuda)):
        mlir.register_lowering(made, mlir.lower_fun(rule, multiple_results=True), platform=platform)
    batching.primitive_batchers[made] = partial(batched, made.bind)
    ad.primitive_jvps[made] = _refuse_derivative
    return made


@lru_cache(maxsize=1024)
def _compiled(call: Call) -> Any:
    return jax.jit(lambda *arrays: primitive_of(call.op).bind(*arrays, call=call))


def _abstract(*arrays: Any, call: Call) -> list[Any]:
    layouts = problem_of(call, tuple(map(shape_of, arrays))).results
    return [jax.core.ShapedArray(x.shape, x.element.dtype, **varying_as(arrays, len(x.shape))) for x in layouts]


def _refuse_derivative(primals: Sequence[Any], tangents: Sequence[Any], *, call: Call) -> Any:
    """Results that are whole numbers have no derivative; of others there is none here."""
    results = primitive_of(call.op).bind(*primals, call=call)
    zeros = [ad.Zero(jax.typeof(x).to_tangent_aval()) for x in results]
    needing = [name for name, t in zip(call.arrays, tangents) if not isinstance(t, ad.Zero)]
    if not needing or not any(jnp.issubdtype(x.dtype, jnp.inexact) for x in results):
        return results, zeros
    name = needing[0]
    if call.op.endswith("_backward"):
        raise UnsupportedError(
            f"{call.op}: a gradient has no gradient of its own here", "differentiate once, or use JAX's own function"
        )
    raise OperandTypeError(
        f"{call.op}: the derivative with respect to {name} is asked for, and {call.op} has none",
        f"pass jax.lax.stop_gradient({name})",
    )
