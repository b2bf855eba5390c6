"""nonzero: the indices of elements other than zero, in order; the device counts them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from ...call.results.trim import Trim
from ...plan.candidate import OK, Candidate, Cost, Feasibility, no
from ...plan.descriptor import Descriptor, Slot, described
from ...plan.plan import Plan
from ...plan.registry import Op, register
from ...runtime.steps import Fill, Kernel, Launch, Packed, Ptr, Scratch, Step
from ...tensor.axes import merge_axes
from ...types import DeviceSpec, ElementKind, InvalidProblemError, OpCategory
from .._fitted import Fitted
from .._function import SignatureRules, function_of
from .._launch import divisor, grid_of, index_scalar, index_type, pack_dims
from . import oracle, samples

__all__ = ["NonzeroDescriptor", "NonzeroPlan", "nonzero"]

BYTES = tuple(kind for kind in ElementKind if not kind.packed)
THREADS, TILE, SCAN_THREADS = 256, 4096, 1024  # of kernels/indexing/nonzero.cu
MOST_TILES = (1 << 31) - 1


class Costs(Fitted, table="rows.nonzero"):
    bandwidth_efficiency: float


@described(
    Slot("out", "out", element=ElementKind.I64, shape="out_shape", strided=False),
    Slot("count", "out", element=ElementKind.I64, shape="count_shape", strided=False),
    Slot("x", takes=BYTES, shape="shape"),
)
class NonzeroDescriptor(Descriptor):
    """x of `shape`. `out` has a row of indices for each of its elements, of which the first `count` are written."""

    shape: tuple[int, ...]
    element: ElementKind

    name = "nonzero"
    counted: ClassVar[Mapping[str, str]] = {"out": "count"}

    @property
    def out_shape(self) -> tuple[int, ...]:
        return math.prod(self.shape), len(self.shape)

    @property
    def count_shape(self) -> tuple[int, ...]:
        return (1,)

    def check(self) -> None:
        if not self.shape:
            raise InvalidProblemError("nonzero: x has no axis, and its elements no indices", "pass x.reshape(1)")


class Tiles(Candidate[NonzeroDescriptor]):
    """Elements counted by tiles, the counts added up, the indices written."""

    variant = "tiles"
    launches = tuple(f"indexing/nonzero.cu:{name}_tiles" for name in ("count", "scan", "write"))

    def supports(self, desc: NonzeroDescriptor, device: DeviceSpec) -> Feasibility:
        tiles = -(-math.prod(desc.shape) // TILE)
        return (
            OK if tiles <= MOST_TILES else no(f"x has {tiles} tiles of {TILE} elements, and a grid {MOST_TILES} CTAs")
        )

    def cost(self, desc: NonzeroDescriptor, device: DeviceSpec, config: Any) -> Cost:
        """As if a tenth were not zero."""
        size = math.prod(desc.shape)
        moved = 2 * desc.element.nbytes(size) + size * 8 * len(desc.shape) // 10
        one = Cost.streaming(device, moved, efficiency=Costs.of(device).bandwidth_efficiency)
        return Cost(one.bytes, 0, one.seconds + 2 * device.overhead, one.limit)

    def lower(self, desc: NonzeroDescriptor, device: DeviceSpec, config: Any) -> tuple[Step, ...]:
        count = math.prod(desc.shape)
        if not count:
            return (Fill(Ptr("count"), 0, 8),)
        size, x = desc.element.bits // 8, desc.layout("x")
        extents, (strides,) = merge_axes(x.shape, [[s * size for s in x.strides]])
        index, tiles = index_type(count), -(-count // TILE)
        vector = x.align == 16 and strides in ((), (size,))
        counts, begins = Scratch.named("counts", 4 * tiles), Scratch.named("begins", 8 * tiles)
        mask, dims = np.uint64(_mask(desc.element)), pack_dims(extents, [strides], index)
        shape = Packed(b"".join(divisor(n, index).data for n in desc.shape), 4 if index == "u32" else 8)
        number = index_scalar(count, index)
        taken, grid = f"{str(vector).lower()}, {size}, {index}, {len(extents)}", (tiles, 1, 1)

        def launch(entry: str, grid: tuple[int, int, int], threads: int, *args: Any) -> Launch:
            return Launch(Kernel("indexing/nonzero.cu", entry), grid, (threads, 1, 1), args)

        return (
            launch(f"count_tiles<{taken}>", grid, THREADS, counts, Ptr("x"), mask, number, dims),
            launch(f"scan_tiles<{SCAN_THREADS}>", grid_of(1, 1), SCAN_THREADS, begins, Ptr("count"), counts, np.uint32(tiles)),
            launch(
                f"write_tiles<{taken}, {len(desc.shape)}>", grid, THREADS, Ptr("out"), begins, Ptr("x"), mask, number, dims,
                shape,
            ),
        )  # fmt: skip


def _mask(element: ElementKind) -> int:
    """The bits that make an element other than zero, all but the signs of floats, repeated over 64 bits."""
    part = element.bits // 2 if element.is_complex else element.bits
    bits = (1 << (part - (element.is_float or element.is_complex))) - 1
    return sum(bits << at for at in range(0, 64, part))


class NonzeroPlan(Plan[NonzeroDescriptor]):
    """Indices of elements other than zero: operands `x`, `out` (a row for each element of x), and `count` (i64 [1])."""

    descriptor = NonzeroDescriptor
    category = OpCategory.INDEXING
    candidates = (Tiles(),)
    probes = (
        {"shape": (5000,), "element": "bool"},
        {"shape": (70, 130), "element": "f32", "x_strides": (131, 1)},
        {"shape": (2, 3, 7), "element": "complex128"},
    )

    reference = oracle.nonzero
    shown = "x", ElementKind.I64


@function_of(NonzeroPlan, rules=SignatureRules(trim=Trim(("out",))))
def nonzero(x: Any, /, *, trim: bool = True, count: Any = None) -> Any:
    """The indices of x's elements other than zero, in C order: int64 [count, rank], as torch.nonzero gives them.

    x: any array of a byte-wide kind and of rank 1 or more; NaN is not zero, -0.0 is.
    trim: waits for the device once, for the count, and returns as many rows. With ``trim=False`` nothing waits, and the result
    is (out, count): `out` has a row for each element of x, of which the first `count` (int64 [1]) are written and the others are
    left unchanged; a captured graph can hold such a call. Both are allocated if not given.
    """


register(Op("nonzero", NonzeroPlan, nonzero, samples.nonzero, peers={"cupy": "argwhere", "torch": "nonzero"}))
