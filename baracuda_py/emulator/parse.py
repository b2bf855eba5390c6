"""Text PTX as data: an entry's parameters, variables and basic blocks, names resolved, calls expanded where they stand.

What is read is what NVRTC writes (PTX ISA, Syntax; Kernel and Function Directives; Control Flow Directives; Debugging
Directives: .loc). A statement keeps its line of PTX and, where NVRTC was asked for line information, its line of CUDA.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import prod
from typing import TypeAlias

from ..types import UnsupportedError

__all__ = [
    "MASKED",
    "SIZES",
    "WARPGROUPS",
    "WARPS",
    "Bits",
    "Entry",
    "Instruction",
    "Integer",
    "Memory",
    "Negated",
    "Operand",
    "Pair",
    "Register",
    "Sink",
    "Special",
    "Symbol",
    "Variable",
    "Vector",
    "parse",
]

SIZES = {
    "b8": 1, "u8": 1, "s8": 1, "b16": 2, "u16": 2, "s16": 2, "f16": 2, "bf16": 2, "b32": 4, "u32": 4, "s32": 4, "f32": 4,
    "f16x2": 4, "bf16x2": 4, "b64": 8, "u64": 8, "s64": 8, "f64": 8, "b128": 16,
}  # fmt: skip
PREDICATE = "pred"


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
    """``[base+offset]``, or a tensor map with its coordinates behind it."""

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
    """``_``: a result that nobody wants."""


Operand: TypeAlias = "Register | Special | Symbol | Integer | Bits | Vector | Memory | Pair | Negated | Sink"


@dataclass(frozen=True, slots=True)
class Instruction:
    """One statement. `opcode` is split at its dots; `guard` is the predicate that it is under, `unless` where negated."""

    opcode: tuple[str, ...]
    operands: tuple[Operand, ...]
    guard: str
    unless: bool
    text: str
    line: int  # of the PTX, from 1
    source: str  # "file:line" of the CUDA text, or ""


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable with a place in a state space. `values` are a constant's initial elements."""

    name: str
    space: str
    kind: str
    nbytes: int
    align: int
    values: tuple[int, ...] = ()


@dataclass
class Entry:
    """A kernel: what it takes, declares and does. `registers` maps names to widths in bits, 1 for predicates."""

    name: str
    parameters: dict[str, tuple[int, int]] = field(default_factory=dict)  # name -> (offset, bytes)
    parameter_bytes: int = 0
    registers: dict[str, int] = field(default_factory=dict)
    shared: dict[str, int] = field(default_factory=dict)  # name -> offset
    shared_bytes: int = 0
    dynamic: str = ""  # the variable that dynamic shared memory is
    dynamic_align: int = 1
    local: dict[str, int] = field(default_factory=dict)
    local_bytes: int = 0
    constants: dict[str, Variable] = field(default_factory=dict)
    variables: set[str] = field(default_factory=set)  # with a place
    cluster: int = 1
    threads: int = 1024  # the most that it is compiled for
    blocks: list[list[Instruction]] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)  # label -> block
    targets: dict[str, tuple[str, ...]] = field(default_factory=dict)  # of brx.idx


Item: TypeAlias = "Instruction | str"  # a statement, or a label


@dataclass
class _Function:
    """A body before it is cut into blocks."""

    name: str
    results: tuple[str, ...]
    parameters: tuple[str, ...]
    items: list[Item]
    registers: dict[str, int]
    variables: list[Variable]
    targets: dict[str, tuple[str, ...]]


# Statements that end a block: where threads part, wait or leave.
_ENDS = {"bra", "brx", "ret", "exit", "trap", "bar", "barrier"}
_WAITS = {("mbarrier", "try_wait"), ("mbarrier", "test_wait")}
# Instructions at which threads wait for one another, each at the beginning of a block: by the masks that they give, by warps,
# by warpgroups.
MASKED = {("shfl", "sync"), ("vote", "sync"), ("elect", "sync"), ("redux", "sync"), ("bar", "warp")}
WARPS = {("mma", "sync"), ("ldmatrix", "sync"), ("stmatrix", "sync"), ("bar", "sync"), ("bar", "arrive"), ("barrier", "sync"),
         ("barrier", "arrive"), ("barrier", "cta")}  # fmt: skip
