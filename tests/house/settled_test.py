"""A push leaves out a test of an op only where nothing that the test depends on has changed since a record saw it pass."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from .. import inputs, settled
from ..places import ROOT, TESTS

SCAN = TESTS / "families" / "scan" / "running_test.py"
REGISTRY = TESTS / "gauntlet" / "registry_test.py"
# A plugin that fails a test which executes code of a family, or opens a file of the checkout, that its inputs do not have.
TRACED = """
import os, sys, threading, pytest
from tests import inputs, settled
seen = set()
def opened(event, args):
    if event == "open" and isinstance(args[0], (str, os.PathLike)) and not str(args[0]).endswith(".pyc"):
        seen.add(str(args[0]))
sys.addaudithook(opened)
def called(frame, event, _):
    if event == "call":
        seen.add(frame.f_code.co_filename)
@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem):
    key = settled.key_of(pyfuncitem)
    seen.clear()
    sys.setprofile(called)
    threading.setprofile(called)
    try:
        result = yield
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    places = (str(inputs.OPS), str(inputs.KERNELS), str(inputs.FAMILIES))
    known = set(map(str, inputs.inputs(pyfuncitem.path, tuple(key[1].split()))[0]))
    missing = sorted(x for x in seen if x.startswith(places) and x not in known)
    assert not missing, f"not among the inputs: {missing}"
    return result
