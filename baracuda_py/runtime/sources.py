"""The texts of the kernels: where they are, what they include, and the hash that names a version of one."""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache
from pathlib import Path

from ..types import CompileError
from .steps import Kernel

__all__ = ["Source", "kernels_dir", "source_of"]

_INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)
_SYSTEM = re.compile(r"^\s*#\s*include\s*<([^>]+)>", re.MULTILINE)
_STRING_OR_COMMENT = re.compile(r'"(?:\\.|[^"\\\n])*"|//[^\n]*|/\*.*?\*/', re.DOTALL)


@lru_cache(maxsize=1)
def kernels_dir() -> Path:
    """The folder of ``.cu`` files: inside an installed wheel, or at the top of a checkout."""
    package = Path(__file__).resolve().parent.parent
    inside = package / "kernels"
    return inside if inside.is_dir() else package.parent / "kernels"


class Source:
    """A kernel file with its quoted headers, read once."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.text = _read(kernels_dir() / file)
        self.headers: dict[str, str] = {}
        self.system: set[str] = set(_SYSTEM.findall(self.text))
        pending = _INCLUDE.findall(self.text)
        while pending:
            name = pending.pop()
            if name not in self.headers:
                self.headers[name] = text = _read(kernels_dir() / "include" / name)
                pending += _INCLUDE.findall(text)
                self.system |= set(_SYSTEM.findall(text))
        texts = [(file, self.text), *sorted(self.headers.items())]
        self._digest = _sha256(*(part for name, text in texts for part in (name, _code(text))))
        self._exact_digest = _sha256(*(part for named in texts for part in named))

    def digest(self, prelude: str = "") -> str:
        """SHA-256 of our code: the file and the headers it reaches, without comments, and the prelude.

        So words about a kernel can be fixed, and what was built, tested and measured of it still counts.
        """
        return _sha256(self._digest + prelude)

    def exact_digest(self, prelude: str = "") -> str:
        """SHA-256 of our code to the letter, for what tells its lines apart."""
        return _sha256(self._exact_digest + prelude)

    def program(self, prelude: str = "") -> str:
        """The text NVRTC compiles; a prelude keeps its own line numbers."""
        return f'#line 1 "prelude"\n{prelude}\n#line 1 "{self.file}"\n{self.text}' if prelude else self.text


@lru_cache(maxsize=256)
def _source(file: str) -> Source:
    return Source(file)


def source_of(kernel: Kernel) -> Source:
    """The source of `kernel`; CompileError if its file is missing."""
    return _source(kernel.file)


def _sha256(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _code(text: str) -> str:
    """`text` without comments and blank lines."""
    bare = _STRING_OR_COMMENT.sub(lambda found: found[0] if found[0].startswith('"') else " ", text)
    return "\n".join(line.rstrip() for line in bare.splitlines() if line.strip())


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CompileError(f"kernel source {path.name} cannot be read ({error}): reinstall the package") from None
