"""masked_select and its gradient: the elements under a mask in order; the device counts them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from ....call.results.trim import Trim
from ....plan.descriptor import Slot, described
from ....plan.plan import Plan
from ....plan.registry import Gradient, Op, register
from ....runtime.steps import Fill, Ptr, Scratch, Step
from ....types import DeviceSpec, ElementKind, InvalidProblemError, OpCategory
from ..._function import SignatureRules, function_of
from ..._rows import FLOATS
from .._indexed import BYTES
from . import oracle, samples
from ._problem import FILE, RANKING, MaskedCandidate, MaskedProblem, Tiling

__all__ = [
    "MaskedSelectBackwardDescriptor",
    "MaskedSelectBackwardPlan",
    "MaskedSelectDescriptor",
    "MaskedSelectPlan",
    "masked_select",
    "masked_select_backward",
]

BOOL, I64 = ElementKind.BOOL, ElementKind.I64


@described(
    Slot("out", "out", shape="out_shape", element="element", strided=False),
    Slot("count", "out", element=I64, shape="count_shape", strided=False),
    Slot("x", takes=BYTES, element="element"),
    Slot("mask", takes=(BOOL,)),
)
class MaskedSelectDescriptor(MaskedProblem):
    """x of `x_shape` and mask of `mask_shape`, which broadcast to one shape. `out` has `size` elements, by default as
    many as that shape; those behind the last one under the mask are 0."""

    x_shape: tuple[int, ...]
    mask_shape: tuple[int, ...]
    element: ElementKind
    mask_element: ElementKind = BOOL
    size: int | None = None

    name = "masked_select"
    counted: ClassVar[Mapping[str, str]] = {"out": "count"}

    @property
    def capacity(self) -> int:
        """How many elements the result holds."""
        return self.count if self.size is None else self.size

    @property
    def out_shape(self) -> tuple[int, ...]:
        return (self.capacity,)

    def neutral(self) -> dict[str, Any]:
        return {**super().neutral(), "size": self.capacity}

    def check(self) -> None:
        super().check()
        if self.capacity < 0:
            raise InvalidProblemError(f"{self.op}: size={self.size} is negative", "give 0 or more")


@described(
    Slot("grad_x", "out", takes=FLOATS, shape="common_shape", element="element"),
    Slot("grad", takes=FLOATS, element="element"),
    Slot("mask", takes=(BOOL,)),
    Slot("x", takes=FLOATS, element="element"),
)
class MaskedSelectBackwardDescriptor(MaskedProblem):
    """The gradient of the result of `masked_select`, its mask, and the shape of its x."""

    grad_shape: tuple[int, ...]
    mask_shape: tuple[int, ...]
    x_shape: tuple[int, ...]
    element: ElementKind
    mask_element: ElementKind = BOOL

    name = "masked_select_backward"

    def check(self) -> None:
        super().check()
        if len(self.grad_shape) != 1:
            raise InvalidProblemError(
                f"{self.op}: grad has shape {self.grad_shape}, and the result of masked_select one axis",
                "pass the gradient of that result",
            )


class PackTiles(MaskedCandidate):
    """Elements under the mask counted by tiles, the counts added up, the elements written in order."""

    variant = "tiles"
    launches = (*RANKING, f"{FILE}:pack_tiles")

    def lower(self, desc: MaskedSelectDescriptor, device: DeviceSpec, config: Any) -> tuple[Step, ...]:
        nbytes = desc.element.nbytes(desc.capacity)
        if not desc.count:
            return (Fill(Ptr("count"), 0, 8), *((Fill(Ptr("out"), 0, nbytes),) if nbytes else ()))
        tiling, x = Tiling(desc), desc.layout("x")
        (of_mask, mask_dims), (rank, dims) = tiling.mask_dims(), tiling.dims(x, x)
        return (
            *tiling.ranked(Ptr("count")),
            tiling.launch(
                f"pack_tiles<{tiling.index}, {rank}, {of_mask}, {x.natural}, false>",
                Ptr("out"), np.uint64(0), np.int64(desc.capacity), tiling.begins, Ptr("count"), Ptr("mask"), Ptr("x"),
                tiling.number, mask_dims, dims,
            ),
        )  # fmt: skip


class UnpackTiles(MaskedCandidate):
    """Elements under the mask counted by tiles, the counts added up, the gradients sent to where elements came from."""

    variant = "tiles"
    launches = (*RANKING, f"{FILE}:unpack_tiles")

    def lower(self, desc: MaskedSelectBackwardDescriptor, device: DeviceSpec, config: Any) -> tuple[Step, ...]:
        if not desc.count:
            return ()
        tiling, grad_x, grad = Tiling(desc), desc.layout("grad_x"), desc.layout("grad")
        (of_mask, mask_dims), (rank, dims) = tiling.mask_dims(), tiling.dims(grad_x, grad_x)
        of_grad, grad_dims = tiling.in_order(grad)
        return (
            *tiling.ranked(Scratch.named("found", 8)),
            tiling.launch(
                f"unpack_tiles<{tiling.index}, {rank}, {of_mask}, {of_grad}, {grad_x.natural}, false>",
                Ptr("grad_x"), np.uint64(0), tiling.begins, Ptr("mask"), np.uint64(0), Ptr("grad"),
                np.int64(desc.grad_shape[0]), tiling.number, mask_dims, dims, grad_dims,
            ),
        )  # fmt: skip


class MaskedSelectPlan(Plan[MaskedSelectDescriptor]):
    """Elements under a mask, in order: operands `x`, `mask`, `out` and `count` (i64 [1])."""

    descriptor = MaskedSelectDescriptor
    category = OpCategory.INDEXING
    candidates = (PackTiles(),)
    probes = (
        {"x_shape": (5000,), "mask_shape": (5000,), "element": "f32"},
        {"x_shape": (70, 130), "mask_shape": (130,), "element": "bf16", "x_strides": (131, 1), "size": 40},
        {"x_shape": (2, 1, 7), "mask_shape": (3, 1), "element": "complex128"},
    )
    reference = oracle.masked_select
    shown = "x", I64


class MaskedSelectBackwardPlan(Plan[MaskedSelectBackwardDescriptor]):
    """The gradient of `masked_select`: operands `grad`, `mask`, `x` and `grad_x`."""

    descriptor = MaskedSelectBackwardDescriptor
    category = OpCategory.INDEXING
    candidates = (UnpackTiles(),)
    probes = (
        {"grad_shape": (5000,), "x_shape": (5000,), "mask_shape": (5000,), "element": "f32"},
        {"grad_shape": (40,), "x_shape": (70, 130), "mask_shape": (130,), "element": "bf16"},
    )
    reference = oracle.masked_select_backward


@function_of(MaskedSelectPlan, rules=SignatureRules(trim=Trim(("out",), unless="size")))
def masked_select(x: Any, mask: Any, *, size: int | None = None, trim: bool = True, count: Any = None) -> Any:
    """The elements of `x` whose `mask` is true, in C order, as torch.masked_select and x[mask] give them: one axis.

    x: any array of a byte-wide kind. mask: bool. The two broadcast to one shape, whose elements are counted in C order; any
    strides. Bytes are moved.
    trim: waits for the device once, for the count, and returns as many elements. With ``trim=False`` or a `size` nothing waits,
    and a captured graph can hold the call: the result is (out, count), where `out` has `size` elements (by default as many as
    that shape), of which those behind the last selected one are 0, and `count` (int64 [1]) is how many elements are under the
    mask. If these are more than `size`, the first `size` are kept. Both are allocated if not given. Raises InvalidProblemError
    for shapes that do not broadcast, and for a negative size.
    """


@function_of(MaskedSelectBackwardPlan)
def masked_select_backward(grad: Any, mask: Any, x: Any, *, grad_x: Any = None) -> Any:
    """The gradient of `masked_select` with respect to x: grad's elements where they were selected from, 0 elsewhere.

    grad: the gradient of the result (f16, bf16, f32, f64), one axis of any stride; of an element of x that has no place in it,
    the gradient is 0. mask: that of the forward call. x: its values are not read. Elements are moved, none is computed.
    grad_x: of grad's dtype and of the shape that x and mask broadcast to, to be summed over the axes that x was broadcast along;
    allocated in C order if not given. Returns grad_x.
    """


register(
    Op("masked_select", MaskedSelectPlan, masked_select, samples.masked_select,
       gradient=Gradient("masked_select_backward", ("mask", "x"), {"x": "grad_x"}, broadcast=True, shapes=("x",)),
       peers={"torch": "masked_select"})
)  # fmt: skip
register(Op("masked_select_backward", MaskedSelectBackwardPlan, masked_select_backward, samples.masked_select_backward))
