"""Fused functions that torch must see: an autograd function around the kernel, whose gradient is the kernel of the gradients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from ...ops.elementwise.fused.function import Call, Fused
from ...types import UnsupportedError

__all__ = ["called"]


def called(fused: Fused, call: Call, out: Any, how: Mapping[str, Any]) -> Any:
    """What a fused function returns of tensors that torch dispatches on. Autocast leaves their kinds as they are."""
    tensors = [x for x in call.inputs if isinstance(x, torch.Tensor)]
    if _is_transformed(tensors):
        raise UnsupportedError(
            f"fuse: {fused.named} is called on tensors without memory of their own (torch.func, torch.export, fake tensors)",
            "call it on plain tensors; torch.compile breaks its graph there, without fullgraph=True",
        )
    recorded = torch.is_grad_enabled() and any(x.requires_grad for x in tensors)
    outs = out if isinstance(out, tuple) else (out,)
    if torch.is_grad_enabled() and any(getattr(x, "requires_grad", False) for x in outs):
        raise UnsupportedError("fuse: out requires a gradient, and torch records none of it", "pass out.detach()")
    if recorded and out is not None:
        raise UnsupportedError(
            "fuse: out was passed, and torch records no gradient of what is written in place",
            "leave out= out, or call it under torch.no_grad()",
        )
    with torch.autocast(tensors[0].device.type, enabled=False):
        if recorded:
            made = _Recorded.apply(fused, call, how, *call.inputs)
            return made if len(made) > 1 else made[0]
        with torch.no_grad():
            return fused.launch(call, out, how)


def _is_transformed(tensors: list[Any]) -> bool:
    plain = torch._C._disabled_torch_dispatch_impl
    active = torch._C._len_torch_dispatch_stack() > 0 or torch._C._functorch.peek_interpreter_stack() is not None
    return active or any(type(x).__torch_dispatch__ is not plain for x in tensors)


class _Recorded(torch.autograd.Function):  # type: ignore[misc, unused-ignore]
    @staticmethod
    def forward(ctx: Any, fused: Fused, call: Call, how: Mapping[str, Any], *inputs: Any) -> Any:
        made = fused.launch(call._replace(inputs=inputs), None, how)
        results = made if isinstance(made, tuple) else (made,)
        tensors = [x for x in inputs if isinstance(x, torch.Tensor)]
        ctx.save_for_backward(*tensors)
        ctx.fused, ctx.how = fused, how
        ctx.call = call._replace(inputs=tuple(None if isinstance(x, torch.Tensor) else x for x in inputs))
        ctx.mark_non_differentiable(*(x for x in results if not x.is_floating_point()))
        return results

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        tensors = iter(ctx.saved_tensors)
        inputs = tuple(next(tensors) if x is None else x for x in ctx.call.inputs)
        needed = ctx.needs_input_grad[3:]
        wanted = tuple(f"x{place + 1}" for place, is_needed in enumerate(needed) if is_needed)
        if torch.is_grad_enabled():
            raise UnsupportedError(
                f"fuse: the gradient of {ctx.fused.named} has no gradient of its own",
                "differentiate once, or use torch's own operators here",
            )
        found = ctx.fused.gradients(ctx.call._replace(inputs=inputs), grads, wanted, ctx.how)
        return None, None, None, *found
