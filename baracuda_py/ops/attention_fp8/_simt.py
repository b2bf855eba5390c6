"""simt: e4m3 operands widened to f32, on every arch (kernels/attention_fp8/simt.cu)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ...plan.candidate import OK, Candidate, Cost, Feasibility, no
from ...plan.constraints import UnitStride
from ...runtime.steps import Kernel, Launch, Step
from ...types import DeviceSpec, PrecisionGuarantee
from ..attention.problem import MOST_CTAS, SimtConfig, SimtCosts, problem_struct
from . import _guarantee
from ._scales import scales_struct
from ._wgmma import Wgmma

__all__ = ["Simt"]

ROWS, KEYS, THREADS = 32, 32, 256  # of a CTA


class Simt(Candidate[Any]):
    """32 queries per CTA, four per warp: any head dims and strides along rows."""

    variant = "simt"
    launches = ("attention_fp8/simt.cu:attention_fp8_simt",)
    constraints = tuple(map(UnitStride, ("q", "k", "v", "out")))

    def supports(self, desc: Any, device: DeviceSpec) -> Feasibility:
        if not (said := super().supports(desc, device)):
            return said
        if max((self._ctas(desc, config) for config in self.configs(desc, device)), default=0) > MOST_CTAS:
            return no(f"it takes more than {MOST_CTAS} CTAs", "fewer sequences or heads a call")
        return OK

    def configs(self, desc: Any, device: DeviceSpec) -> Iterable[SimtConfig]:
        yield SimtConfig(next((n for n in (32, 64, 128, 256) if n >= desc.d_v), 512))

    def cost(self, desc: Any, device: DeviceSpec, config: SimtConfig) -> Cost:
        flops = desc.pairs() * 2.0 * (desc.d * self._chunks(desc, config) + desc.d_v)
        rate = device.rate("f32") * SimtCosts.of(device).fma_efficiency
        waves = max(1.0, device.sms / max(self._ctas(desc, config), 1))  # fewer CTAs than SMs
        seconds = max(flops / rate * waves, desc.nbytes / device.bandwidth)
        return Cost(desc.nbytes, int(desc.flops), device.overhead + seconds, "instruction issue")

    def guarantee(self, desc: Any, device: DeviceSpec, config: SimtConfig) -> PrecisionGuarantee:
        # No row depends on another. Beside wgmma only one may promise it, for selection goes by the batch as well.
        lone = not Wgmma().supports(desc, device)
        return _guarantee.plain(desc, -(-desc.most_k // KEYS), batch_invariant=lone)

    def lower(self, desc: Any, device: DeviceSpec, config: SimtConfig) -> tuple[Step, ...]:
        out = desc.layout("out").element
        kernel = Kernel("attention_fp8/simt.cu", f"attention_fp8_simt<{out.number}, {config.columns // 32}>")
        args = (
            problem_struct(desc), scales_struct(desc), np.uint32(self._tiles(desc)), np.uint32(self._chunks(desc, config)),
        )  # fmt: skip
        return (Launch(kernel, (self._ctas(desc, config), 1, 1), (THREADS, 1, 1), args),)

    def _tiles(self, desc: Any) -> int:
        return int(max(1, -(-desc.launched_q(desc.heads) // ROWS)))

    def _chunks(self, desc: Any, config: SimtConfig) -> int:
        return int(max(1, -(-desc.d_v // config.columns)))

    def _ctas(self, desc: Any, config: SimtConfig) -> int:
        return int(self._tiles(desc) * self._chunks(desc, config) * desc.batch * desc.heads)
