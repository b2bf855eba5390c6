"""The bounded suite leaves no kernel and no variant out, and what it leaves out is there."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from baracuda_py.plan import all_ops, all_wanted, get_op
from baracuda_py.plan.about.verify import wanted_plans
from baracuda_py.runtime.gpu.device import spec_of
from baracuda_py.runtime.steps import Launch
from baracuda_py.samples.wanted import Wanted
from baracuda_py.types import UnsupportedError

from .. import bounded
from ..bounded import ALSO, CASES, MOST, VARIANTS, Each, choose, is_bounded
from ..families import templates
from ..gauntlet import (
    PER_VARIANT,
    SAMPLES,
    Case,
    Problem,
    admissible,
    cases,
    emulated_gauntlet_test,
    few_of,
    registry_test,
    spread_by_op,
)
from ..places import files_of_tests


def reached(plans: Iterable[Any]) -> set[str]:
    """The variants of some plans, and the kernels that they launch, whatever they are instantiated with."""
    found = set()
    for plan in plans:
        launches = [step for step in plan.selection.steps if isinstance(step, Launch)]
        kernels = {f"{step.kernel.file}:{step.kernel.entry.partition('<')[0]}" for step in launches}
        found |= {plan.sku.variant} | kernels
    return found


@cache
def of_case(case: Case, *, every: bool) -> frozenset[str]:
    """What a case emulates: what is chosen, or the first configuration of every variant, but for what is chosen."""
    problem = case.problem
    try:
        chosen = problem.plan
    except UnsupportedError:
        return frozenset()
    first = {plan.sku.variant: plan for plan in reversed(admissible(problem))} if every else {}
    return frozenset(reached(plan for plan in first.values() if plan.sku != chosen.sku) if every else reached([chosen]))


def of_wanted(wanted: Wanted) -> set[str]:
    desc = Problem(get_op(wanted.op), wanted.sample, "ptx").desc
    return reached(wanted_plans(wanted, desc, spec_of("ptx")))


def emulated(op: str, samples: Sequence[Case], of_variants: Sequence[Case], wanted: Iterable[Wanted]) -> set[str]:
    """All that the emulated gauntlet reaches of an op."""
    found = [of_case(case, every=False) for case in samples] + [of_case(case, every=True) for case in of_variants]
    return set().union(*found, *(of_wanted(w) for w in wanted if w.op == op))


def taken(test: Any, op: str) -> list[Case]:
    """The cases of an op that the bounded suite takes of a test."""
    (mark,) = (mark for mark in test.pytestmark if mark.name == "every_sample")
    return few_of(mark, op, "ptx")


@pytest.mark.parametrize("op", list(all_ops()))
def test_every_kernel_and_every_variant_is_emulated(op: str) -> None:
    gauntlet = emulated_gauntlet_test
    few = taken(gauntlet.test_gauntlet, op), taken(gauntlet.test_one_of_each_variant, op)
    every = emulated(op, cases(op, "ptx", SAMPLES), cases(op, "ptx", PER_VARIANT), all_wanted())
    missing = every - emulated(op, *few, (w for w in all_wanted() if w.name in bounded.WANTED))
    reach = {
        name: [case.label for case in cases(op, "ptx") if missing & of_case(case, every=name == "VARIANTS")]
        for name in ("ALSO", "VARIANTS")
    }
    fix = f"add one of the samples {reach}" if any(reach.values()) else "take more of test_wanted"
    assert not missing, f"the bounded suite (bounded.py) emulates no {missing} of {op}: {fix}"


def test_samples_that_turn_are_of_the_full_suite() -> None:
    """And each place is some op's."""
    (mark,) = (mark for mark in registry_test.test_gauntlet.pytestmark if mark.name == "every_sample")  # type: ignore[attr-defined]
    places = set[int]()
    for op in ("add", "exp", "softmax", "matmul", "sum"):
        full, few = cases(op, "cpu", SAMPLES), few_of(mark, op, "cpu")
        assert len(few) == min(mark.kwargs["bounded"][op], len(full)) and set(few) <= set(full)
    for op in map(str, range(len(all_ops()))):
        places.update(spread_by_op(range(SAMPLES), 1, op))
    assert places == set(range(SAMPLES)) and spread_by_op("abc", 9, "add") == ["a", "b", "c"]


