"""The command `verify`: an op's samples on a device, one of them, what is said of wrong ones, and exit codes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import baracuda_py as bp
from baracuda_py.cli.main import main
from baracuda_py.plan import get_op
from baracuda_py.plan.about import verify
from baracuda_py.plan.about.verify import wanted_of
from baracuda_py.runtime.compile.compiler import compile_kernels, entry_key, line_info
from baracuda_py.runtime.gpu.driver import device_count, gpu_or_none
from baracuda_py.samples import Sample
from baracuda_py.samples.sample import labels_of, meant

from ..emulator.stand_in import Engine, stand_in

Run = Callable[..., tuple[int, str, str]]
ONE = ("verify", "neg", "--device", "ptx", "--sample", "f32[7, 33]")


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


def test_it_runs_every_sample_on_the_host(run: Run) -> None:
    code, out, err = run("verify", "kv_append", "--device", "cpu")
    count = len(list(get_op("kv_append").samples({}))) + len(wanted_of("kv_append"))
    assert (code, err) == (0, "")
    assert f"kv_append on cpu (host): {count} of {count} samples right, 0 wrong" in out
    assert ["reference", str(count), "0"] in [line.split() for line in out.splitlines()]


@pytest.mark.skipif(gpu_or_none() is None, reason="compiling needs NVRTC, through CuPy or cuda.bindings")
def test_it_runs_the_kernels_themselves_emulated(run: Run) -> None:
    code, out, err = run("verify", "contiguize", "--device", "ptx:sm_80", "--sample", "s4 strides")
    assert (code, err) == (0, "") and "contiguize on ptx:sm_80 (emulated): " in out and ", 0 wrong" in out


def test_one_sample_is_picked_by_its_label(run: Run, engine: Engine) -> None:
    code, out, err = run(*ONE)
    assert (code, err) == (0, "") and len(engine.ran) == 1
    assert engine.ran[0].arrays["x"].shape == (7, 33)
    (row,) = [line for line in out.splitlines() if line.startswith("f32[7, 33]")]
    assert "neg/f32/bespoke" in row and row.endswith("right")


@pytest.mark.skipif(device_count() > 0, reason="a GPU would be chosen")
def test_without_a_gpu_it_emulates_one(run: Run, engine: Engine) -> None:
    code, out, _ = run("verify", "neg", "--sample", "f32[7, 33]")
    assert code == 0 and out.startswith("no GPU is usable here") and engine.ran


@pytest.mark.usefixtures("engine")
def test_a_variant_is_insisted_on(run: Run) -> None:
    default = run(*ONE)[1]
    code, out, _ = run(*ONE, "--variant", "strided")
    assert code == 0 and "bespoke.strided" in out and "bespoke.strided" not in default


def test_wrong_samples_are_all_named_and_are_exit_1(run: Run, engine: Engine) -> None:
    engine.effect = lambda arrays: arrays["x"]
    code, out, err = run("verify", "neg", "--device", "ptx", "--sample", "f32[")
    assert code == 1 and "0 of 8 samples right" not in out
    said = err.splitlines()
    assert len(said) >= 5 and all(line.startswith("error: neg, sample f32[") for line in said)
    assert "elements break" in said[0] and f"{len(said)} wrong" in out
    assert sum(line.endswith("WRONG") for line in out.splitlines()) == len(said)


def test_a_fault_is_said_with_its_source_and_is_exit_1(run: Run, engine: Engine) -> None:
    engine.error = bp.OutOfBoundsFault(
        "store of 4 bytes", operand="out", byte=132, extent=132, cta=0, thread=33, source="elementwise/map.cu:12"
    )
    code, out, err = run(*ONE)
    assert code == 1 and err.startswith("error: neg, sample f32[7, 33]: ") and "elementwise/map.cu:12" in err
    assert "\n> elementwise/map.cu:12  " in f"\n{out}" and "WRONG" in out


@pytest.mark.usefixtures("engine")
def test_what_nothing_serves_is_counted_and_is_no_failure(run: Run) -> None:
    code, out, err = run(*ONE[:4], "--variant", "contiguous", "--sample", "f32 ")
    assert (code, err) == (0, "") and "that nothing serves" in out and "not served" in out


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("neg", "--device", "ptx", "--sample", "nonsense"), "none of its 117 samples has 'nonsense' in its label"),
        (("neg", "--device", "ptx", "--variant", "wgmma"), "neg has no variant 'wgmma': choose among"),
        (("neg", "--device", "cpu", "--lineinfo"), "runs no kernel that --lineinfo could be of"),
        (("matmul", "--device", "ptx:sm_80", "--variant", "wgmma", "--sample", "f32 "), "nothing serves any of"),
        (("neg", "--device", "ptx:sm_12"), "is not known"),
        (("negg",), "there is no op 'negg'"),
    ],
)
def test_what_cannot_be_done_is_refused_readably(run: Run, engine: Engine, argv: tuple[str, ...], said: str) -> None:
    code, _, err = run("verify", *argv)
    assert code == 2 and said in err and "Traceback" not in err and err.count("\n") == 1
    assert not engine.ran


@pytest.mark.skipif(device_count() > 0, reason="there is a GPU")
def test_a_gpu_that_is_not_there(run: Run) -> None:
    code, _, err = run("verify", "neg", "--device", "h200")
    assert code == 2 and "verify on NVIDIA H200 (sm_90a) needs a CUDA device" in err


# ---- what it is made of ------------------------------------------------------------------------------------------------


def test_sample_labels_are_distinct_and_match_by_part() -> None:
    labels = labels_of(Sample(label, {}) for label in ("a[1]", "a[1] F", "b", "b"))
    assert labels == ["a[1]", "a[1] F", "b", "b (2)"]
    assert meant(labels, "a[1]") == [0] and meant(labels, "a[") == [0, 1] and meant(labels, "b") == [2]
    assert meant(labels, "c") == []


def test_what_does_not_compile_is_an_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> None:
        raise bp.CompileError("it does not compile")

    op = get_op("neg")
    monkeypatch.setattr(verify, "verify", fails)
    outcome = verify.outcome_of(op, next(iter(op.samples(op.fixed))), bp.PlanPreference(), bp.DeviceSpec.named("cpu"))
    assert isinstance(outcome.error, bp.CompileError) and outcome.selection is not None


@pytest.mark.skipif(gpu_or_none() is None, reason="compiling needs NVRTC, through CuPy or cuda.bindings")
@pytest.mark.usefixtures("fresh_cache")
def test_source_lines_are_in_cubins_of_their_own() -> None:
    desc = bp.UnaryDescriptor("neg", (33,), "f32")  # type: ignore[arg-type]
    kernel = bp.UnaryPlan.select(desc, device="h200").selection.launches[0].kernel
    bare = compile_kernels([kernel], "sm_90a")[kernel]
    with line_info():
        lined, key = compile_kernels([kernel], "sm_90a")[kernel], entry_key(kernel, "sm_90a")
    assert b".debug_line" in lined.cubin and b"map.cu" in lined.cubin and b".debug_line" not in bare.cubin
    assert key != entry_key(kernel, "sm_90a") and lined.resources == bare.resources
    assert compile_kernels([kernel], "sm_90a")[kernel].cubin == bare.cubin
