"""Reductions and softmax of segments of rows, in float64 (long double for f64), and the measures of their bounds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np

from ...numerics.rounding import wide

__all__ = ["MEASURES", "backward", "offsets", "reduce", "softmax", "softmax_backward"]

Array: TypeAlias = np.ndarray[Any, Any]
IDENTITY = {"sum": 0.0, "mean": 0.0, "max": -np.inf, "min": np.inf, "logsumexp": -np.inf, "prod": 1.0}


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
            out[s] = _logsumexp(given[rows]) if by == "logsumexp" else getattr(given[rows], by)(axis=0)
    return _with_status(desc, out, offsets)


def _with_status(desc: Any, out: Array, offsets: Array) -> Any:
    return (out, np.asarray(0 if _valid(desc, offsets) else 1, np.int32)) if desc.has_status else out


def _shift(rows: Array) -> Array:
    """x - max(x) of the rows of a segment."""
    most = rows.max(axis=0)
    return np.asarray(rows - np.where(np.isneginf(most), 0, most))


def _logsumexp(rows: Array) -> Array:
    """With log1p of the terms other than the largest, which may be far below 1."""
    most, terms = rows.max(axis=0), np.exp(_shift(rows))
    at = np.expand_dims(rows.argmax(axis=0), 0)
    first = np.take_along_axis(terms, at, 0)[0]  # 1, but of -inf alone, or with NaN
    np.put_along_axis(terms, at, 0, 0)
    return np.asarray(np.where(np.isposinf(most), most, most + np.log1p(terms.sum(axis=0) + (first - 1))))


def softmax(desc: Any, x: Array, offsets: Array) -> Any:
    """The softmax of each segment, wide, 0 for rows of none, and the status where there is one."""
    given = wide(x, desc.element)
    out = np.zeros(desc.x_shape, given.dtype)
    with np.errstate(all="ignore"):
        for _, rows in _segments(desc, offsets):
            terms = np.exp(_shift(given[rows]))
            out[rows] = terms / terms.sum(axis=0)
    return _with_status(desc, out, offsets)


def softmax_backward(desc: Any, grad: Array, y: Array, offsets: Array) -> Array:
    """The gradient of x, wide."""
    g, p = wide(grad, desc.element), wide(y, desc.element)
    made = np.zeros(desc.x_shape, g.dtype)
    with np.errstate(all="ignore"):
        for _, rows in _segments(desc, offsets):
            made[rows] = p[rows] * (g[rows] - (g[rows] * p[rows]).sum(axis=0))
    return made


def backward(desc: Any, grad: Array, x: Array, offsets: Array, y: Array | None = None) -> Array:
    """The gradient of x, wide."""
    by, g = _by(desc), wide(grad, desc.element)
    made = np.zeros(desc.x_shape, g.dtype)
    with np.errstate(all="ignore"):
        for s, rows in _segments(desc, offsets):
            if by == "prod":
                made[rows] = g[s] * _others(wide(x[rows], desc.element))
            elif y is None:
                made[rows] = g[s] / (rows.stop - rows.start) if by == "mean" else g[s]
            elif by == "logsumexp":
                made[rows] = g[s] * np.exp(_from_result(desc, x[rows], y[s]))
            else:
                tied = (x[rows] == y[s]) | np.isnan(x[rows].astype(np.longdouble))
                made[rows] = np.where(tied, g[s] / tied.sum(axis=0), 0)
    return made


def _others(rows: Array) -> Array:
    """The product of all elements of a segment but each."""
    zero = rows == 0
    zeros, product = zero.sum(axis=0), np.where(zero, 1, rows).prod(axis=0)
    others = np.where(zero, product, product / np.where(zero, 1, rows))
    return np.asarray(np.where(zeros == zero, others, product * 0))


def _from_result(desc: Any, x: Array, y: Array) -> Array:
    """x - y, where y is not -inf."""
    result = wide(y, desc.element)
    return np.asarray(wide(x, desc.element) - np.where(np.isneginf(result), 0, result))


def _abs_terms(desc: Any, x: Array, offsets: Array, **_: Array) -> Array:
    """The sums, or means, of the magnitudes of each segment's elements."""
    made = reduce(desc, np.abs(x), offsets)
    return np.asarray(made[0] if desc.has_status else made, np.longdouble)


