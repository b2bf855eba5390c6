"""Plans of one expression of elements, of operands that broadcast: steps of another family's gradient, without a function."""

from __future__ import annotations

from typing import Any

from ....numerics.expression import Expression
from ....plan.plan import Plan
from ....types import OpCategory
from .. import oracle
from .._row import FLOATS, Row
from ._functions import functions
from ._row import BackwardRow
from .gradients import descriptor_of, plan_of

__all__ = ["expression_of", "formula_plan"]


def expression_of(text: str) -> Expression:
    """An expression with the functions that gradients may call."""
    return Expression.of(text, functions())


def formula_plan(
    name: str, formula: Expression, params: tuple[str, ...], statistics: tuple[str, ...], category: OpCategory
) -> type[Plan[Any]]:
    """The plan of ``grad_x = formula``, the gradient of `name`. `params` are numbers given at run time, `statistics` inputs of
    the type computed in; the other names are inputs."""
    forward = Row(name, "", oracle.where, "", "")
    inputs = ("grad", *(n for n in formula.names if n != "grad" and n not in params))
    row = BackwardRow(
        f"{name}_backward", "", oracle.where, "", "", arguments=inputs, params=dict.fromkeys(params, 1.0), domain=FLOATS,
        forward=forward, formulas={"grad_x": formula}, statistics=statistics,
    )  # fmt: skip
    return plan_of(row, descriptor_of(row), category)
