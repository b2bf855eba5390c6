"""Calls that must be refused: a wrong operand of each sort, and memory that is shared; typed, readable, and nothing written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

import baracuda_py as bp

from ..arena import Slot
from .problem import Problem, parameters

__all__ = ["Refusal", "readable", "readonly", "refusals", "refused", "shared_memory"]


@dataclass(frozen=True)
class Refusal:
    """A call that must be refused: which operand is wrong, how, and with which errors."""

    label: str
    operand: str
    errors: tuple[type[bp.BaracudaError], ...]
    given: Mapping[str, Any]
    says: tuple[str, ...] = ()


def refusals(problem: Problem) -> Iterator[Refusal]:
    """A wrong operand of each sort, for every operand of the problem."""
    good, roles = problem.operands, {o.name: o for o in problem.desc.operands}
    yield Refusal(
        "unknown name", "no_such_operand", (bp.InvalidProblemError,), {**good, "no_such_operand": 1}, ("takes",)
    )
    for name, slot in problem.slots.items():
        role = roles[name]

        def having(x: Any, name: str = name) -> dict[str, Any]:
            return {**good, name: x}

        if role.role != "out" and not role.optional:
            yield Refusal(
                "missing", name, (bp.InvalidProblemError,), {k: v for k, v in good.items() if k != name}, ("missing",)
            )
        yield Refusal("not an array", name, (bp.OperandTypeError,), having("text"))
        if slot.packed is not None:
            continue
        other = Slot(np.zeros(slot.shape, np.int16 if slot.dtype != np.int16 else np.float32), problem.backend).operand
        yield Refusal("wrong dtype", name, (bp.OperandTypeError,), having(other))
        longer = Slot(np.zeros((*slot.shape, 2), slot.dtype), problem.backend).operand
        yield Refusal("wrong rank", name, (bp.InvalidProblemError,), having(longer), ("shape",))
        if slot.shape and slot.shape[-1] > 1:
            shorter = Slot(np.zeros((*slot.shape[:-1], slot.shape[-1] - 1), slot.dtype), problem.backend).operand
            yield Refusal("wrong extent", name, (bp.InvalidProblemError,), having(shorter), ("shape",))
            if 0 not in slot.shape:
                stepped = Slot(
                    np.zeros((*slot.shape[:-1], slot.shape[-1] * 3), slot.dtype)[..., ::3], problem.backend
                ).operand
                yield Refusal("other strides", name, (bp.InvalidProblemError,), having(stepped), ("strides",))
        if role.written:
            frozen = readonly(slot)
            if frozen is not None:
                yield Refusal("read-only", name, (bp.OperandTypeError,), having(frozen), ("read-only",))
        if problem.backend == "cuda":
            yield Refusal("host array", name, (bp.OperandTypeError,), having(slot.host()), ("cupy.asarray",))
        if role.role == "out" and 0 not in slot.shape and slot.shape:
            bare = np.zeros(1, slot.dtype)
            twice = Slot(np.broadcast_to(bare, slot.shape), problem.backend).operand
            if max(slot.shape) > 1:
                yield Refusal("broadcast output", name, (bp.InvalidProblemError, bp.OverlapError), having(twice))


class _Frozen:
    """A device array behind a read-only ``__cuda_array_interface__``."""

    def __init__(self, array: Any) -> None:
        self._array = array
        interface = dict(array.__cuda_array_interface__)
        interface["data"] = (interface["data"][0], True)
        self.__cuda_array_interface__ = interface


def readonly(slot: Slot) -> Any:
    """The same operand, not to be written; None where it cannot be said."""
    if slot.backend != "cuda":
        view = slot.operand.view()
        view.flags.writeable = False
        return view
    return _Frozen(slot.operand) if slot.dtype.kind in "biufc" and "float8" not in slot.dtype.name else None


def refused(problem: Problem, refusal: Refusal) -> None:
    """`run`, `bind` and `can_implement` all refuse it, alike, in words one can act on, and nothing is written."""
    plan = problem.plan
    feasible = plan.can_implement(**refusal.given)
    assert not feasible, "can_implement accepts it"
    assert isinstance(feasible.error, refusal.errors), f"can_implement answers {feasible.error!r}"
    for call in (plan.run, plan.bind):
        try:
            call(**refusal.given)
        except refusal.errors as error:
            readable(error, problem.op.name, refusal.operand, *refusal.says)
        else:
            raise AssertionError(f"{call.__name__} accepts it")
    problem.check_unchanged()


def readable(error: BaseException, *words: str) -> None:
    """One readable sentence or two with the fix: short, one line, naming what it is about."""
    text = str(error)
    assert 20 < len(text) < 600 and "\n" not in text, f"not one readable sentence or two: {text!r}"
    assert "0x" not in text and "Traceback" not in text, text
    assert ":" in text, f"no fix in {text!r}"
    for word in words:
        assert word in text, f"{word!r} is not named in {text!r}"


def shared_memory(problem: Problem) -> None:
    """A written operand one element off an input of the same layout is an overlap, unless it is the very same view."""
    for name in problem.written:
        out = problem.slots[name]
        for other, slot in problem.slots.items():
            if other == name or slot.packed is not None or out.packed is not None:
                continue
            alike = slot.shape == out.shape and slot.strides == out.strides and slot.dtype == out.dtype
            if not alike or 0 in out.shape or max(out.shape, default=1) < 2 or min(map(abs, out.strides)) == 0:
                continue
            _overlapping(problem, name, other)


def _part(x: Any, index: tuple[slice, ...]) -> Any:
    """A slice of an array, or of the bytes behind a GpuBuffer."""
    return bp.GpuBuffer.view(x.array[index], x.element) if isinstance(x, bp.GpuBuffer) else x[index]


def _overlapping(problem: Problem, name: str, other: str) -> None:
    slot = problem.slots[other]
    axis = min((a for a, n in enumerate(slot.shape) if n > 1), key=lambda a: abs(slot.strides[a]))
    longer = [n + 1 if a == axis else n for a, n in enumerate(slot.shape)]
    low = sum(min(0, s * (n - 1)) for n, s in zip(longer, slot.strides))
    high = sum(max(0, s * (n - 1)) for n, s in zip(longer, slot.strides)) + slot.dtype.itemsize
    memory = np.zeros(high - low + 16, np.uint8)
    base = -memory.ctypes.data % 16
    whole = Slot(np.ndarray(longer, slot.dtype, memory.data, base - low, slot.strides), problem.backend)
    head = _part(whole.operand, tuple(slice(0, n) for n in slot.shape))
    tail = _part(whole.operand, tuple(slice(1, None) if a == axis else slice(None) for a in range(len(longer))))
    given = {**{n: s.operand for n, s in problem.given.items()}, name: tail, other: head}
    known = parameters(problem.op.plan.descriptor.of)  # type: ignore[attr-defined]
    desc = problem.op.of(**{k: v for k, v in {**given, **problem.sample.options}.items() if k in known})
    try:
        plan = problem.op.plan.select(desc, device=problem.device)
    except bp.UnsupportedError as error:  # no variant for an address between 16 bytes
        readable(error, problem.op.name, "aligned to")
        return
    rest = {n: s.operand for n, s in problem.slots.items() if n not in given}
    feasible = plan.can_implement(**given, **rest)
    assert isinstance(feasible.error, bp.OverlapError), f"{name} one element after {other}: {feasible.error!r}"
    try:
        plan.run(**given, **rest)
    except bp.OverlapError as error:
        readable(error, problem.op.name, name)
    else:
        raise AssertionError(f"{name} one element after {other} is accepted")
    assert np.array_equal(whole.image(), whole.initial), "the refused call wrote something"