WARPGROUPS = {("wgmma", name) for name in ("fence", "mma_async", "commit_group", "wait_group")}

_HEAD = re.compile(r"\.(entry|func)\s*(?:\(([^)]*)\))?\s*([\w$]+)\s*(?:\(([^)]*)\))?([^{;]*)([{;])")
_PARAMETER = re.compile(
    r"\.param\s+(?:\.align\s+(\d+)\s+)?\.(\w+)\s+(?:\.ptr\s+(?:\.(?:global|const|shared|local)\s+)?(?:\.align\s+\d+\s+)?)?"
    r"([\w$]+)(?:\[(\d+)\])?"
)
_VARIABLE = re.compile(
    r"\.(shared|local|global|const)\s+(?:\.align\s+(\d+)\s+)?\.(\w+)\s+([\w$]+)(?:\[(\d*)\])?(?:\s*=\s*(.*))?$", re.S
)
_LIMIT = re.compile(r"\.(reqnctapercluster|reqntid|maxntid)\s+(\d+(?:\s*,\s*\d+)*)")
_TOKEN = re.compile(r"[{};]|[^{};]+")
_BRACE = re.compile(r"[{}]")
_LOC = re.compile(r"^\s*\.loc\s+(\d+)\s+(\d+)[^\n]*$", re.M)
_FILE = re.compile(r'^\s*\.file\s+(\d+)\s+"([^"]*)"[^\n]*$', re.M)


def parse(text: str, entry: str = "") -> Entry:
    """An entry of a module, which must be the only one if it is not named."""
    end = text.find("\n\t.section")
    module = _Module(text if end < 0 else text[:end], _FILE.findall(text))
    functions: dict[str, _Function] = {}
    kernels: dict[str, tuple[_Function, str, str]] = {}
    outside, end = [], 0
    for head in _HEAD.finditer(module.text):
        kind, results, name, parameters, directives, opened = head.groups()
        outside.append(module.text[end : head.start()])
        end = head.end() if opened == ";" else _closing(module.text, head.end())
        if opened == ";" or (kind == "entry" and entry not in ("", name)):
            continue
        body = _Body(module, head.end(), name, [p[3] for p in _PARAMETER.finditer(results or "")],
                     [p[3] for p in _PARAMETER.finditer(parameters or "")])  # fmt: skip
        if kind == "func":
            functions[name] = body.function
        else:
            kernels[name] = body.function, parameters or "", directives
    if len(kernels) != 1:
        found = f"{len(kernels) or 'no'} entries{f' {entry}' if entry else ''}"
        raise UnsupportedError(f"the PTX has {found}: one is needed")
    return _entry(*kernels.popitem()[1], "".join([*outside, module.text[end:]]), functions)


def _closing(text: str, at: int) -> int:
    """Behind the brace that closes one opened before `at`."""
    depth = 1
    for brace in _BRACE.finditer(text, at):
        depth += 1 if brace[0] == "{" else -1
        if not depth:
            return brace.end()
    return len(text)


class _Module:
    """The text without comments and line directives, and what the latter say of each place in it."""

    def __init__(self, text: str, files: Sequence[tuple[str, str]]) -> None:
        names = dict(files)
        text = re.sub(r"//[^\n]*", _blank, text)
        marks = [(m.start(), f"{names.get(m[1], m[1])}:{m[2]}") for m in _LOC.finditer(text)]
        self._marks, self._sources = [at for at, _ in marks], [source for _, source in marks]
        self.text = _FILE.sub(_blank, _LOC.sub(_blank, text))
        self._lines = [m.start() for m in re.finditer("\n", text)]

    def line(self, at: int) -> int:
        return bisect_right(self._lines, at - 1) + 1

    def source(self, at: int, begin: int) -> str:
        """The CUDA line of a place, as the last directive before it says, `begin` being where its function begins."""
        i = bisect_right(self._marks, at) - 1
        return self._sources[i] if i >= 0 and self._marks[i] >= begin else ""


