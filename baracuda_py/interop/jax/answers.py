"""Answers the calls that JAX traces (`tensor.dispatch`): in place of the kernel they get the op's primitive."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...plan.selection import result_type
from ...tensor import dispatch
from ..called import answering
from .call import Call, signature_of
from .fused import called as fused_called
from .gradient import recorded

__all__ = ["call_op"]


def call_op(name: str, given: Mapping[str, Any]) -> Any:
    """Calls an op with the arguments of its function, as JAX must see it."""
    signature = signature_of(name)
    call, arrays = Call.of(signature, given)
    results = recorded(call, arrays, call_op)
    if len(results) == 1:
        (only,) = results.values()
        return only
    return result_type(signature.op.plan, tuple(results))(*results.values())


dispatch.jax_answers.called, dispatch.jax_answers.fused = answering(signature_of, call_op), fused_called
