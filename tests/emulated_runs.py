"""Which runs on the emulator are known to be right: ``kernels/records/<op>.json``, section ``emulated``.

What a run gives follows from what its plan launches, the data of its sample, and the code that emulates and judges (`judges`).
So a run of which none of these has changed need not be made at every push: the bounded suite leaves it out (but for one op of
each family, which shows that this machine emulates at all), and so does ``--changed``; ``--full`` alone makes all of them.
``--record`` writes down those that passed, beside those that are known and still judged alike.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import pytest

from baracuda_py.plan import all_ops
from baracuda_py.plan.about.digest import lowered_digest

from . import records
from .families import declared, family_of
from .gauntlet import Problem
from .judges import judged_by
from .passed import UNSEEN

__all__ = ["PROPERTY", "Known", "Recorder", "made_anyway", "run_of"]

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


@lru_cache(maxsize=1)
def made_anyway() -> frozenset[str]:
    """The op of each family of which the bounded suite makes all runs: what no record knows of, the machine, its versions of
    Python and NumPy, the host's way from a plan to the emulator, is tried with a kernel of each family."""
    first = {family_of(op): op for op in reversed(all_ops())}
    named = {name: family.emulated for name, family in declared().items() if family.emulated}
    return frozenset((first | named).values())


class Known:
    """What a test asks of its runs: whether one may be left out (`leaves_out`), but for those of ops in `anyway`, and which it
    has made or left out. A test with a run that was left out has not seen it pass: `properties` says so in its report."""

    def __init__(self, *, leaves_out: bool, anyway: frozenset[str] = frozenset()) -> None:
        self.leaves_out, self.anyway = leaves_out, anyway
        self.runs: list[tuple[str, str]] = []
        self.unseen: list[str] = []

    @property
    def properties(self) -> list[tuple[str, list[Any]]]:
        """Of the test's report; lists that grow with its runs."""
        return [(PROPERTY, self.runs), (UNSEEN, self.unseen)]

    def fresh(self, problem: Problem, plan: Any, way: str) -> bool:
        """Whether the run is to be made."""
        run = run_of(problem, plan, way)
        self.runs.append((problem.op.name, run))
        return not self._left_out(problem, run)

    def left_out(self, problem: Problem, plan: Any) -> bool:
        """Whether what follows from the plan's usual run, beside the run itself, may be left out: it was seen when that was."""
        return self._left_out(problem, run_of(problem, plan, ""))

    def _left_out(self, problem: Problem, run: str) -> bool:
        op = problem.op.name
        known = self.leaves_out and op not in self.anyway and run in _known(op)
        if known:
            self.unseen.append(run)
        return known


class Recorder:
    """A pytest plugin that writes down which runs passed: of all ops of which no test failed. A run of some of the tests adds to
    what a record knows."""

    def __init__(self, *, passed: str | None = None) -> None:
        if passed:
            raise pytest.UsageError(
                "--record with --passed: records would lack the runs of the tests that are left out; omit --passed"
            )
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
            put(op, () if op in self.failed else runs | _known(op))


def put(op: str, runs: Iterable[str]) -> None:
    text = " ".join(sorted(runs))
    records.put(records.records_dir(), op, SECTION, {"judged_by": judged_by(op), "runs": text} if text else None)
    _known.cache_clear()
