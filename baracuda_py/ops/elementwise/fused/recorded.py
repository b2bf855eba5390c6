"""Neighbouring elementwise calls of a recording as one kernel each: what `bp.record(fuse=True)` does when its block ends.

A result is still written if something may read it after the launch: a call outside the kernel, in this replay or the next one, an
input of the step, the caller of the step, or a reference that the program holds. All other results stay in registers.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from ....call.bound import BoundPlan
from ....plan.selection import Selection
from ....tensor import Tensor, intake, overlaps
from ....tensor.pytorch import is_tensor
from ....types import BaracudaError
from .._family import GraphPlan, MapPlan
from .._row import ROWS
from ._kinds import typed
from .graph import MAX_INPUTS, MAX_NODES, Argument, Graph, Node
from .plan import FusedDescriptor, FusedPlan

__all__ = ["fuse_recorded"]

Key: TypeAlias = tuple[Any, ...]
_ONE_REFERENCE = [object()]
_UNSHARED = sys.getrefcount(_ONE_REFERENCE[0])  # of an object that one list holds, as `_is_held` counts


@dataclass(frozen=True)
class _Call:
    """A recorded call: its arrays by their places in a list, what it reads and writes, and its numbers. `own` says that it has
    allocated its result itself."""

    selection: Selection
    bound: BoundPlan | None  # of a call that stays
    arrays: Mapping[str, int]
    numbers: Mapping[str, Any]
    views: Mapping[str, Tensor]
    written: frozenset[str]
    own: bool

    @property
    def out(self) -> Tensor:
        return self.views["out"]


@dataclass(frozen=True)
class _Group:
    """Calls that one graph computes: its inputs by their places in the list of arrays, and a node for each call."""

    calls: tuple[_Call, ...]
    inputs: tuple[int, ...]
    nodes: tuple[Node, ...]

    @property
    def last_writers(self) -> tuple[int, ...]:
        """The calls whose results no later call of the group overwrites."""
        return tuple({_key(call.out): place for place, call in enumerate(self.calls)}.values())


def fuse_recorded(
    bounds: list[BoundPlan], own: Sequence[bool | None], kept: Sequence[Tensor]
) -> tuple[list[BoundPlan], list[str]]:
    """The bound plans of a recording, neighbouring elementwise calls fused, and what each fused one computes, in words.

    `bounds` is emptied: references that are left to a result are then those of the program. `own` says which calls allocated
    their results, None of a bound plan of the program, which stays; `kept` are arrays that are read after a replay.
    """
    arrays: list[Any] = []
    calls = _calls(bounds, own, arrays)
    kept = [*kept, *(calls[-1].views[name] for name in calls[-1].written)]
    bounds.clear()
    made: list[BoundPlan] = []
    said: list[str] = []
    start = 0
    while start < len(calls):
        group = _group(calls[start:])
        others = [*calls[:start], *calls[start + len(group.calls) :]]
        while len(group.calls) > 1:
            fused = _fused(group, others, arrays, kept)
            if fused is not None:
                break
            others = [*others, group.calls[-1]]
            group = _group(group.calls[:-1])
        if len(group.calls) > 1 and fused is not None:
            made.append(fused[0])
            said.append(fused[1])
        else:
            made.append(_bound(calls[start], arrays))
        start += max(len(group.calls), 1)
    return made, said


def _calls(bounds: Sequence[BoundPlan], own: Sequence[bool | None], arrays: list[Any]) -> list[_Call]:
    """The calls, those that a graph may compute without their bound plans."""
    places: dict[int, int] = {}
    calls = []
    for bound, allocated in zip(bounds, own):
        operands, of = dict(bound.operands), {operand.name: operand for operand in bound.selection.operands}
        views = {name: _bare(x) for name, x in operands.items() if name in of}
        for name in views:
            if id(operands[name]) not in places:
                places[id(operands[name])] = len(arrays)
                arrays.append(operands[name])
        held = {name: places[id(operands[name])] for name in views}
        numbers = {name: x for name, x in operands.items() if name not in of}
        written = frozenset(name for name in views if of[name].written)
        stays = bound if allocated is None or not _is_row(bound.selection) else None
        calls.append(_Call(bound.selection, stays, held, numbers, views, written, bool(allocated)))
    return calls


def _is_row(selection: Selection) -> bool:
    """Whether a selection is that of an elementwise row."""
    family = selection.family
    return issubclass(family, MapPlan) and not issubclass(family, GraphPlan) and selection.desc.op in ROWS


def _bare(x: Any) -> Tensor:
    """The view of an array, without a reference to it."""
    return replace(intake(x, what="record"), source=None, keep=None)


def _key(view: Tensor) -> Key:
    return view.pointer, view.shape, view.strides, view.element


def _bound(call: _Call, arrays: Sequence[Any]) -> BoundPlan:
    if call.bound is not None:
        return call.bound
    given = {name: arrays[place] for name, place in call.arrays.items()} | dict(call.numbers)
    return BoundPlan(call.selection, given, None)


# ---- graphs ----------------------------------------------------------------------------------------------------------


def _group(calls: Sequence[_Call]) -> _Group:
    """The first calls, as many as one graph may compute: elementwise rows on one device, that read each other's results whole."""
    names: dict[Key, str] = {}
    inputs: list[int] = []
    nodes: list[Node] = []
    for place, call in enumerate(calls):
        before, first = calls[:place], calls[0].selection
        same = call.bound is None and (call.selection.device, call.selection.pref) == (first.device, first.pref)
        if not same or len(nodes) == MAX_NODES:
            break
        reads = {n: _key(view) for n, view in call.views.items() if n not in call.written}
        fresh = list(dict.fromkeys(n for n, key in reads.items() if key not in names))
        partly = any(overlaps(call.views[n], earlier.out) for n in fresh for earlier in before)
        crossing = any(overlaps(call.out, e.out) and _key(call.out) != _key(e.out) for e in before)
        if partly or crossing or len(inputs) + len(fresh) > MAX_INPUTS:
            break
        added = {reads[n]: call.arrays[n] for n in fresh}
        known = names | {key: f"x{len(inputs) + number + 1}" for number, key in enumerate(added)}
        node = _node(call, {n: known[key] for n, key in reads.items()})
        if node is None:
            break
        names, nodes = known, [*nodes, node]
        inputs += added.values()
        names[_key(call.out)] = f"t{len(nodes)}"
    return _Group(tuple(calls[: len(nodes)]), tuple(inputs), tuple(nodes))


