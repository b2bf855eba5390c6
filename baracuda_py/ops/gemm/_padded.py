"""wgmma_padded: wgmma over copies of the operands that it cannot take as they lie (kernels/gemm/pad.cu).

A launch copies one or two of a, b and scale_a into the plan's scratch, each line on a multiple of 16 bytes: line for line, or
turned so that K runs along lines where the element is multiplied no other way, and along those of block scales M. wgmma's own
lowering serves the problem so described. A broadcast batch axis is copied once. The sums are wgmma's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from ...plan.candidate import Candidate, Cost, Feasibility, no
from ...runtime.steps import Ptr, Step, Struct, TensorMap
from ...types import DeviceSpec, PrecisionGuarantee
from .._launch import overlapped_overhead
from ._checks import fixed, launchable
from ._duplicate import copy_steps, duplicates, padded, places
from ._wgmma import Wgmma
from ._wgmma_launch import launches
from ._wgmma_tile import Tile

__all__ = ["WgmmaPadded"]

LATENCY = 7.4e-7  # seconds from the first load to the last store


@dataclass(frozen=True)
class Padding:
    """The product's tile, and the operands that are copied for it."""

    tile: Tile
    copied: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.tile} copies {'+'.join(self.copied)}"


class WgmmaPadded(Candidate[Any]):
    variant = "wgmma_padded"
    launches = ("gemm/pad.cu:pad", "gemm/wgmma.cu:gemm")
    _product = Wgmma()

    def supports(self, desc: Any, device: DeviceSpec) -> Feasibility:
        if not (named := fixed(desc, self.variant)):
            return named
        if not (admissible := self._product.supports(padded(desc), device)):
            return admissible
        if not duplicates(desc):
            return no("no operand needs a copy: all are taken as they lie")
        return launchable(sum(x.ctas for x in duplicates(desc)))

    def configs(self, desc: Any, device: DeviceSpec) -> Iterator[Padding]:
        copied = tuple(map(str, duplicates(desc)))
        # Tiles of several CTAs an SM were measured behind the others, up to twice as slow, where copies run ahead of them.
        tiles = (tile for tile in self._product.configs(padded(desc), device) if tile.resident == 1)
        return (Padding(tile, copied) for tile in tiles)

    def cost(self, desc: Any, device: DeviceSpec, config: Padding) -> Cost:
        product = self._product.cost(padded(desc), device, config.tile)
        read, written = (sum(getattr(x, what) for x in duplicates(desc)) for what in ("useful", "nbytes"))
        # What L2 keeps of the copies is on its way to memory while the product begins, and is not read from there.
        kept = min(written, device.l2_bytes // 2)
        steps = -(-len(duplicates(desc)) // 2)
        seconds = steps * (overlapped_overhead(device) + LATENCY) + (read + written - kept / 2) / device.bandwidth
        limit = product.limit if product.seconds > seconds else "bandwidth"
        return Cost(product.bytes + read + written, product.flops, product.seconds + seconds, limit)

    def guarantee(self, desc: Any, device: DeviceSpec, config: Padding) -> PrecisionGuarantee:
        return self._product.guarantee(padded(desc), device, config.tile)

    def lower(self, desc: Any, device: DeviceSpec, config: Padding) -> tuple[Step, ...]:
        copies = duplicates(desc)
        to = places(copies)

        def moved(arg: Any) -> Any:
            if isinstance(arg, TensorMap) and isinstance(arg.of, Ptr):
                return replace(arg, of=to.get(arg.of.operand, arg.of))
            return Struct(tuple(map(moved, arg.fields))) if isinstance(arg, Struct) else arg

        product = launches(padded(desc), device, config.tile)
        return *copy_steps(copies), *(replace(step, args=tuple(map(moved, step.args))) for step in product)
