"""The functions that gradients' expressions may call: those of rows, with the rows' C++ and errors, and phi."""

from __future__ import annotations

from functools import cache

from ....numerics.expression import Function
from ....numerics.special import phi
from .._promotion import row_of

__all__ = ["functions"]

OF_ROWS = (
    "divide",
    "sqrt",
    "exp",
    "log",
    "tanh",
    "sigmoid",
    "erf",
    "pow",
    "log1p",
    "sinh",
    "round",
    "ldexp",
)  # monotone in each argument
OF_INPUTS = ("cosh", "sin", "cos", "digamma")  # not monotone: of an argument that is exact


@cache
def functions() -> dict[str, Function]:
    """The table, by name."""
    return {name: row_of(name).function for name in (*OF_ROWS, *OF_INPUTS)} | {
        "phi": Function(
            "math::phi<digits>({0})", phi, 8, 6, 0.05, 2.0**-120, header="math/phi.cuh", instructions=(27, 14)
        )
    }
