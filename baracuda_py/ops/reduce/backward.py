"""The gradients of reductions over any set of axes."""

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
from ._gradient import (
    GRADIENTS,
    ComposedGradient,
    ReduceBackwardDescriptor,
    VectorNormBackwardDescriptor,
    guarantee,
)
from ._problem import NORMS, ReduceDescriptor, VectorNormDescriptor

__all__ = [
    "ReduceBackwardDescriptor",
    "ReduceBackwardPlan",
    "VectorNormBackwardDescriptor",
    "VectorNormBackwardPlan",
    "logsumexp_backward",
    "max_backward",
    "mean_backward",
    "min_backward",
    "nanmax_backward",
    "nanmean_backward",
    "nanmin_backward",
    "nansum_backward",
    "norm_backward",
    "prod_backward",
    "std_backward",
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


class VectorNormBackwardPlan(ReduceBackwardPlan):
    """The gradient of a p-norm: operands `grad_x`, `grad`, `x` and `y`."""

    descriptor = VectorNormBackwardDescriptor
    probes = tuple(
        {"shape": shape, "element": e, "axes": (axis,), "p": p}
        for shape, axis in (((3, 4096), 1), ((100, 300), 0)) for e in ("f32", "bf16") for p in (*NORMS, 3.0)
    )  # fmt: skip


def _of_x(grad: Any, x: Any, /, axis: Any = None, *, keepdims: bool = False, grad_x: Any = None) -> Any: ...


def _of_variance(
    grad: Any, x: Any, /, axis: Any = None, *, correction: int = 0, keepdims: bool = False, grad_x: Any = None
) -> Any: ...


def _of_deviation(
    grad: Any, x: Any, y: Any, /, axis: Any = None, *, correction: int = 0, keepdims: bool = False, grad_x: Any = None
) -> Any: ...


def _of_norm(
    grad: Any, x: Any, y: Any, /, p: float = 2.0, axis: Any = None, *, keepdims: bool = False, grad_x: Any = None
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
_SHARED = "; the terms that equal the result are counted first, and share its gradient evenly"
_TIES = f"""{_SHARED}.
A NaN among the terms makes all their gradients NaN"""
_MEANS = "; the rows' means are computed first"
_X, _RESULT = "x: the operand of the forward call", "; y: its result"
_SAID = {  # the formula, the operands, and what is computed before
    "sum": ("grad", f"{_X}, of which only the shape counts", ""),
    "mean": ("grad / n, for n terms", f"{_X}, of which only the shape counts", ""),
    "max": (_EVENLY, _X + _RESULT, _TIES),
    "min": (_EVENLY, _X + _RESULT, _TIES),
    "var": ("2 / (n - correction) * grad * (x - mean(x)), for n terms", _X, _MEANS),
    "logsumexp": ("grad * exp(x - y)", _X + _RESULT, ""),
    "prod": ("grad * y / x, and where x is 0 grad times the product of the other terms", _X + _RESULT,
             "; the product of the terms that are not 0 is computed first"),
    "std": ("grad * (x - mean(x)) / ((n - correction) * y) for n terms, 0 where y is", _X + _RESULT, _MEANS),
    "nansum": ("grad, 0 where x is NaN", _X, ""),
    "nanmean": ("grad / n for n terms that are not NaN, 0 where x is", _X, "; the terms are counted first"),
    "nanmax": (_EVENLY, _X + _RESULT, _SHARED),
    "nanmin": (_EVENLY, _X + _RESULT, _SHARED),
    "norm": ("""grad * x / y for p = 2 (0 where y is), grad * sign(x) for p = 1, 0 for p = 0; for p = inf or -inf
grad * sign(x) / t where abs(x) is the result, else 0, where t terms are that large; for another p
grad * sign(x) * (abs(x) / y) ** (p - 1), 0 where x or y is""", _X + _RESULT, _TIES),
}  # fmt: skip


def _documentation(name: str) -> str:
    formula, operands, first = _SAID[name]
    options = {"var": "correction, keepdims", "std": "correction, keepdims", "norm": "p, keepdims"}.get(
        name, "keepdims"
    )
    return _DOC.format(name=name, formula=formula, operands=operands, options=options, first=first)


def _result(name: str, x: Any, options: dict[str, Any]) -> Any:
    """The forward result of a sample."""
    desc = VectorNormDescriptor.of(x, **options) if name == "norm" else ReduceDescriptor.of(x, name=name, **options)
    with np.errstate(all="ignore"):
        return round_to(oracle.reduce(desc, x), ElementKind.of(x.dtype))


_SIGNATURES: dict[str, Callable[..., Any]] = {"var": _of_variance, "std": _of_deviation, "norm": _of_norm}


def _published(name: str, plan: type[Plan[Any]] = ReduceBackwardPlan) -> Callable[..., Any]:
    """The function of a reduction's gradient, which is registered."""
    backward, takes_result = f"{name}_backward", name == "norm" or "y" in GRADIENTS[name].formula
    template = _SIGNATURES.get(name, _of_result if takes_result else _of_x)
    function = function_of(plan, called=backward, doc=_documentation(name), name=backward)(template)
    problems = partial(samples.backward, name, partial(_result, name), takes_result)
    register(Op(backward, plan, function, problems, {"name": backward}))
    return function


sum_backward = _published("sum")
mean_backward = _published("mean")
max_backward = _published("max")
min_backward = _published("min")
var_backward = _published("var")
logsumexp_backward = _published("logsumexp")
prod_backward = _published("prod")
std_backward = _published("std")
nansum_backward = _published("nansum")
nanmean_backward = _published("nanmean")
nanmax_backward = _published("nanmax")
nanmin_backward = _published("nanmin")
norm_backward = _published("norm", VectorNormBackwardPlan)
