"""Windows of an array: NumPy's basic indices or half-open pairs, their byte offset, and sources of the window's shape."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...call.operands.key import byte_strides
from ...tensor import intake
from ...tensor.axes import index_of
from ...types import ElementKind, InvalidProblemError, OperandTypeError
from ...types.errors import shown

__all__ = ["NUMBERS", "Ranges", "begin_of", "check_ranges", "fitted", "pairs_of", "shape_of", "window_of"]

Ranges = tuple[tuple[int, int], ...]
NUMBERS = (bool, int, float, complex, np.generic)


def pairs_of(ranges: Any, shape: tuple[int, ...]) -> Ranges:
    """Pairs of ints, one per axis, from what NumPy takes as basic indices (`np.s_[1:, ..., -1]`) or from (start, end) pairs."""
    return _read(ranges, shape)[0]


def _read(ranges: Any, shape: tuple[int, ...]) -> tuple[Ranges, tuple[int, ...]]:
    """The pairs, and the axes that an integer indexes, which the source may lack.

    In a slice a negative bound counts from the end, and an open one is the end of the axis. A bound beyond the axis is left as
    it is and refused later, where NumPy would write a smaller window. Axes that are not named are whole if any index is one of
    NumPy's; pairs alone name every axis.
    """
    single = ranges is Ellipsis or isinstance(ranges, (slice, int, np.integer))
    try:
        items = [ranges] if single else list(_listed(ranges))
        if not isinstance(ranges, tuple) and len(items) > 1 and all(isinstance(i, (int, np.integer)) for i in items):
            raise TypeError  # a list of integers gathers, in NumPy
        numpy = any(not isinstance(item, (Sequence, np.ndarray)) for item in items)
        if numpy:
            if (gap := len(shape) - sum(item is not Ellipsis for item in items)) < 0:
                raise _rank(len(items), shape)
            at = [i for i, item in enumerate(items) if item is Ellipsis] or [len(items)]
            if len(at) == 1:
                items[at[0] : at[0] + 1] = [slice(None)] * gap
        extents = (*shape, *[0] * len(items))
        pairs = tuple(_pair(axis, item, extents[axis]) for axis, item in enumerate(items))
    except InvalidProblemError:
        raise
    except OverflowError:
        raise InvalidProblemError(
            f"write_slice: ranges={shown(ranges)} reaches beyond 64 bits", "stay within dest"
        ) from None
    except Exception:  # a foreign object's __index__ may raise anything
        raise InvalidProblemError(
            f"write_slice: ranges={shown(ranges)} are not pairs of integers, slices, integers or one Ellipsis",
            "give [(start, end), ...] or np.s_[...]",
        ) from None
    return pairs, tuple(axis for axis, item in enumerate(items) if isinstance(item, (int, np.integer)))


def _pair(axis: int, item: Any, extent: int) -> tuple[int, int]:
    if isinstance(item, slice):
        if item.step is not None and index_of(item.step) != 1:
            raise InvalidProblemError(
                f"write_slice: ranges[{axis}] is {shown(item)}, and only a step of 1 is written",
                "write a strided view of dest",
            )
        a = 0 if item.start is None else index_of(item.start)
        b = extent if item.stop is None else index_of(item.stop)
        low, high = a + extent * (a < 0), b + extent * (b < 0)
        if min(low, high) < 0 or low > extent:
            raise InvalidProblemError(
                f"write_slice: ranges[{axis}] = {shown(item)} reaches beyond dest's extent {extent}",
                f"begin at {-extent} to {extent}",
            )
        return low, high
    if isinstance(item, (Sequence, np.ndarray)):
        a, b = _listed(item)
        return index_of(a), index_of(b)
    a = index_of(item)
    if not -extent <= a < extent:
        raise InvalidProblemError(
            f"write_slice: ranges[{axis}] is {a}, and dest has {extent} there", f"give {-extent} to {extent - 1}"
            if extent else "write nothing: dest is empty",
        )  # fmt: skip
    a += extent * (a < 0)
    return a, a + 1


def _listed(items: Any) -> Sequence[Any]:
    if isinstance(items, (Sequence, np.ndarray)) and not isinstance(items, (str, bytes)):
        return items  # type: ignore[return-value]
    raise TypeError


def _rank(count: int, shape: tuple[int, ...]) -> InvalidProblemError:
    return InvalidProblemError(
        f"write_slice: {count} ranges for a dest of rank {len(shape)}",
        "give one (start, end) per axis, or NumPy's indices: np.s_[2:5] has all of the other axes",
    )


def check_ranges(ranges: Ranges, shape: tuple[int, ...]) -> None:
    if len(ranges) != len(shape):
        raise _rank(len(ranges), shape)
    for axis, ((a, b), extent) in enumerate(zip(ranges, shape)):
        if a < 0:
            raise InvalidProblemError(
                f"write_slice: ranges[{axis}] starts at {a}",
                f"negative starts do not wrap in a pair; give {extent + a}, counted from 0, or the slice np.s_[{a}:]",
            )
        if b < a:
            raise InvalidProblemError(f"write_slice: ranges[{axis}] = ({a}, {b}) is reversed", "give start <= end")
        if b > extent:
            raise InvalidProblemError(
                f"write_slice: ranges[{axis}] = ({a}, {b}) reaches beyond dest's extent {extent}",
                f"end at {extent} or before",
            )


def window_of(dest: Any, ranges: Any) -> tuple[int, tuple[int, ...], Any]:
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
            usual = 0 not in shape and 1 not in shape
            return shift if usual else begin_of(starts, shape, strides), tuple(starts), tuple(extents)
    except Exception:  # a foreign object's attributes may raise anything
        pass
    shape = shape_of(dest)
    pairs = pairs_of(ranges, shape)
    check_ranges(pairs, shape)
    begins = tuple(a for a, _ in pairs)
    return begin_of(begins, shape, byte_strides(dest)), begins, tuple(b - a for a, b in pairs)


def begin_of(starts: Sequence[int], shape: Sequence[int], strides: Sequence[int]) -> int:
    """The distance from the first element of an array to that of a window. Strides of an empty array mean nothing, nor do those
    of axes of one element: a window that starts at their end is empty."""
    return 0 if 0 in shape else sum(a * stride for a, n, stride in zip(starts, shape, strides) if n > 1)


def shape_of(dest: Any) -> tuple[int, ...]:
    try:
        return tuple(dest.shape)
    except Exception:  # no array, or one that only `intake` can read
        return intake(dest, what="write_slice: dest").shape


# ---- sources ---------------------------------------------------------------------------------------------------------


def fitted(dest: Any, source: Any, ranges: Any, window: tuple[int, ...], stream: Any = None) -> Any:
    """`source` as an array of the window's shape: a view that copies nothing, or of a number one element on dest's device.

    A source that has that shape, or that cannot be broadcast to it, is returned as it is: the descriptor checks it.
    """
    if isinstance(source, NUMBERS):
        source = _element_of(dest, source, ranges, stream)
    try:
        shape = tuple(source.shape)
    except Exception:  # no array, or one that only `intake` can read
        return source
    package = _package(source)
    if shape == window or package is None:
        return source
    if not _broadcasts(shape, window):
        indexed = _read(ranges, shape_of(dest))[1]
        kept = [axis for axis in range(len(window)) if axis not in indexed]
        while len(shape) > len(kept) and shape[0] == 1:
            source, shape = source[0], shape[1:]  # NumPy ignores leading axes of extent 1
        places = kept[len(kept) - len(shape) :] if len(shape) <= len(kept) else ()
        if not places or not _broadcasts(shape, tuple(window[axis] for axis in kept)):
            return source
        source = source[tuple(slice(None) if axis in places else None for axis in range(len(window)))]
    return package.broadcast_to(source, window)


def _broadcasts(shape: tuple[int, ...], onto: tuple[int, ...]) -> bool:
    return len(shape) <= len(onto) and all(n in (1, m) for n, m in zip(shape[::-1], onto[::-1]))


def _package(x: Any) -> Any:
    """The framework of an array whose views copy nothing, if it is one."""
    name = type(x).__module__.partition(".")[0]
    return sys.modules.get(name) if name in ("numpy", "cupy", "torch") else None


def _element_of(dest: Any, number: Any, ranges: Any, stream: Any) -> Any:
    """An array of no axes that holds `number` as an element of dest's kind, on dest's device."""
    package, at = _package(dest), ", ".join(f"{a}:{b}" for a, b in pairs_of(ranges, shape_of(dest)))
    whole = f"pass an array: {package.__name__ if package else 'numpy'}.full_like(dest[{at}], {shown(number)})"
    what = f"write_slice: source is the number {shown(number)}"
    if package is None:
        raise OperandTypeError(f"{what}, and dest a {type(dest).__name__}", whole)
    value = _converted(number, intake(dest, what="write_slice: dest").element, what)
    if package.__name__ == "numpy":
        return value
    if stream is not None:  # the element would be written on the framework's current stream
        raise OperandTypeError(f"{what}, and stream= was given", whole)
    if package.__name__ == "torch":
        return package.full((), number, dtype=dest.dtype, device=dest.device)
    if package.cuda.get_current_stream().is_capturing():  # the element's memory would not live as long as the graph
        raise OperandTypeError(f"{what} during a capture", whole)
    with package.cuda.Device(dest.data.device_id):
        return package.asarray(value)


def _converted(number: Any, element: ElementKind, what: str) -> Any:
    """`number` rounded to a kind, as an array of no axes; a number that the kind cannot hold is refused."""
    if element.packed:
        raise OperandTypeError(f"{what}, and dest holds {element}", "pass a packed source of the window's shape")
    is_int, fix = isinstance(number, (int, np.integer)), f"pass a number that {element} holds"
    if element.is_complex or (element.is_float and not isinstance(number, (complex, np.complexfloating))):
        with np.errstate(all="ignore"):
            value = np.asarray(number if not is_int or abs(int(number)) < 1 << 1000 else np.inf)
            result = value.astype(element.dtype)
            lost = (is_int or bool(np.isfinite(value))) and not np.isfinite(result.astype(complex))
    elif isinstance(number, (bool, np.bool_)) or (is_int and element.is_integer):
        info = np.iinfo(element.dtype) if element.is_integer else None
        lost = info is not None and not info.min <= int(number) <= info.max
        result = np.asarray(0 if lost else number, element.dtype)
    else:
        raise OperandTypeError(f"{what}, and dest holds {element}", fix)
    if lost:
        raise InvalidProblemError(f"{what}, which is out of range for {element}", fix)
    return result
