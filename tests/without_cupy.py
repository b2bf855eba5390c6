"""A plugin for machines without CuPy, by which tests that need it are skipped and not failed."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Generator
from typing import Any

import pytest

from baracuda_py.runtime.system.toolchain import nvrtc
from baracuda_py.types import UnsupportedError

__all__ = ["WithoutCupy"]


class WithoutCupy:
    """Where CuPy cannot be imported: a test that failed after it asked for CuPy, or for its NVRTC, is one that needs it."""

    def __init__(self) -> None:
        self.asked = False
        with contextlib.suppress(UnsupportedError):
            nvrtc()  # where cuda.bindings has it, no test asks CuPy for it
        sys.meta_path.insert(0, self)  # type: ignore[arg-type]

    def find_spec(self, name: str, *_: Any) -> None:
        """Notes an import, and leaves it to the finders that follow."""
        self.asked |= name.partition(".")[0] == "cupy"

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        self.asked = False

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if report.failed and self.asked:
            report.outcome = "skipped"
            report.longrepr = (str(item.path), item.location[1] or 0, "Skipped: CuPy cannot be imported")
        return report
