"""The command `run`: random operands laid out as the problem says, what is checked and shown, and exit codes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.cli import problems
from baracuda_py.cli.main import main
from baracuda_py.cli.problems import random_operands, sample_descriptors
from baracuda_py.emulator.options import Options
from baracuda_py.plan import all_ops, get_op
from baracuda_py.runtime.gpu.driver import device_count

from ..emulator.stand_in import Engine, stand_in

Run = Callable[..., tuple[int, str, str]]
NEG = ("run", "neg", "shape=33", "element=f32")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*argv: str) -> tuple[int, str, str]:
        code = main(argv)
        return (code, *capsys.readouterr())

    return call


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    for made in stand_in(monkeypatch):
        made.effect = lambda arrays: -arrays["x"]
        yield made


# ---- operands --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", list(all_ops()))
def test_operands_suit_the_problem_that_they_are_made_for(op: str) -> None:
    """On both sorts of plan: layout, alignment, place in a byte."""
    taken = 0
    for desc in sample_descriptors(get_op(op)):
        operands = random_operands(desc, seed=taken)
        for device in ("cpu", "ptx"):
            try:
                plan = get_op(op).plan.select(desc, device=device)
            except bp.UnsupportedError:
                continue
            feasible = plan.can_implement(**operands)
            assert feasible or "share" in feasible.reason or "interleave" in feasible.reason, (desc, feasible.reason)
            taken += bool(feasible)
        if taken > 60:
            break
    assert taken


def test_operands_are_no_better_aligned_than_is_said() -> None:
    for align in (4, 8, 16):
        desc = bp.UnaryDescriptor("neg", (5, 7), "f32", x_strides=(9, 1), x_align=align)
        x = random_operands(desc, 0)["x"]
        assert x.strides == (36, 4) and x.ctypes.data % 16 == align % 16
        assert bp.UnaryPlan.select(desc, device="ptx").can_implement(x=x)


def test_a_seed_draws_the_values_which_are_numbers() -> None:
    desc = bp.MatmulDescriptor((64, 64), (64, 64), "fp8_e4m3", "fp8_e4m3")
    first, again, other = (random_operands(desc, seed) for seed in (0, 0, 1))
    for name in ("a", "b"):
        assert (first[name] == again[name]).all() and not (first[name] == other[name]).all()
        assert np.isfinite(first[name].astype(np.float32)).all() and first[name].astype(np.float32).std() > 0.5


def test_positions_are_small() -> None:
    for desc in sample_descriptors(get_op("kv_append")):
        positions = random_operands(desc, 3)["positions"]
        assert positions.min() >= 0 and positions.max() < 4


# ---- the command -----------------------------------------------------------------------------------------------------


def test_it_runs_the_oracle_on_the_host(run: Run) -> None:
    code, out, err = run(*NEG, "--device", "cpu")
    assert (code, err) == (0, "")
    assert "neg/f32/reference" in out and "ran in " in out and "every element is within its bound" in out


def test_it_runs_an_emulated_plan_and_prints_the_report(run: Run, engine: Engine) -> None:
    code, out, err = run(*NEG, "--device", "ptx:sm_80")
    assert (code, err) == (0, "")
    assert "ptx:sm_80 (emulated)" in out and "report 1" in out and "to make its kernels ready" in out
    assert "neg/f32/bespoke" in out and "lines that ran" not in out
    assert engine.programs[0][3] == "sm_80" and engine.ran[0].accesses and engine.ran[0].options == Options()


@pytest.mark.skipif(device_count() > 0, reason="a GPU would be chosen")
def test_without_a_gpu_it_emulates_one(run: Run, engine: Engine) -> None:
    code, out, _ = run(*NEG)
    assert code == 0 and out.startswith("no GPU is usable here") and "ptx:sm_90a (emulated)" in out and engine.ran


def test_options_reach_the_emulator(run: Run, engine: Engine) -> None:
    for argv, options in (
        (("--order", "lockstep"), Options()),
        (("--order", "7", "--copies", "early"), Options("random", 7, "early")),
        (("--order", "0", "--force"), Options("random", 0, force=True)),
    ):
        assert run(*NEG, "--device", "ptx", *argv)[0] == 0
        assert engine.ran[-1].options == options
    values = []
    for seed in ("0", "0", "5"):
        assert run(*NEG, "--device", "ptx", "--seed", seed)[0] == 0
        values.append(engine.ran[-1].arrays["x"].tolist())
    assert values[0] == values[1] != values[2]


def test_a_large_problem_is_refused_before_there_are_operands(run: Run, engine: Engine, monkeypatch: Any) -> None:
    monkeypatch.setattr(problems, "random_operands", lambda *_: pytest.fail("operands of 4 GiB"))
    code, _, err = run("run", "neg", "shape=1000000000", "element=f32", "--device", "ptx")
    assert code != 0 and re.search(r"about \d+ s and copy the 7629 MiB.*--force", err) and not engine.ran


def test_a_trace_lists_the_lines_that_ran_with_their_text(run: Run, engine: Engine) -> None:
    engine.lines = {"elementwise/map.cu:1": 33000, "prelude:1": 9, "elementwise/map.cu:0": 3, "include/gone.cuh:4": 1}
    code, out, _ = run(*NEG, "--device", "ptx", "--trace")
    assert code == 0
    rows = [line.split() for line in out[out.index("lines that ran") :].splitlines() if ":" in line]
    assert [row[:2] for row in rows] == [
        ["elementwise/map.cu:0", "3"],
        ["elementwise/map.cu:1", "33,000"],
        ["include/gone.cuh:4", "1"],
        ["prelude:1", "9"],
    ]
    assert len(rows[1]) > 2 and len(rows[0]) == 2


def test_a_wrong_result_is_said_and_is_exit_1(run: Run, engine: Engine) -> None:
    engine.effect = lambda arrays: arrays["x"]
    code, out, err = run(*NEG, "--device", "ptx")
    assert code == 1 and "report" not in out
    assert "neg/f32/bespoke" in err and "33 of 33 elements break" in err and err.count("\n") == 1


def test_a_fault_is_said_with_its_source_and_is_exit_1(run: Run, engine: Engine) -> None:
    engine.error = bp.OutOfBoundsFault(
        "store of 4 bytes", operand="out", byte=132, extent=132, cta=0, thread=33, source="elementwise/map.cu:12"
    )
    code, out, err = run(*NEG, "--device", "ptx")
    assert code == 1 and "at out+132, which has 132: CTA 0, thread 33, elementwise/map.cu:12" in err
    assert err.count("\n") == 1 and "\n> elementwise/map.cu:12  " in out and "\n  elementwise/map.cu:14  " in out
    engine.error = bp.DeadlockFault("all wait")
    code, out, err = run(*NEG, "--device", "ptx")
    assert code == 1 and "all wait" in err and ">" not in out.splitlines()[-1]


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("--device", "cpu", "--trace"), "--device ptx"),
        (("--device", "cpu", "--order", "lockstep"), "--device ptx"),
        (("--device", "sm_90a", "--copies", "early"), "--device ptx"),
        (("--device", "ptx", "--order", "warps"), "neither lockstep nor a seed"),
        (("--device", "ptx", "--order", "-1"), "neither lockstep nor a seed"),
        (("--device", "ptx", "--order", "9" * 30), "seed="),
        (("--device", "ptx", "--copies", "soon"), "copies='soon'"),
        (("--device", "ptx:sm_12"), "is not known"),
        (("--device", "ptx", "--variant", "reference"), "runs on the host only"),
        (("--device", "ptx", "--seed", "x"), "invalid int value"),
        (("--device", "ptx", "--seed", "-1"), "--seed -1"),
    ],
)
def test_what_cannot_be_done_is_refused_readably(run: Run, engine: Engine, argv: tuple[str, ...], said: str) -> None:
    code, _, err = run(*NEG, *argv)
    assert code == 2 and said in err and "Traceback" not in err
    assert not engine.ran


@pytest.mark.skipif(device_count() > 0, reason="there is a GPU")
def test_a_gpu_that_is_not_there(run: Run) -> None:
    code, _, err = run(*NEG, "--device", "h200")
    assert code == 2 and "run on NVIDIA H200 (sm_90a) needs a CUDA device" in err and 'device="ptx"' in err


def test_an_option_that_is_wrong_is_refused_before_anything_runs(run: Run, engine: Engine, monkeypatch: Any) -> None:
    monkeypatch.setattr("baracuda_py.cli.problems.random_operands", lambda *_: pytest.fail("operands were made"))
    assert run(*NEG, "--device", "ptx", "--copies", "soon")[0] == 2
    assert not engine.ran
