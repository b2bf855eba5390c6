"""A result whose elements are those of one array at other places, or a constant: the base of the descriptors."""

from __future__ import annotations

from dataclasses import replace

from ...plan.descriptor import Descriptor
from ...types import ElementKind, InvalidProblemError
from ._axes import Axis

__all__ = ["BYTES", "EVERYWHERE", "Rearranged", "axes_of"]

BYTES = tuple(kind for kind in ElementKind if not kind.packed)
EVERYWHERE = (-(1 << 62), 1 << 62)  # distances from the diagonal


class Rearranged(Descriptor):
    """x of `shape`; `rules` says where the elements come from, `band` at what distance from the diagonal they are kept."""

    shape: tuple[int, ...]
    element: ElementKind

    def rules(self) -> tuple[Axis, ...]:
        """One rule per axis of the result, whose strides `axes` fills in."""
        raise NotImplementedError

    @property
    def sums(self) -> bool:
        """Whether elements of the result are sums of several of x."""
        return False

    @property
    def band(self) -> tuple[int, int]:
        return EVERYWHERE

    @property
    def constant(self) -> bytes:
        """The bytes of an element without a source."""
        return bytes(self.element.bits // 8)

    @property
    def out_shape(self) -> tuple[int, ...]:
        return tuple(axis.extent for axis in self.rules())

    def axes(self) -> tuple[Axis, ...]:
        """The rules with x's strides; leading axes that x lacks have the stride 0."""
        rules, strides = self.rules(), self.layout("x").strides
        return tuple(replace(rule, stride=s) for rule, s in zip(rules, (0,) * (len(rules) - len(strides)) + strides))

    def check(self) -> None:
        self.rules()


def axes_of(op: str, axes: tuple[int, ...] | None, rank: int, *, twice: bool = False) -> tuple[int, ...]:
    """Axes counted from the front, None for all of them; raises for those out of range, and (unless `twice`) for repeated
    ones."""
    if axes is None:
        return tuple(range(rank))
    for axis in axes:
        if not -rank <= axis < rank:
            known = f"give one of {-rank} to {rank - 1}" if rank else "give x an axis"
            raise InvalidProblemError(f"{op}: axis={axis} is out of range: x has {rank} axes", known)
    found = tuple(axis % rank for axis in axes)
    if not twice and len(set(found)) < len(found):
        raise InvalidProblemError(f"{op}: axis={axes} names an axis twice", "give each axis once")
    return found
