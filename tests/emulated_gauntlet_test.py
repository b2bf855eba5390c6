"""Every op's own kernels through the gauntlet without a GPU: results within the guarantee, guard bytes, no fault in any order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fnmatch import fnmatch
from typing import Any

import pytest

import baracuda_py as bp
from baracuda_py.call.host import prepare
from baracuda_py.plan import all_ops, get_op
from baracuda_py.plan.about import tune
from baracuda_py.runtime.device import spec_of
from baracuda_py.types import PlanPreference, UnsupportedError

from .gauntlet import Problem, admissible, named, samples_of
from .kernel_lines import Executed
from .wanted import WANTED, Wanted

OPS = list(all_ops())
ARCHES = ("sm_80", "sm_89", "sm_100a", "sm_120")
every_op = pytest.mark.parametrize("op", OPS)
PER_ARCH, PER_SEED = 6, 8
SYNCHRONISED = [op for op in OPS if "matmul" in op] + ["contiguize"]


@pytest.fixture(scope="module")
def executed() -> Iterator[Executed]:
    """The lines of kernels that this process runs; kept where BARACUDA_KERNEL_LINES says."""
    lines = Executed()
    yield lines
    lines.save()


def problems(op: str, device: str, count: int) -> Iterator[Problem]:
    """The op's samples, as far as the device serves them."""
    for sample in samples_of(get_op(op), count=count):
        problem = Problem(get_op(op), sample, device)
        try:
            _ = problem.plan
        except UnsupportedError:
            continue
        yield problem


def right(problem: Problem, plans: Iterable[Any] = (), executed: Executed | None = None) -> None:
    """Runs the problem's plan, or each of `plans`, and holds the result to its guarantee."""
    for plan in plans or (problem.plan,):
        with named(f"{problem.sample.label} {plan.sku}"):
            problem.reset()
            call, _ = prepare(plan.selection, problem.operands | problem.values)
            report = call(0)
            problem.check_images(problem.images(), plan)
            if executed is not None:
                executed.add(plan, report)


@every_op
def test_gauntlet(op: str, executed: Executed) -> None:
    for problem in problems(op, "ptx", 24):
        right(problem, executed=executed)


@every_op
def test_one_of_each_variant(op: str, executed: Executed) -> None:
    """Every variant of a few problems, each in its first configuration."""
    for problem in problems(op, "ptx", 4):
        first = {plan.sku.variant: plan for plan in reversed(admissible(problem))}
        right(problem, first.values(), executed)


@pytest.mark.parametrize("wanted", WANTED, ids=lambda w: w.name)
def test_wanted(wanted: Wanted, executed: Executed) -> None:
    """Problems that reach what no sample does, by the kernels that they are for."""
    problem = Problem(get_op(wanted.op), wanted.sample, "ptx")
    kind, pref = get_op(wanted.op).plan, PlanPreference(variant=wanted.variant, deterministic=False)
    found = tune.admissible(kind, problem.desc, pref, spec_of(wanted.device))
    for pattern in wanted.configs:
        plans = [plan for plan in found if fnmatch(str(plan.sku.config), pattern)]
        assert plans, f"no configuration is {pattern!r}: {', '.join(str(plan.sku.config) for plan in found)}"
        right(problem, plans[:1], executed)


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("op", SYNCHRONISED)
def test_random_orders(op: str, seed: int) -> None:
    """One warp at a time, copies that arrive at any moment."""
    with bp.emulation(order="random", seed=seed, copies="random"):
        for problem in problems(op, "ptx", PER_SEED):
            right(problem)


@pytest.mark.parametrize("arch", ARCHES)
@every_op
def test_other_arches(op: str, arch: str) -> None:
    for problem in problems(op, f"ptx:{arch}", PER_ARCH):
        right(problem)
