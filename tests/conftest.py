"""Options, the `backend` fixture, the reason a GPU test is skipped for, and the device ledger."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from baracuda_py.runtime.driver import cupy_or_none, device_count
from tests import ledger


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all", action="store_true", help="every sample of every op (the default is a bounded sample)")
    parser.addoption("--ledger", default=None, metavar="PATH", help="merge what passed on this device into a ledger")


def pytest_configure(config: pytest.Config) -> None:
    # CuPy is imported here, outside the tests' filters, so that a warning it gives is not taken for its absence.
    cupy_or_none()
    config.pluginmanager.register(_Recorder(config), "device-ledger")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not device_count():
        reason = "no usable CUDA device" if cupy_or_none() is not None else "CuPy cannot be imported"
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason=f"{reason}: runs with a GPU only"))
    if not config.getoption("--all"):
        for item in items:
            if item.get_closest_marker("heavy"):
                item.add_marker(pytest.mark.skip(reason="heavy: runs with --all only"))


@pytest.fixture
def everything(request: pytest.FixtureRequest) -> bool:
    """Whether ``--all`` was given."""
    return bool(request.config.getoption("--all"))


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def backend(request: pytest.FixtureRequest) -> str:
    """Both back ends; "cuda" is skipped where there is no device."""
    return str(request.param)


@pytest.fixture(autouse=True)
def _covered(request: pytest.FixtureRequest, record_property: Any) -> None:
    """Says which op a device test covered: its `op` parameter, or the `COVERS` of its module."""
    if request.node.get_closest_marker("gpu") is None:
        return
    callspec = getattr(request.node, "callspec", None)
    named = callspec.params.get("op") if callspec else None
    for name in [named] if isinstance(named, str) else getattr(request.module, "COVERS", ()):
        record_property("covers", name)


@pytest.fixture
def fresh_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cubin cache of the test's own."""
    from baracuda_py.runtime import cache, files

    folder = tmp_path / "cubins"
    monkeypatch.setenv("BARACUDA_CACHE_DIR", str(folder))
    for module in (cache, files):
        monkeypatch.setattr(module, "_warned", set())
    return folder


class _Recorder:
    """Collects which ops' device tests passed and failed, and writes them down at the end."""

    def __init__(self, config: pytest.Config) -> None:
        self.path = config.getoption("--ledger")
        self.passed: dict[str, set[str]] = {}
        self.failed: set[str] = set()
        self.worker = hasattr(config, "workerinput")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        names = [str(value) for key, value in report.user_properties if key == "covers"]
        for name in names:
            if report.failed:
                self.failed.add(name)
            elif report.when == "call" and report.passed:
                self.passed.setdefault(name, set()).add(report.nodeid.rpartition("/")[2])

    def pytest_sessionfinish(self) -> None:
        if self.path and not self.worker and device_count():
            ledger.record(Path(self.path), self.passed, self.failed)
