"""Which stream a call runs on, and events that order one stream after another without stopping the host."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from ..types import OperandTypeError
from ..types.errors import shown
from .driver import driver_error, require_gpu

__all__ = [
    "LEGACY",
    "current_stream",
    "fence",
    "foreign_stream",
    "is_capturing",
    "made_current",
    "stream_getter",
    "stream_pointer",
]


_HANDLES = 1 << 63  # a handle is an address of the host, or 0, 1 or 2
LEGACY = 1  # 0 and 1 are the legacy default stream, which no graph can capture


def current_stream() -> int:
    """CuPy's current stream on the current device."""
    return int(require_gpu("the current stream").cuda.get_current_stream().ptr)


class _Handle:
    """A stream's handle as CuPy takes it."""

    def __init__(self, pointer: int) -> None:
        self._pointer = pointer

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self._pointer


def made_current(stream: int) -> contextlib.AbstractContextManager[Any]:
    """Makes the stream of that handle CuPy's current one, so that its pool serves in its order."""
    if stream == current_stream():
        return contextlib.nullcontext()
    cuda = require_gpu("a stream").cuda
    return cuda.Stream.from_external(_Handle(stream))  # type: ignore[no-any-return]


def stream_pointer(stream: Any) -> int:
    """The handle of an int, or of anything with ``__cuda_stream__``, ``.ptr`` (CuPy) or ``.cuda_stream`` (PyTorch)."""
    handle: int = stream
    if type(stream) is not int:
        handle = -1
        for attribute in ("ptr", "cuda_stream"):
            value = getattr(stream, attribute, None)
            if type(value) is int:
                handle = value
                break
        else:
            protocol = getattr(stream, "__cuda_stream__", None)
            if protocol is not None:
                handle = int(protocol()[1] if callable(protocol) else protocol[1])
    if 0 <= handle < _HANDLES:
        return handle
    raise OperandTypeError(
        f"stream={shown(stream)} is not a stream: give an int handle, or an object with __cuda_stream__, .ptr or .cuda_stream"
    )


def foreign_stream(framework: str, ordinal: int) -> int | None:
    """The current stream of a framework that is already imported, or None where it has no such notion."""
    return stream_getter(framework)(ordinal)


def stream_getter(framework: str) -> Callable[[int], int | None]:
    """What gives a device's current stream in a framework, for callers that ask again and again."""
    torch = sys.modules.get("torch") if framework == "torch" else None
    return _no_stream if torch is None else _torch_stream(torch)


def _no_stream(_ordinal: int) -> None:
    return None


@lru_cache(maxsize=4)
def _torch_stream(torch: Any) -> Callable[[int], int | None]:
    """torch's way to its current stream's handle. The raw one, which code that torch.compile writes uses too, makes no Stream
    object: a tenth of the time."""
    raw: Callable[[int], int] | None = getattr(getattr(torch, "_C", None), "_cuda_getCurrentRawStream", None)
    if raw is None and getattr(getattr(torch, "version", None), "cuda", "") is None:  # built for the CPU alone
        return _no_stream
    return raw or (lambda ordinal: int(torch.cuda.current_stream(ordinal).cuda_stream))


def is_capturing(stream: int) -> bool:
    """Whether a CUDA graph is being captured on `stream`. CUDA is not asked about the legacy stream: it answers with an error
    while another blocking stream is captured."""
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
            runtime.eventDestroy(event)  # the driver keeps it until the wait has passed
    except runtime.CUDARuntimeError as error:
        raise driver_error(error, "fence") from None
