"""Streams and graphs through cuda.bindings; a stream that is made current is torch's current stream."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable
from typing import Any

from .bindings import bindings
from .context import checked, current_ordinal, make_current
from .handles import on_stream, stream_pointer, torch_with_streams

__all__ = ["TorchStream"]


def _with(owner: Any, destroy: Callable[[Any], Any], handle: Any) -> None:
    """Destroys a handle with its owner, but not when the interpreter exits: the driver may be gone by then."""
    weakref.finalize(owner, destroy, handle).atexit = False


class _Captured:
    """A captured graph and its executable form, destroyed with this object."""

    def __init__(self, graph: Any) -> None:
        d = bindings()
        _with(self, d.cuGraphDestroy, graph)
        executable = checked(d.cuGraphInstantiate(graph, 0))
        _with(self, d.cuGraphExecDestroy, executable)
        self.graph, self.graphExec = int(graph), int(executable)

    def launch(self, stream: Any) -> None:
        d = bindings()
        checked(d.cuGraphLaunch(d.CUgraphExec(self.graphExec), d.CUstream(stream_pointer(stream))))


class TorchStream:
    """A stream of its own, on the current device."""

    def __init__(self, *, non_blocking: bool) -> None:
        d = bindings()
        flags = d.CUstream_flags
        self._ordinal = current_ordinal()
        make_current(self._ordinal)
        kind = flags.CU_STREAM_NON_BLOCKING if non_blocking else flags.CU_STREAM_DEFAULT
        stream = checked(d.cuStreamCreate(int(kind)))
        _with(self, d.cuStreamDestroy, stream)
        self.ptr = int(stream)
        self._entered = contextlib.ExitStack()

    @staticmethod
    def from_external(stream: Any) -> contextlib.AbstractContextManager[Any]:
        if torch_with_streams() is None:  # nothing has a current stream
            return contextlib.nullcontext()
        return on_stream(stream_pointer(stream), current_ordinal())  # type: ignore[no-any-return]

    def __enter__(self) -> TorchStream:
        self._entered.enter_context(self.from_external(self))
        return self

    def __exit__(self, *error: Any) -> None:
        self._entered.close()

    def begin_capture(self) -> None:
        d = bindings()
        mode = d.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        checked(d.cuStreamBeginCapture(d.CUstream(self.ptr), mode))

    def end_capture(self) -> _Captured:
        d = bindings()
        return _Captured(checked(d.cuStreamEndCapture(d.CUstream(self.ptr))))
