"""A launch: its kernel, its arguments, and the state that its waves share."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import numpy as np

from ..types import UnsupportedError
from ..types.faults import KernelFault
from .memory.global_memory import GlobalMemory
from .options import Options
from .ptx.syntax import SIZES
from .report.counters import Counters
from .threads.grid import Grid
from .threads.lanes import WARP, Array
from .translation.translate import Translator
from .unknown import KNOWN, Variation

__all__ = ["Launched"]

LANES = 1 << 16  # of a wave
REGISTER_BYTES = 96 << 20
SHARED_BYTES = 8 << 20


class Launched:
    """The state that the waves of one launch share. `suspects` has a fault for each instruction that reads unwritten bytes,
    raised if their value matters; in a further run some of these instructions see other values there."""

    def __init__(
        self, code: Translator, kernel: str, memory: GlobalMemory, parameters: Array, grid: tuple[int, int, int],
        block: tuple[int, int, int], dynamic_bytes: int, options: Options, counters: Counters, *, pdl: bool,
        constants: dict[str, int], shared_limit: int, variation: Variation = KNOWN, deadline: float = 0.0,
    ) -> None:  # fmt: skip
        self.code, self.kernel, self.memory, self.parameters = code, kernel, memory, parameters
        self.grid, self.block, self.options, self.counters = grid, block, options, counters
        self.pdl, self.constants, self.variation = pdl, constants, variation
        self.suspects: dict[int, KernelFault] = {}
        self.grid_order = Grid()
        self.deadline = deadline  # of time.perf_counter; 0 for none
        self.rng = np.random.default_rng(options.seed)
        entry = code.entry
        align = max(entry.dynamic_align, 16)
        self.dynamic = -(-entry.shared_bytes // align) * align if dynamic_bytes else entry.shared_bytes
        self.shared_bytes = self.dynamic + dynamic_bytes
        self.shared_grain = _grain(code)
        self.grouped = any(i.opcode[0] == "wgmma" for i in code.instructions)
        self._refuse_impossible(shared_limit)

    def _refuse_impossible(self, limit: int) -> None:
        """KernelFault for a launch that no GPU accepts; `limit` is the most shared memory of a CTA in bytes (CUDA C++
        Programming Guide, Technical Specifications)."""
        entry, threads = self.code.entry, prod(self.block)
        for given, what in (
            (not 0 < threads <= entry.threads, f"blocks of {threads} threads, of {entry.threads} at most"),
            (entry.block not in ((), self.block), f"blocks of {self.block} threads, of {entry.block} alone"),
            (self.block[2] > 64, f"blocks of {self.block} threads"),
            (min(self.grid) < 1 or max(self.grid[1:]) >= 1 << 16 or self.grid[0] >= 1 << 31, f"a grid of {self.grid}"),
            (self.grid[0] % entry.cluster, f"a grid of {self.grid} in clusters of {entry.cluster}"),
            (self.shared_bytes > limit, f"{self.shared_bytes} bytes of shared memory per CTA, of {limit} at most"),
        ):
            if given:
                raise KernelFault(f"no GPU takes a launch with {what}", kernel=self.kernel)

    def too_large(self, seconds: float) -> UnsupportedError:
        return UnsupportedError(
            f"emulating {self.kernel} on {self.grid} CTAs would take {seconds:.0f} s or more",
            "take a smaller problem, or say with bp.emulation(force=True): that it is meant",
        )

    def waves(self) -> Iterator[tuple[int, int]]:
        """(first CTA, CTAs) of each wave: whole clusters, as many as suit memory and caches."""
        threads = -(-self.block[0] * self.block[1] * self.block[2] // WARP) * WARP
        total, cluster = self.grid[0] * self.grid[1] * self.grid[2], self.code.entry.cluster
        a_lane = (
            sum(count * max(width // 8, 1) for width, count in self.code.counts.items()) + self.code.entry.local_bytes
        )
        lanes = min(LANES, REGISTER_BYTES // max(a_lane, 1))
        most = min(lanes // threads, SHARED_BYTES // max(self.shared_bytes, 1))
        most = max(most // cluster, 1) * cluster
        for first in range(0, total, most):
            yield first, min(most, total - first)


def _grain(code: Translator) -> int:
    """The fewest bytes, at most 4, of one access of a kernel to memory that may be shared."""
    accesses = (i for i in code.instructions if i.opcode[0] in ("ld", "st", "atom", "red"))
    elsewhere = {"global", "local", "param", "const"}
    return min(
        [4, *(SIZES[i.opcode[-1]] for i in accesses if not elsewhere & {p.split("::")[0] for p in i.opcode[1:-1]})]
    )
