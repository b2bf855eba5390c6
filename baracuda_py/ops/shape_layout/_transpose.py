"""transpose, transpose_tile: copies whose fastest axis differs (kernels/shape_layout/transpose.cu)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...plan.candidate import OK, Feasibility, no
from ...plan.grammar import Config, term
from ...runtime.steps import Kernel, Launch, Ptr, Step
from ...tensor.axes import alignment_of
from ...types import DeviceSpec
from .._launch import pack_dims
from ._copy import CopyCandidate, HasCopy
from ._copy_cost import BandwidthCosts
from ._walks import CHUNK, CopyProblem

__all__ = ["Transpose", "TransposeTile"]


ACCESSES = (16, 8, 4, 2)  # bytes that a thread loads or stores at once


@dataclass(frozen=True)
class Planes:
    """A copy whose fastest axis is `b` in the destination and `a` in the source, repeated over the other axes."""

    a: int
    b: int
    dest_a: int
    source_b: int
    outer: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]

    def filled(self, tile_a: int, tile_b: int) -> float:
        """The share of the tiles' area inside the array."""
        covered = -(-self.a // tile_a) * tile_a * -(-self.b // tile_b) * tile_b
        return self.a * self.b / covered if covered else 1.0


def planes_of(copy: CopyProblem) -> Planes | None:
    shape, dest, source = copy.collapsed
    if len(shape) < 2 or dest[-1] != 1 or source[-1] == 1:
        return None
    axes = [i for i in range(len(shape) - 1) if source[i] == 1]
    if not axes:
        return None
    a, w = axes[0], copy.width
    rest = [i for i in range(len(shape) - 1) if i != a]
    outer = (tuple(shape[i] for i in rest), tuple(dest[i] * w for i in rest), tuple(source[i] * w for i in rest))
    return Planes(shape[a], shape[-1], dest[a] * w, source[-1] * w, outer)


@dataclass(frozen=True)
class BlockConfig(Config):
    """A CTA's tile: square blocks, each transposed in a thread's registers."""

    blocks_a: int = term("blocks along the source's fast axis", leads=True)
    blocks_b: int = term("blocks along the destination's fast axis", leads=True)
    access_bytes: int = term("bytes an access")

    def tile(self, width: int) -> tuple[int, int]:
        """Elements a CTA covers along both axes."""
        n = self.access_bytes // width
        return self.blocks_a * n, self.blocks_b * n


class Transpose(CopyCandidate):
    """The fastest axis differs: blocks transposed in registers, staged in shared memory, 16-byte accesses on both sides."""

    variant = "transpose"
    launches = ("shape_layout/transpose.cu:transpose_blocks",)

    def vector(self, copy: CopyProblem, planes: Planes) -> int:
        widest = 8 if copy.width == 1 else CHUNK
        steps = (planes.dest_a, planes.source_b, *planes.outer[1], *planes.outer[2])
        return min(widest, copy.dest_align, copy.source_align, *(alignment_of(abs(s)) for s in steps))

    def fits(self, copy: CopyProblem, desc: Any) -> Feasibility:
        planes = planes_of(copy)
        if planes is None:
            return no("the fastest axis is the same on both sides, or none has unit stride")
        if self.vector(copy, planes) < min(2 * copy.width, CHUNK):
            return no("rows are not aligned to two elements")
        return OK

    def configs(self, desc: HasCopy, device: DeviceSpec) -> Iterable[BlockConfig]:
        copy = desc.copy()
        planes = planes_of(copy)
        assert planes is not None
        widths = [v for v in ACCESSES if copy.width <= v <= self.vector(copy, planes)]
        return [BlockConfig(a, b, v) for v in widths[:2] for a, b in ((16, 16), (8, 8))]

    def efficiency(self, copy: CopyProblem, config: BlockConfig, costs: BandwidthCosts) -> float:
        planes = planes_of(copy)
        assert planes is not None
        filled = planes.filled(*config.tile(copy.width))
        # Large tiles store longer rows, small ones leave no SM idle; 4 MiB counts as small (measured on an H200).
        order = 1.0 if (config.blocks_b == 16) == (copy.nbytes >= 16 << 20) else costs.other_tile_ratio
        of_access = dict(zip(ACCESSES, costs.transposed_block_efficiency))[config.access_bytes]
        return order * of_access * max(filled, costs.least_filled_ratio)

    def lower(self, desc: HasCopy, device: DeviceSpec, config: BlockConfig) -> tuple[Step, ...]:
        copy = desc.copy()
        entry = f"transpose_blocks<{copy.width}, {config.access_bytes}, {config.blocks_a}, {config.blocks_b}, "
        return _transpose_launch(copy, entry, config.tile(copy.width), config.blocks_a * config.blocks_b)


class TransposeTile(CopyCandidate):
    """The fastest axis differs, at any alignment: 64 x 64 tiles through shared memory."""

    variant = "transpose_tile"
    launches = ("shape_layout/transpose.cu:transpose_tile",)

    def fits(self, copy: CopyProblem, desc: Any) -> Feasibility:
        if planes_of(copy) is None:
            return no("the fastest axis is the same on both sides, or none has unit stride")
        if copy.width > 8:
            return no("a tile of 16-byte elements exceeds static shared memory")
        return OK

    def efficiency(self, copy: CopyProblem, config: Any, costs: BandwidthCosts) -> float:
        planes = planes_of(copy)
        assert planes is not None
        filled = planes.filled(64, 64)
        efficiency = min(costs.transposed_tile_efficiency, costs.transposed_tile_efficiency_per_byte * copy.width)
        return efficiency * max(filled, costs.least_filled_ratio)

    def lower(self, desc: HasCopy, device: DeviceSpec, config: Any) -> tuple[Step, ...]:
        copy = desc.copy()
        return _transpose_launch(copy, f"transpose_tile<{copy.width}, ", (64, 64), 256)


def _transpose_launch(copy: CopyProblem, entry: str, tile: tuple[int, int], threads: int) -> tuple[Step, ...]:
    planes = planes_of(copy)
    assert planes is not None
    extents, dest, source = planes.outer
    tiles_a, tiles_b = -(-planes.a // tile[0]), -(-planes.b // tile[1])
    args = (
        Ptr(copy.dest), Ptr(copy.source), np.int64(planes.a), np.int64(planes.b),
        np.int64(planes.dest_a), np.int64(planes.source_b),
        np.uint32(tiles_a), np.uint32(tiles_b), pack_dims(extents, [dest, source], "u64"),
    )  # fmt: skip
    grid = (tiles_a * tiles_b * math.prod(extents), 1, 1)
    return (Launch(Kernel("shape_layout/transpose.cu", f"{entry}{len(extents)}>"), grid, (threads, 1, 1), args),)
