"""flash_pages: prompts against keys and values in pages, by the kernel of whole sequences (kernels/attention/flash.cu)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ....plan.candidate import Candidate, Cost, Feasibility, no
from ....plan.constraints import Kinds
from ....runtime.steps import Kernel, Launch, Step
from ....types import DeviceSpec, PrecisionGuarantee
from ..._fitted import Fitted
from .._forward.flash import HALVES, Flash, FlashConfig, changes, placed, within
from .._problem import guarantee as _guarantee
from .._problem.attended import MOST
from .._problem.struct import problem_struct
from .splits import cache_struct, scales_struct, tiled, with_status

__all__ = ["FlashPages"]


class PageCosts(Fitted, table="attention.flash_pages"):
    page_lookup_time_ratio: float
    first_pages_latency_s: float


class FlashPages(Flash):
    """Many new tokens a sequence against 16-bit pages of any size, every feature; a CTA takes all keys that its queries see."""

    variant = "flash_pages"
    launches = ("attention/flash.cu:attention_flash_paged",)
    constraints = (Kinds("q", HALVES), *tiled("k_pages", "v_pages"))
    keys, values = "k_pages", "v_pages"
    paged = True

    def supports(self, desc: Any, device: DeviceSpec) -> Feasibility:
        if not (said := Candidate.supports(self, desc, device)):
            return said
        if desc.cached is not desc.element:
            return no(
                f"pages hold {desc.cached} and q {desc.element}: it copies keys as they are", "split_pages widens them"
            )
        if not desc.d_v:
            return no("values have no columns", "values of one or more")
        for name in (self.keys, self.values):
            if abs(desc.strides_of(name).batch) > MOST:
                return no(f"{name}' pages are 2**31 elements apart or more", "contiguize them")
        return within(desc, self.configs(desc, device), device, ("q", self.keys, self.values))

    def cost(self, desc: Any, device: DeviceSpec, config: FlashConfig) -> Cost:
        dense, costs = super().cost(desc, device, config), PageCosts.of(device)
        return replace(dense, seconds=costs.first_pages_latency_s + costs.page_lookup_time_ratio * dense.seconds)

    def guarantee(self, desc: Any, device: DeviceSpec, config: FlashConfig) -> PrecisionGuarantee:
        """Not batch-invariant: whether it is selected goes by the number of sequences and tokens."""
        made = _guarantee.forward(
            desc, dot=config.dims[0] + 2, keys=desc.most_k, blocks=-(-desc.most_k // config.keys), each=2.0,
            weights=desc.element, batch_invariant=False,
        )  # fmt: skip
        return with_status(desc, made)

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
