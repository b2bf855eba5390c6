"""Which runs on the emulator are known to be right: ``kernels/records/<op>.json``, section ``emulated``.

What a run gives follows from what its plan launches, the data of its sample, and the code that emulates and judges. So a run of
which none of these has changed need not be made at every push: ``--changed`` leaves it out, ``--full`` alone makes all of them,
and ``--full --record`` writes down those that passed.
"""

from __future__ import annotations

import ast
import hashlib
from collections import defaultdict
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

import baracuda_py
from baracuda_py.plan.about.digest import lowered_digest
from baracuda_py.plan.registry import get_op
from baracuda_py.runtime.system.toolchain import nvrtc_version

from . import records
from .gauntlet import Problem

__all__ = ["PROPERTY", "Known", "Recorder", "run_of"]

PROPERTY = "emulated"  # of a report: [op, run] of each run that its test made or left out
SECTION = "emulated"  # of an op's record
# What emulates and judges every result; the data, the kernels and how they are launched are in each run's own digest. The oracles
# that an op's family uses judge too.
JUDGES = (
    "emulator",
    "numerics",
    *(f"types/{name}.py" for name in ("elements", "faults", "gguf", "kinds", "precision")),
)
DIGITS = 10
PACKAGE = Path(baracuda_py.__file__).parent
ROOT = PACKAGE.parent


@lru_cache(maxsize=256)
def judged_by(op: str) -> str:
    """The digest of what emulates an op and judges its results, the compiler's version among it."""
    digest = hashlib.sha256(repr(nvrtc_version()).encode())
    for path in judges(op):
        digest.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def judges(op: str) -> list[Path]:
    """The files that emulate an op and judge its results."""
    named = [PACKAGE / name for name in JUDGES] + [ROOT / "tests" / "gauntlet", ROOT / "tests" / "arena.py"]
    files = (path for place in named for path in (place.rglob("*.py") if place.is_dir() else (place,)))
    family = PACKAGE / "ops" / get_op(op).function.__module__.split(".")[2]
    return [*sorted(path for path in files if not path.name.endswith("_test.py")), *_oracles_of(family)]


@lru_cache(maxsize=64)
def _oracles_of(family: Path) -> list[Path]:
    """The oracles that a family's modules import, and those that these import."""
    found: set[Path] = set()
    to_read = sorted(family.rglob("*.py"))
    while to_read:
        fresh = {path for path in _imported(to_read.pop()) if "oracle" in (path.stem, path.parent.name)} - found
        found |= fresh
        to_read += fresh
    return sorted(found)


def _imported(path: Path) -> set[Path]:
    """The package's modules that a module imports by relative names."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level:
            place = path.parents[node.level - 1].joinpath(*(node.module or "").split("."))
            for name in (place, *(place / alias.name for alias in node.names)):
                found |= {file for file in (name.with_suffix(".py"), name / "__init__.py") if file.is_file()}
    return found


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
