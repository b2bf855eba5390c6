"""Detection of 32-bit indices that overflow and then become part of a global address.

A sum or product wraps if the exact result fits neither a signed nor an unsigned number, since a program may mean either. A wrap
is noted for each thread, and is a fault when the thread accesses memory at an address computed from the wrapped number; a later
execution of the instruction that does not wrap removes the note.

An address is computed from a number by operations that keep the number's upper bits, or that shift or divide it with its sign.
Other operations extract some bits and ignore the rest, as hashes do, and are no fault: a mask, a logical right shift, the upper
half of an unsigned product, a remainder, also one that is computed as the number less a multiple of its quotient.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...types.faults import OverflowFault
from ..ptx.named import registers, written
from ..ptx.syntax import SIZES, Instruction, Memory, Operand
from ..threads.lanes import Array, Selection

if TYPE_CHECKING:
    from ..wave import Wave

__all__ = ["Overflows", "address_slices", "wrapping"]

_QUOTIENTS = {"shr", "div"}
_CARRIES = {"add", "sub", "mul", "mad", "shl", "mov", "cvt", "cvta", "selp", "or", "min", "max", "neg"}
_WRAPS = {"add", "sub", "mul", "mad", "shl"}
_ACCESSES = {"ld", "st", "atom", "red", "cp"}
_WORDS = {"u32", "s32", "b32"}


def wrapping(i: Instruction) -> bool:
    """Whether an instruction computes 32 bits that may wrap."""
    return i.opcode[0] in _WRAPS and i.opcode[-1] in _WORDS and "wide" not in i.opcode and "hi" not in i.opcode


def address_slices(instructions: Sequence[Instruction]) -> dict[int, frozenset[int]]:
    """For each global access, the instructions that may wrap and from which its address is computed."""
    origins, slices = _Origins(instructions), {}
    for n, i in enumerate(instructions):
        if i.opcode[0] in _ACCESSES and not any(
            part.startswith(("shared", "param", "local")) for part in i.opcode[1:2]
        ):
            names = (x for o in i.operands if isinstance(o, Memory) for x in registers(o.base))
            if found := frozenset().union(*map(origins.wrapping, names)):
                slices[n] = found
    return slices


def _carries(i: Instruction) -> bool:
    """Whether the result keeps the upper bits of the operands, as a number does."""
    name, kind = i.opcode[0], i.opcode[-1]
    if name == "cvt":
        return SIZES.get(i.opcode[-2], 0) >= SIZES.get(kind, 0)
    return kind[0] == "s" if name in _QUOTIENTS or "hi" in i.opcode else name in _CARRIES


class _Origins:
    """The instructions that the values of registers come from."""

    def __init__(self, instructions: Sequence[Instruction]) -> None:
        self._writers = defaultdict[str, list[tuple[int, Instruction]]](list)
        for n, i in enumerate(instructions):
            if i.opcode[0] in _CARRIES | _QUOTIENTS:
                for name in written(i):
                    self._writers[name].append((n, i))
        self._known: dict[str, frozenset[int]] = {}
        self._terms_of: dict[int, tuple[str, ...]] = {}

    def wrapping(self, name: str) -> frozenset[int]:
        """The instructions that may wrap and from which a number is computed."""
        if name not in self._known:
            passed = self._passed([name], self._terms)
            self._known[name] = frozenset(n for x in passed for n, i in self._writers[x] if wrapping(i) and _carries(i))
        return self._known[name]

    def _passed(self, names: Iterable[str], terms: Callable[[int, Instruction], Iterable[str]]) -> set[str]:
        """All registers from which these are computed; `terms` names the registers that an instruction passes on."""
        waiting = list(names)
        seen = set(waiting)
        while waiting:
            for n, i in self._writers.get(waiting.pop(), ()):
                for name in terms(n, i):
                    if name not in seen:
                        seen.add(name)
                        waiting.append(name)
        return seen

    def _terms(self, n: int, i: Instruction) -> tuple[str, ...]:
        """The registers that a number is computed from: none for a remainder, or for an instruction that extracts bits."""
        if (terms := self._terms_of.get(n)) is None:
            terms = self._terms_of[n] = self._numbers(i) if _carries(i) else ()
        return terms

    def _numbers(self, i: Instruction) -> tuple[str, ...]:
        names = _names(i.operands[1:])
        if i.opcode[0] not in ("sub", "mad"):
            return names
        whole, multiple = (
            (i.operands[1:2], i.operands[2:]) if i.opcode[0] == "sub" else (i.operands[3:], i.operands[1:3])
        )
        wholes, multiples = _names(whole), _names(multiple)
        plain = self._passed(multiples, lambda _, i: _names(i.operands[1:]) if _carries(i) else ())
        by_quotient = self._passed(multiples, lambda _, i: _names(i.operands[1:])) - plain
        return () if by_quotient.issuperset(wholes) and wholes else names


def _names(operands: Iterable[Operand]) -> tuple[str, ...]:
    return tuple(name for operand in operands for name in registers(operand))


class Overflows:
    """The notes of a wave: which instructions wrapped for which lanes at their last execution."""

    def __init__(self, wave: Wave) -> None:
        self._wave = wave
        self._wrapped: dict[int, Array] = {}

    def note(self, n: int, s: Selection, opcode: str, a: Any, b: Any, c: Any = None) -> None:
        """Notes wraps; the operands are unsigned 32-bit numbers."""
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
        """OverflowFault where the address of an access is computed from a number that wrapped."""
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
