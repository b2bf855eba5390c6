"""The Python of the README and of docs/, block by block; ``python -m tests.readme`` prints it as one program."""

from __future__ import annotations

import re
from pathlib import Path

from .places import ROOT

__all__ = ["ROOT", "blocks", "pages", "program"]


def pages() -> list[Path]:
    """The pages that a user reads."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page: Path, language: str = "python") -> list[str]:
    """The fenced blocks of one language."""
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def program() -> str:
    """All blocks, each a function of its own, to be type-checked."""
    lines = []
    for number, block in enumerate(b for page in pages() for b in blocks(page)):
        lines += [f"def block_{number}() -> None:", *(f"    {line}".rstrip() for line in block.splitlines()), "", ""]
    return "\n".join(lines)


if __name__ == "__main__":
    print(program())
