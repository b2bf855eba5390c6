"""cumsum: the sums up to each element along an axis, in either direction."""

from __future__ import annotations

from typing import Any

from ...numerics.guarantee import widely
from ...plan.plan import Plan
from ...plan.registry import Gradient, Op, register
from ...types import OpCategory, PrecisionGuarantee
from .._function import function_of
from . import oracle, samples
from ._candidates import either_way
from ._problem import CumsumDescriptor, promised

__all__ = ["CumsumDescriptor", "CumsumPlan", "cumsum"]


class CumsumPlan(Plan[CumsumDescriptor]):
    """Running sums along an axis: operands `x` and `out`."""

    descriptor = CumsumDescriptor
    category = OpCategory.SCAN
    candidates = either_way(CumsumDescriptor, oracle.cumsum)
    measures = oracle.MEASURES
    probes = (
        *({"shape": (3, n), "element": e} for e in ("f32", "bf16", "f64") for n in (100, 4096, 100_000)),
        *({"shape": (n, 300), "element": e, "axis": 0} for e in ("f32", "bf16") for n in (100, 4096)),
        {"shape": (5, 70), "element": "u8"},
    )
    reference = oracle.cumsum

    @staticmethod
    def reference_guarantee(desc: CumsumDescriptor) -> PrecisionGuarantee:
        return widely(promised(desc, 1), desc, desc.shape[desc.axis] if desc.shape else 1)


@function_of(CumsumPlan)
def cumsum(x: Any, /, axis: int = -1, *, reverse: bool = False, exclusive: bool = False) -> Any:
    """The sums of x's elements up to and with each one, along an axis.

    x: f16, bf16, f32, f64 or integers, of any shape and strides. axis: counted from the end if negative.
    reverse: from each one on to the last, instead. exclusive: of the elements before each one (behind it, with reverse), without
    itself; the first result is 0. Both are as in ONNX's CumSum.
    out: an array of x's shape, x itself included unless exclusive; of x's dtype for floats, int64 for signed integers
    and uint64 for unsigned ones, which wrap, as in NumPy; allocated in C order if not given.
    Sums are computed in f32 (f64 for f64) and rounded once; their order is fixed, and no row's results depend on how many rows
    there are (a single column is stored like a row, and is summed in a row's order).
    Returns out. Raises InvalidProblemError for an axis that there is not, OperandTypeError for an out of another dtype.
    """


_gradient = Gradient("cumsum_backward", (), {"x": "grad_x"})
register(Op("cumsum", CumsumPlan, cumsum, samples.cumsum, gradient=_gradient, peers={"torch": "cumsum"}))
