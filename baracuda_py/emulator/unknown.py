"""Uninitialised values: further runs, in which they have other values, show whether they matter.

In the first run such bytes are 0x7F, which makes large numbers. In the others they are 0, so that true becomes false; 0x9A, which
makes negative numbers; and the values that a comparison reached by them compares with, alternating by position. A value that the
kernel discards changes nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Protocol

import numpy as np

from ..types.faults import KernelFault
from .ptx.named import read, written
from .ptx.syntax import SIZES, Bits, Instruction, Integer
from .threads.lanes import Array

__all__ = ["FRESH", "KNOWN", "Variation", "check"]

FRESH = 0x7F  # the value of uninitialised bytes in the first run
_ZERO, _NEGATIVE = FRESH, FRESH ^ 0x9A  # the differences to it in other runs
WORD = 8  # consecutive bytes with the same difference
MOST = 8  # the most different runs
_MEMORY = {"shared", "local", "global"}  # spaces through which a register's value may pass


class Variation:
    """A run in which some instructions, and only these, see other values in place of uninitialised ones."""

    def __init__(self, instructions: Collection[int] = (), ways: Sequence[bytes] = (), turn: int = 0) -> None:
        self._instructions = frozenset(instructions)
        self._differences = np.roll(np.frombuffer(b"".join(ways), np.uint8), -WORD * turn)

    def __contains__(self, n: int) -> bool:
        return n in self._instructions

    def __bool__(self) -> bool:
        return bool(self._instructions)

    def other(self, data: Array, places: Array) -> Array:
        """The values of uninitialised bytes in this run."""
        return np.asarray(data ^ self._differences[places % len(self._differences)])


KNOWN = Variation()  # the first run


def _ways(instructions: Sequence[Instruction], suspects: Collection[int]) -> list[bytes]:
    """The differences to apply to the values that these instructions see."""
    ways = dict.fromkeys((bytes([_ZERO] * WORD), bytes([_NEGATIVE] * WORD)))
    for i in _reached(instructions, suspects):
        size = SIZES.get(i.opcode[-1], 0)
        for operand in i.operands if i.opcode[0] == "setp" else ():
            if isinstance(operand, (Bits, Integer)) and size:
                for near in (0,) if i.opcode[1] in ("eq", "ne") else (0, -1, 1):  # on both sides of it
                    value = (operand.value + near & (1 << 8 * size) - 1).to_bytes(size, "little")
                    ways[bytes(x ^ FRESH for x in value * (WORD // size))] = None
    return list(ways)[:MOST]


def _reached(instructions: Sequence[Instruction], first: Collection[int]) -> Iterator[Instruction]:
    """The instructions that are reached by values seen by some instructions, through registers and memory."""
    readers = defaultdict[str, list[int]](list)
    for n, i in enumerate(instructions):
        for name in read(i) | _memory(i, "ld"):
            readers[name].append(n)
    seen, waiting = set(first), list(first)
    while waiting:
        i = instructions[waiting.pop()]
        yield i
        new = {n for name in written(i) | _memory(i, "st") for n in readers[name]} - seen
        seen |= new
        waiting += new


def _memory(i: Instruction, opcode: str) -> set[str]:
    return {x.split("::")[0] for x in i.opcode} & _MEMORY if i.opcode[0] == opcode else set()


class Held(Protocol):
    """A region's bytes, and which of them are initialised (None: all are)."""

    known: Array | None

    @property
    def bytes(self) -> Array: ...


def check(
    again: Callable[[Variation], KernelFault | None], instructions: Sequence[Instruction], suspects: Mapping[int, KernelFault],
    fault: KernelFault | None, before: Sequence[tuple[Held, Array, Array | None]],
) -> None:  # fmt: skip
    """Raises the suspected fault of an instruction if the values that it saw matter: other runs must leave the same bytes in all
    operands, or end in the same fault. Workspace bytes that differ count as uninitialised for later launches. `before` holds
    the bytes of each region before the launch, and which of them were known."""
    first = [region.bytes.copy() for region, _, _ in before]

    def matters(seen_by: Collection[int], ways: Sequence[bytes], turn: int) -> bool:
        for region, data, known in before:
            region.bytes[:] = data
            if region.known is not None:
                region.known[:] = known
        other = again(Variation(seen_by, ways, turn))
        changed = [region.bytes != was for (region, _, _), was in zip(before, first)]
        for unsure, each in zip(doubts, changed):
            unsure |= each
        operands = (each for (region, _, _), each in zip(before, changed) if region.known is None)
        return str(other) != str(fault) or (fault is None and any(bool(each.any()) for each in operands))

    doubts = [np.zeros(len(was), bool) for was in first]
    ways = _ways(instructions, suspects)
    for turn in range(len(ways)):
        if matters(suspects, ways, turn):
            alone = (n for n in sorted(suspects) if len(suspects) == 1 or matters([n], ways, turn))
            raise suspects[next(alone, min(suspects))] from fault
    for (region, _, _), was, each in zip(before, first, doubts):
        region.bytes[:] = was
        if region.known is not None:
            region.known &= ~each
