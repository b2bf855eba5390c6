"""Gradients of elementwise functions by other means: the rows' expressions, evaluated by Python on mpmath's numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np

from baracuda_py.numerics.rounding import round_to
from baracuda_py.ops.elementwise.backward import gradients

from ...gauntlet import Problem

__all__ = ["GRADIENTS"]

COUNT = 200  # elements of an output that are checked, evenly over it

FUNCTIONS: dict[str, Any] = {
    "where": lambda condition, x, y: x if condition else y,
    "maximum": max, "minimum": min, "sign": lambda x: (x > 0) - (x < 0), "sigmoid": lambda x: 1 / (1 + mpmath.exp(-x)),
    "phi": mpmath.ncdf, "exp": mpmath.exp, "log": mpmath.log, "sqrt": mpmath.sqrt, "tanh": mpmath.tanh, "erf": mpmath.erf,
    "pow": mpmath.power, "divide": lambda x, y: x / y, "abs": abs, "pi": mpmath.pi, "sinh": mpmath.sinh, "log1p": mpmath.log1p,
    "cosh": mpmath.cosh, "sin": mpmath.sin, "cos": mpmath.cos, "digamma": mpmath.digamma, "round": mpmath.nint,
    "ldexp": lambda x, exponent: mpmath.ldexp(x, int(exponent)),
    "__builtins__": {},
}  # fmt: skip


def _elementwise(problem: Problem) -> None:
    desc, row = problem.desc, problem.desc.row
    held = dict(zip(desc.numbered, desc.numbers or ()))
    arrays = {name: problem.slots[name].host() for name in desc.arrays}
    for name in desc.inputs:
        if name not in arrays:
            number = held[name] if name in held else desc.stands_in(name)
            arrays[name] = round_to(np.asarray(number, np.float64), desc.kind_of(name))
    flat = {name: np.broadcast_to(x, desc.out_shape).reshape(-1) for name, x in arrays.items()}
    params = {name: held.get(name, default) for name, default in row.params.items()}
    checked = 0
    for output in desc.outputs:
        text = row.text(output)
        code = compile(text, row.name, "eval")
        wide = np.asarray(problem.wide[output]).reshape(-1)
        for i in sorted({round(i) for i in np.linspace(0, wide.size - 1, COUNT)}) if wide.size else ():
            numbers = {name: bool(x[i]) if x.dtype == bool else mpmath.mpf(float(x[i])) for name, x in flat.items()}
            if not all(mpmath.isfinite(x) for x in numbers.values()):
                continue
            with mpmath.workdps(60):
                try:
                    wanted = mpmath.mpf(eval(code, FUNCTIONS, numbers | params))
                except (ArithmeticError, ValueError, TypeError):  # no real number
                    continue
                if mpmath.isnan(wanted):
                    assert np.isnan(wide[i]), f"{row.name}: {output} of {numbers}: oracle {wide[i]}, independent NaN"
                    continue
                terms = abs(numbers["grad"]) * math.prod(max(abs(x), 1) for x in numbers.values()) if "+" in text else 0
                error = abs(mpmath.mpf(float(wide[i])) - wanted)
                beyond = abs(wanted) > 1.7e308 and math.isinf(float(wide[i]))
                near = 2.0**-46 * abs(wanted) + 2.0**-48 * terms + 1e-300
                assert beyond or error <= near, (
                    f"{row.name}: {output} of {numbers}: oracle {wide[i]}, independent {wanted}"
                )
            checked += 1
    finite = all(np.isfinite(x.astype(np.float64)).all() for x in arrays.values())
    none = not any(
        np.isfinite(np.asarray(problem.wide[output])).any() for output in desc.outputs
    )  # outside of the domain
    assert checked or not finite or none or row.name == "pow_backward", "nothing was checked"


GRADIENTS: dict[str, Callable[[Problem], None]] = dict.fromkeys(gradients.__all__, _elementwise)
