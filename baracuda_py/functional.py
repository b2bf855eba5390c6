"""`call`: the implementation of every op's public function.

On a hit no descriptor is built and nothing is validated again. The key is a flat tuple of shapes, strides, dtypes, alignments
and options; its value is a `Ready`, which launches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .call.cache import plan_cache
from .call.foreign import import_foreign, operands_as_read
from .call.host import run_on_host
from .call.operands.key import detect_frameworks, read
from .call.operands.validate import check_gathered
from .call.paths.ready import MISSED, Ready
from .call.paths.resolve import resolve
from .plan.descriptor import Descriptor
from .plan.family import Family
from .runtime.gpu.device import spec_of
from .runtime.gpu.driver import device_count
from .runtime.scope import UNSCOPED, PendingCall, current, process
from .runtime.untraced import untraced
from .tensor import Tensor, ordinal_of
from .tensor.arrays import described_for
from .tensor.dispatch import Described, answers_for, describing
from .tensor.pytorch import note_written
from .types import DeviceSpec, InternalError, PlanPreference

__all__ = ["call"]

PREFIX_LENGTH = 4  # leading parts of a key, before those of the operands
_NOTHING: Mapping[str, Any] = {}


def call(
    plan: type[Family[Any]],
    operands: Mapping[str, Any],
    describe: Callable[..., Descriptor],
    describe_args: tuple[Any, ...] = (),
    options: Any = (),
    values: Mapping[str, Any] | None = None,
    shifts: Sequence[int] | None = None,
    stream: Any = None,
    pref: PlanPreference | None = None,
    device: Any = None,
) -> Any:
    """Runs an op on `operands` (in the descriptor's order, None for an output to make or an absent one).

    `options` is everything else that the descriptor depends on, hashable. `describe(*describe_args)` builds the descriptor on a
    miss. `values` are run-time values, which must not change afterwards. `shifts` are the bytes by which they move each
    operand's first touched element.
    """
    scope = current(process.scope)
    if scope is not UNSCOPED:
        pref, device = scope.applied(pref, device)
        if scope.intercept is not None and not describing.get():
            return _intercepted(
                scope.intercept,
                plan,
                operands,
                describe,
                describe_args,
                values,
                stream=stream,
                pref=pref,
                device=device,
            )
    key: list[Any] = [plan, options, pref, device]
    pointers: list[int] = []
    ordinal = read(operands.values(), shifts, key, pointers)
    if ordinal is None and describing.get():
        desc = describe(*describe_args)
        desc.validate()
        return Described(plan, desc, operands, values or _NOTHING)
    if ordinal is None and (answers := answers_for(operands.values())) is not None:
        if hasattr(describe, "check_operands"):
            describe.check_operands(operands)
        return answers.load().called(
            plan, operands, describe, describe_args, options, values, stream=stream, pref=pref, device=device
        )
    if ordinal is not None:
        try:
            ready = plan_cache.calls.get(tuple(key))
        except Exception:  # an option that does not hash: the long path reports it
            ready = None
        if ready is not None:
            ready.used = next(plan_cache.clock)
            result = ready.launch(operands, pointers, values or _NOTHING, stream, ordinal)
            if result is not MISSED:
                return result
    elif plan_cache.foreign_prefixes:
        result = _call_imported(plan, key[:PREFIX_LENGTH], operands, values or _NOTHING, shifts, stream)
        if result is not MISSED:
            return result
    return _call_checked(
        plan, key[:PREFIX_LENGTH], operands, describe, describe_args, values, shifts, stream, pref, device
    )


@untraced
def _intercepted(
    intercept: Callable[[PendingCall], Any],
    kind: type[Family[Any]],
    operands: Mapping[str, Any],
    describe: Callable[..., Descriptor],
    describe_args: tuple[Any, ...],
    values: Mapping[str, Any] | None,
    *,
    stream: Any,
    pref: PlanPreference | None,
    device: Any,
) -> Any:
    """A call that its context answers: it is described and checked as a new one, and neither selected nor launched here."""
    spec, desc = _described(operands, describe, describe_args, device)
    given = {name: x for name, x in operands.items() if x is not None} | dict(values or {})
    return intercept(PendingCall(kind, desc, given, stream, pref, spec))


@untraced
def _call_imported(
    kind: type[Family[Any]],
    key: list[Any],
    operands: Mapping[str, Any],
    values: Mapping[str, Any],
    shifts: Sequence[int] | None,
    stream: Any,
) -> Any:
    """A repeated call with operands that only a protocol can read; MISSED if the call is new."""
    imported = (
        import_foreign(operands, kind.descriptor, stream)
        if _hashes(key) and tuple(key) in plan_cache.foreign_prefixes
        else None
    )
    if imported is None:
        return MISSED
    readable, handle = imported
    pointers: list[int] = []
    ordinal = read(readable.values(), shifts, key, pointers)
    ready = None if ordinal is None else plan_cache.calls.get(tuple(key))
    if ready is None or ordinal is None:
        return MISSED
    ready.used = next(plan_cache.clock)
    return ready.launch(operands, pointers, values, handle, ordinal)  # an output is returned as it was passed


@untraced
def _call_checked(
    kind: type[Family[Any]],
    head: list[Any],
    operands: Mapping[str, Any],
    describe: Callable[..., Descriptor],
    describe_args: tuple[Any, ...],
    values: Mapping[str, Any] | None,
    shifts: Sequence[int] | None,
    stream: Any,
    pref: PlanPreference | None,
    device: Any,
) -> Any:
    """The long path: describes, selects (or finds the plan), checks every operand, runs, and stores the call. `head` is the
    prefix of its key, before the operands."""
    spec, desc = _described(operands, describe, describe_args, device)
    selection = plan_cache.selection(kind, desc.canonical(), PlanPreference.of(pref), spec)
    given = {name: x for name, x in operands.items() if x is not None} | dict(values or {})
    if spec.host_memory:
        return run_on_host(selection, given)
    ready = resolve(selection, given, None, stream, may_allocate=True)
    readable, key = operands_as_read(operands, ready.tensors), list(head)
    has_foreign = any(type(x) is Tensor for x in readable.values())
    keeps = read(readable.values(), shifts, key, []) is not None and _hashes(key)
    if keeps and not _begins_alike(desc, shifts):
        if not has_foreign:
            raise InternalError(
                f"{desc.op}: its function begins at bytes {shifts} of the operands, and its descriptor at {desc.displacements()}",
                "this is a defect of the library: please report it",
            )
        keeps = False  # a function cannot know the strides of an array that only a protocol reads
    result = selection.result(ready.launch())
    note_written(map(operands.get, selection.written))
    if keeps:
        defaults = {name: x for name, x in ready.values.items() if name not in given}
        kept = Ready(selection, ready.recipe, operands, ready.made, defaults)
        plan_cache.keep(tuple(key), kept, tuple(head) if has_foreign else None)
    return result


def _described(
    operands: Mapping[str, Any], describe: Callable[..., Descriptor], describe_args: tuple[Any, ...], device: Any
) -> tuple[DeviceSpec, Descriptor]:
    """The device of a call and its descriptor, which is valid and names the operands that were gathered. Without a device
    (None, and no default one) it is that of the operands' CUDA device."""
    detect_frameworks()
    if device is None and device_count():
        device = ordinal_of(operands.values())
    spec = spec_of(device)
    with described_for(spec.host_memory):
        desc = describe(*describe_args)
    desc.validate()
    check_gathered(desc, operands)
    return spec, desc


def _begins_alike(desc: Descriptor, shifts: Sequence[int] | None) -> bool:
    """Whether later calls, displaced by `shifts`, begin at the same byte as the descriptor in each operand that has
    elements."""
    displaced = desc.displacements()
    given = (0,) * len(displaced) if shifts is None else tuple(shifts)
    touched = [0 not in desc.layout(operand.name).shape for operand in desc.operands]
    return len(given) == len(displaced) and all(a == b or not t for a, b, t in zip(given, displaced, touched))


def _hashes(key: Sequence[Any]) -> bool:
    try:
        hash(tuple(key))
    except Exception:
        return False
    return True
