"""Operands: arrays of any framework taken in without a copy, and GpuBuffer."""

from .arrays import intake, ordinal_of
from .buffer import GpuBuffer
from .operand import HOST_ORDINAL, NO_MEMORY, Tensor
from .overlap import overlaps, same_view

__all__ = ["HOST_ORDINAL", "NO_MEMORY", "GpuBuffer", "Tensor", "intake", "ordinal_of", "overlaps", "same_view"]
