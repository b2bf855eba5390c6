"""The plan cache: plans by problem, and calls by the key of their operands."""

from __future__ import annotations

import itertools
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, NamedTuple

from ..plan.selection import Selection, selected
from ..runtime.gpu.capture import release_pools
from ..runtime.system.locks import new_lock
from ..types import DeviceSpec, PlanPreference
from .paths.ready import Ready

if TYPE_CHECKING:
    from ..plan.descriptor import Descriptor
    from ..plan.family import Family

__all__ = ["CacheInfo", "PlanCache", "plan_cache"]


class CacheInfo(NamedTuple):
    """`hits` and `misses` count calls; `plans` and `calls` count the entries of the two caches, at most `limit` each."""

    hits: int
    misses: int
    plans: int
    calls: int
    limit: int


class PlanCache:
    """A thread-safe LRU: plans by (canonical descriptor, preference, device), and ready calls by operand layout."""

    def __init__(self, limit: int = 4096) -> None:
        self._limit = limit
        self._lock = new_lock()
        self._plans: OrderedDict[Any, Selection] = OrderedDict()
        self.calls: dict[Any, Ready] = {}
        self.foreign_prefixes: set[Any] = set()  # key prefixes of calls with operands that foreign.py read
        self.clock = itertools.count(1)  # next() is atomic, so a hit takes no lock
        self._misses = self._looks = 0

    def __repr__(self) -> str:
        return f"<PlanCache {len(self._plans)} plans of {self._limit}, {len(self.calls)} calls>"

    def info(self) -> CacheInfo:
        with self._lock:  # reading the clock advances it
            hits = next(self.clock) - 1 - self._looks
            self._looks += 1
        return CacheInfo(hits, self._misses, len(self._plans), len(self.calls), self._limit)

    def clear(self) -> None:
        release_pools()
        with self._lock:
            self._plans.clear()
            self.calls.clear()
            self.foreign_prefixes.clear()
            self.clock, self._misses, self._looks = itertools.count(1), 0, 0

    def selection(
        self, kind: type[Family[Any]], desc: Descriptor, pref: PlanPreference | None, device: DeviceSpec
    ) -> Selection:
        """The selection for a canonical descriptor, computed on the first request."""
        key = (kind, desc, pref, device)
        with self._lock:
            held = self._plans.get(key)
            if held is not None:
                self._plans.move_to_end(key)
                next(self.clock)
                return held
        selection = selected(kind, desc, pref, device)
        with self._lock:
            self._misses += 1
            selection = self._plans.setdefault(key, selection)
            while len(self._plans) > self._limit:
                self._plans.popitem(last=False)
        return selection

    def keep(self, key: Any, ready: Ready, prefix: Any = None) -> None:
        """Stores a call. `prefix` is the prefix of its key if an operand was read by a protocol, else None."""
        with self._lock:
            if len(self.calls) >= self._limit:  # drop the least recently used eighth
                for old in sorted(self.calls, key=lambda k: self.calls[k].used)[: max(1, self._limit // 8)]:
                    del self.calls[old]
            ready.used = next(self.clock)
            self.calls[key] = ready
            if prefix is not None:
                if len(self.foreign_prefixes) >= self._limit:
                    self.foreign_prefixes.clear()
                self.foreign_prefixes.add(prefix)


plan_cache = PlanCache()
