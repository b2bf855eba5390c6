"""Configurations of the kernel of NF4 products, as a table, and their predicted times."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ....plan.grammar import Config, term
from ....types import DeviceSpec
from ..._fitted import Fitted
from ..._launch import overlapped_overhead
from ...products.gemm import Gemm
from ...products.split import second_pass

__all__ = ["CHUNK", "SMALL", "TABLE", "Nf4Config", "seconds_of"]

CHUNK = 64  # of K: what a sum is multiplied with a magnitude after
TABLE_BYTES = 65536
WARPS_OF_SM, SHARED_OF_SM = 16, 228 * 1024


class Costs(Fitted, table="quantized.nf4"):
    weight_cycles: float
    token_cycles: float
    warps_to_saturate: float
    l2_bytes_per_s: float
    sm_bandwidth_ratio: float
    start_latency_s: float
    wave_latency_s: float
    second_pass_latency_s: float
    staging_latency_s: float
    overlap_norm: float


@dataclass(frozen=True)
class Nf4Config(Config):
    """A CTA's tile: `tokens` rows of x by 16 `strips` `across` rows of the weight, and how K goes by."""

    tokens: int = term("rows of x a CTA takes", leads=True)
    strips: int = term("strips of 16 rows of the weight that a warp multiplies", leads=True)
    across: int = term("warps that share tokens", default=4)
    along: int = term("groups of so many warps, which take slabs in turn", default=4)
    stages: int = term("slabs in shared memory, of each group", default=3)
    depth: int = term("of K, a slab", default=256)
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
    def spread(self) -> int:
        """64s of K that are multiplied at once."""
        return min(max(1, 8 // self.tokens), self.depth // CHUNK)

    @property
    def shared_bytes(self) -> int:
        sums = self.along * self.tokens * self.spread * (self.rows + 4) * 4
        k_blocks = self.along * self.stages * self.depth * (self.rows // 2 + self.tokens * 2)
        return TABLE_BYTES + max(k_blocks, sums)

    @property
    def resident(self) -> int:
        """CTAs that an SM has room for: registers suffice for 16 warps."""
        return max(1, min(WARPS_OF_SM * 32 // self.threads, SHARED_OF_SM // (self.shared_bytes + 1024)))

    def k_blocks(self, k: int) -> int:
        """Slabs of a part of K."""
        k_blocks = -(-k // self.depth)
        return -(-k_blocks // self.split_k)

    def tiles(self, m: int) -> int:
        return -(-m // self.tokens)

    def ctas(self, m: int, n: int) -> int:
        return max(1, -(-n // self.rows) * self.tiles(m))


def _table(*rows: tuple[int, int, int, int, int, int]) -> tuple[Nf4Config, ...]:
    return tuple(Nf4Config(*row) for row in rows)


# Tokens, strips, warps across and along, stages, depth.
TABLE = _table(
    (1, 1, 2, 4, 2, 256), (1, 1, 1, 8, 3, 256), (1, 2, 2, 8, 2, 256), (1, 4, 1, 8, 2, 256),
    (2, 1, 2, 4, 2, 256), (2, 1, 1, 8, 3, 256), (2, 2, 2, 8, 2, 256),
    (4, 1, 2, 4, 2, 256), (4, 1, 1, 8, 3, 256), (4, 2, 2, 6, 2, 256),
    (8, 1, 1, 8, 2, 256), (8, 2, 2, 4, 3, 256), (8, 2, 2, 6, 2, 256), (8, 2, 4, 4, 3, 128), (8, 4, 2, 4, 3, 128),
    (8, 2, 4, 3, 2, 256),
    (16, 1, 1, 4, 2, 256), (16, 1, 2, 4, 2, 256), (16, 2, 4, 3, 2, 256), (16, 2, 4, 3, 3, 128), (16, 4, 4, 2, 2, 256),
    (16, 4, 4, 2, 3, 128), (16, 2, 8, 1, 4, 256), (16, 4, 2, 4, 2, 128),
    (32, 2, 4, 2, 2, 256), (32, 2, 4, 2, 3, 128),
)  # fmt: skip
# Where an SM has 99 KB.
SMALL = _table(
    (1, 1, 4, 2, 2, 256), (2, 1, 4, 2, 3, 128), (4, 1, 4, 2, 3, 128), (8, 1, 4, 2, 2, 128), (16, 1, 4, 2, 2, 128),
    (16, 2, 4, 1, 2, 128),
)  # fmt: skip


def seconds_of(desc: Any, device: DeviceSpec, config: Nf4Config, *, staged: bool) -> tuple[float, str]:
    """The predicted time, and what sets it: memory, products and their lookups, or tokens from L2."""
    gemm: Gemm = desc.gemm
    costs = Costs.of(device)
    n, k = desc.weight_shape
    ctas = config.ctas(gemm.m, n) * config.split_k
    resident_ctas, k_blocks = device.sms * config.resident, -(-config.k_blocks(k) // config.along) * config.along
    waves, rest = divmod(ctas, resident_ctas)
    busiest = waves * config.resident + -(-rest // device.sms)  # CTAs of the SM that has most
    read = n * k * (0.5 + (1 if config.double else 4) / desc.block_size) + 2.0 * gemm.m * k
    clock = device.rate("issue") / (device.sms * 128)
    warps = config.threads // 32 * min(busiest, config.resident)
    tiles = -(-config.tokens // 8)
    each = costs.weight_cycles + costs.token_cycles * (tiles - 1)
    cycles = k_blocks * config.depth * config.rows / 1024 * each / min(1.0, warps / costs.warps_to_saturate)
    limits = {
        "bandwidth": read
        * max(1.0, busiest * device.sms / ctas)
        / (device.bandwidth * min(1.0, ctas / device.sms * costs.sm_bandwidth_ratio)),
        "shared memory": busiest * cycles / clock,
        "L2": busiest * k_blocks * config.depth * (config.rows / 2 + config.tokens * 2) / costs.l2_bytes_per_s,
    }
    limit = max(limits, key=lambda name: limits[name])
    seconds = float(sum(x**costs.overlap_norm for x in limits.values()) ** (1 / costs.overlap_norm))
    seconds += (
        overlapped_overhead(device)
        + costs.start_latency_s
        + max(0, -(-ctas // resident_ctas) - 1) * costs.wave_latency_s
    )
    if config.split_k > 1:
        seconds += float(second_pass(gemm, config.split_k, device, costs.second_pass_latency_s))
    if staged:
        seconds += overlapped_overhead(device) + costs.staging_latency_s + 4.0 * gemm.m * k / device.bandwidth
    return seconds, limit
