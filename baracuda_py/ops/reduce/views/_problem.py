"""What trace and reduce_to are: sums over views of x; and their gradients, which broadcast a result's gradient to the view."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

from ....plan.candidate import Candidate, Cost
from ....plan.descriptor import Descriptor, Slot, described
from ....plan.fields import integer
from ....plan.lowering import Sub
from ....plan.selection import Selection, selected
from ....runtime.steps import Ptr, Step
from ....tensor.axes import alignment_of
from ....types import DeviceSpec, ElementKind, InvalidProblemError, OperandTypeError, PrecisionGuarantee
from ..._fill import FILL, filled
from ..._numbers import one_or_more
from ..._rows import FLOATS
from .._gradient import ReduceBackwardDescriptor
from .._problem import INTEGERS, ReduceDescriptor
from ..backward import ReduceBackwardPlan
from ..reduce import ReducePlan

__all__ = [
    "BroadcastToDiagonal",
    "BroadcastToView",
    "ReduceToBackwardDescriptor",
    "ReduceToDescriptor",
    "SumOfView",
    "TraceBackwardDescriptor",
    "TraceDescriptor",
    "ViewBackwardDescriptor",
    "ViewDescriptor",
]

X = Slot("x", takes=(*FLOATS, *INTEGERS))
OF_X = Slot("x", takes=FLOATS)
GRAD = Slot("grad", takes=FLOATS, shape="out_shape", element="element")
GRAD_X = Slot("grad_x", "out", takes=FLOATS)


@dataclass(frozen=True)
class View:
    """Axes of a view of x: extents and strides in elements; its first element; which axes are summed."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    first: int
    axes: tuple[int, ...]


class SummedView(Descriptor):
    """The part of a problem that says over which view of an x of `shape` sums go."""

    shape: tuple[int, ...]
    element: ElementKind

    def view(self, strides: tuple[int, ...]) -> View:
        """The view of an operand of x's shape with these strides."""
        raise NotImplementedError

    @property
    def out_shape(self) -> tuple[int, ...]:
        view = self.view((0,) * len(self.shape))
        return tuple(n for axis, n in enumerate(view.shape) if axis not in view.axes)

    def view_of(self, name: str) -> tuple[View, int, int]:
        """That of an operand, the bytes from its first element to the view's, and the alignment of that."""
        layout = self.layout(name)
        view = self.view(layout.strides)
        offset = view.first * layout.element.bits // 8 if 0 not in view.shape else 0
        return view, offset, min(layout.align, alignment_of(offset))

    def kept_strides(self, name: str) -> tuple[int, ...]:
        """The strides of an operand of the result's shape along the view's axes that are kept."""
        return self.layout(name).strides


class ViewDescriptor(SummedView):
    """A sum over a view."""

    out_element: ElementKind | None

    def default_element(self, name: str) -> ElementKind:
        if self.element.is_integer:
            return ElementKind.U64 if self.element.value[0] == "u" else ElementKind.I64
        return self.element

    def check(self) -> None:
        self.out_shape  # noqa: B018  # the axes
        wanted = self.default_element("out")
        if self.out_element not in (None, wanted):
            raise OperandTypeError(
                f"{self.op}: out must hold {wanted}, got {self.out_element}", f"pass an out of {wanted}"
            )

    def sums(self) -> ReduceDescriptor:
        """The sum of the view's elements."""
        view, _, align = self.view_of("x")
        fields: dict[str, Any] = {"x_strides": view.strides, "x_align": align, "out_strides": self.kept_strides("out")}
        fields |= {"out_align": self.layout("out").align, "out_element": self.layout("out").element}
        return ReduceDescriptor(view.shape, self.element, view.axes, name="sum", **fields)