def _blank(match: re.Match[str]) -> str:
    return " " * len(match[0])


class _Body:
    """Reads a body. Names belong to the braces that they are declared in, which inline assembly uses freely."""

    def __init__(self, module: _Module, at: int, name: str, results: list[str], parameters: list[str]) -> None:
        self._module, self._begin = module, at
        self._parents: list[int | None] = [None]
        self._names: list[dict[str, str]] = [{}]
        self._known: dict[tuple[str, int], Operand] = {}
        self.function = _Function(name, tuple(results), tuple(parameters), [], {}, [], {})
        for text, scope, place in self._statements(at):
            if place < 0:
                self.function.items.append(text)
            else:
                with self._reading(text, place):
                    self._read(text, scope, place)

    @contextmanager
    def _reading(self, text: str, place: int) -> Iterator[None]:
        try:
            yield
        except (ValueError, LookupError, AttributeError, AssertionError):
            line = self._module.line(place)
            raise UnsupportedError(
                f"the emulator cannot read {' '.join(text.split())!r} (line {line} of the PTX)"
            ) from None

    def _statements(self, at: int) -> list[tuple[str, int, int]]:
        """(text, scope, place) of each statement, place -1 for labels. Declarations are taken in, since a use may come first."""
        found: list[tuple[str, int, int]] = []
        scopes, depth, text, place = [0], 0, "", at

        def unlabelled(text: str) -> str:
            while (match := re.match(r"\s*([\w$]+)\s*:(?!:)", text)) and ".branchtargets" not in text:
                scope = scopes[-1]
                name = self._names[scope][match[1]] = match[1] if scope == 0 else f"{match[1]}#{scope}"
                found.append((name, scope, -1))
                text = text[match.end() :]
            return text

        for token in _TOKEN.finditer(self._module.text, at):
            piece = token[0]
            if piece == "{":
                text = text if depth else unlabelled(text)
                if not depth and not text.strip():
                    self._parents.append(scopes[-1])
                    self._names.append({})
                    scopes.append(len(self._names) - 1)
                    text = ""
                    continue
                depth, text = depth + 1, text + piece
            elif piece == "}":
                if depth:
                    depth, text = depth - 1, text + piece
                    continue
                unlabelled(text)
                text = ""
                scopes.pop()
                if not scopes:
                    break
            elif piece == ";" and not depth:
                statement = unlabelled(text).strip()
                text = ""
                if statement.startswith((".reg", ".param", ".shared", ".local")):
                    with self._reading(statement, place):
                        self._declare(statement, scopes[-1])
                elif statement and (statement[0] != "." or ".branchtargets" in statement):
                    found.append((statement, scopes[-1], place))
            else:
                if not text.strip():
                    place = token.start() + len(piece) - len(piece.lstrip())
                text += piece
        return found

    def _declare(self, statement: str, scope: int) -> None:
        names = self._names[scope]
        if statement.startswith(".reg"):
            kind, rest = re.match(r"\.reg\s*\.(\w+)\s+(.*)", statement, re.S).groups()  # type: ignore[union-attr]
            width = 1 if kind == PREDICATE else SIZES[kind] * 8
            for item in _split(rest):
                counted = re.match(r"(%?[\w$]+)<(\d+)>", item)
                for base in [f"{counted[1]}{i}" for i in range(int(counted[2]))] if counted else [item]:
                    names[base] = base if scope == 0 else f"{base}#{scope}"
                    self.function.registers[names[base]] = width
        elif match := _PARAMETER.match(statement):  # of a call
            names[match[3]] = f"{match[3]}#{scope}"
        elif variable := _variable(statement):
            self.function.variables.append(variable)

    def _read(self, text: str, scope: int, place: int) -> None:
        function = self.function
        if targets := re.match(r"([\w$]+)\s*:\s*\.branchtargets\s+(.*)", text, re.S):
            function.targets[targets[1]] = tuple(self._resolve(name, scope) for name in _split(targets[2]))
            return
        text = " ".join(text.split())
        statement, guard, unless = text, "", False
        if text[0] == "@":
            mark, statement = text[1:].split(None, 1)
            unless, guard = mark[0] == "!", self._resolve(mark.lstrip("!"), scope)
        opcode = re.match(r"[\w.:]+", statement)
        assert opcode is not None
        operands = tuple(self._operand(x, scope) for x in _split(statement[opcode.end() :]))
        line, source = self._module.line(place), self._module.source(place, self._begin)
        function.items.append(Instruction(tuple(opcode[0].split(".")), operands, guard, unless, text, line, source))

    def _resolve(self, name: str, scope: int | None) -> str:
        while scope is not None:
            if name in self._names[scope]:
                return self._names[scope][name]
            scope = self._parents[scope]
        return name

    def _operand(self, text: str, scope: int) -> Operand:
        key = text, scope
        if key not in self._known:
            self._known[key] = self._operand_of(text, scope)
        return self._known[key]

    def _operand_of(self, text: str, scope: int) -> Operand:
        if text[0] in "{(":
            return Vector(tuple(self._operand(x, scope) for x in _split(text[1:-1])))
        if text[0] == "[":
            first, *rest = _split(text[1:-1])
            base, offset = re.match(r"(.+?)(?:\s*\+\s*(-?\d+))?$", first).groups()  # type: ignore[union-attr]
            return Memory(self._operand(base, scope), int(offset or 0), tuple(self._operand(x, scope) for x in rest))
        if "|" in text:
            first, second = text.split("|")
            return Pair(self._operand(first.strip(), scope), self._operand(second.strip(), scope))
        if text[0] == "!":
            return Negated(self._operand(text[1:], scope))
        if text == "_":
            return Sink()
        if text[:2] in ("0f", "0F", "0d", "0D"):
            return Bits(int(text[2:], 16), 32 if text[1] in "fF" else 64)
        if re.match(r"-?\d", text):
            return Integer(int(text.rstrip("U"), 0))
        name = self._resolve(text, scope)
        if name in self.function.registers:
            return Register(name)
        return Special(name[1:]) if name[0] == "%" else Symbol(name)


