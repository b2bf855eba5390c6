"""Elements counted by bins: in shared memory, or in the result (kernels/sort/bins.cu)."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

from ....plan.candidate import OK, Candidate, Cost, Feasibility, no
from ....plan.descriptor import Descriptor
from ....runtime.steps import Arg, Fill, Kernel, Launch, Ptr, Step
from ....tensor.axes import merge_axes
from ....types import DeviceSpec, ElementKind
from ..._launch import index_scalar, index_type, pack_dims
from ..._reported import ReportedProblem, raises_on

__all__ = ["CANDIDATES", "COUNTABLE", "BinProblem"]

COUNTABLE = (1 << 31) - 1  # bins
THREADS, ITEMS, WARPS = 512, 2, 16  # of that file
WORD = 16  # bytes of a vector
SHARED_BYTES, COUNTER_BYTES = 48 << 10, 4  # of a CTA, so that four are resident
CTAS_PER_SM = 4
MOST_PER_CTA = 1 << 31  # elements, which counters of 32 bits hold
ELEMENTS_PER_BIN = 4  # of a CTA at least, so that adding its counters to the result is a small part
COUNT_INSTRUCTIONS, COMPUTED_INSTRUCTIONS = 8, 12  # of an element; of one whose bin is computed, beside
ATOMIC_BYTES = 32  # of L2's traffic, as an atomic there


class BinProblem(Descriptor):
    """An x of `shape`, whose elements are counted in `out`, int64 [bins]."""

    shape: tuple[int, ...]
    element: ElementKind
    uniform: ClassVar[bool]

    @property
    def bin_count(self) -> int:
        raise NotImplementedError

    @property
    def out_shape(self) -> tuple[int, ...]:
        return (self.bin_count,)

    @property
    def count(self) -> int:
        return math.prod(self.shape)

    @property
    def has_status(self) -> bool:
        """Whether an element without a bin is reported."""
        return False

    def interval(self) -> tuple[Arg, Arg]:
        """The ends of the bins."""
        return np.float64(0), np.float64(0)


class _Counted(Candidate[BinProblem]):
    """One launch that reads x."""

    launches = ("sort/bins.cu:count_bins",)
    shared: ClassVar[bool]

    def supports(self, desc: BinProblem, device: DeviceSpec) -> Feasibility:
        return raises_on(desc, device) if isinstance(desc, ReportedProblem) else OK

    def lower(self, desc: BinProblem, device: DeviceSpec, config: Any) -> tuple[Step, ...]:
        clear = [Fill(Ptr("out"), 0, 8 * desc.bin_count), *([Fill(Ptr("status"), 0, 4)] if desc.has_status else [])]
        if not desc.count:
            return tuple(clear)
        x, index = desc.layout("x"), index_type(desc.count)
        extents, (strides,) = merge_axes(x.shape, [[s * x.natural for s in x.strides]])
        vector = x.align == WORD and strides in ((), (x.natural,))
        copies = max(1, min(WARPS, SHARED_BYTES // (COUNTER_BYTES * max(desc.bin_count, 1)))) if self.shared else 1
        status = Ptr("status") if desc.has_status else np.uint64(0)
        args = (
            Ptr("out"), status, Ptr("x"), index_scalar(desc.count, index), np.int64(desc.bin_count), np.uint32(copies),
            *desc.interval(), pack_dims(extents, [strides], index),
        )  # fmt: skip
        flags = ", ".join(str(flag).lower() for flag in (desc.uniform, vector, self.shared))
        kernel = Kernel("sort/bins.cu", f"count_bins<{desc.element.number}, {index}, {len(extents)}, {flags}>")
        nbytes = COUNTER_BYTES * copies * desc.bin_count if self.shared else 0
        grid = (self.ctas(desc, device, WORD // x.natural if vector else 1), 1, 1)
        return (*clear, Launch(kernel, grid, (THREADS, 1, 1), args, shared_bytes=nbytes))

    def ctas(self, desc: BinProblem, device: DeviceSpec, vector: int) -> int:
        per_cta = THREADS * ITEMS * vector
        if self.shared:
            per_cta = max(per_cta, ELEMENTS_PER_BIN * desc.bin_count)
        least = -(-desc.count // MOST_PER_CTA)
        return max(1, least, min(-(-desc.count // per_cta), CTAS_PER_SM * device.sms))

    def instructions(self, desc: BinProblem) -> float:
        return desc.count * (COUNT_INSTRUCTIONS + (COMPUTED_INSTRUCTIONS if desc.uniform else 0))


class SharedBins(_Counted):
    """Counters in shared memory, which are added to the result at the end."""

    variant, shared = "shared", True

    def supports(self, desc: BinProblem, device: DeviceSpec) -> Feasibility:
        most = SHARED_BYTES // COUNTER_BYTES
        if desc.bin_count > most:
            return no(f"there are {desc.bin_count} bins; a CTA has counters for {most}")
        return super().supports(desc, device)

    def cost(self, desc: BinProblem, device: DeviceSpec, config: Any) -> Cost:
        added = self.ctas(desc, device, 1) * desc.bin_count
        moved = desc.nbytes + added * ATOMIC_BYTES
        one = Cost.streaming(device, moved, instructions=self.instructions(desc) + added * COUNT_INSTRUCTIONS)
        return Cost(desc.nbytes, 0, one.seconds + device.overhead, one.limit)


class GlobalBins(_Counted):
    """An atomic addition to the result for each element."""

    variant, shared = "global", False

    def cost(self, desc: BinProblem, device: DeviceSpec, config: Any) -> Cost:
        moved = desc.nbytes + desc.count * ATOMIC_BYTES
        one = Cost.streaming(device, moved, instructions=self.instructions(desc))
        return Cost(desc.nbytes, 0, one.seconds + device.overhead, one.limit)


CANDIDATES = (SharedBins(), GlobalBins())
