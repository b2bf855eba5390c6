"""write_slice: dest[ranges] = source, in place; a contiguous window is one device memcpy."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np

from ... import functional, samples
from ...call.key import byte_strides
from ...plan.candidate import OK, Candidate, Change, Cost, Feasibility, exact_movement, no
from ...plan.descriptor import Descriptor, Layout, Operand, integers, resolved_strides
from ...plan.plan import Plan
from ...plan.registry import Op, register
from ...reference import shape_layout as oracle
from ...runtime.steps import Kernel, Launch, Ptr, Step
from ...tensor import Tensor, intake
from ...tensor.axes import alignment_of, collapse, index_of
from ...types import (
    DeviceSpec,
    ElementKind,
    InvalidProblemError,
    OpCategory,
    OperandTypeError,
    PlanPreference,
    PrecisionGuarantee,
)
from ...types.errors import shown
from .._launch import append_shape, divisor, grid_of, index_scalar, index_type, pack_dims, words_of
from ._copy import COPY_CANDIDATES, CopyProblem, WholeDest

__all__ = ["WriteSliceDescriptor", "WriteSlicePlan", "write_slice"]

Ranges = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class WriteSliceDescriptor(Descriptor):
    """The window `ranges` (half-open pairs or slices, one an axis) of a destination, and how both sides lie.

    With `dynamic_axis`, that axis' start is read at launch from the device int64 scalar `start`; its pair gives the extent.
    Strides count elements; alignments are bytes up to 16 of the first element touched (None: base addresses aligned).
    """

    dest_shape: tuple[int, ...]
    ranges: Ranges
    element: ElementKind
    dest_strides: tuple[int, ...] | None = None
    source_strides: tuple[int, ...] | None = None
    dest_align: int | None = None
    source_align: int | None = None
    dynamic_axis: int | None = None
    dest_phase: int = 0

    values: ClassVar[tuple[str, ...]] = ("start",)
    signature_operands: ClassVar[tuple[Operand, ...]] = (Operand("dest", "inout"), Operand("source"))

    def __post_init__(self) -> None:
        self._ints("dest_shape", "dest_strides", "source_strides")
        self._kind("element")
        self._int("dest_align", "source_align", "dynamic_axis", "dest_phase")
        object.__setattr__(self, "ranges", pairs_of(self.ranges, self.dest_shape))

    @classmethod
    def of(
        cls, dest: Any, source: Any, ranges: Sequence[Any], *, dynamic_axis: int | None = None,
        start: Any = None, status: Any = None,
    ) -> Self:  # fmt: skip
        """The descriptor of arrays as they lie; `start` and `status` have no layout to read."""
        _refuse_idle(dynamic_axis, start, status)
        d, s = intake(dest, what="write_slice: dest"), intake(source, what="write_slice: source")
        if s.element is not d.element:
            raise OperandTypeError(
                f"write_slice: source must hold {d.element}, as dest does, got {s.element}", f"cast it to {d.element}"
            )
        draft = cls(d.shape, ranges, d.element, d.strides, s.strides, dynamic_axis=dynamic_axis)  # type: ignore[arg-type]
        if s.shape != draft.extents:
            raise InvalidProblemError(
                f"write_slice: source must have the window's shape {draft.extents}, got {s.shape}",
                "pass a source of that shape, or other ranges",
            )
        draft.validate()
        return replace(draft, dest_align=alignment_of(d.pointer + draft.displacement()), source_align=s.align)

    # -- geometry ---------------------------------------------------------------------------------------------------

    @property
    def op(self) -> str:
        return "write_slice"

    @property
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
        return 0 in self.extents and self.dynamic_axis is None  # else the status is given

    @property
    def covers_dest(self) -> bool:
        return self.extents == self.dest_shape

    def layout(self, name: str) -> Layout:
        if name == "dest":
            strides = resolved_strides(self.dest_shape, self.dest_strides, self.element)
            align = self._align(name, self.displacement())
            return Layout(self.dest_shape, strides, self.element, align, self._window_phase)
        if name == "source":
            strides = resolved_strides(self.extents, self.source_strides, self.element)
            return Layout(self.extents, strides, self.element, self._align(name))
        kind = ElementKind.I64 if name == "start" else ElementKind.I32
        return Layout((), (), kind, kind.bits // 8)

    def offset(self, starts: Sequence[int] | None = None) -> int:
        """Elements from dest's first to the window's first."""
        strides = resolved_strides(self.dest_shape, self.dest_strides, self.element)
        return sum(a * s for a, s in zip(self.starts if starts is None else starts, strides))

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
        rank = len(self.dest_shape)
        if self.element is ElementKind.BIN:
            raise OperandTypeError(
                "write_slice: bin is not supported, bits cannot be written apart", "view the bytes as u8"
            )
        if rank == 0:
            raise InvalidProblemError("write_slice: dest has rank 0", "pass a dest of rank 1 or more")
        if any(n < 0 for n in self.dest_shape):
            raise InvalidProblemError(
                f"write_slice: dest_shape {self.dest_shape} has a negative extent", "give extents of 0 or more"
            )
        for name, strides in (("dest", self.dest_strides), ("source", self.source_strides)):
            if strides is not None and len(strides) != rank:
                raise InvalidProblemError(
                    f"write_slice: {name}_strides {strides} has {len(strides)} axes, dest has {rank}",
                    "one stride an axis",
                )
        if self.dynamic_axis is not None and not 0 <= self.dynamic_axis < rank:
            raise InvalidProblemError(
                f"write_slice: dynamic_axis {self.dynamic_axis} is not an axis of dest", f"0 to {rank - 1}"
            )
        if self.dynamic_axis is not None and self.element.packed:
            raise OperandTypeError(
                f"write_slice: dynamic_axis does not take {self.element}", "view the packed bytes as u8"
            )
        _check_ranges(self.ranges, self.dest_shape)
        row = self.dest_strides[-1] if self.dest_strides else 1
        if self.element.packed and self.extents[-1] > 1 and row != 1:
            raise InvalidProblemError(
                f"write_slice: rows of {self.element} must be contiguous in dest, the last stride is {row}",
                "pass a packed dest",
            )

    def canonical(self) -> WriteSliceDescriptor:
        dest, source = self.layout("dest"), self.layout("source")
        ranges = self.ranges
        if self.dynamic_axis is None:
            ranges = tuple((0, n) for n in self.extents)
        else:
            k = self.dynamic_axis
            ranges = tuple((0, b - a) if axis == k else (a, b) for axis, (a, b) in enumerate(ranges))
        return replace(
            self, ranges=ranges, dest_strides=dest.strides, source_strides=source.strides,
            dest_align=dest.align, source_align=source.align, dest_phase=self._window_phase,
        )  # fmt: skip

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
        _check_ranges(ranges, self.dest_shape)
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
                moved = self.at(given)  # raises, or takes what is an integer all the same
                return (moved.displacement(), 0), {}
            offset += a * step
        if self.element.packed:
            return (self.at(given).displacement(), 0), {}
        return (offset, 0), {}

    @cached_property
    def _steps(self) -> tuple[tuple[int, int], ...]:
        """The largest start and the bytes a step, an axis."""
        strides, size = self.layout("dest").strides, self.element.bits // 8
        return tuple((n - m, s * size) for n, m, s in zip(self.dest_shape, self.extents, strides))

    def footprint(self, name: str, tensor: Tensor) -> Tensor:
        if name != "dest":
            return tensor
        shape = self.extents
        if self.dynamic_axis is not None:  # wherever the start may be
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


def pairs_of(ranges: Any, shape: tuple[int, ...]) -> Ranges:
    """Pairs of ints from pairs, slices or ints-likes; a slice's open ends are the axis' own."""
    try:
        pairs = []
        for axis, item in enumerate(_listed(ranges)):
            if isinstance(item, slice):
                if item.step is not None and index_of(item.step) != 1:
                    raise InvalidProblemError(
                        f"write_slice: ranges[{axis}] is {shown(item)}, and only a step of 1 is written",
                        "write a strided view of dest",
                    )
                a = 0 if item.start is None else item.start
                b = (shape[axis] if axis < len(shape) else 0) if item.stop is None else item.stop
            else:
                a, b = _listed(item)
            pairs.append((index_of(a), index_of(b)))
    except InvalidProblemError:
        raise
    except OverflowError:
        raise InvalidProblemError(
            f"write_slice: ranges={shown(ranges)} reaches beyond 64 bits", "stay within dest"
        ) from None
    except Exception:  # whatever a stranger's __index__ raises
        raise InvalidProblemError(
            f"write_slice: ranges={shown(ranges)} are not pairs of integers or slices", "give [(start, end), ...]"
        ) from None
    return tuple(pairs)


def _listed(items: Any) -> Sequence[Any]:
    if isinstance(items, (Sequence, np.ndarray)) and not isinstance(items, (str, bytes)):
        return items  # type: ignore[return-value]
    raise TypeError


def _check_ranges(ranges: Ranges, shape: tuple[int, ...]) -> None:
    if len(ranges) != len(shape):
        raise InvalidProblemError(
            f"write_slice: {len(ranges)} ranges for a dest of rank {len(shape)}", "give one (start, end) an axis"
        )
    for axis, ((a, b), extent) in enumerate(zip(ranges, shape)):
        if a < 0:
            raise InvalidProblemError(
                f"write_slice: ranges[{axis}] starts at {a}",
                f"negative starts do not wrap here; give {extent + a}, counted from 0",
            )
        if b < a:
            raise InvalidProblemError(f"write_slice: ranges[{axis}] = ({a}, {b}) is reversed", "give start <= end")
        if b > extent:
            raise InvalidProblemError(
                f"write_slice: ranges[{axis}] = ({a}, {b}) reaches beyond dest's extent {extent}",
                f"end at {extent} or before",
            )


class DynamicStart(Candidate[WriteSliceDescriptor]):
    """The start along one axis is read on the device, so that a captured graph can append at a moving position."""

    variant = "dynamic_start"
    launches = ("shape_layout/append.cu:append_runs",)
    unaligned = True

    def supports(self, desc: WriteSliceDescriptor, device: DeviceSpec) -> Feasibility:
        if desc.dynamic_axis is not None:
            return OK
        if desc.element.packed:
            return no(f"the start is given by the host, and for {desc.element} it cannot lie on the device")
        return no(
            "the start is given by the host", "dynamic_axis=0, and start on the device", Change({"dynamic_axis": 0})
        )

    def guarantee(self, desc: WriteSliceDescriptor, device: DeviceSpec, config: Any) -> PrecisionGuarantee:
        return exact_movement(desc.element)

    def cost(self, desc: WriteSliceDescriptor, device: DeviceSpec, config: Any) -> Cost:
        return Cost.streaming(device, 2 * desc.copy().nbytes, efficiency=0.8)

    def lower(self, desc: WriteSliceDescriptor, device: DeviceSpec, config: Any) -> tuple[Step, ...]:
        dest, source = desc.layout("dest"), desc.layout("source")
        axis, size = desc.dynamic_axis, desc.element.bits // 8
        assert axis is not None
        step = dest.strides[axis] * size
        shape, walks = collapse(desc.extents, [dest.strides, source.strides])
        bytewise = [[s * size for s in walk] for walk in walks]
        extents, strides, word = words_of(shape, bytewise, size, min(dest.align, source.align), (step,))
        count = math.prod(extents)
        index = index_type(count)
        threads, unroll = append_shape(count, device)
        args = (
            Ptr("dest"), Ptr("dest"), Ptr("source"), Ptr("source"), Ptr("start"), Ptr("status"),
            index_scalar(1, index), np.int64(desc.dest_shape[axis] - desc.extents[axis]), np.int64(step),
            index_scalar(count, index), divisor(count, index),
            pack_dims(extents, strides, index),
        )  # fmt: skip
        entry = f"append_runs<{index}, i64, {len(extents)}, {word}, {threads}, {unroll}, 1, false>"
        return (
            Launch(Kernel("shape_layout/append.cu", entry), grid_of(count, threads * unroll), (threads, 1, 1), args),
        )


class WriteSlicePlan(Plan[WriteSliceDescriptor]):
    """dest[ranges] = source: operands `dest` (in place) and `source`; run-time value `start`.

    With `dynamic_axis`: operand `start`, a device int64 scalar, and optional `status`, a device int32 scalar set to 1 (and
    nothing written) where the start is out of range, else to 0.
    """

    descriptor = WriteSliceDescriptor
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

    @classmethod
    def reference(cls, desc: WriteSliceDescriptor, **arrays: Any) -> Any:
        return oracle.write_slice(desc, **arrays)

    @classmethod
    def reference_guarantee(cls, desc: WriteSliceDescriptor) -> PrecisionGuarantee:
        return exact_movement(desc.element)


def write_slice(
    dest: Any,
    source: Any,
    ranges: Sequence[Any],
    *,
    dynamic_axis: int | None = None,
    start: Any = None,
    status: Any = None,
    stream: Any = None,
    pref: PlanPreference | None = None,
    device: Any = None,
) -> Any:
    """Writes `source` into the window `ranges` of `dest`, in place, and returns `dest`.

    dest: any array of rank 1 or more and any strides; every kind but BIN. source: the window's shape, the same kind.
    ranges: one (start, end) pair or slice an axis, half-open, 0 <= start <= end <= extent.
    dynamic_axis, start, status: that axis' start is read from `start`, a device int64 scalar, at launch; a start out of
    range writes nothing and sets `status`, an optional device int32 scalar, to 1.

    Bytes outside the window are untouched. Raises InvalidProblemError for a bad window, OperandTypeError for another dtype
    or a read-only dest, OverlapError where source shares memory with the window.
    """
    if dynamic_axis is not None:
        operands = {"dest": dest, "source": source, "start": start, "status": status}
        options = (dynamic_axis, pairs_of(ranges, _shape_of(dest)))
        return functional.call(
            WriteSlicePlan, operands, lambda: WriteSliceDescriptor.of(dest, source, ranges, dynamic_axis=dynamic_axis),
            options=options, shifts=None, stream=stream, pref=pref, device=device,
        )  # fmt: skip
    _refuse_idle(dynamic_axis, start, status)
    shift, starts, window = _window(dest, ranges)
    return functional.call(
        WriteSlicePlan, {"dest": dest, "source": source}, lambda: WriteSliceDescriptor.of(dest, source, ranges),
        options=window, values={"start": starts} if starts else None, shifts=(shift, 0), stream=stream, pref=pref, device=device,
    )  # fmt: skip


def _refuse_idle(dynamic_axis: int | None, start: Any, status: Any) -> None:
    """Raises InvalidProblemError for operands that only a window with a dynamic axis has."""
    if dynamic_axis is None and not (start is None and status is None):
        name = "status" if start is None else "start"
        raise InvalidProblemError(
            f"write_slice: {name} was given and no dynamic_axis", "pass dynamic_axis=..., the axis that it starts along"
        )


def _window(dest: Any, ranges: Sequence[Any]) -> tuple[int, tuple[int, ...], Any]:
    """The byte shift of a window, its starts and its extents; what is unusual is left to the descriptor."""
    try:
        shift, starts, extents = 0, [], []
        for (a, b), n, stride in zip(ranges, dest.shape, byte_strides(dest), strict=True):
            if type(a) is not int or type(b) is not int or not 0 <= a <= b <= n:
                break
            shift += a * stride
            starts.append(a)
            extents.append(b - a)
        else:
            return shift, tuple(starts), tuple(extents)
    except Exception:  # whatever the attributes of a stranger raise
        pass
    shape = _shape_of(dest)
    pairs = pairs_of(ranges, shape)
    _check_ranges(pairs, shape)
    shift = sum(a * stride for (a, _), stride in zip(pairs, byte_strides(dest)))
    return shift, tuple(a for a, _ in pairs), tuple(b - a for a, b in pairs)


def _shape_of(dest: Any) -> tuple[int, ...]:
    try:
        return tuple(dest.shape)
    except Exception:  # no array, or one of a sort that only `intake` can tell of
        return intake(dest, what="write_slice: dest").shape


register(
    Op(
        "write_slice",
        WriteSlicePlan,
        write_slice,
        samples.write_slice,
        peers={"cupy": "assignment", "torch": "assignment"},
    )
)
