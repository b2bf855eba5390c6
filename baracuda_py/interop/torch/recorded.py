"""Eager calls of which torch records a gradient: an autograd function around the op's own function, outside the custom op, so that
neither direction passes the dispatcher."""

from __future__ import annotations

from typing import Any

import torch

from .gradient import differentiable_outputs, gradients_of, needed_for_gradient
from .results import learn
from .schema import Signature, signature_of

__all__ = ["record"]


class _Call:
    """A call on its way through autograd: `given` are the arguments by name, of which autograd sees the tensors."""

    def __init__(self, signature: Signature, given: dict[str, Any]) -> None:
        self.signature, self.given = signature, given
        self.names = tuple(name for name in signature.tensors if isinstance(given.get(name), torch.Tensor))
        self.kind: Any = None  # the named tuple of several results


class _Recorded(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, call: _Call, *tensors: Any) -> Any:
        signature = call.signature
        held = {**call.given, **dict(zip(call.names, tensors))}
        result = signature.call(held)
        made = dict(zip(result._fields, result)) if isinstance(result, tuple) else {signature.outputs[0]: result}
        call.kind = type(result) if isinstance(result, tuple) else None
        learn(signature, call.given, tuple(made))
        held |= made
        saved = [name for name in needed_for_gradient(signature) if isinstance(held.get(name), torch.Tensor)]
        ctx.save_for_backward(*(held[name] for name in saved))
        ctx.set_materialize_grads(False)
        ctx.call, ctx.saved_names, ctx.results = call, saved, tuple(made)
        ctx.options = {name: x for name, x in call.given.items() if name not in call.names}
        ctx.mark_non_differentiable(*(x for n, x in made.items() if n not in differentiable_outputs(signature)))
        return tuple(made.values())

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        call: _Call = ctx.call
        held = {**ctx.options, **dict(zip(ctx.saved_names, ctx.saved_tensors))}
        needs = frozenset(name for name, needed in zip(call.names, ctx.needs_input_grad[1:]) if needed)
        found = gradients_of(call.signature, held, dict(zip(ctx.results, grads)), needs, _invoke)
        return None, *(found.get(name) for name in call.names)


def _invoke(name: str, given: dict[str, Any]) -> Any:
    """Calls an op's function."""
    return signature_of(name).call(given)


def record(signature: Signature, given: dict[str, Any]) -> Any:
    """The result of a call, recorded."""
    call = _Call(signature, given)
    made = _Recorded.apply(call, *(given[name] for name in call.names))
    return made[0] if call.kind is None else call.kind(*made)
