"""wgmma: Hopper's warpgroup tensor cores fed by TMA (kernels/gemm/wgmma.cu), for operands whose lines begin on 16 bytes."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from ....plan.candidate import OK, Change, Feasibility, no
from ....runtime.steps import Step
from ....types import DeviceSpec, PrecisionGuarantee
from ...products.checks import TMA_INDEX_BITS, WARPGROUP_MATHS, admitted, countable, on_hopper, takes_any_m
from ...products.gemm import Gemm
from ...products.guarantee import TRUNCATED, guarantee_of, narrow_additions
from ...products.table import Table, Tabled
from .cost import Menu, floor_of, menu_of
from .launch import launches, promoted
from .staged_copy import WORD, relaid, staged_copies
from .tile import Tile, traits_of
from .tma import K_BLOCK, scales_map, taken, view_of

__all__ = ["Wgmma", "menu_for"]


def _copied(desc: Any, name: str) -> tuple[str, Change]:
    """The layout that a refused operand would need, in words and as fields: as wgmma_padded copies it."""
    copy = next(x for x in staged_copies(desc) if x.operand == name)
    fields, x = relaid(desc, (copy,)), copy.source
    unit = WORD // copy.itemsize
    across = [s for axis, s in enumerate(x.strides) if axis != copy.inner and x.shape[axis] > 1]
    if x.strides[copy.inner] != 1 or copy.transposed or min(across, default=0) < 0 or not all(across[-1:]):
        axes = {"a": "MK", "b": "KN"}.get(name, ("M", "the blocks of K"))
        inner = axes[copy.inner - len(x.shape)] if len(x.shape) > 1 else "K"
        padded = (
            "" if copy.pitch == copy.length * copy.itemsize else f", in lines of {copy.pitch // copy.itemsize} elements"
        )
        return f"contiguize {name} with {inner} innermost{padded}", Change(fields)
    said = [f"pad {name}'s leading dimension to a multiple of {unit} elements"] if any(s % unit for s in across) else []
    if x.align < WORD:
        said.append(f"{name} on a multiple of {WORD} bytes")
    return " and ".join(said), Change(fields)


def menu_for(desc: Any, device: DeviceSpec) -> Menu:
    """The tiles for products like this one."""
    return menu_of(traits_of(desc.gemm), traits_of(desc.gemm, transposed=True), promoted(desc), device)


@lru_cache(maxsize=64)
def _table(desc: Any, device: DeviceSpec) -> Table[Tile]:
    return menu_for(desc, device).table(desc.gemm)


class Wgmma(Tabled):
    variant = "wgmma"
    launches = ("gemm/wgmma.cu:gemm",)

    def supports(self, desc: Any, device: DeviceSpec) -> Feasibility:
        gemm: Gemm = desc.gemm
        if not (admissible := admitted(desc, self.variant, WARPGROUP_MATHS)):
            return admissible
        if not (there := on_hopper(device)):
            return there
        if gemm.k == 0:
            return no("there is nothing to multiply (K = 0)")
        if not (counted := countable(gemm, TMA_INDEX_BITS)):
            return counted
        for x, mn, k in ((gemm.a, gemm.m, gemm.k), (gemm.b.mT, gemm.n, gemm.k)):
            if taken(x, mn, k) is not None:
                continue
            if view_of(x, mn, k) is not None:
                reason = "is not contiguous along K, and only 16-bit elements are multiplied from other layouts"
                return no(f"{x.operand} {reason}", *_copied(desc, x.operand))
            return no(
                f"{x.operand}'s rows or columns do not lie on multiples of 16 bytes with unit steps along them "
                f"(steps {x.row}, {x.col}, alignment {x.align})",
                *_copied(desc, x.operand),
            )
        if gemm.blocked and any(x.operand != name[-1] for name, x in (("scale_a", gemm.a), ("scale_b", gemm.b))):
            change = Change({"out_strides": None})
            return no("the scales of 128 x 128 blocks go with the result's columns", "a row-major out", change)
        if gemm.blocked and scales_map(gemm, 1) is None:
            reason = "scale_a's rows do not lie side by side, in lines on multiples of 16 bytes"
            return no(reason, *_copied(desc, "scale_a"))
        return OK

    def table(self, desc: Any, device: DeviceSpec) -> Table[Tile]:
        return _table(desc, device)

    def floor(self, desc: Any, device: DeviceSpec) -> float:
        return floor_of(desc.gemm, device)

    def guarantee(self, desc: Any, device: DeviceSpec, config: Tile) -> PrecisionGuarantee:
        # Every tile adds its instructions' products in the order of K, so a row's result does not depend on the tile, unless K
        # is split.
        k = desc.gemm.k
        eight = desc.gemm.a.element.bits == 8
        return guarantee_of(
            desc,
            desc.precision,
            narrow_additions(k, K_BLOCK if promoted(desc) else k) if eight else k,
            each=TRUNCATED,
            splits=max(config.split_k, config.split_last_wave),
            batch_invariant=config.split_k == config.split_last_wave == 1 and takes_any_m(desc.gemm),
        )

    def lower(self, desc: Any, device: DeviceSpec, config: Tile) -> tuple[Step, ...]:
        return launches(desc, device, config)
