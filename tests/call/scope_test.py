"""Preferences and devices of a context, of a thread and of the process: what a call inside has, and that none is left behind."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.call.cache import plan_cache
from baracuda_py.runtime.scope import process

from .simulated import Gpus, simulated

X, W = np.ones((1, 4096), np.float16), np.ones((4096, 512), np.float16)
INVARIANT = bp.PlanPreference(batch_invariant=True)


@pytest.fixture(autouse=True)
def no_device_of_the_process() -> Iterator[None]:
    process.set(None)
    yield
    process.set(None)


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gpus]:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    yield from simulated(monkeypatch, "sm_89")


def variant(**how: Any) -> tuple[str, bool]:
    plan = bp.matmul.plan(X, W, device="h200", **how)
    return plan.sku.variant, plan.pref.batch_invariant


def launched(call: Callable[[], Any]) -> tuple[Any, ...]:
    """The plan's preference of a call of matmul, and whether the call needed a selection."""
    before = plan_cache.info().misses
    call()
    newest = max(plan_cache.calls.values(), key=lambda ready: ready.used)
    return newest.selection.pref.batch_invariant, plan_cache.info().misses - before


# ---- preferences ------------------------------------------------------------------------------------------------------


def test_preference_reaches_functions_and_select() -> None:
    plain = bp.MatmulPlan.select(bp.MatmulDescriptor.of(X, W), device="h200")
    with bp.preference(batch_invariant=True):
        assert variant()[1] and bp.MatmulPlan.select(plain.desc, device="h200").pref == INVARIANT
    assert not variant()[1] and bp.MatmulPlan.select(plain.desc, device="h200") == plain


def test_preference_of_the_call_wins_by_field() -> None:
    with bp.preference(batch_invariant=True, max_workspace_bytes=0):
        pref = bp.matmul.plan(X, W, pref=bp.PlanPreference(batch_invariant=False), device="h200").pref
        assert (pref.batch_invariant, pref.max_workspace_bytes) == (False, 0)
        pref = bp.matmul.plan(X, W, pref=bp.PlanPreference(backend="bespoke"), device="h200").pref
        assert (pref.batch_invariant, pref.backend) == (True, bp.BackendKind.BESPOKE)


def test_preferences_nest() -> None:
    with bp.preference(batch_invariant=True, bit_stable=True):
        with bp.preference(batch_invariant=False, deterministic=True):
            pref = bp.matmul.plan(X, W, device="h200").pref
            assert (pref.batch_invariant, pref.bit_stable, pref.deterministic) == (False, True, True)
        assert variant()[1]
    with pytest.raises(RuntimeError), bp.preference(batch_invariant=True):
        raise RuntimeError
    assert not variant()[1]


def test_scopes_are_entered_again() -> None:
    """One object, one after another, inside itself and in two threads whose blocks end in the other order."""
    invariant, on_h200 = bp.preference(batch_invariant=True), bp.device("h200")
    for _ in range(2):
        with invariant, on_h200:
            with invariant, on_h200:
                assert variant()[1]
            assert variant()[1] and str(bp.matmul.plan(X, W).device) == str(bp.matmul.plan(X, W, device="h200").device)
        assert not variant()[1]
    entered, left, found = threading.Event(), threading.Event(), []

    def other() -> None:
        with invariant:
            entered.set()
            left.wait(20)
            found.append(variant()[1])
        found.append(variant()[1])

    thread = threading.Thread(target=other)
    with invariant:
        thread.start()
        entered.wait(20)
    left.set()
    thread.join()
    assert found == [True, False] and not variant()[1]


def test_preference_leaves_scoped_parts_of_plans_alone() -> None:
    """What a candidate selects for itself is the same inside and outside: its answers are kept by descriptor alone."""
    desc = bp.CumsumBackwardDescriptor((4, 4096), "f32", axis=1)
    with bp.preference(max_workspace_bytes=0, bit_stable=True):
        inside = bp.CumsumBackwardPlan.select(desc, bp.PlanPreference(max_workspace_bytes=None), device="h200")
    outside = bp.CumsumBackwardPlan.select(desc, device="h200")
    assert inside.sku == outside.sku


@pytest.mark.parametrize("first_inside", [True, False])
def test_preference_is_a_part_of_the_short_path_key(gpus: Gpus, first_inside: bool) -> None:
    """A repeated call neither reuses inside what was selected outside, nor the reverse."""
    x, w = gpus.array(X), gpus.array(W)

    def inside() -> None:
        with bp.preference(batch_invariant=True):
            bp.matmul(x, w)

    def outside() -> None:
        bp.matmul(x, w)

    order = (inside, outside) if first_inside else (outside, inside)
    assert [launched(call) for call in order] == [(call is inside, 1) for call in order]
    for call in (*order, *order):
        assert launched(call) == (call is inside, 0), "hits, each of its own plan"
    with bp.preference(batch_invariant=True):
        assert launched(lambda: bp.matmul(x, w, pref=bp.PlanPreference(batch_invariant=False)))[0] is False
        assert launched(lambda: bp.matmul(x, w, pref=bp.PlanPreference()))[0] is True


