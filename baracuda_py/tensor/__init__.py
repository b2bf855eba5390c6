"""Operands: arrays of any framework, read without a copy, and GpuBuffer."""

from .arrays import how_to_wrap, intake, ordinal_of
from .buffer import GpuBuffer
from .operand import HOST_ORDINAL, NO_MEMORY, Tensor, how_to_copy
from .overlap import overlaps, same_view

__all__ = [
    "HOST_ORDINAL",
    "NO_MEMORY",
    "GpuBuffer",
    "Tensor",
    "how_to_copy",
    "how_to_wrap",
    "intake",
    "ordinal_of",
    "overlaps",
    "same_view",
]
