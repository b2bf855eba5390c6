"""The sources of the kernels: their folder, their includes, and the digests that identify a version."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from ...types import CompileError
from ..steps import Kernel

if TYPE_CHECKING:
    from .reach import Reach

__all__ = ["Source", "add_kernels_dir", "kernels_dir", "source_of"]

_INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)
_SYSTEM = re.compile(r"^\s*#\s*include\s*<([^>]+)>", re.MULTILINE)
_STRING_OR_COMMENT = re.compile(r'"(?:\\.|[^"\\\n])*"|//[^\n]*|/\*.*?\*/', re.DOTALL)


@lru_cache(maxsize=1)
def kernels_dir() -> Path:
    """The folder of ``.cu`` files: inside an installed wheel, or at the top of a checkout."""
    package = Path(__file__).resolve().parents[2]
    inside = package / "kernels"
    return inside if inside.is_dir() else package.parent / "kernels"


_ADDED: list[Path] = []  # folders of kernels of other packages


def add_kernels_dir(folder: str | Path) -> None:
    """Makes the ``.cu`` files of another package known by their paths below `folder`. Headers in its ``include/`` can be included
    by them, beside this package's own. Raises CompileError if `folder` does not exist or has a file of the same path as another
    folder of kernels."""
    added = Path(folder).resolve()
    if not added.is_dir():
        raise CompileError(f"{added} is no folder of kernels: pass the folder that holds the .cu files")
    if added in _ADDED:
        return
    names = {path.relative_to(added) for path in added.rglob("*.cu*")}
    for other in (kernels_dir(), *_ADDED):
        twice = sorted(str(name) for name in names if (other / name).is_file())
        if twice:
            raise CompileError(f"{added} and {other} both have {', '.join(twice)}: rename those in {added}")
    _ADDED.append(added)


def _found(name: str | Path) -> Path:
    """The file of that path, in this package's folder of kernels or in one that was added."""
    own = kernels_dir() / name
    return next((path for folder in _ADDED if not own.is_file() and (path := folder / name).is_file()), own)


class Source:
    """The text that NVRTC compiles for a kernel: a prelude, a kernel file, and the quoted headers of both. `base` is a source
    of the same file, whose headers are not read again."""

    def __init__(self, file: str, prelude: str = "", base: Source | None = None) -> None:
        self.file, self.prelude = file, prelude
        self.text: str = base.text if base else _read(_found(file))
        self.headers: dict[str, str] = {}
        pending = [*_included(self.text), *_included(prelude)]
        while pending:
            name = pending.pop()
            if name not in self.headers:
                held = base.headers.get(name) if base else None
                self.headers[name] = _read(_found(Path("include") / name)) if held is None else held
                pending += _included(self.headers[name])
        self.system = {name for text in (self.text, prelude, *self.headers.values()) for name in _system(text)}

    @property
    def program(self) -> str:
        """The text NVRTC compiles; a prelude keeps its own line numbers."""
        if not self.prelude:
            return self.text
        return f'#line 1 "prelude"\n{self.prelude}\n#line 1 "{self.file}"\n{self.text}'

    def digest(self, entry: str) -> str:
        """SHA-256 of the definitions that `entry` and the prelude reach.

        So records of a kernel stay valid when a header gets definitions for other kernels, or when comments change.
        definitions.py finds the reached definitions.
        """
        return self._reach.digest(entry)

    def reached(self, entry: str) -> frozenset[str]:
        """The names of the definitions that `digest` is of."""
        return self._reach.names(entry)

    @cached_property
    def _reach(self) -> Reach:
        from .reach import Reach  # imported late: needed only to check records

        return Reach(self.prelude, self.text, self.headers)

    @cached_property
    def code_digest(self) -> str:
        """SHA-256 of the whole source without comments, reached or not: everything that NVRTC's output may depend on."""
        return self._sha256(_code)

    @cached_property
    def exact_digest(self) -> str:
        """SHA-256 of the source text itself, for outputs with line numbers."""
        return self._sha256(str)

    def _sha256(self, form: Callable[[str], str]) -> str:
        texts = [(self.file, self.text), *sorted(self.headers.items())]
        parts = [part for name, text in texts for part in (name, form(text))]
        return hashlib.sha256("\0".join([*parts, self.prelude]).encode()).hexdigest()


@lru_cache(maxsize=1024)
def _included(text: str) -> tuple[str, ...]:
    return tuple(_INCLUDE.findall(text))


@lru_cache(maxsize=1024)
def _system(text: str) -> tuple[str, ...]:
    return tuple(_SYSTEM.findall(text))


@lru_cache(maxsize=2048)
def _source(file: str, prelude: str) -> Source:
    return Source(file, prelude, _source(file, "") if prelude else None)


def source_of(kernel: Kernel) -> Source:
    """The source of `kernel`; CompileError if one of its files is missing."""
    return _source(kernel.file, kernel.prelude)


def _code(text: str) -> str:
    """`text` without comments and blank lines."""
    bare = _STRING_OR_COMMENT.sub(lambda found: found[0] if found[0].startswith('"') else " ", text)
    return "\n".join(line.rstrip() for line in bare.splitlines() if line.strip())


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CompileError(f"kernel source {path.name} cannot be read ({error}): reinstall the package") from None
