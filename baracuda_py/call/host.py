"""Runs a plan on host memory: emulates its kernels, or calls the family's NumPy oracle and rounds once to the output type."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from ..numerics.rounding import round_to
from ..plan.backend import Backend, register
from ..plan.selection import Selection
from ..runtime.untraced import untraced
from ..tensor import HOST_ORDINAL, Tensor, intake
from ..tensor.pytorch import note_written
from .operands.intake import refuse_unknown, take
from .operands.validate import check_operands
from .paths.resolve import outputs_of
from .results.outputs import kind_of

__all__ = ["prepare", "run_on_host"]


def run_on_host(selection: Selection, operands: Mapping[str, Any]) -> Any:
    """Runs a call to its end, and returns its result."""
    call, whole = prepare(selection, operands)
    call(0)
    note_written(map(operands.get, selection.written))
    return selection.result(whole)


@untraced
def prepare(
    selection: Selection, given: Mapping[str, Any], *, accesses: bool = False
) -> tuple[Callable[[int], Any], dict[str, Any]]:
    """Validates host operands. Returns a call that ignores its stream, and the operands with the outputs allocated.

    The call returns the emulator's report (with memory transactions if `accesses`), or None for the oracle.
    """
    refuse_unknown(selection, given)
    desc = selection.desc.at(given)
    tensors = take(selection, given, None)
    check_operands(desc, selection.canonical, tensors, selection.device)
    made = outputs_of(selection, kind_of([given.get(name) for name in selection.names]), tensors, HOST_ORDINAL)
    given = dict(given) | {name: one.make(0) for name, one in made.items()}
    held = {n: tensors[n] or intake(given[n], what=n) for n in selection.names if given.get(n) is not None}
    check = partial(desc.refuse_values, {name: tensor for name, tensor in held.items() if name not in made})
    if selection.device.emulated:
        return _emulated(selection, desc, held, check, accesses), given
    return _computed(selection, desc, held, check), given


def _emulator() -> Backend:
    from ..emulator.launch import Emulator

    return Emulator()


register(_emulator)


def _emulated(
    selection: Selection, desc: Any, held: Mapping[str, Tensor], check: Callable[[], None], accesses: bool
) -> Callable[[int], Any]:
    """A call that emulates the plan's kernels on the touched part of each operand, with the options in effect at the call."""
    footprints = {name: desc.footprint(name, tensor) for name, tensor in held.items()}
    written = frozenset(operand.name for operand in desc.operands if operand.written and operand.name in held)
    values = desc.resolve({})[1]

    @untraced
    def call(_stream: int) -> Any:
        check()
        return selection.program.run(
            footprints, written, values, selection.workspace_size, accesses=accesses, flops=selection.cost.flops,
            nbytes=selection.cost.bytes,
        )  # fmt: skip

    return call


def _computed(
    selection: Selection, desc: Any, held: Mapping[str, Tensor], check: Callable[[], None]
) -> Callable[[int], None]:
    """A call that writes the oracle's answer into the written operands."""
    repacked = {n: t.source for n, t in held.items() if t.element.packed and not t.source.plain}
    # NumPy views of the operands' memory, which they keep alive.
    fixed = {n: t.source.array if t.element.packed else t.array() for n, t in held.items() if n not in repacked}

    def call(_stream: int) -> None:
        check()
        rows = {n: x.to_host() for n, x in repacked.items()}
        _run_reference(selection, desc, {n: rows[n] if n in rows else fixed[n] for n in held})
        for operand in desc.operands:
            if operand.written and operand.name in rows:
                repacked[operand.name].put_rows(rows[operand.name])

    return call


@untraced
def _run_reference(selection: Selection, desc: Any, arrays: dict[str, np.ndarray[Any, Any]]) -> None:
    """Computes every written operand with the oracle, then writes them."""
    written = [o.name for o in desc.operands if o.written and o.name in arrays]
    inputs = {o.name: arrays[o.name] for o in desc.operands if o.role != "out" and o.name in arrays}
    results = selection.family.reference(desc, **inputs)
    results = results if isinstance(results, tuple) else (results,)
    for name, wide in zip(written, results):
        layout = desc.layout(name)
        result = round_to(wide, layout.element)
        used = layout.shape[-1] * layout.element.bits % 8 if layout.element.packed and layout.shape else 0
        if used:  # the unused bits of a row's last byte are kept
            spare, last = np.uint8(0xFF << used & 0xFF), layout.shape[-1] * layout.element.bits // 8
            result = np.array(result)
            result[..., last] = (result[..., last] & ~spare) | (arrays[name][..., last] & spare)
        part = arrays[name][: len(result)] if name in desc.counted else arrays[name]
        part[...] = result
