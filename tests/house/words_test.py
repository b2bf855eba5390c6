"""The words of the code: no private word of words.toml stands in the files and pages that are free of them."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from ..words import PACKAGE, ROOT, Table, Word, uses_in, uses_in_page, uses_in_source

TABLE = Table.read()
GLOSSARY = ROOT / "docs" / "glossary.md"

SLAB = Word("slab", "k_block", ("identifiers", "prose"), False, {"kept.py": "a reason"})
WAYS = Word("Ways", "SignatureRules", ("identifiers",), True, {})
PHRASE = Word("side by side", "contiguous", ("prose",), False, {})


def test_words_table_is_kept() -> None:
    found = [
        str(use)
        for path in TABLE.paths()
        for use in uses_in(path.read_text(encoding="utf-8"), TABLE.words, path.relative_to(PACKAGE).as_posix())
    ]
    assert not found, "\n".join(found)


def test_words_table_is_kept_by_tests_and_benchmarks() -> None:
    files = TABLE.outside()
    assert {"tests", "benchmarks"} == {path.relative_to(ROOT).parts[0] for path in files} and len(files) > 300
    found = [
        str(use)
        for path in files
        for use in uses_in(path.read_text(encoding="utf-8"), TABLE.words, path.relative_to(ROOT).as_posix())
    ]
    assert not found, "\n".join(found)


def test_words_table_is_kept_by_pages() -> None:
    pages = TABLE.pages()
    assert {path.name for path in pages} >= {
        "README.md",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
        "glossary.md",
        "emulator.md",
    }
    found = [
        str(use)
        for path in pages
        for use in uses_in_page(path.read_text(encoding="utf-8"), TABLE.words, path.relative_to(ROOT).as_posix())
    ]
    assert not found, "\n".join(found)


def test_words_table_is_kept_by_kernels() -> None:
    kernels = TABLE.kernels()
    assert len(kernels) > 100, "the search finds the sources"
    found = [
        str(use)
        for path in kernels
        for use in uses_in_source(path.read_text(encoding="utf-8"), TABLE.words, path.relative_to(ROOT).as_posix())
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("text", "word", "lines"),
    [
        ("u32 next_slab = SLAB;\n", SLAB, [1, 1]),
        ("// one\n// slab\n", SLAB, [1]),
        ("a;  // `slab`\nb;\n/* a\nslab */ c;\n", SLAB, [3]),
        ('asm volatile("slab");\n', SLAB, []),
        ("// rows lie side\n// by side\n", PHRASE, [1]),
    ],
)
def test_words_search_reads_kernels(text: str, word: Word, lines: list[int]) -> None:
    assert [use.line for use in uses_in_source(text, (word,), "a.cu")] == lines


def test_words_table_names_each_word_once() -> None:
    assert [word for word, times in Counter(word.word for word in TABLE.words).items() if times > 1] == []
    assert len(TABLE.paths()) > 100, "the search finds the files"


def test_words_exceptions_are_needed() -> None:
    for word in TABLE.words:
        for file, why in word.stands.items():
            bare = Word(word.word, word.use, word.where, word.exact, {})
            search = uses_in if file.endswith(".py") else uses_in_source
            root = PACKAGE if (PACKAGE / file).exists() else ROOT
            assert why and list(search((root / file).read_text(encoding="utf-8"), (bare,), file)), (
                f"{word.word}: {file}"
            )


@pytest.mark.parametrize(
    ("text", "word", "lines"),
    [
        ("slab = 1\n", SLAB, [1]),
        ("a = 1\nnext_slab = SLAB_BYTES\n", SLAB, [2, 2]),
        ("slabs = slabby = 1\n", SLAB, []),
        ("a = 1  # one slab\n", SLAB, [1]),
        ("# the first line\n# a Slab.\na = 1\n", SLAB, [1]),
        ('def f():\n    """A slab."""\n', SLAB, [2]),
        ('a = "a slab"\n', SLAB, []),
        ("# `slab` is the old name\n", SLAB, []),
        ("Ways = ways = 1\n", WAYS, [1]),
        ("# rows lie side\n# by side\n", PHRASE, [1]),
    ],
)
def test_words_search_finds_each_form(text: str, word: Word, lines: list[int]) -> None:
    assert [use.line for use in uses_in(text, (word,), "a.py")] == lines
    assert not list(uses_in(text, (word,), "kept.py")) or not word.stands


@pytest.mark.parametrize(
    ("text", "word", "lines"),
    [
        ("# A slab\n", SLAB, [1]),
        ("Rows are stored side\nby side.\n", PHRASE, [1]),
        ("Rows are stored side\n\nby side.\n", PHRASE, []),
        ("- one\n- a slab\n", SLAB, [2]),
        ("| term | meaning |\n|---|---|\n| a | a slab |\n", SLAB, [3]),
        ("The name `slab` and\n`a\nslab`.\n", SLAB, []),
        ("```sh\nslab\n```\n", SLAB, []),
        ("Text.\n```python\na = 1\nnext_slab = 2  # a slab\n```\nA slab.\n", SLAB, [6, 4, 4]),
        ("```py\nWays = 1\n```\nWays.\n", WAYS, [2]),
    ],
)
def test_words_search_reads_pages(text: str, word: Word, lines: list[int]) -> None:
    assert [use.line for use in uses_in_page(text, (word,), "a.md")] == lines
    assert not list(uses_in_page(text, (word,), "kept.py")) or not word.stands


def test_words_glossary_explains_in_order() -> None:
    """Each entry is one line, explained, and in alphabetical order within its section."""
    for section in GLOSSARY.read_text(encoding="utf-8").split("\n## ")[1:]:
        rows = [line for line in section.splitlines() if line.startswith("| **")]
        terms = [match[1].lower() for line in rows if (match := re.match(r"\| \*\*(.+?)\*\* \| .{20,} \|$", line))]
        assert len(terms) == len(rows) >= 3, section.splitlines()[0]
        assert terms == sorted(terms), section.splitlines()[0]
