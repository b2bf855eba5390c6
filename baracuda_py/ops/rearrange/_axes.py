"""Where the elements of a result are in the source, by one rule per axis (kernels/include/rearrange/rules.cuh)."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...runtime.steps import Packed
from .._launch import divisor

__all__ = ["Axis", "count_of", "flipped", "kept", "merged", "pack_rules", "padded", "repeated", "rolled", "tiled"]


@dataclass(frozen=True)
class Axis:
    """Index i of the result is at t = (clamp(i, first, last) + offset) mod period. A t below `source` is in the source, at
    t // repeat; any other at mirror - t, or nowhere where `mirror` is 0. `stride` is the source's, in elements."""

    extent: int
    period: int
    source: int
    stride: int = 0
    offset: int = 0
    mirror: int = 0
    repeat: int = 1
    first: int = 0
    last: int = -1  # the last index of the result

    @property
    def end(self) -> int:
        """The largest number that the rule computes, plus 1."""
        return max(self.extent, self.clamp + self.offset + 1, self.period, self.mirror + 1, self.source)

    @property
    def clamp(self) -> int:
        return self.extent - 1 if self.last < 0 else self.last

    @property
    def whole(self) -> bool:
        """Whether index i of the result is index i of the source."""
        return self == Axis(self.extent, self.extent, self.extent, self.stride)

    @property
    def scales(self) -> bool:
        """Whether the rule also holds for rows in place of elements."""
        return not self.mirror and self.repeat == 1 and self.first == 0 and self.last < 0


def kept(n: int) -> Axis:
    """The source's own indices."""
    return Axis(n, n, n)


def rolled(n: int, shift: int) -> Axis:
    """Index i + shift holds index i, around the end."""
    return replace(kept(n), offset=-shift % n) if n else kept(n)


def flipped(n: int) -> Axis:
    """The reverse."""
    return Axis(n, 2 * n, n, offset=n, mirror=2 * n - 1) if n > 1 else kept(n)


def tiled(n: int, count: int) -> Axis:
    """All indices, `count` times."""
    return Axis(n * count, n, n)


def repeated(n: int, count: int) -> Axis:
    """Each index `count` times."""
    return Axis(n * count, n * count, n * count, repeat=count) if count else Axis(0, 1, 1)


def padded(n: int, before: int, after: int, mode: str) -> Axis:
    """`before` and `after` further indices: without a source, or the source's continued as `mode` says; negative ones cut."""
    extent = n + before + after
    if not before and not after:
        return kept(n)
    if mode == "reflect":
        return Axis(extent, max(2 * n - 2, 1), n, offset=-before % max(2 * n - 2, 1), mirror=max(2 * n - 2, 0))
    if mode == "symmetric":
        return Axis(extent, max(2 * n, 1), n, offset=-before % max(2 * n, 1), mirror=max(2 * n - 1, 0))
    if mode == "wrap":
        return Axis(extent, max(n, 1), n, offset=-before % max(n, 1))
    period = n + abs(before) + abs(after) + extent + 1
    axis = Axis(extent, period, n, offset=-before % period)
    return replace(axis, first=before, last=before + n - 1) if mode == "edge" else axis


def merged(axes: Sequence[Axis], matrix: bool = False) -> tuple[Axis, ...]:
    """The same places by fewer rules, at least one; with `matrix` the last two axes stay."""
    fixed = list(axes[-2:]) if matrix else []
    joined: list[Axis] = []
    for axis in axes[: len(axes) - len(fixed)]:
        if axis.extent == 1 and axis.whole:
            continue
        outer, n = joined[-1] if joined else axis, axis.extent
        if joined and axis.whole and outer.scales and (outer.source == 1 or outer.stride == axis.stride * n):
            joined[-1] = Axis(outer.extent * n, outer.period * n, outer.source * n, axis.stride, outer.offset * n)
        else:
            joined.append(axis)
    return (*joined, *fixed) or (kept(1),)


def pack_rules(axes: Sequence[Axis], width: int, index: str) -> Packed:
    """Rules<index, len(axes)>."""
    small = index == "u32"
    parts = []
    for axis in axes:
        numbers = (axis.first, axis.clamp, axis.offset, axis.source, axis.mirror, 0)
        parts += [divisor(n, index).data for n in (axis.extent, axis.period, axis.repeat)]
        parts.append(struct.pack("<6I" if small else "<6Q", *numbers) + struct.pack("<q", axis.stride * width))
    return Packed(b"".join(parts), 8)


def count_of(axes: Sequence[Axis]) -> int:
    return math.prod(axis.extent for axis in axes)
