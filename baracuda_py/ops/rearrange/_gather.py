"""gather: every element from its place in the source, by one rule per axis (kernels/rearrange/gather.cu)."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from ...plan.candidate import OK, Candidate, Cost, Feasibility, no
from ...runtime.steps import Kernel, Launch, Packed, Ptr, Step
from ...tensor.axes import span
from ...types import DeviceSpec
from .._launch import THREADS, grid_of, index_scalar, index_type
from ._axes import Axis, count_of, merged, pack_rules
from ._problem import EVERYWHERE, Rearranged

__all__ = ["Gather"]

CHUNK = 16
UNROLL = 2
# Thread instructions, estimated from the source: of a chunk, for each axis beyond the last, and of an element that goes alone.
CHUNK_INSTRUCTIONS, AXIS_INSTRUCTIONS, ELEMENT_INSTRUCTIONS = 60, 16, 45


class Gather(Candidate[Rearranged]):
    """One launch: a thread has chunks of 16 bytes of the result, or elements where the result is not aligned to that."""

    variant = "gather"
    launches = ("rearrange/gather.cu:gather_axes",)

    def supports(self, desc: Rearranged, device: DeviceSpec) -> Feasibility:
        return no("every element has one source, and this result is of sums", 'mode="constant"') if desc.sums else OK

    def configs(self, desc: Rearranged, device: DeviceSpec) -> Iterable[int]:
        width = desc.element.bits // 8
        return (CHUNK, width) if desc.layout("out").align >= CHUNK and width < CHUNK else (width,)

    def cost(self, desc: Rearranged, device: DeviceSpec, config: int) -> Cost:
        width, axes = desc.element.bits // 8, _merged(desc)
        count, inner = count_of(axes), axes[-1]
        per = config // width
        one = ELEMENT_INSTRUCTIONS + AXIS_INSTRUCTIONS * (len(axes) - 1)
        # Chunks in which a row ends, or the order changes, go element by element; all of them where x's rows have gaps.
        ends = 2.0 * per / max(inner.extent, 1)
        alone = 1.0 if inner.stride != 1 or inner.repeat > 1 else min(1.0, ends) if per > 1 else 0.0
        each = CHUNK_INSTRUCTIONS + AXIS_INSTRUCTIONS * (len(axes) - 1) + alone * per * one
        moved = desc.element.nbytes(math.prod(desc.out_shape) + min(math.prod(desc.shape), math.prod(desc.out_shape)))
        return Cost.streaming(device, moved, instructions=count / per * each)

    def lower(self, desc: Rearranged, device: DeviceSpec, config: int) -> tuple[Step, ...]:
        width, x = desc.element.bits // 8, desc.layout("x")
        axes, copies = _split(_merged(desc), config // width)
        count = count_of(axes)
        index = index_type(max(count, *(axis.end for axis in axes)))
        begin, end = span(x.shape, x.strides, desc.element)
        if end - begin != desc.element.nbytes(math.prod(x.shape)):
            begin = end = 0  # words between x's rows are not x's
        limits = np.array([*desc.band, begin, end], np.int64).tobytes()
        args = (
            Ptr("out"), Ptr("x"), index_scalar(count, index), Packed(limits, 8), Packed(desc.constant * (CHUNK // width), CHUNK),
            index_scalar(copies, index), np.int64(count * width), pack_rules(axes, width, index),
        )  # fmt: skip
        entry = f"gather_axes<{index}, {len(axes)}, {width}, {config}, {UNROLL}>"
        grid = grid_of(count, THREADS * UNROLL * (config // width))
        return (Launch(Kernel("rearrange/gather.cu", entry), grid, (THREADS, 1, 1), args),)


def _merged(desc: Rearranged) -> tuple[Axis, ...]:
    return merged(desc.axes(), matrix=desc.band != EVERYWHERE)


def _split(axes: tuple[Axis, ...], per: int) -> tuple[tuple[Axis, ...], int]:
    """Tiles along the first axis as copies of one: each chunk is read once. Chunks of `per` elements must not span two."""
    first, rest = axes[0], axes[1:]
    one = Axis(first.period, first.period, first.source, first.stride)
    if first != Axis(first.extent, one.period, one.source, one.stride) or first.extent % max(one.extent, 1):
        return axes, 1
    copies = first.extent // max(one.extent, 1)
    if copies < 2 or one.extent * count_of(rest) % per:
        return axes, 1
    return (one, *rest), copies
