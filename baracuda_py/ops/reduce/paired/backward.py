"""The gradients of aminmax and var_mean, of both results' gradients."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, ClassVar, Self

import numpy as np

from ....numerics.rounding import round_to
from ....plan.descriptor import Slot, described
from ....plan.registry import Op, register
from ....samples.sample import Sample, values
from ....types import ElementKind
from ..._function import function_of
from ..._rows import FLOATS
from .. import oracle, samples
from .._gradient import ReduceBackwardDescriptor
from .._pairs import PAIRS
from .._problem import ReduceDescriptor, Row
from ..backward import ReduceBackwardPlan

__all__ = [
    "AminmaxBackwardDescriptor",
    "AminmaxBackwardPlan",
    "VarMeanBackwardDescriptor",
    "VarMeanBackwardPlan",
    "aminmax_backward",
    "var_mean_backward",
]


class PairBackwardDescriptor(ReduceBackwardDescriptor):
    """The part of a gradient of two results that does not depend on which."""

    @classmethod
    def known(cls) -> tuple[str, ...]:
        return (cls.__dataclass_fields__["name"].default,)

    @property
    def row(self) -> Row:
        return PAIRS[self.name.removesuffix("_backward")]

    @property
    def takes_y(self) -> bool:
        return False

    @classmethod
    def _read(cls, name: str, operands: Mapping[str, Any], axis: Any, keepdims: bool, **options: Any) -> Self:
        tensors = cls.taken(name, operands)
        options |= cls.options_of(name, tensors["x"].shape, axis, keepdims)
        return cls.of_tensors(tensors, name=name, **options)

    def check(self) -> None:
        self.check_axes(self.row)


@described(
    Slot("grad_x", "out", takes=FLOATS),
    Slot("grad_min", takes=FLOATS, shape="out_shape", element="element"),
    Slot("grad_max", takes=FLOATS, shape="out_shape", element="element"),
    Slot("x", takes=FLOATS),
    Slot("min", takes=FLOATS, shape="out_shape", element="element"),
    Slot("max", takes=FLOATS, shape="out_shape", element="element"),
)
class AminmaxBackwardDescriptor(PairBackwardDescriptor):
    """The gradient of the smallest and the largest with respect to an x of `shape`, for the axes and keepdims of the call."""

    name: str = "aminmax_backward"

    called: ClassVar[Mapping[str, str]] = MappingProxyType({"grad_min": "grad"})

    @classmethod
    def of(  # type: ignore[override]
        cls, grad_min: Any, grad_max: Any, x: Any, min: Any, max: Any, grad_x: Any = None, *, axis: Any = None,
        keepdims: bool = False, name: str = "aminmax_backward",
    ) -> AminmaxBackwardDescriptor:  # fmt: skip
        """The descriptor of arrays of any layout."""
        given = {"x": x, "grad_min": grad_min, "grad_max": grad_max, "min": min, "max": max, "grad_x": grad_x}
        return cls._read(name, given, axis, keepdims)


@described(
    Slot("grad_x", "out", takes=FLOATS),
    Slot("grad_var", takes=FLOATS, shape="out_shape", element="element"),
    Slot("grad_mean", takes=FLOATS, shape="out_shape", element="element"),
    Slot("x", takes=FLOATS),
)
class VarMeanBackwardDescriptor(PairBackwardDescriptor):
    """The gradient of variance and mean with respect to an x of `shape`, for the axes, keepdims and correction of the call."""

    name: str = "var_mean_backward"

    called: ClassVar[Mapping[str, str]] = MappingProxyType({"grad_var": "grad"})

    @classmethod
    def of(  # type: ignore[override]
        cls, grad_var: Any, grad_mean: Any, x: Any, grad_x: Any = None, *, axis: Any = None, correction: int = 0,
        keepdims: bool = False, name: str = "var_mean_backward",
    ) -> VarMeanBackwardDescriptor:  # fmt: skip
        """The descriptor of arrays of any layout."""
        given = {"x": x, "grad_var": grad_var, "grad_mean": grad_mean, "grad_x": grad_x}
        return cls._read(name, given, axis, keepdims, correction=correction)


class AminmaxBackwardPlan(ReduceBackwardPlan):
    """The gradient of aminmax: operands `grad_x`, `grad_min`, `grad_max`, `x`, `min` and `max`."""

    descriptor = AminmaxBackwardDescriptor
    probes = ReduceBackwardPlan.probes[:-1]


class VarMeanBackwardPlan(ReduceBackwardPlan):
    """The gradient of var_mean: operands `grad_x`, `grad_var`, `grad_mean` and `x`."""

    descriptor = VarMeanBackwardDescriptor
    probes = ReduceBackwardPlan.probes[:-1]


@function_of(AminmaxBackwardPlan, name="aminmax_backward")
def aminmax_backward(
    grad_min: Any, grad_max: Any, x: Any, min: Any, max: Any, /, axis: Any = None, *, keepdims: bool = False,
    grad_x: Any = None,
) -> Any:  # fmt: skip
    """The gradient of aminmax: what each result's terms receive, added up.

    grad_min, grad_max: the gradients of the results, f16, bf16, f32 or f64, of their shape. x: the operand of the forward call;
    min, max: its results. axis, keepdims: as in the call of aminmax; gradients are broadcast along the reduced axes.
    grad_x: an array like x, x itself included; allocated in C order if not given.
    Terms that equal a result share its gradient evenly, as in `min_backward` and `max_backward`; where all are equal, each has a
    share of both. A NaN among the terms makes all their gradients NaN. Computed in f32 (f64 for f64) and rounded once; the terms
    that equal the results are counted first.
    Returns grad_x. Raises InvalidProblemError where an operand has another shape, OperandTypeError for a dtype that is not taken
    (integers have no gradient).
    """


@function_of(VarMeanBackwardPlan, name="var_mean_backward")
def var_mean_backward(
    grad_var: Any, grad_mean: Any, x: Any, /, axis: Any = None, *, correction: int = 0, keepdims: bool = False,
    grad_x: Any = None,
) -> Any:  # fmt: skip
    """The gradient of var_mean: 2 / (n - correction) * grad_var * (x - mean(x)) + grad_mean / n, for n terms.

    grad_var, grad_mean: the gradients of the results, f16, bf16, f32 or f64, of their shape. x: the operand of the forward call.
    axis, correction, keepdims: as in the call of var_mean; gradients are broadcast along the reduced axes.
    grad_x: an array like x, x itself included; allocated in C order if not given.
    Computed in f32 (f64 for f64) and rounded once; the rows' means are computed first, because a mean that was rounded to f16 or
    bf16 is too coarse to be subtracted.
    Returns grad_x. Raises InvalidProblemError where an operand has another shape, OperandTypeError for a dtype that is not taken
    (integers have no gradient).
    """


def _samples(forward: str, fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:
    """Those of the variance's or the largest's gradient, with gradients of both results."""
    rng, first = np.random.default_rng(seed + 6), {"aminmax": "max", "var_mean": "var"}[forward]
    grads = {"aminmax": ("grad_min", "grad_max"), "var_mean": ("grad_var", "grad_mean")}[forward]

    def result(name: str, x: Any, options: dict[str, Any]) -> Any:
        with np.errstate(all="ignore"):
            return round_to(oracle.reduce(ReduceDescriptor.of(x, name=name, **options), x), ElementKind.of(x.dtype))

    for sample in samples.backward(first, partial(result, first), False, fixed, seed, full=full):
        x, options = sample.operands["x"], dict(sample.options)
        grad, element = sample.operands["grad"], ElementKind.of(x.dtype)
        operands = {grads[0]: grad, grads[1]: values(rng, grad.shape, element), "x": x}
        if forward == "aminmax":
            operands |= {name: result(name, x, options) for name in ("min", "max")}
        yield Sample(sample.label, operands, options)


register(
    Op("aminmax_backward", AminmaxBackwardPlan, aminmax_backward, partial(_samples, "aminmax"),
       {"name": "aminmax_backward"})
)  # fmt: skip
register(
    Op("var_mean_backward", VarMeanBackwardPlan, var_mean_backward, partial(_samples, "var_mean"),
       {"name": "var_mean_backward"})
)  # fmt: skip
