"""exact_gemv: few rows of 16-bit floats by weights in Q4_K blocks, read into registers (kernels/quantized/gguf_gemv.cu)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ...plan.candidate import Candidate, Change, Cost, Feasibility, no
from ...plan.constraints import Aligned, UnitStride
from ...plan.grammar import Config, term
from ...plan.lowering import Sub
from ...runtime.steps import Kernel, Launch, Ptr, Step
from ...types import DeviceSpec, ElementKind, PrecisionGuarantee
from ...types.gguf import GgufFormat
from .._launch import overlapped_overhead
from ._gguf_product import LATENCY, READS, ROUND_TRIP, WORD, product_guarantee, rows_are_read, rows_of

__all__ = ["ExactGemv", "GemvConfig"]

FILE = "quantized/gguf_gemv.cu"
ROWS = 8  # of weights, a CTA at a time: gguf_gemv.cu
MOST_TOKENS, FEWEST = 8, 2  # rows of x; blocks along K
# Warps of a CTA, blocks of 8 rows a warp has asked for, and CTAs an SM, from the best on.
SHAPES = (
    (4, 3, 4), (8, 3, 2), (8, 2, 2), (4, 2, 4), (4, 2, 5), (4, 4, 4), (8, 4, 2), (2, 3, 8), (16, 3, 1), (1, 3, 16), (4, 3, 3),
    (4, 2, 3), (8, 2, 1), (4, 2, 2), (4, 3, 2), (2, 2, 4),
)  # fmt: skip
REGISTERS = {1: (64, 16), 2: (96, 8), 4: (120, 12), 8: (144, 24)}  # of a thread, and for each block it has asked for
REGISTER_FILE = 65536
INSTRUCTIONS = {1: 2.1, 2: 2.6, 4: 3.2, 8: 5.0}  # of a thread for a weight, by tokens
ISSUE = 0.75  # the share of issue slots that is reached


@dataclass(frozen=True)
class GemvConfig(Config):
    """Warps of a CTA and blocks under way; tokens follow from the problem."""

    warps: int = term("warps a CTA, which share 8 rows of weights along K")
    depth: int = term("blocks of 8 rows that a warp has asked for")
    ctas: int = term("CTAs an SM is to hold")
    tokens: int = term("rows of x a CTA takes", default=1, hidden=True)

    @property
    def registers(self) -> int:
        """Of all CTAs of an SM."""
        fixed, each = REGISTERS[self.tokens]
        return self.ctas * self.warps * 32 * (fixed + each * self.depth)


class ExactGemv(Candidate[Any]):
    """Activations as they are, by tensor cores in f32; codes never lie in shared memory."""

    variant = "exact_gemv"
    launches: ClassVar = (f"{FILE}:gguf_gemv",)
    constraints = (UnitStride("x"), UnitStride("out"))

    def supports(self, desc: Any, device: DeviceSpec) -> Feasibility:
        if desc.rounds:
            return no("multiplies activations as they are", change=Change({"math": None}))
        if desc.format is not GgufFormat.Q4_K:
            return no(f"is for {GgufFormat.Q4_K} alone")
        if desc.x_element is ElementKind.F32:
            return no(f"multiplies 16-bit floats, not {desc.x_element}")
        if math.prod(desc.x_shape[:-1]) > MOST_TOKENS:
            return no(f"takes {MOST_TOKENS} rows of x at most", f"{MOST_TOKENS} rows a call")
        if self._blocks(desc) < FEWEST:
            return no(f"gives {FEWEST} warps blocks of a row", f"K of {FEWEST * GgufFormat.Q4_K.block.weights} or more")
        return super().supports(desc, device) and rows_are_read(desc) and Aligned("x", WORD).of(desc)

    def configs(self, desc: Any, device: DeviceSpec) -> Iterable[GemvConfig]:
        tokens = 1 << max(math.prod(desc.x_shape[:-1]) - 1, 0).bit_length()
        for shape in SHAPES:
            config = GemvConfig(*shape, tokens)
            if config.warps <= self._blocks(desc) and config.registers <= REGISTER_FILE:
                yield config

    def _blocks(self, desc: Any) -> int:
        return int(desc.k) // GgufFormat.Q4_K.block.weights

    def _grid(self, desc: Any, device: DeviceSpec, config: GemvConfig) -> int:
        """As many CTAs as there is room for, or fewer, so that all have as many rows of weights."""
        groups = -(-desc.n // ROWS)
        return int(-(-groups // max(1, -(-groups // (device.sms * config.ctas)))))

    def cost(self, desc: Any, device: DeviceSpec, config: GemvConfig) -> Cost:
        """Weights at the bandwidth of reading, or the instructions; CTAs of an SM's share take turns."""
        groups, ctas = -(-desc.n // ROWS), max(1, self._grid(desc, device, config))
        turns, steps = -(-groups // ctas), -(-self._blocks(desc) // config.warps)
        busy = min(ctas, device.sms) / device.sms
        even = max(groups, 1) / (turns * ctas) * self._blocks(desc) / (steps * config.warps)
        resident = min(config.ctas, -(-ctas // device.sms)) * config.warps
        under_way = resident * config.depth * ROWS * desc.format.block.nbytes * device.sms
        share = busy * even * min(1.0, under_way / (device.bandwidth * ROUND_TRIP))
        weights = float(desc.n) * desc.k
        issue = device.rate("issue") * ISSUE * min(1.0, resident / 12) * busy * even
        times = {
            "bandwidth": desc.nbytes / (device.bandwidth * READS * share),
            "instruction issue": weights * INSTRUCTIONS[config.tokens] / issue,
        }
        limit = max(times, key=lambda name: times[name])
        return Cost(desc.nbytes, int(2 * weights), overlapped_overhead(device) + LATENCY + times[limit], limit)

    def guarantee(self, desc: Any, device: DeviceSpec, config: GemvConfig) -> PrecisionGuarantee:
        """A sub-block's products are added by tensor cores; then two sub-blocks of every block of the warp, in order, an FMA for
        them and one for what is taken off; at last four lanes and the warps."""
        turns = 2 * -(-self._blocks(desc) // config.warps)
        return product_guarantee(desc, 2 * desc.format.block.sub + 2 * turns + 2 + config.warps + 8)

    def lower(self, desc: Any, device: DeviceSpec, config: GemvConfig) -> tuple[Step | Sub, ...]:
        out = desc.layout("out")
        (tokens, out_step), (_, x_step) = rows_of(out) or (0, 0), rows_of(desc.layout("x")) or (0, 0)
        alone = str(config.tokens == 1).lower()
        shape = f"{max(1, config.tokens // 2)}, {alone}, {config.warps}, {config.depth}, {config.ctas}"
        entry = f"gguf_gemv<{desc.x_element.number}, {out.element.number}, {shape}>"
        args = (
            Ptr("out"), Ptr("x"), Ptr("w"), np.int64(out_step), np.int64(x_step), np.uint32(tokens), np.uint32(desc.n),
            np.uint32(self._blocks(desc)),
        )  # fmt: skip
        grid = (self._grid(desc, device, config), 1, 1)
        return (Launch(Kernel(FILE, entry), grid, (config.warps * 32, 1, 1), args, overlapped=True),)
