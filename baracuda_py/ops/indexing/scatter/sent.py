"""Gradients of index_copy and scatter: of what lines or elements were sent into, and of themselves."""

from __future__ import annotations

from typing import Any

from ....plan.descriptor import Slot, described
from ....plan.plan import Plan
from ....plan.registry import Op, register
from ....types import InvalidProblemError, OpCategory
from ..._function import function_of
from ..._rows import FLOATS
from .. import oracle
from .._indexed import INDICES
from .._lines import GradientElementsByIndex, GradientsByIndex
from ._sent import FromLast, FromSums, SentElements, SentLines
from .gradient_samples import index_copy_backward as index_copy_samples
from .gradient_samples import scatter_backward as scatter_samples

__all__ = [
    "IndexCopyBackwardDescriptor",
    "IndexCopyBackwardPlan",
    "ScatterBackwardDescriptor",
    "ScatterBackwardPlan",
    "index_copy_backward",
    "scatter_backward",
]

REDUCTIONS = ("set", "add")  # those that have a gradient


def _slots(index: str) -> tuple[Slot, ...]:
    return (
        Slot("grad_x", "out", takes=FLOATS, shape="grad_shape", strided=False),
        Slot("grad_src", "out", takes=FLOATS, shape="picked_shape", strided=False),
        Slot("grad", takes=FLOATS),
        Slot(index, takes=INDICES, element=f"{index}_element"),
    )


@described(*_slots("index"), fields=GradientsByIndex.FIELDS)
class IndexCopyBackwardDescriptor(GradientsByIndex, SentLines):
    """The gradient of the result of `index_copy`, and the indices of its call."""

    name, reduce = "index_copy_backward", "set"


@described(*_slots("indices"), fields=(*GradientElementsByIndex.FIELDS, "reduce"))
class ScatterBackwardDescriptor(GradientElementsByIndex, SentElements):
    """The gradient of the result of `scatter`, and the indices of its call."""

    reduce: str = "set"
    name = "scatter_backward"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.reduce not in REDUCTIONS:
            raise InvalidProblemError(
                f"{self.op}: there is no gradient of reduce={self.reduce!r}",
                f"give one of {', '.join(REDUCTIONS)}, or detach x and src",
            )

    def check(self) -> None:
        super().check()
        self.refuse_longer_indices()


class SentPlan(Plan[Any]):
    """What the plans of both have in common."""

    category = OpCategory.INDEXING
    candidates = (FromLast(), FromSums())


class IndexCopyBackwardPlan(SentPlan):
    """The gradients of `index_copy`: operands `grad`, `index`, `grad_x` and `grad_src`."""

    descriptor = IndexCopyBackwardDescriptor
    reference = oracle.set_lines_backward
    probes = (
        {"grad_shape": (40, 64), "index_shape": (9,), "element": "bf16"},
        {"grad_shape": (5, 7, 9), "index_shape": (3, 2), "element": "f32", "axis": 1, "mode": "clip"},
    )


class ScatterBackwardPlan(SentPlan):
    """The gradients of `scatter`: operands `grad`, `indices`, `grad_x` and `grad_src`."""

    descriptor = ScatterBackwardDescriptor
    reference = oracle.set_places_backward
    probes = (
        {"grad_shape": (5, 33), "indices_shape": (5, 7), "element": "f32"},
        {"grad_shape": (8, 4), "indices_shape": (3, 4), "element": "f64", "axis": 0, "mode": "wrap", "reduce": "add"},
        {"grad_shape": (8, 4), "indices_shape": (3, 4), "element": "bf16", "axis": 0, "mode": "clip"},
    )


@function_of(IndexCopyBackwardPlan)
def index_copy_backward(
    grad: Any, index: Any, axis: int = 0, *, mode: str = "drop", grad_x: Any = None, grad_src: Any = None
) -> Any:
    """The gradients of `index_copy`: grad_src has the line of grad that each index names, if it is the last one to name it.

    Every other line of grad_src is 0: of several lines of the same index, the forward call keeps the last one alone. grad_x is
    grad with 0 for the lines that an index names.
    grad: the gradient of the result (f16, bf16, f32, f64), any strides. index, axis, mode: those of the forward call; with
    ``"drop"`` and ``"status"``, an index out of range names no line and its gradient is 0, and ``"raise"`` raises where the
    forward call raised. Elements are moved, none is computed; the same bits at every call.
    grad_x, grad_src: of grad's dtype, grad_src with index's shape in the place of the axis, in C order; allocated if not given.
    Returns (grad_x, grad_src).
    """


@function_of(ScatterBackwardPlan)
def scatter_backward(
    grad: Any, indices: Any, axis: int = -1, *, reduce: str = "set", mode: str = "drop", grad_x: Any = None,
    grad_src: Any = None,
) -> Any:  # fmt: skip
    """The gradients of `scatter`: grad_src has the element of grad at the place that each index names.

    reduce: that of the forward call. ``"set"``: only the last index of a place, in C order, as the forward call keeps its element
    alone; all others have 0, and grad_x is grad with 0 at places that an index names. ``"add"``: every index, and grad_x is a
    copy of grad. Others have no gradient here and raise InvalidProblemError.
    grad: the gradient of the result (f16, bf16, f32, f64), any strides. indices, axis: those of the forward call. mode and what
    else is said of the results: as in `index_copy_backward`; grad_src has indices' shape. Returns (grad_x, grad_src).
    """


register(Op("index_copy_backward", IndexCopyBackwardPlan, index_copy_backward, index_copy_samples))
register(Op("scatter_backward", ScatterBackwardPlan, scatter_backward, scatter_samples))
