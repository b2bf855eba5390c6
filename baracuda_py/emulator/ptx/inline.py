"""Inlining of functions: a translated kernel contains no calls (PTX ISA, Control Flow Instructions: call)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ...types import UnsupportedError
from .syntax import (
    SIZES,
    Entry,
    Function,
    Instruction,
    Item,
    Memory,
    Negated,
    Operand,
    Pair,
    Register,
    Symbol,
    Vector,
)  # fmt: skip

__all__ = ["Inlined"]


class Inlined:
    """The items of a function with each call replaced by the items of the called function; parameters that pass between
    functions become registers."""

    def __init__(self, entry: Entry, functions: Mapping[str, Function]) -> None:
        self._entry, self._functions = entry, functions
        self._calls = 0
        self._open: list[str] = []

    def items(self, function: Function, suffix: str = "") -> list[Item]:
        """All names but those of variables get a suffix. No function calls itself, so each variable is needed once."""
        entry = self._entry
        for variable in function.variables:
            if variable.name not in entry.variables:
                entry.place(variable)
        renamed = _Renamer(suffix, {name: name for name in entry.variables} if suffix else None)
        entry.registers |= {name + suffix: width for name, width in function.registers.items()}
        entry.targets |= {n + suffix: tuple(t + suffix for t in each) for n, each in function.targets.items()}
        items: list[Item] = []
        for item in function.items:
            if isinstance(item, str):
                items.append(item + suffix)
            elif item.opcode[0] == "call":
                items += self._called(item, suffix)
            elif item.opcode[0] in ("ld", "st") and item.opcode[1].startswith("param") and self._passes(item):
                items.append(self._moved(renamed.instruction(item)))
            else:
                items.append(renamed.instruction(item))
        return items

    def _called(self, call: Instruction, suffix: str) -> list[Item]:
        """The body of the called function: its parameters are replaced by the caller's, its returns by branches to the end
        of the body."""
        lists = [[x.name for x in o.items if isinstance(x, Symbol)] for o in call.operands if isinstance(o, Vector)]
        name = next((o.name for o in call.operands if isinstance(o, Symbol)), "")
        if name not in self._functions or call.guard:
            raise UnsupportedError(f"the emulator cannot follow {call.text!r} (line {call.line} of the PTX)")
        if name in self._open:
            raise UnsupportedError(
                f"{name} calls itself, which the emulator does not follow (line {call.line} of the PTX)"
            )
        callee = self._functions[name]
        arguments = lists.pop() if callee.parameters else []
        results = lists.pop() if callee.results else []
        self._calls += 1
        mark = f"@{self._calls}"
        passed = dict(zip((*callee.parameters, *callee.results), (n + suffix for n in (*arguments, *results))))
        renamed = _Renamer("", {f"{n}{mark}": to for n, to in passed.items()})
        end = f"return{mark}"
        items: list[Item] = []
        self._open.append(name)
        for item in self.items(callee, mark):
            if isinstance(item, Instruction) and item.opcode[0] == "ret":
                item = replace(item, opcode=("bra",), operands=(Symbol(end),))
            elif isinstance(item, Instruction):
                item = self._declared(renamed.instruction(item))
            items.append(item)
        self._open.pop()
        return [*items, end]

    def _passes(self, item: Instruction) -> bool:
        """Whether an access to parameter space is to a parameter of an inlined function, and not to one of the kernel."""
        memory = next(o for o in item.operands if isinstance(o, Memory))
        return isinstance(memory.base, Symbol) and memory.base.name not in self._entry.parameters

    def _moved(self, item: Instruction) -> Instruction:
        """A load or store of a passed parameter as a conversion from or to the register that replaces it."""
        kind = item.opcode[-1]
        store = item.opcode[0] == "st"
        memory, value = item.operands if store else item.operands[::-1]
        assert isinstance(memory, Memory) and isinstance(memory.base, Symbol)
        values = value.items if isinstance(value, Vector) else (value,)
        if len(values) > 1:
            raise UnsupportedError(
                f"the emulator passes no vector to a function: {item.text!r} (line {item.line} of the PTX)"
            )
        place, held = Register(f"{memory.base.name}+{memory.offset}"), values[0]
        sign, bits = "s" if kind[0] == "s" else "u", SIZES[kind] * 8
        wide = max(bits, 16) if store or not isinstance(held, Register) else self._entry.registers[held.name]
        operands = (place, held) if store else (held, place)
        return self._declared(replace(item, opcode=("cvt", f"{sign}{wide}", f"{sign}{bits}"), operands=operands))

    def _declared(self, item: Instruction) -> Instruction:
        """The same item, after declaring the registers that replace parameters."""
        if item.opcode[0] == "cvt":
            for operand in item.operands:
                if isinstance(operand, Register) and operand.name not in self._entry.registers:
                    self._entry.registers[operand.name] = max(SIZES[item.opcode[2]] * 8, 16)
        return item


class _Renamer:
    """Gives names a suffix, or other names."""

    def __init__(self, suffix: str, others: Mapping[str, str] | None = None) -> None:
        self._suffix, self._others = suffix, others or {}

    def instruction(self, item: Instruction) -> Instruction:
        if not self._suffix and not self._others:
            return item
        guard = self.name(item.guard) if item.guard else ""
        return replace(item, guard=guard, operands=tuple(map(self._operand, item.operands)))

    def name(self, name: str) -> str:
        base, plus, offset = name.partition("+")
        return self._others.get(base, base + self._suffix) + plus + offset

    def _operand(self, operand: Operand) -> Operand:
        match operand:
            case Register(name):
                return Register(self.name(name))
            case Symbol(name):
                return Symbol(self.name(name))
            case Vector(items):
                return Vector(tuple(map(self._operand, items)))
            case Memory(base, offset, rest):
                return Memory(self._operand(base), offset, tuple(map(self._operand, rest)))
            case Pair(first, second):
                return Pair(self._operand(first), self._operand(second))
            case Negated(of):
                return Negated(self._operand(of))
        return operand
