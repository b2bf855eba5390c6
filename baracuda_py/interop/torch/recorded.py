"""Calls of which torch records a gradient, outside the custom op: an autograd function around the op's own function, so that
neither direction passes the dispatcher, and another for the transforms of torch.func, around whatever the call is inside them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import torch

from ...types import UnsupportedError
from .gradient import differentiable_outputs, gradients_of, needed_for_gradient
from .schema import Signature

__all__ = ["RecordedCall", "no_tangent", "record", "record_transformed", "recorded_call"]

Invoke = Callable[[str, dict[str, Any]], Any]  # calls an op by its name, with the arguments of its function


class _Layout(NamedTuple):
    """What is kept of calls with the same operands and results: places among the operands, then among the results."""

    names: tuple[str, ...]
    operands: tuple[int, ...]
    results: tuple[int, ...]
    constants: tuple[int, ...]  # results through which no gradient flows
    flows: tuple[bool, ...]  # of each result, whether one does


@lru_cache(maxsize=4096)
def _layout(signature: Signature, names: tuple[str, ...], results: tuple[str, ...]) -> _Layout:
    needed = [name for name in needed_for_gradient(signature) if name in names or name in results]
    of_operands = [name for name in needed if name not in results]
    of_results = [name for name in needed if name in results]
    flows = tuple(name in differentiable_outputs(signature) for name in results)
    return _Layout(
        (*of_operands, *of_results), tuple(map(names.index, of_operands)), tuple(map(results.index, of_results)),
        tuple(i for i, flowing in enumerate(flows) if not flowing), flows,
    )  # fmt: skip


@lru_cache(maxsize=4096)
def _needs(names: tuple[str, ...], needed: tuple[bool, ...]) -> frozenset[str]:
    return frozenset(itertools.compress(names, needed))


class RecordedCall:
    """A call on its way through autograd: the names of its tensors, its other arguments, what runs it on the tensors, and what
    calls the op of its gradient."""

    __slots__ = ("invoke", "kind", "names", "options", "results", "run", "signature")

    def __init__(
        self, signature: Signature, names: tuple[str, ...], options: dict[str, Any], run: Callable[..., Any] | None,
        invoke: Invoke,
    ) -> None:  # fmt: skip
        self.signature, self.names, self.options, self.run, self.invoke = signature, names, options, run, invoke
        self.results: tuple[str, ...] = signature.outputs[:1]
        self.kind: Any = None  # the named tuple of several results

    def results_of(self, tensors: tuple[Any, ...]) -> tuple[Any, ...]:
        """The results of the call on these tensors."""
        assert self.run is not None
        result: Any = self.run(*tensors)
        if not isinstance(result, tuple):
            return (result,)
        names: Any = result
        self.kind, self.results = type(result), names._fields
        return tuple(result)

    def save(self, ctx: Any, tensors: tuple[Any, ...], results: tuple[Any, ...]) -> None:
        """Keeps what the gradients are computed from."""
        layout = ctx.layout = _layout(self.signature, self.names, self.results)
        ctx.call = self
        ctx.save_for_backward(*[tensors[i] for i in layout.operands], *[results[i] for i in layout.results])
        if layout.constants:
            ctx.mark_non_differentiable(*[results[i] for i in layout.constants])
        if len(results) > 1:
            ctx.like = [(x.shape, x.dtype, x.device) for x in results]

    def gradients(self, ctx: Any, grads: tuple[Any, ...]) -> tuple[Any, ...]:
        """The gradients of the call itself (none) and of its tensors."""
        layout: _Layout = ctx.layout
        if all(grad is None for grad in grads):  # nothing flows
            return (None, *[None] * len(self.names))
        held = dict(zip(layout.names, ctx.saved_tensors))
        held.update(self.options)
        needs = _needs(self.names, ctx.needs_input_grad[1:])
        if len(grads) > 1:
            grads = tuple(
                torch.zeros(like[0], dtype=like[1], device=like[2]) if grad is None and flowing else grad
                for grad, flowing, like in zip(grads, layout.flows, ctx.like)
            )
        received = dict(zip(self.results, grads))
        if not torch.is_grad_enabled():
            return (None, *map(gradients_of(self.signature, held, received, needs, self.invoke).get, self.names))
        with torch.no_grad():
            found = gradients_of(self.signature, held, received, needs, self.invoke)
        if found:  # torch may differentiate the gradients as well
            sources = [x for x in (*ctx.saved_tensors, *grads) if isinstance(x, torch.Tensor)]
            found = dict(zip(found, _Once.apply(self.signature.name, len(found), *found.values(), *sources)))
        return (None, *map(found.get, self.names))


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
    def forward(ctx: Any, call: RecordedCall, *tensors: Any) -> Any:
        results = call.results_of(tensors)
        call.run = None  # which holds operands that the gradient may not need
        call.save(ctx, tensors, results)
        ctx.set_materialize_grads(False)
        return results

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return ctx.call.gradients(ctx, grads)


class _Transformed(torch.autograd.Function):  # type: ignore[misc, unused-ignore]
    generate_vmap_rule = True

    @staticmethod
    def forward(call: RecordedCall, *tensors: Any) -> Any:
        return call.results_of(tensors)

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


# Outside of torch.func's transforms, which `Function.apply` itself would look for once more.
_apply: Any = super(torch.autograd.Function, _Recorded).apply


def record(call: RecordedCall, tensors: Sequence[Any]) -> Any:
    """The result of a call on plain tensors, recorded."""
    made = _apply(call, *tensors)
    return made[0] if call.kind is None else call.kind(*made)


def record_transformed(signature: Signature, given: dict[str, Any], invoke: Invoke) -> Any:
    """The result of a call inside torch.func's transforms, recorded. `invoke` calls an op as torch must see it."""
    call, tensors = recorded_call(signature, given, invoke)
    made = _Transformed.apply(call, *tensors)
    return made[0] if call.kind is None else call.kind(*made)


def recorded_call(signature: Signature, given: dict[str, Any], invoke: Invoke) -> tuple[RecordedCall, list[Any]]:
    """A call with arguments by name, and the tensors among them."""
    names = tuple(name for name in signature.tensors if isinstance(given.get(name), torch.Tensor))
    options = {name: x for name, x in given.items() if x is not None and name not in names}

    def run(*tensors: Any) -> Any:
        return invoke(signature.name, {**options, **dict(zip(names, tensors))})

    return RecordedCall(signature, names, options, run, invoke), [given[name] for name in names]
