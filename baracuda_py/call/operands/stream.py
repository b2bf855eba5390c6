"""Chooses the stream of a call that names none: the current stream of the framework that owns the written operands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...plan.descriptor import Descriptor
from ...runtime.gpu.streams import foreign_stream
from ...tensor.pytorch import is_tensor

__all__ = ["framework_stream", "stream_of_call"]


def framework_stream(x: Any) -> int | None:
    """The current stream of the framework that owns `x`; None for CuPy, NumPy and frameworks without a current stream."""
    return foreign_stream("torch", x.device.index) if is_tensor(x) and x.is_cuda else None


def stream_of_call(desc: Descriptor, given: Mapping[str, Any], kind: str, ordinal: int) -> int | None:
    """The current stream of the framework that owns the written operands, whether they are given or will be allocated for
    `kind`; None for CuPy's."""
    written = [(given.get(operand.name), operand.optional) for operand in desc.operands if operand.written]
    if kind == "torch" and any(x is None and not optional for x, optional in written):
        return foreign_stream("torch", ordinal)
    streams = [framework_stream(x) for x, _ in written if x is not None]
    return next((stream for stream in streams if stream is not None), None)
