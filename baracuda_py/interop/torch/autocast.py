"""torch.autocast: the factors of products and of attention are cast to the type that autocast names; every other op computes as
without it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from ...types import OpCategory
from .schema import Signature

__all__ = ["cast_operands", "may_cast"]

_CAST = (OpCategory.GEMM, OpCategory.ATTENTION)
_FLOATS = (torch.float16, torch.bfloat16, torch.float32)


def cast_operands(signature: Signature, given: dict[str, Any]) -> dict[str, Any]:
    """The arguments with the factors cast, if autocast is on for their device. Dynamo traces this."""
    if signature.op.plan.category not in _CAST or signature.op.gradient is None:
        return given
    factors = [name for name in signature.op.gradient.gradients if name in signature.required]
    first: Any = given.get(factors[0])
    if not isinstance(first, torch.Tensor) or first.device.type not in ("cpu", "cuda"):
        return given
    if not torch.is_autocast_enabled(first.device.type):
        return given
    dtype = torch.get_autocast_dtype(first.device.type)
    return {**given, **{name: given[name].to(dtype) for name in factors if _is_cast(given, name)}}


def may_cast(signature: Signature) -> bool:
    """Whether a call of the op may have its factors cast: whether autocast is on for a device."""
    casts = signature.op.plan.category in _CAST and signature.op.gradient is not None
    return casts and any(map(torch.is_autocast_enabled, ("cpu", "cuda")))


def _is_cast(given: Mapping[str, Any], name: str) -> bool:
    return isinstance(given.get(name), torch.Tensor) and given[name].dtype in _FLOATS
