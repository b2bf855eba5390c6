"""An entry as Python source: one function per basic block, with the lanes `s` that run it (a slice, or indices) as argument.

A register is a row of a typed array with one column per lane, so that an instruction is one NumPy statement over all the lanes
that execute it. An instruction that accesses memory or other lanes is a call of the machine, with the instruction's number as
the first argument.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import CodeType
from typing import Any

import numpy as np

from ...types import UnsupportedError
from ..memory.overflow import address_slices
from ..ptx.blocks import MASKED, WARPGROUPS, WARPS
from ..ptx.grammar import known
from ..ptx.named import read, written
from ..ptx.syntax import (
    SIZES,
    Bits,
    Entry,
    Instruction,
    Integer,
    Memory,
    Negated,
    Operand,
    Register,
    Sink,
    Special,
    Symbol,
    Vector,
)
from ..tensor_cores.wgmma_registers import Fragments
from ..threads.lanes import FULL_MASK, SPECIALS, WARP
from ..values.registers import DTYPES

__all__ = ["Block", "Translator", "Unread"]

_ROWS = {1: "p", 16: "h", 32: "w", 64: "d"}
_VIEWS = {"u": "", "i": "i", "f": "f"}
_ENDS = {"bra", "brx", "ret", "exit", "trap", "bar", "barrier", "mbarrier"}  # opcodes of which some forms end a block


class Unread(Exception):
    """An operand that an instruction has no translation for."""


def _unknown(item: Instruction, why: str = "") -> UnsupportedError:
    text = f"the emulator does not know {item.text!r} (line {item.line} of the PTX)"
    return UnsupportedError(text + (f": {why}" if why else ""))


@dataclass(frozen=True, slots=True)
class Block:
    """The end of a block: `kind` is next, bra, brx, exit, trap, barrier or wait; the other fields are its operands. `gathers` is
    the number of threads that wait for one another where the block begins: the threads of `mask`, a constant or a row, or all
    of a warp or warpgroup, none of which may have branched elsewhere. `quits` says that the block only ends its threads."""

    kind: str
    number: int = -1  # of the instruction
    target: int = -1
    targets: tuple[int, ...] = ()
    guard: str = ""  # the row of its predicate
    unless: bool = False
    index: str = ""  # the row of the register that brx chooses by
    barrier: tuple[int | str, ...] = ()  # the number of a barrier and of the threads it counts: constants or rows
    sync: bool = True
    gathers: int = 0
    mask: int | str | None = None
    quits: bool = False


Emitter = Callable[["Translator", Instruction], list[str]]


class Translator:
    """One entry, translated. `source` is the text; rows and constants are bound per run."""

    def __init__(self, entry: Entry, emitters: dict[str, Emitter]) -> None:
        self.entry = entry
        self.instructions: list[Instruction] = []
        self.constants: dict[tuple[bytes, str], str] = {}
        self.rows: dict[tuple[int, int, str], str] = {}  # (width, number, view) -> name
        self.specials: set[str] = set()
        self.counts = dict.fromkeys(_ROWS, 0)
        self._places: dict[str, tuple[int, int]] = {}
        for name, width in entry.registers.items():
            if width not in _ROWS:
                raise UnsupportedError(f"a register of {width} bits, {name}, in {entry.name}")
            self._places[name] = width, self.counts[width]
            self.counts[width] += 1
        every = [item for block in entry.blocks for item in block]
        forms = {(item.opcode, len(item.operands)) for item in every}
        if unknown := {form for form in forms if not known(".".join(form[0]), form[1])}:
            raise _unknown(next(item for item in every if (item.opcode, len(item.operands)) in unknown))
        self.slices = address_slices(every)
        self._watched = frozenset().union(*self.slices.values())
        ever = set().union(*map(written, every))
        # What instructions read that nothing ever writes.
        self.unset = {n: missing for n, item in enumerate(every) if (missing := read(item) - ever)}
        self.fragments = Fragments(every)
        self._used = False  # whether the block's uses of wgmma registers go on in one note
        self.blocks: list[Block] = []
        self.spans: list[range] = []  # the instructions of each block
        self.number = -1
        text = []
        for i, block in enumerate(entry.blocks):
            first = len(self.instructions)
            lines = self._block(block, emitters)
            self.spans.append(range(first, len(self.instructions)))
            text.append(f"def b{i}(s):\n" + "".join(f"    {line}\n" for line in lines or ["pass"]))
        self._texts = text
        self._codes: list[CodeType | None] = [None] * len(text)

    @property
    def source(self) -> str:
        return "".join(self._texts)

    def code(self, at: int) -> CodeType:
        """The code that defines the function of a block. Many blocks are never reached, so each is compiled on first use."""
        if (code := self._codes[at]) is None:
            code = self._codes[at] = compile(self._texts[at], f"<{self.entry.name[:60]}>", "exec")
        return code

    def _block(self, block: Sequence[Instruction], emitters: dict[str, Emitter]) -> list[str]:
        lines: list[str] = []
        end = Block("next")
        self._used = False
        for item in block:
            self.number = len(self.instructions)
            self.instructions.append(item)
            try:
                found = self._end(item)
                if found is None or found.kind == "wait":
                    lines += self._guarded(item, emitters)
            except (Unread, LookupError, ValueError, AssertionError) as error:
                raise _unknown(item, str(error) if isinstance(error, Unread) else "") from None
            end = found or end
        quits = end.kind == "exit" and not end.guard and len(block) == 1
        self.blocks.append(replace(end, quits=quits, **self._gathering(block[0])) if block else end)
        return lines

    def _gathering(self, item: Instruction) -> dict[str, Any]:
        name = item.opcode[:2]
        if name in MASKED:
            return {"gathers": WARP, "mask": self._count(item.operands[-1])}
        return {"gathers": WARP if name in WARPS else 4 * WARP if name in WARPGROUPS else 0}

    def _guarded(self, item: Instruction, emitters: dict[str, Emitter]) -> list[str]:
        emitter = emitters.get(item.opcode[0])
        if emitter is None:
            raise Unread
        lines = self._watch(item) if self.number in self._watched else []
        lines += self._use(item) if self.fragments.numbers else []
        lines += [f"unset({self.number}, s)"] if self.number in self.unset else []  # it reads unwritten registers
        lines += emitter(self, item)
        if not item.guard or not lines:
            return lines
        test = f"{self.row(item.guard)}[s]"
        inner = ["    " + line for line in lines]
        return [f"whole, s = s, sub(s, {'~' if item.unless else ''}{test})", "if s is not None:", *inner, "s = whole"]

    def _watch(self, item: Instruction) -> list[str]:
        """Notes whether a part of an address wraps, before the instruction, which may overwrite its operands."""
        read = ", ".join(self.read(x, "u32") for x in item.operands[1:])
        return [f"wraps({self.number}, s, '{item.opcode[0]}', {read})"]

    def _use(self, item: Instruction) -> list[str]:
        """Notes uses of wgmma registers, before the first of consecutive instructions that all lanes execute."""
        if not self.fragments.concerns(item):
            return []
        number = self.fragments.use(self.number, item, go_on=self._used and not item.guard)
        self._used = not item.guard
        return [] if number is None else [f"used({number}, s)"]

    def _end(self, item: Instruction) -> Block | None:
        op, number = item.opcode, self.number
        if op[0] not in _ENDS:
            return None
        guard = {"guard": self.row(item.guard) if item.guard else "", "unless": item.unless}
        if op[0] == "bra":
            assert isinstance(item.operands[0], Symbol)
            return Block("bra", number, self.entry.labels[item.operands[0].name], **guard)  # type: ignore[arg-type]
        if op[0] == "brx":
            if item.guard:
                raise Unread("a choice of branches under a predicate")
            index, table = item.operands
            assert isinstance(index, Register) and isinstance(table, Symbol)
            targets = tuple(self.entry.labels[t] for t in self.entry.targets[table.name])
            return Block("brx", number, targets=targets, index=self.row(index.name))
        if op[0] in ("ret", "exit"):
            return Block("exit", number, **guard)  # type: ignore[arg-type]
        if op[0] == "trap":
            return Block("trap", number, **guard)  # type: ignore[arg-type]
        if op[0] in ("bar", "barrier") and op[1] not in ("warp", "cluster"):
            if item.guard:
                raise Unread("a barrier under a predicate")
            return Block("barrier", number, barrier=tuple(map(self._count, item.operands)), sync="sync" in op)
        if op[:2] == ("mbarrier", "try_wait") or op[:3] == ("barrier", "cluster", "wait"):
            if item.guard:
                raise Unread("a wait under a predicate")
            return Block("wait", number)
        return None

    def _count(self, operand: Operand) -> int | str:
        if isinstance(operand, Integer):
            return operand.value & FULL_MASK
        assert isinstance(operand, Register)
        return self.row(operand.name)

    # ---- names in the text ------------------------------------------------------------------------------------------

    def place(self, name: str) -> tuple[int, int]:
        """The width of a register, and its number among the registers of that width."""
        return self._places[name]

    def row(self, name: str, view: str = "") -> str:
        """The row of a register, viewed as bits, or as a signed (``i``) or floating-point number (``f``)."""
        width, number = self._places[name]
        if (row := self.rows.get((width, number, view))) is None:
            row = self.rows[width, number, view] = f"{_ROWS[width]}{number}{view}"
        return row

    def constant(self, value: Any, dtype: str) -> str:
        """A NumPy scalar of that dtype."""
        if dtype[0] in "ui":
            array = np.array(int(value) & (1 << 8 * int(dtype[1])) - 1, f"u{dtype[1]}")
        else:
            array = np.array(value, dtype)
        return self.constants.setdefault((array.tobytes(), dtype), f"c{len(self.constants)}")

    def width(self, operand: Operand) -> int:
        """Bits of a register."""
        assert isinstance(operand, Register)
        return self._places[operand.name][0]

    def read(self, operand: Operand, kind: str) -> str:
        """An expression for an operand as a type."""
        if kind == "pred":
            return self._read_predicate(operand)
        dtype, size = DTYPES[kind], SIZES[kind]
        match operand:
            case Register(name):
                width = self.width(operand)
                if width == size * 8:
                    return f"{self.row(name, _VIEWS[dtype[0]])}[s]"
                if width < size * 8:
                    raise Unread("an operand narrower than its type")
                narrowed = f"{self.row(name)}[s].astype('u{size}')"
                return narrowed if dtype[0] == "u" else f"{narrowed}.view('{dtype}')"
            case Integer(value):
                return self.constant(float(value) if dtype[0] == "f" else value, dtype)
            case Bits(value, width):
                if width != size * 8:
                    raise Unread("a constant of another width")
                return self.constants.setdefault((value.to_bytes(size, "little"), dtype), f"c{len(self.constants)}")
            case Special(name):
                if name not in SPECIALS:
                    raise Unread(f"%{name} is neither declared nor a special register that it knows")
                self.specials.add(name)
                special = f"special_{name.replace('.', '_')}[s]"
                return special if dtype == "u4" else f"{special}.astype('{dtype}')"
            case Symbol(name):
                return self._address_of(name, dtype)
        raise Unread

    def _read_predicate(self, operand: Operand) -> str:
        match operand:
            case Register(name):
                return f"{self.row(name)}[s]"
            case Negated(of):
                return f"~{self._read_predicate(of)}"
            case Integer(value):
                return self.constant(bool(value), "?")
        raise Unread

    def _address_of(self, name: str, dtype: str) -> str:
        entry = self.entry
        if name in entry.shared:
            return self.constant(entry.shared[name], dtype)
        if name in entry.local:
            return self.constant(entry.local[name], dtype)
        if name in entry.parameters:
            return self.constant(entry.parameters[name][0], dtype)
        if name == entry.dynamic:
            return f"DYNAMIC.astype('{dtype}')"
        if name in entry.constants:
            return f"CONSTANTS[{name!r}]"
        raise Unread(f"{name} is not declared")

    def write(self, operand: Operand, kind: str, expression: str) -> list[str]:
        """A statement that assigns an expression of a type to a register, which may be wider."""
        if isinstance(operand, Sink):
            return []
        if not isinstance(operand, Register):
            raise Unread
        if kind == "pred":
            return [f"{self.row(operand.name)}[s] = {expression}"]
        dtype = DTYPES[kind]
        if self.width(operand) == SIZES[kind] * 8:
            return [f"{self.row(operand.name, _VIEWS[dtype[0]])}[s] = {expression}"]
        if self.width(operand) < SIZES[kind] * 8:
            raise Unread("a result wider than its register")
        if dtype[0] == "f":
            raise Unread("a floating-point result in a wider register")
        return [f"{self.row(operand.name, _VIEWS[dtype[0]])}[s] = {expression}"]

    def target(self, operand: Operand, signed: bool = False) -> str:
        """The row that a load writes, as an argument."""
        if isinstance(operand, Sink):
            return "None"
        assert isinstance(operand, Register)
        return self.row(operand.name, "i" if signed else "")

    def address(self, memory: Operand, kind: str = "u64") -> str:
        """The address of a memory operand, in a register of that type."""
        assert isinstance(memory, Memory)
        base = self.read(memory.base, kind)
        return f"{base} + {self.constant(memory.offset, DTYPES[kind])}" if memory.offset else base

    @staticmethod
    def items(operand: Operand) -> tuple[Operand, ...]:
        return operand.items if isinstance(operand, Vector) else (operand,)
