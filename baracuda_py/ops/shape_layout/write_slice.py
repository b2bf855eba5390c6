"""write_slice: dest[ranges] = source, in place; a contiguous window is one device memcpy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Self

from ...call.operands.key import byte_strides
from ...plan.descriptor import Descriptor, Layout, Operand, Slot, described, integers, resolved_strides
from ...plan.plan import Plan
from ...plan.registry import Op, register
from ...tensor import Tensor
from ...tensor.axes import alignment_of
from ...types import ElementKind, InvalidProblemError, OpCategory, OperandTypeError
from ...types.errors import shown
from ...types.keeping import complete
from .._function import CallArgs, function_of
from . import oracle
from ._candidates import COPY_CANDIDATES
from ._copy import WholeDest
from ._dynamic import DynamicStart
from ._ranges import NUMBERS, Ranges, begin_of, check_ranges, fitted, pairs_of, shape_of, window_of
from ._walks import BYTES_OR_NIBBLES, CopyProblem
from .samples import copies as samples

__all__ = ["WriteSliceDescriptor", "WriteSlicePlan", "write_slice"]

PACKAGES = ("cupy", "numpy", "torch")  # with full_like and broadcast_to


@described(
    Slot("dest", "inout", takes=BYTES_OR_NIBBLES),
    Slot("source", takes=BYTES_OR_NIBBLES, shape="extents"),
    last=("dynamic_axis", "dest_phase"),
)
class WriteSliceDescriptor(Descriptor):
    """The window `ranges` (half-open pairs, or NumPy's basic indices) of a destination, and the layouts of both sides.

    With `dynamic_axis`, that axis' start is read at launch from the device int64 scalar `start`; its pair gives the extent.
    Strides count elements; alignments are bytes up to 16 of the first element touched (None: base addresses aligned).
    """

    dest_shape: tuple[int, ...]
    ranges: Ranges
    element: ElementKind
    dest_strides: tuple[int, ...] | None = None
    dynamic_axis: int | None = None
    dest_phase: int = 0

    name, values = "write_slice", ("start",)

    def __post_init__(self) -> None:
        super().__post_init__()
        complete(self, ranges=pairs_of(self.ranges, self.dest_shape))

    @classmethod
    def of(
        cls, dest: Any, source: Any, ranges: Any, *, dynamic_axis: int | None = None,
        start: Any = None, status: Any = None,
    ) -> Self:  # fmt: skip
        """The descriptor of arrays of any layout; `start` and `status` have no layout to read."""
        _refuse_idle(dynamic_axis, start, status)
        if isinstance(source, NUMBERS):
            raise OperandTypeError(f"write_slice: source is the number {shown(source)}", _filled(dest, source, ranges))
        tensors = cls.taken(cls.name, {"dest": dest, "source": source})
        d, s = tensors["dest"], tensors["source"]
        if s.element is not d.element:
            raise OperandTypeError(
                f"write_slice: source must hold {d.element}, as dest does, got {s.element}", f"cast it to {d.element}"
            )
        draft = cls.of_tensors(
            {"dest": d}, ranges=ranges, dynamic_axis=dynamic_axis, source_strides=s.strides, source_align=s.align,
            dest_align=None, dest_phase=0,
        )  # fmt: skip
        if s.shape != draft.extents:
            raise InvalidProblemError(
                f"write_slice: source must have the window's shape {draft.extents}, got {s.shape}",
                _repeated(source, s.shape, draft.extents) or "pass a source of that shape, or other ranges",
            )
        draft.validate()
        return replace(draft, dest_align=alignment_of(d.pointer + draft.displacement()))  # type: ignore[call-arg]

    # -- geometry ---------------------------------------------------------------------------------------------------

    @cached_property
    def operands(self) -> tuple[Operand, ...]:
        both = Operand("dest", "inout"), Operand("source")
        return (
            both if self.dynamic_axis is None else (*both, Operand("start"), Operand("status", "inout", optional=True))
        )

    @property
    def extents(self) -> tuple[int, ...]:
        return tuple(b - a for a, b in self.ranges)

    @property
    def starts(self) -> tuple[int, ...]:
        """Where the window starts; 0 along a dynamic axis."""
        return tuple(0 if axis == self.dynamic_axis else a for axis, (a, _) in enumerate(self.ranges))

    @property
    def empty(self) -> bool:
        return 0 in self.extents and self.dynamic_axis is None  # with a dynamic axis the status is still written

    @property
    def covers_dest(self) -> bool:
        return self.extents == self.dest_shape

    def layout(self, name: str) -> Layout:
        if name in self.slot_of:
            return super().layout(name)
        kind = ElementKind.I64 if name == "start" else ElementKind.I32
        return Layout((), (), kind, kind.bits // 8)

    def laid_out(self, slot: Slot) -> Layout:
        whole = super().laid_out(slot)
        if slot.name != "dest":
            return whole
        return whole._replace(align=self.align_of("dest", self.displacement()), phase=self._window_phase)

    def offset(self, starts: Sequence[int] | None = None) -> int:
        """Elements from dest's first to the window's first."""
        strides = resolved_strides(self.dest_shape, self.dest_strides, self.element)
        return begin_of(self.starts if starts is None else starts, self.dest_shape, strides)

    @property
    def _window_phase(self) -> int:
        return (self.offset() + self.dest_phase) % self.element.per_byte

    def displacement(self) -> int:
        """Bytes from dest's first byte to the window's first byte."""
        return (self.offset() + self.dest_phase) * self.element.bits // 8

    def displacements(self) -> tuple[int, ...]:
        return (self.displacement(),) + (0,) * (len(self.operands) - 1)

    # -- lifecycle --------------------------------------------------------------------------------------------------

    def check(self) -> None:
        rank, axis = len(self.dest_shape), self.dynamic_axis
        if rank == 0:
            raise InvalidProblemError("write_slice: dest has rank 0", "pass a dest of rank 1 or more")
        if axis is not None and not 0 <= axis < rank:
            raise InvalidProblemError(f"write_slice: dynamic_axis {axis} is not an axis of dest", f"0 to {rank - 1}")
        if axis is not None and self.element.packed:
            raise OperandTypeError(
                f"write_slice: dynamic_axis does not take {self.element}", "view the packed bytes as u8"
            )
        check_ranges(self.ranges, self.dest_shape)
        row = self.dest_strides[-1] if self.dest_strides else 1
        if self.element.packed and self.extents[-1] > 1 and row != 1:
            raise InvalidProblemError(
                f"write_slice: rows of {self.element} must be contiguous in dest, the last stride is {row}",
                "pass a packed dest",
            )

    def neutral(self) -> dict[str, Any]:
        """The window moved to the start of every axis (or of the dynamic axis alone): a launch adds the real start."""
        fixed = self.dynamic_axis
        ranges = tuple((0, b - a) if fixed in (None, axis) else (a, b) for axis, (a, b) in enumerate(self.ranges))
        return {"ranges": ranges, "dest_phase": self._window_phase}

    def at(self, given: Mapping[str, Any]) -> WriteSliceDescriptor:
        start = given.get("start")
        if start is None or self.dynamic_axis is not None:
            return self
        starts = integers(start, "write_slice: start")
        if len(starts) != len(self.dest_shape):
            raise InvalidProblemError(
                f"write_slice: start {starts} has {len(starts)} axes, dest has {len(self.dest_shape)}",
                "give one int an axis",
            )
        ranges = tuple((a, a + n) for a, n in zip(starts, self.extents))
        check_ranges(ranges, self.dest_shape)
        moved = replace(self, ranges=ranges, dest_phase=0)
        if self.element.packed and (moved.offset() - self.offset() - self.dest_phase) % self.element.per_byte:
            raise InvalidProblemError(
                f"write_slice: start {starts} begins at another nibble of its byte than the plan was selected for",
                "select a plan for it",
            )
        return moved

    def resolve(self, given: Mapping[str, Any]) -> tuple[tuple[int, ...], Mapping[str, Any]]:
        start = given.get("start")
        if self.dynamic_axis is not None:
            return self.displacements(), {}
        if start is None:
            return (self.displacement(), 0), {}
        steps, offset = self._steps, 0
        if not isinstance(start, (tuple, list)) or len(start) != len(steps):
            return (self.at(given).displacement(), 0), {}  # or it raises
        for a, (last, step) in zip(start, steps):
            if type(a) is not int or not 0 <= a <= last:
                moved = self.at(given)  # raises, or accepts other integer types
                return (moved.displacement(), 0), {}
            offset += a * step
        if self.element.packed:
            return (self.at(given).displacement(), 0), {}
        return (offset, 0), {}

    @cached_property
    def _steps(self) -> tuple[tuple[int, int], ...]:
        """For each axis, the largest start and the bytes per step."""
        strides, size = self.layout("dest").strides, self.element.bits // 8
        meant = [n > 1 and 0 not in self.dest_shape for n in self.dest_shape]
        return tuple((n - m, s * size * own) for n, m, s, own in zip(self.dest_shape, self.extents, strides, meant))

    def refuse_values(self, tensors: Mapping[str, Tensor]) -> None:
        if self.dynamic_axis is None or "status" in tensors:
            return
        start, most = (
            int(tensors["start"].array()),
            self.dest_shape[self.dynamic_axis] - self.extents[self.dynamic_axis],
        )
        if not 0 <= start <= most:
            raise InvalidProblemError(
                f"write_slice: start={start} is out of range: a window of {self.extents[self.dynamic_axis]} along axis "
                f"{self.dynamic_axis} does not fit dest there, which has {self.dest_shape[self.dynamic_axis]}",
                f"give 0 to {most}, or pass status=, an int32 scalar that is then 1",
            )

    def footprint(self, name: str, tensor: Tensor) -> Tensor:
        if name != "dest":
            return tensor
        shape = self.extents
        if self.dynamic_axis is not None:  # for any start
            shape = (*shape[: self.dynamic_axis], self.dest_shape[self.dynamic_axis], *shape[self.dynamic_axis + 1 :])
        first = tensor.phase + self.offset()
        pointer = tensor.pointer + first * self.element.bits // 8
        return replace(tensor, pointer=pointer, shape=shape, phase=first % self.element.per_byte)

    def copy(self) -> CopyProblem:
        """The window as a strided copy; on the canonical descriptor."""
        dest, source = self.layout("dest"), self.layout("source")
        return CopyProblem(
            "dest",
            "source",
            self.extents,
            dest.strides,
            source.strides,
            self.element,
            dest.align,
            source.align,
            self.dest_phase,
        )


class WriteSlicePlan(Plan[WriteSliceDescriptor]):
    """dest[ranges] = source: operands `dest` (in place) and `source`; run-time value `start`.

    With `dynamic_axis`: operand `start`, a device int64 scalar, and optional `status`, a device int32 scalar set to 1 (and
    nothing written) where the start is out of range, else to 0.
    """

    descriptor = WriteSliceDescriptor
    statuses = {1: ("the window does not fit dest at the start", "give 0 to dest's extent less the window's")}
    category = OpCategory.SHAPE_LAYOUT
    candidates = (WholeDest(), *COPY_CANDIDATES, DynamicStart())
    probes = (
        {"dest_shape": (32, 4, 64), "ranges": ((7, 8), (0, 4), (0, 64)), "element": "bf16"},
        {"dest_shape": (12, 8), "ranges": ((0, 12), (0, 8)), "element": "f32"},
        {"dest_shape": (300, 257), "ranges": ((3, 290), (5, 250)), "element": "f16"},
        {"dest_shape": (4096, 64), "ranges": ((0, 4096), (1, 4)), "element": "f16"},
        {"dest_shape": (9, 130), "ranges": ((1, 8), (1, 128)), "element": "u8", "source_strides": (200, 1)},
        {"dest_shape": (80, 96), "ranges": ((0, 80), (16, 96)), "element": "bf16", "source_strides": (1, 80)},
        {"dest_shape": (70, 70), "ranges": ((3, 70), (0, 66)), "element": "f64", "source_strides": (1, 67)},
        {"dest_shape": (4, 33), "ranges": ((1, 3), (1, 32)), "element": "u4"},
        {"dest_shape": (9, 2, 8), "ranges": ((0, 1), (0, 2), (0, 8)), "element": "f16", "dynamic_axis": 0},
        {"dest_shape": (2, 3, 16, 5), "ranges": ((0, 1), (0, 3), (0, 2), (1, 4)), "element": "f32", "dynamic_axis": 2},
    )
    reference = oracle.write_slice


@function_of(WriteSlicePlan)
def write_slice(
    dest: Any,
    source: Any,
    ranges: Sequence[Any],
    *,
    dynamic_axis: int | None = None,
    start: Any = None,
    status: Any = None,
    stream: Any = None,
) -> CallArgs:
    """Writes `source` into the window `ranges` of `dest`, in place, and returns `dest`.

    dest: any array of rank 1 or more and any strides; every kind but BIN. source: an array of the same kind that broadcasts
    to the window as in NumPy's dest[ranges] = source; a view is read, nothing is copied. A number is copied into one
    element on dest's device first, on the current stream (refused with stream= and in CuPy's captures).
    ranges: NumPy's basic indices (``np.s_[1:, ..., -1]``: slices of step 1, ints, one Ellipsis, negative and open bounds),
    or one half-open (start, end) pair per axis, 0 <= start <= end <= extent. A bound beyond dest is refused, not clipped.
    dynamic_axis, start, status: that axis' start is read from `start`, a device int64 scalar, at launch; a start out of
    range writes nothing and sets `status`, an optional device int32 scalar, to 1. A call on a GPU does not wait for the
    start, so it raises nothing; on ``device="cpu"`` and ``"ptx"`` this raises InvalidProblemError, unless `status` is given.

    Bytes outside the window are untouched. Raises InvalidProblemError for a bad window, OperandTypeError for another dtype
    or a read-only dest, OverlapError where source shares memory with the window.
    """
    if dynamic_axis is None and start is None and status is None:
        shift, starts, window = window_of(dest, ranges)
        if getattr(source, "shape", None) != window:
            source = fitted(dest, source, ranges, window, stream)
        operands, values = {"dest": dest, "source": source}, {"start": starts} if starts else None
        return operands, lambda: WriteSliceDescriptor.of(dest, source, ranges), window, values, (shift, 0)
    _refuse_idle(dynamic_axis, start, status)
    pairs = pairs_of(ranges, shape_of(dest))
    source = fitted(dest, source, ranges, tuple(b - a for a, b in pairs), stream)
    operands = {"dest": dest, "source": source, "start": start, "status": status}
    fixed = [0 if axis == dynamic_axis else a for axis, (a, _) in enumerate(pairs)]
    shift = begin_of(fixed, shape_of(dest), byte_strides(dest))
    return (
        operands, lambda: WriteSliceDescriptor.of(dest, source, ranges, dynamic_axis=dynamic_axis), (dynamic_axis, pairs), None,
        (shift, 0, 0, 0),
    )  # fmt: skip


def _filled(dest: Any, source: Any, ranges: Any) -> str:
    """The fix for a number in the place of an array."""
    window = ", ".join(f"{a}:{b}" for a, b in pairs_of(ranges, shape_of(dest)))
    package = type(dest).__module__.partition(".")[0]
    known = package if package in PACKAGES else "numpy"
    return f"pass an array of the window's shape: {known}.full_like(dest[{window}], {shown(source)})"


def _repeated(source: Any, shape: tuple[int, ...], window: tuple[int, ...]) -> str:
    """The fix for a source that broadcasts to the window, the beginning of it; empty where it does not."""
    package = type(source).__module__.partition(".")[0]
    alike = len(shape) <= len(window) and all(n in (1, m) for n, m in zip(shape[::-1], window[::-1]))
    return (
        f"pass {package}.broadcast_to(source, {window}), which copies nothing" if alike and package in PACKAGES else ""
    )


def _refuse_idle(dynamic_axis: int | None, start: Any, status: Any) -> None:
    """Raises InvalidProblemError for operands that only a window with a dynamic axis has."""
    if dynamic_axis is None and not (start is None and status is None):
        name = "status" if start is None else "start"
        raise InvalidProblemError(
            f"write_slice: {name} was given and no dynamic_axis", "pass dynamic_axis=..., the axis that it starts along"
        )


register(
    Op(
        "write_slice",
        WriteSlicePlan,
        write_slice,
        samples.write_slice,
        peers={"cupy": "assignment", "torch": "assignment"},
    )
)
