"""Elements and lines picked by index in one launch (kernels/indexing/take.cu)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from ...plan.candidate import Candidate, Cost, Feasibility
from ...plan.slot import Layout
from ...runtime.steps import Arg, Fill, Kernel, Launch, Ptr, Scratch, Step
from ...tensor.axes import c_strides
from ...types import DeviceSpec, ElementKind
from .._launch import THREADS, grid_of, index_scalar, index_type, pack_dims, words_of
from .._reported import raises_on
from ._indexed import FROM_THE_END, STRICT, IndexedProblem
from .costs import LineCosts

__all__ = ["Gather", "GatherAxes", "PickProblem", "PickedBy", "gather"]

UNROLL = 4
WRITES_STATUS = (FROM_THE_END, STRICT)  # modes of the kernel in which an index may be out of range


class GatherAxes(NamedTuple):
    """The axes of a result in words of so many bytes, with strides in bytes of out, of the indices and of the lines."""

    extents: Sequence[int]
    strides: tuple[Sequence[int], Sequence[int], Sequence[int]]
    word: int

    @staticmethod
    def of(
        out: Layout, lines: Layout, step: int, lines_strides: Sequence[int], index_strides: Sequence[int]
    ) -> GatherAxes:
        """Those of `out`. Along its axes lines have strides in elements, 0 where an index says the place, and indices in bytes;
        `step`, in bytes, is from one place to the next."""
        walks = [[s * out.natural for s in strides] for strides in (out.strides, lines_strides)]
        extents, (of_out, of_lines, of_index), word = words_of(
            out.shape, walks, out.natural, min(out.align, lines.align), (step,), (index_strides,)
        )
        return GatherAxes(extents, (of_out, of_index, of_lines), word)


class PickProblem(IndexedProblem):
    """A problem whose `result` holds what the indices name."""

    result: ClassVar[str] = "out"
    reports_all: ClassVar[bool] = False  # whether an index is reported whose line has no element

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
        return Cost.streaming(device, moved, efficiency=LineCosts.of(device).bandwidth_efficiency)

    def lower(self, desc: PickProblem, device: DeviceSpec, config: Any) -> tuple[Step, ...]:
        clear = (Fill(Ptr("status"), 0, 4),) if desc.has_status else ()
        if 0 not in desc.picked_shape:
            return (*clear, _launch(desc))
        return (*clear, _report(desc)) if clear and desc.count and desc.reports_all else clear


def _launch(desc: PickProblem) -> Launch:
    lines, index = desc.layout(desc.lines), desc.layout(desc.index)
    status = Ptr("status") if desc.has_status else None
    picked = PickedBy(Ptr(desc.index), index.element.number, desc.kernel_mode, desc.extent, status)
    step = lines.strides[desc.along] * lines.natural
    return gather(Ptr(desc.result), Ptr(desc.lines), picked, step, desc.gather_axes())


def _report(desc: PickProblem) -> Launch:
    """The launch that reports indices of lines without elements: each picks a byte of the indices, which is not used."""
    index, count = desc.layout(desc.index), desc.count
    element = Layout(index.shape, c_strides(index.shape), ElementKind.U8, 1)
    picked = PickedBy(Ptr(desc.index), index.element.number, desc.kernel_mode, desc.extent, Ptr("status"))
    axes = GatherAxes.of(element, element, 0, [0] * len(index.shape), [s * index.natural for s in index.strides])
    return gather(Scratch.named("unused", count), Ptr(desc.index), picked, 0, axes)


class PickedBy(NamedTuple):
    """The indices of a launch: their C++ type, the number of the mode and the places along the axis, and what reports those
    that are out of range."""

    indices: Arg
    number: str
    mode: int
    extent: int
    status: Arg | None = None


def gather(out: Arg, lines: Arg, by: PickedBy, step: int, axes: GatherAxes) -> Launch:
    """The launch that picks elements or words of `lines`."""
    count = math.prod(axes.extents)
    counted = index_type(count)
    unread = Scratch.named("status", 4) if by.mode in WRITES_STATUS else np.uint64(0)
    args = (
        out, lines, by.indices, by.status or unread,
        np.int64(by.extent), np.int64(step), index_scalar(count, counted), pack_dims(axes.extents, axes.strides, counted),
    )  # fmt: skip
    taken = f"{len(axes.extents)}, {axes.word}, {by.mode}, {UNROLL}"
    kernel = Kernel("indexing/take.cu", f"take_along<{counted}, {by.number}, {taken}>")
    return Launch(kernel, grid_of(count, THREADS * UNROLL), (THREADS, 1, 1), args)
