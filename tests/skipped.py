"""A pytest plugin under which a test that a missing package skips has failed: continuous integration installs them all."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

__all__ = ["pytest_make_collect_report", "pytest_runtest_makereport"]

MISSING = "could not import "  # what importorskip gives for a reason


def _failed(report: Any) -> Any:
    reason = report.longrepr[2] if report.skipped and isinstance(report.longrepr, tuple) else ""
    if MISSING in reason:
        report.outcome = "failed"
        report.longrepr = (
            f"{report.nodeid} was skipped, and nothing may be skipped here for want of a package. {reason}"
        )
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, Any, Any]:
    return _failed((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, Any, Any]:
    """Of a module that asks for a package at its head."""
    return _failed((yield))
