"""Names of tests say module and property in a few words: they are searched for, and stand in records and reports."""

from __future__ import annotations

import ast
import re

import pytest

from ..places import TESTS

LONGEST = 60  # characters
APOSTROPHE = re.compile(r"_(?:s|t|re|ll)(?:_|$)")  # "numpy_s" for NumPy's, "does_t" for doesn't
PLANTED = ("test_" + "a" * LONGEST, "test_c_order_is_numpy_s", "test_a_plan_s_number_is_given", "test_it_isn_t_read")


def faults_of(name: str) -> list[str]:
    """What is wrong with a test's name."""
    faults = [f"{len(name)} characters, where {LONGEST} are the most"] if len(name) > LONGEST else []
    return faults + ["an apostrophe spelt out"] * bool(APOSTROPHE.search(name))


def test_names_are_short_and_without_apostrophes() -> None:
    found = []
    for path in sorted(TESTS.rglob("*_test.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                found += [f"{path.relative_to(TESTS)}: {node.name}: {fault}" for fault in faults_of(node.name)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("name", PLANTED)
def test_names_planted_faults_are_found(name: str) -> None:
    assert faults_of(name)
