"""A problem that would take the emulator minutes is refused at once, with an estimate, unless it is meant."""

from __future__ import annotations

import time

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.emulator import machine


def test_a_large_problem_is_refused_at_once() -> None:
    a = np.zeros((8192, 8192), np.float16)
    began = time.perf_counter()
    with pytest.raises(bp.UnsupportedError, match=r"about \d+ s.*force=True"):
        bp.matmul(a, a, device="ptx")
    assert time.perf_counter() - began < 10


def test_a_launch_that_turns_out_long_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.arange(1 << 20, dtype=np.float32)
    clock = iter(range(0, 10**6, 50))
    monkeypatch.setattr(machine.time, "perf_counter", lambda: next(clock))
    with pytest.raises(bp.UnsupportedError, match=r"would take \d+ s"):
        bp.neg(x, device="ptx")
    with bp.emulation(force=True):
        assert np.array_equal(bp.neg(x, device="ptx"), -x)
