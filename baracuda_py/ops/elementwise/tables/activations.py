"""Rows of one input: activation functions. Their parameters are numbers given at run time, in the type computed in."""

from __future__ import annotations

from functools import partial

import numpy as np

from .._row import EXACT, FLOATS, ROUNDED, Row, Ulps
from . import oracle

__all__ = ["GELU", "GELU_CHECK", "GELU_SLOPE", "TABLE"]

NAN = np.nan
Activation = partial(Row, domain=FLOATS, peers={"cupy": ""})
Capped = partial(Activation, header="math/extrema.cuh", instructions=(2, 2))
Smooth = partial(Activation, instructions=(40, 40))
ALPHA, SCALE = 1.6732632423543772, 1.0507009873554805  # Klambauer et al., "Self-normalizing neural networks", 2017
TANH = "tanh(log1p(exp(x)))"
GELU = "sigmoid(2 * sqrt(2 / pi) * (x + 0.044715 * x * x * x))"
GELU_SLOPE = f"{GELU} * (1 + x * (1 - {GELU}) * 2 * sqrt(2 / pi) * (1 + 0.134145 * x * x))"
GELU_CHECK = "x / (1 + mpmath.exp(-2 * mpmath.sqrt(2 / mpmath.pi) * (x + mpmath.mpf('0.044715') * x**3)))"

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
           gradient={"x": "where(x <= -3, 0, where(x >= 3, grad, grad * (x / 3 + 0.5)))"}),
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
               gradient={"x": "where(x <= threshold, 0, grad)"}),
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
    # expm1 within 1.5 ulps (transcendental.py); each product and constant adds half an ulp, which may be one of the result.
    Smooth("elu", "math::elu<digits>(x, x, alpha, x)", oracle.elu, "x if x > 0 else alpha * mpmath.expm1(x)",
           "x above zero, alpha * (exp(x) - 1) below.", Ulps(3.5, 3.5, 0.02), params={"alpha": 1.0},
           header="math/expm1.cuh", instructions=(40, 14), limits=(0, -0.0, np.inf, -1, NAN),
           gradient={"x": "where(x > 0, grad, grad * alpha * exp(x))"}),
    Smooth("selu", f"math::elu<digits>(x, C({SCALE}) * x, C({SCALE * ALPHA}), x)", oracle.selu,
           f"{SCALE} * x if x > 0 else mpmath.mpf({SCALE * ALPHA}) * mpmath.expm1(x)",
           f"scale * x above zero, scale * alpha * (exp(x) - 1) below; alpha = {ALPHA}, scale = {SCALE}.", Ulps(4.5, 4.5, 0.02),
           header="math/expm1.cuh", instructions=(40, 14), limits=(0, -0.0, np.inf, -SCALE * ALPHA, NAN),
           gradient={"x": f"where(x > 0, grad * {SCALE}, grad * {SCALE * ALPHA} * exp(x))"}),
    # exp(y) - 1 changes by no more than the part by which y does, below zero.
    Smooth("celu", "math::elu<digits>(x, x, alpha, x / alpha)", oracle.celu,
           "x if x > 0 else alpha * mpmath.expm1(x / mpmath.mpf(alpha))",
           "x above zero, alpha * (exp(x / alpha) - 1) below.", Ulps(5, 5, 0.02), params={"alpha": 1.0},
           header="math/expm1.cuh", instructions=(40, 20), limits=(0, -0.0, np.inf, -1, NAN),
           gradient={"x": "where(x > 0, grad, grad * exp(x / alpha))"}),
    Smooth("softsign", "x - x == C(0) ? x / (C(1) + ::fabs(x)) : x == x ? ::copysign(C(1), x) : x", oracle.softsign,
           "x / (1 + abs(mpmath.mpf(x)))", "x / (1 + abs(x)).", Ulps(2, 2), limits=(0, -0.0, 1, -1, NAN),
           gradient={"x": "grad / ((1 + abs(x)) * (1 + abs(x)))"}),
    # log1p within 1.5 ulps, of which the error of exp is no larger part; two terms of one sign.
    Smooth("log_sigmoid", "math::log_sigmoid<digits>(x)", oracle.log_sigmoid,
           "-mpmath.log1p(mpmath.exp(-x))", "log(1 / (1 + exp(-x))).", Ulps(6, 5, 0.04), instructions=(60, 16),
           header="math/logarithms.cuh",
           limits=(np.log(0.5), np.log(0.5), 0, -np.inf, NAN), gradient={"x": "grad * sigmoid(-x)"}),
    Smooth("logit", "math::logit<digits>(x)", oracle.logit,
           "mpmath.log(x / (1 - mpmath.mpf(x)))", "log(x / (1 - x)); NaN outside of 0 to 1.", Ulps(4, 4, 0.03),
           instructions=(60, 7), header="math/logarithms.cuh", limits=(-np.inf, -np.inf, NAN, NAN, NAN),
           gradient={"x": "grad / (x * (1 - x))"}),
    # The rounding of beta * x is put back after exp, which it would move by up to 88 ulps.
    Smooth("softplus", "math::softplus(x, beta)", oracle.softplus, "mpmath.log1p(mpmath.exp(beta * x)) / beta",
           "log(1 + exp(beta x)) / beta, for beta above 0.", Ulps(8, 8), params={"beta": 1.0}, instructions=(70, 70),
           header="math/softplus.cuh", limits=(np.log(2), np.log(2), np.inf, 0, NAN),
           gradient={"x": "grad * sigmoid(beta * x)"}),
    Smooth("mish", "math::mish<digits>(x)", oracle.mish, "x * mpmath.tanh(mpmath.log1p(mpmath.exp(x)))",
           "x * tanh(log(1 + exp(x))).", Ulps(9, 7, 0.02, 2.0**-139), instructions=(40, 12), header="math/mish.cuh",
           limits=(0, -0.0, np.inf, -0.0, NAN),
           gradient={"x": f"grad * ({TANH} + x * sigmoid(x) * (1 - {TANH}) * (1 + {TANH}))"}),
    # exp within 2.5 ulps, of which the sigmoid has no larger part; the sum with 1, a quotient and a product.
    Smooth("gelu_tanh", "math::gelu_tanh<digits>(x)", oracle.gelu_tanh, GELU_CHECK,
           "x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x**3))) / 2: GELU by the hyperbolic tangent.",
           Ulps(6, 5, 0.03, 2.0**-119), instructions=(45, 8), header="math/gelu_tanh.cuh", limits=(0, -0.0, np.inf, -0.0, NAN),
           gradient={"x": f"grad * {GELU_SLOPE}"}),
    Smooth("tanhshrink", "math::tanhshrink<digits>(x)", oracle.tanhshrink, "x**3 / 3 if abs(x) < 1e-10 else x - mpmath.tanh(x)",
           "x - tanh(x), without cancellation.", Ulps(8, 8, 0.03), instructions=(60, 15), header="math/tanhshrink.cuh",
           limits=(0, -0.0, np.inf, -np.inf, NAN), gradient={"x": "grad * tanh(x) * tanh(x)"}),
)  # fmt: skip
