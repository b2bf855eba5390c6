"""Which element types a matrix product takes, what it may be written as, and how its products may be formed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ....plan.slot import of_complex
from ....types import ElementKind, MathPrecision, OperandTypeError
from ...products.gemm import ADDENDS

__all__ = ["EIGHTS", "MATH", "NAMED", "Named", "asked_output", "check_elements", "output_element"]

HALVES = (ElementKind.F16, ElementKind.BF16)
EIGHTS = (ElementKind.FP8_E4M3, ElementKind.FP8_E5M2)
OUTPUTS = {
    ElementKind.F16: (*HALVES, ElementKind.F32), ElementKind.BF16: (*HALVES, ElementKind.F32),
    ElementKind.F32: (ElementKind.F32, *HALVES), ElementKind.F64: (ElementKind.F64,),
} | dict.fromkeys(EIGHTS, (ElementKind.BF16, ElementKind.F16, ElementKind.F32))  # fmt: skip
MATH = {
    ElementKind.F16: (MathPrecision.F16,), ElementKind.BF16: (MathPrecision.BF16,),
    ElementKind.F32: (MathPrecision.F32, MathPrecision.TF32), ElementKind.F64: (MathPrecision.F64,),
} | dict.fromkeys(EIGHTS, (MathPrecision.FP8, MathPrecision.FP8_FAST))  # fmt: skip


@dataclass(frozen=True)
class Named:
    """A name that fixes the element and the variant, and returns f32."""

    element: ElementKind
    variant: str
    other: str  # the function for the other 16-bit element


NAMED = {
    "matmul_tc": Named(ElementKind.F16, "tc", "matmul_tc_bf16"),
    "matmul_tc_bf16": Named(ElementKind.BF16, "tc", "matmul_tc"),
    "matmul_tc_async": Named(ElementKind.F16, "tc_async", "matmul_tc_bf16_async"),
    "matmul_tc_bf16_async": Named(ElementKind.BF16, "tc_async", "matmul_tc_async"),
}


def output_element(desc: Any) -> ElementKind:
    """The result's element: the one asked for, or else that of the operands, of fp8 bf16, and under a fixed name f32."""
    if desc.out_element is not None:
        return desc.out_element  # type: ignore[no-any-return]
    if desc.name in NAMED:
        return ElementKind.F32
    return ElementKind.BF16 if desc.a_element in EIGHTS else desc.a_element


def asked_output(op: str, out_dtype: Any, out: ElementKind | None) -> ElementKind | None:
    """The result's element as a call gives it, by `out_dtype` or by what `out` holds; OperandTypeError where they differ."""
    if out_dtype is None:
        return out
    wanted = ElementKind.of(out_dtype)
    if out not in (None, wanted):
        raise OperandTypeError(f"{op}: out holds {out} and out_dtype is {wanted}", "give one of them")
    return wanted


def check_elements(desc: Any) -> None:
    """Raises OperandTypeError where the operands' types do not go together, or with what was asked for."""
    op, a, b, named, out = desc.op, desc.a_element, desc.b_element, NAMED.get(desc.name), output_element(desc)
    for name, kind in (("a", a), ("b", b)):
        if kind.is_integer or kind is ElementKind.BOOL:
            bytes_ = kind in (ElementKind.I8, ElementKind.U8)
            fix = "use matmul_int8, or cast it to a float type" if bytes_ else "cast it to a float type"
            raise OperandTypeError(f"{op}: {name} holds {kind}, and {op} multiplies floats", fix)
        if kind.is_complex:
            raise OperandTypeError(f"{op}: {name} holds {kind}, and {op} multiplies floats", of_complex(name))
        if named is not None and kind is not named.element:
            fix = f"use {named.other}" if kind in HALVES else f"cast it to {named.element}, or use matmul"
            raise OperandTypeError(f"{op}: {name} must hold {named.element}, got {kind}", fix)
        if kind not in OUTPUTS:
            raise OperandTypeError(f"{op}: {name} holds {kind}", f"cast it to one of {', '.join(map(str, OUTPUTS))}")
    if a is not b and not (a in EIGHTS and b in EIGHTS):
        raise OperandTypeError(f"{op}: a holds {a} and b holds {b}", "cast one of them: nothing is cast silently")
    if named is not None and out is not ElementKind.F32:
        raise OperandTypeError(f"{op}: the result is f32 and {out} was asked for", "use matmul(..., out_dtype=...)")
    if out not in OUTPUTS[a]:
        raise OperandTypeError(
            f"{op}: a product of {a} is not written as {out}", f"one of {', '.join(map(str, OUTPUTS[a]))}"
        )
    if desc.math is not None and desc.math not in MATH[a]:
        raise OperandTypeError(f"{op}: {a} is not multiplied in {desc.math}", f"math={MATH[a][0].value!r}")
    for name in ADDENDS:
        kind = getattr(desc, f"{name}_element")
        if kind is not None and kind not in OUTPUTS[a]:
            raise OperandTypeError(f"{op}: {name} holds {kind}", f"cast it to {out}")
