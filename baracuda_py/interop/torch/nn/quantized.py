"""The base of linear layers whose weights have few bits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Self

import torch

from ....plan.registry import get_op
from ....types import InvalidProblemError

__all__ = ["QuantizedLinear", "float_of"]

_matmul = get_op("matmul").function


class QuantizedLinear(torch.nn.Module):  # type: ignore[misc, unused-ignore]
    """``y = x W^T + bias`` with a weight [out_features, in_features] in few bits, which is not trained.

    The weight's arrays are buffers: a state dict has them, and `.to(device)` moves them. A change of dtype converts the
    bias alone. `x` and the bias get gradients if they require them, that of `x` through the dequantised
    weight. torch.compile traces the layer as one custom op.
    """

    def __init__(self, in_features: int, out_features: int, arrays: Mapping[str, Any], bias: Any = None) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.weight_arrays = tuple(arrays)
        for name, array in arrays.items():
            self.register_buffer(name, array)
        if bias is None:
            self.register_parameter("bias", None)
        else:
            if tuple(bias.shape) != (out_features,):
                raise InvalidProblemError(
                    f"{type(self).__name__}: bias has shape {tuple(bias.shape)}", f"pass ({out_features},)"
                )
            self.bias = torch.nn.Parameter(bias.detach(), requires_grad=False)

    @classmethod
    def of(cls, linear: torch.nn.Linear) -> Self:
        """The layer of a torch.nn.Linear, quantised on the device that its weight is on."""
        raise NotImplementedError

    @classmethod
    def empty(cls, linear: torch.nn.Linear, **options: Any) -> Self:
        """The layer that `of` makes with these options, without values, on the device and with the dtype of the weight."""
        weight = linear.weight
        return cls(
            linear.in_features, linear.out_features, bias=linear.bias is not None, dtype=weight.dtype,
            device=weight.device, **options,
        )  # type: ignore[call-arg]  # fmt: skip

    def product(self, x: Any) -> Any:
        """The result, without a gradient."""
        raise NotImplementedError

    def dequantize(self, dtype: Any = None) -> Any:
        """The weight [out_features, in_features] as floats, f32 by default."""
        raise NotImplementedError

    def forward(self, x: Any) -> Any:
        if torch.is_grad_enabled() and (x.requires_grad or (self.bias is not None and self.bias.requires_grad)):
            return _Through.apply(x, self.bias, self)
        return self.product(x)

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"

    def _apply(self, fn: Callable[[Any], Any], recurse: bool = True) -> Self:
        held = {id(x) for name in self.weight_arrays if (x := getattr(self, name)) is not None}

        def kept(x: Any) -> Any:
            made = fn(x)
            return x.to(made.device) if id(x) in held and made.dtype != x.dtype else made

        return super()._apply(kept, recurse)  # type: ignore[no-any-return, unused-ignore]


def float_of(linear: torch.nn.Linear) -> tuple[Any, Any]:
    """The weight and the bias of a layer, without gradients."""
    if not isinstance(linear, torch.nn.Linear):
        raise InvalidProblemError(f"expected a torch.nn.Linear, got {type(linear).__name__}", "pass the layer itself")
    return linear.weight.detach(), None if linear.bias is None else linear.bias.detach()


class _Through(torch.autograd.Function):  # type: ignore[misc, unused-ignore]
    """The product, whose gradient goes through the dequantised weight."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Any, bias: Any, layer: QuantizedLinear) -> Any:
        return layer.product(x.detach())

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        x, bias, ctx.layer = inputs
        ctx.dtype, ctx.bias_dtype = x.dtype, None if bias is None else bias.dtype
        arrays = (getattr(ctx.layer, name) for name in ctx.layer.weight_arrays)
        ctx.save_for_backward(*(array for array in arrays if array is not None))

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        _ = ctx.saved_tensors  # torch raises here if the weight was changed since
        of_x = of_bias = None
        if ctx.needs_input_grad[0]:
            of_x = _matmul(grad.to(ctx.dtype), ctx.layer.dequantize(ctx.dtype))
        if ctx.needs_input_grad[1]:
            of_bias = grad.reshape(-1, grad.shape[-1]).sum(0).to(ctx.bias_dtype)
        return of_x, of_bias, None
