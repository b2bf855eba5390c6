"""latent_keys: decoding where many heads share a key of up to 576 columns that holds the values too
(kernels/attention/decode_latent.cu)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from ....plan.candidate import OK, Candidate, Cost, Feasibility, no
from ....plan.grammar import Config, term
from ....runtime.steps import Arg, Kernel, Launch, Step
from ....types import ArchSku, DeviceSpec, PrecisionGuarantee
from ..._fitted import Fitted
from ..._launch import overlapped_overhead
from .._forward.flash import HALVES, MOST_ROWS, SHARED_BYTES, tensor_flops_per_cycle
from .._problem import guarantee as _guarantee
from .._problem.struct import problem_struct
from .latent import COLUMNS, DIMS, LEAST_COLUMNS, ROWS, STATIC, alike, ctas_of, shares, tiles_of
from .latent_wgmma import LatentWgmma, LatentWgmmaPages
from .splits import (
    FIXED,
    LEAST,
    Splits,
    cache_struct,
    most_keys,
    rows_of,
    scales_struct,
    tiled,
    with_status,
)

__all__ = ["LatentKeys", "LatentKeysConfig", "LatentPages"]

WARPS = 8


class Costs(Fitted, table="attention.latent"):
    cta_latency_s: float
    tile_cycles: int
    halved_tile_cycles: int
    unit_efficiency: float


@dataclass(frozen=True)
class LatentKeysConfig(Config):
    """A CTA's part: rows (queries of the heads that share keys), the keys that it takes at a time, and how many share them."""

    rows: int = term("rows a CTA takes: queries of heads that share keys", leads=True)
    keys: int = term("keys a CTA takes at a time", leads=True)
    splits: int = term("CTAs that share a sequence's keys", default=1)
    fixed: int = term("keys each of them takes, whatever the sequence's length; 0: evenly", default=0)
    halved: bool = term("whether two warps share scores of 32 keys, each by half of the columns", default=False)
    dims: int = term("columns of keys, filled up", default=0, hidden=True)

    @property
    def shared_bytes(self) -> int:
        """Queries, two tiles of keys, and weights."""
        return 2 * (self.dims * (self.rows + 2 * self.keys) + self.rows * self.keys)


def _changed(desc: Any) -> bool:
    """Whether scores are more than products with a scale."""
    return bool(desc.softcapped or desc.has("alibi_slopes"))


