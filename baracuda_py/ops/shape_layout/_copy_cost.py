"""What a copy's kernels cost: the time of what takes longest of memory, instructions, stores and loads under way."""

from __future__ import annotations

from dataclasses import dataclass

from ...plan.candidate import Cost
from ...types import DeviceSpec
from ._walks import CopyProblem

__all__ = ["BEHIND", "WARP", "Work"]

BEHIND = 1.03  # predicted time of a configuration that was measured to be slower
LANES, WARP = 128, 32  # thread instructions a clock of an SM, threads of a warp
# Seen on an H200: clocks of an SM for each sector that a store goes to, and for a warp's load and store.
CLOCKS_A_STORE, CLOCKS_AN_ACCESS = 2, 9.5
LATENCY = 0.7e-6  # seconds of a load while memory is busy
SHOWS = 0.1  # the share that shows of what other work hides


@dataclass(frozen=True)
class Work:
    """What a kernel asks of the SMs: thread instructions, sectors stored to (a sector counts for each store that it takes), and
    the bytes that a resident thread has under way."""

    instructions: float
    stores: float
    in_flight: int
    residents: int = 2048
    accesses: float = 0.0  # a thread's loads, each with its store
    fetched: str = ""

    def cost(self, copy: CopyProblem, device: DeviceSpec) -> Cost:
        """The time of what takes longest; of the rest, which it mostly hides, a share shows."""
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
