"""The row of a gradient, made of the expressions in the row of a function."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

from ....numerics.expression import Expression
from ....types import ElementKind
from .. import oracle
from .._promotion import common_kind
from .._row import FLOATS, RESULT, Row
from ._functions import functions

__all__ = ["BackwardRow", "backward_row"]

RESULT_NAME = r"\bout\b"  # in rows


@dataclass(frozen=True, eq=False)
class BackwardRow(Row):
    """The gradients of `forward`: `formulas` has an expression for each output, ``grad_<argument>``. `statistics` are inputs
    of the type computed in, which have no part in the results' kind."""

    forward: Row = field(kw_only=True)
    formulas: Mapping[str, Expression] = field(kw_only=True)
    statistics: tuple[str, ...] = field(kw_only=True, default=())

    @property
    def of_own_kind(self) -> tuple[str, ...]:
        return (*super().of_own_kind, *self.statistics)

    saved_result: ClassVar[str] = RESULT

    def kind_of(self, kinds: Sequence[ElementKind]) -> ElementKind:
        """The kind of the gradients of arrays of these kinds."""
        return common_kind(self, *kinds)

    @property
    def takes_result(self) -> bool:
        return RESULT in self.arguments and RESULT not in self.forward.arguments

    def text(self, output: str) -> str:
        """The expression of an output."""
        return re.sub(RESULT_NAME, RESULT, self.forward.gradient[output.removeprefix("grad_")])

    @cached_property
    def flushed(self) -> bool:
        """Whether a function among them flushes small results."""
        tables = ((formula.functions, formula.root.walk()) for formula in self.formulas.values())
        return any(table[node.op].flushed > 0 for table, nodes in tables for node in nodes if node.op in table)


def backward_row(row: Row) -> BackwardRow:
    """The gradient's row: its arguments are the gradient of the result, the arguments that the expressions name, and the result,
    ``y``, if they name that."""
    takes_result = any(re.search(RESULT_NAME, text) for text in row.gradient.values())
    assert not takes_result or RESULT not in row.arguments
    texts = {f"grad_{name}": re.sub(RESULT_NAME, RESULT, text) for name, text in row.gradient.items()}
    formulas = {output: Expression.of(text, functions(), row.mask) for output, text in texts.items()}
    named = {name for formula in formulas.values() for name in formula.names}
    saved = (*(name for name in row.arguments if name in named), *((RESULT,) if takes_result else ()))
    return BackwardRow(
        f"{row.name}_backward", "", oracle.where, "",
        f"The gradient{'s' if len(texts) > 1 else ''} of {row.name}: {'; '.join(f'{n} = {t}' for n, t in texts.items())}.",
        arguments=("grad", *saved), params=row.params, domain=FLOATS,
        mask=tuple(name for name in row.mask if name in saved),
        integers=tuple(name for name in row.integers if name in saved),
        absent={name: end for name, end in row.absent.items() if name in saved},
        forward=row, formulas=formulas,
    )  # fmt: skip
