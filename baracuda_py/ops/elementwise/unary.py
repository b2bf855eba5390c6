"""Unary elementwise functions: out[i] = f(x[i]). A row of the table is an op."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from ...plan.descriptor import Operand
from ...plan.plan import Plan
from ...types import ElementKind, OpCategory, UnaryKind
from . import oracle, samples
from ._descriptor import MapDescriptor
from ._family import MapPlan, function_of, names_params, publish
from ._row import ROUNDED, Row, Ulps
from .tables import activations, numbers, transcendental

__all__ = ["UnaryDescriptor", "UnaryPlan"]

NAN = np.nan

# Ulps of CUDA's own functions: CUDA C++ Programming Guide, "Mathematical Functions", table of maximum ULP errors; the rest is
# the sum of its parts.
TABLE = (
    Row("neg", "-x", np.negative, "-x", "The negative, elementwise (NumPy's ``negative``).", gradient={"x": "-grad"}),
    Row("abs", "math::absolute(x)", np.abs, "x if x > 0 else -x", "The absolute value, elementwise.",
        header="math/absolute.cuh", gradient={"x": "grad * sign(x)"}, of_complex="ops.complex.polar:magnitude"),
    Row("sign", "math::sign(x)", np.sign, "(x > 0) - (x < 0)", "-1, 0 or 1; NaN stays NaN.", instructions=(6, 6),
        header="math/sign.cuh"),
    Row("square", "x * x", oracle.square, "x * x", "x * x, elementwise.", ROUNDED, gradient={"x": "2 * grad * x"}),
    Row("sqrt", "math::sqrt<digits>(x)", np.sqrt, "mpmath.sqrt(x)", "The square root; NaN below zero.",
        Ulps(0.5, 0.5, 0.01), "float", instructions=(12, 3), header="math/sqrt.cuh", gradient={"x": "grad / (2 * out)"}),
    Row("rsqrt", "math::rsqrt<digits>(x)", oracle.rsqrt, "1 / mpmath.sqrt(x)", "1 / sqrt(x).", Ulps(2, 1), "float",
        instructions=(5, 3), header="math/sqrt.cuh", limits=(np.inf, -np.inf, 0, NAN, NAN),
        gradient={"x": "-grad * out / (2 * x)"}),
    Row("exp", "math::exp<digits>(x)", np.exp, "mpmath.exp(x)", "e to the x.", Ulps(2, 1, 0.02), "float",
        instructions=(8, 5), header="math/exp.cuh", gradient={"x": "grad * out"}),
    Row("log", "math::log<digits>(x)", np.log, "mpmath.log(x)", "The natural logarithm.", Ulps(1, 1, 0.02), "float",
        instructions=(24, 4), header="math/log.cuh", gradient={"x": "grad / x"}),
    Row("tanh", "math::tanh<digits>(x)", np.tanh, "mpmath.tanh(x)", "The hyperbolic tangent.", Ulps(2, 2, 0.13), "float",
        instructions=(16, 1), header="math/tanh.cuh", gradient={"x": "grad * (1 - out) * (1 + out)"}),
    Row("sigmoid", "math::sigmoid<digits>(x)", oracle.sigmoid, "1 / (1 + mpmath.exp(-x))", "1 / (1 + exp(-x)).",
        Ulps(4, 3, 0.02, 2.0**-126), "float", instructions=(45, 4), header="math/sigmoid.cuh",
        limits=(0.5, 0.5, 1, 0, NAN), gradient={"x": "grad * out * (1 - out)"}),
    Row("erf", "math::erf<digits>(x)", oracle.erf, "mpmath.erf(x)", "The error function.", Ulps(2, 2, 0.14), "float",
        instructions=(23, 6), header="math/erf.cuh", limits=(0, -0.0, 1, -1, NAN),
        gradient={"x": "grad * exp(-x * x) * 2 / sqrt(pi)"}),
    Row("relu", "math::maximum(x, C(0))", oracle.relu, "max(x, 0)", "max(x, 0); NaN stays NaN.",
        header="math/extrema.cuh", limits=(0, 0, np.inf, 0, NAN), gradient={"x": "where(x > 0, grad, 0)"}),
    Row("gelu", "math::gelu<digits>(x)", oracle.gelu, "x * mpmath.ncdf(x)",
        "x Phi(x), by the error function (torch's default).", Ulps(8, 6, 0.05, 2.0**-120), "float",
        instructions=(27, 14), header="math/gelu.cuh", limits=(0, -0.0, np.inf, -0.0, NAN),
        gradient={"x": "grad * (phi(x) + x * exp(-x * x / 2) / sqrt(2 * pi))"}),
    Row("silu", "math::silu<digits>(x)", oracle.silu, "x / (1 + mpmath.exp(-x))", "x / (1 + exp(-x)).",
        Ulps(5, 4, 0.03, 2.0**-119), "float", instructions=(48, 6), header="math/silu.cuh",
        limits=(0, -0.0, np.inf, -0.0, NAN), gradient={"x": "grad * sigmoid(x) * (1 + x * (1 - sigmoid(x)))"}),
    *numbers.TABLE,
    *activations.TABLE,
    *transcendental.TABLE,
)  # fmt: skip


@dataclass(frozen=True, repr=False)
class UnaryDescriptor(MapDescriptor):
    """`kind` on an array of `shape`. `out_element` defaults to NumPy's result type, `out_strides` to x's own order; `numbers`
    are the row's params."""

    kind: UnaryKind
    shape: tuple[int, ...]
    element: ElementKind
    out_element: ElementKind | None = None
    x_strides: tuple[int, ...] | None = None
    out_strides: tuple[int, ...] | None = None
    x_align: int | None = None
    out_align: int | None = None
    numbers: tuple[float, ...] | None = None

    inputs: ClassVar[tuple[str, ...]] = ("x",)
    signature_operands: ClassVar[tuple[Operand, ...]] = (Operand("x"), Operand("out", "out"))
    values: ClassVar[tuple[str, ...]] = tuple(dict.fromkeys(name for row in TABLE for name in row.params))

    def __post_init__(self) -> None:
        self._prepare(UnaryKind)

    def _names(self, name: str) -> tuple[str, str]:
        return "shape", "element"

    @classmethod
    def of(cls, kind: UnaryKind | str, x: Any, out: Any = None, dtype: Any = None, **params: float) -> Self:
        """The descriptor of arrays of any layout; `dtype` is what a cast gives, `params` are the row's."""
        return cls._of(UnaryKind, kind, {"x": x}, out, params, dtype)

    @classmethod
    def _renamed(cls, fields: dict[str, Any]) -> dict[str, Any]:
        return {name.removeprefix("x_") if name in ("x_shape", "x_element") else name: f for name, f in fields.items()}


