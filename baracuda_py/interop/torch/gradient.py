"""The gradients of a recorded call (`interop.gradient`), with torch's own operators."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from ..gradient import differentiable_outputs, needed_for_gradient, recorded_arguments
from ..gradient import gradients_of as _gradients_of
from .schema import Signature, signature_of

__all__ = ["differentiable_outputs", "gradients_of", "needed_for_gradient", "recorded_arguments"]


class _Torch:
    activations = {
        "relu": lambda grad, z: torch.where(z > 0, grad, 0),
        "gelu": lambda grad, z: torch.ops.aten.gelu_backward(grad, z),
        "gelu_tanh": lambda grad, z: torch.ops.aten.gelu_backward(grad, z, approximate="tanh"),
        "silu": lambda grad, z: torch.ops.aten.silu_backward(grad, z),
    }

    def signature_of(self, name: str) -> Signature:
        return signature_of(name)

    def is_array(self, x: Any) -> bool:
        return isinstance(x, torch.Tensor)

    def is_half(self, x: Any) -> bool:
        return x.dtype in (torch.float16, torch.bfloat16)

    def cast(self, x: Any, dtype: Any) -> Any:
        return x.to(dtype)

    def expand(self, x: Any, shape: tuple[Any, ...]) -> Any:
        return x.expand(shape).contiguous()

    def sum_to(self, x: Any, shape: tuple[Any, ...]) -> Any:
        return x.sum_to_size(shape)

    def broadcast_shapes(self, a: Any, b: Any) -> tuple[Any, ...]:
        return tuple(torch.broadcast_shapes(a, b))

    def constant(self, name: str) -> str:
        return f"{name}.detach()"


gradients_of = partial(_gradients_of, _Torch())
