"""The gradients of tile and repeat_interleave: sums of the gradient over an element's copies, by the kernels of `sum`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...plan.candidate import Candidate, Cost
from ...plan.descriptor import Descriptor, Slot, described
from ...plan.lowering import Sub
from ...plan.plan import Plan
from ...plan.registry import Op, register
from ...plan.selection import Selection, selected
from ...runtime.steps import Ptr
from ...tensor.axes import c_strides
from ...types import DeviceSpec, ElementKind, OpCategory, PrecisionGuarantee
from .._function import SignatureRules, function_of
from .._numbers import one_or_more
from .._rows import FLOATS
from ..reduce.reduce import ReduceDescriptor, ReducePlan
from . import oracle, samples
from .moves import RepeatInterleaveDescriptor, TileDescriptor

__all__ = [
    "RepeatInterleaveBackwardDescriptor",
    "RepeatInterleaveBackwardPlan",
    "TileBackwardDescriptor",
    "TileBackwardPlan",
    "repeat_interleave_backward",
    "tile_backward",
]

SLOTS = (
    Slot("grad_x", "out", takes=FLOATS),
    Slot("grad", takes=FLOATS, shape="grad_shape", element="element"),
    Slot("x", takes=FLOATS),
)


class OfCopies(Descriptor):
    """The gradient with respect to an x of `shape` whose elements the forward op copies."""

    shape: tuple[int, ...]
    element: ElementKind

    def split(self) -> tuple[tuple[tuple[int, int], ...], tuple[int, ...]]:
        """The axes of the gradient, split into those of x and those of copies: extents and strides in elements, and which are of
        copies."""
        raise NotImplementedError

    def sums(self) -> ReduceDescriptor:
        """The sum over the axes of copies."""
        axes, copies = self.split()
        grad, made = self.layout("grad"), self.layout("grad_x")
        layouts: dict[str, Any] = {
            "x_strides": tuple(stride for _, stride in axes), "x_align": grad.align, "out_strides": made.strides,
            "out_align": made.align, "out_element": made.element,
        }  # fmt: skip
        return ReduceDescriptor(tuple(n for n, _ in axes), self.element, copies, name="sum", **layouts)


@described(*SLOTS)
class TileBackwardDescriptor(OfCopies):
    """The gradient of tile with respect to an x of `shape`, for the `reps` of its call."""

    shape: tuple[int, ...]
    element: ElementKind
    reps: Any  # a tuple, of one int or several

    name = "tile_backward"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._each(("reps",), one_or_more)

    @property
    def grad_shape(self) -> tuple[int, ...]:
        return TileDescriptor(self.shape, self.element, self.reps).out_shape

    def split(self) -> tuple[tuple[tuple[int, int], ...], tuple[int, ...]]:
        """A leading axis of one copy, for tiles without axes, and axes of the copies before x's own."""
        strides = self.layout("grad").strides
        new = len(strides) - len(self.shape)
        counts = (1,) * (len(strides) - len(self.reps)) + self.reps
        axes, copies = [(1, 0)], [0]
        for i, (stride, count) in enumerate(zip(strides, counts)):
            n = self.shape[i - new] if i >= new else 1
            copies.append(len(axes))
            axes.append((count, n * stride))
            if i >= new:
                axes.append((n, stride))
        return tuple(axes), tuple(copies)


@described(*SLOTS)
class RepeatInterleaveBackwardDescriptor(OfCopies):
    """The gradient of repeat_interleave with respect to an x of `shape`, for the arguments of its call."""

    shape: tuple[int, ...]
    element: ElementKind
    repeats: int
    axis: int | None = None

    name = "repeat_interleave_backward"

    @property
    def grad_shape(self) -> tuple[int, ...]:
        return RepeatInterleaveDescriptor(self.shape, self.element, self.repeats, self.axis).out_shape

    def split(self) -> tuple[tuple[tuple[int, int], ...], tuple[int, ...]]:
        """An axis of the copies behind the one that was repeated; without such, behind all."""
        strides = self.layout("grad").strides
        if self.axis is None:
            (stride,) = strides
            own = [(n, s * self.repeats * stride) for n, s in zip(self.shape, c_strides(self.shape))]
            return (*own, (self.repeats, stride)), (len(own),)
        at, axes = self.axis % len(self.shape), list(zip(self.shape, strides))
        n, stride = axes[at]
        axes[at : at + 1] = [(n, self.repeats * stride), (self.repeats, stride)]
        return tuple(axes), (at + 1,)


