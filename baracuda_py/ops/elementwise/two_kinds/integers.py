"""Functions of floats beside integers: out = f(x1, x2), of x1's type, with NumPy's broadcasting. A row of the table is an op."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from ....plan.descriptor import Operand
from ....plan.plan import Plan
from ....types import ElementKind, OpCategory
from ....types.vocabulary import Named
from .. import samples
from .._descriptor import MapDescriptor
from .._family import MapPlan, function_of, publish
from .._row import FLOATS, ROUNDED, Row
from ..tables import oracle

__all__ = ["MixedDescriptor", "MixedPlan"]

TABLE = (
    Row("ldexp", "math::ldexp(a, b)", oracle.scaled_by_power, "mpmath.ldexp(x, int(exponent))",
        "x * 2**exponent, rounded once: it is exact but where the result is below the normal range, or beyond it and infinite.",
        ROUNDED, header="math/ldexp.cuh", arguments=("x", "exponent"), integers=("exponent",), domain=FLOATS,
        instructions=(14, 14), gradient={"x": "ldexp(grad, exponent)"}),
)  # fmt: skip


class MixedKind(Named):
    LDEXP = enum.auto()


@dataclass(frozen=True, repr=False)
class MixedDescriptor(MapDescriptor):
    """`kind` on an array of floats and one of integers that broadcast, one of which may be a number instead: its shape is None,
    and `numbers` holds it. `out_element` is x1's."""

    kind: str
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
    values: ClassVar[tuple[str, ...]] = ("x1", "x2")

    def __post_init__(self) -> None:
        self._prepare(MixedKind)

    @classmethod
    def of(cls, kind: str, x1: Any, x2: Any, out: Any = None) -> Self:
        """The descriptor of arrays of any layout, or of one and a Python number."""
        return cls._of(MixedKind, kind, {"x1": x1, "x2": x2}, out, {})


class MixedPlan(MapPlan, Plan[MixedDescriptor]):
    """An elementwise function of floats beside integers: operands `x1`, `x2` and `out`."""

    descriptor = MixedDescriptor
    category = OpCategory.BINARY_ELEMENTWISE
    probes = (
        *(
            {"x1_shape": (3, 1030), "x2_shape": (3, 1030), "x1_element": e, "x2_element": "i32"}
            for e in ("f32", "bf16", "f16", "f64")
        ),
        {"x1_shape": (4, 8, 16), "x2_shape": (8, 1), "x1_element": "f32", "x2_element": "i8"},
        {"x1_shape": (3, 1030), "x2_shape": None, "x1_element": "f32", "x2_element": "i64"},
        {"x1_shape": None, "x2_shape": (64, 3), "x1_element": "f64", "x2_element": "u64", "x2_strides": (1, 64)},
    )


for _row in TABLE:
    globals()[_row.name] = publish(_row, MixedPlan, function_of(MixedPlan, _row), samples.floats_and_integers, __name__)
    __all__ += [_row.name]
