"""The gradients of cumprod, cummax, cummin and logcumsumexp: a row of the table is an op."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ...numerics.guarantee import widely
from ...plan.plan import Plan
from ...plan.registry import Op, register
from ...types import OpCategory, PrecisionGuarantee
from .._function import function_of
from . import oracle, samples
from ._exclusive import OfShifted
from ._gradient import LATER, ScanBackwardDescriptor, ScanGradient
from ._running import SCANS, ScanDescriptor

__all__ = [
    "ScanBackwardDescriptor",
    "ScanBackwardPlan",
    "cummax_backward",
    "cummin_backward",
    "cumprod_backward",
    "logcumsumexp_backward",
]


class _InclusivePlan(Plan[ScanBackwardDescriptor]):
    """The gradient of an inclusive scan: operands `grad_x`, `grad`, `x` and `y`."""

    descriptor = ScanBackwardDescriptor
    category = OpCategory.SCAN
    candidates = (ScanGradient(),)
    reference = oracle.gradient


class ScanBackwardPlan(Plan[ScanBackwardDescriptor]):
    """The gradient of a scan: operands `grad_x`, `grad`, `x` and `y`."""

    descriptor = ScanBackwardDescriptor
    category = OpCategory.SCAN
    candidates = (*_InclusivePlan.candidates, OfShifted(_InclusivePlan, "grad_x", LATER))
    measures = oracle.GRADIENT_MEASURES
    probes = (
        *({"shape": (3, n), "element": e} for e in ("f32", "bf16", "f64") for n in (100, 4096, 100_000)),
        *({"shape": (n, 300), "element": e, "axis": 0} for e in ("f32", "bf16") for n in (100, 4096)),
    )
    reference = oracle.gradient

    @staticmethod
    def reference_guarantee(desc: ScanBackwardDescriptor) -> PrecisionGuarantee:
        return widely(desc.promised(1), desc, desc.extent)


def _plain(
    grad: Any, x: Any, y: Any, /, axis: int = -1, *, reverse: bool = False, exclusive: bool = False, grad_x: Any = None
) -> Any: ...


def _of_extremum(grad: Any, x: Any, y: Any, /, axis: int = -1, *, reverse: bool = False, grad_x: Any = None) -> Any: ...


_DOC = """The gradient of {name}: {formula}.

grad: the gradient of the result, f16, bf16, f32 or f64, of any strides. x: the operand of the forward call; y: its result.
axis, {options}: as in the call of {name}; with reverse, the sum is over j <= i, and neighbours are those on the other side.
grad_x: an array like x, {own}; allocated in C order if not given.
{further}
Computed in f32 (f64 for f64) and rounded once; the order is fixed, and no row's results depend on how many rows there are (a
single column is stored like a row, and is computed in a row's order).
Returns grad_x. Raises InvalidProblemError for an axis that there is not, OperandTypeError for a dtype that is not taken
(integers have no gradient).
"""
_EXTREMUM = (
    "of each element that is the extremum so far, the sum of grad from it until the next one",
    """Of equal elements the latest counts, as in torch.{name}, and a NaN counts as an extremum; others have a gradient of 0.""",
)
_FORMULAS = {
    "cumprod": ("grad_x[i] = y[i - 1] * sum of grad[j] * x[i + 1] * ... * x[j] over j >= i",
                """Nothing is divided by x, so that the gradient beside a 0 and at one is that of the other factors."""),
    "cummax": _EXTREMUM,
    "cummin": _EXTREMUM,
    "logcumsumexp": ("grad_x[i] = sum of grad[j] * exp(x[i] - y[j]) over j >= i",
                     """No exponential exceeds 1, whatever the sign and size of grad; where y is -inf, the result is NaN."""),
}  # fmt: skip


def _published(name: str) -> Callable[..., Any]:
    """The function of a scan's gradient, which is registered."""
    formula, further = (text.format(name=name) for text in _FORMULAS[name])
    exclusive, backward = SCANS[name].edge is not None, f"{name}_backward"
    own = ("grad or x" if name == "cumprod" else "grad, x or y") + " itself included" + " unless exclusive" * exclusive
    options = "reverse, exclusive" if exclusive else "reverse"
    doc = _DOC.format(name=name, formula=formula, further=further, own=own, options=options)
    function = function_of(ScanBackwardPlan, called=backward, doc=doc, name=backward)(
        _plain if exclusive else _of_extremum
    )

    def result(x: Any, options: dict[str, Any]) -> Any:
        return oracle.running(ScanDescriptor.of(x, name=name, **options), x)

    problems = partial(samples.gradient, name, result)
    register(Op(backward, ScanBackwardPlan, function, problems, {"name": backward}))
    return function


cumprod_backward = _published("cumprod")
cummax_backward = _published("cummax")
cummin_backward = _published("cummin")
logcumsumexp_backward = _published("logcumsumexp")
