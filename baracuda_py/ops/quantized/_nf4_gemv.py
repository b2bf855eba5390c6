"""gemv of matmul_nf4: codes multiplied as they lie, for 16 tokens a CTA or fewer (kernels/quantized/nf4_gemv.cu).

Activations that do not lie as it reads them are staged by kernels/quantized/tokens.cu; where K is split, kernels/gemm/reduce.cu
adds the parts.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from ...plan.candidate import OK, Candidate, Constraint, Cost, Feasibility, no
from ...plan.constraints import Aligned
from ...plan.grammar import Config, term
from ...runtime.steps import Arg, Kernel, Launch, Ptr, Step
from ...types import Componentwise, DeviceSpec, PrecisionGuarantee
from .._launch import overlapped_overhead
from ..gemm._problem.gemm import Gemm
from ..gemm._variants.epilogue import epilogue_args, epilogue_type, settled
from ..gemm._variants.guarantee import TRUNCATED, guarantee_of
from ..gemm._variants.split import partial_epilogue, partial_size, reduce_step, scratch_of, second_pass
from ._dequantized import of_rounded
from ._nf4_weight import magnitudes_struct
from ._staged_tokens import staged_tokens

__all__ = ["Nf4Config", "Nf4Gemv"]

FILE, SKINNY = "quantized/nf4_gemv.cu", "quantized/nf4_skinny.cu"
WIDE = "quantized/nf4_wide.cu"
MOST_TOKENS = 128  # rows of x for which weights are not dequantised first
MOST, MOST_VALUES = 1 << 25, 1 << 37  # of N and K, and of all values: blocks are counted in 32 bits
CHUNK, OF_MMA = 64, 16  # of K: what a sum is multiplied with a magnitude after, and of one instruction
TABLE_BYTES = 65536
MOST_SPLITS, LEAST_SLABS = 16, 2  # parts of K, and slabs of a part
# What a slab takes: cycles of shared memory for 1024 weights of a strip, and for a token's 64 of K, read and brought; and for a
# table; bytes an SM must have under way; shares of the bandwidth; seconds until the first slab, and of further rounds.
STRIP_CYCLES, TOKEN_CYCLES, TABLE_CYCLES = 28.0, 1.0, 600.0
BUSY = 12  # warps an SM that keep its shared memory busy
ROUND_TRIP, BANDWIDTH, PULL = 3.9e-7, 0.95, 4.0
L2 = 4.74e10  # bytes a second and SM
FILL, ROUND, SECOND_PASS, STAGED = 0.9e-6, 0.7e-6, 0.5e-6, 1.2e-6
OVERLAP = 2.5  # exponent of the norm of limits
THREADS_OF_SM, REGISTERS_OF_SM = 2048, 65536


@dataclass(frozen=True)
class Nf4Config(Config):
    """A CTA's tile: `tokens` rows of x by 16 `strips` `across` rows of the weight, and how K goes by."""

    tokens: int = term("rows of x a CTA takes", leads=True)
    strips: int = term("strips of 16 rows of the weight that a warp multiplies", leads=True)
    across: int = term("warps that share tokens", default=4)
    along: int = term("groups of so many warps, which take slabs in turn", default=4)
    stages: int = term("slabs in shared memory, of each group", default=3)
    depth: int = term("of K, a slab", default=256)
    direct: bool = term("codes go to registers at once", default=False)
    split_k: int = term("parts of K that are summed apart and then added", default=1)
    double: bool = term("whether magnitudes are codes", default=False, hidden=True)

    @property
    def threads(self) -> int:
        return 32 * self.across * self.along

    @property
    def rows(self) -> int:
        """Of the weight, a CTA."""
        return 16 * self.strips * self.across

    @property
    def stage_bytes(self) -> int:
        return self.rows * self.depth // 2 * (not self.direct) + self.tokens * self.depth * 2

    @property
    def spread(self) -> int:
        """64s of K that are multiplied side by side."""
        return min(max(1, 8 // self.tokens), self.depth // CHUNK)

    def shared_bytes(self, k: int) -> int:
        sums = self.along * self.tokens * self.spread * (self.rows + 4) * 4
        held = (
            self.along * self.stages * self.stage_bytes if self.stages else self.tokens * self.slabs(k) * self.depth * 2
        )
        return TABLE_BYTES + max(held, sums)

    @property
    def registers(self) -> int:
        """About, a thread."""
        return min(255, 65536 // self.threads, 80 + 8 * self.strips * -(-self.tokens // 8) + 8 * self.strips)

    def slabs(self, k: int) -> int:
        """Slabs of a part of K."""
        slabs = -(-k // self.depth)
        return -(-slabs // self.split_k)

    def tiles(self, m: int) -> int:
        return -(-m // self.tokens)

    def ctas(self, m: int, n: int) -> int:
        return max(1, -(-n // self.rows) * self.tiles(m))

    def resident(self, device: DeviceSpec, k: int) -> int:
        """CTAs that an SM has room for."""
        by_shared = (device.shared_bytes + 1024) // (self.shared_bytes(k) + 1024)
        return max(1, min(by_shared, THREADS_OF_SM // self.threads, REGISTERS_OF_SM // (self.threads * self.registers)))


# Tokens, strips, warps across and along, stages, depth.
TABLE = tuple(
    Nf4Config(*row)
    for row in (
        (1, 1, 4, 4, 3, 512, True), (1, 1, 2, 8, 3, 512, True), (1, 2, 2, 6, 3, 512, True), (1, 2, 2, 4, 3, 512, True),
        (1, 2, 2, 8, 3, 256, True), (2, 1, 4, 4, 3, 512, True), (2, 2, 2, 6, 3, 512, True), (2, 2, 2, 8, 3, 256, True),
        (4, 1, 4, 4, 3, 512, True), (4, 2, 2, 8, 3, 256, True), (4, 2, 4, 4, 3, 256, True),
        (8, 2, 2, 8, 3, 256, True), (8, 2, 4, 4, 3, 256, True), (8, 2, 2, 6, 3, 256, True), (8, 4, 4, 2, 3, 256, True),
        (16, 2, 4, 4, 3, 256, True), (16, 2, 2, 8, 2, 256, True), (16, 2, 8, 2, 3, 256, True), (16, 2, 2, 8, 3, 128, True),
        (16, 4, 4, 2, 3, 256, True), (16, 4, 2, 4, 3, 256, True), (16, 4, 4, 3, 3, 128, True), (16, 2, 4, 3, 3, 256, True),
        (16, 4, 2, 4, 3, 128, True), (16, 2, 4, 4, 3, 128, True), (16, 4, 4, 2, 3, 128, True), (16, 2, 3, 4, 3, 256, True),
        (32, 2, 4, 2, 3, 256, True), (32, 2, 4, 2, 3, 128, True), (32, 1, 4, 4, 3, 128, True),
        (1, 1, 4, 4, 0, 512), (1, 1, 2, 8, 0, 512), (1, 2, 2, 8, 0, 256), (1, 2, 2, 4, 0, 512), (1, 1, 4, 4, 0, 256),
        (1, 1, 4, 3, 0, 512), (1, 2, 4, 3, 0, 256), (1, 2, 4, 4, 0, 256), (1, 1, 8, 2, 0, 512), (1, 2, 2, 6, 0, 512),
        (1, 1, 2, 4, 0, 512), (1, 1, 1, 8, 0, 512), (1, 2, 2, 3, 0, 512), (4, 2, 2, 6, 0, 512), (2, 2, 2, 6, 0, 512),
        (2, 1, 4, 4, 0, 512), (2, 2, 2, 8, 0, 256), (2, 2, 2, 4, 0, 512), (2, 1, 4, 4, 0, 256),
        (4, 1, 4, 4, 0, 512), (4, 2, 2, 8, 0, 256), (4, 2, 2, 4, 0, 512), (4, 1, 4, 4, 0, 256), (4, 2, 4, 4, 0, 256),
        (1, 1, 4, 4, 3, 256), (1, 1, 4, 4, 4, 256), (1, 1, 2, 8, 3, 256), (1, 1, 1, 16, 3, 256), (1, 2, 2, 4, 4, 256),
        (1, 2, 2, 8, 2, 256), (1, 2, 2, 6, 3, 256), (1, 2, 4, 4, 2, 256), (1, 4, 1, 8, 3, 128), (1, 1, 4, 2, 3, 256),
        (1, 1, 4, 3, 3, 128), (1, 1, 2, 6, 3, 128), (1, 1, 4, 2, 2, 256), (1, 2, 2, 3, 3, 128), (1, 2, 4, 2, 2, 128),
        (1, 1, 2, 4, 2, 256), (1, 1, 1, 8, 3, 256), (1, 2, 1, 8, 4, 256), (1, 4, 1, 8, 2, 256),
        (2, 1, 4, 4, 3, 256), (2, 1, 2, 8, 3, 256), (2, 2, 2, 8, 2, 256), (2, 2, 2, 4, 4, 256), (2, 1, 1, 8, 3, 256),
        (4, 1, 4, 4, 3, 256), (4, 1, 4, 4, 4, 128), (4, 1, 2, 8, 3, 256), (4, 2, 2, 8, 2, 256), (4, 2, 2, 6, 2, 256),
        (4, 2, 2, 4, 4, 256), (4, 1, 1, 8, 3, 256), (4, 2, 2, 8, 3, 128), (4, 4, 1, 8, 3, 128),
        (4, 4, 2, 4, 2, 256), (4, 1, 4, 2, 4, 128), (4, 2, 2, 3, 3, 128), (4, 2, 2, 4, 2, 128), (4, 2, 4, 2, 2, 128),
        (8, 1, 4, 4, 3, 256), (8, 1, 2, 4, 3, 256), (8, 2, 2, 4, 3, 256), (8, 2, 2, 6, 3, 128), (8, 4, 1, 8, 3, 128),
        (8, 4, 2, 4, 3, 128), (8, 2, 4, 4, 3, 128), (8, 1, 1, 8, 2, 256), (8, 2, 2, 6, 2, 256),
        (16, 1, 4, 4, 4, 128), (16, 2, 2, 4, 2, 256), (16, 2, 2, 6, 3, 128), (16, 2, 4, 3, 3, 128),
        (16, 2, 4, 3, 2, 256), (16, 2, 4, 4, 3, 128), (16, 2, 4, 2, 3, 256), (16, 2, 8, 1, 4, 256), (16, 4, 1, 8, 2, 128),
        (16, 4, 2, 4, 3, 128), (16, 4, 2, 4, 2, 128), (16, 4, 4, 2, 3, 128), (16, 4, 4, 2, 2, 256), (16, 1, 1, 4, 2, 256),
        (16, 2, 4, 1, 3, 128), (16, 4, 2, 2, 2, 128), (16, 2, 4, 2, 2, 128), (16, 4, 4, 1, 2, 128),
        (32, 2, 4, 2, 3, 128), (32, 2, 2, 4, 2, 128), (32, 2, 4, 2, 2, 256), (32, 1, 4, 3, 3, 128),
    )
)  # fmt: skip


def seconds_of(desc: Any, device: DeviceSpec, config: Nf4Config, *, staged: bool) -> tuple[float, str]:
    """The predicted time, and what sets it: memory, while enough is under way, the table in shared memory, or tokens from L2."""
    gemm: Gemm = desc.gemm
    n, k = desc.weight_shape
    ctas = config.ctas(gemm.m, n) * config.split_k
    room, slabs = device.sms * config.resident(device, k), -(-config.slabs(k) // config.along) * config.along
    waves, rest = divmod(ctas, room)
    busiest = waves * (room // device.sms) + -(-rest // device.sms)  # CTAs of the SM that has most
    read = n * k * (0.5 + (1 if config.double else 4) / desc.block_size) + 2.0 * gemm.m * k
    together = min(busiest, room // device.sms)
    under_way = min(ctas, device.sms) * together * config.along * max(1, config.stages - 1) * config.stage_bytes
    share = min(1.0, under_way / (device.bandwidth * ROUND_TRIP), ctas / device.sms * PULL)
    clock = device.rate("issue") / (device.sms * 128)
    chunks = slabs * config.depth // CHUNK
    cycles = (
        config.across * (config.strips * STRIP_CYCLES + config.tokens * TOKEN_CYCLES) + config.tokens * TOKEN_CYCLES
    )
    cycles = chunks * cycles / min(1.0, together * config.threads / 32 / BUSY) + TABLE_CYCLES
    limits = {
        "bandwidth": read * max(1.0, busiest * device.sms / ctas) / (device.bandwidth * BANDWIDTH * share),
        "shared memory": busiest * cycles / clock,
        "L2": busiest * slabs * config.stage_bytes / L2,
    }
    limit = max(limits, key=lambda name: limits[name])
    seconds = float(sum(each**OVERLAP for each in limits.values()) ** (1 / OVERLAP))
    seconds += overlapped_overhead(device) + FILL + max(0, -(-ctas // room) - 1) * ROUND
    if config.split_k > 1:
        seconds += float(second_pass(gemm, config.split_k, device, SECOND_PASS))
    if staged:
        seconds += overlapped_overhead(device) + STAGED + 4.0 * gemm.m * k / device.bandwidth
    return seconds, limit


@lru_cache(maxsize=256)
def _priced(desc: Any, device: DeviceSpec) -> tuple[tuple[Nf4Config, float, str], ...]:
    """The configurations that fit, with their seconds and what sets them, the fastest first."""
    staged = staged_tokens(desc) is not None
    made = ((c, *seconds_of(desc, device, c, staged=staged)) for c in _fitting(desc, device))
    return tuple(sorted(made, key=lambda priced: priced[1]))


def _fitting(desc: Any, device: DeviceSpec) -> Iterable[Nf4Config]:
    """The table's rows, with K whole and in as many parts as fill the device once and twice."""
    n, k = desc.weight_shape
    tokens = [next((t for t in (1, 2, 4, 8, 16) if t >= desc.gemm.m), 16)] + [32] * (desc.gemm.m > 16)
    for row in TABLE:
        config, slabs = replace(row, double=desc.double), -(-k // row.depth)
        if row.tokens not in tokens:
            continue
        ctas, most = config.ctas(desc.gemm.m, n), max(1, min(MOST_SPLITS, slabs // LEAST_SLABS))
        wanted = {1} | {min(most, max(1, device.sms * rooms // ctas)) for rooms in {1, config.resident(device, k)}}
        for splits in sorted({-(-slabs // -(-slabs // w)) for w in wanted}):
            made = replace(config, split_k=splits)
            if made.shared_bytes(k) <= device.shared_bytes:
                yield made


class Nf4Gemv(Candidate[Any]):
    """A few tokens, sixteen a CTA: every byte of the weight read once for them, pairs of values looked up in shared memory."""

    variant = "gemv"
    launches = (
        f"{FILE}:nf4_gemv",
        f"{SKINNY}:nf4_skinny",
        f"{WIDE}:nf4_wide",
        "quantized/tokens.cu:stage_tokens",
        "gemm/reduce.cu:reduce",
    )
    constraints: ClassVar[tuple[Constraint, ...]] = (Aligned("codes", 16),)

    def supports(self, desc: Any, device: DeviceSpec) -> Feasibility:
        if not (said := super().supports(desc, device)):
            return said
        gemm: Gemm = desc.gemm
        if gemm.batch:
            return no("x and out have rows that are not evenly spaced", "contiguize x")
        if gemm.m > MOST_TOKENS:
            return no(f"there are {gemm.m} tokens, and it takes {MOST_TOKENS} at most", f"{MOST_TOKENS} tokens a call")
        if max(gemm.n, gemm.k) >= MOST or gemm.n * gemm.k > MOST_VALUES:
            return no(f"N={gemm.n} and K={gemm.k} are more than it counts: {MOST} each, {MOST_VALUES} values")
        if not _priced(desc, device):
            return no(f"an SM's {device.shared_bytes} bytes of shared memory hold no tile")
        return OK

    def configs(self, desc: Any, device: DeviceSpec) -> Iterable[Nf4Config]:
        return [config for config, *_ in _priced(desc, device)]

    def ranked(self, desc: Any, device: DeviceSpec) -> Any:
        return iter([(config, seconds) for config, seconds, _ in _priced(desc, device)])

    def cost(self, desc: Any, device: DeviceSpec, config: Nf4Config) -> Cost:
        seconds, limit = seconds_of(desc, device, config, staged=staged_tokens(desc) is not None)
        return Cost(desc.nbytes, desc.gemm.flops, seconds, limit)

    def guarantee(self, desc: Any, device: DeviceSpec, config: Nf4Config) -> PrecisionGuarantee:
        """Sums of 64 products by four mma.sync, each times its magnitude and added to those of its warp; warps meet at the end.

        A product goes through as many additions as its own sum of 64 has, and those sums of its warp, and what meets at the end.
        """
        sums = -(-config.slabs(desc.weight_shape[1]) // config.along) * (config.depth // CHUNK)
        additions = CHUNK + CHUNK // OF_MMA + sums + config.along * config.spread + 2
        summed = guarantee_of(
            desc,
            desc.precision,
            additions,
            each=TRUNCATED,
            splits=config.split_k,
            batch_invariant=False,
            in_order=False,
        )
        assert isinstance(summed.bound, Componentwise)
        return replace(summed, bound=replace(summed.bound, terms=of_rounded(summed.bound, "rounded_values")))

    def lower(self, desc: Any, device: DeviceSpec, config: Nf4Config) -> tuple[Step, ...]:
        gemm: Gemm = desc.gemm
        split, steps = config.split_k > 1, list[Step]()
        staged = staged_tokens(desc)
        x: Arg = Ptr("x")
        pitch = gemm.a.row
        if staged is not None:
            scratch = staged.scratch(scratch_of(gemm, config.split_k).nbytes if split else 0)
            x, pitch = scratch, staged.pitch
            steps.append(staged.launch(scratch))
        kind, epilogue = epilogue_type(gemm, desc.activation), epilogue_args(gemm)
        if split:
            kind, epilogue = partial_epilogue(gemm, config.split_k)
        shape = (config.tokens, config.strips, config.across, config.along, config.stages, config.depth)
        numbers = ", ".join(map(str, (n for n in shape if n)))
        file, name = (
            (WIDE, "nf4_wide") if config.direct else (FILE, "nf4_gemv") if config.stages else (SKINNY, "nf4_skinny")
        )
        entry = f"{name}<{desc.x_element.number}, {str(config.double).lower()}, {numbers}, {kind}>"
        shift = (desc.block_size // CHUNK).bit_length() - 1
        args: tuple[Arg, ...] = (
            x, Ptr("codes"), magnitudes_struct(desc), settled(epilogue),
            *map(np.uint32, (pitch, gemm.m, gemm.n, gemm.k, shift, config.slabs(gemm.k))),
            *((np.uint32(max(1, config.tiles(gemm.m))),) if config.stages else ()),
            np.uint64(partial_size(gemm) if split else 0),
        )  # fmt: skip
        grid = (config.ctas(gemm.m, gemm.n), config.split_k, 1)
        steps.append(
            Launch(
                Kernel(file, entry), grid, (config.threads, 1, 1), args, config.shared_bytes(gemm.k), overlapped=True
            )
        )
        if split:
            second = reduce_step(desc, gemm, config.split_k)
            steps.append(replace(second, args=tuple(map(settled, second.args))))
        return tuple(steps)
