"""No element reaches a kernel as another type's number: what is refused, and the C++ types that kernels are built for."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.plan.about.tune import admissible
from baracuda_py.runtime.steps import Launch
from baracuda_py.types import ElementKind, PlanPreference

from ...gauntlet import readable
from .calls import Call

COVERS = ("matmul",)
FLOATS = (bp.F16, bp.BF16, bp.F32, bp.F64)
EIGHTS = (bp.FP8_E4M3, bp.FP8_E5M2)
ADDENDS = ("c", "bias", "residual")
H200 = bp.DeviceSpec.named("h200")
ANY = PlanPreference(deterministic=False)
# The C++ types that kernels compute with, and the dtypes whose values these hold.
NUMBERS = {
    "f16": "float16", "bf16": "bfloat16", "float": "float32", "double": "float64", "i8": "int8", "i16": "int16",
    "i32": "int32", "i64": "int64", "u8": "uint8", "u16": "uint16", "u32": "uint32", "u64": "uint64",
}  # fmt: skip


@pytest.mark.parametrize("kind", list(ElementKind), ids=str)
def test_a_kind_has_the_number_whose_dtype_it_has_or_none(kind: ElementKind) -> None:
    named = next((number for number, dtype in NUMBERS.items() if ElementKind.of(dtype) is kind), None)
    if named is not None:
        assert kind.number == kind.cuda == named
    else:
        with pytest.raises(bp.OperandTypeError, match=f"{kind} is stored as"):
            _ = kind.number


def operands_of(entry: str) -> list[str]:
    """Out, C, Bias and Residual of the epilogue in a kernel's name."""
    found = re.search(r"Epilogue<([^<>]*)>", entry)
    assert found is not None, entry
    return found[1].split(", ")[:4]


def described(kind: ElementKind, k: int, **fields: Any) -> Any:
    """A product of 16 x k by k x 32, b with K innermost."""
    return bp.MatmulDescriptor((16, k), (k, 32), kind, kind, b_strides=(1, max(k, 1)), **fields)


@pytest.mark.parametrize("kind", [*FLOATS, *EIGHTS], ids=str)
@pytest.mark.parametrize("k", [0, 4112])
def test_every_candidate_uses_the_kinds_of_addends_and_results(kind: ElementKind, k: int) -> None:
    """Each type of an addend and of the result is refused with a word on it, or is that of every kernel that finishes the
    product, whatever the variant."""
    served = 0
    for name in (*ADDENDS, "out"):
        for other in ElementKind:
            fields: dict[str, Any] = {f"{name}_element": other}
            if name != "out":
                fields |= {f"{name}_shape": (16, 32), "out_element": bp.F64 if kind is bp.F64 else bp.F32}
            desc = described(kind, k, **fields)
            try:
                desc.validate()
            except bp.OperandTypeError as error:
                readable(error, "matmul", str(other))
                continue
            plans = admissible(bp.MatmulPlan, desc, ANY, H200)
            assert plans
            for plan in plans:
                last = [step for step in plan.selection.steps if isinstance(step, Launch)][-1]
                place = ("out", *ADDENDS).index(name)
                assert NUMBERS[operands_of(last.kernel.entry)[place]] == other.dtype.name, str(plan.sku)
                served += 1
    assert served


@pytest.mark.parametrize("kind", EIGHTS, ids=str)
@pytest.mark.parametrize("name", ADDENDS)
def test_fp8_is_multiplied_and_not_added(backend: str, kind: ElementKind, name: str) -> None:
    a, b, x = (np.ones(shape, kind.dtype) for shape in ((16, 32), (32, 16), (16, 16)))
    Call(backend, a=a, b=b, **{name: x}).refused(
        bp.OperandTypeError, name, str(kind), "cast it to f32", out_dtype="f32"
    )
    for other in (bp.BF16, bp.F16, bp.F32):
        got = Call(backend, a=a, b=b, **{name: np.full((16, 16), -1.0).astype(other.dtype)})(out_dtype="f32")
        assert bool((got == 31).all())
