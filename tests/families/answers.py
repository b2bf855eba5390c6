"""What independent answers of rows are made with: operands in float64, and how near the oracle must be."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..gauntlet import Problem

__all__ = ["given_of", "near"]

Array = np.ndarray[Any, Any]


def given_of(problem: Problem) -> dict[str, Array]:
    """What the problem reads, in float64; integers unchanged."""
    arrays = {o.name: problem.slots[o.name].host() for o in problem.desc.operands if o.role == "in"}
    return {n: x if x.dtype.kind in "iu" else x.astype(np.float64) for n, x in arrays.items()}


def near(problem: Problem, name: str, wanted: Any, digits: float = 40.0, size: Any = None) -> None:
    """The oracle's answer within so many bits of `size`, by default of |wanted|; corners alike."""
    wide, wanted = np.asarray(problem.wide[name], np.float64), np.asarray(wanted, np.float64)
    assert wide.shape == wanted.shape, f"{name}: shape {wide.shape}, independent {wanted.shape}"
    size = np.abs(wanted) if size is None else np.asarray(size, np.float64) + np.abs(wanted)
    with np.errstate(all="ignore"):
        alike = (wide == wanted) | (np.isnan(wide) & np.isnan(wanted))
        bad = ~(alike | (np.abs(wide - wanted) <= size * 2.0**-digits + 1e-300))
    assert not bad.any(), f"{name}: {int(bad.sum())} of {bad.size} differ, first {wide[bad][0]!r}, {wanted[bad][0]!r}"
