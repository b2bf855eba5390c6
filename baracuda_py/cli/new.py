"""Writes a family of ops to begin with: ``python -m baracuda_py.cli.new FAMILY/OP --rows``.

In a checkout it writes kernels/FAMILY, baracuda_py/ops/FAMILY and tests/families/FAMILY, and then the generated files and the
record of the kernels' registers. With ``--package FOLDER`` it writes a package of its own there, for an installed baracuda_py.
The family computes a row operation and its gradients, and passes every test; docs/adding-an-op.md explains the files.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..types import BaracudaError, InvalidProblemError
from .template import Names, checkout_files, package_files

__all__ = ["main", "write"]

CHECKOUT = Path(__file__).resolve().parents[2]


def write(root: Path, files: Mapping[str, str]) -> list[Path]:
    """Writes the files below `root`; raises InvalidProblemError, and writes none, if one of them exists."""
    existing = [path for path in files if (root / path).exists()]
    if existing:
        raise InvalidProblemError(f"{existing[0]} exists", "give the family another name")
    written = [root / path for path in files]
    for path, text in zip(written, files.values()):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return written


def _steps(names: Names) -> list[list[str]]:
    """The commands that complete a family in a checkout."""
    ops = (names.op, f"{names.op}_backward")
    return [["-m", "baracuda_py.cli.generate"], ["-m", "tests.resources", *ops]]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m baracuda_py.cli.new", description=__doc__.partition("\n")[0])
    parser.add_argument("name", metavar="FAMILY/OP", help="such as loss/cross_entropy")
    parser.add_argument("--rows", action="store_true", required=True, help="each result depends on a row of elements")
    parser.add_argument("--package", type=Path, metavar="FOLDER", help="write a package of its own into this folder")
    given = parser.parse_args(arguments)
    try:
        names = Names.of(given.name)
        if given.package is None and not (CHECKOUT / "tests/families").is_dir():
            raise InvalidProblemError(f"{CHECKOUT} is no checkout of baracuda_py", "--package FOLDER")
        files = checkout_files(names) if given.package is None else package_files(names)
        written = write(given.package or CHECKOUT, files)
    except BaracudaError as error:
        parser.error(str(error))
    print("\n".join(f"wrote {path}" for path in written))
    if given.package is not None:
        print(f"next: pip install baracuda-py pytest, then in {given.package}: python -m pytest tests")
        return 0
    for step in _steps(names):
        print(" ".join(["python", *step]), flush=True)
        code = subprocess.run([sys.executable, *step], cwd=CHECKOUT, check=False).returncode
        if code:
            return code
    print(f"next: python -m pytest --op {names.op} --op {names.op}_backward, and docs/adding-an-op.md")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
