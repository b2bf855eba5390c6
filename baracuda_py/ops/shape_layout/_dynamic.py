"""dynamic_start: a window whose start along one axis is read on the device (kernels/shape_layout/append.cu)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...plan.candidate import OK, Candidate, Change, Cost, Feasibility, no
from ...runtime.steps import Kernel, Launch, Ptr, Step
from ...tensor.axes import collapse
from ...types import DeviceSpec
from .._launch import append_shape, divisor, grid_of, index_scalar, index_type, pack_dims, words_of
from ._copy_cost import BandwidthCosts

__all__ = ["DynamicStart"]


class DynamicStart(Candidate[Any]):
    """The start along one axis is read on the device, so that a captured graph can append at a moving position."""

    variant = "dynamic_start"
    launches = ("shape_layout/append.cu:append_runs",)
    unaligned = True

    def supports(self, desc: Any, device: DeviceSpec) -> Feasibility:
        if desc.dynamic_axis is not None:
            return OK
        if desc.element.packed:
            return no(f"the start is given by the host, and for {desc.element} it cannot lie on the device")
        return no(
            "the start is given by the host", "dynamic_axis=0, and start on the device", Change({"dynamic_axis": 0})
        )

    def cost(self, desc: Any, device: DeviceSpec, config: Any) -> Cost:
        return Cost.streaming(device, 2 * desc.copy().nbytes, efficiency=BandwidthCosts.of(device).dynamic_efficiency)

    def lower(self, desc: Any, device: DeviceSpec, config: Any) -> tuple[Step, ...]:
        dest, source = desc.layout("dest"), desc.layout("source")
        axis, size = desc.dynamic_axis, desc.element.bits // 8
        assert axis is not None
        step = dest.strides[axis] * size
        shape, walks = collapse(desc.extents, [dest.strides, source.strides])
        bytewise = [[s * size for s in walk] for walk in walks]
        extents, strides, word = words_of(shape, bytewise, size, min(dest.align, source.align), (step,))
        count = math.prod(extents)
        index = index_type(count)
        threads, unroll = append_shape(count, device)
        args = (
            Ptr("dest"), Ptr("dest"), Ptr("source"), Ptr("source"), Ptr("start"), Ptr("status"),
            index_scalar(1, index), np.int64(desc.dest_shape[axis] - desc.extents[axis]), np.int64(step),
            index_scalar(count, index), divisor(count, index),
            pack_dims(extents, strides, index),
        )  # fmt: skip
        entry = f"append_runs<{index}, i64, {len(extents)}, {word}, {threads}, {unroll}, 1, false>"
        return (
            Launch(Kernel("shape_layout/append.cu", entry), grid_of(count, threads * unroll), (threads, 1, 1), args),
        )
