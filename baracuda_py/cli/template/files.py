"""Fills in the names of a family and its op, in a checkout or in a package of its own."""

from __future__ import annotations

import keyword
import re
from dataclasses import dataclass
from pathlib import Path

from ...types import InvalidProblemError

__all__ = ["Names", "checkout_files", "package_files"]

HERE = Path(__file__).resolve().parent
NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
LONGEST = 24  # characters of a name, so that no line of the texts becomes too long


@dataclass(frozen=True)
class Names:
    """The names that the texts leave open."""

    family: str
    op: str

    @staticmethod
    def of(text: str) -> Names:
        """The names in ``family/op``; InvalidProblemError if they cannot be those of modules."""
        family, _, op = text.partition("/")
        for name in (family, op):
            if not NAME.fullmatch(name) or keyword.iskeyword(name) or len(name) > LONGEST:
                raise InvalidProblemError(
                    f"{text!r} does not name a family and an op",
                    f"give two names such as loss/cross_entropy, of small letters, digits and _, {LONGEST} at most",
                )
        return Names(family, op)

    @property
    def camel(self) -> str:
        return "".join(part.capitalize() for part in self.op.split("_"))

    def filled(self, text: str) -> str:
        return text.replace("__family__", self.family).replace("__op__", self.op).replace("__Op__", self.camel)


def _filled(names: Names, places: dict[str, str]) -> dict[str, str]:
    return {to: names.filled((HERE / f"{text}.txt").read_text(encoding="utf-8")) for text, to in places.items()}


def checkout_files(names: Names) -> dict[str, str]:
    """The files of a family of rows in a checkout of this package, by their paths."""
    family, op = names.family, names.op
    return _filled(
        names,
        {
            "rows/kernel.cu": f"kernels/{family}/{op}.cu",
            "rows/init.py": f"baracuda_py/ops/{family}/__init__.py",
            "rows/op.py": f"baracuda_py/ops/{family}/{op}.py",
            "rows/oracle.py": f"baracuda_py/ops/{family}/oracle.py",
            "rows/samples.py": f"baracuda_py/ops/{family}/samples.py",
            "rows/checks.py": f"tests/families/{family}.py",
            "rows/mutants.toml": f"tests/families/{family}.toml",
        },
    )


def package_files(names: Names) -> dict[str, str]:
    """The files of a package of its own, which uses an installed baracuda_py: the same op, oracle, samples and kernel."""
    family, op = names.family, names.op
    return _filled(
        names,
        {
            "package/init.py": f"{family}/__init__.py",
            "package/test.py": f"tests/{family}_test.py",
            "rows/kernel.cu": f"{family}/kernels/{family}/{op}.cu",
            "rows/op.py": f"{family}/{op}.py",
            "rows/oracle.py": f"{family}/oracle.py",
            "rows/samples.py": f"{family}/samples.py",
        },
    )