names_params(UnaryDescriptor)


class UnaryPlan(MapPlan, Plan[UnaryDescriptor]):
    """A unary elementwise function: operands `x` and `out`."""

    descriptor = UnaryDescriptor
    category = OpCategory.UNARY_ELEMENTWISE
    probes = (
        *({"shape": (3, 1030), "element": e} for e in ("f32", "bf16", "f64", "i32", "u8")),
        {"shape": (1 << 25,), "element": "f16"},
        {"shape": (6, 40), "element": "f32", "x_strides": (44, 1), "out_strides": (1, 6)},
        {"shape": (5, 4, 8), "element": "bf16", "x_strides": (0, 8, 1)},
        *(  # of casts alone
            {"shape": (3, 1030), "element": of, "out_element": to}
            for of, to in (("f32", "bf16"), ("f32", "fp8_e4m3"), ("f64", "i8"), ("i64", "f16"), ("u64", "fp8_e5m2"),
                           ("bf16", "u64"), ("fp8_e4m3", "f32"), ("fp8_e5m2", "bool"), ("u8", "f64"))
        ),
    )  # fmt: skip


for _row in TABLE:
    globals()[_row.name] = publish(_row, UnaryPlan, function_of(UnaryPlan, _row), samples.unary, __name__)
    __all__ += [_row.name]
