"""Reductions of segments of rows, segment by segment, in float64 (long double for f64), and the measures of their bounds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np

from ...numerics.rounding import wide

__all__ = ["MEASURES", "backward", "offsets", "reduce"]

Array: TypeAlias = np.ndarray[Any, Any]
IDENTITY = {"sum": 0.0, "mean": 0.0, "max": -np.inf, "min": np.inf}


def _by(desc: Any) -> str:
    return str(desc.op).removeprefix("segment_").removesuffix("_backward")


def _valid(desc: Any, offsets: Array) -> bool:
    given = offsets.astype(np.int64)
    return bool((np.diff(given) >= 0).all() and ((given >= 0) & (given <= desc.rows)).all())


def _segments(desc: Any, offsets: Array) -> Iterator[tuple[int, slice]]:
    """The segments that are not empty: none, if offsets are refused."""
    if _valid(desc, offsets):
        pairs = zip(offsets[:-1].tolist(), offsets[1:].tolist())
        yield from ((s, slice(begin, end)) for s, (begin, end) in enumerate(pairs) if begin < end)


def reduce(desc: Any, x: Array, offsets: Array) -> Any:
    """The reductions, wide, and the status where there is one."""
    by, given = _by(desc), wide(x, desc.element)
    out = np.full(desc.out_shape, IDENTITY[by], given.dtype)
    with np.errstate(all="ignore"):
        for s, rows in _segments(desc, offsets):
            out[s] = getattr(given[rows], by)(axis=0)
    if not desc.has_status:
        return out
    return out, np.asarray(0 if _valid(desc, offsets) else 1, np.int32)


def backward(desc: Any, grad: Array, x: Array, offsets: Array, y: Array | None = None) -> Array:
    """The gradient of x, wide."""
    by, g = _by(desc), wide(grad, desc.element)
    made = np.zeros(desc.x_shape, g.dtype)
    with np.errstate(all="ignore"):
        for s, rows in _segments(desc, offsets):
            if y is None:
                made[rows] = g[s] / (rows.stop - rows.start) if by == "mean" else g[s]
            else:
                tied = (x[rows] == y[s]) | np.isnan(x[rows].astype(np.longdouble))
                made[rows] = np.where(tied, g[s] / tied.sum(axis=0), 0)
    return made


def _abs_terms(desc: Any, x: Array, offsets: Array, **_: Array) -> Array:
    """The sums, or means, of the magnitudes of each segment's elements."""
    made = reduce(desc, np.abs(x), offsets)
    return np.asarray(made[0] if desc.has_status else made, np.longdouble)


MEASURES: dict[str, Callable[..., Any]] = {"abs_terms": _abs_terms}


def offsets(desc: Any, ids: Array) -> Array:
    """How many of the sorted ids are below each segment."""
    return np.searchsorted(ids, np.arange(desc.segments + 1)).astype(ids.dtype)
