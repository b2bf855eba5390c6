"""The list of mutants: data in the families' .toml files and in this folder's, and why some cannot be noticed in survivors.toml.

A ``[[file]]`` says which file its mutants edit and which tests look at it first: ``wanted`` problems and ``ops`` of the emulated
gauntlet, and ``tests``, arguments of pytest. Each ``[[file.mutant]]`` has a name, a kind, the text that is replaced and the text
that takes its place; where the text is there more than once, ``occurrence`` says which is meant, from 1. A mutant's own lists
take the place of its file's; its ``note`` says which problems reach it.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from baracuda_py.runtime.compile.sources import _code

from ..places import ROOT, file_of

__all__ = ["CONTROLS", "ROOT", "Mutant", "catalogue", "files", "survivors"]

HERE = Path(__file__).resolve().parent
SURVIVORS = HERE / "survivors.toml"
KINDS = (
    "bounds",  # an access, a loop or a limit goes too far, or not far enough
    "index",  # the wrong element, lane, register, matrix or operand
    "stride",  # strides, pitches and offsets
    "sync",  # barriers, fences, waits, phases
    "stages",  # the trip count of a loop, what a stage holds, which part of K is whose
    "swizzle",  # where shared memory holds what
    "numerics",  # constants, roundings, special values
    "epilogue",  # what happens to a sum on its way out
    "grid",  # CTAs, shared bytes, arguments
    "align",  # which accesses are as wide as they may be
    "bound",  # what is promised of a result
    "check",  # what is refused
    "key",  # what distinguishes plans, calls and files
    "choice",  # which candidate serves
    "oracle",  # the NumPy back end
    "reading",  # arrays as other libraries describe them
)


@dataclass(frozen=True)
class Mutant:
    """One edit. `wanted` problems and `ops` run what was edited on the emulator; `tests` are asked beside them."""

    name: str
    kind: str
    file: str
    old: str
    new: str
    occurrence: int = 0
    wanted: tuple[str, ...] = ()
    ops: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()
    note: str = ""

    @property
    def in_kernel(self) -> bool:
        return self.file.startswith("kernels/")

    def applied(self, text: str) -> str:
        """`text` with the edit; ValueError where it is not there, or there more often than `occurrence` says."""
        pieces = text.split(self.old)
        if len(pieces) < 2 or (len(pieces) > 2 and not self.occurrence) or len(pieces) <= self.occurrence:
            raise ValueError(f"{self.name}: {self.file} has its text {len(pieces) - 1} times: {self.old!r}")
        at = self.occurrence or 1
        return self.old.join(pieces[:at]) + self.new + self.old.join(pieces[at:])

    def complaint(self) -> str:
        """What is wrong with the mutant as the file now is; "" where it applies, reads as code and changes it."""
        text = _text_of(self.file)
        try:
            changed = self.applied(text)
        except ValueError as error:
            return str(error)
        if self.in_kernel:
            broken = any(changed.count(a) - text.count(a) != changed.count(b) - text.count(b) for a, b in ("()", "{}"))
            same = _code(changed) == _code(text)
        else:
            broken, same = not _parses(changed), _bare(self.old) == _bare(self.new)
        return f"{self.name}: the edit {'is no code' if broken else 'changes nothing'}" if broken or same else ""


@lru_cache(maxsize=256)
def _text_of(file: str) -> str:
    return (ROOT / file).read_text(encoding="utf-8")


def _parses(text: str) -> bool:
    try:
        ast.parse(text)
    except SyntaxError:
        return False
    return True


def _bare(text: str) -> str:
    """Python without comments and white space, near enough."""
    return re.sub(r"#.*|\s", "", text)


def _read(path: Path) -> Iterator[Mutant]:
    for file in tomllib.loads(path.read_text(encoding="utf-8")).get("file", []):
        for given in file["mutant"]:
            yield _mutant(file, dict(given))


def _mutant(file: dict[str, Any], given: dict[str, Any]) -> Mutant:
    asked: dict[str, Any] = {name: tuple(given.pop(name, file.get(name, ()))) for name in ("wanted", "ops", "tests")}
    return Mutant(file=file["path"], **asked, **given)


@lru_cache(maxsize=1)
def catalogue() -> tuple[Mutant, ...]:
    """Every mutant, in the order of the files."""
    return tuple(mutant for path in files() for mutant in _read(path))


def files() -> list[Path]:
    """The lists: of each family, and of what belongs to none."""
    families = HERE.parent / "families"
    return [*sorted(families.rglob("*.toml")), *(path for path in sorted(HERE.glob("*.toml")) if path != SURVIVORS)]


@lru_cache(maxsize=1)
def survivors() -> dict[str, str]:
    """Why a mutant cannot be noticed, by its name."""
    return dict(tomllib.loads(SURVIVORS.read_text(encoding="utf-8")))


# Edits that change no result. What notices them notices that something was edited, and so says nothing of the others.
CONTROLS = (
    Mutant(
        "control-kernel", "control", "kernels/include/core/dtype.cuh", "using i8 = signed char;",
        "using i8 = signed char;\nusing not_used_anywhere = i8;", ops=("add",),
    ),
    Mutant(
        "control-host", "control", "baracuda_py/ops/_launch.py", "WORD = 16  #", "_NOT_USED = 0\nWORD = 16  #",
        tests=(file_of("walked"),),
    ),
)  # fmt: skip
