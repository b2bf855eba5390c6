"""Rows of two inputs: quotients and remainders, extrema without NaN, logic and bits, and functions of two numbers."""

from __future__ import annotations

from functools import partial

import numpy as np

from ....types import ElementKind
from .._row import FLOATS, INTEGERS, NUMBERS, ROUNDED, Row, Ulps
from . import oracle
from .activations import GELU, GELU_CHECK, GELU_SLOPE
from .transcendental import documented

__all__ = ["GATED", "TABLE"]

Pair = partial(Row, arguments=("x1", "x2"))
Division = partial(Pair, header="math/modulo.cuh", instructions=(25, 25))
Logic = partial(Pair, result="bool", header="math/wide.cuh", domain=(*NUMBERS, ElementKind.BOOL))
Bits = partial(Pair, domain=(*INTEGERS, ElementKind.BOOL))
Shift = partial(Pair, header="math/shifts.cuh", domain=INTEGERS, instructions=(4, 4))

TABLE = (
    # Where the quotient has as many digits as its type: x1 less the remainder is rounded, and so is the quotient, by one ulp
    # together. Half a whole number is then rounded down, which is 2 ulps from 2**22 (of f64 2**51) on.
    Division("floor_divide", "math::floor_divide(a, b)", oracle.floor_divide,
             "x1 // x2 if x2 else 0 if bits else x1 / x2",
             "floor(x1 / x2). Integers divided by 0 give 0, and the lowest one by -1 itself, as in NumPy.", Ulps(2, 2)),
    # Of the remainder, which is exact, and a sum with x2.
    Division("mod", "math::mod(a, b)", oracle.mod, "x1 % x2 if x2 or not bits else 0",
             "x1 - x2 * floor(x1 / x2), of x2's sign (NumPy's and torch's ``remainder``). Integers modulo 0 give 0.",
             Ulps(0.501, 0.501), peers={"torch": "remainder"}, gradient={"x1": "grad", "x2": "-grad * (x1 - out) / x2"}),
    Division("fmod", "math::fmod(a, b)", np.fmod,
             "math.fmod(x1, x2) if not bits else (abs(x1) % abs(x2)) * (1 - 2 * (x1 < 0)) if x2 else 0",
             "x1 - x2 * trunc(x1 / x2), of x1's sign. Integers modulo 0 give 0.",
             gradient={"x1": "grad", "x2": "-grad * (x1 - out) / x2"}),
    Pair("fmax", "b != b || a > b ? a : b", np.fmax, "max(x1, x2)", "The larger; of a number and a NaN the number.",
         instructions=(3, 3), gradient={
             "x1": "where(x2 != x2, grad, where(x1 >= x2, grad, 0))", "x2": "where(x2 != x2, 0, where(x1 >= x2, 0, grad))"}),
    Pair("fmin", "b != b || a < b ? a : b", np.fmin, "min(x1, x2)", "The smaller; of a number and a NaN the number.",
         instructions=(3, 3), gradient={
             "x1": "where(x2 != x2, grad, where(x1 <= x2, grad, 0))", "x2": "where(x2 != x2, 0, where(x1 <= x2, 0, grad))"}),
    Logic("logical_and", "a != C(0) && b != C(0)", np.logical_and, "bool(x1) and bool(x2)", "Whether neither is zero."),
    Logic("logical_or", "a != C(0) || b != C(0)", np.logical_or, "bool(x1) or bool(x2)", "Whether one of them is not zero."),
    Logic("logical_xor", "(a != C(0)) != (b != C(0))", np.logical_xor, "bool(x1) != bool(x2)", "Whether just one is zero."),
    Bits("bitwise_and", "a & b", np.bitwise_and, "x1 & x2", "The bits that both have."),
    Bits("bitwise_or", "a | b", np.bitwise_or, "x1 | x2", "The bits that one of them has."),
    Bits("bitwise_xor", "a ^ b", np.bitwise_xor, "x1 ^ x2", "The bits that just one of them has."),
    Shift("left_shift", "math::left_shift(a, b)", np.left_shift, "x1 << x2 if 0 <= x2 < bits else 0",
          "x1 * 2**x2, which wraps; 0 if x2 is negative or not below the number of bits.",
          peers={"torch": "bitwise_left_shift"}),
    Shift("right_shift", "math::right_shift(a, b)", np.right_shift, "x1 >> x2 if 0 <= x2 < bits else -(x1 < 0)",
          "floor(x1 / 2**x2); the sign alone, 0 or -1, if x2 is negative or not below the number of bits.",
          peers={"torch": "bitwise_right_shift"}),
    Pair("isclose", "math::is_close(a, b, rtol, atol, equal_nan)", oracle.isclose,
         "None if abs(abs(x1 - x2) - (atol + rtol * abs(x2))) <= 1e-6 * (abs(x1) + abs(x2)) + 1e-45 "
         "else x1 == x2 or abs(x1 - x2) <= atol + rtol * abs(x2)",
         "Whether abs(x1 - x2) <= atol + rtol * abs(x2), each operation rounded to the type computed in; equal infinities are "
         "close, an infinity to nothing else, and two NaN if equal_nan. Integers and bools are compared as f64.",
         result="bool", header="math/close.cuh",
         domain=(*NUMBERS, ElementKind.BOOL), native=True, in_floats=True,
         params={"rtol": 1e-5, "atol": 1e-8, "equal_nan": False}, instructions=(9, 9)),
    Pair("nextafter", "math::next_after<digits>(a, b)", oracle.nextafter, "",
         "The next number of the result's type from x1 toward x2; x2 where they are equal.", header="math/neighbour.cuh",
         domain=FLOATS, native=True, instructions=(12, 14), peers={"cupy": "nextafter", "torch": "nextafter"}),
    Pair("heaviside", "a != a ? a : a == C(0) ? b : C(a > C(0))", np.heaviside, "x2 if x1 == 0 else int(x1 > 0)",
         "0 below zero, x2 at zero, 1 above it.", domain=FLOATS, instructions=(4, 4), peers={"torch": "heaviside"}),
    # max(x1, x2), and log1p of an exponential of a difference: 0.5 for that, 2.5, and 1.5, of a term of log(2) at most.
    Pair("logaddexp", "math::log_add_exp(a, b)", np.logaddexp, "max(x1, x2) + mpmath.log1p(mpmath.exp(-abs(x1 - x2)))",
         "log(exp(x1) + exp(x2)), without overflow.", Ulps(5, 5, zeros=5), "float", "math/log_add_exp.cuh",
         instructions=(60, 60), gradient={"x1": "grad * sigmoid(x1 - x2)", "x2": "grad * sigmoid(x2 - x1)"}),
    Pair("xlogy", "b == b && a == C(0) ? C(0) : a * ::log(b)", oracle.xlogy, "x1 * mpmath.log(x2) if x1 else 0 * x2",
         "x1 log(x2), and 0 where x1 is 0 unless x2 is NaN.", Ulps(2.5, 2.5), "float", instructions=(30, 30),
         peers={"cupy": "", "torch": "xlogy"}, gradient={"x1": "grad * log(x2)", "x2": "grad * (x1 / x2)"}),
    Pair("hypot", "math::hypot<digits>(a, b)", np.hypot, "mpmath.sqrt(x1 * x1 + x2 * x2)",
         "sqrt(x1**2 + x2**2), without overflow.",
         documented(3, 2, 0.02), "float", "math/hypot.cuh", instructions=(40, 16),
         gradient={"x1": "where(out == 0, 0, grad * x1 / out)", "x2": "where(out == 0, 0, grad * x2 / out)"}),
    Pair("atan2", "math::atan2<digits>(a, b)", np.arctan2, "mpmath.atan2(x1, x2) if x1 else None",
         "The angle of the point (x2, x1), from -pi to pi.",
         documented(3, 2, 0.03), "float", "math/arc.cuh", instructions=(50, 28), peers={"cupy": "arctan2"},
         gradient={"x1": "where((x1 == 0) & (x2 == 0), 0, grad * x2 / (x1 * x1 + x2 * x2))",
                   "x2": "where((x1 == 0) & (x2 == 0), 0, -grad * x1 / (x1 * x1 + x2 * x2))"}),
)  # fmt: skip