@dataclass(frozen=True)
class Summed:
    """The configuration: what adds up the copies."""

    sum: Selection

    def __str__(self) -> str:
        return f"sum={self.sum.candidate.variant} {self.sum.config}".strip()


class SumOfCopies(Candidate[Any]):
    """The sum over views of the gradient."""

    variant = "sum"
    launches = tuple(dict.fromkeys(launch for candidate in ReducePlan.candidates for launch in candidate.launches))

    def configs(self, desc: OfCopies, device: DeviceSpec) -> Iterable[Summed]:
        yield Summed(selected(ReducePlan, desc.sums(), None, device))

    def cost(self, desc: OfCopies, device: DeviceSpec, config: Summed) -> Cost:
        return config.sum.cost

    def guarantee(self, desc: OfCopies, device: DeviceSpec, config: Summed) -> PrecisionGuarantee:
        return config.sum.guarantee

    def lower(self, desc: OfCopies, device: DeviceSpec, config: Summed) -> tuple[Sub, ...]:
        return (Sub(config.sum, {"x": Ptr("grad"), "out": Ptr("grad_x")}),)


def _summed_widely(desc: OfCopies) -> PrecisionGuarantee:
    return ReducePlan.reference_guarantee(desc.sums())


class OfCopiesPlan(Plan[Any]):
    """Sums over copies of elements: operands `grad_x`, `grad` and `x`."""

    category = OpCategory.SHAPE_LAYOUT
    candidates = (SumOfCopies(),)
    measures = oracle.BACKWARD_MEASURES
    reference = oracle.of_copies
    reference_guarantee = staticmethod(_summed_widely)


class TileBackwardPlan(OfCopiesPlan):
    """Sums over tiles: operands `grad_x`, `grad` and `x`."""

    descriptor = TileBackwardDescriptor
    probes = (
        {"shape": (5, 32), "element": "f32", "reps": (2, 1)},
        {"shape": (5, 33), "element": "bf16", "reps": (2, 3)},
    )


class RepeatInterleaveBackwardPlan(OfCopiesPlan):
    """Sums over neighbouring copies: operands `grad_x`, `grad` and `x`."""

    descriptor = RepeatInterleaveBackwardDescriptor
    probes = (
        {"shape": (5, 32), "element": "f32", "repeats": 2, "axis": 0},
        {"shape": (5, 33), "element": "bf16", "repeats": 3},
    )


@function_of(TileBackwardPlan, rules=SignatureRules(reads={"reps": one_or_more}))
def tile_backward(grad: Any, x: Any, /, reps: int | Sequence[int], *, grad_x: Any = None) -> Any:
    """The gradient of tile: the sum of the gradient over the copies of each element.

    grad: the gradient of the result, f16, bf16, f32 or f64, of its shape. x: the operand of the forward call, of which only the
    shape counts. reps: as in that call. grad_x: an array like x; allocated in C order if not given.
    Computed in f32 (f64 for f64) and rounded once, in a fixed order.
    Returns grad_x. Raises InvalidProblemError where an operand has another shape.
    """


@function_of(RepeatInterleaveBackwardPlan)
def repeat_interleave_backward(
    grad: Any, x: Any, /, repeats: int, axis: int | None = None, *, grad_x: Any = None
) -> Any:
    """The gradient of repeat_interleave: the sum of the gradient over the copies of each element.

    grad: the gradient of the result, f16, bf16, f32 or f64, of its shape. x: the operand of the forward call, of which only the
    shape counts. repeats, axis: as in that call. grad_x: an array like x; allocated in C order if not given.
    Computed in f32 (f64 for f64) and rounded once, in a fixed order.
    Returns grad_x. Raises InvalidProblemError where an operand has another shape.
    """


_OPS: Mapping[str, tuple[type[Plan[Any]], Any]] = {
    "tile": (TileBackwardPlan, tile_backward),
    "repeat_interleave": (RepeatInterleaveBackwardPlan, repeat_interleave_backward),
}
for name, (plan, function) in _OPS.items():
    register(Op(f"{name}_backward", plan, function, samples.of_copies(name)))
