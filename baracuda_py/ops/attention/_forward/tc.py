"""tc: f16 and bf16 by mma.sync, all scores of few queries in shared memory, for short sequences (kernels/attention/tc.cu)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....plan.candidate import Candidate, Cost, Feasibility, no
from ....plan.constraints import Kinds
from ....plan.grammar import Config, term
from ....runtime.steps import Kernel, Launch, Step
from ....types import DeviceSpec, PrecisionGuarantee
from ..._fitted import Fitted
from .._problem import guarantee as _guarantee
from .._problem.attended import SHORT_KEYS
from .._problem.struct import problem_struct
from .flash import (
    EXPONENTIALS,
    HALVES,
    OPERANDS,
    SHARED_BYTES,
    Costs,
    changed,
    filled_up,
    placed,
    tensor_flops_per_cycle,
    within,
)

__all__ = ["Tc", "TcConfig"]

HEAD_DIMS = (64, 128, 256)  # that kernels are made for; others are filled up with zeros
MOST_KEYS = 1024
BLOCK, WARPS = 64, 4  # keys a CTA takes at a time, and those who share them
MOST_CTAS = 8  # of an SM, by their registers


class TcCosts(Fitted, table="attention.tc"):
    key_block_latency_cycles: int
    unit_efficiency: float


@dataclass(frozen=True)
class TcConfig(Config):
    """A CTA's queries."""

    queries: int = term("queries a CTA takes")
    dims: tuple[int, int] = term("columns of queries and of values, filled up", default=(0, 0), hidden=True)
    keys: int = term("keys whose scores are kept, filled up", default=0, hidden=True)

    @property
    def pitch(self) -> int:
        return self.keys + 8

    @property
    def shared_bytes(self) -> int:
        d, d_v = self.dims
        return 2 * self.queries * d + 4 * BLOCK * max(d, d_v) + 4 * self.queries * self.pitch


def filled(columns: int) -> int:
    """The head dim that kernels are made for."""
    return next((n for n in HEAD_DIMS if n >= columns), HEAD_DIMS[-1])


class Tc(Candidate[Any]):
    """All scores of a CTA's queries in shared memory, one softmax: up to MOST_KEYS keys, every feature."""

    variant = "tc"
    launches = ("attention/tc.cu:attention_tc",)
    constraints = (Kinds("q", HALVES), *OPERANDS)

    def supports(self, desc: Any, device: DeviceSpec) -> Feasibility:
        if not (said := super().supports(desc, device)):
            return said
        if desc.total_k > MOST_KEYS:
            return no(f"there are {desc.total_k} keys, and it keeps scores of {MOST_KEYS} at most", "flash takes any")
        return within(desc, self.configs(desc, device), device)

    def configs(self, desc: Any, device: DeviceSpec) -> Iterable[TcConfig]:
        """Ragged sequences may each have all keys."""
        dims, keys = (filled(desc.d), filled(desc.d_v)), -(-desc.total_k // BLOCK) * BLOCK
        for queries in (16, 32, 64):
            config = TcConfig(queries, dims, keys)
            if config.shared_bytes <= device.shared_bytes:
                yield config

    def cost(self, desc: Any, device: DeviceSpec, config: TcConfig) -> Cost:
        """What tensor cores, exponentials and shared memory take, one behind the other, in as many waves as there are."""
        costs, (d, d_v) = TcCosts.of(device), config.dims
        rows, tile = config.queries, config.queries * BLOCK
        clock_sms = device.rate("issue") / 128
        rate = tensor_flops_per_cycle(device)
        loaded = 2 * 2 * BLOCK * (d + d_v) + 2 * WARPS * rows * d  # by copies and by ldmatrix
        loaded += 4 * tile * (4 + WARPS)  # scores and weights
        clocks = 2.0 * tile * (d + d_v) / rate + tile / EXPONENTIALS + loaded / SHARED_BYTES
        resident = max(1, min(device.shared_bytes // (config.shared_bytes + 1024), MOST_CTAS))
        blocks, ctas = desc.pairs() * filled_up(desc, rows) / tile, max(placed(desc, rows, device).ctas, 1)
        waves = -(-ctas // (device.sms * resident)) * device.sms * resident / ctas
        utilization = blocks * clocks / costs.unit_efficiency * min(waves, 2 * resident) / clock_sms
        chain = 2 * blocks / ctas * costs.key_block_latency_cycles * device.sms / clock_sms
        seconds = max(utilization, chain, desc.nbytes / device.bandwidth)
        return Cost(
            desc.nbytes, int(desc.flops), device.overhead + Costs.of(device).latency_s + seconds, "shared memory"
        )

    def guarantee(self, desc: Any, device: DeviceSpec, config: TcConfig) -> PrecisionGuarantee:
        # A row's result is the same in every configuration. Beside flash only one may promise it, for selection goes by the
        # batch as well.
        lone = desc.tensor_cores and desc.total_k <= SHORT_KEYS
        return _guarantee.forward(
            desc, dot=config.dims[0], keys=desc.total_k, blocks=1, each=2.0, weights=desc.element, batch_invariant=lone
        )

    def lower(self, desc: Any, device: DeviceSpec, config: TcConfig) -> tuple[Step, ...]:
        types = f"{desc.element.number}, {desc.layout('out').element.number}"
        sizes = f"{config.dims[0]}, {config.dims[1]}, {config.queries // 16}"
        kernel = Kernel("attention/tc.cu", f"attention_tc<{types}, {sizes}, {str(changed(desc)).lower()}>")
        places = placed(desc, config.queries, device)
        args = (problem_struct(desc), *places.args, np.uint32(config.pitch))
        return (Launch(kernel, (places.ctas, 1, 1), (32 * WARPS, 1, 1), args, config.shared_bytes),)