Gated = partial(Row, domain=FLOATS, peers={"cupy": "", "torch": ""})

Halves = partial(Gated, halves=True)

GATED = (
    Gated("prelu", "a > C(0) ? a : b * a", oracle.leaky_relu, "x if x > 0 else weight * x",
          "x above zero, weight * x below; weight broadcasts as any array does.", ROUNDED, arguments=("x", "weight"),
          instructions=(3, 3),
          gradient={"x": "where(x > 0, grad, grad * weight)", "weight": "where(x > 0, 0, grad * x)"}),
    Halves("reglu", "math::maximum(a, C(0)) * b", oracle.reglu, "max(x, 0) * y", "max(x, 0) * y: the gate of ReGLU.", ROUNDED,
          arguments=("x", "y"), header="math/extrema.cuh", instructions=(2, 2),
          gradient={"x": "where(x > 0, grad * y, 0)", "y": "grad * maximum(x, 0)"}),
    # exp(-|y| / 2) twice, each within 2.5 ulps (transcendental.py), their square and the sum with 1, two products, a quotient.
    Halves("glu", "math::glu(a, b)", oracle.glu, "x / (1 + mpmath.exp(-y))", "x / (1 + exp(-y)), the gate second, as in torch.",
          Ulps(16, 12), arguments=("x", "y"), header="math/glu.cuh", instructions=(50, 50),
          gradient={"x": "grad * sigmoid(y)", "y": "grad * x * sigmoid(y) * sigmoid(-y)"}),
    # Phi within 8 ulps and two products; in the tail erfcx within 4.5, exp four times within 2.5, and six products.
    Halves("geglu", "math::geglu<digits>(a, b)", oracle.geglu, "x * mpmath.ncdf(x) * y",
          "x Phi(x) y, by the error function: the gate of GEGLU.", Ulps(20, 12, 0.06), arguments=("x", "y"),
          header="math/geglu.cuh", instructions=(40, 16),
          gradient={"x": "grad * y * (phi(x) + x * exp(-x * x / 2) / sqrt(2 * pi))", "y": "grad * x * phi(x)"}),
    Halves("geglu_tanh", "math::geglu_tanh<digits>(a, b)", oracle.geglu_tanh, f"{GELU_CHECK} * y",
          "gelu_tanh(x) * y, rounded once: the gate of GEGLU in Gemma.", Ulps(16, 12, 0.06), arguments=("x", "y"),
          header="math/gelu_tanh.cuh", instructions=(50, 10),
          gradient={"x": f"grad * y * {GELU_SLOPE}", "y": f"grad * x * {GELU}"}),
)  # fmt: skip
