"""Which lines of the kernels the emulated gauntlet executes, and which loops it goes round more than once.

``python -m tests.kernel_lines FOLDER`` after a run of the tests with BARACUDA_KERNEL_LINES=FOLDER lists the others, and fails
where a line is not among the exceptions of kernels/unexecuted.txt or where one of these was executed. ``--write`` makes that
file again.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .places import ROOT

__all__ = ["Executed", "main"]

EXCEPTIONS = ROOT / "kernels" / "unexecuted.txt"
FOLDER = "BARACUDA_KERNEL_LINES"
LOOPED = " again"  # behind a line: the loop that ends there, gone round once more


class Executed:
    """Lines of kernels that were translated, and how often threads executed each; with `LOOPED` behind it, how often they went
    back from a loop's end to its beginning. What only a second turn can get wrong is executed by no loop of one turn."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def add(self, plan: Any, report: Any) -> None:
        """The lines that a run of a plan executed, and all that its kernels have."""
        from baracuda_py.emulator.launch import translated
        from baracuda_py.runtime.steps import Launch

        if FOLDER not in os.environ:
            return
        for step in plan.selection.steps:
            if isinstance(step, Launch):
                code = translated(step.kernel, plan.device.arch)
                for instruction in code.instructions:
                    self.counts[instruction.source] += 0
                for source in loops_of(code):
                    self.counts[source + LOOPED] += 0
        self.counts.update(report.lines)
        self.counts.update({source + LOOPED: turns for source, turns in report.turns.items()})

    def save(self) -> None:
        if folder := os.environ.get(FOLDER):
            Path(folder).mkdir(parents=True, exist_ok=True)
            (Path(folder) / f"{os.getpid()}.json").write_text(json.dumps(self.counts))


def loops_of(code: Any) -> Iterator[str]:
    """The lines at which loops end, but for those that wait for a barrier."""
    for at, block in enumerate(code.blocks):
        if block.kind == "bra" and 0 <= block.target <= at and code.blocks[block.target].kind != "wait":
            yield code.instructions[block.number].source


def lines_of(folder: Path) -> Counter[str]:
    counts: Counter[str] = Counter()
    for path in folder.glob("*.json"):
        for line, count in json.loads(path.read_text()).items():
            if line.removesuffix(LOOPED) and not line.removesuffix(LOOPED).endswith(
                ":0"
            ):  # what the compiler made up has no line
                counts[line] += count
    return counts


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--write", action="store_true", help="make the list of exceptions again")
    given = parser.parse_args()
    counts = lines_of(given.folder)
    if not counts:
        print(f"no lines in {given.folder}: run the tests with {FOLDER} set")
        return 1
    missed = sorted((line for line, count in counts.items() if not count), key=_place)
    print(f"{len(counts) - len(missed)} of {len(counts)} lines of kernels were executed")
    if given.write:
        EXCEPTIONS.write_text("".join(f"{line}\n" for line in missed))
        return 0
    known = set(EXCEPTIONS.read_text().splitlines())
    new, gone = [line for line in missed if line not in known], sorted(known - set(missed), key=_place)
    for line in new:
        print(f"{line} is executed by no sample")
    for line in gone:
        print(f"{line} is executed, or gone: take it out of {EXCEPTIONS.name}")
    return 1 if new or gone else 0


def _place(line: str) -> tuple[str, int]:
    file, _, number = line.removesuffix(LOOPED).rpartition(":")
    return file, int(number)


if __name__ == "__main__":
    sys.exit(main())