def _of_shifts(of: Callable[[Array, Array, Array, Array], Array], *, each: bool) -> Callable[..., Array]:
    """A measure of |t|, t = x - max(x), of the probabilities p, of E = sum p |t| and of sum exp(t), of each segment or row."""

    def measured(desc: Any, x: Array, offsets: Array) -> Array:
        given = wide(x, desc.element)
        made = np.zeros(desc.x_shape if each else desc.out_shape, np.longdouble)
        with np.errstate(all="ignore"):
            for s, rows in _segments(desc, offsets):
                t = _shift(given[rows])
                total = np.exp(t).sum(axis=0)
                p = np.exp(t) / total
                near = np.where(p > 0, np.abs(t), 0)
                made[rows if each else s] = of(near, p, (p * near).sum(axis=0), total)
        return made

    return measured


def _of_products(of: Callable[[Array, Array], Array]) -> Callable[..., Array]:
    """A measure of a softmax's gradient, of |grad| and y of each segment."""

    def measured(desc: Any, grad: Array, y: Array, offsets: Array) -> Array:
        g, p = np.abs(wide(grad, desc.element)), np.abs(wide(y, desc.element))
        made = np.zeros(desc.x_shape, np.longdouble)
        with np.errstate(all="ignore"):
            for _, rows in _segments(desc, offsets):
                made[rows] = of(g[rows], p[rows])
        return made

    return measured


def _of_result(of: Callable[[Array, Array], Array]) -> Callable[..., Array]:
    """A measure of the gradient of logsumexp, of |grad| and x - y."""

    def measured(desc: Any, grad: Array, x: Array, y: Array, offsets: Array) -> Array:
        g, made = np.abs(wide(grad, desc.element)), np.zeros(desc.x_shape, np.longdouble)
        with np.errstate(all="ignore"):
            for s, rows in _segments(desc, offsets):
                made[rows] = of(g[s], _from_result(desc, x[rows], y[s]))
        return made

    return measured


def _grad_smallest(desc: Any, **arrays: Array) -> Array:
    tiny = np.finfo(np.float64 if desc.element.bits == 64 else np.float32).tiny
    return _of_result(lambda g, t: np.maximum(g, 1) * np.longdouble(tiny) + 0 * t)(desc, **arrays)


def _beyond(desc: Any, rows: Array) -> Array:
    """Whether a part of the product may be beyond what is computed in, or below what is normal."""
    sized = np.isfinite(rows) & (rows != 0)
    logs = np.where(sized, np.log2(np.where(sized, np.abs(rows), 1)), 0)
    most = np.maximum(np.maximum(logs, 0).sum(axis=0), np.maximum(-logs, 0).sum(axis=0))
    return np.asarray(most > (1020 if desc.element.bits == 64 else 124))


def _product(desc: Any, x: Array, offsets: Array, grad: Array | None = None) -> Array:
    """The magnitude of each product, or of its gradient; infinite where a part of it may be beyond."""
    made = reduce(desc, x, offsets) if grad is None else backward(desc, grad, x, offsets)
    made = np.abs(made[0] if grad is None and desc.has_status else made)
    for s, rows in _segments(desc, offsets):
        at = s if grad is None else rows
        made[at] = np.where(_beyond(desc, wide(x[rows], desc.element)), np.inf, made[at])
    return np.asarray(made, np.longdouble)


MEASURES: dict[str, Callable[..., Any]] = {
    "abs_terms": _abs_terms,
    "product": _product,
    "product_grad": _product,
    "shifted": _of_shifts(lambda t, p, e, total: t * p, each=True),
    "expected": _of_shifts(lambda t, p, e, total: e * p, each=True),
    "expected_shift": _of_shifts(lambda t, p, e, total: e, each=False),
    "log_sum": _of_shifts(lambda t, p, e, total: np.log(total), each=False),
    "one": lambda desc, **_: np.ones(()),
    "y_sum": _of_products(lambda g, y: y * (g * y).sum(axis=0)),
    "y_grad": _of_products(lambda g, y: y * g),
    "shifted_grad": _of_result(lambda g, t: np.where(np.exp(t) > 0, g * np.exp(t) * np.abs(t), 0)),
    "grad_smallest": _grad_smallest,
}


def offsets(desc: Any, ids: Array) -> Array:
    """How many of the sorted ids are below each segment."""
    return np.searchsorted(ids, np.arange(desc.segments + 1)).astype(ids.dtype)
