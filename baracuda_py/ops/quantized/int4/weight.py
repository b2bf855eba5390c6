"""What the problems of int4 weights have in common: the weight's operands, their shapes, and what kernels get of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ....packed.int4 import BYTES, Int4Layout, PackedInt4, check_order, check_problem, check_zeros, shapes_of
from ....packed.weight import on_host, refuse_packed
from ....plan.candidate import OK, Feasibility, no
from ....plan.descriptor import Descriptor, Slot
from ....plan.fields import integer
from ....tensor import Tensor
from ....tensor.axes import as_ints
from ....types import ElementKind, InvalidProblemError, OperandTypeError
from ....types.errors import shown

__all__ = [
    "HALVES",
    "ORDER",
    "SLOTS",
    "WORDS",
    "Int4Weight",
    "arrays_of",
    "cuda_layout",
    "extents_of",
    "groups_fit",
    "order_of",
    "taken_weight",
]

HALVES = (ElementKind.F16, ElementKind.BF16)
WORDS = (ElementKind.U32, ElementKind.I32)
SLOTS = (
    Slot("codes", takes=(*WORDS, ElementKind.U8), shape="codes_shape", strided=False),
    Slot("scales", takes=HALVES, shape="scales_shape", strided=False),
    Slot("zeros", optional=True, takes=(ElementKind.U8, *WORDS), shape="points_shape", strided=False),
)
ORDER = Slot("order", optional=True, takes=(ElementKind.I32,), shape="places_shape", strided=False, aligned=False)
_CUDA = {
    Int4Layout.KAIO: "Kaio",
    Int4Layout.AWQ: "Awq",
    Int4Layout.GPTQ: "Gptq",
    Int4Layout.TILED: "Tiled",
    Int4Layout.PLAIN: "Plain",
}


def cuda_layout(layout: Int4Layout) -> str:
    """The layout's struct of kernels/include/quantized/int4_layout.cuh."""
    return f"nibbles::{_CUDA[layout]}"


class Int4Weight(Descriptor):
    """A problem with a weight [K, N] of int4 codes. A subclass says `weight_shape`."""

    @property
    def weight_shape(self) -> tuple[int, int]:
        raise NotImplementedError

    packing: Int4Layout
    group_size: int

    def as_weight(self, shape: tuple[int, ...]) -> tuple[int, int]:
        """The shape of a weight, which has two axes."""
        if len(shape) != 2:
            raise InvalidProblemError(f"{self.op}: a weight of shape {shape}", "give (K, N), both at least 1")
        return shape[0], shape[1]

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return shapes_of(self.packing, self.weight_shape, self.group_size)

    @property
    def codes_shape(self) -> tuple[int, ...]:
        return self.shapes["codes"]

    @property
    def scales_shape(self) -> tuple[int, ...]:
        return self.shapes["scales"]

    @property
    def points_shape(self) -> tuple[int, ...]:
        return self.shapes["zeros"]

    @property
    def places_shape(self) -> tuple[int, ...]:
        return self.shapes["order"]

    @property
    def groups(self) -> int:
        return self.scales_shape[0]

    @property
    def columns(self) -> int:
        """Columns of scales, N or more."""
        return self.scales_shape[1]

    def check_weight(self) -> None:
        """Raises where the weight has no such layout, groups, zero points or order."""
        layout, order = self.packing, "order" in self.slot_of and self.has("order")
        check_problem(self.op, layout, self.weight_shape, self.group_size)
        zeros = "zeros" in self.slot_of and self.has("zeros")
        check_zeros(self.op, layout, self.weight_shape, zeros=zeros, order=order)
        self.check_kinds(layout, "codes", "zeros")

    def check_kinds(self, layout: Int4Layout, codes: str, zeros: str) -> None:
        """Raises OperandTypeError where codes or zero points are held in what the layout does not have."""
        for name, in_bytes in ((codes, layout is Int4Layout.PLAIN), (zeros, layout in BYTES)):
            element = self.element_of(name) if name in self.slot_of else None
            if element is not None and (element is ElementKind.U8) is not in_bytes:
                kind = "u8" if in_bytes else "i32 or u32"
                raise OperandTypeError(
                    f"{self.op}: {name} of layout {str(layout)!r} must hold {kind}, got {element}",
                    f"pass {kind}, or the layout that it is packed in",
                )

    def check_pair(self, given: str, written: str) -> None:
        """Raises InvalidProblemError where one of the two is there without the other."""
        if self.has(given) is not self.has(written):
            lacks, has = (written, given) if self.has(given) else (given, written)
            raise InvalidProblemError(f"{self.op}: {has} without {lacks}", f"pass {lacks}, or leave {has} out")


def _columns_of(op: str, layout: Int4Layout, codes: tuple[int, ...]) -> int:
    """N, as the codes' shape says it."""
    if layout is Int4Layout.TILED:
        raise InvalidProblemError(f"{op}: shape is missing", "pass shape=(K, N): layout 'tiled' has N filled up")
    if len(codes) != 2:
        raise InvalidProblemError(f"{op}: codes have shape {codes}", f"pass rank 2, as layout {str(layout)!r} has them")
    return codes[0] if layout is Int4Layout.KAIO else codes[1] * (8 if layout is Int4Layout.AWQ else 1)


