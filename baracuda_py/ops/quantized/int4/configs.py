"""Configurations of the kernels of int4 products, as tables, and their predicted times.

What a row of a table costs: the weights at the device's bandwidth while enough of them are under way, the products at mma.sync's
rate, the unpacking at the rate of issue, and activations, which every CTA reads, at that of L2; these overlap, but not wholly.
The figures were fitted to 1498 times of 77 problems, taken on an H200: those near the fastest are predicted to 7 %, and what is
chosen took 2 % longer than the fastest.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ....plan.grammar import Config, term
from ....types import DeviceSpec
from ..._fitted import Fitted
from ..._launch import overlapped_overhead
from ...products.mma import mma_rate
from ...products.split import second_pass

__all__ = ["GEMV", "MMA", "Int4Config", "flush_of", "seconds_of"]

BLOCK_K = 128  # of K, that is brought and multiplied at once

THREADS_OF_SM, REGISTERS_OF_SM = 2048, 65536


class Costs(Fitted, table="quantized.int4"):
    """Pairs are of gemv and of mma."""

    unpack_instructions: tuple[float, ...]
    product_instructions: tuple[float, ...]
    k_block_instructions: tuple[float, ...]
    mma_rate_ratio: tuple[float, ...]
    warps_to_saturate_tensor_cores: int
    warps_to_saturate_issue: tuple[float, ...]
    round_trip_s: float
    sm_bandwidth_ratio: float
    bandwidth_efficiency: float
    unevenness_exponent: float
    l2_bytes_per_s: float
    start_latency_s: float
    wave_latency_s: float
    second_pass_latency_s: float
    staging_latency_s: float
    shared_k_time_ratio: float
    overlap_norm: float


@dataclass(frozen=True)
class Int4Config(Config):
    """A CTA's tile: `tokens` rows of x by 16 `strips` columns a warp (gemv: a CTA), and how K goes by."""

    tokens: int = term("rows of x a CTA takes", leads=True)
    strips: int = term("strips of 16 columns that a warp multiplies", leads=True)
    warps: int = term("warps a CTA", default=4)
    stages: int = term("slabs of 128 of K in shared memory", default=3)
    parts: int = term("warps that share weights, each with its part of the tokens", default=1)
    share: int = term("groups of so many warps, which take slabs in turn", default=1)
    split_k: int = term("parts of K that are summed apart and then added", default=1)
    along_k: bool = term("warps share K, not columns", default=False, hidden=True)
    flush: int = term("of K that share a scale", default=128, hidden=True)
    zeros: bool = term("whether groups have zero points", default=False, hidden=True)

    @property
    def weights(self) -> int:
        """Bytes of a warp's stage: StageLayout::WEIGHTS."""
        return self.strips * (1024 + BLOCK_K // self.flush * (32 + 16 * self.zeros))

    @property
    def shared_bytes(self) -> int:
        activations = self.tokens * BLOCK_K * 2
        if not self.along_k:
            sums = (self.share - 1) * self.warps * self.strips * -(-self.tokens // 8) * 512
            return max(self.stages * self.share * (self.warps * self.weights + activations), sums)
        sums = self.warps * -(-self.tokens // 8) * 8 * self.strips * 16 * 4
        return max(self.warps * self.stages * (self.weights + activations), sums)

    @property
    def columns(self) -> int:
        """Columns of the result a CTA."""
        return 16 * self.strips * (1 if self.along_k else self.warps)

    @property
    def registers(self) -> int:
        """About, a thread: sums of a group and of all, codes, activations, addresses."""
        sums = self.strips * -(-self.tokens // (8 * self.parts))
        if self.along_k:
            return min(255, 43 + 7 * (self.tokens.bit_length() - 1) + 21 * sums // 2)
        return min(255, 62 + 27 * sums // 2)

    @property
    def crowded(self) -> bool:
        """Whether registers do not suffice: scales of short groups and zero points need more, beside sums of so many tiles."""
        sums = self.strips * -(-self.tokens // (8 * self.parts))
        return not self.along_k and (sums > 11 if self.flush < BLOCK_K else self.zeros and sums > 14)

    @property
    def threads(self) -> int:
        return 32 * self.warps * self.parts * self.share

    def k_blocks(self, k: int) -> int:
        """Slabs of a part of K."""
        k_blocks = -(-k // BLOCK_K)
        return -(-k_blocks // self.split_k)

    def groups_of_columns(self, n: int) -> int:
        return -(-n // self.columns)

    def ctas(self, m: int, n: int) -> int:
        return self.groups_of_columns(n) * -(-m // self.tokens)

    def resident(self, device: DeviceSpec) -> int:
        """CTAs that an SM has room for."""
        threads = self.threads
        return max(
            1,
            min(
                (device.shared_bytes + 1024) // (self.shared_bytes + 1024),
                THREADS_OF_SM // threads,
                REGISTERS_OF_SM // (threads * self.registers),
            ),
        )


def _gemv(*rows: tuple[int, int, int, int]) -> tuple[Int4Config, ...]:
    return tuple(Int4Config(t, s, w, stages, along_k=True) for t, s, w, stages in rows)


# Tokens, strips, warps, stages.
GEMV = _gemv(
    (1, 1, 16, 4), (1, 1, 8, 4), (1, 1, 4, 4), (1, 2, 8, 4), (1, 2, 8, 3), (1, 2, 16, 3), (1, 2, 16, 2),
    (1, 4, 8, 3), (1, 4, 16, 2),
    (2, 1, 16, 4), (2, 1, 8, 4), (2, 2, 8, 3), (2, 2, 16, 3), (2, 4, 8, 3),
    (4, 1, 8, 4), (4, 2, 8, 3), (4, 2, 16, 3), (4, 2, 16, 2), (4, 4, 8, 3), (4, 4, 16, 2),
    (8, 1, 8, 4), (8, 2, 8, 3), (8, 2, 16, 3), (8, 4, 8, 3), (8, 4, 4, 4),
    (16, 1, 8, 3), (16, 2, 8, 3), (16, 4, 8, 3), (16, 4, 4, 4), (16, 2, 16, 2),
    (24, 1, 8, 3), (32, 1, 8, 3),
)  # fmt: skip
# Tokens, strips, warps, stages, parts.
MMA = tuple(
    Int4Config(*row)
    for row in (
        (16, 2, 4, 4, 1),
        (24, 2, 4, 4, 1), (24, 3, 4, 4, 1), (24, 4, 4, 4, 1),
        (32, 2, 4, 4, 1), (32, 3, 4, 4, 1), (32, 2, 8, 4, 1),
        (40, 2, 4, 4, 1), (40, 3, 4, 4, 1), (40, 2, 8, 4, 1),
        (48, 2, 4, 4, 1), (48, 2, 8, 4, 1),
        (56, 2, 4, 4, 1),
        (64, 2, 4, 4, 2), (64, 3, 2, 4, 2), (64, 3, 4, 4, 2),
    )
)  # fmt: skip
MMA += tuple(replace(row, stages=3, share=2) for row in MMA if (row.strips, row.warps, row.parts) == (2, 4, 1))


def flush_of(desc: Any) -> int:
    """Of K, after which a sum is multiplied with its scale: a group, or 128 of one that is all of K."""
    return BLOCK_K if desc.groups == 1 else int(desc.group_size)


def seconds_of(desc: Any, device: DeviceSpec, config: Int4Config, *, staged: bool) -> tuple[float, str]:
    """The predicted time, and what sets it."""
    costs, (k, n), m = Costs.of(device), desc.weight_shape, desc.gemm.m
    in_turn = config.warps if config.along_k else config.share
    ctas, k_blocks = max(1, config.ctas(m, n)) * config.split_k, -(-config.k_blocks(k) // in_turn) * in_turn
    resident_ctas = device.sms * config.resident(device)
    waves, rest = divmod(ctas, resident_ctas)
    # CTAs of the SM that has most, in waves that are as full as SMs have room
    busiest = waves * (resident_ctas // device.sms) + -(-rest // device.sms)
    warps = config.threads // 32 * min(busiest, resident_ctas // device.sms)
    kind = int(not config.along_k)  # which of gemv's and mma's figures
    takers = k_blocks * (1 if config.along_k else config.warps)  # k_blocks of warps
    weights, tokens = config.weights * takers, config.tokens * BLOCK_K * 2.0 * k_blocks
    under_way = device.sms * warps / config.parts * (config.stages - 1) * config.weights * min(1.0, ctas / device.sms)
    share = min(1.0, under_way / (device.bandwidth * costs.round_trip_s), ctas / device.sms * costs.sm_bandwidth_ratio)
    read = float(desc.layout("codes").element.bits // 8 * _count(desc.codes_shape) + 2 * _count(desc.scales_shape))
    if ctas > device.sms:  # an uneven last round
        read *= (busiest * device.sms / ctas) ** costs.unevenness_exponent
    products = -(-config.tokens // 8) * BLOCK_K // 16 * config.strips * takers
    unpack = 2 * costs.unpack_instructions[kind] * weights * config.parts
    issued = costs.product_instructions[kind] * products + costs.k_block_instructions[kind] * takers * config.parts
    issue = unpack + 32 * issued
    rate = mma_rate(device, desc.precision) * costs.mma_rate_ratio[kind]
    utilization = min(1.0, warps / costs.warps_to_saturate_issue[kind])
    limits = {
        "bandwidth": read / (device.bandwidth * costs.bandwidth_efficiency * share),
        "tensor cores": busiest
        * products
        * 4096.0
        * device.sms
        / (rate * min(1.0, warps / costs.warps_to_saturate_tensor_cores)),
        "instruction issue": busiest * issue * device.sms / (device.rate("issue") * utilization),
        "L2": busiest * (weights + tokens) / costs.l2_bytes_per_s,
    }
    if kind:  # 128 bytes a cycle, as many as instructions of lanes: what all warps read, and what comes
        through = takers * (config.weights * config.parts + config.tokens * BLOCK_K * 2.0) + weights + tokens
        limits["shared memory"] = busiest * through * device.sms / device.rate("issue")
    limit = max(limits, key=lambda name: limits[name])
    seconds = float(sum(each**costs.overlap_norm for each in limits.values()) ** (1 / costs.overlap_norm))
    seconds *= costs.shared_k_time_ratio if config.share > 1 else 1.0
    seconds += (
        overlapped_overhead(device)
        + costs.start_latency_s
        + max(0, -(-ctas // resident_ctas) - 1) * costs.wave_latency_s
    )
    if config.split_k > 1:
        seconds += float(second_pass(desc.gemm, config.split_k, device, costs.second_pass_latency_s))
    if staged:
        seconds += overlapped_overhead(device) + costs.staging_latency_s + 4.0 * m * k / device.bandwidth
    return seconds, limit


def _count(shape: tuple[int, ...]) -> int:
    count = 1
    for extent in shape:
        count *= extent
    return count
