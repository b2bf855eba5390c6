"""wgmma and wgmma_fast: f16 and bf16 by Hopper's warpgroup tensor cores, fed by TMA (kernels/attention/backward_wgmma.cu)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar

from ....plan.candidate import Cost, Feasibility, no
from ....plan.grammar import Config, term
from ....runtime.steps import Kernel, Launch
from ....types import DeviceSpec, ElementKind
from ..._fitted import Fitted
from ...products.checks import on_hopper
from .._forward.flash import packed
from .._forward.wgmma import boxes, product_text, stepped
from .._problem.mask_bits import TILE_BITS
from .flash import KERNEL as SUMMING
from .flash import FlashBackward, filled
from .gradients import COMMON_LAUNCHES

__all__ = ["WgmmaBackward", "WgmmaBackwardConfig"]

KERNEL = "attention/backward_wgmma.cu"
TMA_READ = ("q", "grad", "k", "v")
KEYS = 128  # a CTA's, 64 a consumer warpgroup
QUERIES = {64: 128, 128: 64}  # by head dim, filled up: a tile of grad_q is two consumers' 64 by 64


class Costs(Fitted, table="attention.backward_wgmma"):
    ordered_time_ratio: float
    unordered_time_ratio: float


@dataclass(frozen=True)
class WgmmaBackwardConfig(Config):
    """A CTA's keys, and the queries that it takes at a time."""

    queries: int = term("queries a CTA takes at a time", leads=True)
    keys: int = term("keys a CTA has", leads=True)
    stages: int = term("blocks of queries in shared memory", default=2)
    dims: tuple[int, int] = term("columns of queries and of values, filled up", default=(0, 0), hidden=True)

    warps: ClassVar[int] = 8  # of consumers, whose sums of grad_q the last launch reads
    ctas: ClassVar[int] = 1  # an SM
    threads: ClassVar[int] = 384

    @property
    def shared_bytes(self) -> int:
        columns, scores = sum(self.dims), 4 * self.keys * self.queries
        stats, barriers, kept = 8 * self.queries, 16 * (self.stages + 1), 48
        return 2 * columns * self.keys + scores + self.stages * (2 * columns * self.queries + stats) + barriers + kept


@lru_cache(maxsize=16)
def prelude(d: int, element: ElementKind) -> str:
    """The text of the products: of scores, of sums over queries with scores in registers, and of sums over keys."""
    return '#include "core/dtype.cuh"\n' + "".join(
        (
            product_text("wgmma_scores", 64, element),
            product_text("wgmma_sums", d, element, of_registers=True, b_major="MN"),
            product_text("wgmma_queries", 64, element, a_major="MN", b_major="MN"),
        )
    )


class WgmmaBackward(FlashBackward):
    """Blocks of 128 keys a CTA, as the other tensor core variants; head dims up to 128, with softcap, ALiBi or bool masks.
    Slices are added to by a CTA each (wgmma), or grad_q in any order (wgmma_fast)."""

    launches = (
        *COMMON_LAUNCHES, f"{KERNEL}:attention_backward_wgmma", f"{SUMMING}:attention_backward_queries", TILE_BITS,
    )  # fmt: skip

    def supports(self, desc: Any, device: DeviceSpec) -> Feasibility:
        if not (said := on_hopper(device)):
            return said
        if desc.has("block_mask") or (desc.has("mask") and desc.layout("mask").element is not ElementKind.BOOL):
            return no("it has neither block masks nor masks that are added", "deterministic has both")
        if desc.has("alibi_slopes") and desc.has("mask") and filled(max(desc.d, desc.d_v)) == min(QUERIES):
            return no(
                f"registers do not hold what ALiBi and a mask take at once at {min(QUERIES)} columns",
                "deterministic has both",
            )
        if max(desc.d, desc.d_v) > max(QUERIES):
            return no(f"head dims are {desc.d} and {desc.d_v}, and tiles hold {max(QUERIES)} at most")
        return super().supports(desc, device) and stepped(desc, TMA_READ)

    def configs(self, desc: Any, device: DeviceSpec) -> Iterable[Any]:
        d = filled(max(desc.d, desc.d_v))
        config = WgmmaBackwardConfig(QUERIES[d], KEYS, dims=(d, d))
        if config.shared_bytes <= device.shared_bytes:
            yield config

    def cost(self, desc: Any, device: DeviceSpec, config: Any) -> Cost:
        """In proportion to the variant of mma.sync that adds up grad_q alike."""
        other, ratios = FlashBackward("", ordered=self.ordered), Costs.of(device)
        costs = (other.cost(desc, device, one) for one in other.configs(desc, device))
        least = min(costs, key=lambda cost: cost.seconds)
        return replace(
            least, seconds=least.seconds * (ratios.ordered_time_ratio if self.ordered else ratios.unordered_time_ratio)
        )

    def over_keys(self, desc: Any, config: Any, args: tuple[Any, ...], ctas: int, *, in_order: bool) -> Launch:
        d = config.dims[0]
        entry = (
            f"attention_backward_wgmma<{desc.element.number}, {d}, {config.queries}, {config.stages}, {packed(desc)}>"
        )
        rows = {"q": config.queries, "grad": config.queries}
        maps = (boxes(desc, name, rows.get(name, config.keys)) for name in TMA_READ)
        return Launch(
            Kernel(KERNEL, entry, prelude(d, desc.element)), (ctas, 1, 1), (config.threads, 1, 1), (*args, *maps),
            config.shared_bytes, float_atomics=not self.ordered,
        )  # fmt: skip

    def _adds_in_order(self, desc: Any, device: DeviceSpec, config: Any) -> bool:
        return False
