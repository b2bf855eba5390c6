"""The p-norms of vectors, over any set of axes."""

from __future__ import annotations

from typing import Any

from ...numerics.guarantee import widely
from ...plan.plan import Plan
from ...plan.registry import Gradient, Op, register
from ...types import OpCategory, PrecisionGuarantee
from .._function import function_of
from . import _guarantee, oracle, samples
from ._candidates import CANDIDATES
from ._problem import NORMS, VectorNormDescriptor

__all__ = ["VectorNormDescriptor", "VectorNormPlan", "norm"]


class VectorNormPlan(Plan[VectorNormDescriptor]):
    """A p-norm: operands `x` and `out`."""

    descriptor = VectorNormDescriptor
    category = OpCategory.REDUCE
    candidates = CANDIDATES
    measures = oracle.MEASURES
    probes = (
        *(
            {"shape": (3, n), "element": e, "axes": (1,), "p": p}
            for e in ("f32", "bf16")
            for n in (100, 100_000)
            for p in (*NORMS, 3.0)
        ),
        *({"shape": (n, 300), "element": e, "axes": (0,)} for e in ("f32", "bf16") for n in (100, 4096)),
    )
    reference = oracle.reduce

    @staticmethod
    def reference_guarantee(desc: VectorNormDescriptor) -> PrecisionGuarantee:
        return widely(_guarantee.promised(desc, 1), desc, desc.extent)


@function_of(VectorNormPlan, name="norm")
def norm(x: Any, /, p: float = 2.0, axis: Any = None, *, keepdims: bool = False) -> Any:
    """The p-norm of x, as of a vector, over some axes.

    x: an array of any shape and strides, f16, bf16, f32 or f64. p: 2 (the root of the sum of squares), 1 (the sum of magnitudes),
    inf or -inf (the largest or the smallest magnitude), 0 (how many are not 0), or another number (sum(abs(x) ** p) ** (1 / p)),
    for each of which a kernel is compiled. axis: an axis or several, counted from the end
    if negative; None for all. keepdims: whether those stay as extents of 1.
    out: an array of the result's shape and dtype, allocated in C order if not given.
    Computed in f32 (f64 for f64) and rounded once; the order of terms follows from the reduced extents and from how x and out
    are laid out, and no result depends on how many there are. What squares overflow or underflow is not caught: with p = 2, a
    result above 1e19 or below 1e-19 in f32 may be inf or 0, and likewise where the powers of another p leave the range.
    Returns out. Raises InvalidProblemError where p is NaN or another value than 0, inf and -inf whose magnitude is not between
    1e-30 and 1e30, for an axis that there is not or that is named twice, and, where p is inf or negative, if there is nothing
    to reduce.
    """


_gradient = Gradient("norm_backward", ("x", "out"), {"x": "grad_x"}, renames={"out": "y"})
register(
    Op("norm", VectorNormPlan, norm, samples.reduce, {"name": "norm"}, gradient=_gradient,
       peers={"torch": "linalg.vector_norm"})
)  # fmt: skip
