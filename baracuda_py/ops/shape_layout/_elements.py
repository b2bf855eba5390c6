"""elements, nibble: an element at a time, of any stride (kernels/shape_layout/copy.cu, nibble.cu)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from ...plan.candidate import OK, Cost, Feasibility, no
from ...runtime.steps import Kernel, Launch, Ptr, Step
from ...types import DeviceSpec, ElementKind
from .._launch import THREADS, divisor, grid_of, index_scalar, index_type, pack_dims
from ._copy import CopyCandidate, HasCopy
from ._copy_cost import BandwidthCosts, CopyCosts
from ._slots import slots_cost
from ._walks import SECTOR, CopyProblem

__all__ = ["Elements", "Nibble"]


class Elements(CopyCandidate):
    """No contiguous run: an element at a time, any stride."""

    variant = "elements"
    launches = ("shape_layout/copy.cu:copy_elements",)

    def fits(self, copy: CopyProblem, desc: Any) -> Feasibility:
        return OK

    def configs(self, desc: HasCopy, device: DeviceSpec) -> Iterable[int]:
        return (4, 1)

    def cost(self, desc: HasCopy, device: DeviceSpec, config: int) -> Cost:
        copy = desc.copy()
        if not copy.run:
            return super().cost(desc, device, config)
        # Never fewer accesses than copying by slots, and one more axis to divide indices by.
        cost = slots_cost(copy, device)
        return replace(
            cost, seconds=cost.seconds * CopyCosts.of(device).slower_time_ratio * max(1, copy.grain // copy.width)
        )

    def efficiency(self, copy: CopyProblem, config: Any, costs: BandwidthCosts) -> float:
        _, dest, source = copy.collapsed
        steps = [abs(s[-1]) * copy.width if s else copy.width for s in (dest, source)]
        # Where each element is stored to a sector of its own, stores dominate.
        first = 1 if steps[0] >= SECTOR else 4
        scattered = costs.scattered_ratio if max(steps) >= SECTOR else 1.0
        efficiency = min(costs.element_efficiency, costs.element_efficiency_per_byte * copy.width)
        return efficiency * scattered * (1.0 if config == first else costs.other_unroll_ratio)

    def lower(self, desc: HasCopy, device: DeviceSpec, config: int) -> tuple[Step, ...]:
        copy = desc.copy()
        shape, dest, source = copy.collapsed
        w = copy.width
        count = math.prod(shape)
        index = index_type(count)
        entry = f"copy_elements<{index}, {len(shape)}, {w}, {config}>"
        strides = [tuple(s * w for s in dest), tuple(s * w for s in source)]
        args = (Ptr(copy.dest), Ptr(copy.source), index_scalar(count, index), pack_dims(shape, strides, index))
        return (Launch(Kernel("shape_layout/copy.cu", entry), grid_of(count, THREADS * config), (THREADS, 1, 1), args),)


class Nibble(CopyCandidate):
    """4-bit elements at odd bounds or strides: a destination byte a thread, read-modify-write at the ends."""

    variant = "nibble"
    launches = ("shape_layout/nibble.cu:copy_nibbles",)

    def supports(self, desc: HasCopy, device: DeviceSpec) -> Feasibility:
        copy = desc.copy()
        if copy.element not in (ElementKind.S4, ElementKind.U4):
            return no(f"{copy.element} is not a 4-bit kind")
        if copy.shape and copy.shape[-1] > 1 and copy.dest_strides[-1] != 1:
            return no("the destination's rows are not contiguous")
        if any(s % 2 for s in copy.dest_strides[:-1]):
            return no("destination rows do not start on bytes")
        return OK

    def efficiency(self, copy: CopyProblem, config: Any, costs: BandwidthCosts) -> float:
        return costs.nibble_efficiency

    def lower(self, desc: HasCopy, device: DeviceSpec, config: Any) -> tuple[Step, ...]:
        copy = desc.copy()
        shape = copy.shape or (1,)
        dest, source = copy.dest_strides or (1,), copy.source_strides or (1,)
        per_row = (shape[-1] + copy.dest_phase + 1) // 2
        count = math.prod(shape[:-1]) * per_row
        index = index_type(count)
        args = (
            Ptr(copy.dest), Ptr(copy.source), np.int64(shape[-1]), np.int64(source[-1]), np.int64(copy.dest_phase),
            np.int64(copy.source_phase), index_scalar(count, index), divisor(per_row, index),
            pack_dims(shape[:-1], [dest[:-1], source[:-1]], index),
        )  # fmt: skip
        entry = f"copy_nibbles<{index}, {len(shape) - 1}>"
        return (Launch(Kernel("shape_layout/nibble.cu", entry), grid_of(count, THREADS), (THREADS, 1, 1), args),)
