"""Comparisons: out = x1 < x2 and its like, bools with NumPy's broadcasting. A row of the table is an op of the binary family."""

from __future__ import annotations

from functools import partial

import numpy as np

from ...types import ElementKind
from . import samples
from ._family import function_of, publish
from ._row import NUMBERS, Row
from .binary import BinaryPlan

__all__: list[str] = []

# Compared exactly, in a type that holds both operands.
Comparison = partial(
    Row, result="bool", header="math/wide.cuh", arguments=("x1", "x2"), domain=(*NUMBERS, ElementKind.BOOL)
)

TABLE = (
    Comparison("equal", "a == b", np.equal, "x1 == x2", "x1 == x2, elementwise; NaN equals nothing.", peers={"torch": "eq"}),
    Comparison("not_equal", "a != b", np.not_equal, "x1 != x2", "x1 != x2, elementwise; NaN differs from all.",
               peers={"torch": "ne"}),
    Comparison("less", "a < b", np.less, "x1 < x2", "x1 < x2, elementwise; false for NaN.", peers={"torch": "lt"}),
    Comparison("less_equal", "a <= b", np.less_equal, "x1 <= x2", "x1 <= x2, elementwise; false for NaN.",
               peers={"torch": "le"}),
    Comparison("greater", "a > b", np.greater, "x1 > x2", "x1 > x2, elementwise; false for NaN.", peers={"torch": "gt"}),
    Comparison("greater_equal", "a >= b", np.greater_equal, "x1 >= x2", "x1 >= x2, elementwise; false for NaN.",
               peers={"torch": "ge"}),
)  # fmt: skip

for _row in TABLE:
    globals()[_row.name] = publish(_row, BinaryPlan, function_of(BinaryPlan, _row), samples.binary, __name__)
    __all__ += [_row.name]
