"""The table of words.toml, and where its private words stand in a source file."""

from __future__ import annotations

import ast
import io
import re
import tokenize
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import baracuda_py as bp

__all__ = ["PACKAGE", "Table", "Use", "Word", "uses_in"]

PACKAGE = Path(bp.__file__).resolve().parent
TABLE = Path(__file__).with_name("words.toml")


@dataclass(frozen=True)
class Word:
    """A private word, the word to write instead, and where to search. `stands` maps files that may keep it to the reason."""

    word: str
    use: str
    where: tuple[str, ...]
    exact: bool
    stands: dict[str, str]

    @cached_property
    def name(self) -> re.Pattern[str]:
        """The pattern of identifiers that contain the word."""
        text = re.escape(self.word)
        return re.compile(text) if self.exact else re.compile(rf"(?:.*_)?{text}(?:_.*)?", re.IGNORECASE)

    @cached_property
    def phrase(self) -> re.Pattern[str]:
        """The pattern of the word in prose."""
        text = r"\s+".join(map(re.escape, self.word.split()))
        return re.compile(rf"(?<![\w-]){text}(?![\w-])", 0 if self.exact else re.IGNORECASE)


@dataclass(frozen=True)
class Use:
    """A private word in a file."""

    word: Word
    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.word.word!r}: write {self.word.use}"


@dataclass(frozen=True)
class Table:
    """The words, and the files (relative to the package) that are free of them."""

    words: tuple[Word, ...]
    folders: tuple[str, ...]
    files: tuple[str, ...]

    @staticmethod
    def read() -> Table:
        table: dict[str, Any] = tomllib.loads(TABLE.read_text(encoding="utf-8"))
        words = (
            Word(
                entry["word"], entry["use"], tuple(entry["where"]), entry.get("exact", False),
                {at["file"]: at["why"] for at in entry.get("stands", [])},
            )
            for entry in table["word"]
        )  # fmt: skip
        return Table(tuple(words), tuple(table["folders"]), tuple(table["files"]))

    def paths(self) -> list[Path]:
        """The files that are read."""
        inside = [path for folder in self.folders for path in sorted((PACKAGE / folder).rglob("*.py"))]
        return [*inside, *(PACKAGE / name for name in self.files)]


def uses_in(text: str, words: tuple[Word, ...], file: str) -> Iterator[Use]:
    """The private words in a Python source, without those that may stand in that file."""
    kinds = {"identifiers": list(_identifiers(text)), "prose": list(_prose(text))}
    for word in words:
        if file in word.stands:
            continue
        for kind in word.where:
            pattern = word.name.fullmatch if kind == "identifiers" else word.phrase.search
            yield from (Use(word, file, line) for line, found in kinds[kind] if pattern(found))


def _tokens(text: str) -> Iterator[tokenize.TokenInfo]:
    return tokenize.generate_tokens(io.StringIO(text).readline)


def _identifiers(text: str) -> Iterator[tuple[int, str]]:
    yield from ((token.start[0], token.string) for token in _tokens(text) if token.type == tokenize.NAME)


def _prose(text: str) -> Iterator[tuple[int, str]]:
    """Comments, joined where they span lines, and docstrings; ``code`` in backquotes is left out."""
    for line, found in (*_comments(text), *_docstrings(text)):
        yield line, re.sub(r"``[^`]*``|`[^`]*`", "", found)


def _comments(text: str) -> Iterator[tuple[int, str]]:
    first, last, joined = 0, -1, ""
    for token in _tokens(text):
        if token.type == tokenize.COMMENT:
            line, found = token.start[0], token.string.lstrip("# ")
            if line == last + 1 and token.line.lstrip().startswith("#"):
                last, joined = line, f"{joined} {found}"
                continue
            if joined:
                yield first, joined
            first, last, joined = line, line, found
    if joined:
        yield first, joined


def _docstrings(text: str) -> Iterator[tuple[int, str]]:
    owners = ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, owners) and (found := ast.get_docstring(node, clean=False)):
            yield node.body[0].lineno, found
