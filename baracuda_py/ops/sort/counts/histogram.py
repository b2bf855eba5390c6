"""histogram: how many elements there are in each of several intervals of equal width."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

from ....plan.descriptor import Slot, described
from ....plan.plan import Plan
from ....plan.registry import Op, register
from ....runtime.steps import Arg, Run
from ....types import ElementKind, InvalidProblemError, OpCategory
from ..._function import function_of
from ..topk import KEYS
from . import oracle, samples
from ._bins import CANDIDATES, COUNTABLE, BinProblem

__all__ = ["HistogramDescriptor", "HistogramPlan", "histogram"]

LEAST_WIDTH = 1e-290  # of all intervals: bins divided by it is finite


@described(
    Slot("out", "out", element=ElementKind.I64, shape="out_shape", strided=False),
    Slot("x", takes=KEYS),
    fields=("shape", "element"),
)
class HistogramDescriptor(BinProblem):
    """x of `shape`, whose elements from `low` to `high` are counted in `bins` intervals of equal width."""

    bins: int
    low: float = 0.0
    high: float = 1.0

    name = "histogram"
    uniform = True
    values: ClassVar[tuple[str, ...]] = ("low", "high")

    @property
    def bin_count(self) -> int:
        return self.bins

    def interval(self) -> tuple[Arg, Arg]:
        return Run("low", "float64"), Run("high", "float64")

    def check(self) -> None:
        if not 1 <= self.bins <= COUNTABLE:
            raise InvalidProblemError(f"histogram: bins={self.bins}", f"give the number of bins, 1 to {COUNTABLE}")

    @classmethod
    def check_values(cls, op: str, values: Mapping[str, float], operands: Mapping[str, Any]) -> None:
        super().check_values(op, values, operands)
        low, high = values["low"], values["high"]
        if not (low < high and LEAST_WIDTH <= high - low < math.inf):
            raise InvalidProblemError(
                f"{op}: low={low} and high={high}",
                f"give low < high, whose difference is finite and at least {LEAST_WIDTH}",
            )


class HistogramPlan(Plan[HistogramDescriptor]):
    """Elements by interval: operands `x` and `out`, and run-time values `low` and `high`."""

    descriptor = HistogramDescriptor
    category = OpCategory.SORT
    candidates = CANDIDATES
    probes = (
        {"shape": (5000,), "element": "f32", "bins": 100},
        {"shape": (70, 130), "element": "bf16", "bins": 10, "x_strides": (131, 1)},
        {"shape": (5000,), "element": "f64", "bins": 50_000},
    )
    reference = oracle.histogram


@function_of(HistogramPlan)
def histogram(x: Any, bins: int, low: float = 0.0, high: float = 1.0) -> Any:
    """How many elements of `x` are in each of `bins` intervals of equal width from `low` to `high`: int64 [bins].

    x: f16, bf16, f32, f64 or integers of any shape and strides, taken as f64. As in numpy.histogram and torch.histc, elements
    below `low` and above `high` are left out, as NaN is, and one equal to `high` is in the last interval. `low` and `high` are
    run-time values.
    The interval of an element is min(floor((x - low) * (bins / (high - low))), bins - 1), each operation rounded to f64: it never
    falls where x rises, and differs from NumPy's by at most one where x is within a few ulps of an edge, which NumPy compares
    with `linspace`. `histogramdd` compares with edges, and takes points of several coordinates, edges of its own and weights.
    Counts are exact, the same at every call. Up to 12,288 intervals are counted in shared memory; of more, every element is an
    atomic in L2.
    out: int64 [bins], in C order; allocated if not given. Returns out. Raises InvalidProblemError for no bins, more than
    2**31 - 1 of them, and a width of all that is infinite or less than 1e-290.
    """


register(Op("histogram", HistogramPlan, histogram, samples.histogram, peers={"cupy": "histogram", "torch": "histc"}))
