"""The plan cache, and `call`, through which every op's function goes.

On a hit no descriptor is built and nothing is validated again: the key is a flat tuple of shapes, strides, dtypes,
alignments and options, and the recipe found under it launches.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from .plan.allocate import allocate, allocator
from .plan.descriptor import Descriptor
from .plan.plan import Plan
from .plan.recipe import Recipe, array_type
from .plan.resolve import device_for, resolve
from .runtime.device import default_device
from .runtime.locks import new_lock
from .runtime.streams import is_capturing, stream_pointer
from .runtime.untraced import untraced
from .tensor.arrays import described_for
from .types import DeviceSpec, PlanPreference, UnsupportedError

__all__ = ["CacheInfo", "PlanCache", "call", "plan_cache"]


class CacheInfo(NamedTuple):
    """`hits` and `misses` count calls; `plans` and `calls` are what is held, at most `limit` of each."""

    hits: int
    misses: int
    plans: int
    calls: int
    limit: int


class _Entry:
    """A ready call: the plan, its validated recipe, and what makes the output where it was not given."""

    __slots__ = ("make", "place", "plan", "recipe", "used", "written")

    def __init__(self, plan: Plan[Any], recipe: Recipe) -> None:
        self.plan = plan
        self.recipe = recipe
        self.used = 0
        self.written = plan._written[0]
        self.place = next(i for i, o in enumerate(plan.operands) if o.name == self.written)
        layout = plan._canonical.layout(self.written)
        self.make: Callable[[], Any] = allocator(layout)


class PlanCache:
    """A thread-safe LRU: plans by (canonical descriptor, preference, device), and ready calls by operand layout."""

    def __init__(self, limit: int = 4096) -> None:
        self._limit = limit
        self._lock = new_lock()
        self._plans: OrderedDict[Any, Plan[Any]] = OrderedDict()
        self._calls: dict[Any, _Entry] = {}
        self._clock = itertools.count(1)  # next() is atomic, so a hit takes no lock
        self._misses = self._looks = 0
        self._ndarray: Any = None  # cupy.ndarray, once there has been a call on such an array

    def info(self) -> CacheInfo:
        with self._lock:  # reading the clock moves it
            hits = next(self._clock) - 1 - self._looks
            self._looks += 1
        return CacheInfo(hits, self._misses, len(self._plans), len(self._calls), self._limit)

    def clear(self) -> None:
        with self._lock:
            self._plans.clear()
            self._calls.clear()
            self._clock, self._misses, self._looks = itertools.count(1), 0, 0

    def plan(
        self, kind: type[Plan[Any]], desc: Descriptor, pref: PlanPreference | None, device: DeviceSpec
    ) -> Plan[Any]:
        """The plan for a canonical descriptor, selected the first time."""
        key = (kind, desc, pref, device)
        with self._lock:
            held = self._plans.get(key)
            if held is not None:
                self._plans.move_to_end(key)
                next(self._clock)
                return held
        plan = kind.select(desc, pref, device=device)
        with self._lock:
            self._misses += 1
            plan = self._plans.setdefault(key, plan)
            while len(self._plans) > self._limit:
                self._plans.popitem(last=False)
        return plan

    def _keep(self, key: Any, entry: _Entry) -> None:
        with self._lock:
            if len(self._calls) >= self._limit:  # drop the eighth used longest ago
                for old in sorted(self._calls, key=lambda k: self._calls[k].used)[: max(1, self._limit // 8)]:
                    del self._calls[old]
            entry.used = next(self._clock)
            self._calls[key] = entry


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
    ndarray = plan_cache._ndarray
    key: list[Any] = [plan, options, pref, default_device() if device is None else device]
    pointers: list[int] = []
    for x in operands.values():
        if type(x) is ndarray:
            memory = x.data
            address = memory.ptr
            if shifts is not None:
                address += shifts[len(pointers)]
            key += (x.shape, x.strides, x.dtype.num, address & 15, memory.device_id)
            pointers.append(address)
        elif x is None:
            key.append(None)
            pointers.append(0)
        elif type(x) is array_type():  # the first such call: nothing is kept yet
            plan_cache._ndarray = array_type()
            return call(
                plan,
                operands,
                describe,
                options=options,
                values=values,
                shifts=shifts,
                stream=stream,
                pref=pref,
                device=device,
            )
        else:
            return _call_checked(plan, None, operands, describe, values, stream, pref, device)
    flat = tuple(key)
    try:
        entry = plan_cache._calls.get(flat)
    except Exception:  # an option that does not hash: the long way says what is wrong with it
        return _call_checked(plan, None, operands, describe, values, stream, pref, device)
    if entry is None:
        return _call_checked(plan, flat, operands, describe, values, stream, pref, device)
    entry.used = next(plan_cache._clock)
    recipe = entry.recipe
    handle = None if stream is None else stream_pointer(stream)
    if recipe.refuses(pointers, operands):
        return _call_checked(plan, flat, operands, describe, values, stream, pref, device)
    result = operands[entry.written]
    if result is None:
        if recipe.elsewhere():  # an output belongs where its operands are
            return _call_checked(plan, flat, operands, describe, values, stream, pref, device)
        result, handle = _output(entry, handle)
        pointers[entry.place] = result.data.ptr
    recipe.fire(pointers, values or _NOTHING, 0, handle)
    return result


_NOTHING: Mapping[str, Any] = {}


def _output(entry: _Entry, stream: int | None) -> tuple[Any, int]:
    """A fresh output in the order of the stream it is written on, and that stream; a capture allocates nothing."""
    current = entry.recipe.current_stream()
    target = current if stream is None else stream
    if is_capturing(target):
        raise UnsupportedError(
            f"{entry.plan.desc.op}: a capture allocates nothing, and {entry.written} was not passed", "pass out=..."
        )
    if target == current:
        return entry.make(), target
    return allocate(entry.plan._canonical.layout(entry.written), target), target


@untraced
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
    spec = device_for(device, operands.values())
    with described_for(spec.host_memory):
        desc = describe()
    desc.validate()
    plan = plan_cache.plan(kind, desc.canonical(), PlanPreference.of(pref), spec)
    given = {name: x for name, x in operands.items() if x is not None} | dict(values or {})
    if key is None or spec.host_memory or len(plan._written) != 1:
        return plan.run(stream=stream, **given)
    ready = resolve(plan, given, None, stream)
    ready.fire()
    if type(ready.given[plan._written[0]]) is array_type():
        plan_cache._keep(key, _Entry(plan, ready.recipe))
    return plan._result(ready.given)