class ViewBackwardDescriptor(SummedView):
    """The gradient of a sum over a view."""

    def check(self) -> None:
        self.out_shape  # noqa: B018  # the axes

    def broadcast(self) -> ReduceBackwardDescriptor:
        """The gradient of the view's elements."""
        view, _, align = self.view_of("grad_x")
        fields: dict[str, Any] = {"grad_x_strides": view.strides, "grad_x_align": align}
        fields |= {"grad_strides": self.kept_strides("grad"), "grad_align": self.layout("grad").align}
        return ReduceBackwardDescriptor(view.shape, self.element, view.axes, name="sum_backward", **fields)


class _Shrunk(SummedView):
    """Sums over the axes that broadcasting `to` to an x of `shape` added or repeated."""

    to: Any  # a tuple, of one int or several

    def __post_init__(self) -> None:
        super().__post_init__()
        self._each(("to",), one_or_more)

    def view(self, strides: tuple[int, ...]) -> View:
        new = len(self.shape) - len(self.to)
        pairs = tuple(zip(self.shape[max(new, 0) :], self.to))
        if new < 0 or any(have != wanted and wanted != 1 for have, wanted in pairs):
            raise InvalidProblemError(
                f"{self.op}: shape {self.to} does not broadcast to {self.shape}", "give the shape before a broadcast"
            )
        repeated = (new + axis for axis, (have, wanted) in enumerate(pairs) if have != wanted)
        return View(self.shape, strides, 0, (*range(new), *repeated))

    @property
    def out_shape(self) -> tuple[int, ...]:
        self.view((0,) * len(self.shape))
        return tuple(self.to)

    def kept_strides(self, name: str) -> tuple[int, ...]:
        new, axes = len(self.shape) - len(self.to), self.view((0,) * len(self.shape)).axes
        return tuple(s for axis, s in enumerate(self.layout(name).strides) if new + axis not in axes)


class _Diagonal(SummedView):
    """Sums along a diagonal of the axes `axis1` and `axis2`, `offset` above the main one."""

    offset: int
    axis1: int
    axis2: int

    def __post_init__(self) -> None:
        super().__post_init__()
        self._each(("offset", "axis1", "axis2"), integer)

    def view(self, strides: tuple[int, ...]) -> View:
        rank = len(self.shape)
        for axis in (self.axis1, self.axis2):
            if not -rank <= axis < rank:
                raise InvalidProblemError(
                    f"{self.op}: axis {axis} is out of range for {rank} axes", f"give {-rank} to {rank - 1}"
                )
        first, second = self.axis1 % rank, self.axis2 % rank
        if first == second:
            raise InvalidProblemError(f"{self.op}: axis1 and axis2 are both axis {first}", "name two axes")
        down, right = max(-self.offset, 0), max(self.offset, 0)
        length = max(min(self.shape[first] - down, self.shape[second] - right), 0)
        kept = [axis for axis in range(rank) if axis not in (first, second)]
        return View(
            (*(self.shape[axis] for axis in kept), length),
            (*(strides[axis] for axis in kept), strides[first] + strides[second]),
            down * strides[first] + right * strides[second], (len(kept),),
        )  # fmt: skip


@described(Slot("out", "out", shape="out_shape", element="out_element"), X)
class ReduceToDescriptor(_Shrunk, ViewDescriptor):
    """The sum of an x of `shape` over the axes that broadcasting `to` to it added or repeated."""

    shape: tuple[int, ...]
    element: ElementKind
    to: Any
    out_element: ElementKind | None = None

    name = "reduce_to"

    @classmethod
    def of(cls, x: Any, out: Any = None, *, shape: Any) -> ReduceToDescriptor:
        """The descriptor of arrays of any layout."""
        return cls.of_tensors(cls.taken(cls.name, {"x": x, "out": out}), to=shape)


@described(Slot("out", "out", shape="out_shape", element="out_element"), X)
class TraceDescriptor(_Diagonal, ViewDescriptor):
    """The sums of an x of `shape` along a diagonal of the axes `axis1` and `axis2`, `offset` above the main one."""

    shape: tuple[int, ...]
    element: ElementKind
    offset: int = 0
    axis1: int = 0
    axis2: int = 1
    out_element: ElementKind | None = None

    name = "trace"


