"""Streams: handles, current streams, captures, and events that order one stream after another without blocking the host."""

from __future__ import annotations

import contextlib
from functools import lru_cache
from typing import Any

from .driver import driver_error, require_gpu
from .handles import LEGACY, foreign_stream, on_stream, stream_getter, stream_pointer

__all__ = [
    "LEGACY",
    "current_stream",
    "fence",
    "foreign_stream",
    "is_capturing",
    "made_current",
    "on_stream",
    "stream_getter",
    "stream_pointer",
]


def current_stream() -> int:
    """CuPy's current stream on the current device; torch's where CuPy is not installed."""
    return int(require_gpu("the current stream").cuda.get_current_stream().ptr)


class _Handle:
    """A stream handle with the protocol that CuPy reads."""

    def __init__(self, pointer: int) -> None:
        self._pointer = pointer

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self._pointer


def made_current(stream: int) -> contextlib.AbstractContextManager[Any]:
    """A context in which the stream with that handle is CuPy's current one, so that CuPy's pool (without CuPy: torch's)
    allocates in its order."""
    if stream == current_stream():
        return contextlib.nullcontext()
    cuda = require_gpu("a stream").cuda
    return cuda.Stream.from_external(_Handle(stream))


def is_capturing(stream: int) -> bool:
    """Whether a CUDA graph is being captured on `stream`. The legacy stream is not queried: CUDA returns an error for it while
    another blocking stream is captured."""
    return stream > LEGACY and bool(_query()(stream))


@lru_cache(maxsize=1)
def _query() -> Any:
    return require_gpu("a capture").cuda.runtime.streamIsCapturing


def fence(producer: Any, consumer: Any) -> None:
    """Makes `consumer` wait for the work now in `producer`: an event between two streams, no host sync.

    Both may be an int handle or any stream object. On one stream it does nothing. Inside a capture it becomes a
    dependency of the graph.
    """
    first, second = stream_pointer(producer), stream_pointer(consumer)
    if first == second:
        return
    runtime = require_gpu("fence").cuda.runtime
    try:
        event = runtime.eventCreateWithFlags(runtime.eventDisableTiming)
        try:
            runtime.eventRecord(event, first)
            runtime.streamWaitEvent(second, event)
        finally:
            runtime.eventDestroy(event)  # the driver keeps it until the wait is done
    except runtime.CUDARuntimeError as error:
        raise driver_error(error, "fence") from None
