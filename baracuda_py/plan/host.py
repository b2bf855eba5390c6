"""Running a plan on the host's memory: its own kernels, emulated, or the family's NumPy oracle, rounded once to the output."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ..reference.rounding import round_to
from ..runtime.untraced import untraced
from ..tensor import GpuBuffer, Tensor, intake
from .descriptor import Layout
from .resolve import refuse_unknown, take
from .validate import check_operands

if TYPE_CHECKING:
    from .plan import Plan

__all__ = ["prepare", "run_reference"]

ALIGNED = 512  # bytes: what CuPy's allocations begin on
POISON = 0x7F


@untraced
def prepare(
    plan: Plan[Any], given: Mapping[str, Any], *, accesses: bool = False
) -> tuple[Callable[[int], Any], dict[str, Any]]:
    """Validated host operands as a call that ignores its stream, and the operands with the outputs allocated.

    The call gives the emulator's report, with memory transactions where `accesses` are counted; None where the oracle answers.
    """
    refuse_unknown(plan, given)
    desc = plan.desc.at(given)
    tensors = take(plan, given, None)
    check_operands(desc, plan._canonical, tensors, plan.device)
    given = dict(given)
    for name, role, optional in desc.operands:
        if role == "out" and tensors[name] is None and not optional:
            given[name] = _empty(plan._canonical.layout(name))
    held = {n: tensors[n] or intake(given[n], what=n) for n in plan._names if given.get(n) is not None}
    return _emulated(plan, desc, held, accesses) if plan.device.emulated else _computed(plan, desc, held), given


def _emulated(plan: Plan[Any], desc: Any, held: Mapping[str, Tensor], accesses: bool) -> Callable[[int], Any]:
    """The plan's own kernels on what they touch of each operand; how they are run is asked at the call."""
    from ..emulator.options import current_options

    feet = {name: desc.footprint(name, tensor) for name, tensor in held.items()}
    written = frozenset(operand.name for operand in desc.operands if operand.written and operand.name in held)
    values = desc.resolve({})[1]

    @untraced
    def call(_stream: int) -> Any:
        return plan._program.run(
            feet, written, values, plan.workspace_size, current_options(), accesses=accesses, flops=plan.cost.flops,
            nbytes=plan.cost.bytes,
        )  # fmt: skip

    return call


def _computed(plan: Plan[Any], desc: Any, held: Mapping[str, Tensor]) -> Callable[[int], None]:
    """The oracle's answer, put into the written operands."""
    apart = {n: t.source for n, t in held.items() if t.element.packed and not t.source.plain}
    # A NumPy view of whatever was passed, on the same memory, which the view keeps alive.
    fixed = {n: t.source.array if t.element.packed else t.array() for n, t in held.items() if n not in apart}

    def call(_stream: int) -> None:
        rows = {n: x.to_host() for n, x in apart.items()}
        run_reference(plan, desc, {n: rows[n] if n in rows else fixed[n] for n in held})
        for operand in desc.operands:
            if operand.written and operand.name in rows:
                apart[operand.name].put_rows(rows[operand.name])

    return call


@untraced
def run_reference(plan: Plan[Any], desc: Any, arrays: dict[str, np.ndarray[Any, Any]]) -> None:
    """Computes every written operand with the oracle, then writes them."""
    written = [o.name for o in desc.operands if o.written and o.name in arrays]
    inputs = {o.name: arrays[o.name] for o in desc.operands if o.role != "out" and o.name in arrays}
    results = plan.reference(desc, **inputs)
    results = results if isinstance(results, tuple) else (results,)
    for name, wide in zip(written, results):
        layout = desc.layout(name)
        result = round_to(wide, layout.element)
        used = layout.shape[-1] * layout.element.bits % 8 if layout.element.packed and layout.shape else 0
        if used:  # the spare bits of a row's last byte are not ours
            spare, last = np.uint8(0xFF << used & 0xFF), layout.shape[-1] * layout.element.bits // 8
            result = np.array(result)
            result[..., last] = (result[..., last] & ~spare) | (arrays[name][..., last] & spare)
        arrays[name][...] = result


def _empty(layout: Layout) -> Any:
    shape, element = layout.shape, layout.element
    if element.packed:
        rows = _aligned((*shape[:-1], element.nbytes(shape[-1])) if shape else (1,), np.dtype(np.uint8))
        rows[...] = 0
        return GpuBuffer.view(rows, element, shape)
    order = sorted(range(len(shape)), key=lambda a: -layout.strides[a])
    plain = _aligned(tuple(shape[a] for a in order), element.dtype)
    return plain.transpose(np.argsort(order)) if order else plain


def _aligned(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """An array that begins where a GPU's would, so that the emulator counts the sectors that a GPU moves. It holds large numbers
    or NaN, so that what is read of it, or left as it is, shows."""
    nbytes = math.prod(shape) * dtype.itemsize
    memory = np.full(nbytes + ALIGNED, POISON, np.uint8)
    start = -memory.ctypes.data % ALIGNED
    return memory[start : start + nbytes].view(dtype).reshape(shape)
