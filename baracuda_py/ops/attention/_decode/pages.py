"""What kernels of whole sequences have in common where keys and values come in pages."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ....plan.candidate import OK, Candidate, Cost, Feasibility, no
from ....plan.constraints import Kinds
from ....types import DeviceSpec, PrecisionGuarantee
from ..._fitted import Fitted
from .._forward.flash import HALVES
from .._problem import guarantee as _guarantee
from .splits import tiled, with_status

__all__ = ["Pages", "same_kind"]


class PageCosts(Fitted, table="attention.flash_pages"):
    page_lookup_time_ratio: float
    first_pages_latency_s: float


class Pages(Candidate[Any]):
    """The part of a candidate that is the same for each of these kernels; a base behind it has the kernel."""

    constraints = (Kinds("q", HALVES), *tiled("k_pages", "v_pages"))
    keys, values = "k_pages", "v_pages"
    paged = True

    def cost(self, desc: Any, device: DeviceSpec, config: Any) -> Cost:
        dense, costs = super().cost(desc, device, config), PageCosts.of(device)
        return replace(dense, seconds=costs.first_pages_latency_s + costs.page_lookup_time_ratio * dense.seconds)

    def guarantee(self, desc: Any, device: DeviceSpec, config: Any) -> PrecisionGuarantee:
        """Not batch-invariant: whether it is selected goes by the number of sequences and tokens."""
        made = _guarantee.forward(
            desc, dot=config.dims[0] + 2, keys=desc.most_k, blocks=-(-desc.most_k // config.keys), each=2.0,
            weights=desc.element, batch_invariant=False,
        )  # fmt: skip
        return with_status(desc, made)


def same_kind(desc: Any) -> Feasibility:
    """Whether keys can be copied from pages unchanged, and there are columns of values."""
    if desc.cached is not desc.element:
        return no(
            f"pages hold {desc.cached} and q {desc.element}: it copies keys as they are", "split_pages widens them"
        )
    return OK if desc.d_v else no("values have no columns", "values of one or more")
