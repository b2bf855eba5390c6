"""Runs of equal elements, by comparisons of neighbours; sorted by NumPy's stable sort first."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

__all__ = ["unique", "unique_consecutive"]

Array: TypeAlias = np.ndarray[Any, Any]


def unique_consecutive(desc: Any, x: Array) -> tuple[Array, ...]:
    """Runs of the elements in C order."""
    return _runs(desc, x, np.arange(x.size))


def unique(desc: Any, x: Array) -> tuple[Array, ...]:
    """Runs of the sorted elements: NaN above all numbers, zeros alike, equal elements by index."""
    return _runs(desc, x, np.argsort(_wide(desc, x.reshape(-1)), kind="stable"))


def _wide(desc: Any, x: Array) -> Array:
    return x.astype(np.float64) if desc.element.is_float else x


def _runs(desc: Any, x: Array, places: Array) -> tuple[Array, ...]:
    """The results that the problem has, of x's elements in the order of `places`."""
    ordered = x.reshape(-1)[places]
    wide = _wide(desc, ordered)
    heads = np.ones(x.size, bool)
    heads[1:] = wide[1:] != wide[:-1]
    if desc.element.is_float and desc.equal_nan:
        heads[1:] &= ~(np.isnan(wide[1:]) & np.isnan(wide[:-1]))
    begins = np.flatnonzero(heads)
    inverse = np.empty(x.size, np.int64)
    inverse[places] = np.cumsum(heads) - 1
    kept, rest = begins[: desc.capacity], np.zeros(max(desc.capacity - begins.size, 0), np.int64)
    at = np.concatenate([kept, rest])
    out, counts = ordered[at], np.concatenate([np.diff(np.append(begins, x.size))[: desc.capacity], rest])
    if desc.fill is not None:
        out[kept.size :] = np.frombuffer(desc.fill, x.dtype)
    made = {
        "out": out, "inverse": inverse.reshape(x.shape), "counts": counts.astype(np.int64),
        "index": places[at].astype(np.int64), "count": np.array([begins.size], np.int64),
    }  # fmt: skip
    return tuple(made[operand.name] for operand in desc.operands if operand.role == "out")
