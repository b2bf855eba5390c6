"""segment_offsets: the first row of each segment, of sorted ids of segments."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...plan.candidate import OK, Candidate, Cost, Feasibility, no
from ...plan.descriptor import Descriptor, Slot, described
from ...plan.plan import Plan
from ...plan.registry import Op, register
from ...runtime.steps import Arg, Kernel, Launch, Ptr, Step
from ...types import DeviceSpec, ElementKind, InvalidProblemError
from .._function import function_of
from . import oracle, samples
from ._launches import MOST, THREADS, grid
from ._problem import INDICES

__all__ = ["SegmentOffsetsDescriptor", "SegmentOffsetsPlan", "first_rows", "segment_offsets"]

STEP_INSTRUCTIONS = 8  # of a halving, estimated from the source


@described(
    Slot("out", "out", takes=INDICES, shape="out_shape", element="element", strided=False),
    Slot("ids", takes=INDICES, shape="ids_shape", element="element", strided=False),
)
class SegmentOffsetsDescriptor(Descriptor):
    """Sorted ids of segments, one per row."""

    ids_shape: tuple[int, ...]
    segments: int
    element: ElementKind = ElementKind.I64
    name = "segment_offsets"

    @property
    def out_shape(self) -> tuple[int, ...]:
        return (self.segments + 1,)

    def check(self) -> None:
        if len(self.ids_shape) != 1:
            raise InvalidProblemError(
                f"{self.op}: ids must have shape [rows], got {self.ids_shape}", "pass the id of each row's segment"
            )
        if self.segments < 0:
            raise InvalidProblemError(f"{self.op}: segments={self.segments}", "give the number of segments, 0 or more")


class Bisected(Candidate[SegmentOffsetsDescriptor]):
    """One launch: a thread per offset, which bisects the ids."""

    variant = "bisected"
    launches = ("segment/offsets.cu:first_rows",)

    def supports(self, desc: SegmentOffsetsDescriptor, device: DeviceSpec) -> Feasibility:
        if max(desc.ids_shape[0], desc.segments) > MOST:
            return no("ids or segments exceed 31 bits", "make several calls")
        return OK

    def cost(self, desc: SegmentOffsetsDescriptor, device: DeviceSpec, config: Any) -> Cost:
        steps = desc.ids_shape[0].bit_length() * (desc.segments + 1)
        return Cost.streaming(device, desc.nbytes, instructions=steps * STEP_INSTRUCTIONS)

    def lower(self, desc: SegmentOffsetsDescriptor, device: DeviceSpec, config: Any) -> tuple[Step, ...]:
        number = desc.element.number
        return (first_rows(Ptr("out"), number, Ptr("ids"), number, desc.ids_shape[0], desc.segments),)


def first_rows(offsets: Arg, number: str, ids: Arg, id_number: str, count: int, segments: int) -> Launch:
    """The launch that writes offsets, `segments` + 1 of the C++ type `number`."""
    kernel = Kernel("segment/offsets.cu", f"first_rows<{number}, {id_number}>")
    args = offsets, ids, np.uint32(count), np.uint32(segments)
    return Launch(kernel, grid(1, segments + 1, THREADS, 1), (THREADS, 1, 1), args)


class SegmentOffsetsPlan(Plan[SegmentOffsetsDescriptor]):
    """The offsets of segments: operands `ids` and `out`."""

    descriptor = SegmentOffsetsDescriptor
    candidates = (Bisected(),)
    reference = oracle.offsets
    probes = tuple({"ids_shape": (300,), "segments": 9, "element": element} for element in ("i32", "i64"))


@function_of(SegmentOffsetsPlan)
def segment_offsets(ids: Any, segments: int) -> Any:
    """The first row of each segment, of rows that are sorted by the id of their segment: out[s] = how many ids are below s.

    ``segment_sum(x, segment_offsets(ids, n))`` is jax.ops.segment_sum(x, ids, n, indices_are_sorted=True), and so of the other
    reductions; rows of unsorted ids are summed by `index_add`, and reduced in other ways by `scatter`.
    ids: int32 or int64 [rows], in C order, which do not decrease. This is not checked: of ids in another order, each offset is
    one of 0 to rows, and a reduction refuses those that decrease. Rows whose id is negative or not below `segments` belong to no
    segment.
    out: [segments + 1] of ids' dtype; allocated if not given. Returns out.
    """


register(Op("segment_offsets", SegmentOffsetsPlan, segment_offsets, samples.offsets))
