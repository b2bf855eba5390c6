"""wgmma_padded: wgmma over copies of the operands that it cannot take without a copy (kernels/gemm/pad.cu).

Each copying launch copies one or two of a, b and scale_a into the plan's scratch, with lines that begin on multiples of 16 bytes.
Types other than 16-bit ones are transposed where needed, so that K is contiguous; block scales so that M is. wgmma's own lowering
then serves the problem with the copies as operands, with the same sums. A broadcast batch axis is copied once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any

import numpy as np

from ....plan.candidate import Feasibility, no
from ....plan.grammar import term
from ....runtime.steps import Ptr, Step, Struct, TensorMap
from ....types import DeviceSpec, PrecisionGuarantee
from ..._fitted import Fitted
from ..._launch import overlapped_overhead
from ...products.checks import fixed, launchable
from ...products.table import Table, Tabled
from .cost import floor_of
from .launch import launches
from .staged_copy import copy_steps, over_copies, places, staged_copies
from .tile import Tile
from .wgmma import Wgmma, menu_for

__all__ = ["WgmmaPadded"]


class CopyCosts(Fitted, table="gemm.wgmma_padded"):
    copy_latency_s: float


def _copied(desc: Any) -> int:
    """Bytes that the copies read and write."""
    return sum(x.useful + x.nbytes for x in staged_copies(desc))


def _over(tile: Tile, staged: tuple[str, ...]) -> StagedTile:
    return StagedTile(**{f.name: getattr(tile, f.name) for f in fields(tile)}, staged=staged)


@lru_cache(maxsize=64)
def _table(desc: Any, device: DeviceSpec) -> Table[StagedTile]:
    copies = staged_copies(desc)
    product = WgmmaPadded._product.table(over_copies(desc), device)
    # The part of the copies that L2 keeps is written back while the product begins, and is not read from memory.
    kept = min(sum(x.nbytes for x in copies), device.l2_bytes // 2)
    steps = -(-len(copies) // 2)
    ahead = (
        steps * (overlapped_overhead(device) + CopyCosts.of(device).copy_latency_s)
        + (_copied(desc) - kept / 2) / device.bandwidth
    )
    staged = tuple(map(str, copies))

    def limit(place: int) -> str:
        return product.limit(place) if product.seconds[place] > ahead else "bandwidth"

    # After copies, tiles with several CTAs per SM were measured to be up to twice as slow as the others.
    alone = np.repeat(menu_for(over_copies(desc), device).rates.ctas_per_sm == 1, 2)
    seconds = np.where(alone, product.seconds, np.inf) + ahead
    return Table(seconds, lambda place: _over(product.config(place), staged), limit)


@dataclass(frozen=True)
class StagedTile(Tile):
    """The product's tile, and the operands that are copied for it."""

    staged: tuple[str, ...] = term(
        "operands that are copied ahead in lines that TMA takes, `.T` where transposed", default=()
    )


class WgmmaPadded(Tabled):
    variant = "wgmma_padded"
    launches = ("gemm/pad.cu:pad", "gemm/wgmma.cu:gemm")
    _product = Wgmma()

    def supports(self, desc: Any, device: DeviceSpec) -> Feasibility:
        if not (named := fixed(desc, self.variant)):
            return named
        copies = staged_copies(desc)
        if not (admissible := self._product.supports(over_copies(desc) if copies else desc, device)):
            return admissible
        if not copies:
            return no("no operand needs a copy: all are taken as they lie")
        return launchable(sum(x.ctas for x in copies))

    def table(self, desc: Any, device: DeviceSpec) -> Table[StagedTile]:
        return _table(desc, device)

    def moved(self, desc: Any) -> tuple[int, int]:
        return over_copies(desc).gemm.nbytes + _copied(desc), over_copies(desc).gemm.flops

    def floor(self, desc: Any, device: DeviceSpec) -> float:
        if not staged_copies(desc):
            return math.inf
        return floor_of(desc.gemm, device) + overlapped_overhead(device) + CopyCosts.of(device).copy_latency_s

    def guarantee(self, desc: Any, device: DeviceSpec, config: StagedTile) -> PrecisionGuarantee:
        return self._product.guarantee(over_copies(desc), device, config)

    def lower(self, desc: Any, device: DeviceSpec, config: StagedTile) -> tuple[Step, ...]:
        copies = staged_copies(desc)
        to = places(copies)

        def moved(arg: Any) -> Any:
            if isinstance(arg, TensorMap) and isinstance(arg.of, Ptr):
                return replace(arg, of=to.get(arg.of.operand, arg.of))
            return Struct(tuple(map(moved, arg.fields))) if isinstance(arg, Struct) else arg

        product = launches(over_copies(desc), device, config)
        return *copy_steps(copies), *(replace(step, args=tuple(map(moved, step.args))) for step in product)
