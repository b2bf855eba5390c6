"""Every op's own kernels through the gauntlet without a GPU: results within the guarantee, guard bytes, no fault in any order."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import pytest

import baracuda_py as bp
from baracuda_py.call.host import prepare
from baracuda_py.emulator.launch import translated
from baracuda_py.plan import all_ops, all_wanted, get_op
from baracuda_py.plan.about.digest import lowered_digest
from baracuda_py.plan.about.verify import wanted_plans
from baracuda_py.runtime.compile.sources import source_of
from baracuda_py.runtime.gpu.device import spec_of
from baracuda_py.runtime.steps import Kernel, Launch
from baracuda_py.samples.wanted import Wanted
from baracuda_py.types import UnsupportedError

from ..bounded import ALSO, SMALL, TWO, VARIANTS, is_bounded
from ..emulated_runs import Known, made_anyway
from ..kernel_lines import Executed
from . import PER_VARIANT, Case, Problem, admissible, cases, every_sample, named

OPS = list(all_ops())
ARCHES = ("sm_80", "sm_89", "sm_100a", "sm_120")
PER_ARCH, PER_SEED = 4, 8
USUAL = spec_of("ptx").arch
SYNCHRONISED = [op for op in OPS if "matmul" in op] + ["contiguize"]


@pytest.fixture(scope="session")
def executed() -> Iterator[Executed]:
    """The lines of kernels that this process runs; kept where BARACUDA_KERNEL_LINES says."""
    lines = Executed()
    yield lines
    lines.save()


class Right:
    """Runs plans of a problem and holds each result to its guarantee, unless the op's record knows the run."""

    def __init__(self, known: Known, executed: Executed) -> None:
        self.known, self.executed = known, executed

    def __call__(self, problem: Problem, plans: Iterable[Any] = (), *, way: str = "") -> None:
        """Runs the problem's plan, or each of `plans`. `way`: how the emulator goes, if not the usual one."""
        for plan in plans or (problem.plan,):
            if not self.known.fresh(problem, plan, way):
                continue
            with named(str(plan.sku)):
                problem.reset()
                call, _ = prepare(plan.selection, problem.operands | problem.values)
                report = call(0)
                problem.check_images(problem.images(), plan)
                if not way and plan.device.arch == USUAL:
                    self.executed.add(plan, report)


@pytest.fixture
def right(executed: Executed, request: pytest.FixtureRequest, record_property: Any) -> Right:
    """The bounded suite leaves out what the records know, of all but one op of each family; ``--changed`` does, of all ops."""
    changed = bool(request.config.getoption("--changed"))
    known = Known(leaves_out=changed or is_bounded(request.config), anyway=frozenset() if changed else made_anyway())
    for name, value in known.properties:
        record_property(name, value)
    return Right(known, executed)


def served(case: Case) -> Problem:
    """The case's problem; a test of what the device does not serve is skipped."""
    problem = case.problem
    try:
        _ = problem.plan
    except UnsupportedError as error:
        pytest.skip(str(error))
    return problem


@every_sample("ptx", bounded=dict.fromkeys(OPS, 1) | dict.fromkeys(TWO, 2), also=ALSO)
def test_gauntlet(case: Case, right: Right) -> None:
    right(served(case))


@every_sample("ptx", count=PER_VARIANT, bounded=dict.fromkeys(OPS, 1) | dict.fromkeys(VARIANTS, 0), also=VARIANTS)
def test_one_of_each_variant(case: Case, right: Right) -> None:
    """Every variant of a few problems, each in its first configuration, but for what `test_gauntlet` runs."""
    problem = served(case)
    first = {plan.sku.variant: plan for plan in reversed(admissible(problem))}
    if others := [plan for plan in first.values() if plan.sku != problem.plan.sku]:
        right(problem, others)


@pytest.mark.parametrize("wanted", all_wanted(), ids=lambda w: w.name)
def test_wanted(wanted: Wanted, right: Right) -> None:
    """Problems that reach what no sample does, by the kernels that they are for."""
    problem = Problem(get_op(wanted.op), wanted.sample, "ptx")
    plans = list(wanted_plans(wanted, problem.desc, spec_of("ptx")))
    assert len(plans) == len(wanted.configs), f"of {wanted.configs} there are only {[str(plan.sku) for plan in plans]}"
    right(problem, plans)


