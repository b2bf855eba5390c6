"""``device="ptx"``: what reaches the emulator's engine and what users see. The engine is a stand-in that notes its calls."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.call.operands.validate import check_operands
from baracuda_py.emulator.options import Options
from baracuda_py.runtime.compile import compiler
from baracuda_py.runtime.steps import Launch
from baracuda_py.tensor import intake
from baracuda_py.types import DeviceSpec, PlanPreference

from ..call.simulated import Gpus, simulated
from .stand_in import Engine, stand_in

F32 = np.float32


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    yield from stand_in(monkeypatch)


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gpus]:
    yield from simulated(monkeypatch, "h200")


def unary(shape: tuple[int, ...] = (64,), device: Any = "ptx", **fields: Any) -> Any:
    return bp.UnaryPlan.select(bp.UnaryDescriptor("neg", shape, "f32", **fields), device=device)


def product(device: Any = "ptx", m: int = 64) -> Any:
    return bp.MatmulPlan.select(bp.MatmulDescriptor((m, 64), (64, m), "f16", "f16"), device=device)


# ---- selecting -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["sm_80", "sm_86", "sm_90a", "sm_120", "h200"])
def test_emulated_plan_equals_the_gpu_plan(name: str) -> None:
    for make in (unary, product):
        real, plan = make(device=name), make(device=f"ptx:{name}")
        assert plan != real and hash(plan) != hash(real) and plan.device.chip == real.device
        assert (plan.sku, str(plan.sku), plan.cost) == (real.sku, str(real.sku), real.cost)
        assert plan.selection.steps == real.selection.steps and plan.launch_config == real.launch_config
        assert plan.precision_guarantee == real.precision_guarantee and plan.provenance == real.provenance
        assert not plan.capture_safe and real.capture_safe


def test_ptx_device_is_sm_90a_with_a_plan_of_its_own() -> None:
    assert unary(device="ptx") == unary(device="ptx:sm_90a")
    assert len({unary(device=d) for d in ("ptx", "sm_90a", "cpu", "ptx:sm_80", "ptx:h200")}) == 5


def test_a_measured_winner_counts_for_the_emulated_gpu_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """The very kernel that the GPU would run is the one to look at."""
    asked = []
    monkeypatch.setattr("baracuda_py.plan.about.tuned._places", lambda _op, device: asked.append(device) or [])
    product("ptx:h200")
    assert asked == [DeviceSpec.named("h200")]


def test_it_says_that_it_is_emulated() -> None:
    plan = product("ptx:h200")
    for text in (repr(plan), plan._repr_html_(), repr(plan.explain()), plan.explain()._repr_html_()):
        assert "ptx:NVIDIA H200 (sm_90a, emulated)" in text
    assert "emulated" not in repr(product("h200"))


def test_what_no_kernel_serves_and_libraries_are_refused() -> None:
    desc = bp.MatmulDescriptor((64, 64), (64, 64), "f16", "f16")
    for pref in (PlanPreference(backend="cublas"), PlanPreference(variant="reference")):  # type: ignore[arg-type]
        with pytest.raises(bp.UnsupportedError, match=r"ptx:sm_90a \(emulated\)"):
            bp.MatmulPlan.select(desc, pref, device="ptx")
    fp8 = bp.MatmulDescriptor((64, 64), (64, 64), "fp8_e4m3", "fp8_e4m3", b_strides=(1, 64))
    with pytest.raises(bp.UnsupportedError, match=r'to admit it: device="ptx:sm_90a"'):
        bp.MatmulPlan.select(fp8, device="ptx:sm_80")
    assert bp.MatmulPlan.select(fp8, device="ptx:sm_90a").sku.variant == "wgmma"


@pytest.mark.parametrize("device", ["ptx", "ptx:sm_80", "ptx:h200"])
def test_a_plan_survives_json_and_pickle(device: str) -> None:
    for plan in (unary(device=device), product(device)):
        for again in (bp.Plan.from_json(plan.to_json()), pickle.loads(pickle.dumps(plan))):
            assert again == plan and again.device == plan.device and again.device.emulated


def test_saved_device_without_the_field_is_a_gpu() -> None:
    saved = json.loads(unary(device="h200").to_json())
    del saved["device"]["emulated"]
    assert bp.Plan.from_json(json.dumps(saved)) == unary(device="h200")
    for emulated in (True, 1, "yes", None):
        saved["device"]["emulated"] = emulated
        with pytest.raises(bp.InvalidProblemError, match="DeviceSpec: "):
            bp.Plan.from_json(json.dumps(saved))


# ---- what reaches the engine -----------------------------------------------------------------------------------------


def test_emulated_run_passes_footprints_values_and_scratch(engine: Engine) -> None:
    plan, x = unary(), np.arange(64, dtype=F32)
    out = plan.run(x=x)
    assert type(out) is np.ndarray and out.dtype == F32 and (out == 7).all() and (x == np.arange(64)).all()
    assert engine.programs == [("neg", plan.selection.steps, plan.selection.names, "sm_90a")]
    (ran,) = engine.ran
    assert (
        tuple(ran.tensors) == plan.selection.names
        and ran.written == {"out"}
        and ran.values == {}
        and ran.workspace == 0
    )
    assert ran.tensors["x"].pointer == x.ctypes.data and ran.tensors["out"].pointer == out.ctypes.data
    assert ran.options == Options()


def test_an_output_that_is_passed_is_the_one_returned(engine: Engine) -> None:
    out = np.zeros((8, 16), F32).T[::2]
    plan = bp.UnaryPlan.select(bp.UnaryDescriptor.of("neg", np.ones((8, 8), F32), out), device="ptx")
    assert plan.run(x=np.ones((8, 8), F32), out=out) is out and (out == 7).all()
    assert not out.base[:, 1::2].any()
    assert engine.ran[0].tensors["out"].strides == tuple(s // 4 for s in out.strides)


def test_absent_optional_operands_are_not_passed(engine: Engine) -> None:
    a, b = np.ones((64, 64), np.float16), np.ones((64, 64), np.float16)
    bp.matmul(a, b, device="ptx")
    assert set(engine.ran[0].tensors) == {"a", "b", "out"}
    assert engine.ran[0].values == {"alpha": 1.0, "beta": 1.0}
    bp.matmul(a, b, c=np.ones((64, 64), np.float16), alpha=2.5, beta=-1.0, device="ptx")
    assert set(engine.ran[1].tensors) == {"a", "b", "c", "out"}
    assert engine.ran[1].values == {"alpha": 2.5, "beta": -1.0}


def test_emulated_scratch_belongs_to_the_engine(engine: Engine) -> None:
    desc = bp.MatmulDescriptor((16, 8192), (8192, 16), "f16", "f16")
    plan = next(
        p for p in (bp.MatmulPlan.select(desc, PlanPreference(variant=v), device="ptx") for v in ("tc", "tc_async", "wgmma"))
        if p.workspace_size
    )  # fmt: skip
    a, b = np.ones((16, 8192), np.float16), np.ones((8192, 16), np.float16)
    plan.run(a=a, b=b)
    assert engine.ran[0].workspace == plan.workspace_size > 0


def test_a_run_time_start_moves_the_footprint(engine: Engine) -> None:
    dest, source = np.zeros((32, 16), F32), np.ones((2, 16), F32)
    desc = bp.WriteSliceDescriptor.of(dest=dest, source=source, ranges=[(0, 2), (0, 16)])
    plan = bp.WriteSlicePlan.select(desc, device="ptx")
    assert plan.run(dest=dest, source=source, start=(5, 0)) is dest
    footprint = engine.ran[0].tensors["dest"]
    assert footprint.pointer == dest.ctypes.data + 5 * 64 and footprint.shape == (2, 16)
    assert (dest[5:7] == 7).all() and not dest[:5].any() and not dest[7:].any()
    with pytest.raises(bp.InvalidProblemError, match="beyond dest's extent"):
        plan.run(dest=dest, source=source, start=(31, 0))
    assert len(engine.ran) == 1


def test_options_are_those_of_the_context_of_the_call(engine: Engine) -> None:
    bound = unary().bind(x=np.ones(64, F32))
    with bp.emulation(order="random", seed=5):
        unary().run(x=np.ones(64, F32))
        bound()
        with bp.device("ptx"), bp.emulation(checks=False):
            bp.neg(np.ones(64, F32))
    bound()
    assert [ran.options for ran in engine.ran] == [
        Options("random", 5), Options("random", 5), Options("random", 5, checks=False), Options()
    ]  # fmt: skip


def test_a_program_is_translated_once_a_plan(engine: Engine) -> None:
    plan = unary()
    assert plan.load() is plan and len(engine.programs) == 1
    plan.run(x=np.ones(64, F32))
    plan.bind(x=np.ones(64, F32))()
    assert len(engine.programs) == 1
    for _ in range(3):
        bp.neg(np.ones(64, F32), device="ptx")
        bp.neg(np.ones(64, F32), device="ptx:sm_80")
    assert [program[3] for program in engine.programs] == ["sm_90a", "sm_90a", "sm_80"]


def test_a_bound_plan_runs_on_the_operands_it_holds(engine: Engine) -> None:
    x, y = np.ones(64, F32), np.full(64, 2, F32)
    bound = unary().bind(x=x)
    assert not engine.ran
    result = bound()
    assert type(result) is np.ndarray and (result == 7).all() and bound() is result
    bound.update(x=y)
    assert bound() is result
    assert [ran.arrays["x"][0] for ran in engine.ran] == [1, 1, 2]
    x[:] = 3
    assert bound.update(x=x)() is result and engine.ran[-1].arrays["x"][0] == 3


def test_a_bound_plan_keeps_what_it_reads_alive(engine: Engine) -> None:
    bound = unary().bind(x=np.full(64, 5, F32))
    for _ in range(20):
        np.full(64, 1, F32)  # what is freed is taken again
    bound()
    assert (engine.ran[0].arrays["x"] == 5).all()


def test_stream_and_workspace_are_taken_no_notice_of(engine: Engine) -> None:
    plan = unary()
    plan.run(x=np.ones(64, F32), stream=0, workspace=np.empty(4, np.uint8))
    plan.bind(x=np.ones(64, F32), workspace=object())(0)
    bp.neg(np.ones(64, F32), device="ptx", stream=7)
    assert len(engine.ran) == 3


def test_profile_gives_the_report_and_writes_nothing(engine: Engine) -> None:
    x, out = np.ones(64, F32), np.zeros(64, F32)
    assert str(unary().profile(x=x, out=out)) == "report 1"
    assert not out.any() and engine.ran[0].tensors["out"].pointer != out.ctypes.data
    assert str(unary().profile(x=x)) == "report 2"
    unary().run(x=x)
    assert [ran.accesses for ran in engine.ran] == [True, True, False], "only a profile counts transactions"


def test_a_fault_is_raised_and_nothing_is_returned(engine: Engine) -> None:
    engine.error = bp.OutOfBoundsFault("store of 4 bytes", operand="out", byte=256)
    plan, out = unary(), np.zeros(64, F32)
    bound = plan.bind(x=np.ones(64, F32), out=out)
    for call in (lambda: plan.run(x=np.ones(64, F32), out=out), bound, lambda: bp.neg(np.ones(64, F32), device="ptx")):
        with pytest.raises(bp.OutOfBoundsFault) as caught:
            call()
        assert caught.value is engine.error
    assert not out.any()


def test_verify_checks_the_result_against_the_oracle(engine: Engine) -> None:
    unary().verify(x=np.full(64, -7, F32))
    with pytest.raises(AssertionError):
        unary().verify(x=np.ones(64, F32))
    engine.ran.clear()
    with pytest.raises(AssertionError, match="sample"):
        unary().verify()
    assert engine.ran


# ---- operands of every sort ------------------------------------------------------------------------------------------


def test_torch_tensors_and_buffers_of_the_host_are_taken(engine: Engine) -> None:
    torch = pytest.importorskip("torch")
    x, out = torch.ones(64), torch.zeros(64)
    assert unary().run(x=x, out=out) is out and bool((out == 7).all())
    buffer = bp.GpuBuffer.view(np.zeros(64, F32), bp.F32)
    assert unary().run(x=np.ones(64, F32), out=buffer) is buffer and (buffer.array == 7).all()
    assert engine.ran[0].tensors["x"].pointer == x.data_ptr()


def test_a_packed_output_is_a_buffer(engine: Engine) -> None:
    x = bp.GpuBuffer.view(np.arange(32, dtype=np.uint8), bp.S4)
    out = bp.contiguize(x, device="ptx")
    assert isinstance(out, bp.GpuBuffer) and out.element is bp.S4 and out.shape == (64,) and out.device == "cpu"
    assert engine.ran[0].tensors["x"].element is bp.S4


class Immutable:
    """A host array that its framework does not let anybody write, as JAX's."""

    def __init__(self, x: Any) -> None:
        self.x = x
        x.flags.writeable = False

    def __dlpack__(self, **given: Any) -> Any:
        return self.x.__dlpack__(**given)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