def test_preference_holds_for_one_thread(gpus: Gpus) -> None:
    x, w = gpus.array(X), gpus.array(W)
    inside, outside = threading.Barrier(2, timeout=30), []

    def other() -> None:
        for _ in range(20):
            inside.wait()
            outside.append(bp.matmul.plan(x, w).pref.batch_invariant)
            bp.matmul(x, w)

    thread = threading.Thread(target=other)
    thread.start()
    with bp.preference(batch_invariant=True):
        for _ in range(20):
            inside.wait()
            assert bp.matmul.plan(x, w).pref.batch_invariant
            bp.matmul(x, w)
    thread.join()
    assert outside == [False] * 20
    prefs = [ready.selection.pref.batch_invariant for ready in plan_cache.calls.values()]
    assert sorted(prefs) == [False, True]


@pytest.mark.parametrize(
    "wrong", [{"math": "tf32"}, {"variant": "wgmma"}, {"backend": "cublas"}, {"batch_invarient": True}]
)
def test_preference_refuses_what_names_a_kernel(wrong: dict[str, Any]) -> None:
    (name,) = wrong
    with pytest.raises(
        bp.UnsupportedError, match=f"preference\\({name}=...\\) .* deterministic, bit_stable, batch_invariant"
    ):
        bp.preference(**wrong)
    with pytest.raises(bp.InvalidProblemError, match="give True or False"):
        bp.preference(batch_invariant="yes")  # type: ignore[arg-type]
    with bp.preference(batch_invariant=True), pytest.raises(bp.InvalidProblemError, match="pref must be"):
        bp.matmul(X, W, pref="wgmma", device="cpu")  # type: ignore[arg-type]


def test_preference_remembers_what_it_was_given() -> None:
    import copy
    import pickle

    pref = bp.PlanPreference(batch_invariant=False)
    assert pref == bp.PlanPreference() and hash(pref) == hash(bp.PlanPreference())
    for same in (copy.copy(pref), copy.deepcopy(pref), pickle.loads(pickle.dumps(pref))):
        assert same.given == {"batch_invariant"} == pref.given
    assert bp.PlanPreference("bespoke", "wgmma").given == {"backend", "variant"}


# ---- devices ----------------------------------------------------------------------------------------------------------


def test_set_device_reaches_all_threads_and_yields_to_contexts() -> None:
    bp.set_device("cpu")
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(bp.gelu(X)))
    thread.start()
    thread.join()
    assert type(found[0]) is np.ndarray
    with bp.device("h200"):
        assert bp.matmul.plan(X, W).device.name == "NVIDIA H200"
    with bp.preference(batch_invariant=True):
        assert bp.matmul.plan(X, W).device.is_host, "a context without a device has that of the process"
    assert bp.matmul.plan(X, W, device="sm_80").device.arch == "sm_80"
    bp.set_device(None)
    with pytest.raises(bp.UnsupportedError, match="needs a CUDA device"):
        bp.gelu(X)


def test_set_device_refuses_an_unknown_name() -> None:
    bp.set_device("cpu")
    with pytest.raises(bp.UnsupportedError, match="'h20000' is not known"):
        bp.set_device("h20000")
    assert bp.matmul.plan(X, W).device.is_host, "the device before it holds"


def test_device_of_the_process_is_a_part_of_the_short_path_key(gpus: Gpus) -> None:
    x = gpus.array(X)
    bp.gelu(x)
    bp.set_device("cpu")
    with pytest.raises(bp.OperandTypeError, match="is a cupy array on CUDA device 0"):
        bp.gelu(x)
    bp.set_device(None)
    assert launched(lambda: bp.gelu(x))[1] == 0


@pytest.mark.parametrize(
    ("named", "said"),
    [("cpu", "done"), (" cpu ", "done"), ("", "needs a CUDA device"), ("h20", "BARACUDA_DEVICE=h20: "),
     ("7", "needs a CUDA device")],
)  # fmt: skip
def test_device_of_the_environment(named: str, said: str) -> None:
    """It is read at the first use; importing the package does not fail."""
    program = (
        "import numpy as np, baracuda_py as bp\n"
        "bp.gelu(np.ones(4, 'f4'), device='cpu')\n"
        "try:\n    bp.gelu(np.ones(4, 'f4')); print('done')\nexcept bp.UnsupportedError as error:\n    print(error)\n"
    )
    import os

    environment = {**os.environ, "BARACUDA_DEVICE": named}
    ran = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0 and said in ran.stdout, (ran.stdout, ran.stderr)
