"""Options, the `backend` fixture, the reason a GPU test is skipped for, and the device ledger."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from baracuda_py.runtime.driver import cupy_or_none, device_count
from tests import ledger


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all", action="store_true", help="every sample of every op (the default is a bounded sample)")
    parser.addoption(
        "--ledger", default=None, metavar="PATH", help="merge what passed on this device into a folder of records"
    )
    parser.addoption(
        "--commit", default=None, metavar="TEXT", help="what the ledger says was tested (git's own by default)"
    )


def pytest_configure(config: pytest.Config) -> None:
    # CuPy is imported here, outside the tests' filters, so that a warning it gives is not taken for its absence.
    if cupy_or_none() is None:
        from tests.without_cupy import WithoutCupy

        config.pluginmanager.register(WithoutCupy(), "without-cupy")
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
                if item.get_closest_marker("gpu"):
                    item.user_properties += [("left out", name) for name in _covers(item)]


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
    """Says which op a device test covered."""
    if request.node.get_closest_marker("gpu") is not None:
        for name in _covers(request.node):
            record_property("covers", name)


def _covers(item: Any) -> list[str]:
    """The ops that a test is about: its `op` parameter, or the `COVERS` of its module."""
    callspec = getattr(item, "callspec", None)
    named = callspec.params.get("op") if callspec else None
    return [named] if isinstance(named, str) else list(getattr(item.module, "COVERS", ()))


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
        self.skipped: Counter[str] = Counter()
        self.emulator: dict[str, str] = {}
        self.run = {"commit": config.getoption("--commit"), "all": bool(config.getoption("--all"))}
        self.worker = hasattr(config, "workerinput")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "setup" and report.skipped:
            self.skipped.update(str(value) for key, value in report.user_properties if key == "left out")
        names = [str(value) for key, value in report.user_properties if key == "covers"]
        for name in names:
            if report.failed:
                self.failed.add(name)
            elif report.when == "call" and report.passed:
                self.passed.setdefault(name, set()).add(report.nodeid.rpartition("/")[2])
                self.emulator.update((name, str(value)) for key, value in report.user_properties if key == "emulator")

    def pytest_sessionfinish(self) -> None:
        if self.path and not self.worker and device_count():
            run = (
                ledger.machine() | self.run | {"commit": self.run["commit"] or ledger.commit_of(Path(__file__).parent)}
            )
            ledger.record(Path(self.path), self.passed, self.failed, run, self.skipped, self.emulator)
