"""What ops under a mask have in common: the shape that x and mask broadcast to, and the launches that rank its elements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from ....plan.candidate import OK, Candidate, Cost, Feasibility, no
from ....plan.descriptor import Descriptor, Layout
from ....runtime.steps import Arg, Kernel, Launch, Packed, Ptr, Scratch
from ....tensor.axes import broadcast_shapes, broadcast_strides, merge_axes
from ....types import DeviceSpec, ElementKind, InvalidProblemError
from ..._launch import index_scalar, index_type, pack_dims
from ..nonzero import Costs

__all__ = ["FILE", "RANKING", "MaskedCandidate", "MaskedProblem", "Tiling"]

FILE, COUNTS = "indexing/masked.cu", "indexing/nonzero.cu"
THREADS, TILE, SCAN_THREADS = 256, 4096, 1024  # of those kernels
MOST_TILES = (1 << 31) - 1
RANKING = tuple(f"{COUNTS}:{name}_tiles" for name in ("count", "scan"))


class MaskedProblem(Descriptor):
    """A problem whose elements are those of the shape that its `shaped` operands broadcast to, in C order."""

    shaped: ClassVar[tuple[str, ...]] = ("x", "mask")

    @property
    def common_shape(self) -> tuple[int, ...]:
        shapes = {name: tuple(getattr(self, f"{name}_shape")) for name in self.shaped}
        try:
            return broadcast_shapes(*shapes.values())
        except ValueError:
            said = " and ".join(f"{name} of shape {shape}" for name, shape in shapes.items())
            raise InvalidProblemError(
                f"{self.op}: {said} do not broadcast to one shape", "make each extent the other's, or 1"
            ) from None

    @property
    def count(self) -> int:
        return math.prod(self.common_shape)

    @property
    def count_shape(self) -> tuple[int, ...]:
        return (1,)

    def check(self) -> None:
        self.common_shape  # noqa: B018  # x and mask broadcast


class Tiling:
    """The launches that rank the elements of a problem under its mask, and the arguments of those that move them."""

    def __init__(self, desc: MaskedProblem) -> None:
        self.shape, self.count, self.mask = desc.common_shape, desc.count, desc.layout("mask")
        self.index, self.tiles = index_type(self.count), -(-self.count // TILE)
        self.begins = Scratch.named("begins", 8 * self.tiles)

    @property
    def number(self) -> np.generic:
        return index_scalar(self.count, self.index)

    def dims(self, *layouts: Layout) -> tuple[int, Packed]:
        """The rank and the struct of operands that broadcast to the common shape, strides in bytes."""
        strides = [self._strides(one) for one in layouts]
        extents, merged = merge_axes(self.shape, strides)
        return len(extents), pack_dims(extents, merged, self.index)

    def mask_dims(self) -> tuple[int, Packed]:
        return self.dims(self.mask)

    def in_order(self, layout: Layout) -> tuple[int, Packed]:
        """The same of an operand whose own elements are counted in C order."""
        extents, merged = merge_axes(layout.shape, [[s * layout.natural for s in layout.strides]])
        return len(extents), pack_dims(extents, merged, self.index)

    def ranked(self, found: Arg) -> tuple[Launch, ...]:
        """How many elements of each tile are under the mask, and the sums of these; `found` is how many there are."""
        extents, (strides,) = merge_axes(self.shape, [self._strides(self.mask)])
        vector = self.mask.align == 16 and strides in ((), (1,))
        counts, every_bit = Scratch.named("counts", 4 * self.tiles), np.uint64((1 << 64) - 1)
        taken = f"{str(vector).lower()}, 1, {self.index}, {len(extents)}"
        dims = pack_dims(extents, [strides], self.index)
        return (
            Launch(
                Kernel(COUNTS, f"count_tiles<{taken}>"), (self.tiles, 1, 1), (THREADS, 1, 1),
                (counts, Ptr("mask"), every_bit, self.number, dims),
            ),
            Launch(
                Kernel(COUNTS, f"scan_tiles<{SCAN_THREADS}>"), (1, 1, 1), (SCAN_THREADS, 1, 1),
                (self.begins, found, counts, np.uint32(self.tiles)),
            ),
        )  # fmt: skip

    def launch(self, entry: str, *args: Any) -> Launch:
        return Launch(Kernel(FILE, entry), (self.tiles, 1, 1), (THREADS, 1, 1), args)

    def _strides(self, layout: Layout) -> Sequence[int]:
        return [s * layout.natural for s in broadcast_strides(layout.shape, layout.strides, self.shape)]


class MaskedCandidate(Candidate[Any]):
    """Elements under the mask counted by tiles, the counts added up, then elements moved by their rank."""

    def supports(self, desc: Any, device: DeviceSpec) -> Feasibility:
        tiles = -(-desc.count // TILE)
        return (
            OK
            if tiles <= MOST_TILES
            else no(f"there are {tiles} tiles of {TILE} elements, and a grid has {MOST_TILES} CTAs")
        )

    def cost(self, desc: Any, device: DeviceSpec, config: Any) -> Cost:
        """As if half of the elements were under the mask; the mask is read twice."""
        moved = desc.nbytes + ElementKind.BOOL.nbytes(math.prod(desc.layout("mask").shape))
        one = Cost.streaming(device, moved, efficiency=Costs.of(device).bandwidth_efficiency)
        return Cost(one.bytes, 0, one.seconds + 2 * device.overhead, one.limit)