"""


def forget() -> None:
    inputs.inputs_digest.cache_clear()
    inputs._group_digest.cache_clear()


@pytest.fixture(autouse=True)
def _digests_are_forgotten() -> Iterator[None]:
    yield
    forget()


def item(name: str, path: Path = SCAN) -> Any:
    nodeid = f"{path.relative_to(ROOT).as_posix()}::{name}"
    return SimpleNamespace(nodeid=nodeid, path=path, user_properties=[], get_closest_marker=lambda _: None)


def left_out(record: Path, items: list[Any]) -> list[Any]:
    """The items that a run with that record leaves out."""
    deselected: list[Any] = []
    hook = SimpleNamespace(pytest_deselected=lambda items: deselected.extend(items))
    settled.Settled(str(record), writes=False, worker=True).pytest_collection_modifyitems(
        SimpleNamespace(hook=hook),  # type: ignore[arg-type]
        [*items],
    )
    return deselected


def recorded(record: Path, items: list[Any], *failed: Any) -> None:
    run = settled.Settled(str(record), writes=True, worker=False)
    run.pytest_collection_modifyitems(SimpleNamespace(), items)  # type: ignore[arg-type]
    for each in items:
        bad = each in failed
        properties, each.user_properties = each.user_properties, []
        said: Any = SimpleNamespace(
            nodeid=each.nodeid, when="call", failed=bad, passed=not bad, user_properties=properties
        )
        run.pytest_runtest_logreport(said)
    run.pytest_sessionfinish()


def test_settled_tests_are_those_that_passed(tmp_path: Path) -> None:
    record, items = tmp_path / "step.json", [item(f"test_x[cumsum-{n}]") for n in range(3)]
    of_no_op = item("test_x", TESTS / "plan" / "plan_test.py")
    of_the_house = item("test_x[cumsum]", TESTS / "house" / "pages_test.py")
    drawn = item("test_drawn[cumsum]")
    drawn.obj = SimpleNamespace(is_hypothesis_test=True)
    recorded(record, [*items, of_no_op, of_the_house, drawn], items[1])
    others = [item("test_x[cumsum-3]"), item("test_y[cumsum-0]"), of_no_op, of_the_house, drawn]
    assert left_out(record, [*items, *others]) == [items[0], items[2]]
    recorded(record, items[:2], items[0])  # a further run adds what passes, and takes back what fails
    assert left_out(record, items) == [items[1], items[2]]
    assert left_out(tmp_path / "none.json", items) == []


@pytest.mark.parametrize(
    ("changed", "back"),
    [
        ("kernels/scan/rows.cu", True),
        ("kernels/include/core/dtype.cuh", True),
        ("baracuda_py/ops/scan/oracle.py", True),
        ("baracuda_py/plan/select.py", True),
        ("baracuda_py/emulator/launch.py", True),
        ("tests/families/scan/running_test.py", True),
        ("tests/gauntlet/problem.py", True),
        ("tests/families/scan/independent.py", True),
        ("tests/conftest.py", True),
        ("pyproject.toml", True),
        ("kernels/softmax/forward.cu", False),
        ("baracuda_py/ops/softmax/oracle.py", False),
        ("baracuda_py/cli/main.py", False),
        ("tests/plan/plan_test.py", False),
        ("README.md", False),
    ],
)
def test_settled_tests_come_back_with_an_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: str, back: bool
) -> None:
    record, tests = tmp_path / "step.json", [item("test_x[cumsum]")]
    recorded(record, tests)
    content = inputs._content
    assert (ROOT / changed).is_file()
    monkeypatch.setattr(inputs, "_content", lambda path: "other" if path == ROOT / changed else content(path))
    forget()
    assert left_out(record, tests) == ([] if back else tests)


@pytest.mark.parametrize("name", ["installed", "_ledger"])
def test_settled_tests_come_back_with_a_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    record, tests = tmp_path / "step.json", [item("test_x[cumsum]")]
    recorded(record, tests)
    monkeypatch.setattr(inputs, name, lambda *_: "another version, another run on a device")
    forget()
    assert left_out(record, tests) == []


def test_settled_versions_are_of_what_tests_import() -> None:
    lines = inputs.installed().splitlines()
    for name in ("numpy", "pytest", "scipy", "mpmath", "hypothesis"):
        assert any(line.startswith(f"{name} ") for line in lines), name
    assert lines[0] == ".".join(map(str, sys.version_info[:3]))


@pytest.mark.parametrize(
    ("test", "name", "families"),
    [
        (SCAN, "test_x[cumsum]", "scan"),
        (SCAN, "test_x", "scan"),
        (REGISTRY, "test_x[cpu-softmax-f32 corners]", "softmax"),
        (REGISTRY, "test_x[softmax-cumsum-3]", "scan softmax"),
    ],
)
def test_settled_families_are_those_of_the_name(test: Path, name: str, families: str) -> None:
    assert settled.key_of(item(name, test)) == (f"{test.relative_to(ROOT).as_posix()}::test_x", families)


def test_settled_inputs_follow_imports_and_names() -> None:
    assert {"loss", "elementwise", "gemm"} <= inputs.inputs(SCAN, ("loss",))[1]  # by its imports
    assert "indexing" in inputs.inputs(SCAN, ("segment",))[1]  # likewise
    assert inputs.inputs(SCAN, ("scan",))[1] == {"scan"}
    assert "scan" in inputs.inputs(TESTS / "families" / "row_menu_test.py", ("softmax",))[1]  # the test names "cumsum"


def test_settled_inputs_hold_what_tests_execute(tmp_path: Path) -> None:
    """In processes of their own: with a trace of what runs, then with the record that this has written."""
    (tmp_path / "traced.py").write_text(TRACED, encoding="utf-8")
    record = tmp_path / "step.json"
    chosen = ["--op", "softmax_backward", "-k", "f16", "tests/gauntlet/registry_test.py"]

    def run(*options: str) -> tuple[int, str]:
        env = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}"}
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options, *chosen]
        ran = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False, timeout=280)
        return ran.returncode, ran.stdout[-3000:]

    code, said = run("-p", "traced", "--settle", str(record))
    assert code == pytest.ExitCode.OK, said
    names = [name for units in settled.read(record).values() for _, names in units.values() for name in names]
    assert len(names) > 10
    code, said = run("--settled", str(record))
    assert code == pytest.ExitCode.NO_TESTS_COLLECTED, said
