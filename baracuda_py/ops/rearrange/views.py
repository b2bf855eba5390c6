"""split, chunk, broadcast_to, meshgrid, diagonal, unfold: views, of the kind of the array that is given; rot90, a flip of a view.

Views that every array library writes alike (transpose, reshape, squeeze, slices) are left to it.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...plan.fields import choice, integer
from ...plan.registry import composed
from ...tensor import intake
from ...tensor.axes import broadcast_shapes, broadcast_strides
from ...tensor.views import Strided, view_of
from ...types import InvalidProblemError, PlanPreference
from .._numbers import one_or_more
from ..shape_layout.contiguize import contiguize
from ._problem import axes_of
from .moves import flip

__all__ = ["broadcast_to", "chunk", "diagonal", "meshgrid", "rot90", "split", "unfold"]


@composed()
def split(x: Any, /, indices_or_sections: int | Sequence[int], axis: int = 0) -> list[Any]:
    """Views of `x` that follow each other along `axis`, as numpy.split: so many of equal extent, or those between the indices.

    x: an array of NumPy, CuPy or PyTorch, or a GpuBuffer; its pieces share its memory. indices_or_sections: an int, which must
    divide the extent, or the increasing indices at which pieces begin. (torch.split takes extents: `chunk`, or
    ``itertools.accumulate``.) Raises InvalidProblemError for an axis out of range, and for an int that does not divide.
    """
    n, what = _extent(x, "split", axis), "split: indices_or_sections"
    several = isinstance(indices_or_sections, (Sequence, np.ndarray)) and np.ndim(indices_or_sections) > 0
    found = one_or_more(indices_or_sections, what)
    if several:
        return _pieces(x, "split", axis, [min(max(i + n if i < 0 else i, 0), n) for i in found])
    if found[0] < 1 or n % found[0]:
        raise InvalidProblemError(f"{what}={found[0]} does not divide the {n} elements of axis {axis}", "use chunk")
    return _pieces(x, "split", axis, range(n // found[0], n, max(n // found[0], 1)) if n else (0,) * (found[0] - 1))


@composed()
def chunk(x: Any, /, chunks: int, axis: int = 0) -> list[Any]:
    """At most `chunks` views of `x` that follow each other along `axis`, of one extent but for the last, as torch.chunk.

    x: an array of NumPy, CuPy or PyTorch, or a GpuBuffer; its pieces share its memory. Raises InvalidProblemError for an axis out
    of range, and for fewer chunks than one.
    """
    n, count = _extent(x, "chunk", axis), integer(chunks, "chunk: chunks")
    if count < 1:
        raise InvalidProblemError(f"chunk: chunks={count} is less than 1", "give 1 or more")
    each = -(-n // count)
    return _pieces(x, "chunk", axis, range(each, n, each) if n else (0,) * (count - 1))


@composed("expand")
def broadcast_to(x: Any, /, shape: int | Sequence[int]) -> Any:
    """`x` as an array of `shape`, a view with the stride 0 along the axes that it is repeated along, as numpy.broadcast_to.

    x: an array of NumPy, CuPy or PyTorch, or a GpuBuffer. Kernels take such operands without a copy, and no output may be one.
    The gradient is the sum over those axes. Raises InvalidProblemError where x does not broadcast to that shape.
    """
    onto = one_or_more(shape, "broadcast_to: shape")

    def layout(own: tuple[int, ...], strides: tuple[int, ...]) -> Strided:
        try:
            fits = min(onto, default=0) >= 0 and broadcast_shapes(own, onto) == onto
        except ValueError:
            fits = False
        if not fits:
            raise InvalidProblemError(
                f"broadcast_to: x of shape {own} does not broadcast to {onto}",
                "give x's extents, others in the place of 1, and further leading ones",
            )
        return Strided(onto, broadcast_strides(own, strides, onto))

    return view_of(x, "broadcast_to: x", layout, lambda x: x.expand(onto))


@composed()
def meshgrid(*arrays: Any, indexing: str = "xy") -> tuple[Any, ...]:
    """For each of the vectors the view of it in the grid that they span, as numpy.meshgrid.

    arrays: vectors, or arrays without axes, of NumPy, CuPy or PyTorch. indexing: ``"xy"`` (the first one varies along axis 1) or
    ``"ij"`` (along axis 0; torch's default). The results have strides of 0; ``bp.contiguize`` copies one. Raises
    InvalidProblemError for arrays of more axes.
    """
    swapped = choice(("xy", "ij"))(indexing, "meshgrid: indexing") == "xy" and len(arrays) > 1
    shapes = [_shape(x, f"meshgrid: arrays[{i}]") for i, x in enumerate(arrays)]
    for i, shape in enumerate(shapes):
        if len(shape) > 1:
            raise InvalidProblemError(f"meshgrid: arrays[{i}] of shape {shape} is no vector", "pass vectors")
    order = [1, 0, *range(2, len(arrays))] if swapped else list(range(len(arrays)))
    grid = tuple((shapes[i] or (1,))[0] for i in order)

    def placed(i: int) -> Any:
        def layout(_: tuple[int, ...], strides: tuple[int, ...]) -> Strided:
            return Strided(grid, tuple((*strides, 0)[0] if i == of else 0 for of in order))

        extents = tuple(-1 if i == of else 1 for of in order)
        return view_of(arrays[i], f"meshgrid: arrays[{i}]", layout, lambda x: x.reshape(extents).expand(grid))

    return tuple(map(placed, range(len(arrays))))


@composed()
def diagonal(x: Any, /, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    """Diagonals of `x`, a view whose last axis runs along them, as numpy.diagonal; `diag` makes a matrix of one.

    x: an array of two axes or more of NumPy, CuPy or PyTorch, or a GpuBuffer of a byte-wide kind. offset: 0 is the main diagonal,
    positive ones are above it. Raises InvalidProblemError for an axis out of range or given twice.
    """
    k = integer(offset, "diagonal: offset")

    def layout(shape: tuple[int, ...], strides: tuple[int, ...]) -> Strided:
        a, b = axes_of("diagonal", (integer(axis1, "diagonal: axis1"), integer(axis2, "diagonal: axis2")), len(shape))
        rest = [i for i in range(len(shape)) if i not in (a, b)]
        n = max(min(shape[a] + min(k, 0), shape[b] - max(k, 0)), 0)
        first = (max(k, 0) * strides[b] - min(k, 0) * strides[a]) if n else 0
        return Strided((*(shape[i] for i in rest), n), (*(strides[i] for i in rest), strides[a] + strides[b]), first)

    return view_of(x, "diagonal: x", layout, lambda x: x.diagonal(k, axis1, axis2))


@composed("slidingwindow", "windows")
def unfold(x: Any, /, axis: int, size: int, step: int = 1) -> Any:
    """Windows of `size` elements along `axis`, `step` from one to the next, as torch.Tensor.unfold: a view.

    Its last axis runs along a window. With step 1 it is numpy.lib.stride_tricks.sliding_window_view.
    x: an array of NumPy, CuPy or PyTorch, or a GpuBuffer. Windows overlap where step < size: no output may be such a view. Raises
    InvalidProblemError for an axis out of range, and for a size or step that x's extent does not hold.
    """
    length, by = integer(size, "unfold: size"), integer(step, "unfold: step")

    def layout(shape: tuple[int, ...], strides: tuple[int, ...]) -> Strided:
        (at,) = axes_of("unfold", (integer(axis, "unfold: axis"),), len(shape))
        if not 0 < length <= shape[at] or by < 1:
            raise InvalidProblemError(
                f"unfold: size={length} and step={by} along axis {at} of {shape[at]} elements",
                "give a size from 1 to the extent, and a step of 1 or more",
            )
        windows = (shape[at] - length) // by + 1
        return Strided(
            (*shape[:at], windows, *shape[at + 1 :], length),
            (*strides[:at], strides[at] * by, *strides[at + 1 :], strides[at]),
        )

    return view_of(x, "unfold: x", layout, lambda x: x.unfold(axis, length, by))


@composed("rotate")
def rot90(
    x: Any, /, k: int = 1, axes: Sequence[int] = (0, 1), *, out: Any = None, stream: Any = None,
    pref: PlanPreference | None = None, device: Any = None,
) -> Any:  # fmt: skip
    """`x` rotated by `k` times 90 degrees, from the first of `axes` to the second, as numpy.rot90, in one launch: a copy.

    x: an array of two axes or more of a byte-wide kind, any strides, of NumPy, CuPy or PyTorch. out: a C-ordered array of the
    result's shape and x's kind. Raises InvalidProblemError for axes out of range, and for others than two.
    """
    turns, pair, how = (
        integer(k, "rot90: k") % 4,
        one_or_more(axes, "rot90: axes"),
        {"stream": stream, "pref": pref, "device": device},
    )
    if len(pair) != 2:
        raise InvalidProblemError(f"rot90: axes={pair} are not two", "give two axes")

    def swapped(shape: tuple[int, ...], strides: tuple[int, ...]) -> Strided:
        a, b = axes_of("rot90", pair, len(shape))
        order = [b if i == a else a if i == b else i for i in range(len(shape))]
        return Strided(tuple(shape[i] for i in order), tuple(strides[i] for i in order))

    transposed = view_of(x, "rot90: x", swapped, lambda x: x.transpose(*pair))
    if turns == 0:
        return contiguize(x, out=out, **how)
    return flip(transposed, pair[turns // 2], out=out, **how) if turns % 2 else flip(x, pair, out=out, **how)


def _shape(x: Any, what: str) -> tuple[int, ...]:
    shape = getattr(x, "shape", None)
    return intake(x, what=what).shape if shape is None else tuple(shape)


def _extent(x: Any, op: str, axis: int) -> int:
    shape = _shape(x, f"{op}: x")
    (at,) = axes_of(op, (integer(axis, f"{op}: axis"),), len(shape))
    return int(shape[at])


def _pieces(x: Any, op: str, axis: int, starts: Sequence[int]) -> list[Any]:
    """Views from each start to the next, from the beginning to the end."""
    at, n = axis % len(x.shape), x.shape[axis]

    def piece(first: int, last: int) -> Any:
        def layout(shape: tuple[int, ...], strides: tuple[int, ...]) -> Strided:
            extent = max(last - first, 0)
            return Strided((*shape[:at], extent, *shape[at + 1 :]), strides, first * strides[at] if extent else 0)

        return view_of(x, f"{op}: x", layout, lambda x: x.narrow(at, min(first, n), max(last - first, 0)))

    return [piece(a, b) for a, b in itertools.pairwise((0, *starts, n))]
