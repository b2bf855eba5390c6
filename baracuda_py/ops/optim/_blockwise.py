"""The launches of a step with 8-bit states (kernels/optim/blockwise.cu)."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np

from ...runtime.steps import Kernel, Launch, Run, Step
from ...types import DeviceSpec, ElementKind
from .._rows import computed_in
from ._problem import FILE, UpdateCandidate, UpdateProblem, array_bases, pointer_of, step_counted
from ._table import THREADS

__all__ = ["BlockwiseCandidate"]

BLOCKWISE = "optim/blockwise.cu"
ARRAYS = 9  # as in the kernel
RESIDENT, RESIDENT_STOCHASTIC, RESIDENT_F64 = 4, 3, 2  # CTAs per SM, by registers
MAP_BYTES = 14 << 10  # of shared memory


class BlockwiseCandidate(UpdateCandidate):
    """Two launches: one thread counts the step, and CTAs take chunks in turn and update their blocks, one per warp."""

    variant = "blocks"
    launches: ClassVar[tuple[str, ...]] = (f"{FILE}:optim_step", f"{BLOCKWISE}:optim_update_blocks")

    def lower(self, desc: UpdateProblem, device: DeviceSpec, config: str) -> tuple[Step, ...]:
        counted, shared = step_counted(desc)
        if not desc.ctas:
            return (counted,)
        computed, rule = computed_in(desc.element), desc.rule
        flags = (str(x).lower() for x in (desc.has("master"), desc.has("table"), desc.stochastic))
        kinds = (desc.element.number, desc.layout("grad").element.number, computed.cuda)
        squares = sum(1 << k for k, name in enumerate(rule.states) if name in rule.squares)
        resident = _resident(desc, device)
        entry = f"optim_update_blocks<{', '.join((desc.rule_type, *kinds, *flags, str(squares), str(resident)))}>"
        count, chunk, rows = np.uint64(math.prod(desc.shape)), np.uint32(desc.chunk), np.uint32(desc.ctas)
        args = (array_bases(desc, ARRAYS), pointer_of(desc, "table"), count, chunk, rows, shared, Run("seed"))
        grid = (min(desc.ctas, resident * device.sms), 1, 1)  # a CTA makes its maps once, whatever its chunks
        return (counted, Launch(Kernel(BLOCKWISE, entry), grid, (THREADS, 1, 1), args))


def _resident(desc: UpdateProblem, device: DeviceSpec) -> int:
    """The CTAs of an SM, of whose grid each makes its maps once."""
    narrow = RESIDENT_STOCHASTIC if desc.stochastic else RESIDENT
    by_registers = RESIDENT_F64 if desc.element is ElementKind.F64 else narrow
    maps = len({name in desc.rule.squares for name in desc.rule.states})
    return min(by_registers, device.shared_bytes // (maps * MAP_BYTES))