REFUSED: dict[str, tuple[Any, type[Exception], str]] = {
    "a dtype": ({"x": np.ones(64)}, bp.OperandTypeError, "x must hold f32, got f64"),
    "a shape": ({"x": np.ones(63, F32)}, bp.InvalidProblemError, "x must have shape"),
    "strides": ({"x": np.ones(128, F32)[::2]}, bp.InvalidProblemError, "x must have strides"),
    "a missing operand": ({"out": np.zeros(64, F32)}, bp.InvalidProblemError, "operand 'x' is missing"),
    "an unknown operand": ({"x": np.ones(64, F32), "y": 1}, bp.InvalidProblemError, "no operand 'y'"),
    "no array": ({"x": 3.0}, bp.OperandTypeError, "expected an array"),
    "a misaligned address": (
        {"x": np.ones(65, F32)[1:]}, bp.MisalignedOperandError, "x's first touched element must be aligned to 16 bytes",
    ),
    "a read-only output": (
        {"x": np.ones(64, F32), "out": np.frombuffer(bytes(256), F32)}, bp.OperandTypeError, "numpy array is read-only",
    ),
    "an immutable framework's output": (
        {"x": np.ones(64, F32), "out": Immutable(np.zeros(64, F32))}, bp.OperandTypeError, "array is read-only",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_emulated_call_is_refused_before_the_engine(what: str, engine: Engine) -> None:
    operands, kind, said = REFUSED[what]
    plan = unary()
    feasible = plan.can_implement(**operands)
    assert not feasible and isinstance(feasible.error, kind) and said in str(feasible.error)
    for call in (plan.run, plan.bind, plan.verify):
        with pytest.raises(kind, match="neg") as caught:
            call(**operands)
        assert said in str(caught.value)
    assert not engine.ran and not engine.programs


def test_overlap_is_refused_as_on_a_gpu(engine: Engine) -> None:
    held = np.zeros(96, F32)
    with pytest.raises(bp.OverlapError, match="out is written and shares memory with x"):
        unary().run(x=held[:64], out=held[32:])
    assert unary().run(x=held[:64], out=held[:64]) is not None, "in place is allowed"
    assert len(engine.ran) == 1


def test_packed_rows_that_share_a_byte_are_refused_as_on_a_gpu() -> None:
    """The oracle writes such rows one after another; a kernel's threads would race for the byte."""
    dest = bp.GpuBuffer.view(np.zeros(8, np.uint8), bp.S4).strided((4, 3), (3, 1))
    source = bp.GpuBuffer.view(np.zeros((4, 2), np.uint8), bp.S4, (4, 3))
    desc = bp.WriteSliceDescriptor.of(dest=dest, source=source, ranges=[(0, 4), (0, 3)])
    tensors = {"dest": intake(dest, what="dest"), "source": intake(source, what="source")}
    check_operands(desc, desc.canonical(), tensors, DeviceSpec.named("cpu"))
    with pytest.raises(bp.OverlapError, match="share bytes"):
        check_operands(desc, desc.canonical(), tensors, DeviceSpec.named("ptx"))


def test_gpu_arrays_are_refused_with_how_to_copy_them(engine: Engine, gpus: Gpus) -> None:
    x = gpus.array(np.ones(64, F32))
    plan = unary()
    for operands, fix in (
        ({"x": x}, r"cupy\.asnumpy\(x\)"),
        ({"x": np.ones(64, F32), "out": x}, r"cupy\.asnumpy\(out\)"),
        ({"x": bp.GpuBuffer.view(x, bp.F32)}, r"bp\.GpuBuffer\.view\(x\.to_host\(\)"),
    ):
        match = rf"on CUDA device 0 and the plan is for ptx:sm_90a \(emulated\): .*{fix}.* or select"
        for call in (plan.run, plan.bind):
            with pytest.raises(bp.OperandTypeError, match=match):
                call(**operands)
        assert isinstance(plan.can_implement(**operands).error, bp.OperandTypeError)
    with pytest.raises(bp.OperandTypeError, match=r"cupy\.asnumpy\(x\)"), bp.device("ptx"):
        bp.neg(x)
    assert not engine.ran and not gpus.events


def test_gpu_plan_refuses_host_arrays(engine: Engine, gpus: Gpus) -> None:
    with pytest.raises(bp.OperandTypeError, match="on the host and the plan is for"):
        unary(device="h200").run(x=np.ones(64, F32))
    assert not engine.ran and not gpus.work


def test_a_layout_without_memory_is_refused(engine: Engine) -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(bp.OperandTypeError, match="a shape and no memory"):
        unary().run(x=torch.empty(64, device="meta"))
    assert not engine.ran


# ---- what an emulated plan has not -----------------------------------------------------------------------------------


def test_graphs_and_timing_are_refused_with_the_reason(engine: Engine) -> None:
    plan = unary()
    with pytest.raises(bp.UnsupportedError, match=r"the host's memory.*a CUDA graph holds what a GPU executes"):
        bp.Graph(plan.bind(x=np.ones(64, F32)))
    with pytest.raises(bp.UnsupportedError, match=r"autotune.*runs on the host \(ptx:sm_90a \(emulated\)\)"):
        plan.autotune(x=np.ones(64, F32))
    assert not engine.ran


# ---- what is touched -------------------------------------------------------------------------------------------------


def test_no_device_of_cupy_is_asked_for() -> None:
    code = """
import sys
import numpy as np, baracuda_py as bp
from baracuda_py.plan.backend import register
class Backend:
    def program(self, *given):
        return self
    def run(self, tensors, *given, **more):
        tensors["out"].array()[...] = 7
register(Backend)
x = np.ones((64, 64), np.float32)
print((bp.add(x, x, device="ptx") == 7).all(), (bp.matmul(x, x, device="ptx") == 7).all())
plan = bp.UnaryPlan.select(bp.UnaryDescriptor.of("neg", x), device="ptx:h200")
print(bool(plan.can_implement(x=x)), (plan.bind(x=x)() == 7).all(), "cupy" in sys.modules)
"""
    ran = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert ran.stdout.split() == ["True"] * 4 + ["False"], ran.stderr


def test_compile_builds_ptx_and_no_cubin(fresh_cache: Any) -> None:
    plan = unary()
    assert plan.compile() is plan
    assert sorted(p.suffix for p in fresh_cache.iterdir()) == [".json", ".ptx"]
    (kernel,) = (s.kernel for s in plan.selection.steps if isinstance(s, Launch))
    assert compiler.compile_ptx(kernel, "sm_90a", lines=True) == next(fresh_cache.glob("*.ptx")).read_text()
    assert "sm_90a" in plan.kernels[0].ptx and ".loc" not in plan.kernels[0].ptx


def test_an_empty_problem_reaches_the_engine_as_no_steps(engine: Engine) -> None:
    assert unary((0,)).run(x=np.ones(0, F32)).shape == (0,)
    assert engine.programs[0][1] == ()


def test_host_device_names_the_fix_for_what_is_no_array() -> None:
    x = np.linspace(-3, 3, 10, dtype=np.float32)
    for device in ("ptx", "cpu"):
        with pytest.raises(
            bp.OperandTypeError, match=r"x: dtype >f4 has its bytes in the other order.*newbyteorder\(\"=\"\)"
        ):
            bp.gelu(x.astype(">f4"), device=device)
        for other in ([1.0] * 10, np.float32(2)):
            with pytest.raises(bp.OperandTypeError, match=r"numpy\.asarray\(") as caught:
                bp.add(x, other, device=device)
            assert "cupy.asarray" not in str(caught.value)
