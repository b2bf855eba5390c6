"""Whether two operands share a byte, decided exactly on the bytes they touch."""

from __future__ import annotations

import numpy as np

from .operand import Tensor

__all__ = ["overlaps", "same_view"]

_WORK = 10_000  # candidate solutions np.shares_memory may try before the answer counts as "they overlap"


class _Footprint:
    """Lets NumPy's solver see a device view: only addresses are compared, nothing is read."""

    def __init__(self, tensor: Tensor) -> None:
        shape, strides, bits = tensor.shape, tensor.strides, tensor.element.bits
        if tensor.element.packed and shape:
            # A row of nibbles is a row of whole bytes, its ends rounded outward.
            per = tensor.element.per_byte
            shape = (*shape[:-1], -(-shape[-1] // per))
            strides = (*strides[:-1], per)
        self.__array_interface__ = {
            "version": 3,
            "shape": shape,
            "strides": tuple(s * bits // 8 for s in strides),
            "typestr": f"|V{max(bits // 8, 1)}",
            "data": (tensor.pointer, True),
        }


def same_view(a: Tensor, b: Tensor) -> bool:
    """Whether both name the very same elements in the same places."""
    return a.pointer == b.pointer and a.shape == b.shape and a.strides == b.strides and a.element is b.element


def overlaps(a: Tensor, b: Tensor) -> bool:
    """True if the views share a byte, or if that could not be decided in bounded work."""
    if a.ordinal != b.ordinal:
        return False
    (low, high), (other_low, other_high) = a.interval(), b.interval()
    if high <= other_low or other_high <= low or low == high or other_low == other_high:
        return False
    try:
        return bool(np.shares_memory(np.asarray(_Footprint(a)), np.asarray(_Footprint(b)), max_work=_WORK))  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True
