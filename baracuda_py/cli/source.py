"""Shows source lines: those around a fault, and those that were executed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..plan.selection import Selection
    from ..types import KernelFault

__all__ = ["show_lines", "show_source"]

_AROUND = 2  # lines shown before and after the one at fault


def _texts(plan: Selection) -> dict[str, list[str]]:
    """The lines of every file that the plan's kernels are made of, by the names that PTX knows them by."""
    from ..runtime.compile.sources import source_of

    texts: dict[str, str] = {}
    for kernel in (launch.kernel for launch in plan.launches):
        source = source_of(kernel)
        texts |= {kernel.file: source.text, "prelude": kernel.prelude}
        texts |= {f"include/{name}": text for name, text in source.headers.items()}
    return {file: text.splitlines() for file, text in texts.items()}


def _place(line: str) -> tuple[str, int]:
    """``"gemm/tc.cu:88"`` as a file and a number."""
    file, _, number = line.rpartition(":")
    return file, int(number) if number.isdecimal() else 0


def show_source(plan: Selection, fault: KernelFault) -> None:
    """The lines around the one at fault."""
    file, at = _place(fault.source)
    lines = _texts(plan).get(file, [])
    for number in range(max(1, at - _AROUND), min(len(lines), at + _AROUND) + 1):
        print(f"{'>' if number == at else ' '} {file}:{number}  {lines[number - 1].rstrip()}")


def show_lines(plan: Selection, counts: Mapping[str, int]) -> None:
    """Shows each executed line, by file, with its count of thread instructions."""
    from .terminal import console, show_table

    texts = _texts(plan)
    rows = []
    for line, count in sorted(counts.items(), key=lambda item: _place(item[0])):
        file, number = _place(line)
        text = texts.get(file, [])[number - 1 : number] if number else []
        rows.append((line, f"{count:,}", *(text or [""])))
    show_table(console(), ("line", ">thread instructions", "source"), rows, title="lines that ran")
