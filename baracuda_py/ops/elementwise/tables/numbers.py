"""Rows of one input: integer parts, classes of numbers, and simple powers."""

from __future__ import annotations

from functools import partial

import numpy as np

from ....types import ElementKind
from .._row import FLOATS, INTEGERS, NUMBERS, Row, Ulps
from . import oracle

__all__ = ["TABLE"]

NAN = np.nan
Whole = partial(Row, header="math/rounding.cuh", instructions=(2, 2))
Class = partial(Row, result="bool", domain=(*NUMBERS, ElementKind.BOOL))

TABLE = (
    Row("reciprocal", "math::divide<digits>(C(1), x)", oracle.reciprocal, "1 / x", "1 / x; integers become floats.",
        Ulps(0.5, 0.5, 0.01), "float", instructions=(40, 12), header="math/divide.cuh", gradient={"x": "-grad * out * out"}),
    # Two roundings: of x * x by half an ulp, which is one of the result at most, and of the result.
    Row("cube", "x * x * x", oracle.cube, "x * x * x", "x * x * x, elementwise.", Ulps(1.5, 1.5), instructions=(2, 2),
        limits=(0, -0.0, np.inf, -np.inf, NAN), gradient={"x": "3 * grad * x * x"}),
    Whole("floor", "math::floor(x)", np.floor, "math.floor(x)", "The largest whole number that is not above x."),
    Whole("ceil", "math::ceil(x)", np.ceil, "math.ceil(x)", "The smallest whole number that is not below x."),
    Whole("trunc", "math::trunc(x)", np.trunc, "math.trunc(x)", "x without its fraction."),
    Whole("round", "math::round(x)", oracle.round, "round(x)", "The nearest whole number, the even one of two."),
    Row("frac", "x - math::trunc(x)", oracle.frac, "x - math.trunc(x)", "The fraction of x, with its sign: x - trunc(x).",
        header="math/rounding.cuh", domain=FLOATS, instructions=(3, 3), limits=(0, 0, NAN, NAN, NAN), peers={"cupy": ""},
        gradient={"x": "grad"}),
    Class("isnan", "x != x", np.isnan, "x != x", "Whether x is not a number; no integer is one."),
    Class("isinf", "x == x && x - x != C(0)", np.isinf, "abs(x) == math.inf", "Whether x is infinite, of either sign."),
    Class("isfinite", "x - x == C(0)", np.isfinite, "abs(x) < math.inf", "Whether x is a finite number."),
    # The conversion of f16 does not keep a NaN's sign.
    Class("signbit", "math::signbit(x)", oracle.signbit, "x < 0 or (x == 0 and math.copysign(1, x) < 0)",
          "Whether x is below zero, or -0; false for NaN, of either sign.", header="math/signbit.cuh",
          limits=(0, 1, 0, 1, 0)),
    Class("logical_not", "x == C(0)", np.logical_not, "not x", "Whether x is zero; NaN is not."),
    Row("bitwise_not", "x ^ C(-1)", np.invert, "~x if bits else not x", "Every bit the other way (NumPy's ``invert``).",
        domain=(*INTEGERS, ElementKind.BOOL), peers={"cupy": "invert"}),
)  # fmt: skip
