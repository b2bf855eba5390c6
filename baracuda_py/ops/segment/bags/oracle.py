"""Bags of a table's rows, bag by bag, in float64 (long double for f64), their gradients, and the measures of their bounds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np

from ....numerics.rounding import wide

__all__ = ["MEASURES", "backward", "embedding_bag"]

Array: TypeAlias = np.ndarray[Any, Any]


def _offsets(desc: Any, offsets: Array | None) -> Array:
    """The first entry of each bag, and the end of the last one."""
    if offsets is None:
        return np.asarray(np.arange(desc.bags + 1) * desc.input_shape[1])
    given = offsets.astype(np.int64)
    return given if desc.include_last_offset else np.concatenate([given, [desc.count]])


def _valid(desc: Any, bounds: Array) -> bool:
    return bool((np.diff(bounds) >= 0).all() and ((bounds >= 0) & (bounds <= desc.count)).all())


def _bags(desc: Any, input: Array, offsets: Array | None) -> Iterator[tuple[int, Array, Array]]:
    """The bags that have entries with a row: these entries, and their rows. None, if offsets are refused."""
    bounds, ids = _offsets(desc, offsets), input.reshape(-1).astype(np.int64)
    kept = (ids >= 0) & (ids < desc.rows) & (ids != desc.ignored)
    if _valid(desc, bounds):
        for s, (begin, end) in enumerate(zip(bounds[:-1].tolist(), bounds[1:].tolist())):
            entries = begin + np.flatnonzero(kept[begin:end])
            if entries.size:
                yield s, entries, ids[entries]


def embedding_bag(
    desc: Any, input: Array, weight: Array, offsets: Array | None = None, per_sample_weights: Array | None = None
) -> Any:
    """The reductions, wide, and the status where there is one."""
    table = wide(weight, desc.element)
    out = np.zeros(desc.out_shape, table.dtype)
    with np.errstate(all="ignore"):
        for s, entries, rows in _bags(desc, input, offsets):
            scaled = table[rows]
            if per_sample_weights is not None:
                scaled = scaled * wide(per_sample_weights, desc.element).reshape(-1, 1)[entries]
            out[s] = getattr(scaled, desc.reduce)(axis=0)
    if not desc.has_status:
        return out
    fits = ((input >= 0) & (input < desc.rows)).all() and _valid(desc, _offsets(desc, offsets))
    return out, np.asarray(0 if fits else 1, np.int32)


def backward(
    desc: Any, grad: Array, input: Array, weight: Array, offsets: Array | None = None,
    per_sample_weights: Array | None = None,
) -> Any:  # fmt: skip
    """The gradients, wide."""
    table, g = wide(weight, desc.element), wide(grad, desc.element)
    made, of_weights = np.zeros(desc.weight_shape, g.dtype), np.zeros(desc.count, g.dtype)
    scales = None if per_sample_weights is None else wide(per_sample_weights, desc.element).reshape(-1, 1)
    with np.errstate(all="ignore"):
        for s, entries, rows in _bags(desc, input, offsets):
            parts: Array = np.broadcast_to(g[s], (len(rows), desc.length))
            if scales is not None:
                parts = parts * scales[entries]
                of_weights[entries] = (table[rows] * g[s]).sum(axis=1)
            elif desc.reduce == "mean":
                parts = parts / len(rows)
            elif desc.reduce == "max":
                tied = (table[rows] == table[rows].max(axis=0)) | np.isnan(table[rows])
                parts = np.where(tied, parts / tied.sum(axis=0), 0)
            np.add.at(made, rows, parts)
    return made if scales is None else (made, of_weights.reshape(desc.input_shape))


def _abs_terms(desc: Any, **arrays: Array) -> Array:
    """The sums, or means, of the magnitudes of each bag's terms; of a gradient, of each row's."""
    named = ("grad", "per_sample_weights") if "grad" in arrays else ("weight", "per_sample_weights")
    sizes = {name: np.abs(x) if name in named else x for name, x in arrays.items()}
    made = backward(desc, **sizes) if "grad" in arrays else embedding_bag(desc, **sizes)
    return np.asarray(made[0] if isinstance(made, tuple) else made, np.longdouble)


def _abs_products(desc: Any, **arrays: Array) -> Array:
    """The sums of the magnitudes of the products of each entry's row with its gradient."""
    sizes = {name: np.abs(x) if name in ("grad", "weight") else x for name, x in arrays.items()}
    return np.asarray(backward(desc, **sizes)[1], np.longdouble)


MEASURES: dict[str, Callable[..., Any]] = {"abs_terms": _abs_terms, "abs_products": _abs_products}
