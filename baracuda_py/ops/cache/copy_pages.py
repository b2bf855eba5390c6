"""copy_pages: pages of a paged cache copied to others, of keys, values and their scales, of all layers, in one launch."""

from __future__ import annotations

import math
import struct
from typing import Any, ClassVar

from ...plan.candidate import OK, Candidate, Cost, Feasibility, no
from ...plan.descriptor import Descriptor, Slot, described
from ...plan.plan import Plan
from ...plan.registry import Op, register
from ...runtime.steps import Arg, Kernel, Launch, Packed, Ptr, Step
from ...tensor.axes import alignment_of, c_strides
from ...types import DeviceSpec, ElementKind, InvalidProblemError, OpCategory
from .._fitted import Fitted
from .._function import function_of
from .._launch import divisor
from . import samples
from .oracle import append as oracle

__all__ = ["CopyPagesDescriptor", "CopyPagesPlan", "copy_pages"]

BYTES = tuple(kind for kind in ElementKind if not kind.packed)
PARTS = ("k_pages", "v_pages", "k_scales", "v_scales")
FILE = "cache/copy.cu"
WORD, THREADS, UNROLL = 16, 256, 4
MOST_CTAS = (1 << 31) - 1


class Costs(Fitted, table="rows.copy_pages"):
    bandwidth_efficiency: float


@described(
    Slot("k_pages", "inout", takes=BYTES),
    Slot("v_pages", "inout", takes=BYTES),
    Slot("k_scales", "inout", optional=True, takes=BYTES, shape="scales_shape"),
    Slot("v_scales", "inout", optional=True, takes=BYTES, shape="scales_shape"),
    Slot("source", element=ElementKind.I32, shape="pairs", strided=False, aligned=False),
    Slot("dest", element=ElementKind.I32, shape="pairs", strided=False, aligned=False),
    Slot("status", "out", element=ElementKind.I32, shape="pairs", strided=False, aligned=False),
)
class CopyPagesDescriptor(Descriptor):
    """Pages of `k_pages_shape` and `v_pages_shape`, [P, ...] of rank 4 or [layers, P, ...] of rank 5, scales of all axes but the
    last, and so many `pairs`."""

    k_pages_shape: tuple[int, ...]
    v_pages_shape: tuple[int, ...]
    pairs: tuple[int, ...]
    element: ElementKind

    name = "copy_pages"
    ranks: ClassVar[tuple[int, int]] = (4, 5)

    @property
    def page_axis(self) -> int:
        """Where pages are counted, behind layers."""
        return len(self.k_pages_shape) - self.ranks[0]

    @property
    def layers(self) -> int:
        return self.k_pages_shape[0] if self.page_axis else 1

    @property
    def pages(self) -> int:
        return self.k_pages_shape[self.page_axis]

    @property
    def scales_shape(self) -> tuple[int, ...]:
        return self.k_pages_shape[:-1]

    @property
    def parts(self) -> list[str]:
        """The arrays that there are, in the kernel's order."""
        return [name for name in PARTS if self.has(name)]

    @property
    def page_bytes(self) -> int:
        """Bytes that a page has in all arrays and layers."""
        layouts = [self.layout(name) for name in self.parts]
        inner = (x.element.nbytes(math.prod(x.shape[self.page_axis + 1 :])) for x in layouts)
        return self.layers * sum(inner)

    @property
    def empty(self) -> bool:
        return 0 in self.pairs

    def check(self) -> None:
        if len(self.k_pages_shape) not in self.ranks:
            raise InvalidProblemError(
                f"{self.op}: k_pages has shape {self.k_pages_shape}",
                "pass [P, ...] of rank 4, or [layers, P, ...] of rank 5",
            )
        if self.v_pages_shape[:-1] != self.k_pages_shape[:-1]:
            raise InvalidProblemError(
                f"{self.op}: v_pages has shape {self.v_pages_shape} and k_pages {self.k_pages_shape}",
                "give both one shape, only the last axis may differ",
            )
        if self.has("k_scales") != self.has("v_scales"):
            raise InvalidProblemError(f"{self.op}: one of k_scales and v_scales was passed", "pass both or neither")
        if not self.layers:
            raise InvalidProblemError(f"{self.op}: k_pages has shape {self.k_pages_shape}", "pass one layer or more")
        if len(self.pairs) != 1:
            raise InvalidProblemError(f"{self.op}: source has shape {self.pairs}", "pass one id a pair")


