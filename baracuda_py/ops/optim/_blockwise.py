"""The launches of a step with 8-bit states (kernels/optim/blockwise.cu)."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np

from ...runtime.steps import Kernel, Launch, Run, Step
from ...types import DeviceSpec
from .._rows import computed_in
from ._problem import FILE, UpdateCandidate, UpdateProblem, array_bases, pointer_of, step_counted
from ._table import THREADS

__all__ = ["BlockwiseCandidate"]

BLOCKWISE = "optim/blockwise.cu"
ARRAYS = 9  # as in the kernel


class BlockwiseCandidate(UpdateCandidate):
    """Two launches: one thread counts the step, and a CTA per chunk updates its blocks, one per warp."""

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
        entry = f"optim_update_blocks<{', '.join((desc.rule_type, *kinds, *flags, str(squares)))}>"
        count, chunk = np.uint64(math.prod(desc.shape)), np.uint32(desc.chunk)
        args = (array_bases(desc, ARRAYS), pointer_of(desc, "table"), count, chunk, shared, Run("seed"))
        return (counted, Launch(Kernel(BLOCKWISE, entry), (desc.ctas, 1, 1), (THREADS, 1, 1), args))
