"""Which runs on the emulator are known to be right: ``kernels/records/<op>.json``, section ``emulated``.

What a run gives follows from what its plan launches, the data of its sample, and the code that emulates and judges (`judges`).
So a run of which none of these has changed need not be made at every push: ``--changed`` leaves it out, ``--full`` alone makes
all of them, and ``--full --record`` writes down those that passed.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import pytest

from baracuda_py.plan.about.digest import lowered_digest

from . import records
from .gauntlet import Problem
from .judges import judged_by

__all__ = ["PROPERTY", "Known", "Recorder", "run_of"]

PROPERTY = "emulated"  # of a report: [op, run] of each run that its test made or left out
SECTION = "emulated"  # of an op's record
DIGITS = 10


def run_of(problem: Problem, plan: Any, way: str) -> str:
    """The digest of one run: the operands' bytes, what is launched, arch, and the `way` the emulator goes (an order, a seed)."""
    parts = (problem.op.name, problem.sample.label, lowered_digest(plan.selection.steps), plan.device.arch, way)
    digest = hashlib.sha256("\0".join(parts).encode())
    for name, slot in problem.slots.items():
        digest.update(name.encode() + slot.host().tobytes())
    return digest.hexdigest()[:DIGITS]


@lru_cache(maxsize=256)
def _known(op: str) -> frozenset[str]:
    section = records.read(records.records_dir(), op).get(SECTION, {})
    return frozenset(section.get("runs", "").split()) if section.get("judged_by") == judged_by(op) else frozenset()


class Known:
    """What a test asks of its runs: whether one may be left out (`leaves_out`), and which it has made or left out."""

    def __init__(self, *, leaves_out: bool) -> None:
        self.leaves_out = leaves_out
        self.runs: list[tuple[str, str]] = []

    def fresh(self, problem: Problem, plan: Any, way: str) -> bool:
        """Whether the run is to be made."""
        run = run_of(problem, plan, way)
        self.runs.append((problem.op.name, run))
        return not (self.leaves_out and run in _known(problem.op.name))


class Recorder:
    """A pytest plugin that writes down which runs passed: of all ops of which no test failed."""

    def __init__(self) -> None:
        self.passed: defaultdict[str, set[str]] = defaultdict(set)
        self.failed: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for op, run in (pair for name, pairs in report.user_properties if name == PROPERTY for pair in pairs):  # type: ignore[attr-defined]
            if report.failed:
                self.failed.add(op)
            elif report.when == "call":
                self.passed[op].add(run)

    def pytest_sessionfinish(self) -> None:
        for op, runs in self.passed.items():
            put(op, () if op in self.failed else runs)


def put(op: str, runs: Iterable[str]) -> None:
    text = " ".join(sorted(runs))
    records.put(records.records_dir(), op, SECTION, {"judged_by": judged_by(op), "runs": text} if text else None)
