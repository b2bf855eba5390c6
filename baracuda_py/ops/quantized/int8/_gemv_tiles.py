"""gemv_tiles: W8A16 of any number of tokens by gemv, a launch for each tile of them, in one order of sums.

Codes are multiplied unchanged and sums scaled, so no weight is rounded; and a row has the same bits in any tile and at any
place of one. Tokens that are not K-major are copied ahead. It serves where a preference asks for either.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any

from ....plan.candidate import OK, Candidate, Cost, Feasibility, no
from ....plan.lowering import Place, Sub
from ....plan.registry import get_op
from ....plan.select import Assessment
from ....plan.selection import Selection, selected
from ....runtime.steps import Ptr, Scratch, Step
from ....types import DeviceSpec, MathPrecision, PlanPreference, PrecisionGuarantee
from ...shape_layout.write_slice import WriteSliceDescriptor, WriteSlicePlan
from .gemv import LAUNCHES, GemvConfig, Int8Gemv, additions_of, gemv_configs, refused, way_of
from .guarantee import guarantee
from .problem import HALVES, group_of

__all__ = ["GemvTiles", "takes_weight"]

TILE = 64  # tokens of a launch
UNROLL, WARPS = 4, 8  # of the configurations taken: they say in what order K is summed
LEAST_ACCESS = 8  # bytes of an access of the weight, below which dequantising it takes no longer
COPIES = tuple(dict.fromkeys(kernel for candidate in WriteSlicePlan.candidates for kernel in candidate.launches))


def _alone(desc: Any, tokens: int) -> Any:
    """The same product of so many tokens in C order."""
    own = {f"{name}_{what}": None for name in ("a", "out") for what in ("strides", "align")}
    return replace(desc, a_shape=(tokens, desc.a_shape[-1]), **own).canonical()


@lru_cache(maxsize=256)
def _taken(alone: Any) -> Feasibility:
    if not (said := refused((alone.product,), group_of(alone))):
        return said
    way = way_of((alone.product,))
    if way is None or not way.along_k or way.access < LEAST_ACCESS:
        return no(f"b does not lie along K in lines on multiples of {LEAST_ACCESS} bytes", "the variant dequantised")
    return OK


def takes_weight(desc: Any) -> Feasibility:
    """Whether gemv multiplies the weight without a copy at the speed of reading it, whatever the tokens' layout."""
    if desc.a_element not in HALVES or desc.dynamic:
        return no("products of bytes need no floats")
    return _taken(_alone(desc, 1))


class GemvTiles(Candidate[Any]):
    """Launches of gemv for tiles of columns."""

    variant = "gemv_tiles"
    on_request = ("batch_invariant", "exact_weights")
    launches = (*LAUNCHES, *COPIES)

    def supports(self, desc: Any, device: DeviceSpec) -> Feasibility:
        if not (said := takes_weight(desc)):
            return said
        return OK if any(True for _ in self.configs(desc, device)) else no("an SM holds no tile")

    def configs(self, desc: Any, device: DeviceSpec) -> Iterable[GemvConfig]:
        every = gemv_configs((self._tile(desc, 0).product,), device)
        return [c for c in every if (c.unroll, c.warps, c.split_k, c.early) == (UNROLL, WARPS, 1, False)]

    def cost(self, desc: Any, device: DeviceSpec, config: GemvConfig) -> Cost:
        kernel, tile = Int8Gemv(), self._tile(desc, 0)
        each = kernel.cost(tile, device, config)
        tiles = -(-desc.product.m // max(1, tile.product.m))
        copied = self._copy(desc, device)
        seconds = each.seconds * max(1, tiles) + (copied.cost.seconds if copied else 0.0)
        return Cost(desc.product.nbytes, desc.product.flops, seconds, each.limit)

    def guarantee(self, desc: Any, device: DeviceSpec, config: GemvConfig) -> PrecisionGuarantee:
        own = guarantee(desc, MathPrecision.of(desc.a_element.value), additions_of(desc.product, config))
        return replace(own, batch_invariant=True)

    def lower(self, desc: Any, device: DeviceSpec, config: GemvConfig) -> tuple[Step | Sub, ...]:
        return tuple(self._steps(desc, device, config))

    def _steps(self, desc: Any, device: DeviceSpec, config: GemvConfig) -> Iterator[Sub]:
        product, copied = desc.product, self._copy(desc, device)
        of_row = product.k if copied else product.a.row
        if copied:
            yield Sub(copied, {"dest": Scratch(0, product.m * product.k * product.a.size), "source": Ptr("a")})
        for first in range(0, product.m, TILE):
            tile = self._tile(desc, first)
            at, nbytes = first * of_row * product.a.size, tile.product.m * product.k * product.a.size
            moved: dict[str, Place] = {
                "a": Scratch(at, nbytes) if copied else Ptr("a", at),
                "out": Ptr("out", first * product.out.row * product.out.size),
            }
            plan = get_op(desc.op).plan
            made = Selection.of(plan, tile, PlanPreference(), device, Assessment(Int8Gemv(), config, OK))
            yield Sub(made, {o.name: moved.get(o.name, Ptr(o.name)) for o in tile.operands})

    @staticmethod
    def _tile(desc: Any, first: int) -> Any:
        """The product of the tile that begins with token `first`."""
        product, tokens = desc.product, min(TILE, desc.product.m - first)
        out = {"out_strides": (product.out.row, product.out.col), "out_align": product.out.align}
        tile = replace(_alone(desc, tokens), **out)
        if not _lies_along_k(desc):
            return tile
        return replace(tile, a_strides=(product.a.row, 1), a_align=product.a.align)

    @staticmethod
    def _copy(desc: Any, device: DeviceSpec) -> Selection | None:
        """The copy of the tokens, where gemv does not take them without a copy."""
        if _lies_along_k(desc):
            return None
        product, a = desc.product, desc.product.a
        extents = (product.m, product.k)
        copy = WriteSliceDescriptor(
            extents, tuple((0, n) for n in extents), a.element, source_strides=(a.row, a.col), source_align=a.align
        )  # type: ignore[call-arg]
        return selected(WriteSlicePlan, copy, None, device)


def _lies_along_k(desc: Any) -> bool:
    return bool(desc.product.a.col == 1)
