"""normalize and weight_norm: vectors along axes divided by their lengths."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....numerics.guarantee import widely
from ....plan.plan import Plan
from ....plan.registry import Gradient, Op, register
from ....types import OpCategory, PrecisionGuarantee
from ..._function import function_of
from . import oracle, samples
from ._long import ColumnsUnit, KeptUnit, UnalignedUnit
from ._problem import RowsUnit, UnitDescriptor, promised

__all__ = ["UnitPlan", "normalize", "weight_norm"]


class UnitPlan(Plan[UnitDescriptor]):
    """Vectors divided by their lengths: operands `x`, `out`, and of weight_norm `g`."""

    descriptor = UnitDescriptor
    category = OpCategory.NORM
    candidates = (RowsUnit(), UnalignedUnit(), KeptUnit(), ColumnsUnit())
    measures = oracle.MEASURES
    probes = (
        *({"shape": (3, n), "element": e, "axes": (1,)} for e in ("f32", "bf16", "f64") for n in (100, 4096, 50257)),
        *({"shape": (3, n), "element": "f32", "axes": (1,)} for n in (1001, 5_000_001)),
        *({"shape": (2, n, 40), "element": "bf16", "axes": (1,)} for n in (700, 40_000)),
    )
    reference = oracle.forward

    @staticmethod
    def reference_guarantee(desc: UnitDescriptor) -> PrecisionGuarantee:
        return widely(promised(desc, 1), desc, desc.length)


@function_of(UnitPlan, name="normalize")
def normalize(x: Any, /, axis: int | Sequence[int] | None = -1, *, eps: float = 1e-12) -> Any:
    """x / max(norm, eps), norm = sqrt(sum(x**2)) along `axis` (torch.nn.functional.normalize with p = 2).

    x: an array of any shape and strides, f16, bf16, f32 or f64. axis: an axis or several, counted from the end if negative; None
    for all. eps: 0, or a normal number of f32; a run-time value. Rows of zeros give zeros; with eps = 0 NaN.
    out: like x, or x itself; allocated in C order if not given.
    Computed in f32 (f64 for f64) and rounded once. What squares overflow or underflow is not caught, as in `norm`.
    Returns out. Raises InvalidProblemError for an axis that there is not or that is named twice, and for a negative eps.
    """


@function_of(UnitPlan, name="weight_norm")
def weight_norm(x: Any, g: Any, /, axis: int | Sequence[int] | None = 0, *, eps: float = 0.0) -> Any:
    """g x / max(norm, eps), norm = sqrt(sum(x**2)) along all axes but `axis`: weight normalization (T. Salimans and D. P. Kingma,
    *Weight Normalization*, 2016; torch's parametrization of that name, with v first).

    x: the direction, an array of any shape and strides, f16, bf16, f32 or f64. g: the lengths, of x's dtype, with x's extents at
    `axis` and 1 elsewhere. axis: an axis or several; None: one length for all of x. eps: as in `normalize`; 0: rows of zeros are
    NaN, as in torch.
    out: like x, or x itself; allocated in C order if not given. Computed in f32 (f64 for f64) and rounded once.
    Returns out. Raises InvalidProblemError for an axis that there is not or that is named twice, a g of another shape, and a
    negative eps.
    """


for _function, _saves, _gives in (
    (normalize, ("x",), {"x": "grad_x"}),
    (weight_norm, ("x", "g"), {"x": "grad_x", "g": "grad_g"}),
):
    _name = _function.__name__
    register(Op(_name, UnitPlan, _function, samples.forward, {"name": _name},
                Gradient(f"{_name}_backward", _saves, _gives)))  # fmt: skip