@described(GRAD_X, GRAD, OF_X)
class ReduceToBackwardDescriptor(_Shrunk, ViewBackwardDescriptor):
    """The gradient of reduce_to with respect to an x of `shape`: of a result of the shape `to`."""

    shape: tuple[int, ...]
    element: ElementKind
    to: Any

    name = "reduce_to_backward"

    @classmethod
    def of(cls, grad: Any, x: Any, grad_x: Any = None, *, shape: Any) -> ReduceToBackwardDescriptor:
        """The descriptor of arrays of any layout."""
        tensors = cls.taken(cls.name, {"x": x, "grad": grad, "grad_x": grad_x})
        return cls.of_tensors(tensors, to=shape)


@described(GRAD_X, GRAD, OF_X)
class TraceBackwardDescriptor(_Diagonal, ViewBackwardDescriptor):
    """The gradient of trace with respect to an x of `shape`, for the arguments of its call."""

    shape: tuple[int, ...]
    element: ElementKind
    offset: int = 0
    axis1: int = 0
    axis2: int = 1

    name = "trace_backward"

    def in_place(self, written: str, read: str) -> bool:
        """All of grad_x is 0 before grad is read."""
        return False


@dataclass(frozen=True)
class Part:
    """The configuration: what sums, or broadcasts."""

    part: Selection

    def __str__(self) -> str:
        return f"{self.part.desc.op}={self.part.candidate.variant} {self.part.config}".strip()


class SumOfView(Candidate[Any]):
    """The sum over the view, by sum's kernels."""

    variant = "sum"
    launches = tuple(dict.fromkeys(launch for candidate in ReducePlan.candidates for launch in candidate.launches))

    def configs(self, desc: Any, device: DeviceSpec) -> Iterable[Part]:
        yield Part(selected(ReducePlan, desc.sums(), None, device))

    def cost(self, desc: Any, device: DeviceSpec, config: Part) -> Cost:
        return config.part.cost

    def guarantee(self, desc: Any, device: DeviceSpec, config: Part) -> PrecisionGuarantee:
        return config.part.guarantee

    def lower(self, desc: Any, device: DeviceSpec, config: Part) -> tuple[Step | Sub, ...]:
        return (Sub(config.part, {"x": Ptr("x", desc.view_of("x")[1]), "out": Ptr("out")}),)


class BroadcastToView(SumOfView):
    """The result's gradient for each element of the view."""

    variant = "broadcast"
    launches: ClassVar[tuple[str, ...]] = ("elementwise/map.cu:map_contiguous", "elementwise/map.cu:map_strided")

    def configs(self, desc: Any, device: DeviceSpec) -> Iterable[Part]:
        yield Part(selected(ReduceBackwardPlan, desc.broadcast(), None, device))

    def lower(self, desc: Any, device: DeviceSpec, config: Part) -> tuple[Step | Sub, ...]:
        return (
            *self.before(desc),
            Sub(config.part, {"grad": Ptr("grad"), "grad_x": Ptr("grad_x", desc.view_of("grad_x")[1])}),
        )

    def before(self, desc: Any) -> tuple[Step, ...]:
        """What is done with the elements that the view lacks."""
        return ()


class BroadcastToDiagonal(BroadcastToView):
    """The result's gradient along the diagonal, and 0 elsewhere."""

    launches = (*BroadcastToView.launches, FILL)

    def cost(self, desc: Any, device: DeviceSpec, config: Part) -> Cost:
        zeros = Cost.streaming(device, desc.element.nbytes(math.prod(desc.shape)))
        one = config.part.cost
        return Cost(desc.nbytes, one.flops, one.seconds + zeros.seconds, zeros.limit)

    def before(self, desc: Any) -> tuple[Step, ...]:
        layout = desc.layout("grad_x")
        return (filled(Ptr("grad_x"), layout.shape, layout.strides, layout.element, 0),)
