"""latent_wgmma: the same problems as latent_keys, by Hopper's warpgroup tensor cores, fed by TMA
(kernels/attention/decode_latent_wgmma.cu)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from math import gcd
from typing import Any, ClassVar

import numpy as np

from ....plan.candidate import OK, Candidate, Cost, Feasibility, no
from ....plan.constraints import Kinds
from ....plan.grammar import Config, term
from ....runtime.steps import Arg, Kernel, Launch, Step
from ....types import DeviceSpec, ElementKind, PrecisionGuarantee
from ..._fitted import Fitted
from ..._launch import overlapped_overhead
from ...products.checks import on_hopper
from .._forward.flash import HALVES, MOST_ROWS
from .._forward.wgmma import boxes, product_text, stepped
from .._problem import guarantee as _guarantee
from .._problem.struct import problem_struct
from .latent import COLUMNS, DIMS, LEAST_COLUMNS, ROWS, STATIC, alike, ctas_of, shares, tiles_of
from .pages import same_kind
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

__all__ = ["LatentWgmma", "LatentWgmmaPages"]

KEYS, THREADS = 64, 384
LEAST_BOX, BOX_STEP = 16, 8  # keys of a box, at least and a multiple of: rows after which the swizzle repeats
PANELS = 9  # of a slot of keys
PANEL_BYTES = 128 * KEYS


class Costs(Fitted, table="attention.latent_wgmma"):
    cta_latency_s: float
    tile_cycles: int


@dataclass(frozen=True)
class LatentWgmmaConfig(Config):
    """A CTA's part: rows (queries of the heads that share keys), the keys that it takes at a time, and how many share them."""

    rows: int = term("rows a CTA takes: queries of heads that share keys", leads=True)
    keys: int = term("keys a CTA takes at a time", leads=True)
    splits: int = term("CTAs that share a sequence's keys", default=1)
    fixed: int = term("keys each of them takes, whatever the sequence's length; 0: evenly", default=0)
    dims: int = term("columns of keys, filled up", default=0, hidden=True)

    @property
    def shared_bytes(self) -> int:
        """Queries and two slots of keys."""
        return 2 * self.dims * self.rows + 2 * PANELS * PANEL_BYTES


@lru_cache(maxsize=8)
def prelude(element: ElementKind) -> str:
    """The text of the products: of scores, and of weights in registers or in shared memory with half of the values' columns."""
    half = COLUMNS // 2
    return '#include "core/dtype.cuh"\n' + "".join((
        product_text("wgmma_scores", KEYS, element),
        product_text("wgmma_held", KEYS, element, of_registers=True),
        product_text("wgmma_own", half, element, of_registers=True, b_major="MN"),
        product_text("wgmma_other", half, element, b_major="MN"),
    ))  # fmt: skip


