"""The soak itself: planted defects are found and made small, memory that grows is noticed, steps survive printing."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py import functional
from baracuda_py.call.host import run_on_host
from baracuda_py.plan import get_op

from ..gauntlet import KINDS, HostHome, Problem, repeats, samples_of
from ..soak import Step, World, job
from ..soak.job import Job, Outcome, grown, soak
from ..soak.relaid import LAYOUTS, relaid
from ..soak.shrink import here, script, shrunk, there
from ..soak.world import Gate

Given = dict[str, Any]


def plant(monkeypatch: pytest.MonkeyPatch, defect: Callable[[Given, int], Any]) -> None:
    """Runs `defect` on the operands of each call by a public function, ahead of it, with how often its selection was called."""
    called: dict[int, tuple[Any, int]] = {}  # selections are held: their ids stay theirs

    def planted(selection: Any, operands: Mapping[str, Any]) -> Any:
        turn = called.get(id(selection), (None, 0))[1]
        called[id(selection)] = selection, turn + 1
        given = dict(operands)
        defect(given, turn)
        return run_on_host(selection, given)

    monkeypatch.setattr(functional, "run_on_host", planted)


def found(op: str, calls: int = 60) -> Outcome:
    return soak(Job("cpu", 3, 0, calls, threads=2, ops=(op,)))


def test_soak_finds_operands_swapped_on_the_second_call(monkeypatch: pytest.MonkeyPatch) -> None:
    def swap(given: Given, turn: int) -> None:
        if turn:
            given["x1"], given["x2"] = given["x2"], given["x1"]

    plant(monkeypatch, swap)
    outcome = found("subtract")
    assert outcome.failure and outcome.steps
    small, error = shrunk(outcome.steps, here)
    assert len(small) == 2 and small[0].problem == small[1].problem
    assert {(s.way, s.kind, s.out, s.stream) for s in small} == {("function", "plain", False, 0)}
    text = script(small, error, "python -m tests.soak --seed 3")
    assert len(text.splitlines()) <= 12
    with pytest.raises((AssertionError, bp.BaracudaError)):
        exec(compile(text.replace("from tests.soak", f"from {job.__name__.rpartition('.')[0]}"), "script", "exec"), {})


@pytest.mark.parametrize("where", ["input", "guard"])
def test_soak_finds_a_byte_written_elsewhere(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def scribble(given: Given, _turn: int) -> None:
        if where == "input" and given["x"].shape.count(0) == 0:
            given["x"][...] = 3
            given["x"][(0,) * given["x"].ndim] = 4
        elif where == "guard" and given.get("out") is not None:
            np.ndarray((1,), np.uint8, _base(given["out"]), 2)[0] ^= 1

    plant(monkeypatch, scribble)
    outcome = found("relu")
    small, error = shrunk(outcome.steps, here)
    assert len(small) == 1 and ("x is an input and was changed" if where == "input" else "out") in error
    assert small[0].out is (where == "guard")


def _base(x: Any) -> Any:
    """The memory that an array is a view of."""
    x = x if isinstance(x, np.ndarray) else x.view(sys.modules["torch"].uint8).numpy()
    while isinstance(x.base, np.ndarray):
        x = x.base
    return x.data


def test_soak_notices_memory_that_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[Any] = []
    plant(monkeypatch, lambda _given, _turn: kept.append(np.ones(1 << 20, np.uint8)))
    assert "host's memory grew" in found("neg", 800).failure
    mib = 1 << 20
    assert not grown(((400 * mib, 50 * mib), (420 * mib, 51 * mib))) and not grown(())
    assert "device's" in grown(((400 * mib, 50 * mib), (400 * mib, 90 * mib)))


def test_soak_of_right_calls_finds_nothing() -> None:
    outcome = soak(Job("cpu", 5, 0, 150, threads=3))
    assert not outcome.failure and outcome.calls >= 150 and outcome.problems > 5 and len(outcome.memory) == 2
    assert soak(Job("ptx", 5, 0, 20, ops=("add", "softmax"))).failure == ""


def test_soak_gate_lets_captures_pass_alone() -> None:
    gate, inside, most = Gate(), [], []  # type: tuple[Gate, list[bool], list[Any]]

    def enter(alone: bool) -> None:
        for _ in range(20):
            with gate(alone=alone):
                inside.append(alone)
                time.sleep(0.0005)
                most.append((alone, len(inside)))
                inside.remove(alone)

    threads = [threading.Thread(target=enter, args=(turn == 0,)) for turn in range(4)]
    [thread.start() for thread in threads], [thread.join() for thread in threads]
    assert len(most) == 80 and all(count == 1 for alone, count in most if alone)
    assert any(count > 1 for alone, count in most if not alone)


@pytest.mark.parametrize("how", LAYOUTS)
def test_soak_layouts_keep_values(how: str) -> None:
    for shape in ((), (0, 3), (5,), (3, 4), (2, 3, 4)):
        data = np.arange(int(np.prod(shape)), dtype=np.float32).reshape(shape)
        view = relaid(data, how)
        assert view.shape == shape and np.array_equal(view, data)
        if data.ndim > 1 and data.size and how not in ("C", "offset"):
            assert view.strides != data.strides


def test_soak_steps_survive_json_and_printing() -> None:
    step = Step("add", "x", "cpu", "run", "mixed", True, 1, (("x1", "padded"),))
    assert Step.of_json(json.loads(json.dumps(step.to_json()))) == step == eval(repr(step))
    assert repr(Step("add", "x")) == "Step('add', 'x')"


def test_soak_shrinks_in_another_process() -> None:
    step = Step("add", samples_of(get_op("add"), count=1)[0].label, "cpu")
    assert there([step]) == ""
    assert "ValueError" in there([Step("add", "no such sample", "cpu")])


def test_soak_command_writes_a_record(tmp_path: Path) -> None:
    record = tmp_path / "record.json"
    command = [
        sys.executable,
        "-m",
        "tests.soak",
        "--device",
        "cpu",
        "--calls",
        "60",
        "--ops",
        "add",
        "neg",
        "--jobs",
        "1",
    ]
    ran = subprocess.run([*command, "--record", str(record)], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    said = json.loads(record.read_text())
    assert said["calls"] >= 60 and said["failures"] == [] and {"date", "commit", "seed"} <= said.keys()


def test_repeats_notice_an_input_that_only_a_later_call_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    sample = samples_of(get_op("relu"), count=1)[0]
    repeats(Problem(get_op("relu"), sample, "cpu"), HostHome(), KINDS)

    def scribble(given: Given, turn: int) -> None:
        if turn == 2:
            given["x"][...] = 5

    plant(monkeypatch, scribble)
    with pytest.raises(AssertionError, match=r"plain, without out, call 3.* x is an input"):
        repeats(Problem(get_op("relu"), sample, "cpu"), HostHome(), KINDS)


def test_world_keeps_a_problem() -> None:
    world, step = World("cpu"), Step("add", samples_of(get_op("add"), count=1)[0].label, "cpu")
    assert world.problem(step) is world.problem(Step(step.op, step.sample, "cpu", way="run"))
    world.forget(step)
    assert world.problem(step).wide