def _split(text: str) -> list[str]:
    """At the commas that are in no bracket."""
    if "[" not in text and "{" not in text and "(" not in text:
        return [piece for part in text.split(",") if (piece := part.strip())]
    pieces, depth, begin = [], 0, 0
    for i, c in enumerate(text):
        if c in "[{(":
            depth += 1
        elif c in "]})":
            depth -= 1
        elif c == "," and not depth:
            pieces.append(text[begin:i].strip())
            begin = i + 1
    pieces.append(text[begin:].strip())
    return [piece for piece in pieces if piece]


def _variable(statement: str) -> Variable | None:
    match = _VARIABLE.search(statement)
    if match is None:
        return None
    space, align, kind, name, count, values = match.groups()
    numbers = [v.strip() for v in values.strip("{} \n").split(",")] if values else []
    try:
        size = SIZES[kind]
        initial = tuple(int(v[2:], 16) if v[:2].lower() in ("0f", "0d") else int(v, 0) for v in numbers)
    except (KeyError, ValueError):
        raise UnsupportedError(f"the emulator cannot read the variable {statement.strip()[:80]!r}") from None
    nbytes = size * int(count or (0 if count == "" else 1))
    return Variable(name, space, kind, nbytes, int(align or size), initial)


# ---- from a body to an entry ---------------------------------------------------------------------------------------


