"""The table of words.toml, and where its private words stand in a source file or a page."""

from __future__ import annotations

import ast
import io
import re
import tokenize
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import baracuda_py as bp

from .places import ROOT, TESTS

__all__ = ["PACKAGE", "ROOT", "Table", "Use", "Word", "uses_in", "uses_in_page", "uses_in_source"]

PACKAGE = Path(bp.__file__).resolve().parent
TABLE = TESTS / "words.toml"
_CUDA = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.DOTALL)  # comments and strings


@dataclass(frozen=True)
class Word:
    """A private word, the word to write instead, and where to search. `stands` maps files that may keep it to the reason."""

    word: str
    use: str
    where: tuple[str, ...]
    exact: bool
    stands: dict[str, str]

    @cached_property
    def first(self) -> str:
        """What a text that has it contains: a search for that is much faster than one for a pattern."""
        return self.word.split()[0].lower()

    @cached_property
    def spelled(self) -> re.Pattern[str]:
        """What a Python source that has it contains, before it is split into names and prose: comments may break it, code that
        prose leaves out may stand within."""
        text = r"(?:[\s#\\]|`[^`]*`)+".join(map(re.escape, self.word.split()))
        return re.compile(rf"(?<![^\W_]){text}(?![^\W_])", 0 if self.exact else re.IGNORECASE)

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
    """The words, and the files (relative to the package), tests and benchmarks, pages and CUDA sources (relative to the
    repository) that are free of them."""

    words: tuple[Word, ...]
    folders: tuple[str, ...]
    files: tuple[str, ...]
    tests: tuple[str, ...]
    globs: tuple[str, ...]
    sources: tuple[str, ...]

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
        return Table(
            tuple(words),
            tuple(table["folders"]),
            tuple(table["files"]),
            tuple(table["tests"]),
            tuple(table["pages"]),
            tuple(table["sources"]),
        )

    def paths(self) -> list[Path]:
        """The files that are read."""
        inside = [path for folder in self.folders for path in sorted((PACKAGE / folder).rglob("*.py"))]
        return [*inside, *(PACKAGE / name for name in self.files)]

    def outside(self) -> list[Path]:
        """The Python files beside the package that are read."""
        return [path for glob in self.tests for path in sorted(ROOT.glob(glob))]

    def kernels(self) -> list[Path]:
        """The CUDA sources that are read."""
        return [path for glob in self.sources for path in sorted(ROOT.glob(glob))]

    def pages(self) -> list[Path]:
        """The Markdown pages that are read."""
        return [path for glob in self.globs for path in sorted(ROOT.glob(glob))]


def uses_in(text: str, words: tuple[Word, ...], file: str) -> Iterator[Use]:
    """The private words in a Python source, without those that may stand in that file."""
    small = text.lower()
    words = tuple(word for word in words if word.first in small and word.spelled.search(text))
    if not words:
        return iter(())
    tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    names = [(token.start[0], token.string) for token in tokens if token.type == tokenize.NAME]
    prose = list(_prose(text, tokens)) if any("prose" in word.where for word in words) else []
    return _uses({"identifiers": names, "prose": prose}, words, file)


def uses_in_source(text: str, words: tuple[Word, ...], file: str) -> Iterator[Use]:
    """The private words in a CUDA source: in its code, and in its comments, joined where they span lines."""
    comments: list[tuple[int, str]] = []
    last = -1
    for found in _CUDA.finditer(text):
        if found[0][0] != '"':
            line = text.count("\n", 0, found.start()) + 1
            if line == last + 1:
                comments[-1] = comments[-1][0], f"{comments[-1][1]} {found[0].lstrip('/ ')}"
            else:
                comments.append((line, found[0]))
            last = line
    code = _CUDA.sub(lambda found: "\n" * found[0].count("\n"), text)
    names = [(i, name) for i, line in enumerate(code.splitlines(), 1) for name in re.findall(r"[^\W\d]\w*", line)]
    prose = [(line, _without_code(found)) for line, found in comments]
    return _uses({"identifiers": names, "prose": prose}, words, file)


def _uses(kinds: dict[str, list[tuple[int, str]]], words: tuple[Word, ...], file: str) -> Iterator[Use]:
    texts = {kind: "\n".join(text for _, text in held).lower() for kind, held in kinds.items()}
    for word in words:
        if file in word.stands:
            continue
        for kind in (kind for kind in word.where if word.first in texts[kind]):
            pattern = word.name.fullmatch if kind == "identifiers" else word.phrase.search
            yield from (Use(word, file, line) for line, found in kinds[kind] if pattern(found))


def uses_in_page(text: str, words: tuple[Word, ...], file: str) -> Iterator[Use]:
    """The private words in a Markdown page: in its paragraphs as in prose, and in its blocks of Python as in a source."""
    paragraphs, blocks = _parts(text)
    for word in words:
        if "prose" in word.where and file not in word.stands:
            yield from (Use(word, file, line) for line, found in paragraphs if word.phrase.search(_without_code(found)))
    for first, block in blocks:
        yield from (replace(use, line=use.line + first) for use in uses_in(block, words, file))


def _parts(text: str) -> tuple[list[tuple[int, str]], list[tuple[int, str]]]:
    """(paragraphs, blocks of Python) of a page, each with its line. List items and rows of tables are paragraphs."""
    paragraphs: list[tuple[int, str]] = []
    blocks: list[tuple[int, str]] = []
    fence, new = "", True
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("```"):
            fence, new = ("" if fence else line), True
            if fence in ("```python", "```py"):
                blocks.append((number, ""))
        elif fence in ("```python", "```py"):
            blocks[-1] = blocks[-1][0], f"{blocks[-1][1]}{line}\n"
        elif not fence:
            if new or re.match(r"\s*([-*#|]|\d+\.)", line):
                paragraphs.append((number, line))
            else:
                paragraphs[-1] = paragraphs[-1][0], f"{paragraphs[-1][1]} {line}"
            new = not line.strip()
    return paragraphs, blocks


def _without_code(text: str) -> str:
    return re.sub(r"``[^`]*``|`[^`]*`", "", text)


def _prose(text: str, tokens: Sequence[tokenize.TokenInfo]) -> Iterator[tuple[int, str]]:
    """Comments, joined where they span lines, and docstrings; ``code`` in backquotes is left out."""
    for line, found in (*_comments(tokens), *_docstrings(text)):
        yield line, _without_code(found)


def _comments(tokens: Sequence[tokenize.TokenInfo]) -> Iterator[tuple[int, str]]:
    first, last, joined = 0, -1, ""
    for token in tokens:
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
