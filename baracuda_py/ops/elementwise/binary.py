"""Binary elementwise functions: out = f(x1, x2) with NumPy's broadcasting. A row of the table is an op."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from ... import functional, samples
from ...plan.descriptor import Layout, Operand
from ...plan.plan import Plan
from ...plan.registry import Op, register
from ...reference import elementwise as oracle
from ...tensor import intake
from ...tensor.axes import broadcast_shapes
from ...types import BinaryKind, ElementKind, InvalidProblemError, OpCategory, PlanPreference, PrecisionGuarantee
from ._map import CANDIDATES, MapDescriptor, Row, check_output, checked_layout, guarantee_of, keep_order, result_kind

__all__ = ["BinaryDescriptor", "BinaryPlan"]

TABLE = (
    Row("add", "a + b", np.add, "x1 + x2, elementwise.", (0.5, 0.5)),
    Row("subtract", "a - b", np.subtract, "x1 - x2, elementwise.", (0.5, 0.5)),
    Row("multiply", "a * b", np.multiply, "x1 * x2, elementwise.", (0.5, 0.5)),
    Row("divide", "math::divide<digits>(a, b)", np.true_divide, "x1 / x2, elementwise; integers divide into floats.",
        (0.5, 0.5), 0, "float", (40, 12), 0.01, header="math/divide.cuh"),
    Row("maximum", "math::maximum(a, b)", np.maximum, "The larger; a NaN on either side is the result.",
        header="math/extrema.cuh"),
    Row("minimum", "math::minimum(a, b)", np.minimum, "The smaller; a NaN on either side is the result.",
        header="math/extrema.cuh"),
    Row("pow", "math::pow<digits>(a, b)", np.power, "x1 to the power x2; an integer to a negative power is truncated.",
        (5, 2), 0, "same", (40, 30), 0.1, header="math/pow.cuh"),
    Row("copysign", "math::copysign(a, b)", np.copysign, "|x1| with the sign of x2.", (0, 0), 0, "float",
        header="math/copysign.cuh"),
)  # fmt: skip
_ROWS = {row.name: row for row in TABLE}


@dataclass(frozen=True)
class BinaryDescriptor(MapDescriptor):
    """`kind` on two arrays that broadcast. `out_element` defaults to NumPy's result type."""

    kind: BinaryKind
    x1_shape: tuple[int, ...]
    x2_shape: tuple[int, ...]
    x1_element: ElementKind
    x2_element: ElementKind
    out_element: ElementKind | None = None
    x1_strides: tuple[int, ...] | None = None
    x2_strides: tuple[int, ...] | None = None
    out_strides: tuple[int, ...] | None = None
    x1_align: int | None = None
    x2_align: int | None = None
    out_align: int | None = None

    signature_operands: ClassVar[tuple[Operand, ...]] = (Operand("x1"), Operand("x2"), Operand("out", "out"))

    def __post_init__(self) -> None:
        self._names_op(BinaryKind, "kind")
        self._ints("x1_shape", "x2_shape", "x1_strides", "x2_strides", "out_strides")
        self._kind("x1_element", "x2_element", "out_element")
        self._int("x1_align", "x2_align", "out_align")

    @classmethod
    def of(cls, kind: BinaryKind | str, x1: Any, x2: Any, out: Any = None) -> Self:
        """The descriptor of arrays as they lie."""
        kind = BinaryKind.of(kind, f"{cls.__name__}: kind")
        a, b = intake(x1, what=f"{kind}: x1"), intake(x2, what=f"{kind}: x2")
        to = None if out is None else intake(out, what=f"{kind}: out")
        return cls(
            kind, a.shape, b.shape, a.element, b.element, None if to is None else to.element,
            a.strides, b.strides, None if to is None else to.strides, a.align, b.align, None if to is None else to.align,
        )  # fmt: skip

    @property
    def row(self) -> Row:
        return _ROWS[self.kind.value]

    @property
    def inputs(self) -> tuple[str, ...]:
        return ("x1", "x2")

    @property
    def shape(self) -> tuple[int, ...]:
        try:
            return broadcast_shapes(self.x1_shape, self.x2_shape)
        except ValueError:
            raise InvalidProblemError(
                f"{self.op}: x1 of shape {self.x1_shape} and x2 of shape {self.x2_shape} do not broadcast",
                "make each pair of extents equal, or one of them 1",
            ) from None

    def layout(self, name: str) -> Layout:
        if name == "x1":
            return checked_layout(self, name, self.x1_shape, self.x1_strides, self.x1_element)
        if name == "x2":
            return checked_layout(self, name, self.x2_shape, self.x2_strides, self.x2_element)
        shape = self.shape
        element = self.out_element or result_kind(self.row, self.x1_element, self.x2_element)
        strides = self.out_strides if self.out_strides is not None else keep_order(shape, self._order(shape))
        return checked_layout(self, "out", shape, strides, element)

    def _order(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The strides whose axis order a fresh output takes: the first input that has the whole shape."""
        for name in self.inputs:
            layout = self.layout(name)
            if layout.shape == shape:
                return layout.strides
        return tuple(range(len(shape), 0, -1))

    def check(self) -> None:
        if any(n < 0 for n in (*self.x1_shape, *self.x2_shape)):
            raise InvalidProblemError(
                f"{self.op}: {self.x1_shape} or {self.x2_shape} has a negative extent", "give extents of 0 or more"
            )
        check_output(self.op, result_kind(self.row, self.x1_element, self.x2_element), self.out_element)
        for name in ("x1", "x2", "out"):
            self.layout(name)

    def canonical(self) -> BinaryDescriptor:
        a, b, out = self.layout("x1"), self.layout("x2"), self.layout("out")
        return BinaryDescriptor(
            self.kind, a.shape, b.shape, a.element, b.element, out.element,
            a.strides, b.strides, out.strides, a.align, b.align, out.align,
        )  # fmt: skip


class BinaryPlan(Plan[BinaryDescriptor]):
    """A binary elementwise function: operands `x1`, `x2` and `out`."""

    descriptor = BinaryDescriptor
    category = OpCategory.BINARY_ELEMENTWISE
    candidates = CANDIDATES
    probes = (
        *(
            {"x1_shape": (3, 1030), "x2_shape": (3, 1030), "x1_element": e, "x2_element": e}
            for e in ("f32", "bf16", "f64", "i32", "u8")
        ),
        {"x1_shape": (7, 64), "x2_shape": (64,), "x1_element": "f16", "x2_element": "f16"},
        {"x1_shape": (4, 8, 16), "x2_shape": (8, 1), "x1_element": "f32", "x2_element": "bf16"},
    )

    @classmethod
    def reference(cls, desc: BinaryDescriptor, **arrays: Any) -> Any:
        return oracle.binary(desc, **arrays)

    @classmethod
    def reference_guarantee(cls, desc: BinaryDescriptor) -> PrecisionGuarantee:
        return oracle.guarantee(guarantee_of(desc.row, desc.layout("out").element))


def _function(row: Row) -> Callable[..., Any]:
    def function(
        x1: Any,
        x2: Any,
        /,
        *,
        out: Any = None,
        stream: Any = None,
        pref: PlanPreference | None = None,
        device: Any = None,
    ) -> Any:
        return functional.call(
            BinaryPlan, {"out": out, "x1": x1, "x2": x2}, lambda: BinaryDescriptor.of(row.name, x1, x2, out), options=row.name,
            stream=stream, pref=pref, device=device,
        )  # fmt: skip

    function.__name__ = function.__qualname__ = row.name
    function.__doc__ = _DOC.format(doc=row.doc)
    return function


_DOC = """{doc}

x1, x2: arrays whose shapes broadcast, any strides (f16, bf16, f32, f64; integers as NumPy takes them).
out: an array of the broadcast shape and NumPy's result type, x1 or x2 itself included; allocated if not given.
Returns out. Raises InvalidProblemError where the shapes do not broadcast, OperandTypeError for a dtype that is not taken,
OverlapError where out partly overlaps an input.
"""

for _row in TABLE:
    globals()[_row.name] = _function(_row)
    register(
        Op(_row.name, BinaryPlan, globals()[_row.name], samples.binary, {"kind": _row.name},
           peers={"cupy": "power" if _row.name == "pow" else _row.name, "torch": _row.name})
    )  # fmt: skip
    __all__ += [_row.name]
