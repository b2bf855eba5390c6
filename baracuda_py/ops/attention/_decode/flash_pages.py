"""flash_pages: prompts against keys and values in pages, by the kernel of whole sequences (kernels/attention/flash.cu)."""

from __future__ import annotations

from typing import Any

from ....plan.candidate import Candidate, Feasibility, no
from ....runtime.steps import Kernel, Launch, Step
from ....types import DeviceSpec
from .._forward.flash import Flash, FlashConfig, changes, placed, within
from .._problem.attended import MOST
from .._problem.struct import problem_struct
from .pages import Pages, same_kind
from .splits import cache_struct, scales_struct

__all__ = ["FlashPages"]


class FlashPages(Pages, Flash):
    """Many new tokens a sequence against 16-bit pages of any size, every feature; a CTA takes all keys that its queries see."""

    variant = "flash_pages"
    launches = ("attention/flash.cu:attention_flash_paged",)

    def supports(self, desc: Any, device: DeviceSpec) -> Feasibility:
        if not (said := Candidate.supports(self, desc, device)):
            return said
        if not (said := same_kind(desc)):
            return said
        for name in (self.keys, self.values):
            if abs(desc.strides_of(name).batch) > MOST:
                return no(f"{name}' pages are 2**31 elements apart or more", "contiguize them")
        return within(desc, self.configs(desc, device), device, ("q", self.keys, self.values))

    def lower(self, desc: Any, device: DeviceSpec, config: FlashConfig) -> tuple[Step, ...]:
        types = f"{desc.element.number}, {desc.layout('out').element.number}"
        entry = f"attention_flash_paged<{types}, {config.template}, {changes(desc)}>"
        places = placed(desc, config.queries, device)
        problem = problem_struct(desc, k=self.keys, v=self.values)
        return (
            Launch(
                Kernel("attention/flash.cu", entry), (places.ctas + desc.checked, 1, 1), (config.threads, 1, 1),
                (problem, *places.args, cache_struct(desc), scales_struct(desc)), config.shared_bytes,
            ),
        )  # fmt: skip
