"""linear: a product with the transpose of a weight, as torch.nn.functional.linear."""

from __future__ import annotations

from typing import Any

from ...plan.registry import composed
from ...types import InvalidProblemError
from .matmul import matmul

__all__ = ["linear"]


@composed("dense", "fullyconnected")
def linear(x: Any, weight: Any, bias: Any = None, **options: Any) -> Any:
    """``matmul(x, weight.T, bias=bias)`` for a weight of shape [out_features, in_features]; the transpose is a view.

    `options` are those of `matmul`: ``activation= out= stream= pref= device=`` and others.
    """
    shape = getattr(weight, "shape", None)
    if not hasattr(weight, "T") or shape is None or len(shape) != 2:
        raise InvalidProblemError(
            f"linear: weight must be an array of two dimensions, outputs by inputs, got {type(weight).__name__} of shape {shape}",
            "pass such an array, or the transpose to bp.matmul",
        )
    return matmul(x, weight.T, bias=bias, **options)
