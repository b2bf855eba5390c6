"""The registers that operands name, and which of them an instruction reads and writes."""

from __future__ import annotations

from collections.abc import Iterator

from .syntax import Instruction, Memory, Negated, Operand, Pair, Register, Vector

__all__ = ["read", "registers", "written"]

_NO_RESULT = {"st", "red", "bar", "barrier", "brx", "nanosleep", "stmatrix"}


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


def written(i: Instruction) -> set[str]:
    if not i.operands or i.opcode[0] in _NO_RESULT or not isinstance(i.operands[0], (Register, Vector, Pair)):
        return set()
    return set(registers(i.operands[0]))


def read(i: Instruction) -> set[str]:
    """What an instruction needs; the sum that a wgmma adds to is none of it, for it may be told to leave it out."""
    operands = i.operands[1:] if written(i) else i.operands
    inner = [x for operand in operands for x in (operand, *(operand.rest if isinstance(operand, Memory) else ()))]
    return {i.guard} - {""} | {name for x in inner for name in registers(x)}
