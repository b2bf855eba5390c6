"""wgmma_pages: prompts against keys and values in pages, by Hopper's kernel of whole sequences (kernels/attention/wgmma.cu)."""

from __future__ import annotations

from math import gcd
from typing import Any, ClassVar

from ....plan.candidate import Feasibility, no
from ....runtime.steps import Step
from ....types import DeviceSpec
from .._forward.flash import CAP
from .._forward.wgmma import Wgmma, WgmmaConfig
from .._problem.struct import problem_struct
from .pages import Pages, same_kind
from .splits import cache_struct, scales_struct

__all__ = ["WgmmaPages"]

LEAST_ROWS, ROWS = 16, 8  # keys of a box, at least and a multiple of: rows after which the swizzle repeats


class WgmmaPages(Pages, Wgmma):
    """Many new tokens a sequence against 16-bit pages of a multiple of 16 keys, no ALiBi; the bits of wgmma over the same keys in
    a row."""

    variant = "wgmma_pages"
    takes: ClassVar[int] = CAP
    launches = ("attention/wgmma.cu:attention_wgmma_paged",)

    def supports(self, desc: Any, device: DeviceSpec) -> Feasibility:
        if not (said := same_kind(desc)):
            return said
        if not desc.pages:
            return no("there are no pages", "one or more")
        if not (said := super().supports(desc, device)):
            return said
        rows = box_rows(desc, next(iter(self.configs(desc, device))))
        if rows < LEAST_ROWS or rows % ROWS:
            return no(
                f"a page holds {desc.page_keys} keys, and TMA copies {LEAST_ROWS} or more at a time, a multiple of {ROWS}",
                "pages of a multiple of 16 keys",
            )
        return said

    def lower(self, desc: Any, device: DeviceSpec, config: WgmmaConfig) -> tuple[Step, ...]:
        rows = box_rows(desc, config)
        entry = f"attention_wgmma_paged<{self.template(desc, config)}, {config.keys // rows}>"
        problem, more = problem_struct(desc, k=self.keys, v=self.values), (cache_struct(desc), scales_struct(desc))
        return self.launched(desc, device, config, entry, problem, rows, more, desc.checked)


def box_rows(desc: Any, config: WgmmaConfig) -> int:
    """Keys of a box: as many as divide both a page and a block of keys."""
    return gcd(desc.page_keys, config.keys)
