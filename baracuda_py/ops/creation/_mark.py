"""mark: rows of a constant with another one at one column (kernels/creation/mark.cu)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from ...plan.candidate import Candidate, Cost
from ...runtime.steps import Kernel, Launch, Packed, Ptr, Step
from ...types import DeviceSpec
from .._launch import THREADS, divisor, grid_of, index_scalar, index_type

__all__ = ["CHUNK", "UNROLL", "Mark"]

CHUNK, UNROLL = 16, 2
CHUNK_INSTRUCTIONS, ELEMENT_INSTRUCTIONS = 24, 6  # estimated from the source, not counted


class Mark(Candidate[Any]):
    """One launch: a thread has chunks of 16 bytes, or elements where the result is not aligned to that."""

    variant = "mark"
    launches = ("creation/mark.cu:mark_columns",)

    def configs(self, desc: Any, device: DeviceSpec) -> Iterable[int]:
        width = desc.element.bits // 8
        return (CHUNK, width) if desc.layout(desc.written).align >= CHUNK and width < CHUNK else (width,)

    def cost(self, desc: Any, device: DeviceSpec, config: int) -> Cost:
        count, per = math.prod(desc.layout(desc.written).shape), config * 8 // desc.element.bits
        instructions = count / per * (CHUNK_INSTRUCTIONS + per * ELEMENT_INSTRUCTIONS)
        return Cost.streaming(device, desc.nbytes, instructions=instructions)

    def lower(self, desc: Any, device: DeviceSpec, config: int) -> tuple[Step, ...]:
        width, count = desc.element.bits // 8, math.prod(desc.layout(desc.written).shape)
        index = index_type(count)
        read = desc.slot_of.get("indices") is not None
        mark = desc.layout("indices").element.number if read else "void"
        zero, one = (Packed(each * (CHUNK // width), CHUNK) for each in desc.elements)
        args = (
            Ptr(desc.written), index_scalar(count, index), divisor(desc.columns, index), Ptr("indices") if read else np.uint64(0),
            np.int64(desc.diagonal), zero, one,
        )  # fmt: skip
        entry = f"mark_columns<{index}, {mark}, {width}, {config}, {UNROLL}>"
        grid = grid_of(count, THREADS * UNROLL * (config // width))
        return (Launch(Kernel("creation/mark.cu", entry), grid, (THREADS, 1, 1), args),)