class LatentKeys(Candidate[Any]):
    """Every feature, f16 and bf16; values that are the keys' first columns are read with these, others beside them."""

    variant = "latent_keys"
    launches = ("attention/decode_latent.cu:attention_decode_latent", "attention/merge.cu:attention_merge")
    constraints = tiled("k", "v")
    keys, values = "k", "v"
    beside: ClassVar[LatentWgmma] = LatentWgmma()  # which promises batch invariance where both serve

    def supports(self, desc: Any, device: DeviceSpec) -> Feasibility:
        if not (said := super().supports(desc, device)):
            return said
        if desc.element not in HALVES or desc.cached is not desc.element:
            return no(
                f"q holds {desc.element} and caches {desc.cached}: it multiplies f16 or bf16", "a cast to one of them"
            )
        if not LEAST_COLUMNS < desc.d_v <= COLUMNS or desc.d > DIMS[-1]:
            return no(
                f"head dims are {desc.d} and {desc.d_v}: its tiles are for {DIMS[-1]} and {LEAST_COLUMNS + 1} to {COLUMNS}"
            )
        if max(desc.total_q, desc.most_k) >= MOST_ROWS or desc.total_q * desc.group >= MOST_ROWS:
            return no(f"there are more than {MOST_ROWS - 1} queries or keys", "fewer a call")
        if (tile := self._tile(desc, device)) is None:
            return no(f"an SM's {device.shared_bytes} bytes of shared memory hold no tile")
        if ctas_of(desc, tile.splits) >= 1 << 31:
            return no("it takes 2**31 CTAs or more", "fewer sequences or heads a call")
        return OK

    def configs(self, desc: Any, device: DeviceSpec) -> Iterable[LatentKeysConfig]:
        """Splits that fill the device up to four times, and those of a fixed length."""
        if (tile := self._tile(desc, device)) is None:
            return
        for splits in shares(desc, device):
            yield replace(tile, splits=splits)
            if tile.keys == 64 and device.tier is ArchSku.SM90A and not _changed(desc):  # elsewhere it spills
                yield replace(tile, splits=splits, halved=True)
        yield replace(tile, splits=max(1, -(-desc.most_k // FIXED)), fixed=FIXED)

    def cost(self, desc: Any, device: DeviceSpec, config: LatentKeysConfig) -> Cost:
        """Waves of CTAs, one an SM, whose tiles take what the busier of tensor cores and shared memory take for scores, and then
        for values; or the bandwidth."""
        costs, clock_sms = Costs.of(device), device.rate("issue") / 128
        rate = tensor_flops_per_cycle(device)
        # A warp's rows and keys of scores; rows and columns of values, whose weights every warp reads
        own = config.rows * config.keys // 16 // WARPS
        scores = 2 * WARPS * config.dims * (own + 16)
        if config.halved:  # as many rows and 32 keys, half of the columns each; sums go through shared memory once
            scores = WARPS * config.dims * (own + 32) + 8 * config.rows * config.keys
        values = 2 * WARPS * config.keys * (config.rows + COLUMNS // WARPS)
        flops = (2.0 * config.rows * config.keys * n for n in (config.dims, COLUMNS))
        busiest = (max(traffic / SHARED_BYTES, work / rate) for traffic, work in zip((scores, values), flops))
        copied = 2 * config.keys * config.dims / SHARED_BYTES
        clocks = (
            (sum(busiest) + copied) / costs.unit_efficiency
            + costs.tile_cycles
            + costs.halved_tile_cycles * config.halved
        )
        keys = most_keys(desc)
        split = min(max(-(-keys // config.splits), LEAST, config.fixed), keys)
        ctas = max(ctas_of(desc, config.splits), 1)
        seconds = -(-ctas // device.sms) * (
            costs.cta_latency_s + -(-split // config.keys) * clocks / clock_sms * device.sms
        )
        seconds = max(seconds, desc.batch * desc.kv_heads * keys * 2.0 * desc.d / device.bandwidth)
        seconds += Splits.of(desc, config).seconds(device) + overlapped_overhead(device)
        made = 2.0 * rows_of(desc) * keys * (desc.d + desc.d_v)
        return Cost(desc.nbytes, int(made), seconds, "shared memory")

    def guarantee(self, desc: Any, device: DeviceSpec, config: LatentKeysConfig) -> PrecisionGuarantee:
        """A CTA adds up its tiles in order; warps' sums of weights and splits are then merged, splits with a factor each."""
        split = min(config.fixed or -(-most_keys(desc) // config.splits) + config.keys, desc.most_k)
        blocks = -(-split // config.keys)
        merged = config.keys // 16 + (config.splits + 12 if config.splits > 1 else 0)
        made = _guarantee.forward(
            desc, dot=config.dims + 2, keys=blocks * config.keys + merged, blocks=blocks + merged, each=2.0,
            weights=desc.element, batch_invariant=bool(config.fixed) and not self.beside.supports(desc, device),
        )  # fmt: skip
        return with_status(desc, made)

    def lower(self, desc: Any, device: DeviceSpec, config: LatentKeysConfig) -> tuple[Step, ...]:
        flags = (str(flag).lower() for flag in (config.halved, _changed(desc), desc.paged))
        types = desc.element.number, desc.layout("out").element.number
        entry = f"attention_decode_latent<{', '.join(map(str, (*types, config.dims, COLUMNS, config.keys, *flags)))}>"
        splits = Splits.of(desc, config)
        args: tuple[Arg, ...] = (
            problem_struct(desc, k=self.keys, v=self.values), cache_struct(desc), scales_struct(desc), splits.struct,
            np.uint32(tiles_of(desc)), np.uint32(alike(desc, self.keys, self.values)),
        )  # fmt: skip
        first = Launch(
            Kernel("attention/decode_latent.cu", entry), (ctas_of(desc, config.splits) + desc.checked, 1, 1), (32 * WARPS, 1, 1),
            args, config.shared_bytes, pdl=splits.pdl,
        )  # fmt: skip
        return splits.merged(first, device)

    def _tile(self, desc: Any, device: DeviceSpec) -> LatentKeysConfig | None:
        """As many keys as there is room for."""
        dims = next(n for n in DIMS if n >= min(desc.d, DIMS[-1]))
        made = (LatentKeysConfig(ROWS, keys, dims=dims) for keys in (64, 32))
        return next((c for c in made if c.shared_bytes + STATIC <= device.shared_bytes), None)


class LatentPages(LatentKeys):
    """The same, of keys and values in pages of any size."""

    variant = "latent_pages"
    constraints = tiled("k_pages", "v_pages")
    keys, values = "k_pages", "v_pages"
    beside = LatentWgmmaPages()
