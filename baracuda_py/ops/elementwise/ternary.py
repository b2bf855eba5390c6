"""Ternary elementwise functions: out = f(x1, x2, x3) with NumPy's broadcasting. A row of the table is an op."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Self

from ...plan.descriptor import Operand
from ...plan.plan import Plan
from ...types import ElementKind, OpCategory, TernaryKind
from . import oracle, samples
from ._descriptor import MapDescriptor
from ._family import MapPlan, function_of, names_params, publish
from ._row import BYTES, FLOATS, Row, Ulps
from .tables import oracle as rows
from .tables.oracle import addcdiv, addcmul, fake_quantize, lerp, product_and_sum, quantized_straight_through

__all__ = ["TernaryDescriptor", "TernaryPlan"]

LEVEL = "round(x * (1 / scale)) + zero_point"  # of x, before it is clamped

TABLE = (
    Row("where", "a != C(0) ? b : c", oracle.where, "x if condition else y",
        "x where the condition holds, y elsewhere, bit by bit.", arguments=("condition", "x", "y"), mask=("condition",),
        domain=BYTES, moves=True, gradient={"x": "where(condition, grad, 0)", "y": "where(condition, 0, grad)"}),
    Row("clamp", "math::minimum(math::maximum(a, b), c)", oracle.clamp, "sorted((x, min, max))[1] if min <= max else max",
        "x, no lower than min and no higher than max, which wins where min is above it; a NaN among them is the result.",
        header="math/extrema.cuh", arguments=("x", "min", "max"), absent={"min": "lowest", "max": "highest"},
        peers={"cupy": "clip"},
        gradient={"x": "where((min < x) & (x < max), grad, 0)",
                  "min": "where((x < min) & (min < max), grad, 0)",
                  "max": "where(maximum(x, min) > max, grad, 0)"}),
    # One rounding: the bound has room for that of the oracle.
    Row("fma", "::fma(a, b, c)", partial(rows.with_signed_zeros, product_and_sum),
        "x1 * mpmath.mpf(x2) + x3", "x1 * x2 + x3, rounded once.", Ulps(0.501, 0.501),
        arguments=("x1", "x2", "x3"), domain=FLOATS, peers={"cupy": "", "torch": ""},
        gradient={"x1": "grad * x2", "x2": "grad * x1", "x3": "grad"}),
    Row("lerp", "", lerp, "(1 - mpmath.mpf(weight)) * start + mpmath.mpf(weight) * end",
        "start + weight * (end - start), from end where abs(weight) is 0.5 or more, so that weight 1 gives end.",
        arguments=("start", "end", "weight"),
        formula="where(abs(c) < 0.5, a + c * (b - a), b - (b - a) * (1 - c))", domain=FLOATS, peers={"cupy": ""},
        instructions=(8, 8),
        gradient={"start": "grad * (1 - weight)", "end": "grad * weight", "weight": "grad * (end - start)"}),
    Row("addcmul", "", addcmul, "x + mpmath.mpf(value) * tensor1 * tensor2", "x + value * tensor1 * tensor2.",
        arguments=("x", "tensor1", "tensor2"), params={"value": 1.0}, formula="a + value * b * c", domain=FLOATS,
        peers={"cupy": ""}, instructions=(2, 2),
        gradient={"x": "grad", "tensor1": "grad * value * tensor2", "tensor2": "grad * value * tensor1"}),
    Row("addcdiv", "", addcdiv, "x + mpmath.mpf(value) * tensor1 / tensor2", "x + value * (tensor1 / tensor2).",
        arguments=("x", "tensor1", "tensor2"), params={"value": 1.0}, formula="a + value * (b / c)", domain=FLOATS,
        peers={"cupy": ""}, instructions=(40, 14),
        gradient={"x": "grad", "tensor1": "grad * value / tensor2",
                  "tensor2": "-grad * value * (tensor1 / tensor2) / tensor2"}),
    Row("fake_quantize", "", fake_quantize,
        "(max(min(mpmath.nint(x / scale) + zero_point, quant_max), quant_min) - zero_point) * scale",
        "(q - zero_point) * scale, where q is x * (1 / scale) rounded to the nearest whole number, the even one of two, plus\n"
        "zero_point, no higher than quant_max and no lower than quant_min.\n\n"
        "scale, zero_point: scalars (per tensor), or arrays that broadcast along all axes of x but its channels; of an f32\n"
        "scale beside a 16-bit x the result is f32, as NumPy has it. As torch.fake_quantize_per_tensor_affine and\n"
        "torch.fake_quantize_per_channel_affine, whose gradient it has too: straight through the\n"
        "rounding where q is not clamped, else 0. NaN stays NaN.",
        arguments=("x", "scale", "zero_point"), params={"quant_min": -128.0, "quant_max": 127.0},
        formula="(maximum(minimum(round(a * (1 / b)) + c, quant_max), quant_min) - c) * b", domain=FLOATS,
        peers={"cupy": "", "torch": ""}, instructions=(46, 20), surrogate=quantized_straight_through,
        gradient={"x": f"where(({LEVEL} >= quant_min) & ({LEVEL} <= quant_max), grad, 0)"}),
)  # fmt: skip


@dataclass(frozen=True, repr=False)
class TernaryDescriptor(MapDescriptor):
    """`kind` on three arrays that broadcast. One or two may be numbers (their shape is None, and `numbers` holds them) or be left
    out where the op allows it (their element is None as well). `out_element` defaults to NumPy's result type."""

    kind: TernaryKind
    x1_shape: tuple[int, ...]
    x2_shape: tuple[int, ...] | None
    x3_shape: tuple[int, ...] | None
    x1_element: ElementKind
    x2_element: ElementKind | None
    x3_element: ElementKind | None
    out_element: ElementKind | None = None
    x1_strides: tuple[int, ...] | None = None
    x2_strides: tuple[int, ...] | None = None
    x3_strides: tuple[int, ...] | None = None
    out_strides: tuple[int, ...] | None = None
    x1_align: int | None = None
    x2_align: int | None = None
    x3_align: int | None = None
    out_align: int | None = None
    numbers: tuple[float, ...] | None = None

    inputs: ClassVar[tuple[str, ...]] = ("x1", "x2", "x3")
    signature_operands: ClassVar[tuple[Operand, ...]] = (
        Operand("x1"), Operand("x2", optional=True), Operand("x3", optional=True), Operand("out", "out"),
    )  # fmt: skip
    values: ClassVar[tuple[str, ...]] = ("x1", "x2", "x3", *dict.fromkeys(name for row in TABLE for name in row.params))

    def __post_init__(self) -> None:
        self._prepare(TernaryKind)

    @classmethod
    def of(
        cls, kind: TernaryKind | str, x1: Any, x2: Any = None, x3: Any = None, out: Any = None, **params: float
    ) -> Self:
        """The descriptor of arrays of any layout, and of Python numbers beside them; `params` are the row's."""
        return cls._of(TernaryKind, kind, {"x1": x1, "x2": x2, "x3": x3}, out, params)


names_params(TernaryDescriptor)


class TernaryPlan(MapPlan, Plan[TernaryDescriptor]):
    """A ternary elementwise function: operands `x1`, `x2`, `x3` and `out`."""

    descriptor = TernaryDescriptor
    category = OpCategory.TERNARY_ELEMENTWISE
    measures = oracle.MEASURES
    probes = (
        *(
            {**dict.fromkeys(("x1_shape", "x2_shape", "x3_shape"), shape), "x1_element": mask or e, "x2_element": e,
             "x3_element": e}
            for mask in ("bool", "")
            for e in ("f32", "bf16", "f64", "u8")
            for shape in ((3, 1030),)
        ),
        *(
            {"x1_shape": (7, 64), "x2_shape": x2, "x3_shape": x3, "x1_element": a, "x2_element": b, "x3_element": c}
            for x2, x3, a, b, c in (((64,), (7, 1), "bool", "f16", "f32"), (None, None, "f16", "f16", None),
                                    ((7, 64), None, "bool", "i32", "i32"))
        ),
    )  # fmt: skip


for _row in TABLE:
    globals()[_row.name] = publish(_row, TernaryPlan, function_of(TernaryPlan, _row), samples.ternary, __name__)
    __all__ += [_row.name]
