"""The plan cache, and `call`, through which every op's function goes.

On a hit no descriptor is built and nothing is validated again: the key is a flat tuple of shapes, strides, dtypes,
alignments and options, and the recipe found under it launches.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from .plan.descriptor import Descriptor
from .plan.plan import Plan, allocate
from .plan.recipe import Recipe, array_type, key_of
from .runtime.device import default_device, spec_of
from .runtime.streams import is_capturing, stream_pointer
from .types import DeviceSpec, PlanPreference, UnsupportedError

__all__ = ["CacheInfo", "PlanCache", "call", "plan_cache"]


class CacheInfo(NamedTuple):
    """`hits` and `misses` count calls; `plans` and `calls` are what is held, at most `limit` of each."""

    hits: int
    misses: int
    plans: int
    calls: int
    limit: int


class _Entry(NamedTuple):
    plan: Plan[Any]
    recipe: Recipe
    outputs: tuple[int, ...]  # positions of operands that may be allocated


class PlanCache:
    """A thread-safe LRU: plans by (canonical descriptor, preference, device), and ready calls by operand layout."""

    def __init__(self, limit: int = 4096) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._plans: OrderedDict[Any, Plan[Any]] = OrderedDict()
        self._calls: OrderedDict[Any, _Entry] = OrderedDict()
        self._hits = self._misses = 0

    def info(self) -> CacheInfo:
        return CacheInfo(self._hits, self._misses, len(self._plans), len(self._calls), self._limit)

    def clear(self) -> None:
        with self._lock:
            self._plans.clear()
            self._calls.clear()
            self._hits = self._misses = 0

    def plan(self, kind: type[Plan[Any]], desc: Descriptor, pref: PlanPreference | None, device: DeviceSpec) -> Plan[Any]:
        """The plan for a canonical descriptor, selected the first time."""
        key = (kind, desc, pref, device)
        with self._lock:
            held = self._plans.get(key)
            if held is not None:
                self._plans.move_to_end(key)
                return held
        plan = kind.select(desc, pref, device=device)
        with self._lock:
            self._misses += 1
            plan = self._plans.setdefault(key, plan)
            while len(self._plans) > self._limit:
                self._plans.popitem(last=False)
        return plan

    def _lookup(self, key: Any) -> _Entry | None:
        with self._lock:
            entry = self._calls.get(key)
            if entry is not None:
                self._hits += 1
                self._calls.move_to_end(key)
            return entry

    def _keep(self, key: Any, entry: _Entry) -> None:
        with self._lock:
            self._calls[key] = entry
            while len(self._calls) > self._limit:
                self._calls.popitem(last=False)


plan_cache = PlanCache()


def call(
    plan: type[Plan[Any]],
    operands: Mapping[str, Any],
    describe: Callable[[], Descriptor],
    *,
    options: Any = (),
    values: Mapping[str, Any] | None = None,
    shifts: Sequence[int] | None = None,
    stream: Any = None,
    pref: PlanPreference | None = None,
    device: Any = None,
) -> Any:
    """Runs an op on `operands` (in the descriptor's order, None for an output to allocate or an absent one).

    `options` is everything else the descriptor depends on, hashable; `describe` builds it when that is new. `values` are
    run-time values and `shifts` the bytes by which they move each operand's first touched element.
    """
    ndarray = array_type()
    key: list[Any] = [plan, options, pref, default_device() if device is None else device]
    pointers: list[int] = []
    for position, x in enumerate(operands.values()):
        if x is None:
            key.append(None)
            pointers.append(0)
        elif type(x) is ndarray:
            address = x.data.ptr if shifts is None else x.data.ptr + shifts[position]
            key.append(key_of(x, address))
            pointers.append(address)
        else:
            return _call_checked(plan, None, operands, describe, values, stream, pref, device)
    flat = tuple(key)
    entry = plan_cache._lookup(flat)
    if entry is None or entry.recipe.meets(pointers):
        return _call_checked(plan, flat, operands, describe, values, stream, pref, device)
    handle = None if stream is None else stream_pointer(stream)
    result = None
    for position in entry.outputs:
        if not pointers[position]:
            result = _output(entry, position, handle)
            pointers[position] = result.data.ptr
    entry.recipe.fire(pointers, values or {}, 0, handle)
    return entry.plan._result(operands) if result is None else result


def _output(entry: _Entry, position: int, stream: int | None) -> Any:
    """A fresh output in the order of the stream it is written on; a capture allocates nothing."""
    current = entry.recipe.current_stream()
    target = current if stream is None else stream
    if is_capturing(target):
        raise UnsupportedError(
            f"{entry.plan.desc.op}: a capture allocates nothing, and the output was not passed", "pass out=..."
        )
    layout = entry.plan._canonical.layout(entry.plan._names[position])
    return allocate(layout, None if target == current else target)


def _call_checked(
    kind: type[Plan[Any]],
    key: Any,
    operands: Mapping[str, Any],
    describe: Callable[[], Descriptor],
    values: Mapping[str, Any] | None,
    stream: Any,
    pref: PlanPreference | None,
    device: Any,
) -> Any:
    """The long way: describe, select (or find the plan), check every operand, run, and remember the call."""
    spec = spec_of(device)
    desc = describe()
    desc.validate()
    plan = plan_cache.plan(kind, desc.canonical(), pref, spec)
    given = {name: x for name, x in operands.items() if x is not None} | dict(values or {})
    if key is None or spec.is_host or plan.workspace_size or len(plan._written) != 1:
        return plan.run(stream=stream, **given)
    recipe, pointers, launch_values, given, scratch, handle = plan._resolve(given, None, stream)
    recipe.fire(pointers, launch_values, 0, handle)
    outputs = tuple(i for i, o in enumerate(plan.operands) if o.role == "out" and not o.optional)
    plan_cache._keep(key, _Entry(plan, recipe, outputs))
    return plan._result(given)
