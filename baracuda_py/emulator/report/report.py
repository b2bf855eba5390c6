"""The report of an emulated run, launch by launch."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from .counters import Counters

__all__ = ["LaunchReport", "Report"]


@dataclass
class LaunchReport:
    """One launch. `instructions` are thread instructions by opcode; `accesses` maps a kind to [warp instructions, units, least
    units that would suffice]: sectors of 32 bytes for operands, wavefronts for shared memory (empty if they were not counted)."""

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    counters: Counters

    @property
    def instructions(self) -> Counter[str]:
        return self.counters.instructions

    @property
    def accesses(self) -> dict[str, list[int]]:
        return self.counters.accesses

    @property
    def barriers(self) -> int:
        """Arrivals of warps at barriers."""
        return self.counters.barriers

    @property
    def lines(self) -> Counter[str]:
        """Thread instructions by "file:line" of the CUDA source."""
        return self.counters.lines

    @property
    def turns(self) -> Counter[str]:
        """How often threads went back to the beginning of a loop, by "file:line" of the branch."""
        return self.counters.turns


@dataclass
class Report:
    """All launches of a run, and the seconds of emulation."""

    op: str
    arch: str
    launches: list[LaunchReport] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def instructions(self) -> Counter[str]:
        return sum((each.instructions for each in self.launches), Counter())

    @property
    def lines(self) -> Counter[str]:
        return sum((each.lines for each in self.launches), Counter())

    @property
    def turns(self) -> Counter[str]:
        return sum((each.turns for each in self.launches), Counter())

    def __str__(self) -> str:
        text = [f"{self.op} emulated for {self.arch}: {len(self.launches)} launches, {self.seconds:.2f} s"]
        for each in self.launches:
            total = sum(each.instructions.values())
            text.append(f"{each.kernel}, grid {each.grid}, block {each.block}: {total:,} thread instructions")
            text.append("  " + ", ".join(f"{name} {n:,}" for name, n in each.instructions.most_common(12)))
            for what, (count, units, ideal) in sorted(each.accesses.items()):
                unit = "wavefronts" if what.endswith("shared") else "sectors"
                text.append(f"  {what}: {count:,} by warps, {units:,} {unit}, {ideal:,} would do")
            if each.barriers:
                text.append(f"  barriers: {each.barriers:,} by warps")
        return "\n".join(text)
