"""Binary elementwise functions: out = f(x1, x2) with NumPy's broadcasting. A row of the table is an op."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np

from ...plan.descriptor import Operand
from ...plan.plan import Plan
from ...types import BinaryKind, ElementKind, OpCategory
from . import oracle, samples
from ._descriptor import MapDescriptor
from ._family import MapPlan, function_of, names_params, publish
from ._row import ROUNDED, Row, Ulps
from .tables import pairs

__all__ = ["BinaryDescriptor", "BinaryPlan"]

Binary = partial(Row, arguments=("x1", "x2"))

TABLE = (
    Binary("add", "a + b", np.add, "x1 + x2", "x1 + x2, elementwise.", ROUNDED, gradient={"x1": "grad", "x2": "grad"}),
    Binary("subtract", "a - b", np.subtract, "x1 - x2", "x1 - x2, elementwise.", ROUNDED,
           gradient={"x1": "grad", "x2": "-grad"}),
    Binary("multiply", "a * b", np.multiply, "x1 * x2", "x1 * x2, elementwise.", ROUNDED,
           gradient={"x1": "grad * x2", "x2": "grad * x1"}),
    Binary("divide", "math::divide<digits>(a, b)", np.true_divide, "x1 / x2",
           "x1 / x2, elementwise; integers divide into floats.", Ulps(0.5, 0.5, 0.01), "float", instructions=(40, 12),
           header="math/divide.cuh", gradient={"x1": "grad / x2", "x2": "-grad * out / x2"}),
    Binary("maximum", "math::maximum(a, b)", np.maximum, "max(x1, x2)", "The larger; a NaN on either side is the result.",
           header="math/extrema.cuh", gradient={"x1": "where(x1 > x2, grad, 0)", "x2": "where(x1 > x2, 0, grad)"}),
    Binary("minimum", "math::minimum(a, b)", np.minimum, "min(x1, x2)", "The smaller; a NaN on either side is the result.",
           header="math/extrema.cuh", gradient={"x1": "where(x1 < x2, grad, 0)", "x2": "where(x1 < x2, 0, grad)"}),
    Binary("pow", "math::pow<digits>(a, b)", oracle.pow,
           "mpmath.power(x1, x2) if not bits else pow(x1, x2, 1 << bits) if x2 >= 0 else {1: 1, -1: 1 - 2 * (x2 % 2)}.get(x1, 0)",
           "x1 to the power x2; an integer to a negative power is truncated.", Ulps(5, 2, 0.1), instructions=(40, 30),
           header="math/pow.cuh", peers={"cupy": "power"},
           gradient={"x1": "where(x2 == 0, 0, grad * x2 * x1 ** (x2 - 1))", "x2": "grad * out * log(where(out == 0, 1, x1))"}),
    Binary("copysign", "math::copysign(a, b)", np.copysign, "math.copysign(x1, x2)", "|x1| with the sign of x2.",
           result="float", header="math/copysign.cuh", gradient={"x1": "grad * sign(x1) * sign(x2)"}),
    *pairs.TABLE,
)  # fmt: skip


@dataclass(frozen=True, repr=False)
class BinaryDescriptor(MapDescriptor):
    """`kind` on two arrays that broadcast, one of which may be a number instead: its shape is None, and `numbers` holds it.
    `out_element` defaults to NumPy's result type."""

    kind: BinaryKind
    x1_shape: tuple[int, ...] | None
    x2_shape: tuple[int, ...] | None
    x1_element: ElementKind
    x2_element: ElementKind
    out_element: ElementKind | None = None
    x1_strides: tuple[int, ...] | None = None
    x2_strides: tuple[int, ...] | None = None
    out_strides: tuple[int, ...] | None = None
    x1_align: int | None = None
    x2_align: int | None = None
    out_align: int | None = None
    numbers: tuple[float, ...] | None = None

    inputs: ClassVar[tuple[str, ...]] = ("x1", "x2")
    signature_operands: ClassVar[tuple[Operand, ...]] = (Operand("x1"), Operand("x2"), Operand("out", "out"))
    values: ClassVar[tuple[str, ...]] = ("x1", "x2", *dict.fromkeys(name for row in TABLE for name in row.params))

    def __post_init__(self) -> None:
        self._prepare(BinaryKind)

    @classmethod
    def of(cls, kind: BinaryKind | str, x1: Any, x2: Any, out: Any = None, **params: float) -> Self:
        """The descriptor of arrays of any layout, or of one and a Python number; `params` are the row's."""
        return cls._of(BinaryKind, kind, {"x1": x1, "x2": x2}, out, params)


names_params(BinaryDescriptor)


class BinaryPlan(MapPlan, Plan[BinaryDescriptor]):
    """A binary elementwise function: operands `x1`, `x2` and `out`."""

    descriptor = BinaryDescriptor
    category = OpCategory.BINARY_ELEMENTWISE
    probes = (
        *(
            {"x1_shape": (3, 1030), "x2_shape": (3, 1030), "x1_element": e, "x2_element": e}
            for e in ("f32", "bf16", "f64", "i32", "u8")
        ),
        {"x1_shape": (7, 64), "x2_shape": (64,), "x1_element": "f16", "x2_element": "f16"},
        {"x1_shape": (4, 8, 16), "x2_shape": (8, 1), "x1_element": "f32", "x2_element": "bf16"},
        {"x1_shape": (3, 1030), "x2_shape": None, "x1_element": "f32", "x2_element": "f32"},
        {"x1_shape": None, "x2_shape": (64, 3), "x1_element": "bf16", "x2_element": "bf16", "x2_strides": (1, 64)},
        *(  # of comparisons alone
            {"x1_shape": (3, 1030), "x2_shape": x2, "x1_element": a, "x2_element": b, "out_element": "bool"}
            for x2, a, b in (
                ((3, 1030), "u64", "i64"),
                (None, "bf16", "bf16"),
                (None, "i8", "i8"),
                ((1030,), "bool", "u8"),
            )
        ),
    )


for _row in TABLE:
    globals()[_row.name] = publish(_row, BinaryPlan, function_of(BinaryPlan, _row), samples.binary, __name__)
    __all__ += [_row.name]
