"""A second run leaves out what a first one has seen to pass, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from .. import passed, resources
from ..places import ROOT

MODULES = {
    "compiled_test.py": (
        "import subprocess, sys\nfrom baracuda_py.runtime.compile import cache\n"
        "def test_e(): cache.load('none')\ndef test_f(): subprocess.run([sys.executable, '-c', ''], check=True)\n"
        "def test_g(record_property): record_property('unseen', ['a run'])\n"
    ),
    "plain_test.py": "def test_a(): ...\ndef test_b(fails): assert not fails\ndef test_c(bounded): ...\n",
    "frameworks_test.py": "# torch\ndef test_d(): ...\n",
    "conftest.py": (
        "import os, pytest\nfrom pathlib import Path\nfrom tests.passed import Compiles, Passed\n"
        "@pytest.fixture\ndef bounded(): return True\n"
        "@pytest.fixture\ndef fails(): return 'FAILS' in os.environ\n"
        "def pytest_configure(config):\n"
        "    worker = hasattr(config, 'workerinput')\n"
        "    again = 'AGAIN' in os.environ\n"
        "    known = Passed(Path('passed.txt').resolve(), writes=not worker, recompiled=again)\n"
        "    config.pluginmanager.register(known)\n    config.pluginmanager.register(Compiles())\n"
    ),
}
# One draws more in the full suite, one may use a framework, one has left something out.
RUN_TWICE = {"test_c", "test_d", "test_g"}
RECOMPILED = {"test_e", "test_f", "test_g"}  # with another NVRTC


def _ran(folder: Path, *options: str, env: dict[str, str] | None = None) -> set[str]:
    """The names of the tests that a run in `folder` executes."""
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-rA", "--rootdir", ".", "-o", "python_files=*_test.py", *options, "."],
        cwd=folder, capture_output=True, text=True, check=False, timeout=120,
        env=os.environ | {"PYTHONPATH": str(ROOT)} | (env or {}),
    )  # fmt: skip
    outcomes = [line.split() for line in ran.stdout.splitlines() if line.startswith(("PASSED ", "FAILED "))]
    return {words[1].partition("::")[2] for words in outcomes}


@pytest.mark.parametrize("workers", [(), ("-n", "1")])
def test_passed_tests_are_left_out(tmp_path: Path, workers: tuple[str, ...]) -> None:
    for name, text in MODULES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    names = {f"test_{letter}" for letter in "abcdefg"}
    assert _ran(tmp_path, *workers, env={"FAILS": "1"}) == names
    listed = (tmp_path / "passed.txt").read_text(encoding="utf-8").split()
    assert {line.partition("::")[2] for line in listed} == names - {"test_b", "test_g"}
    assert _ran(tmp_path, *workers, env={"FAILS": "1", "AGAIN": "1"}) == RECOMPILED | {"test_b"}
    assert _ran(tmp_path, *workers) == RUN_TWICE | {"test_b"}
    assert _ran(tmp_path, *workers) == RUN_TWICE


def _check(op: str | None) -> Any:
    params = {} if op is None else {"op": op}
    name = f"tests/runtime/compile_test.py::test_x[{op}]"
    return SimpleNamespace(nodeid=name, callspec=SimpleNamespace(params=params))


@pytest.mark.parametrize("op", ["gelu", None])
def test_compile_checks_are_left_out_if_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, op: str | None
) -> None:
    item, path = _check(op), tmp_path / "passed"
    path.write_text(f"{item.nodeid}\n", encoding="utf-8")
    for cached in (passed._all_recorded, passed._records_have):
        monkeypatch.setattr(passed, cached.__name__, cached.__wrapped__)
    monkeypatch.setattr(resources, "version", lambda: resources.written_with("gelu")[-1])
    again = passed.Passed(path, writes=False, recompiled=True)
    assert again.left_out(item)
    monkeypatch.setattr(resources, "version", lambda: "99.0")  # an NVRTC that no record has
    assert not again.left_out(item)
    monkeypatch.undo()
    passed.compiled_of(path).write_text(f"{item.nodeid}\n", encoding="utf-8")  # it compiled what no record had
    assert not passed.Passed(path, writes=False, recompiled=True).left_out(item)
    path.write_text("", encoding="utf-8")  # it failed, or was not run
    assert not passed.Passed(path, writes=False, recompiled=True).left_out(item)