def taken_weight(
    op: str, tensors: dict[str, Tensor], layout: Any, shape: Any, group_size: int, k: int | None = None
) -> tuple[Int4Layout, tuple[int, int]]:
    """The layout, and the weight's shape where it is not given; raises where the arrays are not what the layout has."""
    layout = Int4Layout.of(layout, f"{op}: layout")
    if shape is None:
        codes = tensors["codes"].shape
        columns = _columns_of(op, layout, codes)
        if k is None:
            k = codes[-1] * 8 if layout is Int4Layout.KAIO else codes[0] * (8 if layout is Int4Layout.GPTQ else 1)
        shape = (k, columns)
    whole = extents_of(op, "shape", shape, ("K", "N"))
    if k is not None and whole[0] != k:
        raise InvalidProblemError(f"{op}: x has K={k} and the weight is {whole}", "pass a weight of that K")
    arrays = {name: tensors.get(name) for name in ("codes", "scales", "zeros", "order")}
    try:
        PackedInt4(layout, (whole[0], whole[1]), group_size, **{n: _Held(x) if x else None for n, x in arrays.items()})
    except (InvalidProblemError, OperandTypeError) as error:
        raise type(error)(f"{op}: {error.reason.removeprefix('PackedInt4: ')}", error.fix) from None
    return layout, (whole[0], whole[1])


def extents_of(op: str, name: str, given: Any, of: Sequence[str]) -> tuple[int, ...]:
    """An option that is a tuple of ints, as many as `of` names; InvalidProblemError for anything else."""
    try:
        extents = as_ints(given)
    except Exception:  # a foreign object's __index__ or __len__ may raise anything
        extents = ()
    if len(extents) != len(of):
        raise InvalidProblemError(f"{op}: {name}={shown(given)}", f"give ({', '.join(of)}), ints")
    return extents


class _Held:
    """A Tensor that was taken in before."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor

    def __baracuda_tensor__(self) -> Tensor:
        return self.tensor


def order_of(groups: np.ndarray[Any, Any], group_size: int) -> np.ndarray[Any, Any]:
    """The k that each place of layout "tiled" holds, of the group of each k (g_idx): groups in a row, K's order within them."""
    if not np.array_equal(np.sort(groups), np.arange(len(groups)) // group_size):
        raise InvalidProblemError(
            f"repack_int4: order does not put {group_size} k's in each of {len(groups) // group_size} groups",
            "pass the group of each k that the weight was quantised with",
        )
    return np.argsort(groups, kind="stable").astype(np.int32)


def arrays_of(
    op: str, codes: Any, scales: Any, zeros: Any, order: Any, shape: Any, group_size: int | None, layout: Any, *,
    reads: bool = False,
) -> tuple[dict[str, Any], dict[str, Any]]:  # fmt: skip
    """The operands that a weight has, and the options that describe it: of a PackedInt4, or of its arrays as given.

    Raises InvalidProblemError, where it `reads`, for an `order` on the host that cannot be; one in device memory is not read.
    """
    if isinstance(codes, PackedInt4):
        given = {"scales": scales, "zeros": zeros, "order": order, "shape": shape}
        twice = [name for name, x in given.items() if x is not None]
        if layout is not None and Int4Layout.of(layout, f"{op}: layout") is not codes.layout:
            raise InvalidProblemError(
                f"{op}: layout={str(layout)!r}, and the weight is packed in layout {str(codes.layout)!r}",
                f"leave layout out, or repack_int4(weight, {str(layout)!r})",
            )
        if group_size is not None and integer(group_size, f"{op}: group_size") != codes.group_size:
            raise InvalidProblemError(
                f"{op}: group_size={group_size}, and the weight has {codes.group_size}", "leave group_size out"
            )
        if twice:
            raise InvalidProblemError(f"{op}: {twice[0]} was passed beside a PackedInt4", f"leave {twice[0]} out")
        options = {"shape": codes.shape, "group_size": codes.group_size, "layout": codes.layout}
        return dict(codes.operands), options
    refuse_packed(op, codes, "matmul_int4")
    named = {"codes": codes, "scales": scales, "zeros": zeros, "order": order}
    given = {name: x for name, x in named.items() if x is not None or name in ("codes", "scales")}
    whole = None if shape is None else extents_of(op, "shape", shape, ("K", "N"))
    layout = Int4Layout.TILED if layout is None else layout
    group_size = 128 if group_size is None else integer(group_size, f"{op}: group_size")
    if group_size < 1:
        raise InvalidProblemError(f"{op}: group_size={group_size}", "give 32, 64, 128 or K")
    if reads and order is not None and on_host(order):
        check_order(op, Int4Layout.of(layout, f"{op}: layout"), order, group_size)
    return given, {"shape": whole, "group_size": group_size, "layout": layout}


MOST_GROUPS = 65535  # CTAs along y


def groups_fit(desc: Int4Weight) -> Feasibility:
    """Whether kernels that have a CTA for each group along y may be launched."""
    return (
        OK
        if desc.groups <= MOST_GROUPS
        else no(f"K has {desc.groups} groups, and a launch at most {MOST_GROUPS} along y")
    )
