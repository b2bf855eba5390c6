"""Declarations of families for the tests: each family has one, which is about its own ops, and nothing is declared twice."""

from __future__ import annotations

import pkgutil
from collections import Counter

import pytest

from baracuda_py.plan import all_ops, all_wanted, get_op

from .. import families
from ..families import Family, declared, family_of, folders
from ..places import TESTS

every_family = pytest.mark.parametrize("name", list(declared()))
HELPERS = {"answers", "declaration"}  # of tests/families, beside the families
TO_WRITE = """
tests/families/{0}.py is missing, for the ops of baracuda_py/ops/{0}. It begins with

    from . import Family

    FAMILY = Family(independent={{{1}}}, always=(...))

where each function takes a `tests.gauntlet.Problem`, and asserts that `problem.wide`, which the oracle has computed, is right
by other means. `Family` says what else there is: optional arguments, and what the bounded suite takes. The kernels' mutants are
written to tests/families/{0}.toml (`tests/mutants/catalogue.py` says how).
"""


@pytest.mark.parametrize("name", folders())
def test_every_family_of_ops_declares_its_tests(name: str) -> None:
    ops = ", ".join(f'"{op}": ...' for op in all_ops() if family_of(op) == name)
    assert name in declared(), TO_WRITE.format(name, ops)


def test_every_declaration_is_of_a_family() -> None:
    found = {module.name for module in pkgutil.iter_modules(families.__path__) if not module.name.endswith("_test")}
    assert found - HELPERS == set(declared()) and found > HELPERS


@every_family
def test_a_declaration_is_about_its_own_ops(name: str) -> None:
    family, ops = declared()[name], {op for op in all_ops() if family_of(op) == name}
    by_op = (family.also, family.variants, family.small)
    named = {*family.independent, *family.two, *(row.op for row in family.no_meaning), *(op for x in by_op for op in x)}
    assert named <= ops
    wanted = {wanted.name for wanted in all_wanted() if wanted.op in ops}
    assert set(family.wanted) <= wanted


def test_an_op_from_outside_is_of_no_family(monkeypatch: pytest.MonkeyPatch) -> None:
    assert family_of("softmax") == "softmax" and family_of("qkv_project_int4") == "quantized"
    monkeypatch.setattr(get_op("softmax").function, "__module__", "elsewhere.ops")
    assert family_of("softmax") == ""


def test_two_families_cannot_declare_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    both = {"a": Family(also={"sum": ("x",)}), "b": Family(also={"sum": ("y",)})}
    monkeypatch.setattr(families.declaration, "declared", lambda: both)
    with pytest.raises(AssertionError, match=r"tests/families/b declares \['sum'\]"):
        families.by_op(lambda family: family.also)


def test_names_of_test_files_are_unique() -> None:
    """A test is named by its file and function wherever one is listed."""
    names = Counter(path.name for path in TESTS.rglob("*_test.py"))
    assert [name for name, count in names.items() if count > 1] == []
