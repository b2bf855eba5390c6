"""The cost model of copy kernels: the longest of the times for memory, instructions, stores and loads in flight."""

from __future__ import annotations

from dataclasses import dataclass

from ...plan.candidate import Cost
from ...types import DeviceSpec
from .._fitted import Fitted
from ._walks import CopyProblem

__all__ = ["WARP", "BandwidthCosts", "CopyCosts", "Work"]

LANES, WARP = 128, 32  # thread instructions per clock and SM, threads of a warp


class CopyCosts(Fitted, table="rows.copy"):
    slower_time_ratio: float
    store_cycles: int
    access_cycles: float
    load_latency_s: float
    exposed_ratio: float
    unroll_work_ratio: tuple[float, ...]


class BandwidthCosts(Fitted, table="rows.copy_bandwidth"):
    """Of kernels whose time is taken for that of the bandwidth that they reach."""

    pitched_efficiency: float
    pitched_run_bytes: int
    transposed_block_efficiency: tuple[float, ...]
    other_tile_ratio: float
    transposed_tile_efficiency: float
    transposed_tile_efficiency_per_byte: float
    least_filled_ratio: float
    element_efficiency: float
    element_efficiency_per_byte: float
    scattered_ratio: float
    other_unroll_ratio: float
    nibble_efficiency: float
    dynamic_efficiency: float
    append_efficiency: float


@dataclass(frozen=True)
class Work:
    """What a kernel asks of the SMs: thread instructions, stores to sectors (counted once per store and sector), and the bytes
    that a resident thread has in flight."""

    instructions: float
    stores: float
    in_flight: int
    residents: int = 2048
    accesses: float = 0.0  # a thread's loads, each with its store
    fetched: str = ""

    def cost(self, copy: CopyProblem, device: DeviceSpec) -> Cost:
        """The longest of the times, plus a share of the others, which it mostly hides."""
        costs, issue = CopyCosts.of(device), device.rate("issue")
        times = {
            "bandwidth": copy.traffic(fetched=self.fetched) / device.bandwidth,
            "instruction issue": self.instructions / issue,
            "sectors stored": self.stores * costs.store_cycles * LANES / issue,
            "loads and stores": self.accesses / WARP * costs.access_cycles * LANES / issue,
            "memory latency": copy.nbytes * costs.load_latency_s / (device.sms * self.in_flight * self.residents),
        }
        limit = max(times, key=lambda name: times[name])
        seconds = times[limit] + costs.exposed_ratio * (sum(times.values()) - times[limit])
        if seconds < device.overhead:
            limit = "launch latency"
        return Cost(2 * copy.nbytes, 0, device.overhead + seconds, limit)
