"""Rows of one input: activation functions. Their parameters are numbers given at run time, in the type computed in."""

from __future__ import annotations

from functools import partial

import numpy as np

from .._row import EXACT, FLOATS, ROUNDED, Row, Ulps
from . import oracle

__all__ = ["TABLE"]

NAN = np.nan
Activation = partial(Row, domain=FLOATS, peers={"cupy": ""})
Capped = partial(Activation, header="math/extrema.cuh", instructions=(2, 2))

TABLE = (
    Capped("relu6", "math::minimum(math::maximum(x, C(0)), C(6))", oracle.relu6, "min(max(x, 0), 6)",
           "min(max(x, 0), 6); NaN stays NaN.", limits=(0, 0, 6, 0, NAN),
           gradient={"x": "where((0 < x) & (x < 6), grad, 0)"}),
    Capped("hardtanh", "math::minimum(math::maximum(x, min_val), max_val)", oracle.hardtanh,
           "sorted((x, min_val, max_val))[1] if min_val <= max_val else max_val",
           "min(max(x, min_val), max_val); NaN stays NaN.", params={"min_val": -1.0, "max_val": 1.0},
           limits=(0, -0.0, 1, -1, NAN), gradient={"x": "where((min_val < x) & (x < max_val), grad, 0)"}),
    # x + 3, the constant and the product are rounded.
    Capped("hardsigmoid", "math::minimum(math::maximum(x + C(3), C(0)), C(6)) * C(0.16666666666666666)",
           oracle.hardsigmoid, "min(max(x + 3, 0), 6) / 6", "min(max(x + 3, 0), 6) / 6.", Ulps(2.5, 2.5),
           limits=(0.5, 0.5, 1, 0, NAN), gradient={"x": "where((-3 < x) & (x < 3), grad / 6, 0)"}),
    Capped("hardswish", "x <= C(-3) ? C(-0.0) : x * (math::minimum(x + C(3), C(6)) * C(0.16666666666666666))",
           oracle.hardswish, "x * min(max(x + 3, 0), 6) / 6", "x * min(max(x + 3, 0), 6) / 6; -0 at and below -3.",
           Ulps(3.5, 3.5), limits=(0, -0.0, np.inf, -0.0, NAN),
           gradient={"x": "where(x <= -3, 0, where(x < 3, grad * (x / 3 + 0.5), grad))"}),
    Activation("hardshrink", "x >= -lambd && x <= lambd ? C(0) : x", oracle.hardshrink, "0 if -lambd <= x <= lambd else x",
               "x, but 0 from -lambd to lambd; NaN stays NaN.", EXACT, params={"lambd": 0.5},
               limits=(0, 0, np.inf, -np.inf, NAN), instructions=(3, 3), gradient={"x": "where(abs(x) > lambd, grad, 0)"}),
    Activation("softshrink", "x > lambd ? x - lambd : x < -lambd ? x + lambd : x == x ? C(0) : x", oracle.softshrink,
               "x - lambd if x > lambd else x + lambd if x < -lambd else 0",
               "x moved toward zero by lambd, 0 from -lambd to lambd; NaN stays NaN.", ROUNDED, params={"lambd": 0.5},
               limits=(0, 0, np.inf, -np.inf, NAN), instructions=(6, 6), gradient={"x": "where(abs(x) > lambd, grad, 0)"}),
    Activation("threshold", "x <= threshold ? value : x", oracle.threshold, "value if x <= threshold else x",
               "x where it is above threshold, value elsewhere; NaN stays NaN.", EXACT,
               params={"threshold": 0.0, "value": 0.0}, limits=(0, 0, np.inf, 0, NAN),
               gradient={"x": "where(x > threshold, grad, 0)"}),
    Activation("leaky_relu", "x > C(0) ? x : negative_slope * x", oracle.leaky_relu, "x if x > 0 else negative_slope * x",
               "x above zero, negative_slope * x below.", ROUNDED, params={"negative_slope": 0.01},
               limits=(0, -0.0, np.inf, -np.inf, NAN), instructions=(3, 3),
               gradient={"x": "where(x > 0, grad, grad * negative_slope)"}),
    Activation("step", "x > C(0) ? C(1) : x == x ? C(0) : x", oracle.step, "1 if x > 0 else 0",
               "1 above zero, 0 at zero and below (NumPy's ``heaviside(x, 0)``); NaN stays NaN.",
               limits=(0, 0, 1, 0, NAN), instructions=(3, 3)),
    # One rounding: the bound has room for that of the oracle.
    Activation("affine", "::fma(scale, x, shift)", oracle.affine, "mpmath.mpf(scale) * x + shift",
               "scale * x + shift, rounded once.", Ulps(0.501, 0.501), params={"scale": 1.0, "shift": 0.0},
               limits=(0, 0, np.inf, -np.inf, NAN), gradient={"x": "grad * scale"}),
)  # fmt: skip
