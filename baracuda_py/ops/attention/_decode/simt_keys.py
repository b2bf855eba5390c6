"""simt_keys: decoding by plain multiply-adds, for any type, head dims and addresses (kernels/attention/decode_simt.cu)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....plan.candidate import OK, Candidate, Cost, Feasibility, no
from ....plan.constraints import UnitStride
from ....plan.grammar import Config, term
from ....runtime.steps import Arg, Kernel, Launch, Step
from ....types import DeviceSpec, ElementKind, PrecisionGuarantee
from ..._fitted import Fitted
from ..._launch import overlapped_overhead
from .._forward.flash import MOST_ROWS
from .._problem import guarantee as _guarantee
from .._problem.attended import computed
from .._problem.struct import problem_struct
from .split_keys import SplitKeys, SplitPages
from .splits import FIXED, LEAST, MOST_SPLITS, Splits, cache_struct, most_keys, scales_struct, stored_as, with_status

__all__ = ["SimtKeys", "SimtKeysConfig", "SimtPages"]

WARPS, KEYS = 4, 32  # of a CTA; that a warp takes at a time
RESIDENT = 6  # CTAs an SM


class Costs(Fitted, table="attention.simt_keys"):
    key_block_s: float


@dataclass(frozen=True)
class SimtKeysConfig(Config):
    """A CTA's part: columns of values, and how many share a sequence's keys."""

    columns: int = term("columns of values a CTA takes", leads=True)
    splits: int = term("CTAs that share a sequence's keys", default=1)
    fixed: int = term("keys each of them takes, whatever the sequence's length; 0: evenly", default=0)


class SimtKeys(Candidate[Any]):
    """What tensor cores or 16-byte loads cannot serve: every type and feature, rows that begin anywhere."""

    variant = "simt_keys"
    launches = ("attention/decode_simt.cu:attention_decode_simt", "attention/merge.cu:attention_merge")
    keys, values = "k", "v"
    beside: SplitKeys = SplitKeys()
    constraints = tuple(map(UnitStride, ("q", "k", "v", "out")))

    def supports(self, desc: Any, device: DeviceSpec) -> Feasibility:
        if not (said := super().supports(desc, device)):
            return said
        if not desc.d_v:
            return no("values have no columns", "values of one or more")
        if max(desc.total_q, desc.most_k) >= MOST_ROWS or desc.total_q * desc.group >= MOST_ROWS:
            return no(f"there are more than {MOST_ROWS - 1} queries or keys", "fewer a call")
        config = next(iter(self.configs(desc, device)))
        if self._shared_bytes(desc, config) > device.shared_bytes:
            return no(f"an SM's {device.shared_bytes} bytes of shared memory hold no query of {desc.d} columns")
        if self._ctas(desc, config) >= 1 << 31:
            return no("it takes 2**31 CTAs or more", "fewer sequences or heads a call")
        return OK

    def configs(self, desc: Any, device: DeviceSpec) -> Iterable[SimtKeysConfig]:
        """One split, as many as fill the device, and those of a fixed length. What is summed in f64 is not merged in f32."""
        columns = next((n for n in (32, 64, 128) if n >= desc.d_v), 256)
        one = SimtKeysConfig(columns)
        yield one
        if computed(desc.element) is ElementKind.F64:
            return
        filled = device.sms * RESIDENT // max(self._ctas(desc, one), 1)
        if (splits := min(filled, MOST_SPLITS, -(-most_keys(desc) // LEAST))) > 1:
            yield SimtKeysConfig(columns, splits)
        yield SimtKeysConfig(columns, max(1, -(-desc.most_k // FIXED)), FIXED)

    def cost(self, desc: Any, device: DeviceSpec, config: SimtKeysConfig) -> Cost:
        """By the time of a warp, whose loads wait for each other."""
        each = -(-min(-(-most_keys(desc) // config.splits), config.fixed or desc.most_k) // (KEYS * WARPS))
        waves = -(-self._ctas(desc, config) // (device.sms * RESIDENT))
        seconds = waves * max(each, 1) * Costs.of(device).key_block_s * (
            1 + (desc.d + config.columns) / 256
        ) + overlapped_overhead(device) * (1 + (config.splits > 1))
        return Cost(desc.nbytes, int(desc.flops), max(seconds, desc.nbytes / device.bandwidth), "instruction issue")

    def guarantee(self, desc: Any, device: DeviceSpec, config: SimtKeysConfig) -> PrecisionGuarantee:
        """A warp adds up its own keys; warps and splits are then merged, each with a factor of its own."""
        split = min(config.fixed or -(-most_keys(desc) // config.splits) + KEYS * WARPS, desc.most_k)
        blocks = -(-split // (KEYS * WARPS))
        merged = WARPS + (config.splits + 12 if config.splits > 1 else 0)
        # Beside the tensor cores' only one may promise it, for selection goes by the batch as well
        lone = not self.beside.supports(desc, device)
        fixed = bool(config.fixed) or computed(desc.element) is ElementKind.F64
        made = _guarantee.forward(
            desc, dot=desc.d + 2, keys=KEYS * blocks + merged, blocks=blocks + merged, batch_invariant=lone and fixed
        )
        return with_status(desc, made)

    def lower(self, desc: Any, device: DeviceSpec, config: SimtKeysConfig) -> tuple[Step, ...]:
        c, out = computed(desc.element), desc.layout("out").element
        types = (desc.element.number, stored_as(desc.cached), out.number, c.number, config.columns // 32)
        entry = f"attention_decode_simt<{', '.join(map(str, types))}, {str(desc.paged).lower()}>"
        splits = Splits.of(desc, config)
        args: tuple[Arg, ...] = (
            problem_struct(desc, k=self.keys, v=self.values), cache_struct(desc), scales_struct(desc), splits.struct,
            np.uint32(max(desc.most_q, 1)), np.uint32(self._chunks(desc, config)),
        )  # fmt: skip
        first = Launch(
            Kernel("attention/decode_simt.cu", entry), (self._ctas(desc, config) + desc.checked, 1, 1), (32 * WARPS, 1, 1), args,
            self._shared_bytes(desc, config), pdl=splits.pdl,
        )  # fmt: skip
        return splits.merged(first, device)

    def _chunks(self, desc: Any, config: SimtKeysConfig) -> int:
        return int(max(1, -(-desc.d_v // config.columns)))

    def _ctas(self, desc: Any, config: SimtKeysConfig) -> int:
        return int(desc.batch * desc.heads * max(desc.most_q, 1) * self._chunks(desc, config) * config.splits)

    def _shared_bytes(self, desc: Any, config: SimtKeysConfig) -> int:
        return int((computed(desc.element).bits // 8) * (desc.d + WARPS * config.columns))


class SimtPages(SimtKeys):
    """The same, of keys and values in pages of any size."""

    variant = "simt_pages"
    keys, values = "k_pages", "v_pages"
    beside = SplitPages()
    constraints = tuple(map(UnitStride, ("q", "k_pages", "v_pages", "out")))
