"""Requirements of kernels on operands, as data: kinds, order in memory, alignment, extents.

A candidate lists its own in `constraints`. `Candidate.supports` checks them in order; the first that fails gives the reason and
the smallest change that would admit the candidate.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..tensor.axes import alignment_of, c_strides
from ..types import ElementKind
from .candidate import OK, Change, Feasibility, no
from .descriptor import Descriptor, Layout

__all__ = ["Aligned", "InOrder", "Kinds", "Multiple", "UnitStride"]


@dataclass(frozen=True)
class Kinds:
    """The operand holds one of these kinds."""

    operand: str
    kinds: tuple[ElementKind, ...]

    def of(self, desc: Descriptor) -> Feasibility:
        if not desc.has(self.operand) or (kind := desc.layout(self.operand).element) in self.kinds:
            return OK
        *others, last = map(str, self.kinds)
        named = f"{', '.join(others)} or {last}" if others else last
        field = desc.slot_of[self.operand].element
        change = Change({field: self.kinds[0]}) if isinstance(field, str) else None
        return no(f"{self.operand} holds {kind}, not {named}", f"a cast of {self.operand} to {self.kinds[0]}", change)


@dataclass(frozen=True)
class InOrder:
    """The operand is in C order."""

    operand: str

    def of(self, desc: Descriptor) -> Feasibility:
        if not desc.has(self.operand):
            return OK
        x = desc.layout(self.operand)
        if x.strides == c_strides(x.shape, x.element):
            return OK
        return _relaid(desc, self.operand, f"{self.operand} does not lie in C order")


@dataclass(frozen=True)
class UnitStride:
    """The operand is contiguous along its last axis."""

    operand: str

    def of(self, desc: Descriptor) -> Feasibility:
        if not desc.has(self.operand):
            return OK
        x = desc.layout(self.operand)
        if not x.shape or x.shape[-1] <= 1 or x.strides[-1] == 1:
            return OK
        return _relaid(desc, self.operand, f"{self.operand}'s last axis is stepped along by {x.strides[-1]} elements")


@dataclass(frozen=True)
class Aligned:
    """The operand's first touched element, and every row along its last axis, start on a multiple of `nbytes`, 16 at most."""

    operand: str
    nbytes: int

    def of(self, desc: Descriptor) -> Feasibility:
        if not desc.has(self.operand):
            return OK
        name, x = self.operand, desc.layout(self.operand)
        if 0 in x.shape:
            return OK
        if x.align < self.nbytes:
            reason = f"{name}'s first touched element is aligned to {x.align} bytes, not to {self.nbytes}"
            return no(reason, f"{name} on a multiple of {self.nbytes} bytes", Change({f"{name}_align": self.nbytes}))
        for extent, step in zip(x.shape[:-1], x.strides):
            row_bytes = x.element.nbytes(abs(step))
            if extent > 1 and alignment_of(row_bytes) < self.nbytes:
                reason = f"{name}'s rows are {row_bytes} bytes apart, not a multiple of {self.nbytes}"
                return _padded(name, x, reason, self.nbytes)
        return OK


@dataclass(frozen=True)
class Multiple:
    """The extent of the operand's axis is a multiple of `by`. `called` is its name in messages."""

    operand: str
    axis: int
    by: int
    called: str

    def of(self, desc: Descriptor) -> Feasibility:
        extent = desc.layout(self.operand).shape[self.axis] if desc.has(self.operand) else 0
        if extent % self.by == 0:
            return OK
        whole = -(-extent // self.by) * self.by
        return no(f"{self.called} is {extent}, not a multiple of {self.by}", f"pad {self.called} to {whole}")


def _relaid(desc: Descriptor, name: str, reason: str) -> Feasibility:
    """A refusal whose fix is the operand in C order."""
    said = "pass out in C order" if desc.slot_of[name].role == "out" else f"contiguize {name}"
    return no(reason, said, Change({f"{name}_strides": None}))


def _padded(name: str, x: Layout, reason: str, nbytes: int) -> Feasibility:
    """A refusal whose fix is padded rows that start on multiples of `nbytes`."""
    per = max(1, nbytes * 8 // x.element.bits)
    strides: list[Any] = list(c_strides((*x.shape[:-1], -(-x.shape[-1] // per) * per)))
    row_bytes = x.element.nbytes(strides[-2])
    said = f"{name} in C order with rows {row_bytes} bytes apart"
    return no(reason, said, Change({f"{name}_strides": tuple(strides)}))
