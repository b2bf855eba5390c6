"""The options of an emulated run, and in which context they hold."""

from __future__ import annotations

import subprocess
import sys
import threading
from dataclasses import FrozenInstanceError
from typing import Any

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.emulator.options import Options, current_options


def test_the_defaults_are_checked_lockstep_with_late_copies() -> None:
    assert current_options() == Options("lockstep", 0, "late", True, False)
    with pytest.raises(FrozenInstanceError):
        current_options().seed = 1  # type: ignore[misc]


def test_emulation_contexts_nest_and_add_options() -> None:
    with bp.emulation(order="random", seed=np.int64(3)) as outer:
        assert current_options() is outer == Options(order="random", seed=3) and type(outer.seed) is int
        with bp.emulation(copies="early", checks=False):
            assert current_options() == Options("random", 3, "early", False)
        with pytest.raises(ZeroDivisionError), bp.emulation(force=True) as inner:
            assert (current_options() is inner and inner.force) / 0
        assert current_options() is outer
    assert current_options() == Options()


def test_another_thread_has_its_own() -> None:
    seen = []
    with bp.emulation(seed=1):
        thread = threading.Thread(target=lambda: seen.append(current_options()))
        thread.start()
        thread.join()
    assert seen == [Options()]


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *[("order", v) for v in ("warps", "", 3, ["random"], b"random", np.array(["random"]))],
        *[("copies", v) for v in ("lockstep", "LATE", 0)],
        *[("seed", v) for v in (-1, 1 << 64, 1.0, "3", True, np.arange(3))],
        *[(name, v) for name in ("checks", "force") for v in (0, 1, "yes")],
    ],
)
def test_what_is_no_option_is_refused_by_name(option: str, value: Any) -> None:
    with pytest.raises(bp.InvalidProblemError, match=f"{option}=.*: give"), bp.emulation(**{option: value}):
        pytest.fail("the context was entered")
    assert current_options() == Options()


def test_naming_it_imports_no_engine_and_no_numpy() -> None:
    code = "import sys, baracuda_py.types; before = set(sys.modules); import baracuda_py as bp; bp.emulation\n"
    code += "print([m for m in set(sys.modules) - before if m.startswith('baracuda_py.') or m == 'numpy'])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert sorted(eval(ran.stdout)) == ["baracuda_py.emulator", "baracuda_py.emulator.options"]
