"""wgmma_padded: wgmma over copies of the operands that it cannot take as they lie (kernels/gemm/pad.cu).

A launch copies one or two of a, b and scale_a into the plan's scratch, each line on a multiple of 16 bytes: line for line, or
transposed so that K runs along lines where the element is multiplied no other way, and along those of block scales M. wgmma's own
lowering serves the problem so described. A broadcast batch axis is copied once. The sums are wgmma's.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any

import numpy as np

from ...plan.candidate import Feasibility, no
from ...plan.grammar import term
from ...runtime.steps import Ptr, Step, Struct, TensorMap
from ...types import DeviceSpec, PrecisionGuarantee
from .._launch import overlapped_overhead
from ._checks import fixed, launchable
from ._duplicate import copy_steps, duplicates, padded, places
from ._table import Table, Tabled
from ._wgmma import Wgmma, menu_for
from ._wgmma_cost import floor_of
from ._wgmma_launch import launches
from ._wgmma_tile import Tile

__all__ = ["WgmmaPadded"]

LATENCY = 7.4e-7  # seconds from the first load to the last store


def _copied(desc: Any) -> int:
    """Bytes that the copies read and write."""
    return sum(x.useful + x.nbytes for x in duplicates(desc))


def _over(tile: Tile, staged: tuple[str, ...]) -> Padded:
    return Padded(**{f.name: getattr(tile, f.name) for f in fields(tile)}, staged=staged)


@lru_cache(maxsize=64)
def _table(desc: Any, device: DeviceSpec) -> Table[Padded]:
    copies = duplicates(desc)
    product = WgmmaPadded._product.table(padded(desc), device)
    # What L2 keeps of the copies is on its way to memory while the product begins, and is not read from there.
    kept = min(sum(x.nbytes for x in copies), device.l2_bytes // 2)
    steps = -(-len(copies) // 2)
    ahead = steps * (overlapped_overhead(device) + LATENCY) + (_copied(desc) - kept / 2) / device.bandwidth
    staged = tuple(map(str, copies))

    def limit(place: int) -> str:
        return product.limit(place) if product.seconds[place] > ahead else "bandwidth"

    # Tiles of several CTAs an SM were measured behind the others, up to twice as slow, where copies run ahead of them.
    alone = np.repeat(menu_for(padded(desc), device).rates.ctas_per_sm == 1, 2)
    seconds = np.where(alone, product.seconds, np.inf) + ahead
    return Table(seconds, lambda place: _over(product.config(place), staged), limit)


@dataclass(frozen=True)
class Padded(Tile):
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
        copies = duplicates(desc)
        if not (admissible := self._product.supports(padded(desc) if copies else desc, device)):
            return admissible
        if not copies:
            return no("no operand needs a copy: all are taken as they lie")
        return launchable(sum(x.ctas for x in copies))

    def table(self, desc: Any, device: DeviceSpec) -> Table[Padded]:
        return _table(desc, device)

    def moved(self, desc: Any) -> tuple[int, int]:
        return padded(desc).gemm.nbytes + _copied(desc), padded(desc).gemm.flops

    def floor(self, desc: Any, device: DeviceSpec) -> float:
        return floor_of(desc.gemm, device)

    def guarantee(self, desc: Any, device: DeviceSpec, config: Padded) -> PrecisionGuarantee:
        return self._product.guarantee(padded(desc), device, config)

    def lower(self, desc: Any, device: DeviceSpec, config: Padded) -> tuple[Step, ...]:
        copies = duplicates(desc)
        to = places(copies)

        def moved(arg: Any) -> Any:
            if isinstance(arg, TensorMap) and isinstance(arg.of, Ptr):
                return replace(arg, of=to.get(arg.of.operand, arg.of))
            return Struct(tuple(map(moved, arg.fields))) if isinstance(arg, Struct) else arg

        product = launches(padded(desc), device, config)
        return *copy_steps(copies), *(replace(step, args=tuple(map(moved, step.args))) for step in product)
