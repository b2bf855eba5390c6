"""Captures of CUDA graphs: memory that lives as long as the graph, and calls that are otherwise forbidden during a capture.

A replay uses the addresses that the capture used. So memory that is allocated during a capture comes from a pool of that
capture, and what was allocated before may be kept for it. Both are released once the graph and everything instantiated from it
are destroyed, which CUDA reports through a user object that the graph retains.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Iterator
from typing import Any

from ...types import DriverError
from ..system.locks import new_lock
from .bindings import bindings
from .driver import require_gpu

__all__ = ["keep_for_capture", "pool_allocator", "relaxed", "release_pools"]

# Python's own locks, which need no GIL: CUDA calls `release`.
_allocate_lock = ctypes.PYFUNCTYPE(ctypes.c_void_p)(("PyThread_allocate_lock", ctypes.pythonapi))
_acquire_lock = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int)(
    ("PyThread_acquire_lock", ctypes.pythonapi)
)
_RELEASE_LOCK = ctypes.cast(ctypes.pythonapi.PyThread_release_lock, ctypes.c_void_p).value


@contextlib.contextmanager
def relaxed() -> Iterator[None]:
    """A context in which this thread may allocate, free and load modules while a graph is being captured."""
    driver = bindings()
    (before,) = _checked(
        driver.cuThreadExchangeStreamCaptureMode(driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED)
    )
    try:
        yield
    finally:
        driver.cuThreadExchangeStreamCaptureMode(before)


def pool_allocator(stream: int) -> Callable[[int], Any]:
    """The allocator (in CuPy's form) of the capture that is in progress on `stream`."""
    return _capture_on(stream).alloc


def keep_for_capture(stream: int, held: Any) -> None:
    """Keeps an object, whose memory a captured launch uses, as long as the graph that is being captured on `stream`."""
    _capture_on(stream).kept[id(held)] = held


def _capture_on(stream: int) -> _Capture:
    driver = bindings()
    _status, number, graph, *_ = _checked(driver.cuStreamGetCaptureInfo(driver.CUstream(stream)))
    with _changing:
        capture = _captures.get(int(number))
        if capture is None:
            capture = _captures[int(number)] = _Capture(graph)
    return capture


def release_pools() -> None:
    """Returns the memory of captures whose graphs are destroyed to the device. A thread that is capturing must not call it."""
    if not _captures:
        return
    with _changing, relaxed():
        for number in [number for number, capture in _captures.items() if capture.graph_is_gone()]:
            del _captures[number]


class _Capture:
    """The memory of one capture. Scratch returns to the pool when its use is queued, for later calls of the same capture."""

    def __init__(self, graph: Any) -> None:
        self.kept: dict[int, Any] = {}
        self._pool = require_gpu("a capture").cuda.MemoryPool()
        self._lock = _held_lock()
        driver = bindings()
        unwaited = driver.CUuserObject_flags.CU_USER_OBJECT_NO_DESTRUCTOR_SYNC
        moved = driver.CUuserObjectRetain_flags.CU_GRAPH_USER_OBJECT_MOVE
        (held,) = _checked(driver.cuUserObjectCreate(self._lock, driver.CUhostFn(_RELEASE_LOCK), 1, int(unwaited)))
        _checked(driver.cuGraphRetainUserObject(graph, held, 1, int(moved)))

    def alloc(self, nbytes: int) -> Any:
        with relaxed():
            return self._pool.malloc(nbytes)

    def graph_is_gone(self) -> bool:
        return bool(_acquire_lock(self._lock, 0))


def _held_lock() -> int:
    """A lock in the acquired state. The user object's destructor is the function that releases it. CUDA calls the destructor on
    a thread of its own, and it needs neither the GIL nor a running interpreter."""
    made: int = _allocate_lock()
    _acquire_lock(made, 1)
    return made


def _checked(answer: tuple[Any, ...]) -> tuple[Any, ...]:
    code, *rest = answer
    if int(code):
        raise DriverError(f"a capture: the CUDA driver answered {code.name}", int(code), code.name)
    return tuple(rest)


_captures: dict[int, _Capture] = {}  # by the driver's id of the capture, which is unique in a process
_changing = new_lock()
