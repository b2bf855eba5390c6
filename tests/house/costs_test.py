"""The watch on what an op costs the suite can fail, and judges only runs that have tests of every op."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from baracuda_py.plan import all_ops
from baracuda_py.runtime.compile import compiler

from ..costs import COST, LIMIT, Watch, op_of
from ..gauntlet import cases


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    monkeypatch.setattr(compiler._Program, "compile", compiler._Program.compile)  # put back what it puts there
    return Watch(judges=True)


def run(watch: Watch, ops: Any, seconds: float) -> int:
    """The exit status of a run whose tests took `seconds` an op."""
    session: Any = SimpleNamespace(exitstatus=0)
    for op in ops:
        report: Any = SimpleNamespace(nodeid=f"tests/a_test.py::test[{op}]", user_properties=[(COST, [op, seconds])])
        watch.pytest_runtest_logreport(report)
    watch.pytest_sessionfinish(session)
    return int(session.exitstatus)


@pytest.mark.parametrize(("seconds", "status"), [(LIMIT * 0.99, 0), (LIMIT * 1.01, 1)])
def test_a_run_of_all_ops_is_held_to_the_limit(watch: Watch, seconds: float, status: int) -> None:
    assert run(watch, all_ops(), seconds) == status
    assert ("a_test.py::test" in watch.complaint) == bool(status)


def test_a_run_of_some_ops_is_not_judged(watch: Watch) -> None:
    assert run(watch, list(all_ops())[1:], 100 * LIMIT) == 0


def test_a_test_is_of_the_op_that_it_is_parametrised_by() -> None:
    (case, *_) = cases("add", "cpu")
    for params, op in (({"op": "add"}, "add"), ({"case": case}, "add"), ({"op": 3}, ""), ({}, "")):
        assert op_of(SimpleNamespace(callspec=SimpleNamespace(params=params))) == op  # type: ignore[arg-type]
