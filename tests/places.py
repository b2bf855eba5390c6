"""Where the repository and the test files are."""

from __future__ import annotations

from functools import cache
from pathlib import Path

__all__ = ["ROOT", "TESTS", "file_of", "files_of_tests"]

TESTS = Path(__file__).resolve().parent
ROOT = TESTS.parent


@cache
def files_of_tests() -> dict[str, Path]:
    """Every file of tests by its name, which no two of them share: lists and records name tests by it."""
    return {path.name: path for path in sorted(TESTS.rglob("*_test.py"))}


def file_of(name: str) -> str:
    """The file of some tests, for pytest: ``tests/<folder>/<name>_test.py``."""
    return files_of_tests()[f"{name}_test.py"].relative_to(ROOT).as_posix()
