"""Kernels of this project with one thing made wrong: the emulator says what, in lockstep, on a problem that reaches it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.emulator.launch import Program, translator
from baracuda_py.emulator.options import Options
from baracuda_py.emulator.translation.translate import Translator
from baracuda_py.plan import get_op
from baracuda_py.plan.about import tune
from baracuda_py.runtime.compile import compiler
from baracuda_py.runtime.compile.sources import source_of
from baracuda_py.runtime.steps import Kernel
from baracuda_py.samples import Sample
from baracuda_py.tensor import intake
from baracuda_py.types import DeviceSpec, PlanPreference

from ..gauntlet import Problem, samples_of

BF16 = ml_dtypes.bfloat16


def edited(old: str, new: str) -> Callable[[Kernel, str], Translator]:
    """Translates kernels whose text, or whose headers' text, has `new` in the place of `old`."""

    def translate(kernel: Kernel, arch: str) -> Translator:
        real, found = source_of(kernel), []

        def edit(text: str) -> str:
            found.append(old in text)
            return text.replace(old, new)

        changed: Any = SimpleNamespace(
            headers={name: edit(text) for name, text in real.headers.items()}, file=real.file, system=real.system,
            program=edit(real.program),
        )  # fmt: skip
        with compiler._Program(changed, [kernel.entry], str(kernel)) as program:
            program.compile((f"-arch={arch.replace('sm_', 'compute_')}", "-lineinfo", *compiler._options(real)))
            text = compiler._text(program.nvrtc.getPTX(program.handle))
        assert any(found), f"{kernel} has no {old!r}"
        return translator(text)

    return translate


def run(problem: Problem, plan: Any, old: str = "", new: str = "") -> None:
    """Runs a plan with its kernels edited, and checks the result."""
    problem.reset()
    given, desc = problem.operands | problem.values, plan.desc.at(problem.operands)
    footprints = {
        n: desc.footprint(n, intake(given[n], what=n, host=True))
        for n in plan.selection.names
        if given.get(n) is not None
    }
    written = {o.name for o in desc.operands if o.written}
    program = Program(
        problem.op.name,
        plan.selection.steps,
        plan.selection.names,
        plan.device.arch,
        *([edited(old, new)] if old else []),
    )
    try:
        program.run(footprints, written, desc.resolve(problem.values)[1], plan.workspace_size, Options())
    except bp.KernelFault:
        problem.check_unchanged()
        raise
    problem.check_images(problem.images(), plan)


def product(m: int, n: int, k: int, variant: str, config: str, sms: int = 132) -> tuple[Problem, Any]:
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape).astype(BF16) for shape in ((m, k), (n, k)))
    problem = Problem(get_op("matmul"), Sample("planted", {"a": a, "b": b.T}), "ptx")
    found = tune.admissible(
        bp.MatmulPlan, problem.desc, PlanPreference(variant=variant), replace(DeviceSpec.named("ptx"), sms=sms)
    )
    return problem, next(plan for plan in found if str(plan.sku.config) == config)


def sample(op: str, label: str) -> tuple[Problem, Any]:
    (one,) = [s for s in samples_of(get_op(op), everything=True) if s.label == label][:1]
    problem = Problem(get_op(op), one, "ptx")
    return problem, problem.plan


PIPELINE = (64, 64, 5120, "wgmma", "64x64 split_k=4")
TC = "64x64 k_bytes=64 warp=32x32 stages=1"
CLUSTER = (392, 264, 712, "wgmma", "128x64 cluster=2", 4)
WAIT = 'asm volatile("cp.async.wait_group %0;" ::"n"(PENDING'
FENCE = 'asm volatile("{};" ::: "memory");'
STORE_FENCE = "if constexpr (BY_TMA) tma::fence_shared();"

