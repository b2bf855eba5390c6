"""The cost model of copy kernels: the longest of the times for memory, instructions, stores and loads in flight."""

from __future__ import annotations

from dataclasses import dataclass

from ...plan.candidate import Cost
from ...types import DeviceSpec
from ._walks import CopyProblem

__all__ = ["BEHIND", "WARP", "Work"]

BEHIND = 1.03  # factor on the predicted time of configurations that were measured to be slower
LANES, WARP = 128, 32  # thread instructions per clock and SM, threads of a warp
# Measured on an H200: SM clocks per sector that a store touches, and per load and store of a warp.
CLOCKS_A_STORE, CLOCKS_AN_ACCESS = 2, 9.5
LATENCY = 0.7e-6  # seconds of a load while memory is busy
SHOWS = 0.1  # the share of hidden work that still adds to the time


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
        issue = device.rate("issue")
        times = {
            "bandwidth": copy.traffic(fetched=self.fetched) / device.bandwidth,
            "instruction issue": self.instructions / issue,
            "sectors stored": self.stores * CLOCKS_A_STORE * LANES / issue,
            "loads and stores": self.accesses / WARP * CLOCKS_AN_ACCESS * LANES / issue,
            "memory latency": copy.nbytes * LATENCY / (device.sms * self.in_flight * self.residents),
        }
        limit = max(times, key=lambda name: times[name])
        seconds = times[limit] + SHOWS * (sum(times.values()) - times[limit])
        if seconds < device.overhead:
            limit = "launch latency"
        return Cost(2 * copy.nbytes, 0, device.overhead + seconds, limit)
