"""The registers that operands name."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from .parse import Instruction, Memory, Negated, Operand, Pair, Register, Vector

__all__ = ["accumulators", "registers"]


def registers(operand: Operand) -> Iterator[str]:
    match operand:
        case Register(name):
            yield name
        case Vector(items):
            for item in items:
                yield from registers(item)
        case Pair(first, second):
            yield from registers(first)
            yield from registers(second)
        case Negated(of):
            yield from registers(of)
        case Memory(base, _, _):
            yield from registers(base)


@lru_cache(maxsize=4096)
def accumulators(i: Instruction) -> frozenset[str]:
    """The registers that a wgmma writes when it is over."""
    return frozenset(registers(i.operands[0])) if i.opcode[:2] == ("wgmma", "mma_async") else frozenset()
