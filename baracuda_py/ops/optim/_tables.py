"""Tables of the chunks of lists of arrays, in device memory: written in the order of a stream, without waiting, and kept."""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterable
from contextlib import nullcontext
from itertools import accumulate
from threading import Lock
from typing import Any

import numpy as np

from ...call.results.allocate import take_workspace
from ...runtime.gpu.capture import keep_for_capture, relaxed
from ...runtime.gpu.driver import require_cupy
from ...runtime.gpu.streams import is_capturing

__all__ = ["Table", "table_found", "table_made"]

KEPT = 64  # tables
SCALAR_BYTES = 4

Array = np.ndarray[Any, Any]


class Table:
    """Rows that a copy on the stream `queue` writes. `base` is the place of the arrays that their bytes count from, `spans` are
    the addresses [low, high) of all arrays."""

    def __init__(self, base: int, rows: Array, queue: int, spans: Iterable[tuple[int, int]] = ()) -> None:
        cupy = require_cupy("a table of arrays")
        cuda, runtime, captured = cupy.cuda, cupy.cuda.runtime, is_capturing(queue)
        with relaxed() if captured else nullcontext():
            self._host: Any = cuda.alloc_pinned_memory(max(rows.nbytes, 1))
        np.frombuffer(self._host, rows.dtype, rows.size)[...] = rows.reshape(-1)
        memory = take_workspace(rows.nbytes, queue)
        runtime.memcpyAsync(memory.ptr, self._host.ptr, rows.nbytes, runtime.memcpyHostToDevice, queue)
        ordered = sorted((low, high) for low, high in spans if low < high)
        self._lows, self._ends = [low for low, _ in ordered], [*accumulate((high for _, high in ordered), max)]
        self.base, self.rows = base, cupy.ndarray(rows.shape, rows.dtype, memory)
        self._queue, self._elsewhere = queue, False
        # A graph copies at every replay, in its own order.
        self._copied: Any = None if captured else cuda.Event(disable_timing=True)
        if self._copied is not None:
            runtime.eventRecord(self._copied.ptr, queue)

    def reaches(self, addresses: Iterable[int]) -> bool:
        """Whether one of the f32 scalars at these addresses shares memory with an array."""
        below = ((address, bisect_left(self._lows, address + SCALAR_BYTES)) for address in addresses)
        return any(place and self._ends[place - 1] > address for address, place in below)

    def used_on(self, queue: int) -> None:
        """Orders work on `queue` behind the copy, and a capture on it, whose replays may be on any stream."""
        if is_capturing(queue):
            with relaxed():
                self._wait()
            keep_for_capture(queue, self)
        elif queue != self._queue:
            self._elsewhere = True
            if self._copied is not None and not self._copied.done:
                require_cupy("a table of arrays").cuda.runtime.streamWaitEvent(queue, self._copied.ptr)

    def leave(self) -> None:
        """Waits for launches that may still read it. Those of its own stream come before whatever its memory is used for next."""
        self._wait()
        if self._elsewhere:
            self._device_waits()

    def _device_waits(self) -> None:
        self.rows.device.synchronize()

    def settle(self) -> bool:
        """Whether the copy is over, and then gives back the host memory that it read."""
        if self._copied is not None and self._copied.done:
            self._copied = self._host = None
        return self._copied is None

    def _wait(self) -> None:
        if self._copied is not None:
            self._copied.synchronize()
            self.settle()


_tables: OrderedDict[Any, Table] = OrderedDict()
_lock = Lock()


def table_found(key: Any) -> Table | None:
    """The table of the arrays that `key` names, if it was kept; the caller says on which stream it uses it."""
    with _lock:
        if (found := _tables.get(key)) is not None:
            _tables.move_to_end(key)
    return found


def table_made(key: Any, queue: int, base: int, rows: Array, spans: Iterable[tuple[int, int]] = ()) -> Table:
    """A table for work on `queue`, kept for further calls of the arrays that `key` names, if that is not None. One that a graph
    copies lives with that, and serves no other call."""
    made = Table(base, rows, queue, spans)
    if is_capturing(queue):
        keep_for_capture(queue, made)
    elif key is not None:
        _keep(key, made)
    return made


def _keep(key: Any, table: Table) -> None:
    with _lock:
        for other in _tables.values():
            other.settle()
        _tables[key] = table
        dropped = [_tables.popitem(last=False)[1] for _ in range(len(_tables) - KEPT)]
    for each in dropped:
        each.leave()
