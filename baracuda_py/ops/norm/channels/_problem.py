"""What norms of x [N, C, *] have in common: the elements of a group of channels share statistics."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from ....types import ElementKind, InvalidProblemError
from ....types.keeping import complete
from ..._rows import OperandStrides, Rows, computed_in, rows_of
from .._problem import Parted

__all__ = ["BATCHED", "GROUPED", "ChannelNormed", "ChannelRows", "channel_rows", "described_by"]

GROUPED, BATCHED = ("group_norm", "instance_norm"), "batch_norm"
STATISTICS = ("mean", "rstd", "var", "running_mean", "running_var")
PER_CHANNEL = ("weight", "bias", "mean", "var")


class ChannelRows(Rows):
    """Rows whose vectors run along the innermost axis of columns, where some operands may have one element."""

    @property
    def one(self) -> bool:
        """Whether the columns of a vector are of one channel."""
        return any(operand.along and operand.columns[-1:] == (0,) for operand in self.operands.values())

    def vector(self, element: ElementKind, *, whole: bool = True) -> int:
        if self.dense:
            return super().vector(element, whole=whole)
        moving = [o for o in self.operands.values() if o.along and o.columns[-1] != 0]
        weights = {o.columns[-1] for name, o in self.operands.items() if o.along and name in PER_CHANNEL}
        if any(o.columns[-1] != 1 for o in moving) or len(weights) > 1:
            return 1
        vector = self.widest(element)
        while self.columns[-1] % vector or not all(self._reaches(o, vector) for o in moving):
            vector //= 2
        return vector

    @staticmethod
    def _reaches(operand: OperandStrides, vector: int) -> bool:
        """Whether all vectors of an operand are aligned."""
        access = min(16, vector * operand.size)
        steps = (*(s * operand.size for s in (*operand.rows, *operand.columns[:-1])), operand.layout.align)
        return all(step % access == 0 for step in steps)


class ChannelNormed(Parted):
    """A norm of x of `shape`, whose axis 1 are the channels of `num_groups` groups; batch_norm has one item, and positions in
    all of x's."""

    shape: tuple[int, ...]
    num_groups: int | None
    name: str
    centered: ClassVar[bool] = True
    names: ClassVar[tuple[str, ...]]

    def __post_init__(self) -> None:
        self._names_op(self.names, "name")
        super().__post_init__()
        if self.num_groups is None:
            complete(self, num_groups=self.channels)
        self.complete_parts()

    @property
    def channels(self) -> int:
        return self.shape[1] if len(self.shape) > 1 else 1

    @property
    def channel_shape(self) -> tuple[int, ...]:
        return (self.channels,)

    @property
    def groups(self) -> int:
        assert self.num_groups is not None
        return self.num_groups

    @property
    def batched(self) -> bool:
        return self.name.startswith(BATCHED)

    @property
    def items(self) -> int:
        """Sets of statistics."""
        return 1 if self.batched else self.shape[0]

    @property
    def row_shape(self) -> tuple[int, ...]:
        """Of the statistics."""
        return (self.channels,) if self.batched else (*self.shape[:1], self.groups)

    @property
    def per_group(self) -> int:
        """Channels of a group."""
        return self.channels // max(self.groups, 1)

    @property
    def extents(self) -> tuple[int, ...]:
        """Of items, groups, a group's channels, and positions."""
        first = self.shape[:1] if self.batched else ()
        return (self.items, self.groups, self.per_group, *first, *self.shape[2:])

    @property
    def positions(self) -> int:
        return math.prod(self.extents[3:])

    @property
    def length(self) -> int:
        """Terms of a mean."""
        return self.per_group * self.positions

    @property
    def types(self) -> str:
        """As kernels take them: of x, of weights, and what is computed in."""
        weight = self.kind("weight") or self.kind("bias") or self.element
        return f"{self.element.number}, {weight.number}, {computed_in(self.element).cuda}"

    def check(self) -> None:
        if len(self.shape) < 2:
            raise InvalidProblemError(
                f"{self.op}: x of shape {self.shape} has no axis of channels", "pass x of shape [N, C, ...]"
            )
        if (self.groups < 1 and self.channels) or self.channels % max(self.groups, 1):
            raise InvalidProblemError(
                f"{self.op}: {self.channels} channels (axis 1 of x) cannot be divided into num_groups={self.groups}",
                "give a positive divisor of the channels",
            )
        if self.groups != self.channels and not self.name.startswith("group"):
            raise InvalidProblemError(f"{self.op}: num_groups={self.groups}", "leave it out: a group is one channel")
        super().check()

    def spread(self, name: str) -> tuple[int, ...] | None:
        """An operand's strides over `extents`; None where it is absent."""
        if not self.has(name):
            return None
        strides = self.layout(name).strides
        if name in STATISTICS:
            found = (0, *strides) if self.batched else strides
            return (*found, *(0,) * (len(self.extents) - 2))
        item, channel, *rest = strides if len(strides) > 1 else (0, *strides, *(0 for _ in self.shape[2:]))
        first = (0, (item,)) if self.batched else (item, ())
        return (first[0], channel * self.per_group, channel, *first[1], *rest)


def described_by(descriptor: type[ChannelNormed]) -> Callable[..., ChannelNormed]:
    """What describes a call of a norm's function; `stats`: also mean and rstd where they are not given."""

    def of(*, name: str, stats: bool = False, **operands: Any) -> ChannelNormed:
        options = {field: operands.pop(field) for field in [*operands] if field not in descriptor.slot_of}
        tensors = descriptor.taken(name, operands)
        if not stats:
            descriptor.refuse_half(name, tensors)
        if stats and "rstd" not in tensors:
            options["rstd_element"] = computed_in(tensors["x"].element).element
        return descriptor.of_tensors(tensors, name=name, **options)

    return of


def channel_rows(
    desc: ChannelNormed, names: Sequence[str], axes: int, partial: tuple[int, ...] | None = None
) -> ChannelRows:
    """Rows found by the first `axes` of `desc.extents`, whose columns are the others. `partial` are the steps of a first operand
    that has one value per row, "partial"."""
    strides: dict[str, tuple[int, ...] | None] = (
        {} if partial is None else {"partial": (*partial, *(0,) * (len(desc.extents) - axes))}
    )
    strides |= {name: desc.spread(name) if name in desc.slot_of else None for name in names}
    per_row = () if not axes else (*STATISTICS, *(("weight", "partial") if axes > 2 else ()))
    found = rows_of(desc, desc.extents, range(axes, len(desc.extents)), strides, per_row)
    return ChannelRows(found.rows, found.columns, found.operands)
