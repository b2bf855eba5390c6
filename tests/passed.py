"""A pytest plugin by which a second run leaves out what a first one has seen to pass: ``--passed PATH``.

Continuous integration runs the bounded suite as a user does, and then the full suite, of which it is a part. A test is run again
where its outcome may differ: if it draws more in the full suite, or its file names a framework that only the second run has.

It also runs the bounded suite with another NVRTC. With ``--recompiled`` a test is run again for that alone: if it had a kernel
compiled, read what was compiled or emulated it, or if it started a process, which may. PATH.compiled lists those tests. The
checks of compiled kernels (`COMPILE_CHECKS`) that compiled nothing have compared the records of every NVRTC with the kernels that
there are: where an op's record has this NVRTC too, they would read what has been read.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Generator
from functools import lru_cache, wraps
from pathlib import Path
from typing import Any

import pytest

__all__ = ["COMPILED", "UNSEEN", "Compiles", "Passed"]

COMPILED = "compiled"  # of a report: that NVRTC, or what it made, had a part in the test
UNSEEN = "unseen"  # of a report: what the test was to run and left out, where that is not nothing
# Tests of the installed CUDA itself, which there is, where it is, what is said where it is missing; and of what reads PTX.
OF_CUDA = ("tests/runtime/", "tests/cli/", "tests/emulator/")
COMPILE_CHECKS = "tests/runtime/compile_test.py"
_FRAMEWORKS = re.compile(r"\b(torch|jax)\b", re.IGNORECASE)


@lru_cache(maxsize=512)
def _names_a_framework(path: Path) -> bool:
    return _FRAMEWORKS.search(path.read_text(encoding="utf-8")) is not None


def _recorded(item: pytest.Item) -> bool:
    """Whether a test is a check of compiled kernels, all of which the records know by this NVRTC."""
    if not item.nodeid.startswith(COMPILE_CHECKS):
        return False
    op = getattr(item, "callspec", None) and item.callspec.params.get("op")  # type: ignore[attr-defined]
    return _all_recorded() if op is None else _records_have(op)


@lru_cache(maxsize=1)
def _all_recorded() -> bool:
    from baracuda_py.plan import all_ops

    return all(map(_records_have, all_ops()))


@lru_cache(maxsize=1024)
def _records_have(op: str) -> bool:
    from . import resources

    return resources.version() in resources.written_with(op)


class Compiles:
    """Notes in each test's report whether it asked for a compiled kernel, emulated one, or started a process. What a fixture of a
    module keeps for further tests is noted for the first, which makes it."""

    def __init__(self) -> None:
        from baracuda_py.emulator.launch import Program
        from baracuda_py.runtime.compile import cache, compiler

        self.asked = False
        for place, name in (
            (compiler._Program, "__init__"),
            (cache, "load"),
            (Program, "__init__"),
            (Program, "run"),
            (subprocess.Popen, "__init__"),
        ):
            setattr(place, name, self._noted(getattr(place, name)))

    def _noted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def noted(*given: Any, **named: Any) -> Any:
            self.asked = True
            return function(*given, **named)

        return noted

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self) -> Generator[None, Any, Any]:
        self.asked = False
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, call: pytest.CallInfo[None]) -> Generator[None, Any, pytest.TestReport]:
        report: pytest.TestReport = yield
        if call.when == "call" and self.asked:
            report.user_properties.append((COMPILED, True))
        return report


class Passed:
    """Deselects the tests that `path` lists, and lists there those that pass. Workers deselect, the process that starts them
    writes. With `recompiled` the first run differs from this one in its NVRTC alone."""

    def __init__(self, path: Path, *, writes: bool, recompiled: bool = False) -> None:
        self.path, self.writes, self.recompiled = path, writes, recompiled
        self.before, self.compiled_before = lines_of(path), lines_of(compiled_of(path))
        self.now: set[str] = set()
        self.compiled: set[str] = set()

    def left_out(self, item: pytest.Item) -> bool:
        if self.recompiled:
            same = item.nodeid not in self.compiled_before and (_recorded(item) or not item.nodeid.startswith(OF_CUDA))
            return item.nodeid in self.before and same
        draws_more = "bounded" in getattr(item, "fixturenames", ())
        return item.nodeid in self.before and not draws_more and not _names_a_framework(item.path)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        others = [item for item in items if self.left_out(item)]
        if others:
            items[:] = [item for item in items if not self.left_out(item)]
            config.hook.pytest_deselected(items=others)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        said = dict(report.user_properties)
        if said.get(COMPILED):
            self.compiled.add(report.nodeid)
        if report.when == "call" and report.passed and not said.get(UNSEEN):
            self.now.add(report.nodeid)
        elif report.failed:
            self.now.discard(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        if self.writes:
            for path, names in (
                (self.path, self.before | self.now),
                (compiled_of(self.path), self.compiled_before | self.compiled),
            ):
                path.write_text("".join(f"{name}\n" for name in sorted(names)), encoding="utf-8")


def compiled_of(path: Path) -> Path:
    """The list of the tests that had to do with what is compiled, beside that of those that passed."""
    return path.with_name(f"{path.name}.compiled")


def lines_of(path: Path) -> frozenset[str]:
    return frozenset(path.read_text(encoding="utf-8").splitlines()) if path.is_file() else frozenset()
