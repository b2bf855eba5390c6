"""What tests of calls share."""

from __future__ import annotations

from typing import Any

import pytest

from baracuda_py import functional


@pytest.fixture
def long_way(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The calls that take the long path."""
    taken: list[Any] = []
    whole = functional._call_checked
    monkeypatch.setattr(functional, "_call_checked", lambda *a: (taken.append(a), whole(*a))[1])
    return taken
