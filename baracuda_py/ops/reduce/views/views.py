"""trace and reduce_to, and their gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, TypeAlias

import numpy as np

from ....numerics.rounding import wide
from ....plan.plan import Plan
from ....plan.registry import Gradient, Op, register
from ....samples.sample import Sample, layouts, values
from ....types import ElementKind, OpCategory, PrecisionGuarantee
from ..._function import SignatureRules, function_of
from ..._numbers import one_or_more
from .. import oracle
from ..backward import ReduceBackwardPlan
from ..reduce import ReducePlan
from ._problem import (
    BroadcastToDiagonal,
    BroadcastToView,
    ReduceToBackwardDescriptor,
    ReduceToDescriptor,
    SumOfView,
    TraceBackwardDescriptor,
    TraceDescriptor,
    ViewBackwardDescriptor,
    ViewDescriptor,
)

__all__ = [
    "ReduceToBackwardDescriptor",
    "ReduceToBackwardPlan",
    "ReduceToDescriptor",
    "ReduceToPlan",
    "TraceBackwardDescriptor",
    "TraceBackwardPlan",
    "TraceDescriptor",
    "TracePlan",
    "reduce_to",
    "reduce_to_backward",
    "trace",
    "trace_backward",
]

Array: TypeAlias = np.ndarray[Any, Any]
FLOATS = (ElementKind.BF16, ElementKind.F32, ElementKind.F16, ElementKind.F64)


# ---- oracle ------------------------------------------------------------------------------------------------------------


def _seen(desc: Any, x: Array) -> Array:
    """x as the view has it: a diagonal last, or x itself."""
    if isinstance(desc, (TraceDescriptor, TraceBackwardDescriptor)):
        return np.diagonal(x, desc.offset, desc.axis1, desc.axis2)
    return x


def _summed(desc: ViewDescriptor, x: Array) -> Array:
    return oracle.reduce(desc.sums(), _seen(desc, x)).reshape(desc.out_shape)


def _measured(name: str) -> Callable[..., Array]:
    return lambda desc, x: oracle.MEASURES[name](desc.sums(), _seen(desc, x)).reshape(desc.out_shape)


def _spread(desc: ViewBackwardDescriptor, grad: Array, x: Array) -> Array:  # noqa: ARG001
    """Ones at the places whose terms a result has, times its gradient: NaN and infinities have no part elsewhere."""
    made = np.zeros(desc.shape, wide(np.asarray(grad), desc.element).dtype)
    view, places = desc.view(tuple(np.cumprod((1, *desc.shape[:0:-1]))[::-1].tolist())), made.reshape(-1)
    at = view.first + sum(
        np.arange(n).reshape([-1 if a == axis else 1 for a in range(len(view.shape))]) * s
        for axis, (n, s) in enumerate(zip(view.shape, view.strides))
    )
    kept = [1 if axis in view.axes else n for axis, n in enumerate(view.shape)]
    if 0 not in view.shape:
        places[at] = np.broadcast_to(wide(np.asarray(grad), desc.element).reshape(kept), view.shape)
    return made


# ---- plans -------------------------------------------------------------------------------------------------------------


class _SumPlan(Plan[Any]):
    """A sum over a view: operands `x` and `out`."""

    category = OpCategory.REDUCE
    candidates = (SumOfView(),)
    measures: ClassVar[Mapping[str, Callable[..., Array]]] = {
        name: _measured(name) for name in ("abs_sum", "overflowing")
    }
    reference = _summed

    @staticmethod
    def reference_guarantee(desc: ViewDescriptor) -> PrecisionGuarantee:
        return ReducePlan.reference_guarantee(desc.sums())


class _BroadcastPlan(Plan[Any]):
    """The gradient of a sum over a view: operands `grad_x`, `grad` and `x`."""

    category = OpCategory.REDUCE
    measures: ClassVar[Mapping[str, Callable[..., Array]]] = {
        "propagated": lambda desc, grad, x: np.zeros(()),
        "overflowing_parts": lambda desc, grad, x: np.zeros((), bool),
    }
    reference = _spread

    @staticmethod
    def reference_guarantee(desc: ViewBackwardDescriptor) -> PrecisionGuarantee:
        return ReduceBackwardPlan.reference_guarantee(desc.broadcast())


class TracePlan(_SumPlan):
    """Sums along a diagonal: operands `x` and `out`."""

    descriptor = TraceDescriptor
    probes = (
        *({"shape": (n, n), "element": e} for e in ("f32", "bf16") for n in (100, 4096)),
        {"shape": (50, 7, 60), "element": "f32", "offset": 2, "axis2": 2},
    )


class ReduceToPlan(_SumPlan):
    """The sum over broadcast axes: operands `x` and `out`."""

    descriptor = ReduceToDescriptor
    probes = (
        *({"shape": (4096, 300), "element": e, "to": (300,)} for e in ("f32", "bf16")),
        {"shape": (5, 7, 40), "element": "f32", "to": (5, 1, 40)},
    )


class TraceBackwardPlan(_BroadcastPlan):
    """The gradient of trace: operands `grad_x`, `grad` and `x`."""

    descriptor = TraceBackwardDescriptor
    candidates = (BroadcastToDiagonal(),)
    probes = TracePlan.probes


class ReduceToBackwardPlan(_BroadcastPlan):
    """A broadcast: operands `grad_x`, `grad` and `x`."""

    descriptor = ReduceToBackwardDescriptor
    candidates = (BroadcastToView(),)
    probes = ReduceToPlan.probes


# ---- functions ---------------------------------------------------------------------------------------------------------


@function_of(TracePlan)
def trace(x: Any, /, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    """The sums along a diagonal of two axes, as numpy.trace.

    x: an array of two axes or more and of any strides, f16, bf16, f32, f64 or integers. offset: how far the diagonal is above the
    main one, below it if negative. axis1, axis2: the axes of the diagonals, counted from the end if negative; the other axes are
    the result's. out: an array of the result's shape, of x's dtype for floats, int64 for signed integers and uint64 for unsigned
    ones; allocated in C order if not given. A diagonal without elements gives 0.
    Computed as `sum` computes it. Returns out. Raises InvalidProblemError for an axis that there is not, or that is named twice.
    """


@function_of(TraceBackwardPlan)
def trace_backward(grad: Any, x: Any, /, offset: int = 0, axis1: int = 0, axis2: int = 1, *, grad_x: Any = None) -> Any:
    """The gradient of trace: grad along the diagonal, 0 elsewhere.

    grad: the gradient of the result, f16, bf16, f32 or f64, of its shape. x: the operand of the forward call, of which only the
    shape counts. offset, axis1, axis2: as in that call. grad_x: an array like x; allocated in C order if not given.
    The result is exact. Returns grad_x. Raises InvalidProblemError where an operand has another shape.
    """


@function_of(ReduceToPlan, rules=SignatureRules(reads={"shape": one_or_more}))
def reduce_to(x: Any, /, shape: int | Sequence[int]) -> Any:
    """The sum of x over the axes along which an array of `shape` was broadcast to x's: the gradient of a broadcast.

    x: an array of any shape and strides, f16, bf16, f32, f64 or integers. shape: one that broadcasts to x's: axes that it lacks
    in front, and those of extent 1 where x has another, are summed; the latter stay. out: an array of `shape`, of x's dtype for
    floats, int64 for signed integers and uint64 for unsigned ones; allocated in C order if not given.
    Computed as `sum` computes it, in one pass over x. Returns out. Raises InvalidProblemError for a shape that does not broadcast
    to x's.
    """


@function_of(ReduceToBackwardPlan, rules=SignatureRules(reads={"shape": one_or_more}))
def reduce_to_backward(grad: Any, x: Any, /, shape: int | Sequence[int], *, grad_x: Any = None) -> Any:
    """The gradient of reduce_to: grad, broadcast to x's shape.

    grad: the gradient of the result, f16, bf16, f32 or f64, of its shape. x: the operand of the forward call, of which only the
    shape counts. shape: as in that call. grad_x: an array like x; allocated in C order if not given.
    The result is exact. Returns grad_x. Raises InvalidProblemError where grad has another shape.
    """


# ---- samples -----------------------------------------------------------------------------------------------------------


def _traced(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:  # noqa: ARG001
    """Diagonals of every dtype and of each side, of any two axes, of views, and without elements."""
    rng = np.random.default_rng(seed + 20)
    for element in (*FLOATS, ElementKind.I32):
        yield Sample(f"{element} main", {"x": values(rng, (5, 40, 9), element)}, {"axis1": 1, "axis2": 2})
    for offset in (3, -2, 9, -5):
        yield Sample(f"f32 offset {offset}", {"x": values(rng, (5, 9), ElementKind.F32)}, {"offset": offset})
    yield Sample("bf16 axes", {"x": values(rng, (6, 3, 7), ElementKind.BF16)}, {"axis1": -1, "axis2": 0, "offset": 1})
    for view_name, view in layouts(values(rng, (6, 40), ElementKind.F32)).items():
        yield Sample(f"f32 {view_name}", {"x": view}, {"offset": 2})


def _shrunk(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:  # noqa: ARG001
    """Leading axes, repeated ones, both, none, all, of every dtype; views; nothing to sum."""
    rng = np.random.default_rng(seed + 21)
    for element in (*FLOATS, ElementKind.I32):
        yield Sample(f"{element} leading", {"x": values(rng, (6, 5, 40), element)}, {"shape": (5, 40)})
        yield Sample(f"{element} repeated", {"x": values(rng, (6, 5, 40), element)}, {"shape": (6, 1, 1)})
    for shape in ((), (1,), (6, 5, 8), (1, 1, 8), (5, 1), (1, 5, 8)):
        yield Sample(f"f32 to {list(shape)}", {"x": values(rng, (6, 5, 8), ElementKind.F32)}, {"shape": shape})
    for view_name, view in layouts(values(rng, (6, 40), ElementKind.F32)).items():
        yield Sample(f"f32 {view_name}", {"x": view}, {"shape": (1, 40)})
    yield Sample("f32 of nothing", {"x": values(rng, (0, 5), ElementKind.F32)}, {"shape": (5,)})


def _gradients(of: Callable[..., Iterator[Sample]], forward: type[Any]) -> Callable[..., Iterator[Sample]]:
    """Those of the forward op in floats, with a gradient of the result."""

    def samples(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:
        rng = np.random.default_rng(seed + 22)
        for sample in of(fixed, seed, full=full):
            x, options = sample.operands["x"], dict(sample.options)
            element = ElementKind.of(x.dtype)
            if element.is_float:
                grad = values(rng, forward.of(x, **options).out_shape, element)
                yield Sample(sample.label, {"grad": grad, "x": x}, options)

    return samples


_traced_back, _shrunk_back = _gradients(_traced, TraceDescriptor), _gradients(_shrunk, ReduceToDescriptor)
_gradient_of = {n: Gradient(f"{n}_backward", ("x",), {"x": "grad_x"}, shapes=("x",)) for n in ("trace", "reduce_to")}
register(Op("trace", TracePlan, trace, _traced, gradient=_gradient_of["trace"], peers={"cupy": "trace"}))
register(Op("trace_backward", TraceBackwardPlan, trace_backward, _traced_back))
register(
    Op("reduce_to", ReduceToPlan, reduce_to, _shrunk, gradient=_gradient_of["reduce_to"], arguments={})
)  # fmt: skip
register(Op("reduce_to_backward", ReduceToBackwardPlan, reduce_to_backward, _shrunk_back))
