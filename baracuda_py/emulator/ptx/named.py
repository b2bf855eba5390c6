"""The registers that operands name, and which of them an instruction reads and writes."""

from __future__ import annotations

from .syntax import Instruction, Memory, Negated, Operand, Pair, Register, Vector

__all__ = ["read", "registers", "written"]

_NO_RESULT = {"st", "red", "bar", "barrier", "brx", "nanosleep", "stmatrix"}


def registers(operand: Operand) -> tuple[str, ...]:
    if isinstance(operand, Register):  # most are
        return (operand.name,)
    match operand:
        case Vector(items):
            return tuple(name for item in items for name in registers(item))
        case Pair(first, second):
            return *registers(first), *registers(second)
        case Negated(of):
            return registers(of)
        case Memory(base, _, _):
            return registers(base)
    return ()


def written(i: Instruction) -> set[str]:
    return set(registers(i.operands[0])) if _has_result(i) else set()


def read(i: Instruction) -> set[str]:
    """The registers that an instruction needs; without the accumulators of a wgmma, since its operand may exclude them."""
    names = {i.guard} if i.guard else set()
    for operand in i.operands[1:] if _has_result(i) else i.operands:
        names.update(registers(operand))
        for inner in operand.rest if isinstance(operand, Memory) else ():
            names.update(registers(inner))
    return names


def _has_result(i: Instruction) -> bool:
    return bool(i.operands) and i.opcode[0] not in _NO_RESULT and isinstance(i.operands[0], (Register, Vector, Pair))
