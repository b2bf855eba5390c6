"""Decides exactly whether two operands share a byte, from the bytes that they touch."""

from __future__ import annotations

import math
from itertools import product

import numpy as np

from .operand import Tensor

__all__ = ["overlaps", "same_view"]

_MAX_CANDIDATES = 10_000  # candidate solutions np.shares_memory may try before the answer counts as "they overlap"
_MAX_VIEWS = 64  # views of whole bytes that a packed view may fall into before the answer counts as "they overlap"


class _Bytes:
    """A strided view of items of `size` bytes, as NumPy's solver sees it: only addresses are compared, nothing is read."""

    def __init__(self, pointer: int, axes: tuple[tuple[int, int], ...], size: int) -> None:
        self.low, self.high = pointer, pointer + sum(s * (n - 1) for n, s in axes) + size
        self.__array_interface__ = {
            "version": 3,
            "shape": tuple(n for n, _ in axes),
            "strides": tuple(s for _, s in axes),
            "typestr": f"|V{size}",
            "data": (pointer, True),
        }

    def may_overlap(self, other: _Bytes) -> bool:
        if self.high <= other.low or other.high <= self.low:
            return False
        try:
            return bool(np.shares_memory(np.asarray(self), np.asarray(other), max_work=_MAX_CANDIDATES))  # type: ignore[arg-type]
        except (np.exceptions.TooHardError, OverflowError, ValueError):  # the latter two: NumPy's limits are exceeded
            return True


def _views(tensor: Tensor) -> list[_Bytes] | None:
    """The bytes that a view touches, as views of whole bytes; None if there would be too many."""
    steps = [(n, s) for n, s in zip(tensor.shape, tensor.strides) if n > 1 and s]
    first = tensor.phase + sum(s * (n - 1) for n, s in steps if s < 0)
    axes = [(n, abs(s)) for n, s in steps]  # reversed axes are walked from their other end
    bits = tensor.element.bits
    if not tensor.element.packed:
        size = bits // 8
        return [_Bytes(tensor.pointer + first * size, tuple((n, s * size) for n, s in axes), size)]
    per = tensor.element.per_byte
    # Along an axis whose elements skip no byte, a row is a run of bytes. Along the other axes, elements whose distance is not a
    # multiple of a byte are separated by their position in the byte.
    row = min((axis for axis in axes if axis[1] <= per), key=lambda axis: axis[1], default=(1, 1))
    if row in axes:
        axes.remove(row)
    periods = [per // math.gcd(s, per) for _, s in axes]
    if math.prod(min(p, n) for p, (n, _) in zip(periods, axes)) > _MAX_VIEWS:
        return None
    views = []
    for residues in product(*(range(min(p, n)) for p, (n, _) in zip(periods, axes))):
        begin = first + sum(r * s for r, (_, s) in zip(residues, axes))
        run = (begin + row[1] * (row[0] - 1)) // per - begin // per + 1
        strided = [(-(-(n - r) // p), s * p // per) for r, p, (n, s) in zip(residues, periods, axes)]
        views.append(_Bytes(tensor.pointer + begin // per, (*strided, (run, 1)), 1))
    return views


def same_view(a: Tensor, b: Tensor) -> bool:
    """Whether both are the same elements at the same addresses."""
    return (a.pointer, a.phase, a.shape, a.strides, a.element) == (b.pointer, b.phase, b.shape, b.strides, b.element)


def overlaps(a: Tensor, b: Tensor) -> bool:
    """Whether the views share a byte; True also if bounded work does not decide it."""
    if a.ordinal != b.ordinal:
        return False
    (low, high), (other_low, other_high) = a.interval(), b.interval()
    if high <= other_low or other_high <= low or low == high or other_low == other_high:
        return False
    mine, theirs = _views(a), _views(b)
    return mine is None or theirs is None or any(x.may_overlap(y) for x in mine for y in theirs)