def _entry(
    function: _Function, parameters: str, directives: str, outside: str, functions: Mapping[str, _Function]
) -> Entry:
    """`outside` is the module's text outside functions, where its variables are declared."""
    entry = Entry(function.name)
    for align, kind, name, count in (m.groups() for m in _PARAMETER.finditer(parameters)):
        size = SIZES[kind] * int(count or 1)
        offset = -(-entry.parameter_bytes // int(align or SIZES[kind])) * int(align or SIZES[kind])
        entry.parameters[name] = offset, size
        entry.parameter_bytes = offset + size
    limits = {m[1]: [int(x) for x in m[2].split(",")] for m in _LIMIT.finditer(directives)}
    entry.cluster, *others = limits.get("reqnctapercluster", [1])
    if any(extent > 1 for extent in others):
        raise UnsupportedError(
            f"{entry.name} asks for clusters of {entry.cluster, *others} CTAs: the emulator knows those along x"
        )
    entry.threads = prod(limits.get("reqntid") or limits.get("maxntid") or [entry.threads])
    for statement in re.sub(r"\{[^{};]*\}", lambda m: m[0].replace(";", ","), outside).split(";"):
        if variable := _variable(statement):
            _place(entry, variable)
    _cut(entry, _Expansion(entry, functions).items(function))
    return entry


def _place(entry: Entry, variable: Variable) -> None:
    """Gives a variable its place in its state space."""
    name, align = variable.name, variable.align
    entry.variables.add(name)
    if variable.space == "shared" and not variable.nbytes:
        entry.dynamic, entry.dynamic_align = name, align
    elif variable.space == "shared":
        entry.shared[name] = -(-entry.shared_bytes // align) * align
        entry.shared_bytes = entry.shared[name] + variable.nbytes
    elif variable.space == "local":
        entry.local[name] = -(-entry.local_bytes // align) * align
        entry.local_bytes = entry.local[name] + variable.nbytes
    else:
        entry.constants[name] = variable


class _Expansion:
    """The items of a function with those of the functions that it calls in the calls' places, and parameters that pass
    between them as registers (PTX ISA, Control Flow Instructions: call)."""

    def __init__(self, entry: Entry, functions: Mapping[str, _Function]) -> None:
        self._entry, self._functions = entry, functions
        self._calls = 0
        self._open: list[str] = []

    def items(self, function: _Function, suffix: str = "") -> list[Item]:
        """Names get a suffix, but for those of variables: no function calls itself, so that one of each will do."""
        entry = self._entry
        for variable in function.variables:
            if variable.name not in entry.variables:
                _place(entry, variable)
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
        """The body of the function that is called, its parameters standing for the caller's, its returns for a branch behind
        it."""
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
        """Whether an access to parameter space is to what passes between functions, and not to what the kernel was given."""
        memory = next(o for o in item.operands if isinstance(o, Memory))
        return isinstance(memory.base, Symbol) and memory.base.name not in self._entry.parameters

    def _moved(self, item: Instruction) -> Instruction:
        """A load or store of a passed parameter as a conversion from or to the register that stands for it."""
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
        """The same, the registers that stand for parameters declared."""
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


def _cut(entry: Entry, items: Sequence[Item]) -> None:
    """Blocks, each of which only its last statement leaves."""
    block: list[Instruction] = []
    entry.blocks = [block]
    for item in items:
        if isinstance(item, str):
            if block:
                block = []
                entry.blocks.append(block)
            entry.labels[item] = len(entry.blocks) - 1
            continue
        if item.opcode[:2] in _WAITS | MASKED | WARPS | WARPGROUPS or item.opcode[:3] == ("barrier", "cluster", "wait"):
            block = entry.blocks[-1] if not block else []  # who waits comes back to the wait alone
            if block is not entry.blocks[-1]:
                entry.blocks.append(block)
        block.append(item)
        if (item.opcode[0] in _ENDS and item.opcode[1:2] != ("warp",)) or item.opcode[:2] in _WAITS:
            block = []
            entry.blocks.append(block)
