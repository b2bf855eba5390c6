"""Lowering to executable steps: named scratch is placed, and each `Sub` is replaced by the other plan's steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np

from ..runtime.steps import (
    WORKSPACE,
    Arg,
    Call,
    Copy,
    Copy2D,
    DeferredScratch,
    Fill,
    Launch,
    Ptr,
    Run,
    Scratch,
    Step,
    Struct,
    TensorMap,
)  # fmt: skip
from .selected import Selected

__all__ = ["Sub", "lowered"]

ALIGN = 256  # bytes: the alignment of scratch regions, more than any access of a kernel needs
Place: TypeAlias = Ptr | Scratch


@dataclass(frozen=True)
class Sub:
    """Another plan, run on operands and scratch of this one. `operands` maps each of its operands to a location.

    Its selection is part of the candidate's configuration, so it is computed once and the sku names it. Its run-time values are
    those of its descriptor, except that launches take the `values` of this plan, which has them under the same names. All `Sub`
    steps share their scratch, because they run one after another.
    """

    selection: Selected
    operands: Mapping[str, Place]
    values: tuple[str, ...] = ()


def lowered(steps: Sequence[Step | Sub]) -> tuple[Step, ...]:
    """The steps as launches, copies, fills and calls only, with all scratch placed."""
    plain = tuple(step for step in steps if not isinstance(step, Sub))
    if len(plain) == len(steps) and not any(_is_open(place) for step in plain for place in _scratch_of(step)):
        return plain
    places, end = _placed(steps)
    own = _Moving(lambda place: places[place.name] if isinstance(place, Scratch) and place.name else place, end)
    found: list[Step] = []
    for step in steps:
        if isinstance(step, Sub):
            inner = _Inside.of(step, own.place, end)
            found += [inner.moved(each) for each in step.selection.steps]
        else:
            found.append(own.moved(step))
    return tuple(found)


def _placed(steps: Sequence[Step | Sub]) -> tuple[dict[str, Scratch], int]:
    """The offset of each named region, behind the regions with fixed offsets, and the end of all."""
    named: dict[str, int] = {}
    fixed = 0
    for step in steps:
        for place in step.operands.values() if isinstance(step, Sub) else _scratch_of(step):
            if isinstance(place, Scratch) and place.name:
                named[place.name] = max(place.nbytes, named.get(place.name, 0))
            elif isinstance(place, Scratch):
                fixed = max(fixed, place.offset + place.nbytes)
    places, end = {}, _aligned(fixed)
    for name, nbytes in named.items():
        places[name] = Scratch(end, nbytes)
        end = _aligned(end + nbytes)
    return places, end


def _aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGN) * ALIGN


def _is_open(scratch: object) -> bool:
    """Whether the region is still to be placed."""
    return callable(scratch) or (isinstance(scratch, Scratch) and bool(scratch.name))


def _scratch_of(step: Step) -> Iterator[object]:
    """The regions of scratch that a step uses."""
    if isinstance(step, Launch):
        for arg in step.args:
            for one in arg.fields if isinstance(arg, Struct) else (arg,):
                place = one.of if isinstance(one, TensorMap) else one
                if isinstance(place, Scratch):
                    yield place
    elif isinstance(step, (Copy, Copy2D)):
        yield from (place for place in (step.dest, step.source) if isinstance(place, Scratch))
    elif isinstance(step, Fill):
        yield from (place for place in (step.dest,) if isinstance(place, Scratch))
    elif step.scratch is not None:
        yield step.scratch


@dataclass(frozen=True)
class _Moving:
    """Rewrites the locations in a step with `place`. `end` is the offset of scratch whose size is not known yet."""

    place: Callable[[Place], Place]
    end: int

    def moved(self, step: Step) -> Step:
        if isinstance(step, Launch):
            return replace(step, args=tuple(map(self._arg, step.args)))
        if isinstance(step, (Copy, Copy2D)):
            return replace(step, dest=self.place(step.dest), source=self.place(step.source))
        if isinstance(step, Fill):
            return replace(step, dest=self.place(step.dest))
        return self._call(step)

    def _call(self, step: Call) -> Call:
        if callable(step.scratch):
            return replace(step, scratch=DeferredScratch(step.scratch, self.end))
        placed = self.place(step.scratch) if isinstance(step.scratch, Scratch) else step.scratch
        return replace(step, scratch=placed)  # type: ignore[arg-type]  # scratch is placed in scratch

    def _arg(self, arg: Arg) -> Arg:
        if isinstance(arg, Struct):
            return Struct(tuple(self._arg(each) for each in arg.fields))  # type: ignore[misc]
        if isinstance(arg, TensorMap):
            return replace(arg, of=self.place(arg.of))
        return self.place(arg) if isinstance(arg, (Ptr, Scratch)) else arg


@dataclass(frozen=True)
class _Inside(_Moving):
    """Rewrites the steps of a plan inside another."""

    names: tuple[str, ...] = ()
    held: Mapping[str, Place] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)
    outer: tuple[str, ...] = ()  # run-time values that stay those of the plan around it

    @staticmethod
    def of(sub: Sub, placed: Callable[[Place], Place], end: int) -> _Inside:
        selection = sub.selection
        shifts, values = selection.desc.resolve({})
        held = {
            name: _on(placed(sub.operands[name]), shift)
            for name, shift in zip(selection.names, shifts)
            if name in sub.operands
        }

        def place(own: Place) -> Place:
            return _on(held[own.operand], own.offset) if isinstance(own, Ptr) else replace(own, offset=end + own.offset)

        return _Inside(place, end, selection.names, held, values, sub.values)

    def _arg(self, arg: Arg) -> Arg:
        if isinstance(arg, Run) and arg.name in self.outer:
            return arg
        if isinstance(arg, Run):
            return np.dtype(arg.dtype).type(self.values[arg.name])  # type: ignore[no-any-return]
        if isinstance(arg, Ptr) and arg.operand not in self.held:
            return np.uint64(0)  # an optional operand that is absent
        return super()._arg(arg)

    def _call(self, step: Call) -> Call:
        own, scratch = 0, step.scratch
        if isinstance(scratch, DeferredScratch):
            own = self.end + scratch.offset
            scratch = replace(scratch, offset=own)
        else:  # relative to the whole workspace, since operands may be in it
            reached = [place.offset + place.nbytes for place in self.held.values() if isinstance(place, Scratch)]
            if isinstance(scratch, Scratch):
                own = self.end + scratch.offset
                reached.append(own + scratch.nbytes)
            scratch = Scratch(0, max(reached)) if reached else None
        places = tuple((name, self.held.get(name)) for name in self.names)
        begins = scratch.offset if scratch else 0
        function = _Renamed(step.function, places, tuple(self.values.items()), own, begins)
        return replace(step, function=function, scratch=scratch)


@dataclass(frozen=True)
class _Renamed:
    """Calls a step's function with the operands' addresses under the inner plan's names. `own` is the location of its scratch;
    `begins` is the offset in bytes of the outer step's scratch in the workspace."""

    function: Callable[..., None]
    places: tuple[tuple[str, Place | None], ...]
    values: tuple[tuple[str, Any], ...]
    own: int
    begins: int

    def __call__(self, pointers: Mapping[str, int], _values: Mapping[str, Any], stream: int) -> None:
        workspace = pointers.get(WORKSPACE, 0) - self.begins
        named = {WORKSPACE: workspace + self.own}
        for name, place in self.places:
            if isinstance(place, Scratch):
                named[name] = workspace + place.offset
            else:
                named[name] = pointers[place.operand] + place.offset if place is not None else 0
        self.function(named, dict(self.values), stream)


def _on(place: Place, nbytes: int) -> Place:
    """The location `nbytes` bytes behind `place`."""
    if isinstance(place, Ptr):
        return replace(place, offset=place.offset + nbytes)
    return replace(place, offset=place.offset + nbytes, nbytes=place.nbytes - nbytes)
