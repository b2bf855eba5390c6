"""The parsed form of PTX: operands, instructions, variables, and a kernel that consists of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

__all__ = [
    "SIZES", "Bits", "Entry", "Function", "Instruction", "Integer", "Item", "Memory", "Negated", "Operand", "Pair", "Register",
    "Sink", "Special", "Symbol", "Variable", "Vector",
]  # fmt: skip

SIZES = {
    "b8": 1, "u8": 1, "s8": 1, "b16": 2, "u16": 2, "s16": 2, "f16": 2, "bf16": 2, "b32": 4, "u32": 4, "s32": 4, "f32": 4,
    "f16x2": 4, "bf16x2": 4, "b64": 8, "u64": 8, "s64": 8, "f64": 8, "b128": 16,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Register:
    name: str


@dataclass(frozen=True, slots=True)
class Special:
    """A special register, without its percent sign: ``tid.x``."""

    name: str


@dataclass(frozen=True, slots=True)
class Symbol:
    """The address of a variable or a parameter."""

    name: str


@dataclass(frozen=True, slots=True)
class Integer:
    value: int


@dataclass(frozen=True, slots=True)
class Bits:
    """A floating-point constant by its bits (``0f3F800000``)."""

    value: int
    width: int


@dataclass(frozen=True, slots=True)
class Vector:
    items: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Memory:
    """``[base+offset]``, or a tensor map followed by its coordinates."""

    base: Operand
    offset: int
    rest: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Pair:
    """``value|predicate``."""

    first: Operand
    second: Operand


@dataclass(frozen=True, slots=True)
class Negated:
    of: Operand


@dataclass(frozen=True, slots=True)
class Sink:
    """``_``: a result that is discarded."""


Operand: TypeAlias = "Register | Special | Symbol | Integer | Bits | Vector | Memory | Pair | Negated | Sink"


@dataclass(frozen=True, slots=True)
class Instruction:
    """One statement. `opcode` is split at its dots; `guard` is its predicate, `unless` says whether that is negated."""

    opcode: tuple[str, ...]
    operands: tuple[Operand, ...]
    guard: str
    unless: bool
    text: str
    line: int  # of the PTX, from 1
    source: str  # "file:line" of the CUDA text, or ""


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable with an address in a state space. `values` are a constant's initial elements."""

    name: str
    space: str
    kind: str
    nbytes: int
    align: int
    values: tuple[int, ...] = ()


@dataclass
class Entry:
    """A kernel: its parameters, declarations and blocks. `registers` maps names to widths in bits, 1 for predicates."""

    name: str
    parameters: dict[str, tuple[int, int]] = field(default_factory=dict)  # name -> (offset, bytes)
    parameter_bytes: int = 0
    registers: dict[str, int] = field(default_factory=dict)
    shared: dict[str, int] = field(default_factory=dict)  # name -> offset
    shared_bytes: int = 0
    dynamic: str = ""  # the variable of dynamic shared memory
    dynamic_align: int = 1
    local: dict[str, int] = field(default_factory=dict)
    local_bytes: int = 0
    constants: dict[str, Variable] = field(default_factory=dict)
    variables: set[str] = field(default_factory=set)  # the variables that have an address
    cluster: int = 1
    threads: int = 1024  # the most threads per CTA that it is compiled for
    block: tuple[int, ...] = ()  # the required block size, if any
    blocks: list[list[Instruction]] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)  # label -> block
    targets: dict[str, tuple[str, ...]] = field(default_factory=dict)  # of brx.idx

    def place(self, variable: Variable) -> None:
        """Assigns a variable its address in its state space."""
        name, align = variable.name, variable.align
        self.variables.add(name)
        if variable.space == "shared" and not variable.nbytes:
            self.dynamic, self.dynamic_align = name, align
        elif variable.space == "shared":
            self.shared[name] = -(-self.shared_bytes // align) * align
            self.shared_bytes = self.shared[name] + variable.nbytes
        elif variable.space == "local":
            self.local[name] = -(-self.local_bytes // align) * align
            self.local_bytes = self.local[name] + variable.nbytes
        else:
            self.constants[name] = variable


Item: TypeAlias = "Instruction | str"  # a statement, or a label


@dataclass
class Function:
    """A body as written, before its calls are inlined and it is cut into blocks."""

    name: str
    results: tuple[str, ...]
    parameters: tuple[str, ...]
    items: list[Item]
    registers: dict[str, int]
    variables: list[Variable]
    targets: dict[str, tuple[str, ...]]
