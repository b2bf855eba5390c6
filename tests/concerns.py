"""``pytest --op softmax``: the tests that concern an op, by their parameters and by the family in whose folder they are."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

import pytest

from baracuda_py.plan import Op, all_ops, get_op

from .families import declared, family_of
from .places import TESTS

__all__ = ["asked_ops", "check_ops", "concerns"]

FAMILIES = TESTS / "families"
ATTRIBUTES = ("op", "backward")  # of a record that is a parameter: a gauntlet's case, a wanted problem, an edit


def asked_ops(config: pytest.Config) -> tuple[str, ...]:
    """The ops that ``--op`` names; none where it is not given."""
    return tuple(config.getoption("op"))


def check_ops(names: Iterable[str]) -> None:
    """UsageError where an op is unknown, with the ops that are called alike."""
    for name in names:
        if name not in all_ops():
            alike = ", ".join(difflib.get_close_matches(name, all_ops())) or "see `python -m baracuda_py ops`"
            raise pytest.UsageError(f"--op {name}: there is no such op; {alike}")


def concerns(item: pytest.Item, ops: Iterable[str]) -> bool:
    """Whether a test is about one of the ops: it is parametrised by it, or in a module that covers it, or it is one of the op's
    family and parametrised by no op."""
    asked, params = set(ops), getattr(getattr(item, "callspec", None), "params", {})
    explicit = {op for name, x in params.items() for op in _named(name, x)}
    if getattr(getattr(item, "module", None), "OF_GRADIENTS", False):
        explicit |= {gradient.op for op in explicit if (gradient := get_op(op).gradient) is not None}
    mentioned = {x for x in params.values() if isinstance(x, str)}
    if asked & (explicit | mentioned):
        return True
    covered = set(getattr(getattr(item, "module", None), "COVERS", ()))
    return not explicit and bool(asked & covered or {family_of(op) for op in asked} & {family_with(item.path)})


def _named(parameter: str, value: Any) -> set[str]:
    """The ops that one parameter of a test names for certain."""
    if isinstance(value, Op):
        return {value.name}
    if is_dataclass(value) or hasattr(type(value), "_fields"):
        return {x for name in ATTRIBUTES if isinstance(x := getattr(value, name, None), str) and x in all_ops()}
    return {value} if parameter == "op" and isinstance(value, str) and value in all_ops() else set()


def family_with(path: Path) -> str | None:
    """The family whose tests are in a file: tests/families/<family>/..., or tests/families/<family>_test.py."""
    if not path.is_relative_to(FAMILIES):
        return None
    name = path.relative_to(FAMILIES).parts[0].removesuffix("_test.py")
    return name if name in declared() else None
