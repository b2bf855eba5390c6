"""Gradients of what picks by index: sums, in a fixed order, of the gradients that name each line or place."""

from __future__ import annotations

from typing import Any

from ....numerics.guarantee import widely
from ....plan.descriptor import Slot, described
from ....plan.plan import Plan
from ....plan.registry import Op, register
from ....types import OpCategory, PrecisionGuarantee
from ..._function import function_of
from ..._rows import FLOATS
from .. import oracle
from .._indexed import INDICES
from .._lines import LinesByIndex, RowsById
from ..take_along_axis import AlongAxisProblem
from ._runs import ScatteredElements, ScatteredLines, ScatteredProblem, Sorted, bound
from .gradient_samples import embedding_backward as embedding_samples
from .gradient_samples import index_select_backward as index_select_samples
from .gradient_samples import take_along_axis_backward as take_along_axis_samples

__all__ = [
    "EmbeddingBackwardDescriptor",
    "EmbeddingBackwardPlan",
    "IndexSelectBackwardDescriptor",
    "IndexSelectBackwardPlan",
    "TakeAlongAxisBackwardDescriptor",
    "TakeAlongAxisBackwardPlan",
    "embedding_backward",
    "index_select_backward",
    "take_along_axis_backward",
]


def _slots(lines: str, index: str) -> tuple[Slot, ...]:
    return (
        Slot(f"grad_{lines}", "out", takes=FLOATS, shape=f"{lines}_shape", strided=False),
        Slot("grad", takes=FLOATS, shape="picked_shape"),
        Slot(index, takes=INDICES, element=f"{index}_element"),
        Slot(lines, takes=FLOATS),
    )


@described(*_slots("x", "index"), fields=LinesByIndex.FIELDS)
class IndexSelectBackwardDescriptor(LinesByIndex, ScatteredLines):
    """The gradient of the result of `index_select`, its indices, and the shape of its x."""

    name = "index_select_backward"
    result, source = "grad_x", "grad"


@described(*_slots("weight", "ids"), fields=RowsById.FIELDS)
class EmbeddingBackwardDescriptor(RowsById, ScatteredLines):
    """The gradient of the result of `embedding`, its ids, and the shape of its weight."""

    name = "embedding_backward"
    result, source = "grad_weight", "grad"


@described(*_slots("x", "indices"), fields=AlongAxisProblem.FIELDS)
class TakeAlongAxisBackwardDescriptor(AlongAxisProblem, ScatteredElements):
    """The gradient of the result of `take_along_axis`, its indices, and the shape of its x."""

    name = "take_along_axis_backward"
    result, source = "grad_x", "grad"


class BackwardPlan(Plan[Any]):
    """What the gradients' plans have in common."""

    category = OpCategory.INDEXING
    candidates = (Sorted(),)
    measures = oracle.MEASURES

    @staticmethod
    def reference_guarantee(desc: ScatteredProblem) -> PrecisionGuarantee:
        return widely(bound(desc, 1.0), desc, max(desc.keyed().count, 1))


class IndexSelectBackwardPlan(BackwardPlan):
    """The gradient of `index_select`: operands `grad`, `index`, `x` and `grad_x`."""

    descriptor = IndexSelectBackwardDescriptor
    reference = oracle.add_lines
    probes = (
        {"x_shape": (40, 64), "index_shape": (9,), "element": "bf16"},
        {
            "x_shape": (5, 7, 9),
            "index_shape": (3, 2),
            "element": "f32",
            "index_element": "i32",
            "axis": 1,
            "mode": "clip",
        },
        {"x_shape": (8, 3), "index_shape": (4,), "element": "f64", "axis": -1, "mode": "wrap"},
    )


class EmbeddingBackwardPlan(BackwardPlan):
    """The gradient of `embedding`: operands `grad`, `ids`, `weight` and `grad_weight`."""

    descriptor = EmbeddingBackwardDescriptor
    reference = oracle.add_lines
    probes = (
        {"weight_shape": (100, 64), "ids_shape": (3, 9), "element": "bf16"},
        {"weight_shape": (100, 64), "ids_shape": (3, 9), "element": "f16", "padding_idx": 0},
        {"weight_shape": (70_000, 33), "ids_shape": (9,), "element": "f32", "ids_element": "i32", "mode": "wrap"},
    )


class TakeAlongAxisBackwardPlan(BackwardPlan):
    """The gradient of `take_along_axis`: operands `grad`, `indices`, `x` and `grad_x`."""

    descriptor = TakeAlongAxisBackwardDescriptor
    reference = oracle.add_places
    probes = (
        {"x_shape": (5, 33), "indices_shape": (5, 7), "element": "f32"},
        {"x_shape": (5, 1, 9), "indices_shape": (1, 6, 4), "element": "bf16", "indices_element": "i32", "mode": "clip"},
        {"x_shape": (8, 4), "indices_shape": (3, 4), "element": "f64", "axis": 0, "mode": "wrap"},
    )


@function_of(IndexSelectBackwardPlan)
def index_select_backward(
    grad: Any, index: Any, x: Any, axis: int = 0, *, mode: str = "drop", grad_x: Any = None
) -> Any:
    """The gradient of `index_select` with respect to x: the sums of grad's lines whose index names each line of x.

    grad: the gradient of the result (f16, bf16, f32, f64), any strides. index, axis, mode: those of the forward call; an index
    out of range adds nothing with ``"drop"`` and ``"status"``, and raises where the forward call raised. x: its values are not
    read. Indices are sorted, and lines added in the order of their indices, in chunks: in f32 (f64 for f64), rounded once; the
    same bits at every call. grad_x: of x's shape, in C order; allocated if not given. Returns grad_x.
    """


@function_of(EmbeddingBackwardPlan)
def embedding_backward(
    grad: Any, ids: Any, weight: Any, *, padding_idx: int | None = None, mode: str = "drop", grad_weight: Any = None
) -> Any:
    """The gradient of `embedding` with respect to weight: the sums of grad's rows of each id.

    grad: the gradient of the result (f16, bf16, f32, f64), any strides. ids, mode: those of the forward call. weight: its values
    are not read. padding_idx: a row whose gradient is 0. Sums, their order and ids out of range: as in `index_select_backward`.
    grad_weight: of weight's shape, in C order; allocated if not given. Returns grad_weight.
    """


@function_of(TakeAlongAxisBackwardPlan)
def take_along_axis_backward(
    grad: Any, indices: Any, x: Any, axis: int = -1, *, mode: str = "status", grad_x: Any = None
) -> Any:
    """The gradient of `take_along_axis` with respect to x: the sums of grad's elements that were taken from each place of x.

    grad: the gradient of the result (f16, bf16, f32, f64), any strides. indices, axis, mode: those of the forward call; an index
    out of range adds nothing, and raises where the forward call raised. x: its values are not read; axes that the call broadcast
    are summed over. Sums and their order: as in `index_select_backward`, an index per element.
    grad_x: of x's shape, in C order; allocated if not given. Returns grad_x.
    """


register(Op("index_select_backward", IndexSelectBackwardPlan, index_select_backward, index_select_samples))
register(Op("embedding_backward", EmbeddingBackwardPlan, embedding_backward, embedding_samples))
register(Op("take_along_axis_backward", TakeAlongAxisBackwardPlan, take_along_axis_backward, take_along_axis_samples))
