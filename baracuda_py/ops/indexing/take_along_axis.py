"""take_along_axis: elements picked along one axis by an array of indices."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ...plan.candidate import OK, Candidate, Change, Cost, Feasibility, no
from ...plan.descriptor import Descriptor, Slot, described
from ...plan.plan import Plan
from ...plan.registry import Gradient, Op, register
from ...runtime.steps import Fill, Kernel, Launch, Ptr, Step
from ...tensor import Tensor
from ...tensor.axes import broadcast_shapes, broadcast_strides, collapse
from ...types import DeviceSpec, ElementKind, InvalidProblemError, OpCategory
from .._fitted import Fitted
from .._function import SignatureRules, function_of
from .._launch import THREADS, grid_of, index_scalar, index_type, pack_dims
from . import oracle, samples

__all__ = [
    "FIELDS",
    "KERNEL_MODES",
    "AlongAxisProblem",
    "TakeAlongAxisDescriptor",
    "TakeAlongAxisPlan",
    "take_along_axis",
]

BYTES = tuple(kind for kind in ElementKind if not kind.packed)
MODES = ("status", "clip", "wrap", "raise")  # in the order of kernels/indexing/take.cu, which has no "raise"
KERNEL_MODES = {mode: i % 3 for i, mode in enumerate(MODES)}  # indices of "raise" have been looked at before
UNROLL = 4
FIELDS = ("x_shape", "indices_shape", "element", "indices_element", "axis", "mode")


class Costs(Fitted, table="rows.take_along_axis"):
    bandwidth_efficiency: float


class AlongAxisProblem(Descriptor):
    """x of `x_shape`, and indices along `axis` whose other axes broadcast against x's."""

    x_shape: tuple[int, ...]
    indices_shape: tuple[int, ...]
    element: ElementKind
    indices_element: ElementKind = ElementKind.I64
    axis: int = -1
    mode: str = "status"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._member(MODES, "mode")

    @property
    def out_shape(self) -> tuple[int, ...]:
        """The indices' shape, broadcast against x but for the axis."""
        rank = len(self.x_shape)
        if len(self.indices_shape) != rank:
            raise InvalidProblemError(
                f"{self.op}: indices has shape {self.indices_shape} and x {self.x_shape}",
                f"pass indices of rank {rank}",
            )
        if not -rank <= self.axis < rank:
            known = f"give one of {-rank} to {rank - 1}" if rank else "give x an axis"
            raise InvalidProblemError(f"{self.op}: axis={self.axis}, and x has {rank} axes", known)
        axis = self.axis % rank
        others = (*self.x_shape[:axis], 1, *self.x_shape[axis + 1 :])
        try:
            return broadcast_shapes(others, self.indices_shape)
        except ValueError:
            raise InvalidProblemError(
                f"{self.op}: indices of shape {self.indices_shape} do not broadcast against x of {self.x_shape}",
                f"give every axis but {axis} x's extent, or 1",
            ) from None

    def neutral(self) -> dict[str, Any]:
        return {"axis": self.axis % len(self.x_shape)}

    def check(self) -> None:
        if 0 not in self.out_shape and not self.x_shape[self.axis] and self.mode != "status":
            raise InvalidProblemError(
                f"{self.op}: x of shape {self.x_shape} has nothing along axis {self.axis} to take",
                'pass no indices, or mode="status", which gives zeros and says so in status',
            )

    def refuse_values(self, tensors: Mapping[str, Tensor]) -> None:
        if self.mode != "raise" or 0 in self.out_shape:
            return
        extent, indices = self.x_shape[self.axis], tensors["indices"].array()
        wrong = (indices < -extent) | (indices >= extent)
        if wrong.any():
            place = tuple(map(int, np.argwhere(wrong)[0]))
            raise InvalidProblemError(
                f"{self.op}: indices[{', '.join(map(str, place))}] = {int(indices[place])} is out of range: x has {extent} "
                f"elements along axis {self.axis}",
                f'give -{extent} to {extent - 1}, or mode="clip", "wrap" or "status"',
            )


