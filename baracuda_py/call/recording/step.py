"""Step: recorded calls that are replayed together, in one CUDA graph on a GPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from ...runtime.gpu.driver import require_gpu
from ...runtime.gpu.streams import made_current, stream_pointer
from ...runtime.scope import is_recording
from ...runtime.system.locks import new_lock
from ...tensor import HOST_ORDINAL, intake, overlaps
from ...tensor.pytorch import is_tensor, note_written, on_stream
from ...types import DeviceMismatchError, InvalidProblemError, OperandTypeError, OverlapError
from ..bound import BoundPlan
from ..graph import Graph
from ..operands.stream import stream_of_call
from .summary import StepExplanation, StepProfile, measured

__all__ = ["Step"]


class Step:
    """What `bp.record` recorded. ``step()`` replays it and returns the last call's result; ``step(x=new)`` first copies `new`
    into the input of that name.

    On a GPU the calls are one CUDA graph (`graph`), launched asynchronously on `stream`, by default the current stream of the
    framework that owns the last result. On the host they run one after another. A replay reads every array at its recorded
    address: change contents in place (token, lengths, page tables) and the kernels read the new ones. Replays of one step write
    to the same arrays.
    """

    def __init__(self, inputs: Mapping[str, Any]) -> None:
        self._inputs = dict(inputs)
        self._bounds: list[BoundPlan] = []
        self._graph: Graph | None = None
        self._fused: tuple[str, ...] = ()
        self._result: Any = None
        self._state = "is not finished: it can be replayed once the block ends"
        self._lock = new_lock()

    # ---- what it holds --------------------------------------------------------------------------------------------

    @property
    def inputs(self) -> Mapping[str, Any]:
        """The named arrays, whose contents may be changed in place as well."""
        return MappingProxyType(self._inputs)

    @property
    def bounds(self) -> tuple[BoundPlan, ...]:
        """The bound plans, in order."""
        return tuple(self._bounds)

    @property
    def plans(self) -> tuple[Any, ...]:
        """The plans, in order."""
        return tuple(bound.plan for bound in self._bounds)

    @property
    def result(self) -> Any:
        """The last call's result: the arrays that every replay writes to."""
        return self._result

    @property
    def fused(self) -> tuple[str, ...]:
        """What was fused (``bp.record(fuse=True)``): a line for each kernel, with its ops and its graph."""
        return self._fused

    @property
    def graph(self) -> Graph | None:
        """The CUDA graph, captured at the first replay; None on the host, or if a plan cannot be captured."""
        self._refuse_unfinished()
        if self._graph is None and all(bound.selection.capture_safe for bound in self._bounds):
            self._graph = Graph(*self._bounds)
        return self._graph

    def __len__(self) -> int:
        return len(self._bounds)

    def __repr__(self) -> str:
        names = ", ".join(self._inputs) or "none"
        where = self._bounds[0].selection.device if self._bounds else "no device"
        fused = f", fused: {', '.join(one.partition(':')[0] for one in self._fused)}" if self._fused else ""
        return f"<bp.Step of {len(self)} calls on {where}, inputs: {names}{fused}>"

    # ---- replays --------------------------------------------------------------------------------------------------

    def __call__(self, *, stream: Any = None, **new: Any) -> Any:
        """Replays, after the inputs that are given were copied in; returns the last call's result."""
        self._refuse_unfinished()
        for name, x in new.items():
            self._check_input(name, x)
        self._refuse_swapped(new)
        if self._bounds[0].ordinal == HOST_ORDINAL or is_recording():
            with self._lock:
                for name, x in new.items():
                    if x is not self._inputs[name]:
                        _fill_on_host(self._inputs[name], x)
                for bound in self._bounds:
                    bound(stream)
            return self.result
        with self._lock:
            self._replay(stream, new)
        return self.result

    def _replay(self, stream: Any, new: Mapping[str, Any]) -> None:
        """Replays on a GPU."""
        last, ordinal = self._bounds[-1], self._bounds[-1].ordinal
        graph = self.graph
        with require_gpu("step").cuda.Device(ordinal):
            handle = stream
            if stream is None:
                handle = stream_of_call(last.selection.desc, dict(last.operands), "", ordinal)
            handle = require_gpu("step").cuda.get_current_stream().ptr if handle is None else stream_pointer(handle)
            for name, x in new.items():
                if x is not self._inputs[name]:
                    _fill_on_gpu(self._inputs[name], x, handle, ordinal)
            if graph is None:
                for bound in self._bounds:
                    bound(handle)
                return
            with made_current(handle):
                graph.launch()

    def _check_input(self, name: str, x: Any) -> None:
        """Raises unless `x` can take the place of an input."""
        if name not in self._inputs:
            known = ", ".join(self._inputs) or "none was named"
            raise InvalidProblemError(
                f"step: there is no input {name!r}", f"the inputs are: {known}; name them in bp.record(...)"
            )
        old, new = intake(self._inputs[name], what=f"step: {name}"), intake(x, what=f"step: {name}")
        if new.shape != old.shape:
            raise InvalidProblemError(
                f"step: {name} must have shape {old.shape}, as recorded, got {new.shape}",
                "record a step for that shape",
            )
        if new.element is not old.element:
            raise OperandTypeError(
                f"step: {name} must hold {old.element}, as recorded, got {new.element}", f"cast it to {old.element}"
            )
        if new.ordinal != old.ordinal:
            raise DeviceMismatchError(
                f"step: {name} was recorded {_place(old.ordinal)} and the new array is {_place(new.ordinal)}",
                "copy it there first",
            )
        if old.readonly:
            raise OperandTypeError(
                f"step: {name} has become a read-only array since it was recorded", "make it writable again"
            )
        if old.element.packed:
            raise OperandTypeError(
                f"step: {name} holds {old.element}, whose elements share bytes",
                "change the contents of step.inputs in place",
            )

    def _refuse_swapped(self, new: Mapping[str, Any]) -> None:
        """Raises for a new array that shares memory with an input which is replaced as well: the order of copies would decide."""
        changed = {name: x for name, x in new.items() if x is not self._inputs[name]}
        for name, x in changed.items():
            for other in changed:
                if other != name and overlaps(intake(x, what=name), intake(self._inputs[other], what=other)):
                    raise OverlapError(
                        f"step: the new {name} shares memory with the input {other}, which is replaced as well",
                        f"pass a copy as {name}",
                    )

    # ---- what it costs --------------------------------------------------------------------------------------------

    def explain(self) -> StepExplanation:
        """A table of the plans: predicted time of each and of all, bytes, share of the roof, and what limits each."""
        return StepExplanation.of([bound.selection for bound in self._bounds])

    def profile(self, *, repeats: int = 50) -> StepProfile:
        """Measures each plan on the recorded operands (written ones on copies): seconds on a GPU, the emulator's reports for
        emulated plans. Raises UnsupportedError for the reference back end."""
        self._refuse_unfinished()
        return measured(self._bounds, repeats)

    # ---- recording ------------------------------------------------------------------------------------------------

    def check(self, bound: BoundPlan) -> None:
        """Raises for a call that cannot become a part of this step."""
        if not self._state.startswith("is not finished"):
            raise InvalidProblemError(f"{bound.selection.desc.op}: the recording that this call belongs to has ended")
        if self._bounds and bound.ordinal != self._bounds[0].ordinal:
            first = self._bounds[0]
            raise DeviceMismatchError(
                f"{bound.selection.desc.op}: the call is {_place(bound.ordinal)}, and the recording's first call, "
                f"{first.selection.desc.op}, is {_place(first.ordinal)}",
                "record a step for each device",
            )

    def append(self, bound: BoundPlan) -> None:
        """Adds a call that was launched."""
        self._bounds.append(bound)
        self._result = bound.result

    def replace_bounds(self, change: Callable[[list[BoundPlan]], tuple[list[BoundPlan], list[str]]]) -> None:
        """Replaces the bound plans by others that write the same results, which the change describes."""
        bounds, fused = change(self._bounds)
        self._bounds, self._fused = bounds, tuple(fused)

    def finish(self) -> None:
        """Ends the recording."""
        self._state = ""

    def fail(self) -> None:
        """Ends a recording that raised."""
        self._state = "ended with an error, and cannot be replayed: record it again"

    def _refuse_unfinished(self) -> None:
        if self._state:
            raise InvalidProblemError(f"step: the recording {self._state}")


def _place(ordinal: int) -> str:
    return "on the host" if ordinal == HOST_ORDINAL else f"on CUDA device {ordinal}"


def _fill_on_host(target: Any, source: Any) -> None:
    intake(target, what="input").array()[...] = intake(source, what="input").array()
    note_written([target])


def _fill_on_gpu(target: Any, source: Any, stream: int, ordinal: int) -> None:
    """Copies in the order of `stream`, by the framework of the target."""
    if is_tensor(target):
        import torch

        with torch.no_grad(), on_stream(stream, ordinal):
            target.copy_(source if is_tensor(source) else torch.as_tensor(source, device=target.device))
        return
    with made_current(stream):
        target[...] = intake(source, what="input", stream=stream).array()
