"""Calls of which torch records a gradient, outside the custom op: an autograd function around the op's own function, so that
neither direction passes the dispatcher, and another for the transforms of torch.func, around whatever the call is inside them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from ...types import UnsupportedError
from .gradient import differentiable_outputs, gradients_of, needed_for_gradient
from .results import learn
from .schema import Signature

__all__ = ["no_tangent", "record", "record_transformed"]

Invoke = Callable[[str, dict[str, Any]], Any]  # calls an op by its name, with the arguments of its function


class _Call:
    """A call on its way through autograd: `given` are the arguments by name, of which autograd sees the tensors."""

    def __init__(self, signature: Signature, given: dict[str, Any], invoke: Invoke) -> None:
        self.signature, self.given, self.invoke = signature, given, invoke
        self.names = tuple(name for name in signature.tensors if isinstance(given.get(name), torch.Tensor))
        self.results: tuple[str, ...] = ()
        self.kind: Any = None  # the named tuple of several results

    def run(self, tensors: tuple[Any, ...]) -> tuple[Any, ...]:
        """The results of the call on these tensors."""
        result = self.invoke(self.signature.name, {**self.given, **dict(zip(self.names, tensors))})
        several = isinstance(result, tuple)
        self.kind = type(result) if several else None
        self.results = result._fields if several else self.signature.outputs[:1]
        learn(self.signature, self.given, self.results)
        return tuple(result) if several else (result,)

    def save(self, ctx: Any, tensors: tuple[Any, ...], results: tuple[Any, ...]) -> None:
        """Keeps what the gradients are computed from."""
        made: Mapping[str, Any] = dict(zip(self.results, results))
        held = {**dict(zip(self.names, tensors)), **made}
        ctx.saved_names = [name for name in needed_for_gradient(self.signature) if held.get(name) is not None]
        ctx.save_for_backward(*(held[name] for name in ctx.saved_names))
        ctx.call = self
        ctx.like = [(x.shape, x.dtype, x.device) for x in results]
        ctx.mark_non_differentiable(*(x for n, x in made.items() if n not in differentiable_outputs(self.signature)))

    def gradients(self, ctx: Any, grads: tuple[Any, ...]) -> tuple[Any, ...]:
        """The gradients of the call itself (none) and of its tensors."""
        options = {name: x for name, x in self.given.items() if name not in self.names}
        held = {**options, **dict(zip(ctx.saved_names, ctx.saved_tensors))}
        needs = frozenset(name for name, needed in zip(self.names, ctx.needs_input_grad[1:]) if needed)
        flows = differentiable_outputs(self.signature)
        grads = tuple(
            torch.zeros(like[0], dtype=like[1], device=like[2]) if grad is None and name in flows else grad
            for name, grad, like in zip(self.results, grads, ctx.like)
        )
        again = torch.is_grad_enabled()
        with torch.no_grad():
            found = gradients_of(self.signature, held, dict(zip(self.results, grads)), needs, self.invoke)
        if again and found:  # torch may differentiate the gradients as well
            sources = [x for x in (*ctx.saved_tensors, *grads) if isinstance(x, torch.Tensor)]
            found = dict(zip(found, _Once.apply(self.signature.name, len(found), *found.values(), *sources)))
        return None, *(found.get(name) for name in self.names)


class _Once(torch.autograd.Function):  # type: ignore[misc, unused-ignore]
    """Gradients as they are, which refuse to be differentiated again."""

    generate_vmap_rule = True

    @staticmethod
    def forward(_name: str, count: int, *tensors: Any) -> Any:
        return tuple(x.clone() for x in tensors[:count])

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.name = inputs[0]

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise UnsupportedError(
            f"{ctx.name}: its gradient has no gradient of its own",
            "differentiate once, or use torch's own operator here",
        )


class _Recorded(torch.autograd.Function):  # type: ignore[misc, unused-ignore]
    @staticmethod
    def forward(ctx: Any, call: _Call, *tensors: Any) -> Any:
        results = call.run(tensors)
        call.save(ctx, tensors, results)
        ctx.set_materialize_grads(False)
        return results

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return ctx.call.gradients(ctx, grads)


class _Transformed(torch.autograd.Function):  # type: ignore[misc, unused-ignore]
    generate_vmap_rule = True

    @staticmethod
    def forward(call: _Call, *tensors: Any) -> Any:
        return call.run(tensors)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        call, *tensors = inputs
        call.save(ctx, tuple(tensors), output)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return ctx.call.gradients(ctx, grads)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        signature = ctx.call.signature
        raise no_tangent(signature, next(n for n, t in zip(ctx.call.names, tangents[1:]) if t is not None))


def no_tangent(signature: Signature, operand: str) -> UnsupportedError:
    """The error for an operand that torch differentiates by in forward mode."""
    return UnsupportedError(
        f"{signature.name}: {operand} carries a tangent, and {signature.name} has no derivative in forward mode",
        "differentiate in reverse (torch.func.vjp, jacrev, .backward()), or use torch's own operator here",
    )


def record(signature: Signature, given: dict[str, Any], invoke: Invoke) -> Any:
    """The result of a call on plain tensors, recorded. `invoke` calls an op's own function."""
    return _result(_Recorded, _Call(signature, given, invoke))


def record_transformed(signature: Signature, given: dict[str, Any], invoke: Invoke) -> Any:
    """The result of a call inside torch.func's transforms, recorded. `invoke` calls an op as torch must see it."""
    return _result(_Transformed, _Call(signature, given, invoke))


def _result(function: Any, call: _Call) -> Any:
    made = function.apply(call, *(call.given[name] for name in call.names))
    return made[0] if call.kind is None else call.kind(*made)
