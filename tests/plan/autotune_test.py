"""What autotune times and returns, with the clock faked; what it, `profile` and `verify` refuse; `verify` on samples."""

from __future__ import annotations

import io
import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.call.caller import Caller
from baracuda_py.ops.elementwise import oracle
from baracuda_py.plan import Selection, all_ops, get_op
from baracuda_py.plan.about import tune
from baracuda_py.types import DeviceSpec, PlanPreference

from ..call.simulated import Gpus, simulated
from ..gauntlet import Problem, samples_of

H200 = DeviceSpec.named("h200")
DESC = bp.MatmulDescriptor((8192, 4096), (4096, 14336), "bf16", "bf16")  # type: ignore[arg-type]
pytestmark = pytest.mark.usefixtures("fresh_cache")
Clock = dict[Selection, float]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Seconds by plan; what is not listed takes what is predicted. Every plan that is timed is noted here."""
    times: Clock = {}

    def profile(plan: Selection, _operands: Any, repeats: int) -> float:
        assert repeats > 0
        times.setdefault(plan, plan.cost.seconds)
        if times[plan] < 0:
            raise bp.CompileError("it does not compile")
        return times[plan]

    monkeypatch.setattr(tune, "profile", profile)
    monkeypatch.setattr(tune, "require_cupy", lambda _what: None)
    return times


def admissible(desc: Any = DESC, pref: PlanPreference | None = None) -> list[Selection]:
    return [plan.selection for plan in tune.admissible(bp.MatmulPlan, desc, pref or PlanPreference(), H200)]


# ---- which rivals ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [8192, 64, 1])
def test_a_rival_promises_no_less_and_may_promise_more(rows: int) -> None:
    """Terms are compared one by one: what is tighter is timed, what is looser is not."""
    desc = replace(DESC, a_shape=(rows, 4096))
    plans = admissible(desc)
    plan = bp.MatmulPlan.select(desc, device=H200).selection
    rivals = tune.rivals(plan, None)

    def coefficients(p: Selection) -> dict[Any, float]:
        return {(t.unit, t.measure): t.coefficient for t in p.guarantee.bound.terms}  # type: ignore[union-attr]

    held = coefficients(plan)
    for rival in plans:
        flags = rival.guarantee.batch_invariant >= plan.guarantee.batch_invariant
        fits = flags and all(c <= held[k] for k, c in coefficients(rival).items())
        assert (rival in rivals) is fits, rival.sku
    assert plan in rivals
    tighter = [r for r in rivals if coefficients(r) != held]
    assert len(tighter) + sum(coefficients(r) == held for r in rivals) == len(rivals)
    assert tighter or rows != 8192, "the default splits K and its rivals need not: their bounds are tighter"


def test_the_best_predicted_are_timed_and_as_many_as_asked(clock: Clock) -> None:
    plan = bp.MatmulPlan.select(DESC, device=H200)
    plan.autotune()
    every = tune.rivals(plan.selection, None)
    assert list(clock) == every[:6]
    clock.clear()
    plan.autotune(top=2)
    assert list(clock) == every[:2]
    clock.clear()
    plan.autotune(top=None)
    assert set(clock) == set(every) and len(clock) > 20
    for top in (0, -1, 1.5, True, "all"):
        with pytest.raises(bp.InvalidProblemError, match=r"autotune\(top=.*\): give an int of 1 or more, or None"):
            plan.autotune(top=top)  # type: ignore[arg-type]


def test_a_plan_outside_the_best_is_timed_too(clock: Clock) -> None:
    held = bp.MatmulPlan(tune.rivals(bp.MatmulPlan.select(DESC, device=H200).selection, None)[-1])
    assert held.autotune(top=3).sku == tune.rivals(held.selection, 1)[0].sku
    assert next(iter(clock)) == held.selection and set(clock) == {held.selection, *tune.rivals(held.selection, 3)}


# ---- the winner --------------------------------------------------------------------------------------------------------


def test_the_fastest_is_returned_and_selected_from_then_on(clock: Clock) -> None:
    plan = bp.MatmulPlan.select(DESC, device=H200)
    winner = tune.rivals(plan.selection, None)[4]
    clock[winner] = plan.cost.seconds / 2
    tuned = plan.autotune()
    assert tuned.selection == winner and tuned.provenance.startswith("tuned 20") and winner.provenance == "model"
    again = bp.MatmulPlan.select(DESC, device=H200)
    assert (again.sku, again.provenance) == (tuned.sku, tuned.provenance)


def test_five_percent_displace_a_plan_and_no_less(clock: Clock) -> None:
    plan = bp.MatmulPlan.select(DESC, device=H200)
    clock |= dict.fromkeys(tune.rivals(plan.selection, 6), 1.0)
    clock[tune.rivals(plan.selection, 6)[3]] = 0.951
    assert plan.autotune() == plan
    clock[tune.rivals(plan.selection, 6)[3]] = 0.949
    assert plan.autotune().selection == tune.rivals(plan.selection, 6)[3]


def test_tune_logs_a_failed_rival_and_raises_for_bad_operands(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    plan = bp.MatmulPlan.select(DESC, device=H200)
    rival = tune.rivals(plan.selection, 6)[1]
    clock[rival] = -1
    with caplog.at_level(logging.WARNING, logger="baracuda_py"):
        assert plan.autotune() == plan
    assert [str(rival.sku) in r.getMessage() for r in caplog.records] == [True]
    clock[plan.selection] = -1
    with pytest.raises(bp.CompileError, match="it does not compile"):
        plan.autotune()


def test_nothing_is_printed_where_there_is_no_terminal(clock: Clock, capfd: pytest.CaptureFixture[str]) -> None:
    bp.MatmulPlan.select(DESC, device=H200).autotune()
    assert capfd.readouterr() == ("", "")
    assert clock


def test_a_terminal_sees_how_far_it_is(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    bp.MatmulPlan.select(DESC, device=H200).autotune()
    assert "autotune" in terminal.getvalue()
    assert clock


# ---- what is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["autotune", "profile"])
def test_a_plan_of_the_host_is_not_timed(method: str) -> None:
    x = np.ones(4, np.float32)
    plan = bp.UnaryPlan.select(bp.UnaryDescriptor("exp", (4,), "f32"), device="cpu")  # type: ignore[arg-type]
    with pytest.raises(
        bp.UnsupportedError, match=f"{method}: this plan for exp runs on the host.*without device"
    ) as caught:
        getattr(plan, method)(x=x)
    assert 'pass device="cpu"' not in str(caught.value)


@pytest.mark.parametrize("method", ["autotune", "profile"])
def test_nothing_is_timed_without_a_gpu(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(what: str) -> None:
        raise bp.UnsupportedError(f"{what} needs a CUDA device")

    monkeypatch.setattr(tune, "require_cupy", refuse)
    plan = bp.UnaryPlan.select(bp.UnaryDescriptor("exp", (4,), "f32"), device="h200")  # type: ignore[arg-type]
    with pytest.raises(bp.UnsupportedError, match=f"{method} needs a CUDA device"):
        getattr(plan, method)()


@pytest.mark.parametrize("repeats", [0, -1, 2.5, True])
def test_no_median_of_nothing(repeats: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tune, "require_cupy", lambda _what: None)
    plan = bp.UnaryPlan.select(bp.UnaryDescriptor("exp", (4,), "f32"), device="h200")  # type: ignore[arg-type]
    with pytest.raises(bp.InvalidProblemError, match=r"profile\(repeats="):
        plan.profile(repeats=repeats)


# ---- verify ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", ["write_slice", "contiguize", "kv_append", "exp", "pow", "matmul_tc"])
def test_verify_without_arrays_runs_the_samples(op: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = get_op(op).plan.select(Problem(get_op(op), samples_of(get_op(op), count=2)[1], "cpu").desc, device="cpu")
    ran: list[Any] = []
    run = Caller.__call__
    monkeypatch.setattr(Caller, "__call__", lambda self, *given: (ran.append(given), run(self, *given))[1])
    plan.verify()
    assert len(ran) >= 8


def test_verify_alone_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = bp.UnaryPlan.select(bp.UnaryDescriptor("exp", (4,), "f32"), device="cpu")  # type: ignore[arg-type]
    right: Callable[..., Any] = oracle.evaluate
    answers = iter([0.0, 1e-3] * 500)  # the second answer, that of the run, is off
    monkeypatch.setattr(oracle, "evaluate", lambda desc, arrays: right(desc, arrays) * (1 + next(answers)))
    with pytest.raises(AssertionError, match=r"exp, sample .*: \d+ of \d+ elements break"):
        plan.verify()


def test_verify_says_which_operand_is_missing() -> None:
    plan = bp.MatmulPlan.select(bp.MatmulDescriptor((4, 4), (4, 4), "f32", "f32"), device="cpu")  # type: ignore[arg-type]
    with pytest.raises(bp.InvalidProblemError, match="operand 'b' is missing"):
        plan.verify(a=np.ones((4, 4), np.float32))


def test_verify_takes_packed_buffers_on_the_host() -> None:
    dest, source = (bp.GpuBuffer.view(np.full((4, n), 0x21, np.uint8), "s4") for n in (8, 2))
    desc = bp.WriteSliceDescriptor.of(dest=dest, source=source, ranges=[(0, 4), (3, 7)])
    bp.WriteSlicePlan.select(desc, device="cpu").verify(dest=dest, source=source)
    assert (dest.array == 0x21).all(), "it ran on a copy"


def test_copies_keep_how_an_array_lies() -> None:
    whole = np.arange(200, dtype=np.float32)
    for view in (whole, whole[3:], whole[150:10:-3], whole.reshape(10, 20).T[2:, 1:], whole[:0], whole[:1].reshape(())):
        copy = tune.copy_of(view)
        assert np.array_equal(copy, view) and (copy.strides, copy.dtype) == (view.strides, view.dtype)
        assert copy.ctypes.data % 256 == view.ctypes.data % 256 and not np.shares_memory(copy, view)


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gpus]:
    for made in simulated(monkeypatch, "h200"):
        monkeypatch.setattr(tune, "require_cupy", lambda _what, made=made: made)
        yield made


def test_copies_to_a_gpu_keep_how_an_array_lies(gpus: Gpus) -> None:
    whole = np.arange(200, dtype=np.float32)
    views = [whole, whole[3:], whole[150:10:-3], whole.reshape(10, 20).T[2:, 1:], np.broadcast_to(whole[:4], (3, 4))]
    for view in views:
        copy = tune.copy_of(view, to_gpu=True)
        assert copy.data.device_id == 0 and (copy.strides, copy.dtype) == (view.strides, view.dtype)
        assert copy.data.ptr % 256 == view.ctypes.data % 256 and np.array_equal(gpus.read(copy), view)
    nibbles = bp.GpuBuffer.view(np.arange(32, dtype=np.uint8), bp.S4)
    for view in (np.arange(59, dtype=np.uint8).view(bp.FP8_E4M3.dtype), nibbles, nibbles.strided((3, 5), (-9, 2), 40)):
        copy = tune.copy_of(view, to_gpu=True)
        assert isinstance(copy, bp.GpuBuffer) and copy.shape == view.shape and copy.device == bp.Device(0)
        assert np.array_equal(gpus.read(copy.array), np.asarray(getattr(view, "array", view)).view(np.uint8))
    assert len(gpus.work) == len(gpus.events) == len(views) + 3


def test_verify_leaves_a_torch_tensor_as_it_is() -> None:
    torch = pytest.importorskip("torch")
    x, out = torch.ones(8), torch.zeros(8)
    bp.UnaryPlan.select(bp.UnaryDescriptor("exp", (8,), "f32"), device="cpu").verify(x=x, out=out)  # type: ignore[arg-type]
    assert (out == 0).all()


@pytest.mark.gpu
@pytest.mark.parametrize("op", list(all_ops()))
def test_verify_alone_on_the_device(op: str) -> None:
    sample = samples_of(get_op(op), count=2)[1]
    get_op(op).plan.select(Problem(get_op(op), sample, "cuda").desc).verify()
