"""The cast of floats to 8-bit floats by a scale that is given, and back: a float is about its code times the scale."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import ml_dtypes

from .... import functional
from ....plan.descriptor import Operand
from ....plan.plan import Plan
from ....plan.registry import Op, register
from ....types import (
    ElementKind,
    ElementLike,
    OpCategory,
    OperandTypeError,
    PlanPreference,
)  # fmt: skip
from .. import oracle, samples
from .._descriptor import MapDescriptor
from .._family import MapPlan
from .._promotion import WEAK, Computed, check_output
from .._row import ROUNDED, Row, cast_name, functor

__all__ = ["ScaledCastDescriptor", "ScaledCastPlan", "scaled_cast"]

CODES = (ElementKind.FP8_E4M3, ElementKind.FP8_E5M2)
WIDE = (ElementKind.F32, ElementKind.F16, ElementKind.BF16)
TABLE = (
    Row("scaled_cast", "", oracle.cast_by_scale, "", "", ROUNDED, "given", header="elementwise/scaled.cuh",
        arguments=("x", "scale"), scales=("scale",), domain=(*WIDE, *CODES), instructions=(30, 30)),
)  # fmt: skip
ROW = TABLE[0]


@dataclass(frozen=True, repr=False)
class ScaledCastDescriptor(MapDescriptor):
    """x and its scale, an array that broadcasts or a number: its shape is None, and `numbers` holds it. `out_element` is the kind
    that x is cast to; one of the two is an 8-bit float."""

    x_shape: tuple[int, ...]
    scale_shape: tuple[int, ...] | None
    x_element: ElementKind
    out_element: ElementKind
    scale_element: ElementKind = ElementKind.F32
    x_strides: tuple[int, ...] | None = None
    scale_strides: tuple[int, ...] | None = None
    out_strides: tuple[int, ...] | None = None
    x_align: int | None = None
    scale_align: int | None = None
    out_align: int | None = None
    numbers: tuple[float, ...] | None = None

    inputs: ClassVar[tuple[str, ...]] = ("x", "scale")
    signature_operands: ClassVar[tuple[Operand, ...]] = (Operand("x"), Operand("scale"), Operand("out", "out"))
    values: ClassVar[tuple[str, ...]] = ("scale",)
    name: ClassVar[str] = ROW.name

    def __post_init__(self) -> None:
        self._prepare(None)

    @property
    def row(self) -> Row:
        return ROW

    @classmethod
    def of(cls, x: Any, scale: Any, dtype: Any = None, out: Any = None) -> Self:
        """The descriptor of arrays of any layout, or of a number as the scale."""
        return cls._of_row(ROW, (), {"x": x, "scale": scale}, {"out": out}, {}, dtype)

    @property
    def encodes(self) -> bool:
        """Whether the results are the 8-bit floats."""
        return self.kind_of("out") in CODES

    def _result(self) -> ElementKind:
        out, given = super()._result(), self.x_element
        if (out in CODES) == (given in CODES):
            raise OperandTypeError(
                f"{self.op}: a scale is of 8-bit floats, and {given} is cast to {out}",
                "cast f32, f16 or bf16 to fp8_e4m3 or fp8_e5m2, or back; leave out the scale of another cast",
            )
        return out

    def check(self) -> None:
        super().check()
        check_output(self.op, self._result(), self.out_element)

    def computed(self) -> Computed:
        x, out = self.x_element, self.kind_of("out")
        stored = (cast_name(kind) if kind in CODES else kind.number for kind in (out, x))
        out_type, x_type = stored
        return Computed("float", out.digits, out_type, (x_type, ElementKind.F32.number))

    def functors(self) -> tuple[Mapping[str, str], tuple[str, ...]]:
        largest = float(ml_dtypes.finfo(self.kind_of("out").dtype).max)
        computes = f"math::divided_within(a, b, {largest}f)" if self.encodes else "a * b"
        return {"Op": functor("Op", self.op, ROW.letters, f"return {computes};")}, ROW.headers


class ScaledCastPlan(MapPlan, Plan[ScaledCastDescriptor]):
    """A cast to 8-bit floats by a scale, or back: operands `x`, `scale` and `out`."""

    descriptor = ScaledCastDescriptor
    category = OpCategory.QUANTIZATION
    probes = (
        *(
            {"x_shape": (3, 1030), "scale_shape": scale, "x_element": of, "out_element": to}
            for scale in ((), None, (3, 1))
            for of, to in (("f32", "fp8_e4m3"), ("bf16", "fp8_e5m2"), ("fp8_e4m3", "bf16"), ("fp8_e5m2", "f16"))
        ),
        {"x_shape": (64, 3), "scale_shape": (3,), "x_element": "f16", "out_element": "fp8_e4m3", "x_strides": (1, 64)},
    )


def scaled_cast(
    x: Any,
    scale: Any,
    /,
    dtype: ElementLike,
    *,
    out: Any = None,
    stream: Any = None,
    pref: PlanPreference | None = None,
    device: Any = None,
) -> Any:
    """x / scale as 8-bit floats (dtype fp8_e4m3 or fp8_e5m2), or x * scale of 8-bit floats (dtype f32, f16 or bf16).

    x: an array of any shape and strides: f32, f16 or bf16, or 8-bit floats to have them back. scale: a number, or an f32 array
    whose shape broadcasts: of one element (one that was computed on the device is not waited for), one per row, one per channel.
    The quotient is rounded to f32, clamped to the type's range (448 or 57344; infinities are the ends, NaN stays), and rounded
    to nearest even. The product is rounded to f32 and then to dtype. `quantize_fp8` finds its scales itself, and for those the
    codes are the same; a cast without a scale makes NaN or infinity of what is beyond the range.
    out: an array of the broadcast shape and dtype; allocated in the axis order of x if not given. Returns out. No gradient.
    """
    kind, is_number = ElementKind.of(dtype), type(scale) in WEAK
    return functional.call(
        ScaledCastPlan, {"out": out, "x": x} | ({} if is_number else {"scale": scale}),
        lambda: ScaledCastDescriptor.of(x, scale, kind, out), options=(kind, is_number),
        values={"scale": scale} if is_number else {}, stream=stream, pref=pref, device=device,
    )  # fmt: skip


register(Op(ROW.name, ScaledCastPlan, scaled_cast, samples.scaled_cast, peers={"cupy": "", "torch": ""}))
