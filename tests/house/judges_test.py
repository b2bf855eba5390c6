"""Judges of emulated runs are known by definition: what is executed is reached, and what is not reached makes no record stale."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import pytest

from baracuda_py.emulator.values import floats
from baracuda_py.numerics import rounding, special
from baracuda_py.ops.elementwise import binary
from baracuda_py.ops.elementwise.tables import oracle as of_tables
from baracuda_py.ops.softmax import oracle as of_softmax
from tests import judges
from tests.judges import judged_by, reached

from ..gauntlet import Case, every_sample, problem

OPS = ["neg", "add", "add_backward", "gelu", "mish", "softmax", "sum"]
OF_FAMILIES = [
    judges.judged_by,
    judges._emulator,
    judges._common,
    judges._pool,
    judges._rows,
]  # what an edit may change
Edit = Callable[[ModuleType, str, str], set[str]]


def forget() -> None:
    for function in OF_FAMILIES:
        function.cache_clear()


@pytest.fixture
def edited(monkeypatch: pytest.MonkeyPatch) -> Edit:
    """A function that edits a module's text, in memory, and gives the ops of `OPS` that are judged by another digest then."""
    before = {op: judged_by(op) for op in OPS}
    read, definitions, text_of = judges._read, judges.definitions, Path.read_text

    def edited(module: ModuleType, old: str, new: str) -> set[str]:
        path = Path(module.__file__ or "")
        assert text_of(path, encoding="utf-8").count(old) == 1
        with monkeypatch.context() as patched:
            patched.setattr(Path, "read_text", lambda self, **how: text_of(self, **how).replace(old, new))
            parsed = read.__wrapped__(path)
            patched.setattr(judges, "_read", lambda x: parsed if x == path else read(x))
            parts = definitions.__wrapped__(path)
            patched.setattr(judges, "definitions", lambda x: parts if x == path else definitions(x))
            forget()
            others = {op for op in OPS if judged_by(op) != before[op]}
        forget()
        return others

    return edited


def test_judges_reach_a_function_by_the_row_that_names_it(edited: Edit) -> None:
    assert edited(of_tables, "def mish(", "def mish(*unused: Any, ") == {"mish"}


def test_judges_reach_the_oracle_of_a_family(edited: Edit) -> None:
    assert edited(of_softmax, "def _shift(", "def _shift(*unused: Any, ") == {"softmax"}


def test_judges_reach_what_all_oracles_share(edited: Edit) -> None:
    assert edited(rounding, "def round_to(", "def round_to(*unused: Any, ") == set(OPS)


def test_judges_reach_the_checks_of_results(edited: Edit) -> None:
    assert edited(problem, "if np.array_equal(got, wanted):", "if True:") == set(OPS)


def test_judges_reach_all_of_the_emulator(edited: Edit) -> None:
    assert edited(floats, "_TINY = 2.0**-960", "_TINY = 2.0**-950") == set(OPS)


def test_judges_reach_the_row_of_an_op_and_of_its_gradient(edited: Edit) -> None:
    assert edited(binary, '"add", "a + b"', '"add", "b + a"') == {"add", "add_backward"}


def test_judges_leave_out_a_function_that_is_added(edited: Edit) -> None:
    assert edited(special, "\ndef erf(", "\ndef newer(x: int) -> int:\n    return x\n\n\ndef erf(") == set()


def test_judges_leave_out_comments_and_docstrings(edited: Edit) -> None:
    assert not edited(special, '    """The standard normal', '    """Phi, the standard normal')
    assert not edited(special, "# The C library's", "# Those of the C library,")
    assert "gelu" in edited(special, "return 0.5 *", "return 0.25 *")


def executed_in(paths: set[str], work: Callable[[], Any]) -> set[tuple[str, int]]:
    """(file, line) of each function of these files that is called."""
    found: set[tuple[str, int]] = set()

    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename in paths and code.co_name != "<module>":
            found.add((code.co_filename, code.co_firstlineno))

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
    return found


@every_sample("cpu", count=1, bounded=1)
def test_judges_reach_all_that_is_executed(case: Case) -> None:
    """A run on the host calls an op's oracle, and judges what it gives as that of a kernel is."""
    problem = case.problem
    plan = problem.plan

    def work() -> None:
        problem.reset()
        plan.run(**problem.operands, **problem.values)
        problem.check_images(problem.images())

    found = executed_in({str(path) for path in judges.judges(case.op)}, work)
    lines = {(str(of.path), of.lines) for of in reached(case.op)}
    missed = {call for call in found if not any(call[0] == path and call[1] in part for path, part in lines)}
    assert len({path for path, _ in found}) > 3
    assert not missed
