"""Windows of an array: half-open ranges as users give them, checked, and their byte offset."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...call.operands.key import byte_strides
from ...tensor import intake
from ...tensor.axes import index_of
from ...types import InvalidProblemError
from ...types.errors import shown

__all__ = ["Ranges", "check_ranges", "pairs_of", "shape_of", "window_of"]

Ranges = tuple[tuple[int, int], ...]


def pairs_of(ranges: Any, shape: tuple[int, ...]) -> Ranges:
    """Pairs of ints from pairs or slices of int-likes; the open end of a slice is the end of the axis."""
    try:
        pairs = []
        for axis, item in enumerate(_listed(ranges)):
            if isinstance(item, slice):
                if item.step is not None and index_of(item.step) != 1:
                    raise InvalidProblemError(
                        f"write_slice: ranges[{axis}] is {shown(item)}, and only a step of 1 is written",
                        "write a strided view of dest",
                    )
                a = 0 if item.start is None else item.start
                b = (shape[axis] if axis < len(shape) else 0) if item.stop is None else item.stop
            else:
                a, b = _listed(item)
            pairs.append((index_of(a), index_of(b)))
    except InvalidProblemError:
        raise
    except OverflowError:
        raise InvalidProblemError(
            f"write_slice: ranges={shown(ranges)} reaches beyond 64 bits", "stay within dest"
        ) from None
    except Exception:  # a foreign object's __index__ may raise anything
        raise InvalidProblemError(
            f"write_slice: ranges={shown(ranges)} are not pairs of integers or slices", "give [(start, end), ...]"
        ) from None
    return tuple(pairs)


def _listed(items: Any) -> Sequence[Any]:
    if isinstance(items, (Sequence, np.ndarray)) and not isinstance(items, (str, bytes)):
        return items  # type: ignore[return-value]
    raise TypeError


def check_ranges(ranges: Ranges, shape: tuple[int, ...]) -> None:
    if len(ranges) != len(shape):
        raise InvalidProblemError(
            f"write_slice: {len(ranges)} ranges for a dest of rank {len(shape)}", "give one (start, end) an axis"
        )
    for axis, ((a, b), extent) in enumerate(zip(ranges, shape)):
        if a < 0:
            raise InvalidProblemError(
                f"write_slice: ranges[{axis}] starts at {a}",
                f"negative starts do not wrap here; give {extent + a}, counted from 0",
            )
        if b < a:
            raise InvalidProblemError(f"write_slice: ranges[{axis}] = ({a}, {b}) is reversed", "give start <= end")
        if b > extent:
            raise InvalidProblemError(
                f"write_slice: ranges[{axis}] = ({a}, {b}) reaches beyond dest's extent {extent}",
                f"end at {extent} or before",
            )


def window_of(dest: Any, ranges: Sequence[Any]) -> tuple[int, tuple[int, ...], Any]:
    """A window's byte offset, starts and extents. Unusual ranges are left to the descriptor, which checks them."""
    try:
        shape, strides, shift, starts, extents = dest.shape, byte_strides(dest), 0, [], []
        if not len(ranges) == len(shape) == len(strides):
            raise ValueError
        for (a, b), n, stride in zip(ranges, shape, strides):
            if type(a) is not int or type(b) is not int or not 0 <= a <= b <= n:
                break
            shift += a * stride
            starts.append(a)
            extents.append(b - a)
        else:
            return shift, tuple(starts), tuple(extents)
    except Exception:  # a foreign object's attributes may raise anything
        pass
    shape = shape_of(dest)
    pairs = pairs_of(ranges, shape)
    check_ranges(pairs, shape)
    shift = sum(a * stride for (a, _), stride in zip(pairs, byte_strides(dest)))
    return shift, tuple(a for a, _ in pairs), tuple(b - a for a, b in pairs)


def shape_of(dest: Any) -> tuple[int, ...]:
    try:
        return tuple(dest.shape)
    except Exception:  # no array, or one that only `intake` can read
        return intake(dest, what="write_slice: dest").shape
