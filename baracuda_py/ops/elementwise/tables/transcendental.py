"""Rows of one input: exponentials, logarithms, roots, hyperbolic functions and circular functions and their inverses."""

from __future__ import annotations

from functools import partial

import numpy as np

from ....numerics import special
from .._row import Row, Ulps

__all__ = ["TABLE"]

Function = partial(Row, result="float", instructions=(30, 30))

Circular = partial(Row, result="float", instructions=(40, 40), header="math/trigonometric.cuh")


NAN, INF = np.nan, np.inf


def documented(f32: int, f64: int, short: float = 0.0, flushed: float = 0.0) -> Ulps:
    """CUDA C++ Programming Guide, "Mathematical Functions", tables of maximum ULP errors of single and double precision: those
    are counted from the correctly rounded result, which is half an ulp off itself."""
    return Ulps(f32 + 0.5, f64 + 0.5, short, flushed)


LGAMMA = Ulps(6.5, 4.5, zeros=200)
DIGAMMA = Ulps(6, 6, zeros=200)

TABLE = (
    Function("exp2", "::exp2(x)", np.exp2, "mpmath.power(2, x)", "2 to the x.", documented(2, 1),
             gradient={"x": "grad * out * log(2)"}),
    Function("expm1", "math::expm1<digits>(x)", np.expm1, "mpmath.expm1(x)", "e to the x, less 1, without cancellation.",
             documented(1, 1, 0.02), header="math/expm1.cuh", instructions=(30, 10),
             gradient={"x": "grad * (out + 1)"}),
    Function("log2", "math::log2<digits>(x)", np.log2, "mpmath.log(x, 2)", "The logarithm to base 2.", documented(1, 1, 0.02),
             header="math/logarithms.cuh", instructions=(30, 3),
             gradient={"x": "grad / (x * log(2))"}),
    Function("log10", "math::log10<digits>(x)", np.log10, "mpmath.log10(x)", "The logarithm to base 10.", documented(2, 1, 0.02),
             header="math/logarithms.cuh", instructions=(30, 4),
             gradient={"x": "grad / (x * log(10))"}),
    Function("log1p", "math::log1p<digits>(x)", np.log1p, "mpmath.log1p(x)",
             "The natural logarithm of 1 + x, without cancellation.",
             documented(1, 1, 0.02), header="math/logarithms.cuh", instructions=(30, 10), gradient={"x": "grad / (1 + x)"}),
    Function("cbrt", "::cbrt(x)", np.cbrt, "mpmath.sign(x) * mpmath.cbrt(abs(x))", "The cube root, negative below zero.",
             documented(1, 1), peers={"torch": ""}, gradient={"x": "grad / (3 * out * out)"}),
    # The rest after whole quarter turns is within 1 ulp (f64: 1.7), the polynomials add one.
    Circular("sin", "math::sin(x)", np.sin, "mpmath.sin(x)", "The sine of an angle in radians, of any size.", Ulps(2.5, 3.5),
             gradient={"x": "grad * cos(x)"}),
    Circular("cos", "math::cos(x)", np.cos, "mpmath.cos(x)", "The cosine of an angle in radians, of any size.", Ulps(2.5, 3.5),
             gradient={"x": "-grad * sin(x)"}),
    Circular("tan", "math::tan(x)", np.tan, "mpmath.tan(x)", "The tangent of an angle in radians, of any size.", Ulps(5, 6),
             gradient={"x": "grad * (1 + out * out)"}),
    Function("asin", "math::asin<digits>(x)", np.arcsin, "mpmath.asin(x)", "The angle whose sine is x; NaN beyond 1.",
             documented(2, 2, 0.03), header="math/arc.cuh", instructions=(30, 14),
             peers={"cupy": "arcsin"}, gradient={"x": "grad / sqrt((1 - x) * (1 + x))"}),
    Function("acos", "math::acos<digits>(x)", np.arccos, "mpmath.acos(x)", "The angle whose cosine is x; NaN beyond 1.",
             documented(2, 2, 0.03), header="math/arc.cuh", instructions=(30, 14),
             peers={"cupy": "arccos"}, gradient={"x": "-grad / sqrt((1 - x) * (1 + x))"}),
    Function("atan", "math::atan<digits>(x)", np.arctan, "mpmath.atan(x)", "The angle whose tangent is x.",
             documented(2, 2, 0.03), header="math/arc.cuh", instructions=(30, 12),
             peers={"cupy": "arctan"}, gradient={"x": "grad / (1 + x * x)"}),
    Function("sinh", "math::sinh<digits>(x)", np.sinh, "mpmath.sinh(x)", "The hyperbolic sine.", documented(3, 2, 0.02),
             header="math/hyperbolic.cuh", instructions=(30, 14),
             gradient={"x": "grad * cosh(x)"}),
    Function("cosh", "::cosh(x)", np.cosh, "mpmath.cosh(x)", "The hyperbolic cosine.", documented(2, 1),
             gradient={"x": "grad * sinh(x)"}),
    Function("asinh", "math::asinh<digits>(x)", np.arcsinh, "mpmath.asinh(x)", "The inverse of sinh.", documented(3, 3, 0.02),
             header="math/hyperbolic.cuh", instructions=(30, 16),
             peers={"cupy": "arcsinh"}, gradient={"x": "grad / sqrt(x * x + 1)"}),
    Function("acosh", "math::acosh<digits>(x)", np.arccosh, "mpmath.acosh(x)", "The inverse of cosh; NaN below 1.",
             documented(4, 3, 0.02), header="math/hyperbolic.cuh", instructions=(30, 10),
             peers={"cupy": "arccosh"}, gradient={"x": "grad / sqrt((x - 1) * (x + 1))"}),
    Function("atanh", "math::atanh<digits>(x)", np.arctanh, "mpmath.atanh(x)", "The inverse of tanh; NaN beyond 1.",
             documented(3, 2, 0.02), header="math/hyperbolic.cuh", instructions=(30, 14),
             peers={"cupy": "arctanh"}, gradient={"x": "grad / ((1 - x) * (1 + x))"}),
    Function("erfc", "math::erfc<digits>(x)", special.erfc, "mpmath.erfc(x)", "1 - erf(x), without cancellation.",
             documented(4, 5, 0.03, 2.0**-126), header="math/erfc.cuh", instructions=(30, 18),
             limits=(1, 1, 0, 2, np.nan), gradient={"x": "-grad * exp(-x * x) * 2 / sqrt(pi)"}),
    Function("erfinv", "::erfinv(x)", special.erfinv, "mpmath.erfinv(x)", "The number whose error function is x; NaN beyond 1.",
             Ulps(3.5, 5.5), limits=(0, -0.0, NAN, NAN, NAN), peers={"cupy": ""},
             gradient={"x": "grad * exp(out * out) * sqrt(pi) / 2"}),
    # CUDA's; below -2 a difference, near the zeros of terms up to 18 (f64: 34), each within 3 ulps. Measured: 36 roundoffs.
    Function("lgamma", "::lgamma(x)", special.lgamma, "mpmath.re(mpmath.loggamma(x))",
             "The logarithm of the gamma function's absolute value; infinite at 0, -1, -2, ...", LGAMMA,
             limits=(INF, INF, INF, INF, NAN), instructions=(60, 60), peers={"cupy": ""}, gradient={"x": "grad * digamma(x)"}),
    # psi(1 - x), which is below 16.7 (f64: 36.7) where x has a fraction, and the cotangent: they cancel near the zeros below 0.
    Function("digamma", "math::digamma(x)", special.digamma, "mpmath.digamma(x)",
             "The logarithmic derivative of the gamma function; NaN at -1, -2, ... Its own gradient is not there.", DIGAMMA,
             header="math/digamma.cuh", limits=(-INF, INF, INF, NAN, NAN), instructions=(70, 70), peers={"cupy": ""}),
)  # fmt: skip