ARRIVED = FENCE.format("wgmma.fence.sync.aligned")
SEEN = FENCE.format("fence.mbarrier_init.release.cluster")
ALONE = '.relaxed.aligned;" ::: "memory");'
WIDE = (392, 264, 712, "wgmma", "128x128", 4)

PLANTED = [
    (PIPELINE, "if (block != first) release(previous);", "release(cursor.stage);", bp.RaceFault, "changed under a wgmma"),
    (PIPELINE, "warpgroup::wait<1>();\n          if (block != first)", "warpgroup::wait<7>();\n          if (block != first)",
     bp.RaceFault, "changed under a wgmma"),
    (PIPELINE, "barrier::wait(stages.empty(cursor.stage), cursor.parity ^ 1);", "", bp.BarrierFault, "more arrivals"),
    (PIPELINE, "barrier::wait(stages.full(cursor.stage), cursor.parity);", "", bp.KernelFault,
     "not arrived|no thread can continue"),
    (PIPELINE, "SHARERS * 4 * CLUSTER", "SHARERS * 4 * CLUSTER + 1", bp.DeadlockFault, "the mbarrier at shared memory"),
    (PIPELINE, STORE_FENCE, "", bp.ProxyFault, "no fence.proxy.async"),
    (PIPELINE, STORE_FENCE + "\n      barrier_sync(name, 128);", STORE_FENCE, bp.RaceFault, "another warp's store"),
    (PIPELINE, "16 * 128 : 32) >> 4", "16 * 128 : 64) >> 4", bp.RaceFault, "not arrived"),
    (WIDE, "NEXT_64 = 64 * 128 >> 4", "NEXT_64 = 64 * 112 >> 4", AssertionError, "elements break"),
    (CLUSTER, ARRIVED, "", bp.RaceFault, "no wgmma.fence"),
    (CLUSTER, SEEN, "", bp.ProxyFault, "no fence between its initialisation"),
    (CLUSTER, ALONE + "\n  await();", ALONE, bp.RaceFault, "may not have begun"),
    (CLUSTER, "TMA_COLUMN) tma::wait_stores_read<0>();", "TMA_COLUMN) ;", bp.RaceFault, "a CTA ends before"),
    ((64, 64, 320, "tc", TC), "    __syncthreads();\n  }", "  }", bp.RaceFault, "another warp's load"),
    ((64, 64, 320, "tc_async", "64x64 k_bytes=128 warp=32x32 stages=4"), WAIT, WAIT + " + 1", bp.RaceFault, "has not arrived"),
]  # fmt: skip
SAMPLES = [
    ("neg", "f32[1023]", "if (i + V <= count) {", "if (i < count) {", bp.OutOfBoundsFault, "no element's"),
    ("contiguize", "f32 264x72 transposed", "  __syncthreads();", "", bp.RaceFault, "another warp's store"),
    ("contiguize", "f32 264x72 transposed", "row / N % CB", "(row + 1) / N % CB", AssertionError, "bytes are wrong"),
    ("kv_append", "bf16 BHSD 1 tokens", "at[u] <= limit;", "at[u] <= limit + 1;", AssertionError, "bytes are wrong"),
]  # fmt: skip


@pytest.mark.parametrize("of", sorted({p[0] for p in PLANTED}, key=str), ids=str)
def test_as_they_are_they_are_right(of: Any) -> None:
    run(*product(*of))


@pytest.mark.parametrize(("of", "old", "new", "fault", "says"), PLANTED)
def test_a_product_made_wrong(of: Any, old: str, new: str, fault: Any, says: str) -> None:
    with pytest.raises(fault, match=says):
        run(*product(*of), old, new)


@pytest.mark.parametrize(("op", "label", "old", "new", "fault", "says"), SAMPLES)
def test_a_kernel_made_wrong(op: str, label: str, old: str, new: str, fault: Any, says: str) -> None:
    run(*sample(op, label))
    with pytest.raises(fault, match=says):
        run(*sample(op, label), old, new)
