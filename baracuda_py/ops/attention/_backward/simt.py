"""simt: a gradient a launch by plain multiply-adds, any type, head dims and features (kernels/attention/backward_simt.cu)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....plan.candidate import OK, Candidate, Change, Cost, Feasibility, no
from ....plan.constraints import UnitStride
from ....plan.grammar import Config, term
from ....runtime.steps import Kernel, Launch
from ....types import DeviceSpec, ElementKind, MathPrecision, PrecisionGuarantee
from .._forward.simt import DOUBLE_RATE, MOST_CTAS, ROWS, THREADS, Costs
from .._problem.attended import computed
from .._problem.struct import problem_struct
from . import guarantee as _backward_guarantee
from .flash import FlashBackward
from .gradients import COMMON_LAUNCHES, bias_seconds, gradients_struct, of_biases, of_rows, of_sinks, types_of

__all__ = ["SimtBackward", "SimtBackwardConfig"]

KERNEL = "attention/backward_simt.cu"
UNIT_STRIDES = ("grad_q", "grad_k", "grad_v", "grad", "q", "k", "v", "out")


@dataclass(frozen=True)
class SimtBackwardConfig(Config):
    """How wide a CTA's part of a gradient is; it has 32 rows."""

    columns: int = term("columns of the result a CTA computes")


class SimtBackward(Candidate[Any]):
    """32 queries or keys a CTA, a warp four of them; scores are computed once for each gradient."""

    variant = "simt"
    launches = (*COMMON_LAUNCHES, f"{KERNEL}:attention_backward_simt")
    constraints = tuple(map(UnitStride, UNIT_STRIDES))

    def supports(self, desc: Any, device: DeviceSpec) -> Feasibility:
        if not (said := super().supports(desc, device)):
            return said
        if desc.precision is MathPrecision.TF32:
            return no("it multiplies f32 as f32", change=Change({"math": MathPrecision.F32}))
        for config in self.configs(desc, device):
            if max((launch.grid[0] for launch in self.lower(desc, device, config)), default=0) > MOST_CTAS:
                return no(f"it takes more than {MOST_CTAS} CTAs", "fewer sequences or heads a call")
        return OK

    def configs(self, desc: Any, device: DeviceSpec) -> Iterable[SimtBackwardConfig]:
        most = 256 if computed(desc.element) is ElementKind.F64 else 512
        yield SimtBackwardConfig(next((n for n in (32, 64, 128, 256) if n >= max(desc.d, desc.d_v)), most))

    def cost(self, desc: Any, device: DeviceSpec, config: SimtBackwardConfig) -> Cost:
        double = computed(desc.element) is ElementKind.F64
        flops = desc.pairs() * 2.0 * (5 * desc.d * -(-desc.d // config.columns) + 3 * desc.d_v)
        rate = device.rate("f32") * Costs.of(device).fma_efficiency * (DOUBLE_RATE if double else 1.0)
        ctas = sum(launch.grid[0] for launch in self.lower(desc, device, config)[-3:]) / 3
        waves = max(1.0, device.sms / max(ctas, 1))  # fewer CTAs than SMs
        seconds = max(flops / rate * waves, desc.nbytes / device.bandwidth)
        return Cost(
            desc.nbytes,
            int(desc.flops),
            4 * device.overhead + seconds + bias_seconds(desc, device),
            "instruction issue",
        )

    def guarantee(self, desc: Any, device: DeviceSpec, config: SimtBackwardConfig) -> PrecisionGuarantee:
        # No row depends on another sequence. Beside tensor cores' variants it may not promise this: selection goes by the batch.
        lone = not FlashBackward("deterministic", ordered=True).supports(desc, device)
        return _backward_guarantee.backward(desc, invariant=lone)

    def lower(self, desc: Any, device: DeviceSpec, config: SimtBackwardConfig) -> tuple[Launch, ...]:
        problem, gradients = problem_struct(desc), gradients_struct(desc)

        def one(of: str, rows: int, heads: int, columns: int) -> Launch:
            tiles, chunks = max(1, -(-rows // ROWS)), max(1, -(-columns // config.columns))
            entry = f"attention_backward_simt<{types_of(desc)}, {of}, {config.columns // 32}>"
            grid = (tiles * chunks * desc.batch * heads, 1, 1)
            args = (problem, gradients, np.uint32(tiles), np.uint32(chunks))
            return Launch(Kernel(KERNEL, entry), grid, (THREADS, 1, 1), args)

        steps: tuple[Launch, ...] = (
            of_rows(desc, gradients, vector=False),
            *of_sinks(desc, gradients),
            *of_biases(desc, gradients),
            one("QUERIES", desc.launched_q(desc.heads), desc.heads, desc.d),
            one("KEYS", desc.launched_k(desc.kv_heads), desc.kv_heads, desc.d),
            one("VALUES", desc.launched_k(desc.kv_heads), desc.kv_heads, desc.d_v),
        )
        return tuple(step for step in steps if step.grid[0])
