"""Gated activations: one input through an activation, times the other. A row of the table is an op of the binary family."""

from __future__ import annotations

from functools import partial

from . import oracle, samples
from ._family import function_of, publish
from ._row import FLOATS, Row, Ulps
from .binary import BinaryPlan
from .tables import pairs

__all__: list[str] = []

Gated = partial(Row, arguments=("x", "y"), domain=FLOATS, halves=True)

TABLE = (
    Gated("silu_mul", "math::silu_mul<digits>(a, b)", oracle.silu_mul, "x / (1 + mpmath.exp(-x)) * y",
          "x / (1 + exp(-x)) * y, rounded once: the gate of SwiGLU.", Ulps(20, 12, 0.06), instructions=(50, 8),
          header="math/silu_mul.cuh",
          gradient={"x": "grad * y * sigmoid(x) * (1 + x * (1 - sigmoid(x)))", "y": "grad * x * sigmoid(x)"}),
    *pairs.GATED,
)  # fmt: skip

for _row in TABLE:
    globals()[_row.name] = publish(_row, BinaryPlan, function_of(BinaryPlan, _row), samples.gated, __name__)
    __all__ += [_row.name]
