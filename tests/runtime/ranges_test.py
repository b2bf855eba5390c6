"""BARACUDA_NVTX and BARACUDA_LOG: ranges around launches, and the log on stderr."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from baracuda_py.runtime import ranges


class Executable:
    """Notes what runs, in the order of the ranges."""

    def __init__(self, seen: list[str]) -> None:
        self.seen = seen

    def run(self, *arguments: Any) -> None:
        self.seen.append(f"run{arguments}")

    def prepare(self, *arguments: Any) -> tuple[Any, ...]:
        return tuple(lambda stream, i=i: self.seen.append(f"{arguments} {i} {stream}") for i in range(2))


@pytest.fixture
def nvtx(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    seen: list[str] = []
    module = ModuleType("nvtx")
    module.push_range, module.pop_range = seen.append, lambda: seen.append("end")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "nvtx", module)
    ranges._ranges.cache_clear()
    yield seen
    ranges._ranges.cache_clear()


def test_ranges_are_around_every_launch(nvtx: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BARACUDA_NVTX", "1")
    made = ranges.in_ranges(Executable(nvtx), "gelu/contiguous")
    made.run(1, 2)
    assert nvtx == ["gelu/contiguous", "run(1, 2)", "end"]
    (call,) = made.prepare("args")
    nvtx.clear()
    call(7)
    assert nvtx == ["gelu/contiguous", "('args',) 0 7", "('args',) 1 7", "end"]


def test_ranges_end_where_a_launch_fails(nvtx: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BARACUDA_NVTX", "1")
    failing = SimpleNamespace(run=lambda: 1 / 0, prepare=None)
    with pytest.raises(ZeroDivisionError):
        ranges.in_ranges(failing, "x").run()
    assert nvtx == ["x", "end"]


@pytest.mark.parametrize("value", [None, "", "0"])
def test_ranges_change_nothing_where_they_are_off(
    nvtx: list[str], monkeypatch: pytest.MonkeyPatch, value: str | None
) -> None:
    monkeypatch.delenv("BARACUDA_NVTX", raising=False)
    if value is not None:
        monkeypatch.setenv("BARACUDA_NVTX", value)
    made = Executable(nvtx)
    assert ranges.in_ranges(made, "x") is made and vars(made) == {"seen": nvtx}


def test_ranges_of_no_module_are_one_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BARACUDA_NVTX", "1")
    for name in ("nvtx", "cupy", "cupy.cuda"):
        monkeypatch.setitem(sys.modules, name, None)
    ranges._ranges.cache_clear()
    made = Executable([])
    with pytest.warns(RuntimeWarning, match="BARACUDA_NVTX is set, and neither nvtx nor CuPy's nvtx is installed"):
        assert ranges.in_ranges(made, "x") is made
    ranges._ranges.cache_clear()


def said(level: str) -> str:
    code = "import baracuda_py as bp; bp.UnaryPlan.select(bp.UnaryDescriptor('exp', (8,), 'f32'), device='h200')"
    ran = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "BARACUDA_LOG": level},
        capture_output=True,
        text=True,
        check=True,
    )
    return ran.stderr


def test_log_shows_choices_from_its_level_on() -> None:
    assert "baracuda_py DEBUG: exp on NVIDIA H200 (sm_90a): contiguous[" in said("debug") and "by model" in said(
        "DEBUG"
    )
    assert said("info") == said("") == ""
    assert "BARACUDA_LOG='loud' is none of debug, info, warning, error, and is ignored" in said("loud")
