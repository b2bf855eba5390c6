"""Gradients of index_copy and scatter: of what lines or elements were sent into, and of themselves."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

from ....numerics.guarantee import widely
from ....numerics.rounding import round_to
from ....plan.candidate import exact_results
from ....plan.descriptor import Slot, described
from ....plan.plan import Plan
from ....plan.registry import Op, register
from ....types import InvalidProblemError, OpCategory, OperandTypeError, PrecisionGuarantee
from ..._function import function_of
from ..._rows import FLOATS
from .. import oracle
from .._indexed import INDICES
from .._lines import GradientElementsByIndex, GradientsByIndex
from ._reduced import STATISTICS, FromStatistics, bound
from ._runs import OPS
from ._sent import FromLast, FromSums, SentElements, SentLines
from .gradient_samples import index_copy_backward as index_copy_samples
from .gradient_samples import scatter_backward as scatter_samples
from .scatter import ScatterDescriptor

__all__ = [
    "IndexCopyBackwardDescriptor",
    "IndexCopyBackwardPlan",
    "ScatterBackwardDescriptor",
    "ScatterBackwardPlan",
    "index_copy_backward",
    "scatter_backward",
]


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


@described(
    *_slots("indices"),
    Slot("x", optional=True, takes=FLOATS, shape="grad_shape"),
    Slot("src", optional=True, takes=FLOATS, shape="picked_shape"),
    Slot("y", optional=True, takes=FLOATS, shape="grad_shape", strided=False),
    fields=(*GradientElementsByIndex.FIELDS, "reduce"),
)
class ScatterBackwardDescriptor(GradientElementsByIndex, SentElements):
    """The gradient of the result of `scatter`, and the indices of its call; of a product or an extremum also its x, its src and
    its result y."""

    reduce: str = "set"
    name = "scatter_backward"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._member(tuple(OPS), "reduce")

    def check(self) -> None:
        super().check()
        self.refuse_longer_indices()
        for name in ("x", "src", "y"):
            if not self.has(name) and name in self.read:
                raise InvalidProblemError(
                    f"{self.op}: {name} is missing, which the gradient of reduce={self.reduce!r} reads",
                    "pass x and src of the forward call, and its result as y",
                )
            if self.has(name) and (kind := self.layout(name).element) is not self.element:
                raise OperandTypeError(f"{self.op}: {name} holds {kind} and grad {self.element}", "cast it")

    @property
    def read(self) -> tuple[str, ...]:
        """The operands of the forward call, and its result, whose values count."""
        return STATISTICS[self.reduce].read if self.reduce in STATISTICS else ()


class SentPlan(Plan[Any]):
    """What the plans of both have in common."""

    category = OpCategory.INDEXING
    candidates: ClassVar[Any] = (FromLast(), FromSums())


class IndexCopyBackwardPlan(SentPlan):
    """The gradients of `index_copy`: operands `grad`, `index`, `grad_x` and `grad_src`."""

    descriptor = IndexCopyBackwardDescriptor
    reference = oracle.set_lines_backward
    probes = (
        {"grad_shape": (40, 64), "index_shape": (9,), "element": "bf16"},
        {"grad_shape": (5, 7, 9), "index_shape": (3, 2), "element": "f32", "axis": 1, "mode": "clip"},
    )


class ScatterBackwardPlan(SentPlan):
    """The gradients of `scatter`: operands `grad`, `indices`, `grad_x`, `grad_src`, and as the problem has them `x`, `src` and
    `y`."""

    descriptor = ScatterBackwardDescriptor
    candidates = (FromLast(), FromSums(), FromStatistics())
    measures = oracle.MEASURES
    reference = oracle.scatter_backward
    probes = (
        {"grad_shape": (5, 33), "indices_shape": (5, 7), "element": "f32"},
        {"grad_shape": (8, 4), "indices_shape": (3, 4), "element": "f64", "axis": 0, "mode": "wrap", "reduce": "add"},
        {"grad_shape": (8, 4), "indices_shape": (3, 4), "element": "bf16", "axis": 0, "mode": "clip"},
        {"grad_shape": (8, 4), "indices_shape": (3, 4), "element": "bf16", "axis": 0, "reduce": "mean"},
        *(
            {"grad_shape": (8, 4), "indices_shape": (3, 4), "element": element, "reduce": reduce, "axis": 0, "mode": "clip",
             "x_element": element, "src_element": element, "y_element": element}
            for element, reduce in (("f32", "max"), ("f64", "prod"))
        ),
    )  # fmt: skip

    @staticmethod
    def reference_guarantee(desc: ScatterBackwardDescriptor) -> PrecisionGuarantee:
        if desc.reduce not in STATISTICS:
            return exact_results(desc)
        return widely(bound(desc, 1.0), desc, desc.count + 1)


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
    grad: Any, indices: Any, axis: int = -1, *, reduce: str = "set", mode: str = "drop", x: Any = None, src: Any = None,
    y: Any = None, grad_x: Any = None, grad_src: Any = None,
) -> Any:  # fmt: skip
    """The gradients of `scatter`: grad_src has of each index its part of the element of grad at the place that it names.

    reduce: that of the forward call. ``"set"``: only the last index of a place, in C order, has the element, as the forward call
    keeps its element alone; all others have 0, and grad_x is grad with 0 at places that an index names. ``"add"``: every index,
    and grad_x is a copy of grad. ``"mean"``: grad / n of a place whose mean was of n elements. ``"max"``, ``"min"``: grad / t of
    a place t of whose elements, x's own among them, are the result, for each of these; where that is NaN, for those that are NaN
    (torch: NaN). ``"prod"``: grad times the product of the place's other elements, as in torch: of several zeros at a place, all
    elements have 0.
    grad: the gradient of the result (f16, bf16, f32, f64), any strides. indices, axis: those of the forward call. x, src: those
    of the forward call, and y: its result, in C order; their values are read for ``"max"``, ``"min"`` and ``"prod"``.
    Quotients and products are computed in f32 (f64 for f64) and rounded once. mode and what else is said of the results: as in
    `index_copy_backward`; grad_src has indices' shape. Returns (grad_x, grad_src).
    """


register(Op("index_copy_backward", IndexCopyBackwardPlan, index_copy_backward, index_copy_samples))


def _result(x: Any, indices: Any, src: Any, **options: Any) -> Any:
    """The forward result of a sample."""
    mode = options.get("mode", "drop")
    desc = ScatterDescriptor.of(x, indices, src, **{**options, "mode": "drop" if mode == "status" else mode})
    return round_to(oracle.scatter_places(desc, x, indices, src), desc.element)


register(Op("scatter_backward", ScatterBackwardPlan, scatter_backward, partial(scatter_samples, _result)))
