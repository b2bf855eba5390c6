"""``with bp.record() as step:``: keeps the calls of a context as a `Step`."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ...plan.fields import flag
from ...plan.selection import Selection
from ...runtime.scope import PendingCall, is_recording, recordings, replaced
from ...tensor import HOST_ORDINAL, Tensor, intake, overlaps
from ...tensor.dispatch import answers_for
from ...tensor.pytorch import is_tensor
from ...types import InvalidProblemError, OperandTypeError, PlanPreference, UnsupportedError
from ..bound import BoundPlan
from ..cache import plan_cache
from ..operands.stream import stream_of_call
from .provenance import Watch
from .step import Step

__all__ = ["record"]

RESERVED = ("stream",)  # names that a step's own call takes
FUSER = f"{__package__.partition('.')[0]}.ops.elementwise.fused.recorded"  # stands above this layer


@contextmanager
def record(*, fuse: bool = False, **inputs: Any) -> Iterator[Step]:
    """A context that records the calls of functions and plans in it as a `Step`, which replays them.

    >>> with bp.record(x=x, lengths=lengths) as step:  # doctest: +SKIP
    ...     logits = decode(x, lengths, model)
    >>> step(x=token)                                  # doctest: +SKIP

    Each call runs as it is recorded, so results have values at once. Its arrays are kept: a replay reads its operands and writes
    its results where this run did. `inputs` names arrays that ``step(name=new)`` replaces.

    What NumPy, CuPy or torch compute between the calls, and what Python reads from a result, is not recorded. A call on an array
    that such code made during the recording is refused (views of recorded results are not: they share their memory), and so is
    one that torch changed in place; NumPy and CuPy do not tell what they change. Calls are recorded in the current thread (or
    asyncio task) only; recordings do not nest.

    With `fuse`, neighbouring elementwise calls are one kernel each at a replay, and ``step.fused`` says which. A result that
    nothing reads afterwards is not written: no other call, no input, and no reference of the program, such as a variable. A
    replay then rounds to 16 bits once where the calls of the block rounded each result, and may contract a product and a sum: the
    bound of the whole is that of the fused plan (``step.plans``).
    """
    flag(fuse, "record: fuse")
    if is_recording():
        raise InvalidProblemError(
            "record: this context is being recorded already", "recordings do not nest: end it first"
        )
    step = Step(inputs)
    recorder = _Recorder(step, _named(inputs))
    recordings.append(recorder)
    try:
        with recorder.watch.entered(), replaced(intercept=recorder.call, recording=recorder):
            yield step
        recorder.finish()
        if fuse:
            recorder.fuse()
    except BaseException:
        step.fail()
        raise
    finally:
        recordings.remove(recorder)
    step.finish()


def _named(inputs: Mapping[str, Any]) -> dict[str, Tensor]:
    """The named inputs as tensors, which can be written to."""
    tensors = {}
    for name, x in inputs.items():
        if name in RESERVED:
            raise InvalidProblemError(
                f"record: {name!r} is an argument of the step itself", "give the input another name"
            )
        tensors[name] = tensor = intake(x, what=f"record: {name}")
        if tensor.readonly:
            raise OperandTypeError(
                f"record: {name} is a read-only {tensor.framework} array, and a step replaces the contents of its inputs",
                "pass a writable array, or leave it unnamed",
            )
        for other, earlier in tensors.items():
            if other != name and overlaps(tensor, earlier):
                raise InvalidProblemError(
                    f"record: {name} and {other} share memory, and a step replaces the contents of each",
                    "name an array once, and views of it not at all",
                )
    return tensors


class _Recorder:
    """Binds the calls of a context, launches them and appends them to a step."""

    def __init__(self, step: Step, named: Mapping[str, Tensor]) -> None:
        self.watch, self._step = Watch(), step
        self._named = named
        self._unread = {
            name for name, x in named.items() if 0 not in x.shape
        }  # without elements there is nothing to read
        self._written: list[Tensor] = []
        # Of each call, whether it allocated its results; None for a bound plan of the program.
        self._own: list[bool | None] = []

    def call(self, call: PendingCall) -> Any:
        """A call of a function."""
        if answers_for(call.operands.values()) is not None:
            raise UnsupportedError(
                f"{call.desc.op}: a recording keeps launches, and torch or JAX would see this call (a gradient, autocast, a "
                "transform)",
                "record under torch.no_grad() and outside autocast and jax.jit, on plain tensors and arrays",
            )
        pref = PlanPreference.of(call.preference)
        selection = plan_cache.selection(call.plan, call.desc.canonical(), pref, call.device)
        return self.run(selection, call.operands, None, call.stream)

    def run(self, selection: Selection, operands: dict[str, Any], workspace: Any, stream: Any) -> Any:
        """A call of ``plan.run``: its operands are bound."""
        self._refuse_unrecorded(selection, operands)
        own = all(operands.get(operand.name) is None for operand in selection.operands if operand.written)
        return self._keep(BoundPlan(selection, operands, workspace), stream, own=own)

    def launch(self, bound: BoundPlan, stream: Any) -> Any:
        """A call of a bound plan."""
        self._refuse_unrecorded(bound.selection, bound.operands)
        return self._keep(bound, stream, own=None)

    def finish(self) -> None:
        """Raises for a recording that could not be replayed as its caller means."""
        if not self._step.bounds:
            raise InvalidProblemError(
                "record: nothing was recorded", "call functions of baracuda_py inside the block, in the same thread"
            )
        if self._unread:
            raise InvalidProblemError(
                f"record: no recorded call reads {', '.join(sorted(self._unread))}",
                "pass that array itself, or a view of it, to a recorded call: what is computed from it is not recorded",
            )

    def fuse(self) -> None:
        """Fuses the elementwise calls of the step."""
        self._written.clear()
        fuser: Any = importlib.import_module(FUSER)
        self._step.replace_bounds(lambda bounds: fuser.fuse_recorded(bounds, self._own, tuple(self._named.values())))

    def _keep(self, bound: BoundPlan, stream: Any, *, own: bool | None) -> Any:
        self._step.check(bound)
        if stream is None and bound.ordinal != HOST_ORDINAL:
            stream = stream_of_call(bound.selection.desc, dict(bound.operands), "", bound.ordinal)
        with replaced(intercept=None, recording=None):
            result = bound(stream)
        self._step.append(bound)
        self._own.append(own)
        operands = bound.operands
        for operand in bound.selection.operands:
            if operand.written and operand.name in operands:
                self._written.append(tensor := intake(operands[operand.name], what=operand.name))
                if operand.role == "out":
                    self.watch.forget_change(tensor)
        return result

    def _refuse_unrecorded(self, selection: Selection, operands: Mapping[str, Any]) -> None:
        """Raises for an operand that was made during the recording and not by a recorded call."""
        for operand in selection.operands:
            x = operands.get(operand.name)
            if x is None or operand.role == "out":
                continue
            place = self.watch.place(x)
            if not place and not self._unread and not is_tensor(x):
                continue
            tensor = intake(x, what=operand.name)
            if change := self.watch.change(tensor):
                raise UnsupportedError(
                    f"{selection.desc.op}: {operand.name} was changed in place {change} during the recording: a replay would "
                    "not change it",
                    "change it by functions of baracuda_py, or before the recording",
                )
            self._unread -= {name for name in self._unread if overlaps(self._named[name], tensor)}
            if place and not any(overlaps(tensor, known) for known in self._written):
                raise UnsupportedError(
                    f"{selection.desc.op}: {operand.name} was made {place} during the recording, and not by a recorded call: "
                    "a replay would read the values of now",
                    "compute it with functions of baracuda_py, or make it before the recording if it does not change",
                )
