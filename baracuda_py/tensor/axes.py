"""Arithmetic on shapes and strides: C order, collapsing, spans, alignment. Strides count elements throughout."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..types import ElementKind

__all__ = [
    "Collapsed",
    "alignment_of",
    "as_ints",
    "broadcast_shapes",
    "c_strides",
    "collapse",
    "dense_like",
    "index_of",
    "merge_axes",
    "rows_may_overlap",
    "self_overlapping",
    "span",
]

Shape = tuple[int, ...]
INT64 = 1 << 63
Collapsed = tuple[Shape, tuple[Shape, ...]]


def c_strides(shape: Sequence[int], element: ElementKind | None = None) -> Shape:
    """C-order strides; rows of a packed kind start on a byte."""
    strides: list[int] = []
    step = 1
    packed = element is not None and element.packed
    for extent in reversed(shape):
        strides.append(step)
        if packed and len(strides) == 1 and element is not None:
            extent = -(-extent // element.per_byte) * element.per_byte
        if extent > 1:
            step *= extent
    return tuple(strides[::-1])


def without_unit_axes(shape: Sequence[int], strides: Sequence[Sequence[int]]) -> Collapsed:
    keep = [axis for axis, extent in enumerate(shape) if extent != 1]
    return tuple(shape[a] for a in keep), tuple(tuple(s[a] for a in keep) for s in strides)


def merge_axes(shape: Sequence[int], strides: Sequence[Sequence[int]]) -> Collapsed:
    """Drops axes of extent 1 and joins neighbours that every operand steps through evenly."""
    shape, strides = without_unit_axes(shape, strides)
    merged: list[int] = []
    steps: list[list[int]] = [[] for _ in strides]
    for axis, extent in enumerate(shape):
        if merged and all(mine[-1] == theirs[axis] * extent for mine, theirs in zip(steps, strides)):
            merged[-1] *= extent
            for mine, theirs in zip(steps, strides):
                mine[-1] = theirs[axis]
        else:
            merged.append(extent)
            for mine, theirs in zip(steps, strides):
                mine.append(theirs[axis])
    return tuple(merged), tuple(map(tuple, steps))


def collapse(shape: Sequence[int], strides: Sequence[Sequence[int]]) -> Collapsed:
    """Reorders axes by the first operand's |stride|, widest first, then merges: the same elements in fewer axes."""
    shape, strides = without_unit_axes(shape, strides)
    order = sorted(range(len(shape)), key=lambda a: tuple(-abs(s[a]) for s in strides))
    return merge_axes([shape[a] for a in order], [[s[a] for a in order] for s in strides])


def span(shape: Sequence[int], strides: Sequence[int], element: ElementKind, phase: int = 0) -> tuple[int, int]:
    """The bytes [low, high) that a view touches, relative to its first byte; (0, 0) if it is empty."""
    if 0 in shape:
        return 0, 0
    low = phase + sum(min(0, s * (n - 1)) for n, s in zip(shape, strides))
    high = phase + sum(max(0, s * (n - 1)) for n, s in zip(shape, strides)) + 1
    return (low * element.bits) // 8, (high * element.bits + 7) // 8


def self_overlapping(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether two indices may reach one element (zero strides, or axes that interleave). False is certain."""
    reach = 0
    for stride, extent in sorted((abs(s), n) for n, s in zip(shape, strides) if n > 1):
        if stride <= reach:
            return 0 not in shape
        reach += stride * (extent - 1)
    return False


def rows_may_overlap(shape: Sequence[int], strides: Sequence[int], element: ElementKind, phase: int = 0) -> bool:
    """Whether two rows of a packed view may touch the same byte. A row runs along the last axis and begins at element `phase`
    of a byte. False is certain."""
    if not shape or 0 in shape:
        return False
    per = element.per_byte
    outer = [(n, s) for n, s in zip(shape[:-1], strides) if n > 1]
    width = (phase + abs(strides[-1]) * (shape[-1] - 1)) // per + 1
    uneven = any(s % per for _, s in outer)
    return uneven or self_overlapping([width, *(n for n, _ in outer)], [1, *(s // per for _, s in outer)])


def alignment_of(address: int) -> int:
    """The largest power of two up to 16 that divides an address or a byte count (16 for zero)."""
    return min(16, address & -address) if address else 16


def broadcast_strides(shape: Shape, strides: Shape, onto: Shape) -> Shape:
    """A view's strides after broadcasting `shape` onto a longer one: 0 along the axes it repeats."""
    lead = len(onto) - len(shape)
    return (0,) * lead + tuple(0 if n == 1 and m != 1 else s for n, m, s in zip(shape, onto[lead:], strides))


def broadcast_shapes(*shapes: Shape) -> Shape:
    """The shape that arrays of these broadcast to, of any rank (NumPy's own stops at 32); ValueError where they do not."""
    rank = max(map(len, shapes), default=0)
    result = []
    for extents in zip(*((1,) * (rank - len(shape)) + tuple(shape) for shape in shapes)):
        longer = {n for n in extents if n != 1} or {1}
        if len(longer) > 1:
            raise ValueError(f"{extents} do not broadcast")
        result.append(longer.pop())
    return tuple(result)


def index_of(value: Any) -> int:
    """Converts to a Python int of 64 bits; raises TypeError or OverflowError. Arrays are refused, 0-d ones too: reading one in
    device memory would synchronise."""
    if type(value) is not int:
        if isinstance(value, bool) or hasattr(type(value), "__dlpack__"):
            raise TypeError
        value = operator.index(value)
    if not -INT64 < value < INT64:
        raise OverflowError
    return int(value)


def as_ints(values: Any) -> Shape:
    """Converts a tuple, a list or a NumPy array to a tuple of Python ints; raises TypeError or OverflowError for anything
    else."""
    if isinstance(values, np.ndarray) and values.ndim:
        values = list(values)
    if not isinstance(values, Sequence) or isinstance(values, (str, bytes, bytearray, memoryview)):
        raise TypeError
    return tuple(map(index_of, values))


def dense_like(shape: Shape, like: Shape) -> Shape:
    """Dense strides in the axis order of `like` (widest first; CuPy's order="K")."""
    order = sorted(range(len(shape)), key=lambda a: (-abs(like[a]), a))
    strides, step = [0] * len(shape), 1
    for axis in reversed(order):
        strides[axis] = step
        step *= max(shape[axis], 1)
    return tuple(strides)
