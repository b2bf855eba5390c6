"""take_along_axis: elements picked along one axis by an array of indices."""

from __future__ import annotations

from typing import Any

from ...plan.descriptor import Slot, described
from ...plan.plan import Plan
from ...plan.registry import Gradient, Op, register
from ...tensor.axes import broadcast_shapes, broadcast_strides, collapse
from ...types import InvalidProblemError, OpCategory
from .._function import function_of
from .._reported import REPORTED, STATUS
from . import oracle, samples
from ._gather import Gather, GatherAxes, PickProblem
from ._indexed import BYTES, INDICES
from ._lines import ElementsByIndex

__all__ = ["AlongAxisProblem", "TakeAlongAxisDescriptor", "TakeAlongAxisPlan", "take_along_axis"]


class AlongAxisProblem(ElementsByIndex):
    """x and indices along `axis`, whose other axes broadcast against x's."""

    from_the_end = True
    mode: str = "status"

    @property
    def picked_shape(self) -> tuple[int, ...]:
        """The indices' shape, broadcast against x but for the axis."""
        axis, indices = self.along, super().picked_shape
        try:
            return broadcast_shapes((*self.x_shape[:axis], 1, *self.x_shape[axis + 1 :]), indices)
        except ValueError:
            raise InvalidProblemError(
                f"{self.op}: indices of shape {indices} do not broadcast against x of {self.x_shape}",
                f"give every axis but {axis} x's extent, or 1",
            ) from None


@described(
    Slot("out", "out", takes=BYTES, shape="out_shape", element="element"),
    Slot("x", takes=BYTES, element="element"),
    Slot("indices", takes=INDICES, element="indices_element"),
    STATUS,
    fields=AlongAxisProblem.FIELDS,
)
class TakeAlongAxisDescriptor(AlongAxisProblem, PickProblem):
    """The problem of the elements themselves. There is a `status` where `mode` is ``"status"``."""

    name = "take_along_axis"

    def gather_axes(self) -> GatherAxes:
        shape, axis = self.picked_shape, self.along
        out, x, indices = (self.layout(name) for name in ("out", "x", "indices"))
        size = out.natural
        picked = broadcast_strides(x.shape, x.strides, (*shape[:axis], x.shape[axis], *shape[axis + 1 :]))
        walks = (
            [s * size for s in out.strides],
            [s * indices.natural for s in broadcast_strides(indices.shape, indices.strides, shape)],
            [0 if a == axis else s * size for a, s in enumerate(picked)],
        )
        extents, (of_out, of_indices, of_x) = collapse(shape, walks)
        return GatherAxes(extents, (of_out, of_indices, of_x), size)


class TakeAlongAxisPlan(Plan[TakeAlongAxisDescriptor]):
    """Elements by index along an axis: operands `x`, `indices`, `out`, and with ``mode="status"`` `status`."""

    descriptor = TakeAlongAxisDescriptor
    statuses = {1: ("an index is out of range, its result 0", 'give -n to n - 1, or mode="clip" or "wrap"')}
    category = OpCategory.INDEXING
    candidates = (Gather(),)
    probes = (
        {"x_shape": (5, 33), "indices_shape": (5, 7), "element": "f32"},
        {"x_shape": (5, 1, 9), "indices_shape": (1, 6, 4), "element": "bf16", "indices_element": "i32", "mode": "clip"},
        {"x_shape": (8, 4), "indices_shape": (3, 4), "element": "complex128", "axis": 0, "mode": "wrap"},
    )
    reference = oracle.take_along_axis


@function_of(TakeAlongAxisPlan, rules=REPORTED)
def take_along_axis(x: Any, indices: Any, axis: int = -1, *, mode: str = "status", status: Any = None) -> Any:
    """Elements of `x` by `indices` along `axis`: with ``mode="status"`` (out, status), else out alone.

    x: any array of a byte-wide kind. indices: int32 or int64 of x's rank; its axes but `axis` broadcast against x's, which
    gives the shape of out. Negative indices count from the end.
    mode: what becomes of an index out of range, which is never read. ``"status"``: zero bytes in its place, and `status`, a
    device int32 scalar (allocated if not given), is 1 where there was one, else 0. ``"drop"``: zero bytes alone. ``"clip"``: the
    nearest index, 0 for negative ones. ``"wrap"``: modulo the extent. ``"raise"``: InvalidProblemError, before anything is
    written; on ``device="cpu"`` and ``"ptx"`` alone, because a call does not wait for a GPU.
    """


register(
    Op(
        "take_along_axis",
        TakeAlongAxisPlan,
        take_along_axis,
        samples.take_along_axis,
        gradient=Gradient("take_along_axis_backward", ("indices", "x"), {"x": "grad_x"}, shapes=("x",)),
        peers={"cupy": "take_along_axis", "torch": "gather"},
    )
)
