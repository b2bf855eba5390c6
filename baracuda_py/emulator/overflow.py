"""Indices of 32 bits that overflow and then become part of a global address.

A sum or product wraps where it fits neither as signed nor as unsigned numbers, which is what a program may mean by it. What
wraps is noted for each thread, and is a fault when the thread accesses memory at an address that was made of it; a later
execution that does not wrap takes the note back.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..types.faults import OverflowFault
from .lanes import Array, Selection
from .named import registers
from .syntax import Instruction, Memory

if TYPE_CHECKING:
    from .machine import Wave

__all__ = ["Overflows", "address_slices", "wrapping"]

# What takes the upper bits of an operand along; a mask takes those that are meant, whatever became of the others.
_CARRIES = {"add", "sub", "mul", "mad", "shl", "mov", "cvt", "cvta", "selp", "or", "min", "max", "neg", "shr", "bfi"}
_WRAPS = {"add", "sub", "mul", "mad", "shl"}
_ACCESSES = {"ld", "st", "atom", "red", "cp"}
_WORDS = {"u32", "s32", "b32"}


def wrapping(i: Instruction) -> bool:
    """Whether an instruction computes 32 bits that may wrap."""
    return i.opcode[0] in _WRAPS and i.opcode[-1] in _WORDS and "wide" not in i.opcode and "hi" not in i.opcode


def address_slices(instructions: Sequence[Instruction]) -> dict[int, frozenset[int]]:
    """For each global access, the instructions that may wrap and of which its address is made."""
    writers: dict[str, list[int]] = defaultdict(list)
    for n, i in enumerate(instructions):
        if i.operands and i.opcode[0] in _CARRIES:
            for name in registers(i.operands[0]):
                writers[name].append(n)
    known: dict[str, frozenset[int]] = {}
    slices = {}
    for n, i in enumerate(instructions):
        if i.opcode[0] in _ACCESSES and not any(
            part.startswith(("shared", "param", "local")) for part in i.opcode[1:2]
        ):
            names = [x for o in i.operands if isinstance(o, Memory) for x in registers(o.base)]
            found = frozenset().union(*(_slice(name, instructions, writers, known) for name in names))
            if found:
                slices[n] = found
    return slices


def _slice(
    name: str, instructions: Sequence[Instruction], writers: dict[str, list[int]], known: dict[str, frozenset[int]]
) -> frozenset[int]:
    if name in known:
        return known[name]
    seen, waiting, found = {name}, [name], set()
    while waiting:
        for n in writers.get(waiting.pop(), ()):
            i = instructions[n]
            if wrapping(i):
                found.add(n)
            for operand in i.operands[1:]:
                for other in registers(operand):
                    if other not in seen:
                        seen.add(other)
                        waiting.append(other)
    known[name] = frozenset(found)
    return known[name]


class Overflows:
    """The notes of a wave: which instructions wrapped for which lanes when they were last executed."""

    def __init__(self, wave: Wave) -> None:
        self._wave = wave
        self._wrapped: dict[int, Array] = {}

    def note(self, n: int, s: Selection, opcode: str, a: Any, b: Any, c: Any = None) -> None:
        """Operands as unsigned numbers of 32 bits."""
        if opcode != "sub" and not self._wrapped and _small(opcode, a, b, c):
            return
        unsigned = _exact(opcode, *(np.asarray(x).astype(np.int64) for x in (a, b, c) if x is not None))
        signed = _exact(opcode, *(np.asarray(x).view(np.int32).astype(np.int64) for x in (a, b, c) if x is not None))
        bad = ((unsigned < 0) | (unsigned >> 32 != 0)) & ((signed < -(1 << 31)) | (signed >= 1 << 31))
        if n in self._wrapped or bad.any():
            row = self._wrapped.setdefault(n, np.zeros(self._wave.lanes.count, bool))
            row[s] = bad
            if not row.any():
                del self._wrapped[n]

    def check(self, n: int, s: Selection) -> None:
        """OverflowFault where the address of an access is made of what wrapped."""
        if not self._wrapped:
            return
        for culprit in self._wave.launched.code.slices.get(n, frozenset()) & self._wrapped.keys():
            bad = self._wrapped[culprit][s]
            if bad.any():
                item = self._wave.launched.code.instructions[culprit]
                raise self._wave.fault(
                    OverflowFault, f"an address made of 32 bits that overflowed in {item.text!r} ({item.source})", n, s,
                    int(np.flatnonzero(bad)[0]), space="global",
                )  # fmt: skip


def _small(opcode: str, a: Any, b: Any, c: Any) -> bool:
    """Whether operands are so small that unsigned numbers cannot wrap."""
    high, other, added = int(np.max(a)), int(np.max(b)), 0 if c is None else int(np.max(c))
    if opcode == "add":
        return high + other < 1 << 32
    if opcode == "shl":
        return other < 32 and high << other < 1 << 32
    return high * other + added < 1 << 32


def _exact(opcode: str, a: Array, b: Array, c: Array | None = None) -> Array:
    match opcode:
        case "add":
            return np.asarray(a + b)
        case "sub":
            return np.asarray(a - b)
        case "shl":
            return np.asarray(a << np.clip(b, 0, 31))
        case "mul":
            return np.asarray(a * b)
    assert c is not None
    return np.asarray(a * b + c)
