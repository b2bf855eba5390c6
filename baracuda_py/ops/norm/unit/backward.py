"""The gradients of normalize and weight_norm."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....numerics.guarantee import widely
from ....plan.plan import Plan
from ....plan.registry import Op, register
from ....types import OpCategory, PrecisionGuarantee
from ..._function import SignatureRules, function_of
from . import oracle, samples
from ._long import ColumnsUnit, KeptUnit, UnalignedUnit
from ._problem import RowsUnit, UnitBackwardDescriptor, promised

__all__ = ["UnitBackwardPlan", "normalize_backward", "weight_norm_backward"]


class UnitBackwardPlan(Plan[UnitBackwardDescriptor]):
    """The gradients of vectors divided by their lengths: operands `grad_x`, `grad`, `x`, and of weight_norm `grad_g`, `g`."""

    descriptor = UnitBackwardDescriptor
    category = OpCategory.NORM
    candidates = (RowsUnit(), UnalignedUnit(), KeptUnit(), ColumnsUnit())
    measures = oracle.MEASURES
    probes = (
        *({"shape": (3, n), "element": e, "axes": (1,)} for e in ("f32", "bf16", "f64") for n in (100, 4096, 50257)),
        *({"shape": (3, n), "element": "f32", "axes": (1,)} for n in (1001, 5_000_001)),
        *({"shape": (2, n, 40), "element": "bf16", "axes": (1,)} for n in (700, 40_000)),
    )
    reference = oracle.backward

    @staticmethod
    def reference_guarantee(desc: UnitBackwardDescriptor) -> PrecisionGuarantee:
        return widely(promised(desc, 1), desc, desc.length)


SIGNATURE_RULES = SignatureRules(wanted={"grad_g": "g"})


@function_of(UnitBackwardPlan, rules=SIGNATURE_RULES, name="normalize_backward")
def normalize_backward(
    grad: Any, x: Any, /, axis: int | Sequence[int] | None = -1, *, eps: float = 1e-12, grad_x: Any = None
) -> Any:
    """The gradient of `normalize`: (grad - x sum(grad x) / norm**2) / norm along `axis`, and grad / eps where norm < eps.

    grad: the gradient of the result, like x. x, axis, eps: as in the forward call.
    grad_x: like x, or grad or x itself; allocated in C order if not given. Computed in f32 (f64 for f64) and rounded once.
    Where norm and eps are equal but for rounding, either formula may be taken. Returns grad_x.
    """


@function_of(UnitBackwardPlan, rules=SIGNATURE_RULES, name="weight_norm_backward")
def weight_norm_backward(
    grad: Any, x: Any, g: Any, /, axis: int | Sequence[int] | None = 0, *, eps: float = 0.0, grad_x: Any = None,
    grad_g: Any = None,
) -> Any:  # fmt: skip
    """The gradients of `weight_norm`: g (grad - x sum(grad x) / norm**2) / norm and sum(grad x) / norm, sums along all axes but
    `axis`.

    grad: the gradient of the result, like x. x, g, axis, eps: as in the forward call.
    grad_x, grad_g: like x and g; allocated in C order if not given. grad_x may be grad or x itself. Computed in f32 (f64 for f64)
    and rounded once. Returns (grad_x, grad_g).
    """


for _function in (normalize_backward, weight_norm_backward):
    _name = _function.__name__
    register(Op(_name, UnitBackwardPlan, _function, samples.backward, {"name": _name}))
