"""vectorised: runs in 16-byte chunks aligned to the destination (kernels/shape_layout/copy.cu)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...plan.candidate import OK, Cost, Feasibility, no
from ...plan.grammar import Config, term
from ...runtime.steps import Kernel, Launch, Ptr, Step
from ...types import DeviceSpec
from .._launch import THREADS, divisor, grid_of, index_scalar, index_type, pack_dims
from ._copy import CopyCandidate, HasCopy, in_order
from ._copy_cost import WARP, CopyCosts, Work
from ._slots import SHORT_RUN, narrow, slots_cost
from ._walks import CHUNK, CopyProblem, touched

__all__ = ["Vectorised"]

CHUNK_INSTRUCTIONS = 36  # instructions per chunk of copy_runs, counted in the kernel
UNROLLS = (1, 2, 4)  # chunks of a thread


@dataclass(frozen=True)
class RunConfig(Config):
    """How threads go through runs: whole 16-byte chunks between their ends."""

    grain: int = term("bytes that divide every address, stride and length")
    ends: int = term("grains that are taken at once at a run's ends")
    unroll: int = term("chunks of 16 bytes a thread")


class Vectorised(CopyCandidate):
    """Runs of any length, pitch and phase: 16-byte stores aligned to the destination, ends peeled."""

    variant = "vectorised"
    launches = ("shape_layout/copy.cu:copy_runs",)
    unaligned = True

    def fits(self, copy: CopyProblem, desc: Any) -> Feasibility:
        if copy.run < min(CHUNK, copy.width * 2):
            return no(f"contiguous runs are only {copy.run or copy.width} bytes", *in_order(copy))
        return OK

    def configs(self, desc: HasCopy, device: DeviceSpec) -> Iterable[RunConfig]:
        copy = desc.copy()
        # In short runs the ends are much of the work, so overlapping a thread's loads pays. In long runs the
        # registers that it takes cost more than it gains.
        ends = CHUNK // copy.grain if copy.run < SHORT_RUN else 1
        return [RunConfig(copy.grain, ends, unroll) for unroll in UNROLLS]

    def cost(self, desc: HasCopy, device: DeviceSpec, config: RunConfig) -> Cost:
        copy = desc.copy()
        runs, per_run = math.prod(copy.outer[0]), _chunks_per_run(copy)
        grains = CHUNK // config.grain
        # Each end that a warp has keeps all of it, grain by grain; of many ends most go together.
        ends = min(WARP * 2 / per_run, 4.0) * grains / 2 if grains > 1 else 0.0
        stores = runs * (touched(copy.run, copy.grains[0]) + (grains if grains > 1 else 0))
        order = dict(zip(UNROLLS, CopyCosts.of(device).unroll_work_ratio))[config.unroll]
        chunks = runs * per_run
        work = Work(chunks * CHUNK_INSTRUCTIONS * order, stores, CHUNK, accesses=chunks * (2 + ends) * order)
        cost = work.cost(copy, device)
        if not narrow(copy):
            return cost
        return replace(
            cost, seconds=max(cost.seconds, slots_cost(copy, device).seconds * CopyCosts.of(device).slower_time_ratio)
        )

    def lower(self, desc: HasCopy, device: DeviceSpec, config: RunConfig) -> tuple[Step, ...]:
        copy = desc.copy()
        extents, dest, source = copy.outer
        per_run = _chunks_per_run(copy)
        chunks = math.prod(extents) * per_run
        index = index_type(chunks)
        entry = f"copy_runs<{index}, {len(extents)}, {config.grain}, {config.ends}, {config.unroll}>"
        args = (
            Ptr(copy.dest), Ptr(copy.source), np.int64(copy.run), index_scalar(chunks, index), divisor(per_run, index),
            pack_dims(extents, [dest, source], index),
        )  # fmt: skip
        return (
            Launch(
                Kernel("shape_layout/copy.cu", entry), grid_of(chunks, THREADS * config.unroll), (THREADS, 1, 1), args
            ),
        )


def _chunks_per_run(copy: CopyProblem) -> int:
    """Aligned 16-byte chunks of the destination that a run can touch: one more where runs may start unaligned."""
    return -(-(copy.run + CHUNK - copy.grains[0]) // CHUNK)
