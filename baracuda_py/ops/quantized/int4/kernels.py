"""Variants of matmul_int4 that multiply codes in registers: `gemv` for 32 tokens or fewer, `mma` for any number.

The kernels are in kernels/quantized/int4_gemv.cu and int4_mma.cu. Activations in another layout than they read, or are to be
reordered, are staged by kernels/quantized/tokens.cu; where K is split, kernels/gemm/reduce.cu adds the parts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple

import numpy as np

from ....plan.candidate import OK, Candidate, Constraint, Cost, Feasibility, no
from ....plan.constraints import Aligned
from ....runtime.steps import Arg, Kernel, Launch, Ptr, Scratch, Step, Struct
from ....types import Componentwise, DeviceSpec, ElementKind, PrecisionGuarantee, Term
from ...products.epilogue import epilogue_args, epilogue_type, settled
from ...products.gemm import Gemm
from ...products.guarantee import TRUNCATED, guarantee_of
from ...products.split import partial_epilogue, partial_size, reduce_step, scratch_of
from .._arguments import pointer
from .._staged_tokens import staged_tokens
from .configs import BLOCK_K, GEMV, MMA, Int4Config, flush_of, seconds_of

__all__ = ["Int4Gemv", "Int4Kernel", "Int4Mma", "common_epilogue"]

MOST, MOST_CODES = 1 << 25, 1 << 36  # of M, N and K, and of all codes: kernels count in 32 bits
PAIRED, SINGLE = ", true, float>", ", false, float>"  # the end of an epilogue's type
MOST_SPLITS, LEAST_K_BLOCKS = 16, 4  # parts of K, and k_blocks of a part
SHARE_OF_ALL = 2  # groups of warps that share K where any number of tokens is to have the same sums
UNIT_OF_BF16 = 64.0  # Unpack<bf16>::UNIT: sums are kept at its inverse, and lose as much more below 2^-126


def weight_struct(desc: Any, epilogue: Struct, first: int) -> Struct:
    """nibbles::Weight of kernels/include/quantized/int4_weight.cuh, whose columns begin with group `first`."""
    operands = (Ptr("codes"), Ptr("scales"), pointer(desc, "zeros"))
    return Struct((*operands, *settled(epilogue).fields, np.uint32(desc.n), np.uint32(first)))  # type: ignore[arg-type]


def renamed(struct: Struct, names: Mapping[str, str]) -> Struct:
    """The struct of another problem, of whose operands `names` says what they are called there."""
    return Struct(tuple(Ptr(names.get(f.operand, f.operand)) if isinstance(f, Ptr) else f for f in struct.fields))


def common_epilogue(parts: Sequence[Any]) -> str | None:
    """The C++ type of an epilogue for all of several products, stores of single elements where not all can take pairs; None where
    they differ in more."""
    kinds = {epilogue_type(part.gemm, part.activation) for part in parts}
    if len(kinds) > 1:
        kinds = {kind.replace(PAIRED, SINGLE) for kind in kinds}
    return kinds.pop() if len(kinds) == 1 else None


class Tokens(NamedTuple):
    """Where a kernel finds activations: rows at a pitch, of `k` elements, a multiple of 8."""

    at: Ptr | Scratch
    pitch: int
    k: int


@lru_cache(maxsize=256)
def _priced(kernels: Int4Kernel, desc: Any, device: DeviceSpec) -> tuple[tuple[Int4Config, float, str], ...]:
    """The configurations that fit, with their seconds and what sets them, the fastest first."""
    staged = staged_tokens(desc) is not None
    made = ((c, *seconds_of(desc, device, c, staged=staged)) for c in kernels.fitting(desc, device))
    return tuple(sorted(made, key=lambda priced: priced[1]))


class Int4Kernel(Candidate[Any]):
    """What both kernels have in common: they take the same arguments."""

    constraints: ClassVar[tuple[Constraint, ...]] = (Aligned("codes", 16), Aligned("scales", 16))
    table: ClassVar[tuple[Int4Config, ...]]
    most_tokens: ClassVar[int]
    file: ClassVar[str]

    def supports(self, desc: Any, device: DeviceSpec) -> Feasibility:
        if not (said := desc.tiled and super().supports(desc, device)):
            return said
        if desc.has("zeros") and desc.layout("zeros").align < 16:
            return no("zeros are not aligned to 16 bytes", "zeros on a multiple of 16 bytes")
        gemm: Gemm = desc.gemm
        if gemm.batch:
            return no("x and out have rows that are not evenly spaced", "contiguize x")
        if gemm.m > self.most_tokens:
            return no(
                f"there are {gemm.m} tokens, and it takes {self.most_tokens} at most",
                f"{self.most_tokens} tokens a call",
            )
        if max(gemm.m, gemm.n, gemm.k) >= MOST or gemm.n * gemm.k > MOST_CODES:
            return no(
                f"M={gemm.m}, N={gemm.n} and K={gemm.k} are more than kernels count: {MOST} each, {MOST_CODES} codes"
            )
        if not _priced(self, desc, device):
            return no(f"an SM's {device.shared_bytes} bytes of shared memory hold no tile")
        return OK

    def fitting(self, desc: Any, device: DeviceSpec) -> Iterable[Int4Config]:
        """The table's rows, with K whole and in as many parts as fill SMs, or all that they have room for, once and twice."""
        (k, n), m = desc.weight_shape, desc.gemm.m
        k_blocks = -(-k // BLOCK_K)
        for row in self.of_tokens(m):
            config = replace(row, flush=flush_of(desc), zeros=desc.has("zeros"))
            if config.crowded or config.shared_bytes > device.shared_bytes:
                continue
            ctas, resident = max(config.ctas(m, n), 1), config.resident(device)
            most = max(1, min(MOST_SPLITS, k_blocks // LEAST_K_BLOCKS))
            wanted = {1} | {
                min(most, max(1, device.sms * wave_counts // ctas)) for wave_counts in {1, 2, resident, 2 * resident}
            }
            for splits in sorted({-(-k_blocks // -(-k_blocks // w)) for w in wanted}):
                yield replace(config, split_k=splits)

    def of_tokens(self, m: int) -> Iterable[Int4Config]:
        raise NotImplementedError

    def configs(self, desc: Any, device: DeviceSpec) -> Iterable[Int4Config]:
        return [config for config, *_ in _priced(self, desc, device)]

    def ranked(self, desc: Any, device: DeviceSpec) -> Any:
        return iter([(config, seconds) for config, seconds, _ in _priced(self, desc, device)])

    def cost(self, desc: Any, device: DeviceSpec, config: Int4Config) -> Cost:
        seconds, limit = seconds_of(desc, device, config, staged=staged_tokens(desc) is not None)
        return Cost(desc.nbytes, desc.gemm.flops, seconds, limit)

    def guarantee(self, desc: Any, device: DeviceSpec, config: Int4Config) -> PrecisionGuarantee:
        """A group's integers times activations are summed by mma.sync, then each sum times its scale; warps meet at the end."""
        k = config.k_blocks(desc.weight_shape[0]) * BLOCK_K
        flushes = k // config.flush
        additions = k + flushes + (config.warps if config.along_k else config.share) + 2
        # Tiles of mma that share K alike add it up alike, step by step, whatever their extents: one such kind keeps a row's bits
        lone = not config.along_k and config.share == SHARE_OF_ALL and config.split_k == 1
        made = guarantee_of(
            desc,
            desc.precision,
            additions,
            each=TRUNCATED,
            splits=config.split_k,
            batch_invariant=lone,
            in_order=False,
        )
        if desc.x_element is not ElementKind.BF16:
            return made
        assert isinstance(made.bound, Componentwise)
        lost = Term(UNIT_OF_BF16 * flushes, ElementKind.F32, "underflow")
        return replace(made, bound=replace(made.bound, terms=(*made.bound.terms, lost)))

    def lower(self, desc: Any, device: DeviceSpec, config: Int4Config) -> tuple[Step, ...]:
        gemm: Gemm = desc.gemm
        split = config.split_k > 1
        steps, x = self._tokens(desc, scratch_of(gemm, config.split_k).nbytes if split else 0)
        kind, epilogue = epilogue_type(gemm, desc.activation), epilogue_args(gemm)
        if split:
            kind, epilogue = partial_epilogue(gemm, config.split_k)
        weight = weight_struct(desc, epilogue, 0)
        steps.append(self._launch(desc, config, x, kind, (weight,), config.groups_of_columns(gemm.n)))
        if split:
            second = reduce_step(desc, gemm, config.split_k)
            steps.append(replace(second, args=tuple(map(settled, second.args))))
        return tuple(steps)

    def lower_fused(
        self, parts: Sequence[Any], renames: Sequence[Mapping[str, str]], config: Int4Config
    ) -> tuple[Step, ...]:
        """Products of the same tokens in one launch: `renames` says what the operands of each are; K is whole."""
        steps, x = self._tokens(parts[0], 0)
        weights, first = [], 0
        for part, names in zip(parts, renames):
            weights.append(renamed(weight_struct(part, epilogue_args(part.gemm), first), names))
            first += config.groups_of_columns(part.n)
        kind = common_epilogue(parts)
        assert kind is not None, "supports asks"
        steps.append(self._launch(parts[0], config, x, kind, tuple(weights), first))
        return tuple(steps)

    def _tokens(self, desc: Any, past: int) -> tuple[list[Step], Tokens]:
        """Where the kernel finds the tokens, and what puts them there, behind `past` bytes of scratch."""
        staged = staged_tokens(desc)
        if staged is None:
            return [], Tokens(Ptr("x"), desc.gemm.a.row, desc.gemm.k)
        scratch = staged.scratch(past)
        return [*staged.launches(scratch)], Tokens(scratch, staged.pitch, staged.pitch)

    def _launch(
        self, desc: Any, config: Int4Config, x: Tokens, kind: str, weights: tuple[Struct, ...], columns: int
    ) -> Launch:
        gemm: Gemm = desc.gemm
        warps = (config.warps,) if config.along_k else (config.warps, config.parts, config.share)
        numbers = (config.tokens, config.strips, *warps, config.stages, config.flush, str(config.zeros).lower())
        types = f"{desc.x_element.number}, {desc.layout('scales').element.number}"
        extents = (x.pitch, gemm.m, x.k, desc.codes_shape[1], desc.groups, config.k_blocks(gemm.k))
        args: tuple[Arg, ...] = (
            x.at, Struct(tuple(field for weight in weights for field in weight.fields)), *map(np.uint32, extents),
            np.uint64(partial_size(gemm) if config.split_k > 1 else 0),
        )  # fmt: skip
        tiles = 1 if config.along_k else -(-gemm.m // config.tokens)
        name = self.file.rpartition("/")[2].removesuffix(".cu")
        entry = f"{name}<{types}, {', '.join(map(str, numbers))}, {kind}, {len(weights)}>"
        return Launch(
            Kernel(self.file, entry), (columns * tiles, config.split_k, 1), (config.threads, 1, 1), args,
            config.shared_bytes, pdl=True,
        )  # fmt: skip


class Int4Gemv(Int4Kernel):
    """Thirty-two tokens or fewer: every byte of the weights read once, warps sharing K."""

    variant = "gemv"
    launches = ("quantized/int4_gemv.cu:int4_gemv", "quantized/tokens.cu:stage_tokens", "gemm/reduce.cu:reduce")
    table, most_tokens, file = GEMV, 32, "quantized/int4_gemv.cu"

    def of_tokens(self, m: int) -> Iterable[Int4Config]:
        tokens = next(t for t in (1, 2, 4, 8, 16, 24, 32) if t >= m)
        return (row for row in self.table if row.tokens == tokens)


class Int4Mma(Int4Kernel):
    """Tiles of tokens: weights unpacked in registers for all tokens of a tile."""

    variant = "mma"
    launches = ("quantized/int4_mma.cu:int4_mma", "quantized/tokens.cu:stage_tokens", "gemm/reduce.cu:reduce")
    table, most_tokens, file = MMA, MOST, "quantized/int4_mma.cu"

    def of_tokens(self, m: int) -> Iterable[Int4Config]:
        """Rows whose tiles hold no more than they have to."""
        least = {-(-m // row.tokens) for row in self.table}
        fewest = {count: min(r.tokens for r in self.table if -(-m // r.tokens) == count) for count in least}
        return (row for row in self.table if row.tokens == fewest[-(-m // row.tokens)])
