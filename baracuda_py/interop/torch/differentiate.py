"""The autograd kernels of the custom ops.

A call that records nothing goes on to the op's kernel without the dispatcher, if no mode or transform is between the two. A
recorded one runs in an autograd function, whose backward computes the gradients by the op that `Op.gradient` names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch.autograd import forward_ad

from ...types import OperandTypeError
from .gradient import differentiable_outputs, gradients_of, needed_for_gradient, recorded_arguments
from .recorded import no_tangent
from .results import as_list, written_by
from .schema import Signature

__all__ = ["add_kernels", "autograd_kernel", "no_gradient"]

Invoke = Callable[[str, dict[str, Any]], Any]  # calls an op by its name, with the arguments of its function


def _bits(key: str) -> int:
    return int(torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, key)).raw_repr())


# The dispatch keys below autograd without those at which a functional custom op has no kernel of its own.
_BELOW_AUTOGRAD = torch._C._after_autograd_keyset.raw_repr() & ~(_bits("ADInplaceOrView") | _bits("BackendSelect"))
_kernels: dict[Any, Mapping[int, Callable[..., Any]]] = {}  # by overload and dispatch keys


def add_kernels(overload: Any, kernels: Mapping[str, Callable[..., Any]]) -> None:
    """Notes an op's kernels by dispatch key."""
    _kernels[overload] = {_bits(key): kernel for key, kernel in kernels.items()}


def autograd_kernel(signature: Signature, overload: Any, invoke: Invoke) -> Callable[..., Any]:
    """The kernel of an op at the dispatch key Autograd, which takes the dispatch keys and the op's arguments."""
    kernels = _kernels[overload]
    below = partial(_below, overload, kernels)
    records = signature.op.gradient is not None and not signature.written
    requires_grad, is_enabled = torch._C._any_requires_grad, torch.is_grad_enabled

    def autograd(keyset: Any, *arguments: Any) -> Any:
        if getattr(forward_ad, "_current_level", 0) >= 0:
            _refuse_tangents(signature, below, keyset, arguments)
        if not is_enabled() or not requires_grad(*arguments):
            kernel = kernels.get(keyset.raw_repr() & _BELOW_AUTOGRAD)
            return below(keyset, arguments) if kernel is None else kernel(*arguments)
        if not records:
            return _refuse_gradient(signature, below, keyset, arguments)
        made = _Differentiated.apply(signature, below, invoke, keyset, *arguments)
        return made if signature.single else list(made)

    return autograd


def _below(overload: Any, kernels: Mapping[int, Callable[..., Any]], keyset: Any, arguments: tuple[Any, ...]) -> Any:
    """The result of the op below autograd: of its kernel, if that is next, or of a mode or transform."""
    kernel = kernels.get(keyset.raw_repr() & _BELOW_AUTOGRAD)
    if kernel is not None:
        return kernel(*arguments)
    with torch._C._AutoDispatchBelowAutograd():
        return overload.redispatch(keyset & torch._C._after_autograd_keyset, *arguments)


class _Differentiated(torch.autograd.Function):  # type: ignore[misc, unused-ignore]
    @staticmethod
    def forward(ctx: Any, signature: Signature, below: Any, invoke: Invoke, keyset: Any, *arguments: Any) -> Any:
        output = below(keyset, arguments)
        given = signature.raised(arguments)
        results = (
            {signature.outputs[0]: output} if signature.single else dict(zip(written_by(signature, given), output))
        )
        held = {**given, **results}
        saved = {
            name: held[name] for name in needed_for_gradient(signature) if isinstance(held.get(name), torch.Tensor)
        }
        ctx.save_for_backward(*saved.values())
        ctx.signature, ctx.invoke = signature, invoke
        ctx.saved_names = tuple(saved)
        ctx.like = {name: (x.shape, x.dtype, x.device) for name, x in results.items()}
        ctx.options = {name: x for name, x in given.items() if not isinstance(x, torch.Tensor)}
        flows = differentiable_outputs(signature)
        ctx.mark_non_differentiable(*(x for name, x in results.items() if name not in flows))
        ctx.set_materialize_grads(False)
        return output if signature.single else tuple(output)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        signature = ctx.signature
        passed = ctx.needs_input_grad[4:]  # torch leaves out trailing arguments at their default
        if all(grad is None for grad in grads):  # nothing flows
            return (None,) * (4 + len(passed))
        needs = frozenset(n for n, needed in zip(signature.places, passed) if needed and n in signature.tensors)
        held = {**ctx.options, **dict(zip(ctx.saved_names, ctx.saved_tensors))}
        if any(name in signature.op.gradient.saved and name not in held for name in signature.flags):
            again = ctx.invoke(signature.name, recorded_arguments(signature, held))  # the call kept not all results
            held = {**held, **dict(zip(again._fields, again))}
        flows = differentiable_outputs(signature)
        received = {
            name: torch.zeros(like[0], dtype=like[1], device=like[2]) if grad is None and name in flows else grad
            for (name, like), grad in zip(ctx.like.items(), grads)
        }
        found = gradients_of(signature, held, received, needs, ctx.invoke)
        return None, None, None, None, *(found.get(name) for name in signature.places[: len(passed)])


# ---- refusals ------------------------------------------------------------------------------------------------------------


def _refuse_gradient(signature: Signature, below: Any, keyset: Any, arguments: tuple[Any, ...]) -> Any:
    """Raises for an operand that requires a gradient, unless the results are whole numbers."""
    operand = next(
        name for name, x in zip(signature.places, arguments) if isinstance(x, torch.Tensor) and x.requires_grad
    )
    if signature.written:
        raise no_gradient(signature, operand)
    with torch.no_grad():
        result = below(keyset, arguments)
    if any(x.is_floating_point() for x in as_list(result)):
        raise no_gradient(signature, operand)
    return result


def _refuse_tangents(signature: Signature, below: Any, keyset: Any, arguments: tuple[Any, ...]) -> None:
    """Raises for an operand that carries a tangent, unless the results are whole numbers: they would have none, as if the
    derivative were zero."""
    for name, x in zip(signature.places, arguments):
        if isinstance(x, torch.Tensor) and forward_ad.unpack_dual(x).tangent is not None:
            differs = bool(signature.op.gradient is not None or signature.written)
            if not differs:
                with torch.no_grad():
                    differs = any(made.is_floating_point() for made in as_list(below(keyset, arguments)))
            if differs:
                raise no_tangent(signature, name)


def no_gradient(signature: Signature, operand: str) -> OperandTypeError:
    """The error for an operand that requires a gradient, and of which there is none."""
    return OperandTypeError(
        f"{signature.name}: {operand} requires a gradient, and {signature.name} has none",
        f"pass {operand}.detach(), or call it under torch.no_grad()",
    )
