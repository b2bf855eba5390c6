"""Operands: arrays of any framework taken in without a copy, and GpuBuffer."""

from .buffer import GpuBuffer
from .operand import HOST_ORDINAL, Tensor, intake
from .overlap import overlaps, same_view

__all__ = ["HOST_ORDINAL", "GpuBuffer", "Tensor", "intake", "overlaps", "same_view"]
