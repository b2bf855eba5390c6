"""aminmax and var_mean: two reductions in one pass over x, over any set of axes."""

from __future__ import annotations

from typing import Any

from ...numerics.guarantee import widely
from ...plan.plan import Plan
from ...plan.registry import Gradient, Op, register
from ...types import OpCategory, PrecisionGuarantee
from .._function import function_of
from . import oracle, samples
from ._pairs import AminmaxDescriptor, InOnePass, VarMeanDescriptor, promised

__all__ = ["AminmaxDescriptor", "AminmaxPlan", "VarMeanDescriptor", "VarMeanPlan", "aminmax", "var_mean"]

PROBES = (
    *({"shape": (3, n), "element": e, "axes": (1,)} for e in ("f32", "bf16", "f64") for n in (100, 100_000)),
    *({"shape": (n, 300), "element": e, "axes": (0,)} for e in ("f32", "bf16") for n in (100, 4096)),
)


class AminmaxPlan(Plan[AminmaxDescriptor]):
    """The smallest and the largest: operands `x`, `min` and `max`."""

    descriptor = AminmaxDescriptor
    category = OpCategory.REDUCE
    candidates = (InOnePass(),)
    measures = oracle.PAIR_MEASURES
    probes = PROBES
    reference = oracle.pair


class VarMeanPlan(Plan[VarMeanDescriptor]):
    """Variance and mean: operands `x`, `var` and `mean`."""

    descriptor = VarMeanDescriptor
    category = OpCategory.REDUCE
    candidates = (InOnePass(),)
    measures = oracle.PAIR_MEASURES
    probes = PROBES
    reference = oracle.pair

    @staticmethod
    def reference_guarantee(desc: VarMeanDescriptor) -> PrecisionGuarantee:
        return widely(promised(desc, 1), desc, desc.extent)


@function_of(AminmaxPlan)
def aminmax(x: Any, /, axis: Any = None, *, keepdims: bool = False, min: Any = None, max: Any = None) -> Any:
    """The smallest and the largest of x over some axes, which one pass finds: (min, max).

    x: an array of any shape and strides, f16, bf16, f32, f64 or integers. axis: an axis or several, counted from the end if
    negative; None for all. keepdims: whether those stay as extents of 1.
    min, max: arrays of the result's shape and x's dtype, allocated in C order if not given. A NaN among the terms is both.
    The results are exact. Raises InvalidProblemError for an axis that there is not or that is named twice, and where there is
    nothing to reduce.
    """


@function_of(VarMeanPlan)
def var_mean(
    x: Any, /, axis: Any = None, *, correction: int = 0, keepdims: bool = False, var: Any = None, mean: Any = None
) -> Any:
    """The variance and the mean of x over some axes, which one pass computes: (var, mean).

    x: an array of any shape and strides, f16, bf16, f32 or f64. axis: an axis or several, counted from the end if negative; None
    for all. correction: what is taken from the count of the variance (0 by default, as in `var`; 1 in torch.var_mean).
    keepdims: whether reduced axes stay as extents of 1.
    var, mean: arrays of the result's shape and x's dtype, allocated in C order if not given; NaN of nothing.
    Computed in f32 (f64 for f64) and rounded once, as `var` and `mean` are; the order of terms follows from the reduced extents
    and from how x and the results are laid out, and no result depends on how many there are. Raises InvalidProblemError for an
    axis that there is not or that is named twice.
    """


_of_extrema = Gradient(
    "aminmax_backward", ("x", "min", "max"), {"x": "grad_x"}, grad="grad_min", more={"max": "grad_max"}
)
_of_moments = Gradient("var_mean_backward", ("x",), {"x": "grad_x"}, grad="grad_var", more={"mean": "grad_mean"})
register(Op("aminmax", AminmaxPlan, aminmax, samples.aminmax, gradient=_of_extrema, peers={"torch": "aminmax"}))
register(Op("var_mean", VarMeanPlan, var_mean, samples.var_mean, gradient=_of_moments, peers={"torch": "var_mean"}))
