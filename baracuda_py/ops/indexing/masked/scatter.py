"""masked_scatter and its gradients: elements under a mask replaced by those of a source, in order."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ....plan.candidate import Feasibility
from ....plan.descriptor import Slot, described
from ....plan.plan import Plan
from ....plan.registry import Gradient, Op, register
from ....runtime.steps import Fill, Ptr, Scratch, Step
from ....tensor import Tensor
from ....types import DeviceSpec, ElementKind, InvalidProblemError, OpCategory
from ..._function import function_of
from ..._reported import REPORTED, STATUS, ReportedProblem, raises_on
from ..._rows import FLOATS
from .._indexed import BYTES
from . import oracle, samples
from ._problem import FILE, RANKING, MaskedCandidate, MaskedProblem, Tiling

__all__ = [
    "MaskedScatterBackwardDescriptor",
    "MaskedScatterBackwardPlan",
    "MaskedScatterDescriptor",
    "MaskedScatterPlan",
    "masked_scatter",
    "masked_scatter_backward",
]

BOOL = ElementKind.BOOL
STATUSES = {1: ("source has fewer elements than are under the mask", "pass a source of as many, or more")}


@described(
    Slot("out", "out", takes=BYTES, shape="common_shape", element="element"),
    STATUS,
    Slot("x", takes=BYTES, element="element"),
    Slot("mask", takes=(BOOL,)),
    Slot("source", takes=BYTES, element="element"),
    fields=("x_shape", "mask_shape", "source_shape", "element", "mask_element", "mode"),
)
class MaskedScatterDescriptor(ReportedProblem, MaskedProblem):
    """x of `x_shape` and mask of `mask_shape`, which broadcast to one shape, and a source of any shape. There is a `status` where
    `mode` is ``"status"``."""

    x_shape: tuple[int, ...]
    mask_shape: tuple[int, ...]
    source_shape: tuple[int, ...]
    element: ElementKind
    mask_element: ElementKind = BOOL

    name = "masked_scatter"

    def in_place(self, written: str, read: str) -> bool:
        """out may be x itself: a thread writes elements that it alone has read."""
        return (written, read) == ("out", "x")

    def refuse_values(self, tensors: Mapping[str, Tensor]) -> None:
        if self.mode != "raise":
            return
        mask = tensors["mask"]
        repeated = self.count // max(math.prod(mask.shape), 1)
        needed, have = int(np.count_nonzero(mask.array())) * repeated, math.prod(self.source_shape)
        if needed > have:
            raise InvalidProblemError(
                f"{self.op}: source has {have} elements, and {needed} are under the mask",
                'pass a source of as many, or mode="drop" or "status"',
            )


@described(
    Slot("grad_x", "out", takes=FLOATS, shape="grad_shape", element="element"),
    Slot("grad_source", "out", takes=FLOATS, shape="source_shape", element="element", strided=False),
    Slot("grad", takes=FLOATS, element="element"),
    Slot("mask", takes=(BOOL,)),
    Slot("source", takes=FLOATS, element="element"),
)
class MaskedScatterBackwardDescriptor(MaskedProblem):
    """The gradient of the result of `masked_scatter`, its mask, and the shape of its source."""

    grad_shape: tuple[int, ...]
    mask_shape: tuple[int, ...]
    source_shape: tuple[int, ...]
    element: ElementKind
    mask_element: ElementKind = BOOL

    name = "masked_scatter_backward"
    shaped = ("grad", "mask")

    def in_place(self, written: str, read: str) -> bool:
        """grad_x may be grad itself: a thread writes elements that it alone has read."""
        return (written, read) == ("grad_x", "grad")

    def check(self) -> None:
        super().check()
        if self.common_shape != self.grad_shape:
            raise InvalidProblemError(
                f"{self.op}: mask of shape {self.mask_shape} does not broadcast to grad's shape {self.grad_shape}",
                "pass the mask of the forward call, and the gradient of its result",
            )


class Scatter(MaskedCandidate):
    """Elements under the mask counted by tiles, the counts added up, then the result written from source and x."""

    variant = "tiles"
    launches = (*RANKING, f"{FILE}:unpack_tiles")

    def supports(self, desc: MaskedScatterDescriptor, device: DeviceSpec) -> Feasibility:
        return raises_on(desc, device) and super().supports(desc, device)

    def lower(self, desc: MaskedScatterDescriptor, device: DeviceSpec, config: Any) -> tuple[Step, ...]:
        cleared: tuple[Step, ...] = (Fill(Ptr("status"), 0, 4),) if desc.has_status else ()
        if not desc.count:
            return cleared
        tiling, x, source = Tiling(desc), desc.layout("x"), desc.layout("source")
        (of_mask, mask_dims), (rank, dims) = tiling.mask_dims(), tiling.dims(desc.layout("out"), x)
        of_source, source_dims = tiling.in_order(source)
        return (
            *cleared,
            *tiling.ranked(Scratch.named("found", 8)),
            tiling.launch(
                f"unpack_tiles<{tiling.index}, {rank}, {of_mask}, {of_source}, {x.natural}, true>",
                Ptr("out"), Ptr("status") if desc.has_status else np.uint64(0), tiling.begins, Ptr("mask"), Ptr("x"),
                Ptr("source"), np.int64(math.prod(source.shape)), tiling.number, mask_dims, dims, source_dims,
            ),
        )  # fmt: skip


class ScatterGradients(MaskedCandidate):
    """Elements under the mask counted by tiles, the counts added up, then the gradient sent to source or to x."""

    variant = "tiles"
    launches = (*RANKING, f"{FILE}:pack_tiles")

    def lower(self, desc: MaskedScatterBackwardDescriptor, device: DeviceSpec, config: Any) -> tuple[Step, ...]:
        size = math.prod(desc.source_shape)
        if not desc.count:
            return (Fill(Ptr("grad_source"), 0, desc.element.nbytes(size)),) if size else ()
        tiling, grad, found = Tiling(desc), desc.layout("grad"), Scratch.named("found", 8)
        (of_mask, mask_dims), (rank, dims) = tiling.mask_dims(), tiling.dims(grad, desc.layout("grad_x"))
        return (
            *tiling.ranked(found),
            tiling.launch(
                f"pack_tiles<{tiling.index}, {rank}, {of_mask}, {grad.natural}, true>",
                Ptr("grad_source"), Ptr("grad_x"), np.int64(size), tiling.begins, found, Ptr("mask"), Ptr("grad"),
                tiling.number, mask_dims, dims,
            ),
        )  # fmt: skip


class MaskedScatterPlan(Plan[MaskedScatterDescriptor]):
    """Elements under a mask replaced in order: operands `x`, `mask`, `source`, `out`, and with ``mode="status"`` `status`."""

    descriptor = MaskedScatterDescriptor
    category = OpCategory.INDEXING
    candidates = (Scatter(),)
    statuses = STATUSES
    probes = (
        {"x_shape": (5000,), "mask_shape": (5000,), "source_shape": (5000,), "element": "f32"},
        {"x_shape": (70, 130), "mask_shape": (130,), "source_shape": (9, 9), "element": "bf16", "mode": "status"},
    )
    reference = oracle.masked_scatter


class MaskedScatterBackwardPlan(Plan[MaskedScatterBackwardDescriptor]):
    """The gradients of `masked_scatter`: operands `grad`, `mask`, `source`, `grad_x` and `grad_source`."""

    descriptor = MaskedScatterBackwardDescriptor
    category = OpCategory.INDEXING
    candidates = (ScatterGradients(),)
    probes = (
        {"grad_shape": (5000,), "mask_shape": (5000,), "source_shape": (5000,), "element": "f32"},
        {"grad_shape": (70, 130), "mask_shape": (130,), "source_shape": (9, 9), "element": "bf16"},
    )
    reference = oracle.masked_scatter_backward


@function_of(MaskedScatterPlan, rules=REPORTED)
def masked_scatter(x: Any, mask: Any, source: Any, *, mode: str = "drop", status: Any = None) -> Any:
    """`x` with its elements under the `mask` replaced by those of `source`, in order, as torch.masked_scatter gives it.

    x, source: arrays of one byte-wide kind. mask: bool. x and mask broadcast to one shape, the result's, whose elements are
    counted in C order, as those of source are; any shapes and strides. Bytes are moved. out may be x itself.
    mode: what becomes of elements under the mask for which source has none. ``"drop"``: they stay as in x. ``"status"``: the
    same, and `status`, a device int32 scalar (allocated if not given), is 1 where there was one, else 0; `check` raises from it.
    ``"raise"``: InvalidProblemError, before anything is written; on ``device="cpu"`` and ``"ptx"`` alone, because a call does
    not wait for a GPU.
    Returns (out, status) with ``mode="status"``, else out alone; allocated in C order if not given. Raises InvalidProblemError
    for shapes that do not broadcast.
    """


@function_of(MaskedScatterBackwardPlan)
def masked_scatter_backward(grad: Any, mask: Any, source: Any, *, grad_x: Any = None, grad_source: Any = None) -> Any:
    """The gradients of `masked_scatter`: grad_source has grad's elements of where source's went, and grad_x is grad with 0 there.

    grad: the gradient of the result (f16, bf16, f32, f64), any strides. mask: that of the forward call. source: its values are
    not read; the gradient of an element of it that has no place is 0. Elements are moved, none is computed.
    grad_x: like grad, to be summed over the axes that x was broadcast along; it may be grad itself. grad_source: of source's
    shape, in C order. Both are allocated in C order if not given. Returns (grad_x, grad_source).
    """


register(
    Op("masked_scatter", MaskedScatterPlan, masked_scatter, samples.masked_scatter,
       gradient=Gradient("masked_scatter_backward", ("mask", "source"), {"x": "grad_x", "source": "grad_source"},
                         broadcast=True, shapes=("source",)),
       peers={"torch": "masked_scatter"})
)  # fmt: skip
register(
    Op("masked_scatter_backward", MaskedScatterBackwardPlan, masked_scatter_backward, samples.masked_scatter_backward)
)
