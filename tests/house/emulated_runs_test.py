"""A run on the emulator is left out only where what it gives is known: data, launches, emulator and judges are the same."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from baracuda_py.numerics import rounding, special
from baracuda_py.plan import all_ops
from tests import emulated_runs, records
from tests.emulated_runs import PROPERTY, Known, Recorder, made_anyway, run_of
from tests.judges import judges

from ..families import family_of
from ..gauntlet import Problem, cases, emulated_gauntlet_test
from ..kernel_lines import Executed
from ..passed import UNSEEN


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Records of the test's own."""
    monkeypatch.setattr(records, "records_dir", lambda: tmp_path)
    emulated_runs._known.cache_clear()
    return tmp_path


def problems(op: str, count: int = 2) -> list[Problem]:
    return [case.problem for case in cases(op, "ptx", count)]


def report(*runs: tuple[str, str], failed: bool = False) -> Any:
    return SimpleNamespace(user_properties=[(PROPERTY, runs)], failed=failed, when="call")


@pytest.mark.usefixtures("folder")
def test_known_runs_are_left_out() -> None:
    first, second = problems("cumsum")
    asked = Known(leaves_out=True)
    assert asked.fresh(first, first.plan, "")
    recorder = Recorder()
    recorder.pytest_runtest_logreport(report(*asked.runs))
    recorder.pytest_sessionfinish()
    emulated_runs._known.cache_clear()
    assert not asked.fresh(first, first.plan, "")
    assert asked.fresh(second, second.plan, "")
    assert asked.fresh(first, first.plan, "random order 3")
    assert Known(leaves_out=False).fresh(first, first.plan, "")
    assert Known(leaves_out=True, anyway=frozenset({"cumsum"})).fresh(first, first.plan, "")


@pytest.mark.usefixtures("folder")
def test_left_out_runs_are_not_seen_to_pass() -> None:
    """So a later run that is to make all of them makes them."""
    first, second = problems("cumsum")
    emulated_runs.put("cumsum", [run_of(first, first.plan, "")])
    for problem, made in ((first, False), (second, True)):
        asked = Known(leaves_out=True)
        said = dict(asked.properties)
        assert asked.fresh(problem, problem.plan, "") is made
        assert bool(said[UNSEEN]) is not made and said[PROPERTY] == asked.runs


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("recorded", [True, False])
def test_other_arches_are_compiled_where_no_run_is_known(recorded: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The text is compared all the same, and a test that compiled nothing has not seen that the code is the same."""
    case, noted = cases("cumsum", "ptx", 1)[0], list[bool]()
    emulated_runs.put("cumsum", [run_of(case.problem, case.problem.plan, "")] if recorded else ["another"])
    monkeypatch.setattr(
        emulated_gauntlet_test, "code_of", lambda _problem, *, compiled: noted.append(compiled) or ("the same",)
    )
    right = emulated_gauntlet_test.Right(Known(leaves_out=True), Executed())
    emulated_gauntlet_test.test_other_arches(case, bounded=False, right=right)
    assert set(noted) == {not recorded} and len(noted) > 1
    assert bool(right.known.unseen) == recorded


def test_each_family_emulates_one_op_anyway() -> None:
    families = [family_of(op) for op in made_anyway()]
    assert sorted(families) == sorted({family_of(op) for op in all_ops()})


@pytest.mark.parametrize(("options", "left_out"), [((), "in_part"), (("--full",), "none"), (("--changed",), "all")])
def test_bounded_suite_leaves_out_known_runs(
    options: tuple[str, ...], left_out: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of all but one op of each family; the full suite none, unless it is asked to."""
    given = {"--changed": "--changed" in options}
    config: Any = SimpleNamespace(getoption=given.__getitem__)
    monkeypatch.setattr(emulated_gauntlet_test, "is_bounded", lambda _config: not options)
    noted: list[Any] = []
    right = emulated_gauntlet_test.right.__wrapped__(  # type: ignore[attr-defined]
        Executed(), SimpleNamespace(config=config), lambda *pair: noted.append(pair)
    )
    assert right.known.leaves_out == (left_out != "none")
    assert right.known.anyway == (frozenset() if left_out == "all" else made_anyway())
    assert [name for name, _ in noted] == [PROPERTY, UNSEEN] and request.config is not config


def test_failed_ops_are_not_recorded(folder: Path) -> None:
    recorder = Recorder()
    recorder.pytest_runtest_logreport(report(("neg", "aa"), ("abs", "bb")))
    recorder.pytest_runtest_logreport(report(("neg", "cc"), failed=True))
    recorder.pytest_sessionfinish()
    assert emulated_runs._known("abs") == {"bb"} and not emulated_runs._known("neg")
    assert not (folder / "neg.json").exists()


@pytest.mark.usefixtures("folder")
def test_records_keep_runs_that_a_run_of_fewer_tests_leaves_out() -> None:
    emulated_runs.put("abs", ["bb"])
    recorder = Recorder()
    recorder.pytest_runtest_logreport(report(("abs", "cc")))
    recorder.pytest_sessionfinish()
    assert emulated_runs._known("abs") == {"bb", "cc"}
    with pytest.raises(pytest.UsageError, match="omit --passed"):
        Recorder(passed="passed")


@pytest.mark.usefixtures("folder")
def test_another_judge_knows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    emulated_runs.put("abs", ["bb"])
    assert emulated_runs._known("abs") == {"bb"}
    monkeypatch.setattr(emulated_runs, "judged_by", lambda op: f"another of {op}")
    emulated_runs._known.cache_clear()
    assert not emulated_runs._known("abs")


def test_every_oracle_is_among_the_judges() -> None:
    all_ops()
    oracles = {
        name: module.__file__
        for name, module in sys.modules.items()
        if name.startswith("baracuda_py.") and "oracle" in name
    }
    judging = {str(path) for op in all_ops() for path in judges(op)}
    assert len(oracles) > 20 and {name for name, file in oracles.items() if file not in judging} == set()
    assert {special.__file__, rounding.__file__} <= judging


def test_the_oracles_of_other_families_do_not_judge() -> None:
    judging = {op: set(judges(op)) for op in ("softmax", "attention", "matmul_int4")}
    oracles = {
        op: {"/".join(path.parts[-3:]) for path in paths if "ops" in path.parts} for op, paths in judging.items()
    }
    assert oracles["softmax"] == {"ops/softmax/oracle.py", "softmax/masked/oracle.py", "softmax/sparse/oracle.py"}
    assert {"attention/oracle/forward.py", "ops/gemm/oracle.py"} <= oracles["attention"]
    assert "ops/gemm/oracle.py" in oracles["matmul_int4"] and "ops/softmax/oracle.py" not in oracles["matmul_int4"]


def test_other_data_is_another_run() -> None:
    (problem,) = problems("cumsum", 1)
    before = run_of(problem, problem.plan, "")
    assert run_of(problems("cumsum", 1)[0], problem.plan, "") == before
    sample = replace(problem.sample, operands={"x": problem.sample.operands["x"] + 1})
    assert run_of(replace(problem, sample=sample), problem.plan, "") != before


def test_the_same_data_by_another_plan_is_another_run() -> None:
    (problem,) = problems("cumsum", 1)
    plans = [problem.op.plan.select(problem.desc, device=f"ptx:{arch}") for arch in ("sm_80", "sm_90a")]
    assert len({run_of(problem, plan, "") for plan in plans}) == 2
