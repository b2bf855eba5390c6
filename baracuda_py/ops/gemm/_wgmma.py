"""wgmma: Hopper's warpgroup tensor cores fed by TMA (kernels/gemm/wgmma.cu), for operands whose rows lie on 16 bytes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ...plan.candidate import OK, Candidate, Change, Cost, Feasibility, no
from ...runtime.steps import Step
from ...types import ArchSku, DeviceSpec, MathPrecision, PrecisionGuarantee
from ._checks import admitted, countable, extent_limit
from ._duplicate import WORD, duplicates, relaid
from ._guarantee import TRUNCATED, guarantee_of, narrow_additions
from ._problem import Gemm
from ._scales import BLOCK
from ._tma import SLAB, scales_map, taken, view_of
from ._wgmma_cost import cost_of
from ._wgmma_launch import launches, promoted
from ._wgmma_tile import LEAST_STAGES, MENU, Tile, clusters_at_once, oriented, ring_of, slabs_of, tail_of, tiles_of

__all__ = ["MATHS", "Wgmma", "takes_any_m"]

MATHS = (MathPrecision.BF16, MathPrecision.F16, MathPrecision.TF32, MathPrecision.FP8, MathPrecision.FP8_FAST)
INDEX_BITS = 31  # of TMA's coordinates


def takes_any_m(gemm: Gemm) -> bool:
    """Whether wgmma or, over copies, wgmma_padded takes the product whatever the number of rows: the same sums in both."""
    return 0 < gemm.k < extent_limit(INDEX_BITS)


def _copied(desc: Any, name: str) -> tuple[str, Change]:
    """How an operand that is not taken has to lie, in words and in fields: as wgmma_padded copies it."""
    copy = next(x for x in duplicates(desc) if x.operand == name)
    fields, x = relaid(desc, (copy,)), copy.source
    unit = WORD // copy.itemsize
    across = [s for axis, s in enumerate(x.strides) if axis != copy.inner and x.shape[axis] > 1]
    if x.strides[copy.inner] != 1 or copy.turned or min(across, default=0) < 0 or not all(across[-1:]):
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


class Wgmma(Candidate[Any]):
    variant = "wgmma"
    launches = ("gemm/wgmma.cu:gemm",)

    def supports(self, desc: Any, device: DeviceSpec) -> Feasibility:
        gemm: Gemm = desc.gemm
        if not (admissible := admitted(desc, self.variant, MATHS)):
            return admissible
        if device.tier is not ArchSku.SM90A:
            hopper = "ptx:sm_90a" if device.emulated else "sm_90a"
            change = Change(device=DeviceSpec.named(hopper))
            return no("warpgroup instructions exist on sm_90a only", f'device="{hopper}"', change)
        if gemm.k == 0:
            return no("there is nothing to multiply (K = 0)")
        if not (counted := countable(gemm, INDEX_BITS)):
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

    def configs(self, desc: Any, device: DeviceSpec) -> Iterator[Tile]:
        for tile in MENU:
            gemm = oriented(desc, tile)
            if promoted(desc) and (tile.rows > 1 or tile.bn > 128):
                continue  # the sums of two slabs need as many registers again, each
            if gemm.blocked and (tile.swapped or BLOCK % tile.bn):
                continue
            b = view_of(gemm.b.mT, gemm.n, gemm.k)
            assert b is not None
            if tile.cluster > 1 and gemm.n <= tile.bn // tile.cluster:
                continue  # one of them would bring nothing of B
            parts = tile.bn // 64 if b.mn_major else tile.bn // 8  # of B, that the CTAs of a cluster may share out
            widest = tile.bn == 256 or (tile.bm, tile.bn) == (256, 128)
            if tile.cluster > 1 and widest and (tile.swapped or gemm.a.itemsize == 1):
                continue  # the widest tiles have no registers to spare: for stores by columns, or with fp8
            if tile.cluster > 1 and (parts % tile.cluster or (b.mn_major and tile.bn % 64) or gemm.m <= tile.bm):
                continue
            if tile.split > 1 and (
                slabs_of(gemm) < 4 * tile.split or tiles_of(gemm, tile) > clusters_at_once(device, tile)
            ):
                continue
            if ring_of(gemm, tile)[0] < LEAST_STAGES:
                continue
            yield tile
            if tail := tail_of(gemm, tile, device):
                yield replace(tile, tail=tail)

    def cost(self, desc: Any, device: DeviceSpec, config: Tile) -> Cost:
        return cost_of(oriented(desc, config), device, config)

    def guarantee(self, desc: Any, device: DeviceSpec, config: Tile) -> PrecisionGuarantee:
        # Every tile sums instruction by instruction in order, so a row's result is the same whatever the tile, unless K is
        # split.
        k = desc.gemm.k
        eight = desc.gemm.a.element.bits == 8
        return guarantee_of(
            desc,
            desc.precision,
            narrow_additions(k, SLAB if promoted(desc) else k) if eight else k,
            each=TRUNCATED,
            splits=max(config.split, config.tail),
            batch_invariant=config.split == config.tail == 1 and takes_any_m(desc.gemm),
        )

    def lower(self, desc: Any, device: DeviceSpec, config: Tile) -> tuple[Step, ...]:
        return launches(desc, device, config)
