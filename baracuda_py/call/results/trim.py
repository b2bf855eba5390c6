"""Cuts outputs whose length the device counts. This is the only place where a call waits for the device."""

from __future__ import annotations

from typing import Any

from ...runtime.gpu.driver import device_count, require_gpu
from ...runtime.gpu.streams import current_stream, is_capturing, stream_pointer
from ...runtime.scope import is_recording
from ...tensor import intake
from ...types import UnsupportedError
from ..operands.stream import framework_stream

__all__ = ["refuse_capture", "trimmed"]


def refuse_capture(op: str, x: Any, stream: Any) -> None:
    """Raises UnsupportedError where a call on `x` would wait for a stream that is being captured, or is recorded."""
    if is_recording():
        raise UnsupportedError(f"{op}: a recording replays launches, and waits for nothing", "pass trim=False")
    if not device_count():
        return
    own = framework_stream(x) if stream is None else stream_pointer(stream)
    if is_capturing(current_stream() if own is None else own):
        raise UnsupportedError(f"{op}: a graph is being captured, and a capture waits for nothing", "pass trim=False")


def trimmed(out: Any, count: Any, stream: Any) -> Any:
    """The first `count` of `out`, once the device has counted them; `stream` is the one that the call was given."""
    if stream is not None and not intake(count, what="count").on_host:
        require_gpu("waiting for a count").cuda.runtime.streamSynchronize(stream_pointer(stream))
    return out[: int(count[0])]  # reading it waits for the current stream of the array's framework
