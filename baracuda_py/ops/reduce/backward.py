"""The gradients of reductions: sum, mean, max, min, var and logsumexp over any set of axes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ...numerics.rounding import round_to
from ...plan.plan import Plan
from ...plan.registry import Op, register
from ...types import ElementKind, OpCategory, PrecisionGuarantee
from .._function import function_of
from . import oracle, samples
from ._gradient import GRADIENTS, ComposedGradient, ReduceBackwardDescriptor, guarantee
from ._problem import ReduceDescriptor

__all__ = [
    "ReduceBackwardDescriptor",
    "ReduceBackwardPlan",
    "logsumexp_backward",
    "max_backward",
    "mean_backward",
    "min_backward",
    "sum_backward",
    "var_backward",
]


class ReduceBackwardPlan(Plan[ReduceBackwardDescriptor]):
    """The gradient of a reduction: operands `grad_x`, `grad`, `x`, and of some `y`."""

    descriptor = ReduceBackwardDescriptor
    category = OpCategory.REDUCE
    candidates = (ComposedGradient(),)
    measures = oracle.BACKWARD_MEASURES
    probes = (
        *({"shape": (3, n), "element": e, "axes": (1,)} for e in ("f32", "bf16", "f64") for n in (100, 4096)),
        *({"shape": (n, 300), "element": e, "axes": (0,)} for e in ("f32", "bf16") for n in (100, 4096)),
        {"shape": (5, 7, 40), "element": "f16", "axes": (0, 2)},
    )
    reference = oracle.backward

    @staticmethod
    def reference_guarantee(desc: ReduceBackwardDescriptor) -> PrecisionGuarantee:
        return guarantee(desc, 1.0)


def _of_x(grad: Any, x: Any, /, axis: Any = None, *, keepdims: bool = False, grad_x: Any = None) -> Any: ...


def _of_variance(
    grad: Any, x: Any, /, axis: Any = None, *, correction: int = 0, keepdims: bool = False, grad_x: Any = None
) -> Any: ...


def _of_result(
    grad: Any, x: Any, y: Any, /, axis: Any = None, *, keepdims: bool = False, grad_x: Any = None
) -> Any: ...


_DOC = """The gradient of {name}: {formula}.

grad: the gradient of the result, f16, bf16, f32 or f64, of its shape. {operands}.
axis, {options}: as in the call of {name}; grad is broadcast along the reduced axes.
grad_x: an array like x, x itself included; allocated in C order if not given.
Computed in f32 (f64 for f64) and rounded once{first}.
Returns grad_x. Raises InvalidProblemError where an operand has another shape, OperandTypeError for a dtype that is not taken
(integers have no gradient).
"""
_EVENLY = "grad / t where x is the result, else 0, where t terms are equal to it"
_TIES = """; the terms that equal the result are counted first, and share its gradient evenly.
A NaN among the terms makes all their gradients NaN"""
_X, _RESULT = "x: the operand of the forward call", "; y: its result"
_SAID = {  # the formula, the operands, and what is computed before
    "sum": ("grad", f"{_X}, of which only the shape counts", ""),
    "mean": ("grad / n, for n terms", f"{_X}, of which only the shape counts", ""),
    "max": (_EVENLY, _X + _RESULT, _TIES),
    "min": (_EVENLY, _X + _RESULT, _TIES),
    "var": ("2 / (n - correction) * grad * (x - mean(x)), for n terms", _X, "; the rows' means are computed first"),
    "logsumexp": ("grad * exp(x - y)", _X + _RESULT, ""),
}


def _documentation(name: str) -> str:
    formula, operands, first = _SAID[name]
    options = "correction, keepdims" if name == "var" else "keepdims"
    return _DOC.format(name=name, formula=formula, operands=operands, options=options, first=first)


def _result(name: str, x: Any, options: dict[str, Any]) -> Any:
    """The forward result of a sample."""
    desc = ReduceDescriptor.of(x, name=name, **options)
    with np.errstate(all="ignore"):
        return round_to(oracle.reduce(desc, x), ElementKind.of(x.dtype))


def _published(name: str) -> Callable[..., Any]:
    """The function of a reduction's gradient, which is registered."""
    backward, takes_result = f"{name}_backward", "y" in GRADIENTS[name].formula
    template = _of_variance if name == "var" else _of_result if takes_result else _of_x
    function = function_of(ReduceBackwardPlan, called=backward, doc=_documentation(name), name=backward)(template)
    problems = partial(samples.backward, name, partial(_result, name), takes_result)
    register(Op(backward, ReduceBackwardPlan, function, problems, {"name": backward}))
    return function


sum_backward = _published("sum")
mean_backward = _published("mean")
max_backward = _published("max")
min_backward = _published("min")
var_backward = _published("var")
logsumexp_backward = _published("logsumexp")
