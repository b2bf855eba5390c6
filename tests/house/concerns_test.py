"""``pytest --op``: what concerns an op is taken, and nothing that is about others."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import make_dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from baracuda_py.plan import all_wanted, get_op

from .. import conftest
from ..concerns import check_ops, concerns
from ..gauntlet import cases, every_sample
from ..places import ROOT, TESTS, file_of


def item(path: str = "x_test.py", *, module: dict[str, Any] | None = None, **params: Any) -> Any:
    spec = {"callspec": SimpleNamespace(params=params)} if params else {}
    return SimpleNamespace(path=TESTS / path, module=SimpleNamespace(**(module or {})), **spec)


WANTED = next(wanted for wanted in all_wanted() if wanted.op == "softmax")


@pytest.mark.parametrize(
    "about",
    [
        item(case=cases("softmax", "cpu")[0]),
        item(op="softmax"),
        item(entry=get_op("softmax")),
        item(wanted=WANTED),
        item(name="softmax", kind="f32"),
        item(module={"COVERS": ("sum", "softmax")}),
        item("families/softmax/range_test.py"),
        item("families/softmax_test.py", length=7),
    ],
)
def test_concerns_what_names_the_op_or_is_of_its_family(about: Any) -> None:
    assert concerns(about, ["softmax"]) and concerns(about, ["add", "softmax"]) and not concerns(about, ["add"])


@pytest.mark.parametrize(
    "other",
    [
        item(),
        item(length=7),
        item(op="log_softmax"),
        item("families/softmax/range_test.py", case=cases("log_softmax", "cpu")[0]),
        item("families/reduce/reduce_test.py"),
        item("families/answers_test.py"),
        item(module={"COVERS": ("softmax",)}, op="sum"),
    ],
)
def test_concerns_leaves_out_what_is_about_others(other: Any) -> None:
    assert not concerns(other, ["softmax"])


def test_concerns_takes_device_tests_without_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """The case that is skipped for an op's device tests names the op."""
    monkeypatch.setattr(conftest, "device_count", lambda: 0)
    given: list[Any] = []
    config = SimpleNamespace(workerinput={"bounded": False}, getoption=lambda name: [] if name == "op" else "")
    marker = every_sample("cuda", ops=["softmax", "add"])
    definition = SimpleNamespace(get_closest_marker=lambda name: marker)
    metafunc: Any = SimpleNamespace(
        definition=definition, config=config, parametrize=lambda _, cases: given.extend(cases)
    )
    conftest.pytest_generate_tests(metafunc)
    taken = [concerns(item("gauntlet/registry_test.py", case=param.values[0]), ["softmax"]) for param in given]
    assert taken == [True, False]


def test_concerns_joins_a_gradient_with_its_op() -> None:
    module = {"OF_GRADIENTS": True}
    assert concerns(item(module=module, op="softmax"), ["softmax_backward"])
    assert not concerns(item(op="softmax"), ["softmax_backward"])
    edit = make_dataclass("Edit", ["backward"])("softmax_backward")
    assert concerns(item(module=module, edit=edit), ["softmax_backward"])


def test_concerns_refuses_an_unknown_op() -> None:
    check_ops(["softmax", "add"])
    with pytest.raises(pytest.UsageError, match="--op sofmax: there is no such op; softmax"):
        check_ops(["sofmax"])


def test_concerns_takes_each_sort_of_test_of_an_op() -> None:
    taken = ("registry", "emulated_gauntlet", "arguments", "gradients", "reduce")
    others = ("mutants", "scan", "screen")
    paths = [file_of(name) for name in (*taken, *others)]
    arguments = ["-m", "pytest", "-p", "no:cacheprovider", "-n", "0", "--collect-only", "-q", "--op", "softmax"]
    ran = subprocess.run([sys.executable, *arguments, *paths], cwd=ROOT, capture_output=True, text=True, check=False)
    found = {line.partition(":")[0].rpartition("/")[2] for line in ran.stdout.splitlines() if line.startswith("tests/")}
    assert found == {f"{name}_test.py" for name in taken}, ran.stdout[-2000:]
