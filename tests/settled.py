"""A pytest plugin by which a push leaves out tests that a record has seen to pass with the same inputs: ``--settled STEP``.

A test may be left out that is about an op, or in a family's folder, and of which all inputs are known (tests/inputs.py). Tests of
the house, of processes and of what is installed (not in `SCOPE`) have no such list, and tests that draw other examples at each
run have more inputs than files: they run at every push.

``--settle STEP`` leaves out none, and writes ``tests/settled/STEP.json``: by test function and the families of its op, the digest
of the inputs and the tests that passed. A step is a run of .ci/run, which has packages and an NVRTC of its own. Where one byte
of an input or one version differs, the test runs. With ``--changed`` a test passes that has left out an emulated run: the op's
record knows that run for the same inputs.
"""

from __future__ import annotations

import hashlib
import json
import re
from base64 import b85encode
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

from .concerns import family_with
from .inputs import families_of_ops, inputs_digest
from .places import TESTS

__all__ = ["Settled", "families_of", "key_of", "read", "record_path"]

SCOPE = ("call", "families", "gauntlet", "interop", "plan")
WORD = re.compile(r"\w+")
DIGITS = 6  # of a test's name in a record, in base 85: one in 10^11 other names has the same


class Settled:
    """Deselects the tests that the step's record settles; with `writes`, records what passes instead. Workers deselect, and put
    a test's key into its report; the process that starts them writes."""

    def __init__(self, step: str, *, writes: bool, worker: bool) -> None:
        self.path, self.writes, self.worker = record_path(step), writes, worker
        self.known = {} if writes else read(self.path)
        self.seen: defaultdict[tuple[str, str], dict[str, set[str]]] = defaultdict(dict)  # unit -> inputs -> names
        self.failed: set[str] = set()

    def left_out(self, item: pytest.Item) -> bool:
        found = key_of(item)
        if found is None:
            return False
        of, names = self.known.get(found[0], {}).get(found[1], ("", frozenset()))
        return short(item.nodeid) in names and of == digest_for(item, found[1])

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        if self.writes:
            for item in items:
                if (found := key_of(item)) is not None:
                    item.user_properties.append(("settles", [*found, digest_for(item, found[1])]))
            return
        others = [item for item in items if self.left_out(item)]
        if others:
            gone = set(map(id, others))
            items[:] = [item for item in items if id(item) not in gone]
            config.hook.pytest_deselected(items=others)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.add(report.nodeid)
        for name, value in report.user_properties:
            if name == "settles" and report.when == "call" and report.passed:
                function, families, of = value  # type: ignore[misc]
                self.seen[function, families].setdefault(of, set()).add(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        if self.writes and not self.worker:
            known = read(self.path)
            for (function, families), by_inputs in self.seen.items():
                unit = known.setdefault(function, {})
                for of, names in by_inputs.items():
                    old = unit.get(families, ("", frozenset()))
                    unit[families] = (of, frozenset(map(short, names)) | (old[1] if old[0] == of else frozenset()))
            for nodeid in self.failed:
                for families, (of, names) in known.get(function_of(nodeid), {}).items():
                    known[function_of(nodeid)][families] = (of, names - {short(nodeid)})
            write(self.path, known)


# ---- records ----------------------------------------------------------------------------------------------------------

Known = dict[str, dict[str, tuple[str, frozenset[str]]]]  # test function -> families -> (digest of the inputs, names)


def record_path(step: str) -> Path:
    """Of a step, or of a file that is named in its place."""
    return Path(step) if step.endswith(".json") else TESTS / "settled" / f"{step}.json"


def read(path: Path) -> Known:
    said = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return {
        function: {families: (of, frozenset(names.split())) for families, (of, names) in units.items()}
        for function, units in said.items()
    }


def write(path: Path, known: Known) -> None:
    """One line per unit, so that a change of one family is a change of its lines."""
    path.parent.mkdir(exist_ok=True)
    said = {
        function: {families: [of, " ".join(sorted(names))] for families, (of, names) in sorted(units.items()) if names}
        for function, units in sorted(known.items())
    }
    functions = []
    for function, units in said.items():
        rows = ",\n".join(f"  {json.dumps(families)}: {json.dumps(unit)}" for families, unit in units.items())
        if rows:
            functions.append(f" {json.dumps(function)}: {{\n{rows}\n }}")
    path.write_text("{\n" + ",\n".join(functions) + "\n}\n", encoding="utf-8")


def short(nodeid: str) -> str:
    return b85encode(hashlib.sha256(nodeid.encode()).digest()).decode()[:DIGITS]


def function_of(nodeid: str) -> str:
    return nodeid.partition("[")[0]


# ---- what a test is about ---------------------------------------------------------------------------------------------


def key_of(item: pytest.Item) -> tuple[str, str] | None:
    """(the test's function, the families that it is about), or None for a test that no record may settle: one that draws other
    examples at each run (Hypothesis), one for a GPU, one of no op."""
    if _place(item.path) not in SCOPE or getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
        return None
    families = families_of(item) if item.get_closest_marker("gpu") is None else ()
    return (function_of(item.nodeid), " ".join(families)) if families else None


@cache
def _place(path: Path) -> str:
    return path.relative_to(TESTS).parts[0] if path.is_relative_to(TESTS) else ""


def families_of(item: pytest.Item) -> tuple[str, ...]:
    """The families of the ops that the test's name has in it, and that in whose folder it is; none for a test of no op."""
    own = _own(item.path)
    found = {own} if own else set()
    case = item.nodeid.partition("[")[2]
    found |= {families_of_ops()[word] for word in WORD.findall(case) if word in families_of_ops()}
    return tuple(sorted(found))


_own = cache(family_with)


def digest_for(item: pytest.Item, families: str) -> str:
    return inputs_digest(item.path, tuple(families.split()))
