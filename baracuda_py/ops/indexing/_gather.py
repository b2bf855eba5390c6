"""Elements and lines picked by index in one launch (kernels/indexing/take.cu)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from ...plan.candidate import Candidate, Cost, Feasibility
from ...runtime.steps import Fill, Kernel, Launch, Ptr, Scratch, Step
from ...types import DeviceSpec
from .._fitted import Fitted
from .._launch import THREADS, grid_of, index_scalar, index_type, pack_dims
from ._indexed import UNNAMED, IndexedProblem, raises_on

__all__ = ["Costs", "Gather", "GatherAxes", "PickProblem"]

UNROLL = 4


class Costs(Fitted, table="rows.take_along_axis"):
    bandwidth_efficiency: float


class GatherAxes(NamedTuple):
    """The axes of a result in words of so many bytes, with strides in bytes of out, of the indices and of the lines."""

    extents: Sequence[int]
    strides: tuple[Sequence[int], Sequence[int], Sequence[int]]
    word: int


class PickProblem(IndexedProblem):
    """A problem whose `result` holds what the indices name."""

    result: ClassVar[str] = "out"

    @property
    def out_shape(self) -> tuple[int, ...]:
        return self.picked_shape

    def gather_axes(self) -> GatherAxes:
        """The axes of the result."""
        raise NotImplementedError


class Gather(Candidate[PickProblem]):
    """One launch: an element or a word of up to 16 bytes per thread and turn, in the result's order."""

    variant = "gather"
    launches = ("indexing/take.cu:take_along",)

    def supports(self, desc: PickProblem, device: DeviceSpec) -> Feasibility:
        return raises_on(desc, device)

    def cost(self, desc: PickProblem, device: DeviceSpec, config: Any) -> Cost:
        out, index = desc.layout(desc.result), desc.layout(desc.index)
        moved = index.element.nbytes(desc.count) + 2 * out.element.nbytes(math.prod(out.shape))
        return Cost.streaming(device, moved, efficiency=Costs.of(device).bandwidth_efficiency)

    def lower(self, desc: PickProblem, device: DeviceSpec, config: Any) -> tuple[Step, ...]:
        clear = (Fill(Ptr("status"), 0, 4),) if desc.has_status else ()
        return clear if 0 in desc.picked_shape else (*clear, _launch(desc))


def _launch(desc: PickProblem) -> Launch:
    lines, index, (extents, strides, word) = desc.layout(desc.lines), desc.layout(desc.index), desc.gather_axes()
    step = lines.strides[desc.along] * lines.natural
    count = math.prod(extents)
    counted = index_type(count)
    unread = Scratch.named("status", 4) if desc.mode in UNNAMED else np.uint64(0)
    status = Ptr("status") if desc.has_status else unread
    args = (
        Ptr(desc.result), Ptr(desc.lines), Ptr(desc.index), status,
        np.int64(desc.extent), np.int64(step), index_scalar(count, counted), pack_dims(extents, strides, counted),
    )  # fmt: skip
    taken = f"{len(extents)}, {word}, {desc.kernel_mode}, {UNROLL}"
    kernel = Kernel("indexing/take.cu", f"take_along<{counted}, {index.element.number}, {taken}>")
    return Launch(kernel, grid_of(count, THREADS * UNROLL), (THREADS, 1, 1), args)
