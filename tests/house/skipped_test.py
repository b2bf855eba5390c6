"""What a missing package skips is a failure where continuous integration runs the full suite, and there alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests import conftest

from ..places import ROOT

MODULES = {
    "body_test.py": "import pytest\ndef test_a():\n    pytest.importorskip('no_such_package')\n",
    "head_test.py": "import pytest\npytest.importorskip('no_such_package')\ndef test_b(): ...\n",
    "device_test.py": "import pytest\n@pytest.mark.skip(reason='no usable CUDA device')\ndef test_c(): ...\n",
}


@pytest.mark.parametrize("demanded", [True, False])
def test_missing_package_fails_where_all_are_demanded(tmp_path: Path, demanded: bool) -> None:
    for name, text in MODULES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    plugins = ["-p", "tests.skipped"] if demanded else []
    options = ["-q", "-rA", "--rootdir", str(tmp_path), "-o", "python_files=*_test.py", "-p", "no:cacheprovider"]
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", *plugins, *options, str(tmp_path)],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    last = ran.stdout.splitlines()[-1]
    if demanded:
        assert ran.returncode == pytest.ExitCode.INTERRUPTED and "1 error" in last, ran.stdout
        assert "head_test.py was skipped, and nothing may be skipped here for want of a package" in ran.stdout
    else:
        assert ran.returncode == 0 and "3 skipped" in last, ran.stdout


@pytest.mark.parametrize(("ci", "full"), [("true", True), ("true", False), ("", True)])
def test_packages_are_demanded_by_the_full_suite_in_ci(ci: str, full: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", ci)
    config: Any = SimpleNamespace(getoption={"--full": full}.get)
    assert conftest.demands_every_package(config) is (ci == "true" and full)
