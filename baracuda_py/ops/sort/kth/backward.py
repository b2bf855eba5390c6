"""The gradient of elements that were taken one per row: it goes where they were."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ....plan.candidate import Candidate, Cost, exact_results
from ....plan.descriptor import Slot, described
from ....plan.plan import Plan
from ....plan.registry import Op, register
from ....runtime.steps import Fill, Kernel, Launch, Ptr, Step
from ....tensor.axes import merge_axes
from ....types import DeviceSpec, ElementKind, OpCategory, PrecisionGuarantee
from ..._function import function_of
from ..._launch import THREADS, grid_of, index_scalar, index_type, pack_dims
from ..._rows import FLOATS
from . import oracle, samples
from ._problem import FIELDS, RankProblem

__all__ = ["KthvalueBackwardDescriptor", "KthvalueBackwardPlan", "kthvalue_backward"]


@described(
    Slot("grad_x", "out", takes=FLOATS, shape="shape", element="element", strided=False),
    Slot("grad", takes=FLOATS, shape="out_shape", element="element"),
    Slot("indices", element=ElementKind.I64, shape="out_shape"),
    Slot("x", takes=FLOATS),
    fields=FIELDS,
)
class KthvalueBackwardDescriptor(RankProblem):
    """The gradient of the values of `kthvalue` or `median`, the indices of its call, and the shape of its x."""

    name = "kthvalue_backward"

    @property
    def nbytes(self) -> int:
        rows = math.prod(self.out_shape)
        return self.element.nbytes(math.prod(self.shape) + 2 * rows) + 8 * rows


class PlaceGradients(Candidate[KthvalueBackwardDescriptor]):
    """Zeros, then one element per row to its place."""

    variant = "place"
    launches = ("sort/kth.cu:place_gradients",)

    def guarantee(self, desc: KthvalueBackwardDescriptor, device: DeviceSpec, config: Any) -> PrecisionGuarantee:
        return exact_results(desc)

    def cost(self, desc: KthvalueBackwardDescriptor, device: DeviceSpec, config: Any) -> Cost:
        one = Cost.streaming(device, desc.nbytes)
        return Cost(one.bytes, 0, one.seconds + device.overhead, one.limit)

    def lower(self, desc: KthvalueBackwardDescriptor, device: DeviceSpec, config: Any) -> tuple[Step, ...]:
        axis, count = desc.axis, math.prod(desc.out_shape)
        clear = Fill(Ptr("grad_x"), 0, desc.element.nbytes(math.prod(desc.shape)))
        if not count:
            return (clear,)
        to = desc.layout("grad_x")
        walks = [
            [s * desc.layout(name).natural for s in strides]
            for name, strides in (
                ("grad_x", to.strides), ("grad", desc.spread("grad")), ("indices", desc.spread("indices")),
            )
        ]  # fmt: skip
        outer = (*desc.shape[:axis], *desc.shape[axis + 1 :])
        extents, strides = merge_axes(outer, [(*w[:axis], *w[axis + 1 :]) for w in walks])
        index = index_type(count)
        args = (
            Ptr("grad_x"), Ptr("grad"), Ptr("indices"), index_scalar(count, index), np.int64(desc.extent),
            np.int64(walks[0][axis]), pack_dims(extents, strides, index),
        )  # fmt: skip
        kernel = Kernel("sort/kth.cu", f"place_gradients<{to.natural}, {index}, {len(extents)}>")
        return clear, Launch(kernel, grid_of(count, THREADS), (THREADS, 1, 1), args)


class KthvalueBackwardPlan(Plan[KthvalueBackwardDescriptor]):
    """The gradient of one element per row: operands `grad`, `indices`, `x` and `grad_x`."""

    descriptor = KthvalueBackwardDescriptor
    category = OpCategory.SORT
    candidates = (PlaceGradients(),)
    probes = (
        {"shape": (5, 64), "element": "bf16"},
        {"shape": (5, 9, 7), "element": "f32", "axis": 1, "keepdims": True},
        {"shape": (64, 3), "element": "f64", "axis": 0},
    )
    reference = oracle.kthvalue_backward


@function_of(KthvalueBackwardPlan)
def kthvalue_backward(
    grad: Any, indices: Any, x: Any, axis: int = -1, *, keepdims: bool = False, grad_x: Any = None
) -> Any:
    """The gradient of `kthvalue` or `median` with respect to x: grad where the row's element was taken, 0 elsewhere.

    grad: the gradient of the values (f16, bf16, f32, f64), any strides. indices: int64, those of the forward call; a row whose
    index is not one of 0 to n - 1 has the gradient 0. x: its values are not read. axis, keepdims: those of the forward call.
    grad_x: of x's shape, in C order; allocated if not given. Elements are moved. Returns grad_x.
    """


register(Op("kthvalue_backward", KthvalueBackwardPlan, kthvalue_backward, samples.kthvalue_backward))