@every_sample("ptx", bounded=dict.fromkeys(OPS, 0), also=SMALL)
def test_a_small_device(case: Case, bounded: bool, right: Right) -> None:
    """Of few SMs, little L2 and little shared memory: small problems take the paths of large ones, where it launches other than
    the usual device."""
    problem = served(case)
    device = problem.plan.device
    small = replace(device, name=f"{device.name}:small", sms=2, l2_bytes=1 << 20, shared_bytes=99 << 10)
    try:
        plan = problem.op.plan.select(problem.desc, device=small)
    except UnsupportedError as error:
        pytest.skip(str(error))
    if lowered_digest(plan.selection.steps) != lowered_digest(problem.plan.selection.steps):
        right(problem, [plan])
    else:
        assert not bounded, "of the bounded suite's choice, and a small device launches the same"


@pytest.mark.parametrize("op", OPS)
def test_each_sort_of_configuration(op: str, right: Right) -> None:
    """Of every variant one configuration of each sort that no sample selects, by the smallest sample that admits one."""
    problems = []
    for case in cases(op, "ptx"):
        with contextlib.suppress(UnsupportedError):
            _ = (problem := case.problem).plan
            problems.append(problem)
    ran = {sort_of(problem.plan) for problem in problems}
    for problem in sorted(problems, key=lambda p: sum(slot.host().nbytes for slot in p.slots.values())):
        new = {sort_of(plan): plan for plan in reversed(admissible(problem)) if sort_of(plan) not in ran}
        if new:
            right(problem, new.values())
            ran |= new.keys()


def sort_of(plan: Any) -> tuple[str, str]:
    """A plan's variant, and its configuration's terms without their numbers."""
    return plan.sku.variant, re.sub(r"\d+", "", str(plan.sku.config))


@every_sample("ptx", count=PER_SEED, bounded=1, ops=SYNCHRONISED)
def test_random_orders(case: Case, right: Right) -> None:
    """One warp at a time, copies that arrive at any moment."""
    seed = 1 + case.index
    with bp.emulation(order="random", seed=seed, copies="random"):
        right(served(case), way=f"random order {seed}")


@every_sample("ptx", count=PER_ARCH, bounded=1)
def test_other_arches(case: Case, bounded: bool, right: Right) -> None:
    """Launches and code that are the same as on an arch before, or as in `test_gauntlet`, run once. Of an op's first sample what
    NVRTC makes of the code is compared, but for the bounded suite and where the records know the usual run, beside which it was
    compared; of the others the text that the preprocessor leaves."""
    ran, compiled = set(), not bounded and case == case.siblings[0]
    with contextlib.suppress(UnsupportedError):
        compiled = compiled and not right.known.left_out(case.problem, case.problem.plan)
        ran.add(code_of(case.problem, compiled=compiled))
    for arch in ARCHES:
        problem = replace(case, backend=f"ptx:{arch}").problem
        with named(arch), contextlib.suppress(UnsupportedError):
            if (code := code_of(problem, compiled=compiled)) not in ran:
                ran.add(code)
                right(problem)


def code_of(problem: Problem, *, compiled: bool) -> tuple[Any, ...]:
    """What the problem's plan runs, up to what is `compiled` of it."""
    steps, arch = problem.plan.selection.steps, problem.plan.device.arch
    kernels = [step.kernel for step in steps if isinstance(step, Launch)]
    of_arch = [id(translated(kernel, arch)) if compiled else passed(kernel, arch) for kernel in kernels]
    return lowered_digest(steps), *of_arch


CONDITION = re.compile(r"^\s*#\s*(?:el)?if\b.*__CUDA_ARCH__.*$", re.MULTILINE)


def passed(kernel: Kernel, arch: str) -> tuple[bool, ...]:
    """Which of the versions that a kernel's source compares `__CUDA_ARCH__` with an arch has reached."""
    source, version = source_of(kernel), 10 * int("".join(filter(str.isdigit, arch)))
    conditions = (line for text in (source.program, *source.headers.values()) for line in CONDITION.findall(text))
    return tuple(version >= int(number) for line in conditions for number in re.findall(r"\d+", line))


def test_conditions_on_the_arch_are_found() -> None:
    kernel = Kernel("attention/decode.cu", "")
    assert passed(kernel, "sm_80") == passed(kernel, "sm_89") != passed(kernel, "sm_90a") != passed(kernel, "sm_100a")
    assert passed(kernel, "sm_100a") == passed(kernel, "sm_120")
