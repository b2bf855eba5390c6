"""BoundPlan: a plan with its operands, validated and packed once, so that a call only launches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from ..plan.selection import Selection
from ..runtime.gpu.driver import driver_error, require_gpu
from ..runtime.gpu.protocol import HasPtr
from ..runtime.gpu.streams import stream_pointer
from ..runtime.scope import UNSCOPED, current, recordings
from ..tensor import HOST_ORDINAL
from ..tensor.pytorch import is_tensor, note_written
from .host import prepare
from .paths.resolve import resolve

__all__ = ["BoundPlan"]

Calls = tuple[Callable[[int], None], ...]


class _HostStream:
    """The stream of plans whose operands are in host memory. It does nothing."""

    ptr = 0


_HOST_STREAM = _HostStream()


def _host_stream() -> HasPtr:
    return _HOST_STREAM


def _host_ordinal() -> int:
    return HOST_ORDINAL


class BoundPlan:
    """The result of ``plan.bind(...)``. ``bound()`` launches on CuPy's current stream of the operands' device,
    ``bound(stream)`` on the given stream. That device need not be the current one.

    It keeps operands and scratch alive. `update` validates and packs other operands or run-time values.
    """

    __slots__ = (
        "_calls",
        "_device",
        "_given",
        "_only",
        "_refused",
        "_scratch",
        "_stream_of",
        "_written",
        "ordinal",
        "result",
        "selection",
    )

    def __init__(self, selection: Selection, given: dict[str, Any], workspace: Any) -> None:
        self._stream_of: Callable[[], HasPtr] = _host_stream
        self._device: Callable[[], int] = _host_ordinal
        self._refused: tuple[type[Exception], ...] = ()
        if not selection.device.host_memory:
            cuda = require_gpu("bind").cuda
            self._stream_of, self._device = cuda.get_current_stream, cuda.runtime.getDevice
            self._refused = cuda.runtime.CUDARuntimeError, cuda.driver.CUDADriverError
        self.selection = selection
        self._given: dict[str, Any] = {"workspace": workspace}
        self._calls: Calls = ()
        self.update(**given)

    @property
    def plan(self) -> Any:
        """The plan that is bound."""
        return self.selection.family(self.selection)

    @property
    def operands(self) -> Mapping[str, Any]:
        """The operands and run-time values that it launches with, outputs that it allocated included."""
        return MappingProxyType({name: x for name, x in self._given.items() if name != "workspace" and x is not None})

    def update(self, **given: Any) -> BoundPlan:
        """Binds other operands or run-time values; those not named stay."""
        merged = {**self._given, **given}
        workspace = merged.pop("workspace", None)
        self.ordinal, self._calls, self.result, whole, self._scratch = _prepared(self.selection, merged, workspace)
        self._only = self._calls[0] if len(self._calls) == 1 else None
        # An output that was allocated here stays bound, so that a graph keeps writing to the same address.
        self._given = {**whole, "workspace": workspace}
        self._written = [x for name in self.selection.written if is_tensor(x := whole.get(name))]
        return self

    def note_written(self) -> None:
        """Tells torch that a launch has changed the tensors that are written."""
        if self._written:
            note_written(self._written)

    def __call__(self, stream: Any = None) -> Any:
        """Launches; returns the output(s). Checks nothing."""
        if recordings and (recording := current(UNSCOPED).recording) is not None:
            return recording.launch(self, stream)
        if self._device() != self.ordinal:
            with require_gpu("bind").cuda.Device(self.ordinal):
                return self(stream)
        pointer = self._stream_of().ptr if stream is None else stream_pointer(stream)
        try:
            if self._only is not None:
                self._only(pointer)
            else:
                for call in self._calls:
                    call(pointer)
        except self._refused as error:
            raise driver_error(error, f"{self.selection.desc.op}, bound") from None
        if self._written:
            note_written(self._written)
        return self.result

    def __repr__(self) -> str:
        return f"<bound {self.selection.sku}>"


def _prepared(
    selection: Selection, given: dict[str, Any], workspace: Any
) -> tuple[int, Calls, Any, dict[str, Any], Any]:
    """The operands' device, the calls (which take only the stream), the result, the operands, and the objects to keep alive."""
    if selection.device.host_memory:
        call, whole = prepare(selection, given)
        return HOST_ORDINAL, (call,), selection.result(whole), whole, None
    ready = resolve(selection, given, workspace, None)
    calls = ready.recipe.executable.prepare(ready.pointers, ready.values, ready.scratch_pointer)
    return ready.recipe.ordinal, calls, selection.result(ready.given), ready.given, (ready.scratch, ready.keep)
