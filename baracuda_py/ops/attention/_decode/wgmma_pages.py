"""wgmma_pages: prompts against keys and values in pages, by Hopper's kernel of whole sequences (kernels/attention/wgmma.cu)."""

from __future__ import annotations

from dataclasses import replace
from math import gcd
from typing import Any

from ....plan.candidate import Cost, Feasibility, no
from ....plan.constraints import Kinds
from ....runtime.steps import Step
from ....types import DeviceSpec, PrecisionGuarantee
from .._forward.flash import HALVES
from .._forward.wgmma import Wgmma, WgmmaConfig
from .._problem import guarantee as _guarantee
from .._problem.struct import problem_struct
from .flash_pages import PageCosts
from .splits import cache_struct, scales_struct, tiled, with_status

__all__ = ["WgmmaPages"]

LEAST_ROWS, ROWS = 16, 8  # keys of a box, at least and a multiple of: rows after which the swizzle repeats


class WgmmaPages(Wgmma):
    """Many new tokens a sequence against 16-bit pages of a multiple of 16 keys, no ALiBi; the bits of wgmma over the same keys in
    a row."""

    variant = "wgmma_pages"
    launches = ("attention/wgmma.cu:attention_wgmma_paged",)
    constraints = (Kinds("q", HALVES), *tiled("k_pages", "v_pages"))
    keys, values = "k_pages", "v_pages"
    paged = True

    def supports(self, desc: Any, device: DeviceSpec) -> Feasibility:
        if desc.cached is not desc.element:
            return no(
                f"pages hold {desc.cached} and q {desc.element}: it copies keys as they are", "split_pages widens them"
            )
        if not desc.d_v or not desc.pages:
            return no("values have no columns, or there are no pages", "one of each or more")
        if not (said := super().supports(desc, device)):
            return said
        rows = box_rows(desc, next(iter(self.configs(desc, device))))
        if rows < LEAST_ROWS or rows % ROWS:
            return no(
                f"a page holds {desc.page_keys} keys, and TMA copies {LEAST_ROWS} or more at a time, a multiple of {ROWS}",
                "pages of a multiple of 16 keys",
            )
        return said

    def cost(self, desc: Any, device: DeviceSpec, config: WgmmaConfig) -> Cost:
        dense, costs = super().cost(desc, device, config), PageCosts.of(device)
        return replace(dense, seconds=costs.first_pages_latency_s + costs.page_lookup_time_ratio * dense.seconds)

    def guarantee(self, desc: Any, device: DeviceSpec, config: WgmmaConfig) -> PrecisionGuarantee:
        """Not batch-invariant: whether it is selected goes by the number of sequences and tokens."""
        made = _guarantee.forward(
            desc, dot=config.dims[0] + 2, keys=desc.most_k, blocks=-(-desc.most_k // config.keys), each=2.0,
            weights=desc.element, batch_invariant=False,
        )  # fmt: skip
        return with_status(desc, made)

    def lower(self, desc: Any, device: DeviceSpec, config: WgmmaConfig) -> tuple[Step, ...]:
        rows = box_rows(desc, config)
        entry = f"attention_wgmma_paged<{self.template(desc, config)}, {config.keys // rows}>"
        problem, more = problem_struct(desc, k=self.keys, v=self.values), (cache_struct(desc), scales_struct(desc))
        return self.launched(desc, device, config, entry, problem, rows, more, desc.checked)


def box_rows(desc: Any, config: WgmmaConfig) -> int:
    """Keys of a box: as many as divide both a page and a block of keys."""
    return gcd(desc.page_keys, config.keys)