class LatentWgmma(Candidate[Any]):
    """f16 and bf16, no softcap and no ALiBi; values that are the keys' first columns are read with these, others after them."""

    variant = "latent_wgmma"
    launches: ClassVar[tuple[str, ...]] = (
        "attention/decode_latent_wgmma.cu:attention_decode_latent_wgmma", "attention/merge.cu:attention_merge",
    )  # fmt: skip
    constraints = (Kinds("q", HALVES), *tiled("k", "v"))
    keys, values = "k", "v"

    def supports(self, desc: Any, device: DeviceSpec) -> Feasibility:
        for said in (super().supports(desc, device), on_hopper(device), same_kind(desc)):
            if not said:
                return said
        if desc.softcapped or desc.has("alibi_slopes"):
            return no("it has neither softcap nor ALiBi", "latent_keys has both")
        if not LEAST_COLUMNS < desc.d_v <= COLUMNS or desc.d > DIMS[-1]:
            return no(
                f"head dims are {desc.d} and {desc.d_v}: its tiles are for {DIMS[-1]} and {LEAST_COLUMNS + 1} to {COLUMNS}"
            )
        if max(desc.total_q, desc.most_k) >= MOST_ROWS or desc.total_q * desc.group >= MOST_ROWS:
            return no(f"there are more than {MOST_ROWS - 1} queries or keys", "fewer a call")
        if ctas_of(desc, 1) >= 1 << 31:
            return no("it takes 2**31 CTAs or more", "fewer sequences or heads a call")
        if self._tile(desc).shared_bytes + STATIC > device.shared_bytes:
            return no(f"an SM's {device.shared_bytes} bytes of shared memory hold no tile")
        return self._boxed(desc) and stepped(desc, (self.keys, self.values))

    def configs(self, desc: Any, device: DeviceSpec) -> Iterable[LatentWgmmaConfig]:
        """Splits that fill the device up to four times, and those of a fixed length."""
        for splits in shares(desc, device):
            yield self._tile(desc, splits)
        yield self._tile(desc, max(1, -(-desc.most_k // FIXED)), FIXED)

    def cost(self, desc: Any, device: DeviceSpec, config: LatentWgmmaConfig) -> Cost:
        """Waves of CTAs, one an SM, whose tiles take what shared memory takes for them; or the bandwidth."""
        costs, clock = Costs.of(device), device.rate("issue") / 128 / device.sms
        keys, ctas = most_keys(desc), max(ctas_of(desc, config.splits), 1)
        split = min(max(-(-keys // config.splits), LEAST, config.fixed), keys)
        seconds = -(-ctas // device.sms) * (
            costs.cta_latency_s + -(-split // config.keys) * costs.tile_cycles * config.dims / DIMS[-1] / clock
        )
        seconds = max(seconds, desc.batch * desc.kv_heads * keys * 2.0 * desc.d / device.bandwidth)
        seconds += Splits.of(desc, config).seconds(device) + overlapped_overhead(device)
        made = 2.0 * rows_of(desc) * keys * (desc.d + desc.d_v)
        return Cost(desc.nbytes, int(made), seconds, "shared memory")

    def guarantee(self, desc: Any, device: DeviceSpec, config: LatentWgmmaConfig) -> PrecisionGuarantee:
        """A CTA adds up its tiles in order; two consumers' sums and splits are then merged, splits with a factor each."""
        split = min(config.fixed or -(-most_keys(desc) // config.splits) + config.keys, desc.most_k)
        tiles = -(-split // config.keys)
        merged = 2 + (config.splits + 12 if config.splits > 1 else 0)
        made = _guarantee.forward(
            desc, dot=config.dims + 2, keys=tiles * config.keys + merged, blocks=tiles + merged, each=2.0,
            weights=desc.element, batch_invariant=bool(config.fixed),
        )  # fmt: skip
        return with_status(desc, made)

    def lower(self, desc: Any, device: DeviceSpec, config: LatentWgmmaConfig) -> tuple[Step, ...]:
        rows = self._box_rows(desc)
        types = desc.element.number, desc.layout("out").element.number
        template = ", ".join(map(str, (*types, config.dims, KEYS // rows if desc.paged else 0)))
        splits = Splits.of(desc, config)
        args: tuple[Arg, ...] = (
            problem_struct(desc, k=self.keys, v=self.values),
            *(boxes(desc, name, rows) for name in (self.keys, self.values)),
            cache_struct(desc), scales_struct(desc), splits.struct, np.uint32(tiles_of(desc)),
            np.uint32(alike(desc, self.keys, self.values)),
        )  # fmt: skip
        first = Launch(
            Kernel(
                "attention/decode_latent_wgmma.cu", f"attention_decode_latent_wgmma<{template}>", prelude(desc.element)
            ),
            (ctas_of(desc, config.splits) + desc.checked, 1, 1), (THREADS, 1, 1), args, config.shared_bytes, pdl=splits.pdl,
        )  # fmt: skip
        return splits.merged(first, device)

    def _tile(self, desc: Any, splits: int = 1, fixed: int = 0) -> LatentWgmmaConfig:
        return LatentWgmmaConfig(ROWS, KEYS, splits, fixed, next((n for n in DIMS if n >= desc.d), DIMS[-1]))

    def _box_rows(self, desc: Any) -> int:
        return KEYS

    def _boxed(self, desc: Any) -> Feasibility:
        return OK


class LatentWgmmaPages(LatentWgmma):
    """The same, of keys and values in pages of a multiple of 16 keys."""

    variant = "latent_wgmma_pages"
    constraints = (Kinds("q", HALVES), *tiled("k_pages", "v_pages"))
    keys, values = "k_pages", "v_pages"

    def _box_rows(self, desc: Any) -> int:
        """Keys of a box: as many as divide both a page and a block of keys."""
        return gcd(desc.page_keys, KEYS)

    def _boxed(self, desc: Any) -> Feasibility:
        if not desc.pages:
            return no("there are no pages", "one or more")
        rows = self._box_rows(desc)
        if rows < LEAST_BOX or rows % BOX_STEP:
            return no(
                f"a page holds {desc.page_keys} keys, and TMA copies {LEAST_BOX} or more at a time, a multiple of {BOX_STEP}",
                "pages of a multiple of 16 keys",
            )
        return OK
