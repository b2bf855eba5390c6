"""Gradients of what picks by index: sums, in a fixed order, of the gradients that name each line or place."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from ...numerics.guarantee import widely
from ...plan.descriptor import Slot, described
from ...plan.plan import Plan
from ...plan.registry import Op, register
from ...tensor.axes import broadcast_strides, c_strides, merge_axes
from ...types import ElementKind, OpCategory, PrecisionGuarantee
from .._function import function_of
from .._rows import FLOATS
from . import oracle
from ._lines import INDICES
from ._scattered import ScatteredLines, ScatteredProblem, Sorted, Strided, bound
from ._sorted import KeyedIndices
from .gradient_samples import embedding_backward as embedding_samples
from .gradient_samples import index_select_backward as index_select_samples
from .gradient_samples import take_along_axis_backward as take_along_axis_samples
from .take_along_axis import FIELDS, KERNEL_MODES, AlongAxisProblem

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


@described(
    Slot("grad_x", "out", takes=FLOATS, shape="x_shape", strided=False),
    Slot("grad", takes=FLOATS, shape="picked_shape"),
    Slot("index", takes=INDICES, element="index_element"),
    Slot("x", takes=FLOATS),
    fields=("x_shape", "index_shape", "element", "index_element", "axis", "mode"),
)
class IndexSelectBackwardDescriptor(ScatteredLines):
    """The gradient of the result of `index_select`, its indices, and the shape of its x."""

    x_shape: tuple[int, ...]
    index_shape: tuple[int, ...]
    index_element: ElementKind = ElementKind.I64
    axis: int = 0

    name = "index_select_backward"
    result, source = "grad_x", "grad"


@described(
    Slot("grad_weight", "out", takes=FLOATS, shape="weight_shape", strided=False),
    Slot("grad", takes=FLOATS, shape="picked_shape"),
    Slot("ids", takes=INDICES, element="ids_element"),
    Slot("weight", takes=FLOATS),
    fields=("weight_shape", "ids_shape", "element", "ids_element", "padding_idx", "mode"),
)
class EmbeddingBackwardDescriptor(ScatteredLines):
    """The gradient of the result of `embedding`, its ids, and the shape of its weight."""

    weight_shape: tuple[int, ...]
    ids_shape: tuple[int, ...]
    ids_element: ElementKind = ElementKind.I64
    padding_idx: int | None = None

    name = "embedding_backward"
    lines, index = "weight", "ids"
    axis: ClassVar[int] = 0
    result, source = "grad_weight", "grad"


@described(
    Slot("grad_x", "out", takes=FLOATS, shape="x_shape", strided=False),
    Slot("grad", takes=FLOATS, shape="out_shape"),
    Slot("indices", takes=INDICES, element="indices_element"),
    Slot("x", takes=FLOATS),
    fields=FIELDS,
)
class TakeAlongAxisBackwardDescriptor(AlongAxisProblem, ScatteredProblem):
    """The gradient of the result of `take_along_axis`, its indices, and the shape of its x."""

    name = "take_along_axis_backward"
    result, source = "grad_x", "grad"

    def keyed(self) -> KeyedIndices:
        indices, shape, axis = self.layout("indices"), self.out_shape, self.axis % len(self.x_shape)
        steps = [s * indices.natural for s in broadcast_strides(indices.shape, indices.strides, shape)]
        own = c_strides(self.x_shape)
        to = broadcast_strides(self.x_shape, own, (*shape[:axis], self.x_shape[axis], *shape[axis + 1 :]))
        axes, strides = merge_axes(shape, (steps, [0 if a == axis else s for a, s in enumerate(to)]))
        return KeyedIndices(
            "indices", indices.element.number, KERNEL_MODES[self.mode], self.x_shape[axis], -1, math.prod(self.x_shape),
            own[axis], math.prod(shape), axes, (strides[0], strides[1]),
        )  # fmt: skip

    def strided(self) -> tuple[Strided, Strided, Strided]:
        return (
            Strided(self.x_shape, (self.layout("grad_x").strides,)),
            Strided(self.out_shape, (self.layout("grad").strides,)),
            Strided((), ((), ())),
        )


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
    grad: Any, index: Any, x: Any, axis: int = 0, *, mode: str = "raise", grad_x: Any = None
) -> Any:
    """The gradient of `index_select` with respect to x: the sums of grad's lines whose index names each line of x.

    grad: the gradient of the result (f16, bf16, f32, f64), any strides. index, axis, mode: those of the forward call, which
    raises for an index out of range or reports it in its status; here it adds nothing. x: its values are not read.
    Indices are sorted, and lines added in the order of their indices, in chunks: in f32 (f64 for f64), rounded once; the same
    bits at every call. grad_x: of x's shape, in C order; allocated if not given. Returns grad_x.
    """


@function_of(EmbeddingBackwardPlan)
def embedding_backward(
    grad: Any, ids: Any, weight: Any, *, padding_idx: int | None = None, mode: str = "raise", grad_weight: Any = None
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
