"""What each family of ops declares for the tests, found by the name of its folder in `baracuda_py/ops`."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from typing import Any, NamedTuple, TypeVar

from baracuda_py.plan import all_ops, get_op
from baracuda_py.types import BaracudaError

from ..gauntlet import Problem

__all__ = ["OPS", "Family", "NoMeaning", "by_op", "declared", "family_of", "folders", "joined", "templates"]

OPS = "baracuda_py.ops."  # the package of the families' folders
V = TypeVar("V")


class NoMeaning(NamedTuple):
    """A call of a public function with an argument that has no meaning there, and how it is refused."""

    op: str
    call: tuple[tuple[Any, ...], dict[str, Any]]  # arguments, options
    error: type[BaracudaError]
    says: str


@dataclass(frozen=True, kw_only=True)
class Family:
    """The declaration of a family: `FAMILY` of `tests/families/<family>.py`, or of the package of that name."""

    # Checks the oracle by other means than its own code, for each op. Rows of the elementwise table have `check=` instead.
    independent: Mapping[str, Callable[[Problem], None]] = field(default_factory=dict)
    # Optional arguments that mean something in every call, and calls with others where they mean nothing.
    always: Collection[str] = ()
    no_meaning: Sequence[NoMeaning] = ()

    # The bounded suite. The op of which all emulated runs are made, whether or not records know them: of one kernel or two that
    # compile fast. The family's first if none is named.
    emulated: str = ""
    # Wanted problems (`wanted` of the family in baracuda_py/ops) that it takes: some of each sort, those that take little time.
    wanted: Sequence[str] = ()
    # Ops of which two samples are emulated, in place of the first alone: it does not reach what others do.
    two: Sequence[str] = ()
    # Samples that are emulated beside those spread over an op's, since they alone reach some kernel or variant.
    also: Mapping[str, Sequence[str]] = field(default_factory=dict)
    # Samples of which every variant is emulated, where it is not the op's first alone: another reaches more, or as much in less
    # time.
    variants: Mapping[str, Sequence[str]] = field(default_factory=dict)
    # Samples for which a device of few SMs, little L2 and little shared memory launches other than the usual one: of each op that
    # has any, what takes least time.
    small: Mapping[str, Sequence[str]] = field(default_factory=dict)
    # Cases of the family's own tests, as in `tests.bounded.CASES`.
    cases: Mapping[str, int | tuple[str, ...]] = field(default_factory=dict)


def family_of(op: str) -> str:
    """The folder of an op in baracuda_py/ops; "" for one that is defined elsewhere."""
    module = get_op(op).function.__module__
    return module.removeprefix(OPS).partition(".")[0] if module.startswith(OPS) else ""


@cache
def templates() -> tuple[tuple[str, ...], ...]:
    """All ops, those of one template together: of one family, with candidates of the same classes and operands of the same names.
    They are rows of one table, and differ in what its kernels are instantiated with."""
    found: dict[tuple[str, ...], list[str]] = {}
    for op, entry in all_ops().items():
        candidates = sorted(type(candidate).__qualname__ for candidate in entry.plan.all_candidates())
        operands = (operand.name for operand in entry.plan.descriptor.signature_operands)
        found.setdefault((family_of(op), *candidates, *operands), []).append(op)
    return tuple(map(tuple, found.values()))


@cache
def folders() -> tuple[str, ...]:
    """The families' folders in baracuda_py/ops."""
    return tuple(sorted({family_of(op) for op in all_ops()} - {""}))


@cache
def declared() -> dict[str, Family]:
    """The declarations of the families that have one."""
    names = (name for name in folders() if find_spec(f"{__package__}.{name}") is not None)
    return {name: importlib.import_module(f"{__package__}.{name}").FAMILY for name in names}


def joined(of: Callable[[Family], Collection[V]]) -> tuple[V, ...]:
    """Something that every family lists, of all of them."""
    return tuple(x for family in declared().values() for x in of(family))


def by_op(of: Callable[[Family], Mapping[str, V]]) -> dict[str, V]:
    """Something that every family has by op or by test, of all of them; none is declared twice."""
    found: dict[str, V] = {}
    for name, family in declared().items():
        twice = found.keys() & of(family).keys()
        assert not twice, f"tests/families/{name} declares {sorted(twice)}, which another family declares too"
        found |= of(family)
    return found
