"""Attention over parts of the keys merged into one, in float64, and the measures that its bounds name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from .forward import OF_RANGE, guarantee

__all__ = ["MEASURES", "guarantee", "merge"]

Array: TypeAlias = np.ndarray[Any, Any]


class Merged:
    """`p`: the parts' weights, and `spread` how far their lse is below the largest, [parts, ...] as lses is. `o`: parts' results,
    those without weight 0."""

    def __init__(self, desc: Any, outs: Array, lses: Array) -> None:
        self.desc, wide = desc, np.float64(lses)
        top = np.where(np.isneginf(top := wide.max(axis=0)), 0, top)
        with np.errstate(all="ignore"):
            terms = np.exp(wide - top)
            whole = terms.sum(axis=0)
            self.lse = np.log(whole) + top
            self.p = terms / np.where(whole == 0, 1, whole)
        self.spread = np.where(terms == 0, 0, top - np.where(np.isneginf(wide), 0, wide))
        self.o = np.where(self.wide(self.p) == 0, 0, np.float64(outs))
        self.beyond = (~np.isfinite(wide) & ~np.isneginf(wide)).any(axis=0)

    def wide(self, rows: Array) -> Array:
        """What a row has one of, [parts, ...], beside outs."""
        if self.desc.order != "BHSD" and rows.ndim > 2:
            rows = np.swapaxes(rows, -1, -2)
        return rows[..., None]

    def mean(self, x: Array) -> Array:
        return np.asarray((self.p * x).sum(axis=0))

    def weighted(self, o: Array, x: Array | float = 1.0) -> Array:
        return np.asarray((self.wide(self.p * x) * o).sum(axis=0))


def merge(desc: Any, **arrays: Array) -> Any:
    """out and lse."""
    with np.errstate(all="ignore"):
        merged = Merged(desc, **arrays)
        return merged.weighted(merged.o), merged.lse


def _measure(of: Callable[[Merged], Array]) -> Callable[..., Array]:
    def measured(desc: Any, **arrays: Array) -> Array:
        with np.errstate(all="ignore"):
            return of(Merged(desc, **arrays))

    return measured


def _beyond(merged: Merged) -> Array:
    bad = ~np.isfinite(merged.o) | merged.wide(np.broadcast_to(merged.beyond, merged.p.shape))
    overflows = np.abs(merged.o).sum(axis=0) > OF_RANGE * float(np.finfo(np.float32).max)  # on the way of the sum
    return np.asarray(bad.any(axis=0) | overflows)


MEASURES: dict[str, Callable[..., Array]] = {
    "weighted": _measure(lambda m: m.weighted(np.abs(m.o))),
    "spread": _measure(lambda m: m.weighted(np.abs(m.o), m.spread + m.mean(m.spread))),
    "unweighted": _measure(lambda m: np.abs(m.o).sum(axis=0)),
    "mean_spread": _measure(lambda m: m.mean(m.spread)),
    "one": _measure(lambda m: np.ones(m.lse.shape)),
    "beyond": _measure(_beyond),
    "row_beyond": _measure(lambda m: m.beyond),
}
