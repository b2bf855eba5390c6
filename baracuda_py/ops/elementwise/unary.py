"""Unary elementwise functions: out[i] = f(x[i]). A row of the table is an op."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from ... import functional, samples
from ...plan.descriptor import Layout, Operand
from ...plan.plan import Plan
from ...plan.registry import Op, register
from ...reference import elementwise as oracle
from ...tensor import intake
from ...types import ElementKind, InvalidProblemError, OpCategory, PlanPreference, PrecisionGuarantee, UnaryKind
from ._map import CANDIDATES, MapDescriptor, Row, check_output, checked_layout, guarantee_of, keep_order, result_kind

__all__ = ["UnaryDescriptor", "UnaryPlan"]

# `ulps` are (f32, f64): CUDA C++ Programming Guide, "Mathematical Functions", table of maximum ULP errors, for CUDA's own;
# the rest is the sum of its parts. `narrow_ulps` is what a shorter formula adds to a 16-bit result.
TABLE = (
    Row("neg", "-x", oracle.neg, "The negative, elementwise (NumPy's ``negative``)."),
    Row("abs", "math::absolute(x)", oracle.abs, "The absolute value, elementwise.", header="math/absolute.cuh"),
    Row("sign", "math::sign(x)", oracle.sign, "-1, 0 or 1; NaN stays NaN.", instructions=(6, 6), header="math/sign.cuh"),
    Row("square", "x * x", oracle.square, "x * x, elementwise.", (0.5, 0.5)),
    Row("sqrt", "math::sqrt<digits>(x)", oracle.sqrt, "The square root; NaN below zero.", (0.5, 0.5), 0, "float", (12, 3), 0.01,
        header="math/sqrt.cuh"),
    Row("rsqrt", "math::rsqrt<digits>(x)", oracle.rsqrt, "1 / sqrt(x).", (2, 1), 0, "float", (5, 3), header="math/sqrt.cuh"),
    Row("exp", "math::exp<digits>(x)", oracle.exp, "e to the x.", (2, 1), 0, "float", (8, 5), 0.02, header="math/exp.cuh"),
    Row("log", "math::log<digits>(x)", oracle.log, "The natural logarithm.", (1, 1), 0, "float", (24, 4), 0.02,
        header="math/log.cuh"),
    Row("tanh", "math::tanh<digits>(x)", oracle.tanh, "The hyperbolic tangent.", (2, 2), 0, "float", (16, 1), 0.13,
        header="math/tanh.cuh"),
    Row("sigmoid", "math::sigmoid<digits>(x)", oracle.sigmoid, "1 / (1 + exp(-x)).", (4, 3), 2.0**-126, "float", (45, 4), 0.02,
        header="math/sigmoid.cuh"),
    Row("erf", "math::erf<digits>(x)", oracle.erf, "The error function.", (2, 2), 0, "float", (23, 6), 0.14,
        header="math/erf.cuh"),
    Row("relu", "math::maximum(x, C(0))", oracle.relu, "max(x, 0); NaN stays NaN.", header="math/extrema.cuh"),
    Row("gelu", "math::gelu<digits>(x)", oracle.gelu, "x Phi(x), by the error function (torch's default).",
        (8, 6), 2.0**-120, "float", (27, 14), 0.05, header="math/gelu.cuh"),
    Row("silu", "math::silu<digits>(x)", oracle.silu, "x / (1 + exp(-x)).", (5, 4), 2.0**-119, "float", (48, 6), 0.03,
        header="math/silu.cuh"),
)  # fmt: skip
_ROWS = {row.name: row for row in TABLE}


@dataclass(frozen=True)
class UnaryDescriptor(MapDescriptor):
    """`kind` on an array of `shape`. `out_element` defaults to NumPy's result type, `out_strides` to x's own order."""

    kind: UnaryKind
    shape: tuple[int, ...]
    element: ElementKind
    out_element: ElementKind | None = None
    x_strides: tuple[int, ...] | None = None
    out_strides: tuple[int, ...] | None = None
    x_align: int | None = None
    out_align: int | None = None

    signature_operands: ClassVar[tuple[Operand, ...]] = (Operand("x"), Operand("out", "out"))

    def __post_init__(self) -> None:
        self._names_op(UnaryKind, "kind")
        self._ints("shape", "x_strides", "out_strides")
        self._kind("element", "out_element")
        self._int("x_align", "out_align")

    @classmethod
    def of(cls, kind: UnaryKind | str, x: Any, out: Any = None) -> Self:
        """The descriptor of arrays as they lie."""
        kind = UnaryKind.of(kind, f"{cls.__name__}: kind")
        tx = intake(x, what=f"{kind}: x")
        to = None if out is None else intake(out, what=f"{kind}: out")
        return cls(
            kind, tx.shape, tx.element, None if to is None else to.element, tx.strides,
            None if to is None else to.strides, tx.align, None if to is None else to.align,
        )  # fmt: skip

    @property
    def row(self) -> Row:
        return _ROWS[self.kind.value]

    @property
    def inputs(self) -> tuple[str, ...]:
        return ("x",)

    def layout(self, name: str) -> Layout:
        x = checked_layout(self, "x", self.shape, self.x_strides, self.element)
        if name == "x":
            return x
        strides = keep_order(self.shape, x.strides) if self.out_strides is None else self.out_strides
        element = self.out_element or result_kind(self.row, self.element)
        return checked_layout(self, "out", self.shape, strides, element)

    def check(self) -> None:
        if any(n < 0 for n in self.shape):
            raise InvalidProblemError(
                f"{self.op}: shape {self.shape} has a negative extent", "give extents of 0 or more"
            )
        check_output(self.op, result_kind(self.row, self.element), self.out_element)
        self.layout("x"), self.layout("out")

    def canonical(self) -> UnaryDescriptor:
        x, out = self.layout("x"), self.layout("out")
        return UnaryDescriptor(self.kind, x.shape, x.element, out.element, x.strides, out.strides, x.align, out.align)


class UnaryPlan(Plan[UnaryDescriptor]):
    """A unary elementwise function: operands `x` and `out`."""

    descriptor = UnaryDescriptor
    category = OpCategory.UNARY_ELEMENTWISE
    candidates = CANDIDATES
    probes = (
        *({"shape": (3, 1030), "element": e} for e in ("f32", "bf16", "f64", "i32", "u8")),
        {"shape": (1 << 25,), "element": "f16"},
        {"shape": (6, 40), "element": "f32", "x_strides": (44, 1), "out_strides": (1, 6)},
        {"shape": (5, 4, 8), "element": "bf16", "x_strides": (0, 8, 1)},
    )

    @classmethod
    def reference(cls, desc: UnaryDescriptor, **arrays: Any) -> Any:
        return oracle.unary(desc, **arrays)

    @classmethod
    def reference_guarantee(cls, desc: UnaryDescriptor) -> PrecisionGuarantee:
        return oracle.guarantee(guarantee_of(desc.row, desc.layout("out").element))


def _function(row: Row) -> Callable[..., Any]:
    def function(
        x: Any, /, *, out: Any = None, stream: Any = None, pref: PlanPreference | None = None, device: Any = None
    ) -> Any:
        return functional.call(
            UnaryPlan, {"out": out, "x": x}, lambda: UnaryDescriptor.of(row.name, x, out), options=row.name,
            stream=stream, pref=pref, device=device,
        )  # fmt: skip

    function.__name__ = function.__qualname__ = row.name
    function.__doc__ = _DOC.format(doc=row.doc)
    return function


_DOC = """{doc}

x: an array of any shape and strides (f16, bf16, f32, f64; integers as NumPy takes them).
out: an array of x's shape and NumPy's result type, x itself included; allocated in x's axis order if not given.
Returns out. Raises OperandTypeError for a dtype that is not taken, OverlapError where out partly overlaps x.
"""

for _row in TABLE:
    globals()[_row.name] = _function(_row)
    register(
        Op(
            _row.name,
            UnaryPlan,
            globals()[_row.name],
            samples.unary,
            {"kind": _row.name},
            peers={"cupy": _row.name, "torch": _row.name},
        )
    )
    __all__ += [_row.name]
