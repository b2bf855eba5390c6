"""Statistics of rows within a graph: reductions of a value over its last axes, which stay as extents of 1."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from ..._row import FLOATS, ROWS, Row

__all__ = ["OWN", "REDUCERS", "row_named"]


def _over(function: Callable[..., Any], x: Any, axes: Any) -> Any:
    return function(x, axis=tuple(range(-int(axes), 0)) if axes else None, keepdims=True)


def _squeeze(x: Any, axes: Any) -> Any:
    return x.reshape(x.shape[: x.ndim - int(axes)] if axes else ())


def _row(name: str, function: Callable[..., Any], doc: str) -> Row:
    return Row(name, "", partial(_over, function), "", doc, params={"axes": 1}, domain=FLOATS, instructions=(2, 2))


# `axes` are how many of the last axes are reduced, 0 for all of them.
REDUCERS: Mapping[str, str] = {
    "sum": "rows::Sum<C, C, false>", "mean": "rows::Sum<C, C, true>", "max": "rows::Extremum<C, C, true>",
    "min": "rows::Extremum<C, C, false>",
}  # fmt: skip
OWN = {
    "sum": _row("sum", np.sum, "The sum of a row."), "mean": _row("mean", np.mean, "The mean of a row."),
    "max": _row("max", np.max, "The largest of a row."), "min": _row("min", np.min, "The smallest of a row."),
    "squeeze": Row("squeeze", "", _squeeze, "", "A result without the axes that are reduced.", params={"axes": 1}),
}  # fmt: skip


def row_named(op: str) -> Row | None:
    """The row of a node, or of a statistic."""
    return OWN.get(op) or ROWS.get(op)
