"""A pytest plugin by which a second run leaves out what a first one has seen to pass: ``--passed PATH``.

Continuous integration runs the bounded suite as a user does, and then the full suite, of which it is a part. A test is run again
where its outcome may differ: if it draws more in the full suite, or its file names a framework that only the second run has.
"""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path

import pytest

__all__ = ["Passed"]

_FRAMEWORKS = re.compile(r"\b(torch|jax)\b", re.IGNORECASE)


@lru_cache(maxsize=512)
def _names_a_framework(path: Path) -> bool:
    return _FRAMEWORKS.search(path.read_text(encoding="utf-8")) is not None


class Passed:
    """Deselects the tests that `path` lists, and lists there those that pass. Workers deselect, the process that starts them
    writes."""

    def __init__(self, path: Path, *, writes: bool) -> None:
        self.path, self.writes = path, writes
        self.before = frozenset(path.read_text(encoding="utf-8").splitlines()) if path.is_file() else frozenset()
        self.now: set[str] = set()

    def left_out(self, item: pytest.Item) -> bool:
        draws_more = "bounded" in getattr(item, "fixturenames", ())
        return item.nodeid in self.before and not draws_more and not _names_a_framework(item.path)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        others = [item for item in items if self.left_out(item)]
        if others:
            items[:] = [item for item in items if not self.left_out(item)]
            config.hook.pytest_deselected(items=others)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.passed:
            self.now.add(report.nodeid)
        elif report.failed:
            self.now.discard(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        if self.writes:
            self.path.write_text("\n".join(sorted(self.before | self.now)) + "\n", encoding="utf-8")