class Chunks(Candidate[CopyPagesDescriptor]):
    """One launch: a CTA a chunk of a page."""

    variant = "chunks"
    launches = (f"{FILE}:copy_pages",)

    def supports(self, desc: CopyPagesDescriptor, device: DeviceSpec) -> Feasibility:
        for name in desc.parts:
            layout, axis = desc.layout(name), desc.page_axis + 1
            if layout.strides[axis:] != c_strides(layout.shape[axis:]):
                return no(
                    f"a page of {name} does not lie in one piece", f"{name} whose axes behind the pages lie in C order"
                )
        if math.prod((*desc.pairs, desc.layers, _chunks(desc))) > MOST_CTAS:
            return no(f"{desc.pairs[0]} pairs take more than {MOST_CTAS} CTAs", "fewer pairs at once")
        return OK

    def cost(self, desc: CopyPagesDescriptor, device: DeviceSpec, config: Any) -> Cost:
        moved = 2 * desc.pairs[0] * desc.page_bytes
        return Cost.streaming(device, moved, efficiency=Costs.of(device).bandwidth_efficiency)

    def lower(self, desc: CopyPagesDescriptor, device: DeviceSpec, config: Any) -> tuple[Step, ...]:
        width, chunks = _width(desc), _chunks(desc)
        args: tuple[Arg, ...] = (
            *(Ptr(name) if desc.has(name) else Packed(bytes(8)) for name in PARTS), Ptr("source"), Ptr("dest"), Ptr("status"),
            _arrays(desc), divisor(chunks, "u32"), divisor(desc.layers, "u32"), Packed(struct.pack("<I", desc.pages), 4),
        )  # fmt: skip
        kernel = Kernel(FILE, f"copy_pages<{width}, {THREADS}, {UNROLL}>")
        grid = (desc.pairs[0] * desc.layers * chunks, len(desc.parts), 1)
        return (Launch(kernel, grid, (THREADS, 1, 1), args),)


def _page_bytes(desc: CopyPagesDescriptor, name: str) -> int:
    """Of one layer."""
    layout = desc.layout(name)
    return layout.element.nbytes(math.prod(layout.shape[desc.page_axis + 1 :]))


def _steps(desc: CopyPagesDescriptor, name: str) -> tuple[int, int]:
    """Bytes from layer to layer and from page to page."""
    layout = desc.layout(name)
    steps = [s * layout.element.bits // 8 for s in layout.strides[: desc.page_axis + 1]]
    return (steps[0], steps[1]) if desc.page_axis else (0, steps[0])


def _width(desc: CopyPagesDescriptor) -> int:
    """Bytes of a word that divides every page and every step to one."""
    distances = [n for name in desc.parts for n in (*_steps(desc, name), _page_bytes(desc, name))]
    return min(WORD, *(desc.layout(name).align for name in desc.parts), *(alignment_of(abs(n)) for n in distances))


def _chunks(desc: CopyPagesDescriptor) -> int:
    """CTAs for a page of the longest array."""
    most = max(_page_bytes(desc, name) for name in desc.parts)
    return max(1, -(-most // (_width(desc) * THREADS * UNROLL)))


def _arrays(desc: CopyPagesDescriptor) -> Packed:
    """Arrays of kernels/cache/copy.cu."""
    width = _width(desc)
    data = b"".join(struct.pack("<qqII", *_steps(desc, n), _page_bytes(desc, n) // width, 0) for n in desc.parts)
    return Packed(data.ljust(4 * 24, b"\0"), 8)


class CopyPagesPlan(Plan[CopyPagesDescriptor]):
    """Copies of pages: operands `k_pages`, `v_pages` (and `k_scales`, `v_scales`) in place, `source`, `dest`, and `status`."""

    descriptor = CopyPagesDescriptor
    statuses = {1: ("a page's id is not in [0, P)", "give ids of pages of the arrays")}
    category = OpCategory.ATTENTION
    candidates = (Chunks(),)
    probes = (
        {"k_pages_shape": (9, 16, 8, 128), "v_pages_shape": (9, 16, 8, 128), "pairs": (3,), "element": "bf16"},
        {"k_pages_shape": (2, 9, 3, 1, 5), "v_pages_shape": (2, 9, 3, 1, 7), "pairs": (3,), "element": "i8",
         "k_scales_element": "f32", "v_scales_element": "f32"},
    )  # fmt: skip
    reference = oracle.copy_pages


@function_of(CopyPagesPlan)
def copy_pages(
    k_pages: Any,
    v_pages: Any,
    source: Any,
    dest: Any,
    *,
    k_scales: Any = None,
    v_scales: Any = None,
    status: Any = None,
) -> Any:
    """Copies page source[i] to page dest[i], in every array and layer; returns the arrays and `status`.

    k_pages, v_pages: [P, ...] of rank 4 or [layers, P, ...] of rank 5, written in place; the last axes may differ.
    k_scales, v_scales: of their shape but for the last axis. A page is contiguous.
    source, dest: device int32 [n], read at launch. A page of dest is named once, and is none of source.
    status: device int32 [n], allocated if not given: 0 where a page was copied, 1 where an id is not in [0, P).
    """


register(Op("copy_pages", CopyPagesPlan, copy_pages, samples.copy_pages))