@described(
    Slot("out", "out", takes=BYTES, shape="out_shape", element="element"),
    Slot("x", takes=BYTES, element="element"),
    Slot("indices", takes=(ElementKind.I32, ElementKind.I64), element="indices_element"),
    Slot("status", "out", element=ElementKind.I32, shape="status_shape", strided=False, aligned=False),
    fields=FIELDS,
)
class TakeAlongAxisDescriptor(AlongAxisProblem):
    """The problem of the elements themselves. There is a `status` where `mode` is ``"status"``."""

    name = "take_along_axis"

    def has(self, name: str) -> bool:
        return name != "status" or self.mode == "status"

    @property
    def status_shape(self) -> tuple[int, ...]:
        return ()


class Gather(Candidate[TakeAlongAxisDescriptor]):
    """One launch: an element a thread and turn, in the result's order."""

    variant = "gather"
    launches = ("indexing/take.cu:take_along",)

    def supports(self, desc: TakeAlongAxisDescriptor, device: DeviceSpec) -> Feasibility:
        if desc.mode == "raise" and not device.host_memory:
            reason = "a call does not wait for the GPU, and raises nothing of what it finds there"
            return no(reason, change=Change({"mode": "status"}))
        return OK

    def cost(self, desc: TakeAlongAxisDescriptor, device: DeviceSpec, config: Any) -> Cost:
        indices = desc.indices_element.nbytes(math.prod(desc.indices_shape))
        moved = indices + 2 * desc.element.nbytes(math.prod(desc.out_shape))
        return Cost.streaming(device, moved, efficiency=Costs.of(device).bandwidth_efficiency)

    def lower(self, desc: TakeAlongAxisDescriptor, device: DeviceSpec, config: Any) -> tuple[Step, ...]:
        clear = (Fill(Ptr("status"), 0, 4),) if desc.has("status") else ()
        return clear if 0 in desc.out_shape else (*clear, _gather(desc))


def _gather(desc: TakeAlongAxisDescriptor) -> Launch:
    size, shape, axis = desc.element.bits // 8, desc.out_shape, desc.axis
    out, x, indices = (desc.layout(name) for name in ("out", "x", "indices"))
    picked = broadcast_strides(x.shape, x.strides, (*shape[:axis], x.shape[axis], *shape[axis + 1 :]))
    walks = (
        [s * size for s in out.strides],
        [s * indices.natural for s in broadcast_strides(indices.shape, indices.strides, shape)],
        [0 if a == axis else s * size for a, s in enumerate(picked)],
    )
    extents, strides = collapse(shape, walks)
    count = math.prod(shape)
    index = index_type(count)
    args = (
        Ptr("out"), Ptr("x"), Ptr("indices"), Ptr("status") if desc.has("status") else np.uint64(0),
        np.int64(x.shape[axis]), np.int64(x.strides[axis] * size), index_scalar(count, index),
        pack_dims(extents, strides, index),
    )  # fmt: skip
    taken = f"{len(extents)}, {size}, {KERNEL_MODES[desc.mode]}, {UNROLL}"
    kernel = Kernel("indexing/take.cu", f"take_along<{index}, {desc.indices_element.number}, {taken}>")
    return Launch(kernel, grid_of(count, THREADS * UNROLL), (THREADS, 1, 1), args)


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


@function_of(TakeAlongAxisPlan, rules=SignatureRules(wanted={"status": ("mode", "status")}))
def take_along_axis(x: Any, indices: Any, axis: int = -1, *, mode: str = "status", status: Any = None) -> Any:
    """Elements of `x` by `indices` along `axis`: with ``mode="status"`` (out, status), else out alone.

    x: any array of a byte-wide kind. indices: int32 or int64 of x's rank; its axes but `axis` broadcast against x's, which
    gives the shape of out. Negative indices count from the end.
    mode: what becomes of an index out of range, which is never read. ``"status"``: zero bytes in its place, and `status`, a
    device int32 scalar (allocated if not given), is 1 where there was one, else 0. ``"clip"``: the nearest index, 0 for negative
    ones. ``"wrap"``: modulo the extent. ``"raise"``: InvalidProblemError, before anything is written; on ``device="cpu"`` and
    ``"ptx"`` alone, because a call does not wait for a GPU.
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
