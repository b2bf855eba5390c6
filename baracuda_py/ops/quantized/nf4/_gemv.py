"""gemv of matmul_nf4: codes multiplied without a copy, for 32 tokens a CTA or fewer (kernels/quantized/nf4_gemv.cu).

Activations in another layout than it reads are staged by kernels/quantized/tokens.cu; where K is split, kernels/gemm/reduce.cu
adds the parts.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from ....plan.candidate import OK, Candidate, Constraint, Cost, Feasibility, no
from ....plan.constraints import Aligned
from ....runtime.steps import Arg, Kernel, Launch, Ptr, Step
from ....types import Componentwise, DeviceSpec, PrecisionGuarantee
from ...products.epilogue import epilogue_args, epilogue_type, settled
from ...products.gemm import Gemm
from ...products.guarantee import TRUNCATED, guarantee_of
from ...products.split import partial_epilogue, partial_size, reduce_step, scratch_of
from .._dequantized import of_rounded
from .._staged_tokens import staged_tokens
from ._configs import CHUNK, SMALL, TABLE, Nf4Config, seconds_of
from ._weight import magnitudes_struct

__all__ = ["Nf4Gemv"]

FILE = "quantized/nf4_gemv.cu"
MOST_TOKENS = 128  # rows of x for which weights are not dequantised first
MOST, MOST_VALUES = 1 << 25, 1 << 37  # of N and K, and of all values: blocks are counted in 32 bits
OF_MMA = 16  # of K: an instruction
MOST_SPLITS, LEAST_K_BLOCKS = 16, 2  # parts of K, and k_blocks of a part


@lru_cache(maxsize=256)
def _priced(desc: Any, device: DeviceSpec) -> tuple[tuple[Nf4Config, float, str], ...]:
    """The configurations that fit, with their seconds and what sets them, the fastest first."""
    staged = staged_tokens(desc) is not None
    made = ((c, *seconds_of(desc, device, c, staged=staged)) for c in _fitting(desc, device))
    return tuple(sorted(made, key=lambda priced: priced[1]))


def _fitting(desc: Any, device: DeviceSpec) -> Iterable[Nf4Config]:
    """The table's rows that an SM has room for, with K whole and in as many parts as fill all SMs."""
    (n, k), m = desc.weight_shape, desc.gemm.m
    tokens = [next((t for t in (1, 2, 4, 8, 16) if t >= m), 16)] + [32] * (m > 16)
    held = [[row for row in table if row.shared_bytes <= device.shared_bytes] for table in (TABLE, SMALL)]
    for row in held[0] or held[1]:
        if row.tokens not in tokens:
            continue
        k_blocks = -(-k // row.depth)
        parts = min(MOST_SPLITS, k_blocks // LEAST_K_BLOCKS, device.sms * row.resident // row.ctas(m, n))
        for splits in sorted({1, -(-k_blocks // -(-k_blocks // max(1, parts)))}):
            yield replace(row, double=desc.double, split_k=splits)


class Nf4Gemv(Candidate[Any]):
    """A few tokens, some a CTA: every byte of the weight read once for those, pairs of values looked up in shared memory."""

    variant = "gemv"
    launches = (f"{FILE}:nf4_gemv", "quantized/tokens.cu:stage_tokens", "gemm/reduce.cu:reduce")
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

        A product goes through as many additions as its own sum of 64 has, and those sums of its warp, and those of all warps.
        """
        sums = -(-config.k_blocks(desc.weight_shape[1]) // config.along) * (config.depth // CHUNK)
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
        terms = of_rounded(summed.bound, "rounded_values")
        return replace(summed, bound=replace(summed.bound, terms=terms), exact_weights=False)

    def lower(self, desc: Any, device: DeviceSpec, config: Nf4Config) -> tuple[Step, ...]:
        gemm: Gemm = desc.gemm
        split, steps = config.split_k > 1, list[Step]()
        staged = staged_tokens(desc)
        x: Arg = Ptr("x")
        pitch = gemm.a.row
        if staged is not None:
            scratch = staged.scratch(scratch_of(gemm, config.split_k).nbytes if split else 0)
            x, pitch = scratch, staged.pitch
            steps += staged.launches(scratch)
        kind, epilogue = epilogue_type(gemm, desc.activation), epilogue_args(gemm)
        if split:
            kind, epilogue = partial_epilogue(gemm, config.split_k)
        shape = (config.tokens, config.strips, config.across, config.along, config.stages, config.depth)
        numbers = ", ".join(map(str, shape))
        entry = f"nf4_gemv<{desc.x_element.number}, {str(desc.double).lower()}, {numbers}, {kind}>"
        shift = (desc.block_size // CHUNK).bit_length() - 1
        args: tuple[Arg, ...] = (
            x, Ptr("codes"), magnitudes_struct(desc), settled(epilogue),
            *map(np.uint32, (pitch, gemm.m, gemm.n, gemm.k, shift, config.k_blocks(gemm.k), max(1, config.tiles(gemm.m)))),
            np.uint64(partial_size(gemm) if split else 0),
        )  # fmt: skip
        grid = (config.ctas(gemm.m, gemm.n), config.split_k, 1)
        steps.append(Launch(Kernel(FILE, entry), grid, (config.threads, 1, 1), args, config.shared_bytes, pdl=True))
        if split:
            second = reduce_step(desc, gemm, config.split_k)
            steps.append(replace(second, args=tuple(map(settled, second.args))))
        return tuple(steps)