def _node(call: _Call, names: Mapping[str, str]) -> Node | None:
    """The call as a node; None where it has an argument that a graph does not take."""
    desc, row = call.selection.desc, ROWS[call.selection.desc.op]
    args: list[Argument] = []
    for name, argument in zip(desc.inputs, row.arguments):
        if name in names:
            args.append(names[name])
        elif name in call.numbers:
            args.append(call.numbers[name])
        elif argument in row.absent:
            args.append(row.absent[argument])
        else:
            return None
    args += [call.numbers.get(name, default) for name, default in row.params.items()]
    if any(type(x) not in (str, bool, int, float) for x in args):
        return None
    return Node(row.name, tuple(args), desc.kind_of("out") if row.result == "given" else None)


def _fused(
    group: _Group, others: Sequence[_Call], arrays: list[Any], kept: Sequence[Tensor]
) -> tuple[BoundPlan, str] | None:
    """The bound plan of a group and its description; None where no kernel computes it."""
    outside = [*kept, *(view for call in others for view in call.views.values())]
    wanted = [place for place in group.last_writers if _is_read(group.calls[place], outside, arrays)]
    wanted = wanted or [len(group.calls) - 1]
    whole = Graph(len(group.inputs), group.nodes, tuple(f"t{place + 1}" for place in wanted))
    graph, used = whole.pruned().compact()
    given = [arrays[group.inputs[place]] for place in used]
    outs = tuple(arrays[group.calls[place].arrays["out"]] for place in wanted)
    selection = group.calls[0].selection
    try:
        types = typed(whole, tuple(intake(arrays[place], what="record").element for place in group.inputs))
        if any(step.kind is not call.out.element for step, call in zip(types.steps, group.calls)):
            return None
        desc = FusedDescriptor.of(str(graph), *given, out=outs)
        operands = dict(zip(desc.inputs, given)) | dict(zip(desc.outputs, outs))
        bound = FusedPlan.select(desc, selection.pref, device=selection.device).bind(**operands)
    except BaracudaError:  # kinds, shapes or memory that one kernel does not pass: the calls stay
        return None
    ops = [call.selection.desc.op for call in group.calls]
    extra = ", ".join(ops[place] for place in wanted if place != len(ops) - 1)
    return bound, f"{' + '.join(ops)}: {graph}" + (f" (the result of {extra} may still be read)" if extra else "")


# ---- references ------------------------------------------------------------------------------------------------------


def _is_read(call: _Call, outside: Sequence[Tensor], arrays: list[Any]) -> bool:
    """Whether the result of a call may be read after the launch."""
    return not call.own or any(overlaps(call.out, view) for view in outside) or _is_held(arrays, call.arrays["out"])


def _is_held(arrays: list[Any], place: int) -> bool:
    """Whether anything but this list refers to an array or to its memory; True where that is unknown."""
    if sys.getrefcount(arrays[place]) > _UNSHARED:
        return True
    x = arrays[place]
    if is_tensor(x):
        return _storage_is_shared(x)
    if isinstance(x, np.ndarray):
        while x.base is not None:
            if not isinstance(x.base, np.ndarray) or sys.getrefcount(x.base) > _UNSHARED:
                return True
            x = x.base
        return False
    if not all(hasattr(x, name) for name in ("base", "data")) or not hasattr(x.data, "mem"):
        return True
    return x.base is not None or sys.getrefcount(x.data) > _UNSHARED or sys.getrefcount(x.data.mem) > _UNSHARED


def _storage_is_shared(x: Any) -> bool:
    """Whether another tensor shares the memory of one. A storage of Python's is a reference too."""
    import torch

    count = getattr(torch._C, "_storage_Use_Count", None)
    return count is None or int(count(x.untyped_storage()._cdata)) > 2