def test_what_is_named_is_there() -> None:
    tests = defaultdict[str, set[str]](set)
    for name in CASES:
        file, _, test = name.partition("::")
        tests[file].add(test)
    for file, named in tests.items():
        body = ast.parse(files_of_tests()[file].read_text(encoding="utf-8")).body
        missing = named - {x.name for x in body if isinstance(x, ast.FunctionDef)}
        assert not missing, f"there is no {missing} in {file}"
    wanted = {w.name for w in all_wanted()}
    assert wanted.issuperset(bounded.WANTED)
    for op, labels in (*ALSO.items(), *VARIANTS.items()):
        missing = set(labels) - {case.label for case in cases(op, "ptx")}
        assert not missing, f"{op} has no samples {missing}"


def test_cases_that_are_named_are_there(request: pytest.FixtureRequest) -> None:
    """Of the tests that this run has."""
    by_name = defaultdict[str, list[pytest.Item]](list)
    for case in request.session.items:
        by_name[bounded.name_of(case)].append(case)
    for name, some in CASES.items():
        if (found := by_name[name]) and isinstance(some, tuple):
            assert len(bounded.taken(found, some)) == len(some), f"not all of {some} are cases of {name}"


def item(name: str, *, gpu: bool = False) -> Any:
    mark = {"gpu": gpu or None}
    case = SimpleNamespace(id=name, params={})
    return SimpleNamespace(
        path=Path("x_test.py"), originalname="test", name=name, get_closest_marker=mark.get, callspec=case
    )


def test_bounded_choice_leaves_cases_out_evenly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded, "CASES", {"x_test.py::test": 3})
    items = [item(f"{i}", gpu=i % 2 == 1) for i in range(10)]
    kept, left = choose(items, device=True)
    assert [x.name for x in kept] == ["0", "1", "3", "4", "5", "7", "8", "9"] and [x.name for x in left] == ["2", "6"]
    assert [x.name for x in choose(items, device=False)[0]] == ["0", "1", "4", "8"], "one is skipped for all"
    monkeypatch.setattr(bounded, "CASES", {"x_test.py::test": ("2", "8")})
    assert [x.name for x in choose(items, device=True)[1]] == ["0", "4", "6"]
    monkeypatch.setattr(bounded, "CASES", {"x_test.py::test": 0})
    assert [x.name for x in choose(items, device=True)[0]] == ["1", "3", "5", "7", "9"]


def test_bounded_choice_takes_few_cases_of_a_property(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first and the last among them; of a test of ops all."""
    monkeypatch.setattr(bounded, "CASES", {})
    items = [item(f"{i}") for i in range(3 * MOST)]
    kept, left = choose(items, device=False)
    assert len(kept) == MOST and len(left) == 2 * MOST and (kept[0], kept[-1]) == (items[0], items[-1])
    for x in items:
        x.callspec.params = {"op": "neg"}
    assert choose(items, device=False) == (items, [])


def test_bounded_choice_of_each_template_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """So many ops of each template, with all of their cases; other ones in other tests."""
    assert sorted(op for ops in templates() for op in ops) == sorted(all_ops())
    taken = [Each().of(f"a_test.py::test_{i}") for i in range(50)]
    assert all(len(set(ops) & some) == 1 for ops in templates() for some in taken)
    assert len({op for some in taken for op in some} & {"neg", "abs", "exp", "log", "sin"}) > 1
    assert Each(2).of("a_test.py::test") >= {"softmax", "log_softmax", "matmul_backward"}
    items = [item(f"{op}-{device}") for op in ("neg", "abs") for device in "ab"]
    for x in items:
        x.callspec.params = {"op": x.name[:3]}
    monkeypatch.setattr(Each, "of", lambda *_: frozenset({"abs"}))
    assert [x.name for x in bounded.taken(items, Each())] == ["abs-a", "abs-b"]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, True),
        ({"full": True}, False),
        ({"all": True}, False),
        ({"op": ["add"]}, False),
        ({"sample": "f32"}, False),
        ({"keyword": "add"}, False),
    ],
)
def test_what_is_asked_for_is_run(given: dict[str, Any], expected: bool) -> None:
    source = pytest.Config.ArgsSource
    for where, whole in ((source.TESTPATHS, True), (source.INVOCATION_DIR, True), (source.ARGS, False)):
        config: Any = SimpleNamespace(option=SimpleNamespace(**given), args_source=where)
        assert is_bounded(config) == (expected and whole)
    worker: Any = SimpleNamespace(workerinput={"bounded": expected})
    assert is_bounded(worker) == expected
