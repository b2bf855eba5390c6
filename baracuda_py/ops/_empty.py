"""New arrays of functions that make arrays from numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..call.results.allocate import allocator
from ..plan.descriptor import Layout
from ..runtime.gpu.device import spec_of
from ..tensor.axes import c_strides
from ..types import ElementKind, InvalidProblemError

__all__ = ["empty_array"]


def empty_array(op: str, shape: tuple[int, ...], kind: ElementKind, device: Any) -> Any:
    """An array whose elements are not set: CuPy's, or NumPy's for a device of host memory."""
    if min(shape, default=0) < 0:
        raise InvalidProblemError(f"{op}: shape {shape} has a negative extent", "give extents of 0 or more")
    if kind.nbytes(math.prod(shape)) >= 1 << 63:
        raise InvalidProblemError(f"{op}: shape {shape} takes 2**63 bytes or more", "give what fits in memory")
    if spec_of(device).host_memory:
        return np.empty(shape, kind.dtype)
    return allocator(Layout(shape, c_strides(shape), kind))()
