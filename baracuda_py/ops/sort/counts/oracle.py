"""Counts by NumPy's bincount."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

__all__ = ["bincount", "histogram"]

Array: TypeAlias = np.ndarray[Any, Any]


def bincount(desc: Any, x: Array) -> Any:
    """Counts of the values from 0 to length - 1, and whether there are others."""
    wide = x.astype(np.int64).reshape(-1)
    has_bin = (wide >= 0) & (wide < desc.length)
    counts = np.bincount(wide[has_bin], minlength=desc.length).astype(np.int64)
    return (counts, np.asarray(not has_bin.all(), np.int32)) if desc.mode == "status" else counts


def histogram(desc: Any, x: Array) -> Array:
    """Counts of the intervals; each operation is rounded to float64."""
    wide = x.astype(np.float64).reshape(-1)
    inside = wide[(wide >= desc.low) & (wide <= desc.high)]
    places = np.floor((inside - desc.low) * (desc.bins / (desc.high - desc.low)))
    return np.bincount(np.minimum(places, desc.bins - 1).astype(np.int64), minlength=desc.bins).astype(np.int64)
