"""Cuts outputs whose length the device counts. This is the only place where a call waits for the device."""

from __future__ import annotations

from typing import Any, NamedTuple

from ...plan.fields import flag
from ...plan.selection import result_type
from ...runtime.gpu.driver import device_count, require_gpu
from ...runtime.gpu.streams import current_stream, is_capturing, stream_pointer
from ...runtime.scope import is_recording
from ...tensor import intake
from ...tensor.dispatch import answers_for, jax_answers
from ...types import InvalidProblemError, UnsupportedError
from ..operands.stream import framework_stream

__all__ = ["Trim", "trimmed", "trims"]


class Trim(NamedTuple):
    """A function's results that are cut to the output `count`: `outputs`, `unless` an argument of that name is given. The
    arguments `alone` have a meaning in results that are not cut."""

    outputs: tuple[str, ...]
    unless: str = ""
    alone: tuple[str, ...] = ()


def trims(op: str, trim: Any, x: Any, stream: Any, unless: Any, **alone: Any) -> bool:
    """Whether a call on `x` cuts its results, by its argument `trim`. Raises where it cannot wait for the count, or if an
    argument is given that has a meaning `alone` in results that are not cut."""
    if not flag(trim, f"{op}: trim") or unless is not None:
        return False
    for name, value in alone.items():
        if value is not None:
            raise InvalidProblemError(f"{op}: {name}, and results that are cut", "pass size=..., or trim=False")
    _refuse_capture(op, x, stream)
    return True


def _refuse_capture(op: str, x: Any, stream: Any) -> None:
    """Raises UnsupportedError where a call on `x` would wait for a stream that is being captured, is recorded, or is traced by
    JAX."""
    if is_recording():
        raise UnsupportedError(f"{op}: a recording replays launches, and waits for nothing", "pass trim=False")
    if answers_for((x,)) is jax_answers:
        raise UnsupportedError(
            f"{op}: the device counts the result's rows, which a traced call cannot wait for", "pass trim=False"
        )
    if not device_count():
        return
    own = framework_stream(x) if stream is None else stream_pointer(stream)
    if is_capturing(current_stream() if own is None else own):
        raise UnsupportedError(f"{op}: a graph is being captured, and a capture waits for nothing", "pass trim=False")


def trimmed(made: Any, outputs: tuple[str, ...], stream: Any) -> Any:
    """The results of a call, `outputs` cut to the count once the device has it, and without the count. `stream` is the one that
    the call was given."""
    if stream is not None and not intake(made.count, what="count").on_host:
        require_gpu("waiting for a count").cuda.runtime.streamSynchronize(stream_pointer(stream))
    count = int(made.count[0])  # reading it waits for the current stream of the array's framework
    whole = made._asdict()
    kept = {name: x[:count] if name in outputs else x for name, x in whole.items() if name != "count"}
    return result_type(type(made).plan, tuple(kept))(**kept) if len(kept) > 1 else kept["out"]
