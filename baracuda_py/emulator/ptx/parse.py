"""PTX text as data: the functions of a module, their statements in order, with names resolved.

It reads the PTX that NVRTC writes (PTX ISA, Syntax; Kernel and Function Directives; Control Flow Directives; Debugging
Directives: .loc). A statement keeps its line of PTX and, if NVRTC wrote line information, its line of CUDA.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from functools import lru_cache
from math import prod

from ...types import UnsupportedError
from .blocks import cut
from .inline import Inlined
from .syntax import (
    SIZES,
    Bits,
    Entry,
    Function,
    Instruction,
    Integer,
    Memory,
    Negated,
    Operand,
    Pair,
    Register,
    Sink,
    Special,
    Symbol,
    Variable,
    Vector,
)  # fmt: skip

__all__ = ["parse"]

PREDICATE = "pred"

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
_LABEL = re.compile(r"\s*([\w$]+)\s*:(?!:)")
_OPCODE = re.compile(r"[\w.:]+")
_ADDRESS = re.compile(r"(.+?)(?:\s*\+\s*(-?\d+))?$")
_TARGETS = re.compile(r"([\w$]+)\s*:\s*\.branchtargets\s+(.*)", re.S)
_LOC = re.compile(r"^\s*\.loc\s+(\d+)\s+(\d+)[^\n]*$", re.M)
_FILE = re.compile(r'^\s*\.file\s+(\d+)\s+"([^"]*)"[^\n]*$', re.M)
_UNREADABLE = (ValueError, LookupError, AttributeError, AssertionError)


def parse(text: str, entry: str = "") -> Entry:
    """An entry of a module, which must be the only one if it is not named."""
    end = text.find("\n\t.section")
    module = _Module(text if end < 0 else text[:end], _FILE.findall(text))
    functions: dict[str, Function] = {}
    kernels: dict[str, tuple[Function, str, str]] = {}
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
    """The position after the brace that closes one opened before `at`."""
    depth = 1
    for brace in _BRACE.finditer(text, at):
        depth += 1 if brace[0] == "{" else -1
        if not depth:
            return brace.end()
    return len(text)


class _Module:
    """The text without comments and line directives, and the line of CUDA for each position in it."""

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
        """The CUDA line of a position, from the last directive before it; `begin` is the start of its function."""
        i = bisect_right(self._marks, at) - 1
        return self._sources[i] if i >= 0 and self._marks[i] >= begin else ""


def _blank(match: re.Match[str]) -> str:
    return " " * len(match[0])


class _Body:
    """Reads a body. A name's scope is the braces that it is declared in; inline assembly opens such scopes."""

    def __init__(self, module: _Module, at: int, name: str, results: list[str], parameters: list[str]) -> None:
        self._module, self._begin = module, at
        self._parents: list[int | None] = [None]
        self._names: list[dict[str, str]] = [{}]
        self._known: dict[tuple[str, int], Operand] = {}
        self.function = Function(name, tuple(results), tuple(parameters), [], {}, [], {})
        text, place = "", at
        try:
            for text, scope, place in self._statements(at):
                if place < 0:
                    self.function.items.append(text)
                else:
                    self._read(text, scope, place)
        except _UNREADABLE:
            raise self._unreadable(text, place) from None

    def _unreadable(self, text: str, place: int) -> UnsupportedError:
        line = self._module.line(place)
        return UnsupportedError(f"the emulator cannot read {' '.join(text.split())!r} (line {line} of the PTX)")

    def _statements(self, at: int) -> list[tuple[str, int, int]]:
        """(text, scope, place) of each statement, place -1 for labels. Declarations are read too, since a use may come first."""
        found: list[tuple[str, int, int]] = []
        scopes, depth, text, place = [0], 0, "", at

        def unlabelled(text: str) -> str:
            while ":" in text and (match := _LABEL.match(text)) and ".branchtargets" not in text:
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
                    try:
                        self._declare(statement, scopes[-1])
                    except _UNREADABLE:
                        raise self._unreadable(statement, place) from None
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
        if targets := _TARGETS.match(text):
            function.targets[targets[1]] = tuple(self._resolve(name, scope) for name in _split(targets[2]))
            return
        text = " ".join(text.split())
        statement, guard, unless = text, "", False
        if text[0] == "@":
            mark, statement = text[1:].split(None, 1)
            unless, guard = mark[0] == "!", self._resolve(mark.lstrip("!"), scope)
        opcode = _OPCODE.match(statement)
        assert opcode is not None
        known = self._known
        operands = tuple([known.get((x, scope)) or self._operand(x, scope) for x in _split(statement[opcode.end() :])])
        line, source = self._module.line(place), self._module.source(place, self._begin)
        function.items.append(Instruction(_parts(opcode[0]), operands, guard, unless, text, line, source))

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
        if (name := self._resolve(text, scope)) in self.function.registers:  # most are
            return Register(name)
        if text[0] in "{(":
            return Vector(tuple(self._operand(x, scope) for x in _split(text[1:-1])))
        if text[0] == "[":
            first, *rest = _split(text[1:-1])
            base, offset = _ADDRESS.match(first).groups()  # type: ignore[union-attr]
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
        if text[0] in "-0123456789":
            return Integer(int(text.rstrip("U"), 0))
        return Special(name[1:]) if name[0] == "%" else Symbol(name)


@lru_cache(maxsize=4096)
def _parts(opcode: str) -> tuple[str, ...]:
    return tuple(opcode.split("."))


def _split(text: str) -> list[str]:
    """Splits at the commas outside brackets."""
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


def _entry(function: Function, parameters: str, directives: str, outside: str, functions: dict[str, Function]) -> Entry:
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
    entry.threads = prod(limits.get("maxntid") or [entry.threads])
    entry.block = (*limits["reqntid"], 1, 1)[:3] if "reqntid" in limits else ()
    for statement in re.sub(r"\{[^{};]*\}", lambda m: m[0].replace(";", ","), outside).split(";"):
        if variable := _variable(statement):
            entry.place(variable)
    cut(entry, Inlined(entry, functions).items(function))
    return entry
