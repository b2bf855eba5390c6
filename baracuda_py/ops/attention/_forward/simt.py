"""simt: plain multiply-adds, for any type, head dims and features (kernels/attention/simt.cu)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....plan.candidate import OK, Candidate, Change, Cost, Feasibility, no
from ....plan.constraints import UnitStride
from ....plan.grammar import Config, term
from ....runtime.steps import Kernel, Launch, Step
from ....types import DeviceSpec, ElementKind, MathPrecision, PrecisionGuarantee
from ..._fitted import Fitted
from .._problem import guarantee as _guarantee
from .._problem.attended import computed
from .._problem.struct import problem_struct
from .flash import Flash
from .tc import Tc

__all__ = ["MOST_CTAS", "Costs", "Simt", "SimtConfig"]

ROWS, KEYS, THREADS = 32, 32, 256  # of a CTA
MOST_CTAS = (1 << 31) - 1
DOUBLE_RATE = 1 / 32  # of f32's, where a device has no figure


class Costs(Fitted, table="attention.simt"):
    fma_efficiency: float


@dataclass(frozen=True)
class SimtConfig(Config):
    """How wide a CTA's part of the result is; it has 32 queries."""

    columns: int = term("columns of the result a CTA computes")


class Simt(Candidate[Any]):
    """32 queries a CTA, a warp four of them: any type, head dims, strides along rows, and every feature."""

    variant = "simt"
    launches = ("attention/simt.cu:attention_simt",)
    constraints = tuple(map(UnitStride, ("q", "k", "v", "out")))

    def supports(self, desc: Any, device: DeviceSpec) -> Feasibility:
        if not (said := super().supports(desc, device)):
            return said
        if desc.precision is MathPrecision.TF32:
            return no("it multiplies f32 as f32", change=Change({"math": MathPrecision.F32}))
        if desc.name.startswith("attention_tc") and any(one.supports(desc, device) for one in (Tc(), Flash())):
            return no(f"it has no tensor-core code, which {desc.name} is for", "attention, which takes any variant")
        if max((self._ctas(desc, config) for config in self.configs(desc, device)), default=0) > MOST_CTAS:
            return no(f"it takes more than {MOST_CTAS} CTAs", "fewer sequences or heads a call")
        return OK

    def configs(self, desc: Any, device: DeviceSpec) -> Iterable[SimtConfig]:
        most = 256 if computed(desc.element) is ElementKind.F64 else 512
        yield SimtConfig(next((n for n in (32, 64, 128, 256) if n >= desc.d_v), most))

    def cost(self, desc: Any, device: DeviceSpec, config: SimtConfig) -> Cost:
        double = computed(desc.element) is ElementKind.F64
        flops = desc.pairs() * 2.0 * (desc.d * self._chunks(desc, config) + desc.d_v)
        rate = device.rate("f32") * Costs.of(device).fma_efficiency * (DOUBLE_RATE if double else 1.0)
        ctas = self._ctas(desc, config)
        waves = max(1.0, device.sms / max(ctas, 1))  # fewer CTAs than SMs
        seconds = max(flops / rate * waves, desc.nbytes / device.bandwidth)
        return Cost(desc.nbytes, int(desc.flops), device.overhead + seconds, "instruction issue")

    def guarantee(self, desc: Any, device: DeviceSpec, config: SimtConfig) -> PrecisionGuarantee:
        # No row depends on another. Beside flash only one may promise it, for selection goes by the batch as well.
        lone = not Flash().supports(desc, device)
        blocks = -(-desc.most_k // KEYS)
        return _guarantee.forward(desc, dot=desc.d, keys=desc.most_k, blocks=blocks, batch_invariant=lone)

    def lower(self, desc: Any, device: DeviceSpec, config: SimtConfig) -> tuple[Step, ...]:
        c = computed(desc.element)
        types = f"{desc.element.number}, {desc.layout('out').element.number}, {c.number}"
        kernel = Kernel("attention/simt.cu", f"attention_simt<{types}, {config.columns // 32}>")
        args = (problem_struct(desc), np.uint32(self._tiles(desc)), np.uint32(self._chunks(desc, config)))
        return (Launch(kernel, (self._ctas(desc, config), 1, 1), (THREADS, 1, 1), args),)

    def _tiles(self, desc: Any) -> int:
        return int(max(1, -(-desc.launched_q(desc.heads) // ROWS)))

    def _chunks(self, desc: Any, config: SimtConfig) -> int:
        return int(max(1, -(-desc.d_v // config.columns)))

    def _ctas(self, desc: Any, config: SimtConfig) -> int:
        return int(self._tiles(desc) * self._chunks(desc, config) * desc.batch * desc.heads)
