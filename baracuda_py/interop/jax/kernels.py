"""A plan's steps as XLA's own kernel calls: PTX, a grid, and the buffers of each."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from ...plan.selection import Selection
from ...runtime.compile.compiler import compile_ptx
from ...runtime.steps import Call, Copy, Copy2D, Fill, Kernel, Launch, Ptr, Scratch, Step, Struct, TensorMap
from ...types import UnsupportedError
from .ptx import BLOCK, SCRATCH, baked, copying, filling

__all__ = ["KernelCall", "kernel_calls"]

_ENTRY = re.compile(r"\.entry\s+([\w$]+)")
_OF_ARCH = re.compile(r"\b(wgmma|setmaxnreg)\b")  # instructions that only sm_90a has


class KernelCall(NamedTuple):
    """One kernel for XLA. It takes the addresses of `reads`, of `begun` and of `writes`: names of operands, or `SCRATCH`. What
    was `begun` before is written in place, so that XLA passes it twice."""

    name: str
    ptx: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    reads: tuple[str, ...]
    begun: tuple[str, ...]
    writes: tuple[str, ...]


def kernel_calls(
    selection: Selection, shifts: Mapping[str, int], written: Sequence[str], given: Collection[str],
    values: Mapping[str, Any],
) -> list[KernelCall]:  # fmt: skip
    """The kernels of a plan with its values as constants. `shifts` are the bytes from each operand's first element to the first
    one touched. UnsupportedError, with the reason, if XLA cannot launch them. Of the operands, arrays hold those that are
    `given`."""
    calls, begun = [], set(given)
    for step in selection.steps:
        calls.append(_call(step, selection.device.arch, shifts, written, begun, values))
        begun.update(calls[-1].writes)
    return calls


def _call(
    step: Step, arch: str, shifts: Mapping[str, int], written: Sequence[str], given: Collection[str],
    values: Mapping[str, Any],
) -> KernelCall:  # fmt: skip
    if isinstance(step, Call):
        raise UnsupportedError(f"the plan calls {step.library}")
    held = {**shifts, SCRATCH: 0}
    touched = [name for name in dict.fromkeys(_buffers(step)) if name in held]
    writes = tuple(name for name in touched if name in written or name == SCRATCH)
    reads = tuple(name for name in touched if name not in writes)
    begun = tuple(name for name in writes if name in given)
    buffers = (
        {name: held[name] for name in reads} | {f"{name} before": 0 for name in begun} | {n: held[n] for n in writes}
    )
    if not isinstance(step, Launch):
        text, blocks = _transfer(step, _portable(arch), buffers)
        return KernelCall(_name(text), text, (blocks, 1, 1), (BLOCK, 1, 1), 0, reads, begun, writes)
    if step.cluster > 1:
        raise UnsupportedError(f"a kernel runs in clusters of {step.cluster} CTAs")
    text = baked(_compiled(step.kernel, arch), step.args, values, buffers)
    return KernelCall(_name(text), text, step.grid, step.block, step.shared_bytes, reads, begun, writes)


@lru_cache(maxsize=256)
def _compiled(kernel: Kernel, arch: str) -> str:
    """A kernel's PTX; without the arch's own instructions its target is the arch that every compiler of such GPUs takes."""
    text = compile_ptx(kernel, arch)
    return text if _OF_ARCH.search(text) else text.replace(f".target {arch}", f".target {_portable(arch)}")


def _portable(arch: str) -> str:
    return "sm_90" if arch == "sm_90a" else arch


def _name(text: str) -> str:
    found = _ENTRY.search(text)
    assert found is not None
    return found[1]


def _transfer(step: Copy | Copy2D | Fill, target: str, buffers: Mapping[str, int]) -> tuple[str, int]:
    if isinstance(step, Fill):
        return filling(target, step.dest, step.value, step.nbytes, buffers)
    if isinstance(step, Copy):
        return copying(target, step.dest, step.source, 0, 0, step.nbytes, 1, buffers)
    pitches = step.dest_pitch, step.source_pitch
    return copying(target, step.dest, step.source, *pitches, step.width, step.height, buffers)


def _buffers(step: Any) -> Iterator[str]:
    """The names of what a step's pointers are in."""
    if isinstance(step, Launch):
        for arg in step.args:
            for field in arg.fields if isinstance(arg, Struct) else (arg,):
                place = field.of if isinstance(field, TensorMap) else field
                if isinstance(place, (Ptr, Scratch)):
                    yield SCRATCH if isinstance(place, Scratch) else place.operand
    else:
        for place in (step.dest, *([] if isinstance(step, Fill) else [step.source])):
            yield SCRATCH if isinstance(place, Scratch) else place.operand
