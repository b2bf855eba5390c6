"""Complex conjugates that torch must see: an autograd function, whose gradient is the conjugate of that of the result."""

from __future__ import annotations

from typing import Any

import torch

from ...ops.complex import conjugate
from ...types import UnsupportedError

__all__ = ["conjugated"]


def conjugated(x: Any, out: Any, how: dict[str, Any]) -> Any:
    """The conjugate of a tensor that torch dispatches on. Autocast leaves complex tensors as they are."""
    if torch.is_grad_enabled() and getattr(out, "requires_grad", False):
        raise UnsupportedError("conj: out requires a gradient, and torch records none of it", "pass out.detach()")
    with torch.autocast(x.device.type, enabled=False):
        if out is None:
            return _Conjugated.apply(x, how)
        if torch.is_grad_enabled() and x.requires_grad:
            raise UnsupportedError(
                "conj: out was passed, and torch records no gradient of what is written in place",
                "leave out= out, or call it under torch.no_grad()",
            )
        with torch.no_grad():
            return conjugate.conjugated(x, out, how)


class _Conjugated(torch.autograd.Function):  # type: ignore[misc, unused-ignore]
    @staticmethod
    def forward(x: Any, how: dict[str, Any]) -> Any:
        return conjugate.conjugated(x, None, how)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.how = {**inputs[1], "stream": None}  # a gradient is computed on torch's own stream

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return conjugate.conj(grad.resolve_conj(), **ctx.how), None

    @staticmethod
    def jvp(ctx: Any, tangent: Any, _how: Any) -> Any:
        return conjugate.conj(tangent.resolve_conj(), **ctx.how)

    @staticmethod
    def vmap(_info: Any, in_dims: Any, x: Any, how: dict[str, Any]) -> Any:
        return _Conjugated.apply(x, how), in_dims[0]
